import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * The official Java client, told what to do by lines on standard input; what it sees leaves as JSON lines.
 *
 * A command is a word and fields NAME=VALUE, separated by tabs, values percent-encoded. Answers carry the command's `ref`.
 *   producer    group [compress=ZLIB|LZ4|ZSTD] [topic] [strangers=COMMIT|ROLLBACK] [ahead=MS] [unrouted=yes]
 *                                                          start a transactional producer; strangers: what it answers to
 *                                                          checks of transactions that another process began; ahead: by
 *                                                          how much its clock is ahead; unrouted: as the client
 *                                                          leaves it, without a route to any broker
 *   release     id                                         let a late decision (COMMIT@N) go now
 *   leave       group                                      shut it down
 *   consumer    group topics [fail=N]                      consume from the first offset; fail=N: refuse each message N times
 *   send        group topic kind=transaction|ordinary|batch count case plan first checks body keys tags flag p.NAME
 *   request     address code body f.NAME                   any remoting request, answered
 *   pull        address topic queue offset                 records of a queue, as the broker serves them
 *   quit
 * first: COMMIT, ROLLBACK, UNKNOW, THROW, or COMMIT@N / ROLLBACK@N: only after the N-th check came in (a late decision).
 *        With at=EPOCH_MS in the command it is taken at that moment.
 * checks: answers to the checks, comma separated; the last one is repeated.
 */
public class Scenario extends Lines {
    static final Map<String, TransactionMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    static final List<DefaultMQPushConsumer> CONSUMERS = new ArrayList<>();
    static final Map<String, Plan> PLANS = new ConcurrentHashMap<>();
    static final ThreadLocal<Plan> CURRENT = new ThreadLocal<>();
    static NettyRemotingClient remoting;
    static String nameServer;

    /** What is to become of one transaction. */
    static class Plan {
        Map<String, String> fields;
        String uniq, offsetMsgId;
        long queueOffset = -1;
        int checks;
        final CountDownLatch late = new CountDownLatch(1);

        LocalTransactionState first() throws InterruptedException {
            String f = fields.getOrDefault("first", "UNKNOW");
            if (f.equals("THROW")) throw new IllegalStateException("planned");
            int at = f.indexOf('@');
            if (at > 0) {
                late.await(60, TimeUnit.SECONDS);
                Thread.sleep(300);
            }
            if (fields.containsKey("at")) Thread.sleep(Math.max(0, Long.parseLong(fields.get("at")) - System.currentTimeMillis()));
            return state(at > 0 ? f.substring(0, at) : f);
        }

        synchronized LocalTransactionState check() {
            checks++;
            String f = fields.getOrDefault("first", "");
            int at = f.indexOf('@');
            if (at > 0 && checks >= Integer.parseInt(f.substring(at + 1))) late.countDown();
            String[] answers = fields.getOrDefault("checks", "UNKNOW").split(",");
            return state(answers[Math.min(checks, answers.length) - 1]);
        }
    }

    static LocalTransactionState state(String s) {
        return s.startsWith("COMMIT") ? LocalTransactionState.COMMIT_MESSAGE
            : s.startsWith("ROLLBACK") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    // ---- producers --------------------------------------------------------------------------------------------

    static void producer(Map<String, String> f) throws Exception {
        if (f.containsKey("compress")) System.setProperty("rocketmq.message.compressType", f.get("compress"));
        TransactionMQProducer p = f.containsKey("ahead")
            ? new TransactionMQProducer(f.get("group"), new ClockAhead(Long.parseLong(f.get("ahead"))))
            : new TransactionMQProducer(f.get("group"));
        System.clearProperty("rocketmq.message.compressType");
        p.setNamesrvAddr(nameServer);
        p.setSendMsgTimeout(15000);
        p.setHeartbeatBrokerInterval(1000);
        p.setPollNameServerInterval(1000);
        p.setInstanceName(f.get("group") + "-" + ProcessHandle.current().pid());
        p.setExecutorService(new ThreadPoolExecutor(2, 4, 100, TimeUnit.SECONDS, new ArrayBlockingQueue<>(20000)));
        p.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                Plan plan = (Plan) arg;
                LocalTransactionState s;
                try {
                    s = plan.first();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                if (s != LocalTransactionState.UNKNOW) decision(plan, s, "client");
                return s;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                String uniq = m.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
                Plan plan = uniq == null ? null : PLANS.get(uniq);
                LocalTransactionState s = plan == null ? state(f.getOrDefault("strangers", "UNKNOW")) : plan.check();
                emit("check", "case", m.getUserProperty("case"), "transaction_id", uniq, "n", plan == null ? null : plan.checks,
                    "checks_count", m.getProperty("TRANSACTION_CHECK_TIMES"), "queue_offset", m.getQueueOffset(),
                    "commit_log_offset", m.getCommitLogOffset(), "answer", s.name());
                return s;
            }
        });
        p.getDefaultMQProducerImpl().registerSendMessageHook(new SendMessageHook() {
            public String hookName() { return "offsets"; }
            public void sendMessageBefore(SendMessageContext c) { }
            public void sendMessageAfter(SendMessageContext c) {
                Plan plan = CURRENT.get();
                SendResult r = c.getSendResult();
                if (plan == null || r == null) return;
                plan.uniq = c.getMessage().getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
                plan.queueOffset = r.getQueueOffset();
                plan.offsetMsgId = r.getOffsetMsgId();
                if (plan.uniq != null) PLANS.put(plan.uniq, plan);
                sent(plan, c.getMessage(), r);
            }
        });
        p.start();
        if (!f.containsKey("unrouted")) try {
            p.fetchPublishMessageQueues(f.getOrDefault("topic", "TBW102"));
        } catch (Exception e) {
            // the route is only wanted so that a heartbeat tells the broker of this group at once
        }
        PRODUCERS.put(f.get("group"), p);
        emit("producer", "ref", f.get("ref"), "group", f.get("group"));
    }

    /** Sends with the born time of a client whose clock is ahead. */
    static class ClockAhead implements RPCHook {
        final long ms;

        ClockAhead(long ms) {
            this.ms = ms;
        }

        public void doBeforeRequest(String address, RemotingCommand request) {
            Object header = request.readCustomHeader();  // its package is another one from 5.0 on
            if (header == null || !header.getClass().getSimpleName().startsWith("SendMessageRequestHeader")) return;
            String setter = header.getClass().getSimpleName().endsWith("V2") ? "setG" : "setBornTimestamp";
            try {
                header.getClass().getMethod(setter, Long.class).invoke(header, System.currentTimeMillis() + ms);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }

        public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) { }
    }

    static void sent(Plan plan, Message m, SendResult r) {
        boolean tx = "transaction".equals(plan.fields.get("kind"));
        emit("sent", "case", plan.fields.get("case"), "plan", plan.fields.get("plan"), "kind", plan.fields.get("kind"),
            "transaction_id", tx ? plan.uniq : null, "message_id", r.getMsgId(), "producer_group", plan.fields.get("group"),
            "topic", m.getTopic(), "queue_id", r.getMessageQueue().getQueueId(), "queue_offset", r.getQueueOffset(),
            "commit_log_offset", r.getOffsetMsgId() == null || r.getOffsetMsgId().contains(",") ? null : commitLogOffset(r.getOffsetMsgId()),
            "offset_message_id", r.getOffsetMsgId(), "keys", m.getKeys(), "tags", m.getTags(), "flag", m.getFlag(),
            "status", r.getSendStatus().name());
    }

    static void decision(Plan plan, LocalTransactionState s, String by) {
        emit("decision", "case", plan.fields.get("case"), "transaction_id", plan.uniq, "what", s.name(), "by", by,
            "queue_offset", plan.queueOffset, "commit_log_offset", commitLogOffset(plan.offsetMsgId));
    }

    static Message message(Map<String, String> f, int n) {
        byte[] body = Base64.getDecoder().decode(f.getOrDefault("body", ""));
        Message m = new Message(f.get("topic"), body);
        if (f.containsKey("tags")) m.setTags(f.get("tags"));
        if (f.containsKey("keys")) m.setKeys(f.get("keys"));
        if (f.containsKey("flag")) m.setFlag(Integer.parseInt(f.get("flag")));
        if (f.containsKey("level")) m.setDelayTimeLevel(Integer.parseInt(f.get("level")));
        for (Map.Entry<String, String> e : f.entrySet())
            if (e.getKey().startsWith("p.")) put(m, e.getKey().substring(2), e.getValue());
        if (!f.containsKey("nocase")) m.putUserProperty("case", n < 0 ? f.get("case") : f.get("case") + "." + n);
        return m;
    }

    /** Some names are the client's own (delays): those are put as the client's setters would. */
    static void put(Message m, String name, String value) {
        try {
            m.putUserProperty(name, value);
        } catch (RuntimeException reserved) {
            try {
                java.lang.reflect.Method put = Class.forName("org.apache.rocketmq.common.message.MessageAccessor")
                    .getMethod("putProperty", Message.class, String.class, String.class);
                put.invoke(null, m, name, value);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    static void send(Map<String, String> f) throws Exception {
        Plan plan = new Plan();
        plan.fields = f;
        TransactionMQProducer p = PRODUCERS.get(f.get("group"));
        CURRENT.set(plan);
        try {
            if (f.get("kind").equals("transaction")) {
                p.sendMessageInTransaction(message(f, -1), plan);
            } else if (f.get("kind").equals("batch")) {
                List<Message> all = new ArrayList<>();
                for (int i = 0; i < Integer.parseInt(f.get("count")); i++) all.add(message(f, i));
                CURRENT.remove();
                sent(plan, all.get(0), p.send(all));
            } else {
                p.send(message(f, -1));
            }
            emit("done", "ref", f.get("ref"));
        } finally {
            CURRENT.remove();
        }
    }

    // ---- consumers --------------------------------------------------------------------------------------------

    static void consumer(Map<String, String> f) throws Exception {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(f.get("group"));
        c.setNamesrvAddr(nameServer);
        c.setPollNameServerInterval(1000);
        c.setHeartbeatBrokerInterval(1000);
        c.setInstanceName("consumer-" + f.get("group") + ProcessHandle.current().pid());
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        int fail = Integer.parseInt(f.getOrDefault("fail", "0"));
        for (String t : f.get("topics").split(",")) c.subscribe(t, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) emit("delivered", record(m, "consumer_group", f.get("group")));
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() < fail ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        CONSUMERS.add(c);
        emit("consumer", "ref", f.get("ref"), "consumer_group", f.get("group"));
    }

    static Object[] record(MessageExt m, Object... more) {
        List<Object> r = new ArrayList<>(java.util.Arrays.asList("case", m.getUserProperty("case"),
            "transaction_id", m.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), "topic", m.getTopic(),
            "queue_id", m.getQueueId(), "queue_offset", m.getQueueOffset(), "commit_log_offset", m.getCommitLogOffset(),
            "prepared_transaction_offset", m.getPreparedTransactionOffset(), "system_flag", m.getSysFlag(), "flag", m.getFlag(),
            "born_time_ms", m.getBornTimestamp(), "store_time_ms", m.getStoreTimestamp(),
            "store_host", String.valueOf(m.getStoreHost()), "keys", m.getKeys(), "tags", m.getTags(),
            "body_length_bytes", m.getBody() == null ? null : m.getBody().length, "body_crc32", crc(m.getBody())));
        r.addAll(java.util.Arrays.asList(more));
        return r.toArray();
    }

    // ---- raw requests through the client's own remoting layer -------------------------------------------------

    static RemotingCommand request(Map<String, String> f, int code) throws Exception {
        RemotingCommand c = RemotingCommand.createRequestCommand(code, null);
        HashMap<String, String> ext = new HashMap<>();
        for (Map.Entry<String, String> e : f.entrySet()) if (e.getKey().startsWith("f.")) ext.put(e.getKey().substring(2), e.getValue());
        c.setExtFields(ext);
        if (f.containsKey("body")) c.setBody(Base64.getDecoder().decode(f.get("body")));
        return remoting.invokeSync(f.get("address"), c, Long.parseLong(f.getOrDefault("timeout", "15000")));
    }

    static void pull(Map<String, String> f) throws Exception {
        boolean readBody = f.containsKey("bodies");
        List<Object> rows = new ArrayList<>();
        long offset = Long.parseLong(f.get("offset"));
        int code;
        while (true) {
            Map<String, String> q = new HashMap<>();
            q.put("address", f.get("address"));
            String[] fields = {"consumerGroup", "TOOLS_CONSUMER", "topic", f.get("topic"), "queueId", f.get("queue"), "queueOffset", "" + offset,
                "maxMsgNums", "32", "sysFlag", "4", "commitOffset", "0", "suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0",
                "expressionType", "TAG"};
            for (int i = 0; i < fields.length; i += 2) q.put("f." + fields[i], fields[i + 1]);
            RemotingCommand r = request(q, 11);
            code = r.getCode();
            String next = r.getExtFields() == null ? null : r.getExtFields().get("nextBeginOffset");
            if (code == 0) {
                for (MessageExt m : MessageDecoder.decodes(ByteBuffer.wrap(r.getBody()), readBody)) {
                    Map<String, Object> row = new HashMap<>();
                    Object[] pairs = record(m, "properties", m.getProperties(), "offset_message_id", m.getMsgId(),
                        "body_text", readBody && m.getBody() != null ? new String(m.getBody(), StandardCharsets.ISO_8859_1) : null);
                    for (int i = 0; i < pairs.length; i += 2) row.put((String) pairs[i], pairs[i + 1]);
                    rows.add(row);
                }
                offset = Long.parseLong(next);
            } else if ((code == 20 || code == 21) && next != null && Long.parseLong(next) > offset) {
                offset = Long.parseLong(next);
            } else {
                break;
            }
        }
        emit("pulled", "ref", f.get("ref"), "topic", f.get("topic"), "code", code, "next", offset, "records", rows);
    }

    // ---- the loop ---------------------------------------------------------------------------------------------

    static void command(String word, Map<String, String> f) throws Exception {
        switch (word) {
            case "producer": producer(f); break;
            case "leave":
                TransactionMQProducer p = PRODUCERS.remove(f.get("group"));
                try {
                    p.shutdown();
                } catch (RuntimeException e) {
                    // 4.3.0 throws at the end of its own shutdown
                }
                emit("left", "ref", f.get("ref"), "group", f.get("group"));
                break;
            case "release":
                PLANS.get(f.get("id")).late.countDown();
                emit("done", "ref", f.get("ref"));
                break;
            case "consumer": consumer(f); break;
            case "send": send(f); break;
            case "pull": pull(f); break;
            case "request":
                RemotingCommand r = request(f, Integer.parseInt(f.get("code")));
                emit("response", "ref", f.get("ref"), "code", r.getCode(), "remark", r.getRemark(), "fields", r.getExtFields(),
                    "body", r.getBody() == null ? null : new String(r.getBody(), StandardCharsets.UTF_8));
                break;
            default: throw new IllegalArgumentException(word);
        }
    }

    public static void main(String[] args) throws Exception {
        nameServer = args[0];
        remoting = new NettyRemotingClient(new NettyClientConfig());
        remoting.start();
        listen(Scenario::command);
    }
}
