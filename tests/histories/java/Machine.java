import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.FileRegion;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.WritableByteChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.AbstractExecutorService;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.transaction.AbstractTransactionalMessageCheckListener;
import org.apache.rocketmq.broker.transaction.TransactionalMessageService;
import org.apache.rocketmq.broker.transaction.queue.DefaultTransactionalMessageCheckListener;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A broker of one release without its network and without its timers: requests, rounds of the check, batches of op
 * messages and the clock are the steps of a history. Each line of standard input is a step, words are separated by tabs;
 * the answer ends with a line "ok", "no REASON" (a start that the broker refuses) or "failed REASON".
 */
public final class Machine {
    private static final long PATIENCE_MS = 20_000;
    private static final int MAGIC = -626843481, MAGIC_OF_LONG_TOPICS = -626843477;
    private static final String HALF = "RMQ_SYS_TRANS_HALF_TOPIC", OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC";

    private final Map<String, Client> channels = new LinkedHashMap<>();
    private final List<String> discards = new ArrayList<>();
    private final PrintStream out;
    private BrokerController broker;
    private DefaultMessageStore store;
    private NettyServerConfig server;
    private Object transactionTable, builder;

    private Machine(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] given) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Machine machine = new Machine(out);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(machine.step(line.split("\t")));
            } catch (Throwable error) {
                error.printStackTrace();
                out.println("failed " + String.valueOf(error).replace('\n', ' '));
            }
            out.flush();
        }
        System.exit(0);
    }

    private String step(String[] words) throws Exception {
        switch (words[0]) {
            case "clock":
                Clock.set(Long.parseLong(words[1]));
                return "ok";
            case "start":
                return start(words);
            case "request":
                request(words[1], Base64.getDecoder().decode(words[2]));
                return "ok";
            case "check":
                check();
                return "ok";
            case "batch":
                callIfThere(transactions(), "batchSendOpMessage");
                dispatched();
                return "ok";
            case "persist":
                broker.getConsumerOffsetManager().persist();
                Object metrics = field(transactions(), "transactionMetrics");
                if (metrics != null) {
                    metrics.getClass().getMethod("persist").invoke(metrics);
                }
                return "ok";
            case "clean":
                clean();
                return "ok";
            case "flush":
                store.flush();
                return "ok";
            case "records":
                records(Long.parseLong(words[1]));
                return "ok";
            case "cursors":
                out.println("cursors\t" + cursor(HALF) + "\t" + cursor(OP) + "\t" + store.getMaxOffsetInQueue(HALF, 0)
                        + "\t" + store.getMaxOffsetInQueue(OP, 0));
                return "ok";
            case "where":
                Object files = field(store.getCommitLog(), "mappedFileQueue");
                out.println("log " + files.getClass().getMethod("getFlushedWhere").invoke(files) + " " + store.getMaxPhyOffset());
                return "ok";
            case "stop":
                stop();
                return "ok";
            case "abandon":
                abandon();
                return "ok";
            default:
                return "failed no such step: " + words[0];
        }
    }

    private String start(String[] words) throws Exception {
        BrokerConfig config = new BrokerConfig();
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        server = new NettyServerConfig();
        server.setListenPort(10911);
        storeConfig.setStorePathRootDir(words[1]);
        storeConfig.setStorePathCommitLog(words[1] + "/commitlog");
        storeConfig.setHaListenPort(0);
        for (int i = 2; i < words.length; i++) {
            int at = words[i].indexOf('=');
            String name = words[i].substring(0, at), value = words[i].substring(at + 1);
            boolean isKnown = set(config, name, value);
            isKnown |= set(storeConfig, name, value);
            if (!isKnown) {
                out.println("unknown " + name);
            }
        }
        config.setBrokerIP1("10.0.0.2");
        long now = Clock.currentTimeMillis();
        if (Arrays.asList(words).contains("transRocksDBEnable=true")) {
            Clock.set(0); // the check of the table begins in a thread of its own: every half message is too young for it
        }
        broker = new BrokerController(config, server, new NettyClientConfig(), storeConfig);
        if (!broker.initialize()) {
            return "no initialize gave false";
        }
        store = (DefaultMessageStore) broker.getMessageStore();
        store.start();
        Recorder listener = new Recorder();
        listener.setBrokerController(broker);
        setField(broker, "transactionalMessageCheckListener", listener);
        // Checks are sent by the thread that carries out the step, so that a round has all its effects at its end.
        setField(listener, "executorService", new DirectExecutor());
        // The service sends a batch whenever real time has passed; here a batch is a step.
        shutDown(field(transactions(), "transactionalOpBatchService"));
        // This one waits only after the time has moved: in a time that stands still it takes a whole core.
        shutDown(field(broker, "transactionMetricsFlushService"));
        endDelivery();
        // The table in RocksDB is built, and its check is begun, by steps only.
        transactionTable = field(broker, "transMessageRocksDBStore");
        builder = transactionTable == null ? null : field(transactionTable, "transIndexBuildService");
        shutDown(builder);
        if (builder != null) {
            shutDown(field(field(broker, "transactionalMessageRocksDBService"), "transStatusService"));
            Clock.set(now);
            setField(field(broker, "transactionalMessageRocksDBService"), "checkTranStatusTaskExecutor", new DirectExecutor());
        }
        dispatched();
        return "ok";
    }

    /** What a timer of the store does each ten seconds, from a minute after the start on: it deletes queue files. */
    private void clean() throws Exception {
        Object cleaner = field(store, "cleanConsumeQueueService");
        if (cleaner == null) {
            cleaner = field(field(store, "consumeQueueStore"), "cleanConsumeQueueService");
        }
        Class<?> type = cleaner.getClass();
        while (Arrays.stream(type.getDeclaredMethods()).noneMatch(method -> method.getName().equals("run"))) {
            type = type.getSuperclass(); // that of queues in RocksDB has it from there, up to 5.3.3
        }
        Method run = type.getDeclaredMethod("run");
        run.setAccessible(true);
        run.invoke(cleaner);
    }

    private static void shutDown(Object service) throws Exception {
        if (service != null) {
            service.getClass().getMethod("shutdown").invoke(service);
        }
    }

    private static boolean set(Object config, String name, String value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : config.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterTypes().length == 1) {
                Class<?> type = method.getParameterTypes()[0];
                method.invoke(config, type == int.class ? (Object) Integer.valueOf(value)
                        : type == long.class ? (Object) Long.valueOf(value)
                        : type == boolean.class ? (Object) Boolean.valueOf(value)
                        : type.isEnum() ? enumValue(type, value) : value);
                return true;
            }
        }
        return false;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object enumValue(Class type, String value) {
        return Enum.valueOf(type, value);
    }

    private Client channel(String name) {
        return channels.computeIfAbsent(name, any -> new Client(channels.size()));
    }

    /** A client's connection; brokers write its address into records. */
    private static final class Client extends EmbeddedChannel {
        private final InetSocketAddress address;
        private final Queue<Object> sent = new ConcurrentLinkedQueue<>();

        Client(int number) {
            super(new ChannelInboundHandlerAdapter());
            address = new InetSocketAddress("10.0.1." + (number + 1), 51234);
        }

        /** The broker's threads send checks side by side, for which an embedded channel is not made. */
        @Override
        public ChannelFuture writeAndFlush(Object message) {
            try {
                sent.add(message instanceof FileRegion ? bytesOf((FileRegion) message) : message);
            } catch (Exception error) {
                return newFailedFuture(error);
            }
            return newSucceededFuture();
        }

        /** Records that are answered from the log: the broker releases them as soon as they are written. */
        private static byte[] bytesOf(FileRegion region) throws Exception {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            WritableByteChannel to = Channels.newChannel(bytes);
            while (bytes.size() < region.count()) {
                region.transferTo(to, bytes.size());
            }
            return bytes.toByteArray();
        }

        @Override
        public SocketAddress remoteAddress() {
            return address == null ? new InetSocketAddress("10.0.1.1", 51234) : address;
        }

        @Override
        public SocketAddress localAddress() {
            return new InetSocketAddress("10.0.0.2", 10911);
        }
    }

    /** One request, to the processor that the broker registered for its code. */
    private void request(String name, byte[] frame) throws Exception {
        RemotingCommand request = RemotingCommand.decode(Arrays.copyOfRange(frame, 4, frame.length));
        Client channel = channel(name);
        ChannelHandlerContext context = channel.pipeline().firstContext();
        Object remoting = broker.getRemotingServer();
        Object pair = ((Map<?, ?>) field(remoting, "processorTable")).get(request.getCode());
        if (pair == null) {
            pair = field(remoting, "defaultRequestProcessor");
            pair = pair != null ? pair : field(remoting, "defaultRequestProcessorPair");
        }
        Object processor = pair.getClass().getMethod("getObject1").invoke(pair);
        Method process = null;
        for (Method method : processor.getClass().getMethods()) {
            if (method.getName().equals("processRequest") && method.getParameterTypes().length == 2
                    && method.getParameterTypes()[1] == RemotingCommand.class) {
                process = method;
            }
        }
        process.setAccessible(true);
        RemotingCommand answer;
        try {
            answer = (RemotingCommand) process.invoke(processor, context, request);
        } catch (InvocationTargetException error) {
            // NettyRemotingAbstract.processRequestCommand answers SYSTEM_ERROR.
            answer = RemotingCommand.createResponseCommand(1, String.valueOf(error.getCause()));
        }
        dispatched();
        if (answer != null) {
            answer.setOpaque(request.getOpaque());
            print("answer", name, answer);
        }
        drain();
    }

    private void print(String word, String name, RemotingCommand command) {
        ByteBuffer head = command.encodeHeader();
        byte[] body = command.getBody() == null ? new byte[0] : command.getBody();
        ByteBuffer whole = ByteBuffer.allocate(head.remaining() + body.length);
        whole.put(head).put(body);
        out.println(word + "\t" + name + "\t" + Base64.getEncoder().encodeToString(whole.array()));
    }

    /** What the broker wrote to its clients without a request of theirs. */
    private void drain() {
        for (Map.Entry<String, Client> one : channels.entrySet()) {
            // Before 4.6.0 the answer to a send is written to the handler's context, and arrives behind its handlers.
            for (Object left = one.getValue().readOutbound(); left != null; left = one.getValue().readOutbound()) {
                one.getValue().sent.add(left);
            }
            for (Object left = one.getValue().sent.poll(); left != null; left = one.getValue().sent.poll()) {
                if (left instanceof RemotingCommand) {
                    RemotingCommand command = (RemotingCommand) left;
                    print(command.isResponseType() ? "answer" : "asked", one.getKey(), command);
                } else if (left instanceof byte[]) {
                    out.println("answer\t" + one.getKey() + "\t" + Base64.getEncoder().encodeToString((byte[]) left));
                }
            }
        }
    }

    /** One round of the check, with the settings in force. */
    private void check() throws Exception {
        BrokerConfig config = broker.getBrokerConfig();
        AbstractTransactionalMessageCheckListener listener =
                (AbstractTransactionalMessageCheckListener) field(broker, "transactionalMessageCheckListener");
        Clock.isMoved = true;
        try {
            if (builder != null) {
                call(field(broker, "transactionalMessageRocksDBService"), "checkTransStatus");
            } else {
                transactions().check(config.getTransactionTimeOut(), config.getTransactionCheckMax(), listener);
            }
        } finally {
            Clock.isMoved = false;
        }
        out.println("clock\t" + Clock.currentTimeMillis());
        dispatched();
        drain();
        discards.forEach(out::println);
        discards.clear();
    }

    /** Runs what it is given at once. */
    private static final class DirectExecutor extends AbstractExecutorService {
        @Override
        public void execute(Runnable task) {
            task.run();
        }

        @Override
        public void shutdown() {
        }

        @Override
        public List<Runnable> shutdownNow() {
            return Collections.emptyList();
        }

        @Override
        public boolean isShutdown() {
            return false;
        }

        @Override
        public boolean isTerminated() {
            return false;
        }

        @Override
        public boolean awaitTermination(long time, TimeUnit unit) {
            return true;
        }
    }

    /** The release's own listener, with a line for each half that it discards: before 4.5.2 that leaves no record. */
    private final class Recorder extends DefaultTransactionalMessageCheckListener {
        @Override
        public void resolveDiscardMsg(MessageExt message) {
            discards.add("discard\t" + message.getQueueOffset() + "\t" + message.getCommitLogOffset());
            super.resolveDiscardMsg(message);
        }
    }

    /** Where the check begins: TransactionalMessageBridge.fetchConsumeOffset. */
    private long cursor(String topic) {
        long found = broker.getConsumerOffsetManager().queryOffset("CID_RMQ_SYS_TRANS", topic, 0);
        return found == -1 ? store.getMinOffsetInQueue(topic, 0) : found;
    }

    /** Every record from a place of the log on, as the broker reads it. */
    private void records(long place) throws Exception {
        int fileBytes = (Integer) store.getMessageStoreConfig().getClass().getMethod(fileSizeGetter())
                .invoke(store.getMessageStoreConfig());
        long end = store.getMaxPhyOffset();
        place = Math.max(place, store.getMinPhyOffset());
        while (place < end) {
            SelectMappedBufferResult found = store.selectOneMessageByOffset(place);
            MessageExt message = null;
            int size = 0;
            if (found != null) {
                size = found.getSize();
                // What follows the magic number of a filler at the end of a file is left from other records.
                int magic = found.getByteBuffer().getInt(4);
                if (magic == MAGIC || magic == MAGIC_OF_LONG_TOPICS) {
                    message = MessageDecoder.decode(found.getByteBuffer(), true, false);
                }
                found.release();
            }
            if (message == null) {
                place = (place / fileBytes + 1) * fileBytes;
                continue;
            }
            byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
            out.println("record\t" + place + "\t" + size + "\t" + message.getTopic() + "\t" + message.getQueueId() + "\t"
                    + message.getQueueOffset() + "\t" + message.getSysFlag() + "\t"
                    + message.getPreparedTransactionOffset() + "\t" + message.getStoreTimestamp() + "\t"
                    + message.getBornTimestamp() + "\t" + message.getProperty("TRANSACTION_CHECK_TIMES") + "\t"
                    + Base64.getEncoder().encodeToString(body) + "\t" + message.getProperty("TRANS_OFFSET"));
            place += size;
        }
    }

    private String fileSizeGetter() {
        for (Method method : store.getMessageStoreConfig().getClass().getMethods()) {
            if (method.getName().equals("getMapedFileSizeCommitLog")) {
                return method.getName();
            }
        }
        return "getMappedFileSizeCommitLog";
    }

    private TransactionalMessageService transactions() {
        return broker.getTransactionalMessageService();
    }

    /** Wait until the queues have what the log has. */
    private void dispatched() throws Exception {
        for (long end = System.currentTimeMillis() + PATIENCE_MS; store.dispatchBehindBytes() > 0; Thread.sleep(1)) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("the queues stay " + store.dispatchBehindBytes() + " bytes behind");
            }
        }
        // Queues in RocksDB get their slots from a thread of their own (5.3.3 to 5.5.0, not 5.2.0).
        Object queues = field(store, "consumeQueueStore");
        Object slots = queues == null ? null : field(queues, "groupCommitService");
        for (int quiet = 0; slots != null && quiet < 2; Thread.sleep(1)) {
            boolean isEmpty = ((Collection<?>) field(slots, "buffer")).isEmpty()
                    && ((Collection<?>) field(slots, "requests")).isEmpty();
            quiet = isEmpty ? quiet + 1 : 0;
        }
        while (builder != null && !((Collection<?>) field(transactionTable, "originTransMsgQueue")).isEmpty()) {
            call(builder, "buildTransIndex");
            ((Collection<?>) field(builder, "trs")).clear();
        }
    }

    private void stop() throws Exception {
        endDelivery();
        broker.shutdown();
        forget();
    }

    /** End a broker whose files are not looked at any more. */
    private void abandon() {
        try {
            if (broker != null) {
                endDelivery();
                broker.shutdown();
            }
        } catch (Throwable error) {
            error.printStackTrace();
        }
        forget();
    }

    /**
     * Tasks that deliver delayed messages begin a second of real time after the start, and no step needs them; a stop of
     * 4.9.7 waits a second for them.
     */
    private void endDelivery() throws Exception {
        Object delays = store == null ? null : field(store, "scheduleMessageService");
        Object timer = delays == null ? null : field(delays, "timer");
        if (timer != null) {
            ((java.util.Timer) timer).cancel();
        }
        Object tasks = delays == null ? null : field(delays, "deliverExecutorService");
        if (tasks != null) {
            ((ExecutorService) tasks).shutdownNow();
        }
    }

    private void forget() {
        channels.clear();
        broker = null;
        store = null;
        transactionTable = null;
        builder = null;
    }

    private static void callIfThere(Object object, String name) throws Exception {
        for (Method method : object.getClass().getMethods()) {
            if (method.getName().equals(name) && method.getParameterTypes().length == 0) {
                method.invoke(object);
            }
        }
    }

    private static void call(Object object, String name) throws Exception {
        Method method = object.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        method.invoke(object);
    }

    private static void setField(Object object, String name, Object value) throws Exception {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    field.set(object, value);
                }
            }
        }
    }

    /** The value of a field of an object's class or of a class above it; null if there is no such field. */
    private static Object field(Object object, String name) throws Exception {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(object);
                }
            }
        }
        return null;
    }
}
