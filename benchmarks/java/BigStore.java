import java.io.IOException;
import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Writes a large transactional store with the broker's own classes (5.1 or later), in this process, without a network.
 *
 * <p>Half records and the copies a check puts back go through {@code TransactionalMessageBridge}, op records
 * through its {@code writeOp}, final records through {@code EndTransactionProcessor} and the setters its
 * {@code processRequest} uses, and discard copies repeat {@code resolveDiscardMsg}. Two things are this program's
 * own: when a decision arrives, and that a pass of the check service comes after so many transactions instead of
 * after so many seconds.
 *
 * <p>Keys, sizes, outcomes and every offset depend on the seed and the options alone; only the clocks are real.
 */
public class BigStore {
    static final String HALF = "RMQ_SYS_TRANS_HALF_TOPIC";
    static final String OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
    static final String DISCARD = "TRANS_CHECK_MAX_TIME_TOPIC";
    static final String CHECK_GROUP = "CID_RMQ_SYS_TRANS";
    static final InetSocketAddress BORN_HOST = new InetSocketAddress("10.0.0.7", 51234);
    static final InetSocketAddress STORE_HOST = new InetSocketAddress("10.0.0.2", 10911);
    static final long MOST_BEHIND = 256L << 20;

    enum State { UNDECIDED, COMMITTED, ROLLED_BACK, DISCARDED }

    /** One transaction while it lives, with its first and its newest half copy. */
    static final class Transaction {
        String id;
        int number;
        String group;
        String topic;
        int queue;
        boolean commits;
        boolean staysOpen;
        int answersAtCheck;   // 0: decided before the first check
        int checks;
        long firstQueueOffset;
        long firstLogOffset;
        long queueOffset;
        long logOffset;
        State state = State.UNDECIDED;
    }

    /** The command line's {@code key=value} words over their defaults. */
    static final class Options {
        private final Map<String, String> values = new LinkedHashMap<>();

        Options(String[] words) {
            String defaults = "transactions=50000 body=300 seed=1 normal=20 rollback=10 open=0.5 open_count=-1 "
                + "open_within=0 late=0.2 late_count=-1 passes=20 check_within=0 tail=0 checkmax=15 delay=200 "
                + "topics=8 queues=4 groups=4 form=batch opchars=4096 opevery=1000 file=1073741824 index=true "
                + "ha=34012 traces=";
            for (String word : defaults.split(" ")) {
                put(word);
            }
            for (int i = 1; i < words.length; i++) {
                if (!values.containsKey(words[i].split("=", 2)[0])) {
                    throw new IllegalArgumentException("no such option: " + words[i] + "\noptions: " + defaults);
                }
                put(words[i]);
            }
        }

        private void put(String word) {
            String[] pair = word.split("=", 2);
            values.put(pair[0], pair[1]);
        }

        int number(String key) {
            return Integer.parseInt(values.get(key));
        }

        double percent(String key) {
            return Double.parseDouble(values.get(key));
        }

        String text(String key) {
            return values.get(key);
        }
    }

    /** Draws exactly {@code count} of {@code total} places, each place as likely as the next (selection sampling). */
    static final class Sample {
        private final SplittableRandom random;
        private int left;
        private int places;

        Sample(long seed, int count, int total) {
            random = new SplittableRandom(seed);
            left = count;
            places = total;
        }

        boolean next() {
            if (places <= 0) {
                return false;
            }
            boolean drawn = random.nextInt(places--) < left;
            if (drawn) {
                left--;
            }
            return drawn;
        }
    }

    final Options options;
    final Path root;
    final SplittableRandom random;
    final byte[] bodies = new byte[1 << 20];
    final ConcurrentMap<String, TopicConfig> topicTable = new ConcurrentHashMap<>();
    final String[] topics;
    final DefaultMessageStore store;
    final TransactionalMessageBridge bridge;
    final EndTransactionProcessor endTransaction;
    final Method finalOf;

    /** Newer than the longest wait for a decision. */
    final ArrayDeque<Transaction> young = new ArrayDeque<>();
    /** Undecided for longer: the check service's work. */
    final List<Transaction> old = new ArrayList<>();
    /** The highest half number in each op the op cursor has not passed. */
    final ArrayDeque<Long> opsAhead = new ArrayDeque<>();
    final StringBuilder opBody = new StringBuilder(8192);
    /** Where producers write message traces; empty: nowhere. */
    final String traces;
    final StringBuilder traceBody = new StringBuilder(4096);
    final LinkedHashSet<String> traceKeys = new LinkedHashSet<>();
    int traceLines;
    int traceRecords;
    long opBodyHighest = -1;
    long halfMax;
    long opMax;
    long halfCursor;
    long opCursor;
    long records;
    long normals;
    long committed;
    long rolledBack;
    long discarded;
    long copies;
    long lastQueueOffset;
    long lastLogOffset;

    BigStore(Path root, Options options) throws Exception {
        this.root = root;
        this.options = options;
        random = new SplittableRandom(options.number("seed"));
        topics = new String[options.number("topics")];
        String[] names = {"OrderTopic", "PaymentTopic", "InventoryEvents", "LedgerPostings"};
        for (int i = 0; i < topics.length; i++) {
            topics[i] = names[i % 4] + (i < 4 ? "" : "_" + i / 4);
        }
        Files.createDirectories(root.resolve("config"));

        MessageStoreConfig storeConfig = new MessageStoreConfig();
        storeConfig.setStorePathRootDir(root.toString());
        storeConfig.setStorePathCommitLog(root.resolve("commitlog").toString());
        storeConfig.setMappedFileSizeCommitLog(options.number("file"));
        storeConfig.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        storeConfig.setDiskMaxUsedSpaceRatio(98);
        storeConfig.setHaListenPort(options.number("ha"));           // the only port this process opens
        storeConfig.setMessageIndexEnable(Boolean.parseBoolean(options.text("index")));
        BrokerConfig brokerConfig = new BrokerConfig();
        brokerConfig.setBrokerClusterName("dc1");
        brokerConfig.setBrokerName("broker-a");
        brokerConfig.setBrokerIP1("10.0.0.2");
        NettyServerConfig serverConfig = new NettyServerConfig();
        serverConfig.setListenPort(10911);                           // its number goes into records; nothing listens
        BrokerController controller =
            new BrokerController(brokerConfig, serverConfig, new NettyClientConfig(), storeConfig);

        for (String topic : new String[] {HALF, OP, DISCARD}) {
            topicTable.put(topic, new TopicConfig(topic, 1, 1, PermName.PERM_READ | PermName.PERM_WRITE));
        }
        int queues = options.number("queues");
        for (String topic : topics) {
            topicTable.put(topic, new TopicConfig(topic, queues, queues, PermName.PERM_READ | PermName.PERM_WRITE));
        }
        traces = options.text("traces");
        if (!traces.isEmpty()) {
            topicTable.put(traces, new TopicConfig(traces, 1, 1, PermName.PERM_READ | PermName.PERM_WRITE));
        }
        store = new DefaultMessageStore(
            storeConfig, controller.getBrokerStatsManager(), null, brokerConfig, topicTable);
        if (!store.load()) {
            throw new IllegalStateException("the new store does not load");
        }
        store.start();
        bridge = new TransactionalMessageBridge(controller, store);
        endTransaction = new EndTransactionProcessor(controller);
        finalOf = EndTransactionProcessor.class.getDeclaredMethod("endMessageTransaction", MessageExt.class);
        finalOf.setAccessible(true);

        String letters = "abcdefghijklmnopqrstuvwxyz0123456789 ,:\"{}ABCDEF";
        for (int i = 0; i < bodies.length; i++) {
            bodies[i] = (byte) letters.charAt(random.nextInt(letters.length()));
        }
    }

    // ---- writing

    private void wrote(PutMessageResult result, String topic) throws InterruptedException {
        if (result == null || result.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            Object status = result == null ? null : result.getPutMessageStatus();
            throw new IllegalStateException("put " + topic + ": " + status);
        }
        lastQueueOffset = result.getAppendMessageResult().getLogicsOffset();
        lastLogOffset = result.getAppendMessageResult().getWroteOffset();
        records++;
        if ((records & 0x3fff) == 0) {
            while (store.dispatchBehindBytes() > MOST_BEHIND) {
                Thread.sleep(5);
            }
        }
    }

    private void put(MessageExtBrokerInner message) throws InterruptedException {
        wrote(store.putMessage(message), message.getTopic());
    }

    private void writeOp() {
        if (opBody.length() == 0) {
            return;
        }
        Message op = new Message(OP, "d", opBody.toString().getBytes(StandardCharsets.UTF_8));
        if (!bridge.writeOp(0, op)) {
            throw new IllegalStateException("op not written");
        }
        opsAhead.add(opBodyHighest);
        opMax++;
        records++;
        opBody.setLength(0);
        opBodyHighest = -1;
    }

    private void begin(Transaction transaction, int number) throws InterruptedException {
        MessageExtBrokerInner half =
            message(transaction.topic, transaction.queue, transaction.id, number, transaction.group);
        wrote(bridge.putHalfMessage(half), HALF);
        transaction.queueOffset = transaction.firstQueueOffset = lastQueueOffset;
        transaction.logOffset = transaction.firstLogOffset = lastLogOffset;
        halfMax = lastQueueOffset + 1;
        if (!traces.isEmpty()) {
            transaction.number = number;
            String place = String.format(Locale.ROOT, "0A00000200002A9F%016X", lastLogOffset);
            trace(transaction, "Pub", half.getBody().length + "\u00012\u00011\u0001" + place + "\u0001true");
            if (transaction.staysOpen && number % 2 == 0) {
                traceEnd(transaction, "COMMIT_MESSAGE");             // the request is lost
            }
        }
    }

    /** One more line of a trace record; a client of 5.x writes ten at once. */
    private void trace(Transaction transaction, String line, String rest) throws InterruptedException {
        String key = "ORD-" + transaction.number;
        String[] fields = {
            line, "" + System.currentTimeMillis(), "DefaultRegion", transaction.group, transaction.topic,
            transaction.id, "Tag" + transaction.number % 5, key, "10.0.0.2:10911", rest};
        traceBody.append(String.join("\u0001", fields)).append('\u0001').append('\u0002');
        traceKeys.add(transaction.id);
        traceKeys.add(key);
        if (++traceLines == 10) {
            writeTrace();
        }
    }

    private void traceEnd(Transaction transaction, String decision) throws InterruptedException {
        trace(transaction, "EndTransaction", "2\u0001" + transaction.id + "\u0001" + decision + "\u0001"
            + (transaction.checks > 0));
    }

    private void writeTrace() throws InterruptedException {
        if (traceLines == 0) {
            return;
        }
        MessageExtBrokerInner message = message(traces, 0, uniqueKey(traceRecords++, 255), 0, null);
        message.setBody(traceBody.toString().getBytes(StandardCharsets.UTF_8));
        MessageAccessor.putProperty(message, "KEYS", String.join(" ", traceKeys));
        MessageAccessor.clearProperty(message, "TAGS");
        message.setTagsCode(0);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        put(message);
        traceBody.setLength(0);
        traceKeys.clear();
        traceLines = 0;
    }

    private void decide(Transaction transaction) throws Exception {
        if (!traces.isEmpty()) {
            traceEnd(transaction, transaction.commits ? "COMMIT_MESSAGE" : "ROLLBACK_MESSAGE");
        }
        if (transaction.commits) {
            MessageExt half = store.lookMessageByOffset(transaction.logOffset);
            if (half == null || half.getQueueOffset() != transaction.queueOffset) {
                throw new IllegalStateException("half not found at " + transaction.logOffset);
            }
            MessageExtBrokerInner message = (MessageExtBrokerInner) finalOf.invoke(endTransaction, half);
            message.setSysFlag(MessageSysFlag.resetTransactionValue(
                message.getSysFlag(), MessageSysFlag.TRANSACTION_COMMIT_TYPE));
            message.setQueueOffset(transaction.queueOffset);
            message.setPreparedTransactionOffset(transaction.logOffset);
            message.setStoreTimestamp(half.getStoreTimestamp());
            MessageAccessor.clearProperty(message, MessageConst.PROPERTY_TRANSACTION_PREPARED);
            put(message);
            committed++;
            transaction.state = State.COMMITTED;
        } else {
            rolledBack++;
            transaction.state = State.ROLLED_BACK;
        }
        boolean single = options.text("form").equals("single");      // one op a decision, as before 5.1
        opBody.append(transaction.queueOffset);
        if (!single) {
            opBody.append(',');
        }
        opBodyHighest = Math.max(opBodyHighest, transaction.queueOffset);
        if (single || opBody.length() > options.number("opchars")) {
            writeOp();
        }
    }

    private void discard(Transaction transaction, MessageExt half) throws InterruptedException {
        MessageExtBrokerInner copy = new MessageExtBrokerInner();
        copy.setTopic(DISCARD);
        copy.setQueueId(0);
        copy.setBody(half.getBody());
        copy.setFlag(half.getFlag());
        MessageAccessor.setProperties(copy, half.getProperties());
        copy.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, half.getTags()));
        copy.setPropertiesString(MessageDecoder.messageProperties2String(half.getProperties()));
        copy.setSysFlag(half.getSysFlag());
        copy.setBornTimestamp(half.getBornTimestamp());
        copy.setBornHost(half.getBornHost());
        copy.setStoreHost(half.getStoreHost());
        copy.setReconsumeTimes(half.getReconsumeTimes());
        copy.setMsgId(half.getMsgId());
        copy.setWaitStoreMsgOK(false);
        put(copy);
        discarded++;
        transaction.state = State.DISCARDED;
    }

    /** One pass of the check service, as a broker leaves it whose producers are silent or answer late. */
    private void check() throws Exception {
        long end = halfMax;
        long opsBefore = opMax;
        for (Iterator<Transaction> each = old.iterator(); each.hasNext(); ) {
            Transaction transaction = each.next();
            MessageExt half = store.lookMessageByOffset(transaction.logOffset);
            if (transaction.checks >= options.number("checkmax")) {
                discard(transaction, half);
                each.remove();
                continue;
            }
            transaction.checks++;
            half.putUserProperty(MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES, String.valueOf(transaction.checks));
            wrote(bridge.putMessageReturnResult(bridge.renewHalfMessageInner(half)), HALF);
            transaction.queueOffset = lastQueueOffset;
            transaction.logOffset = lastLogOffset;
            halfMax = lastQueueOffset + 1;
            copies++;
            if (!transaction.staysOpen && transaction.checks >= transaction.answersAtCheck) {
                decide(transaction);
                each.remove();
            }
        }
        long first = end;
        for (Transaction transaction : young) {
            if (transaction.state == State.UNDECIDED) {
                first = Math.min(first, transaction.queueOffset);
                break;
            }
        }
        halfCursor = Math.max(halfCursor, first);
        while (opCursor < opsBefore && !opsAhead.isEmpty() && opsAhead.peek() < halfCursor) {
            opsAhead.poll();
            opCursor++;
        }
    }

    // ---- content

    /** 32 hexadecimal digits like a client's: address, process, class loader, time, counter. */
    private String uniqueKey(int number, int kind) {
        long high = 0x0A000007_0000_0000L | ((0x1000L + (options.number("seed") & 0xfff)) << 16) | 0x6D06L;
        long low = 0xD69C_0000_0000_0000L | ((long) (kind & 0xff) << 32) | (number & 0xffffffffL);
        return String.format(Locale.ROOT, "%016X%016X", high, low);
    }

    private MessageExtBrokerInner message(String topic, int queue, String id, int number, String group) {
        int body = options.number("body");
        int length = body / 2 + random.nextInt(Math.max(1, body));
        int from = random.nextInt(bodies.length - length);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBody(Arrays.copyOfRange(bodies, from, from + length));
        message.setFlag(0);
        Map<String, String> properties = new HashMap<>();
        properties.put("UNIQ_KEY", id);
        properties.put("WAIT", "true");
        properties.put("KEYS", "ORD-" + number);
        properties.put("TAGS", "Tag" + number % 5);
        properties.put("CLUSTER", "dc1");
        properties.put("MSG_REGION", "DefaultRegion");
        properties.put("TRACE_ON", "true");
        if (group != null) {
            properties.put("TRAN_MSG", "true");
            properties.put("PGROUP", group);
            message.setSysFlag(MessageSysFlag.TRANSACTION_PREPARED_TYPE);
        }
        MessageAccessor.setProperties(message, properties);
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        message.setBornTimestamp(System.currentTimeMillis() - random.nextInt(20));
        message.setBornHost(BORN_HOST);
        message.setStoreHost(STORE_HOST);
        message.setReconsumeTimes(0);
        message.setWaitStoreMsgOK(false);
        return message;
    }

    // ---- the run

    void run() throws Exception {
        int transactions = options.number("transactions");
        int delay = options.number("delay");
        int passes = options.number("passes");
        int checkFrom = options.number("check_within") == 0 ? 0 : transactions - options.number("check_within");
        int passEvery = Math.max(delay * 4 + 1, (transactions - checkFrom - options.number("tail")) / passes);
        int openCount = options.number("open_count");
        int lateCount = options.number("late_count");
        double openPercent = openCount < 0 ? options.percent("open") : 0;
        double latePercent = lateCount < 0 ? options.percent("late") : 0;
        int within = options.number("open_within");
        int openFrom = within == 0 ? 0 : transactions - within;
        Sample openSample = new Sample(options.number("seed") + 1L, Math.max(0, openCount), transactions - openFrom);
        Sample lateSample = new Sample(options.number("seed") + 2L, Math.max(0, lateCount), transactions);

        @SuppressWarnings({"unchecked", "rawtypes"}) List<Transaction>[] due = new List[delay + 2];
        for (int i = 0; i < due.length; i++) {
            due[i] = new ArrayList<>();
        }
        long began = System.nanoTime();
        int passed = 0;
        for (int i = 0; i < transactions; i++) {
            for (int k = normalsBefore(); k > 0; k--) {
                String topic = topics[random.nextInt(topics.length)];
                put(message(topic, random.nextInt(options.number("queues")), uniqueKey(i, 1 + k), i, null));
                normals++;
            }
            Transaction transaction = new Transaction();
            transaction.id = uniqueKey(i, 0);
            transaction.topic = topics[random.nextInt(topics.length)];
            transaction.queue = random.nextInt(options.number("queues"));
            transaction.group = "tx_group_" + random.nextInt(options.number("groups"));
            transaction.commits = random.nextDouble() * 100 >= options.percent("rollback");
            double fate = random.nextDouble() * 100;
            transaction.staysOpen = fate < openPercent || i >= openFrom && openSample.next();
            boolean late = fate < openPercent + latePercent || lateSample.next();
            if (!transaction.staysOpen && late) {
                transaction.answersAtCheck = 1 + random.nextInt(3);
            }
            int wait = 1 + random.nextInt(delay);
            begin(transaction, i);
            young.add(transaction);
            if (!transaction.staysOpen && transaction.answersAtCheck == 0) {
                due[(i + wait) % due.length].add(transaction);
            }
            for (Transaction decided : due[i % due.length]) {
                decide(decided);
            }
            due[i % due.length].clear();
            while (young.size() > delay + 1) {
                Transaction eldest = young.poll();
                if (eldest.state == State.UNDECIDED) {
                    old.add(eldest);
                }
            }
            if (i % options.number("opevery") == options.number("opevery") - 1) {
                writeOp();
            }
            if (i >= checkFrom && (i - checkFrom) % passEvery == passEvery - 1 && passed < passes) {
                check();
                passed++;
            }
            if (i % 500_000 == 499_999) {
                double seconds = (System.nanoTime() - began) / 1e9;
                System.err.printf("%,d transactions, %,d records, %.0f s%n", i + 1, records, seconds);
            }
        }
        writeOp();
        writeTrace();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(20);
        }
        long end = store.getMaxPhyOffset();
        writeConfig();
        store.shutdown();
        writeTruth(end, passed, (System.nanoTime() - began) / 1e9);
    }

    private int normalsBefore() {
        double expected = options.percent("normal") / 100;
        int whole = (int) expected;
        return random.nextDouble() < expected - whole ? whole + 1 : whole;
    }

    private void writeConfig() throws IOException {
        Map<String, Object> version = new LinkedHashMap<>();
        version.put("counter", 0L);
        version.put("stateVersion", 0L);
        version.put("timestamp", System.currentTimeMillis());
        Map<String, Object> cursors = new LinkedHashMap<>();
        cursors.put(HALF + "@" + CHECK_GROUP, new TreeMap<>(Map.of(0, halfCursor)));
        cursors.put(OP + "@" + CHECK_GROUP, new TreeMap<>(Map.of(0, opCursor)));
        writeJson("consumerOffset.json", version, "offsetTable", cursors);
        writeJson("topics.json", version, "topicConfigTable", topicTable);
    }

    private void writeJson(String name, Object version, String key, Object value) throws IOException {
        Map<String, Object> content = new LinkedHashMap<>();
        content.put("dataVersion", version);
        content.put(key, value);
        MixAll.string2File(RemotingSerializable.toJson(content, true), root.resolve("config").resolve(name).toString());
    }

    /** What this program did: totals in {@code truth.json}, the open transactions in {@code pending.tsv}. */
    private void writeTruth(long end, int passed, double seconds) throws IOException {
        List<Transaction> pending = new ArrayList<>(old);
        for (Transaction transaction : young) {
            if (transaction.state == State.UNDECIDED) {
                pending.add(transaction);
            }
        }
        if (committed + rolledBack + discarded + pending.size() != options.number("transactions")) {
            throw new IllegalStateException("the truth does not add up");
        }
        Path truth = root.resolveSibling(root.getFileName() + ".truth");
        Files.createDirectories(truth);
        long neverChecked = 0;
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(truth.resolve("pending.tsv")))) {
            out.print("transaction_id\tproducer_group\treal_topic\treal_queue_id\tfirst_commit_log_offset"
                + "\tfirst_queue_offset\tlast_commit_log_offset\tlast_queue_offset\tchecks\n");
            for (Transaction one : pending) {
                neverChecked += one.checks == 0 ? 1 : 0;
                out.print(String.join("\t", one.id, one.group, one.topic, "" + one.queue, "" + one.firstLogOffset,
                    "" + one.firstQueueOffset, "" + one.logOffset, "" + one.queueOffset, "" + one.checks) + "\n");
            }
        }
        Map<String, Object> totals = new LinkedHashMap<>();
        totals.put("transactions", options.number("transactions"));
        totals.put("committed", committed);
        totals.put("rolled_back", rolledBack);
        totals.put("discarded", discarded);
        totals.put("pending", pending.size());
        totals.put("pending_never_checked", neverChecked);
        totals.put("half_records", halfMax);
        totals.put("half_copies_put_back", copies);
        totals.put("op_records", opMax);
        totals.put("normal_records", normals);
        totals.put("records", records);
        totals.put("end_of_log", end);
        totals.put("half_cursor", halfCursor);
        totals.put("op_cursor", opCursor);
        totals.put("check_passes", passed);
        totals.put("options", options.values);
        totals.put("seconds", Math.round(seconds * 10) / 10.0);
        Files.writeString(truth.resolve("truth.json"), RemotingSerializable.toJson(totals, true) + "\n");
    }

    public static void main(String[] words) throws Exception {
        if (words.length < 1) {
            System.err.println("usage: BigStore STORE [KEY=VALUE ...]");
            System.exit(2);
        }
        Path root = Paths.get(words[0]).toAbsolutePath();
        if (Files.exists(root.resolve("commitlog"))) {
            System.err.println("there is a store already: " + root);
            System.exit(2);
        }
        new BigStore(root, new Options(words)).run();
        System.exit(0);   // the broker's pools keep threads
    }
}
