import com.alibaba.rocketmq.client.consumer.DefaultMQPushConsumer;
import com.alibaba.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import com.alibaba.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import com.alibaba.rocketmq.client.hook.SendMessageContext;
import com.alibaba.rocketmq.client.hook.SendMessageHook;
import com.alibaba.rocketmq.client.producer.LocalTransactionState;
import com.alibaba.rocketmq.client.producer.SendResult;
import com.alibaba.rocketmq.client.producer.TransactionMQProducer;
import com.alibaba.rocketmq.common.consumer.ConsumeFromWhere;
import com.alibaba.rocketmq.common.message.Message;
import com.alibaba.rocketmq.common.message.MessageDecoder;
import com.alibaba.rocketmq.common.message.MessageExt;
import com.alibaba.rocketmq.remoting.RPCHook;
import com.alibaba.rocketmq.remoting.netty.NettyClientConfig;
import com.alibaba.rocketmq.remoting.netty.NettyRemotingClient;
import com.alibaba.rocketmq.remoting.protocol.RemotingCommand;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The official client of a version before half topics (3.1 to 4.2), told what to do by lines on standard input as
 * Scenario.java is, with the same events. From 4.0 on the package has another name: whoever compiles this puts it in.
 *
 *   producer    group [topic] [strangers=COMMIT|ROLLBACK]  start a transactional producer; strangers: what it answers to
 *                                                          checks of transactions that another process began
 *   leave       group                                      shut it down
 *   consumer    group topics                               consume from the first offset
 *   send        group topic kind=transaction|ordinary case plan first checks body keys tags flag level p.NAME
 *   request     address code body f.NAME                   any remoting request, answered
 *   view        address from to file                       the log's records from one offset to another, as the broker
 *                                                          serves them one by one; file: bytes of a commit-log file
 *   quit
 * first: COMMIT, ROLLBACK, UNKNOW or THROW.   checks: answers to the checks, comma separated; the last one is repeated.
 */
public class OldScenario extends Lines {
    static final int VIEW_MESSAGE_BY_ID = 33, CHECK_TRANSACTION_STATE = 39, SEND_MESSAGE_MAGIC = 0xDAA320A7;
    static final Map<String, TransactionMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    static final List<DefaultMQPushConsumer> CONSUMERS = new ArrayList<>();
    static final Map<String, Plan> PLANS = new ConcurrentHashMap<>();
    static final Map<Long, String> ASKED_NUMBERS = new ConcurrentHashMap<>();
    static final ThreadLocal<Plan> CURRENT = new ThreadLocal<>();
    static NettyRemotingClient remoting;
    static String nameServer;

    /** What is to become of one transaction. */
    static class Plan {
        Map<String, String> fields;
        String uniq, offsetMsgId;
        long queueOffset = -1;
        int checks;

        synchronized LocalTransactionState check() {
            String[] answers = fields.getOrDefault("checks", "UNKNOW").split(",");
            return state(answers[Math.min(++checks, answers.length) - 1]);
        }
    }

    static LocalTransactionState state(String s) {
        return s.startsWith("COMMIT") ? LocalTransactionState.COMMIT_MESSAGE
            : s.startsWith("ROLLBACK") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    /** The client of 4.x has an id of its own in the result and the broker's beside it; that of 3.x the broker's alone. */
    static String offsetMsgId(SendResult r) {
        try {
            return (String) SendResult.class.getMethod("getOffsetMsgId").invoke(r);
        } catch (NoSuchMethodException before40) {
            return r.getMsgId();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    // ---- producers --------------------------------------------------------------------------------------------

    static void producer(Map<String, String> f) throws Exception {
        TransactionMQProducer p = new TransactionMQProducer(f.get("group"));
        p.setNamesrvAddr(nameServer);
        p.setSendMsgTimeout(15000);
        p.setHeartbeatBrokerInterval(1000);
        p.setInstanceName(f.get("group") + "-" + ProcessHandle.current().pid());
        p.setCheckThreadPoolMinSize(2);
        p.setCheckThreadPoolMaxSize(4);
        p.setTransactionCheckListener(m -> checked(m, f));
        p.getDefaultMQProducerImpl().registerSendMessageHook(new SendMessageHook() {
            public String hookName() { return "offsets"; }
            public void sendMessageBefore(SendMessageContext c) { }
            public void sendMessageAfter(SendMessageContext c) {
                Plan plan = CURRENT.get();
                SendResult r = c.getSendResult();
                if (plan == null || r == null) return;
                plan.uniq = c.getMessage().getProperty("UNIQ_KEY");
                plan.queueOffset = r.getQueueOffset();
                plan.offsetMsgId = offsetMsgId(r);
                sent(plan, c.getMessage(), r);
            }
        });
        p.start();
        // the listener is not told which number the broker named in its request: take it from the request itself
        p.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl().getRemotingClient().registerRPCHook(new RPCHook() {
            public void doBeforeRequest(String address, RemotingCommand c) {
                if (c.getCode() != CHECK_TRANSACTION_STATE || c.getExtFields() == null) return;
                ASKED_NUMBERS.put(Long.parseLong(c.getExtFields().get("commitLogOffset")), c.getExtFields().get("tranStateTableOffset"));
            }
            public void doAfterResponse(RemotingCommand c, RemotingCommand r) { }
            public void doAfterResponse(String address, RemotingCommand c, RemotingCommand r) { }
        });
        try {
            p.fetchPublishMessageQueues(f.getOrDefault("topic", "TBW102"));
        } catch (Exception e) {
            // the route is only wanted so that a heartbeat tells the broker of this group at once
        }
        PRODUCERS.put(f.get("group"), p);
        emit("producer", "ref", f.get("ref"), "group", f.get("group"));
    }

    static LocalTransactionState checked(MessageExt m, Map<String, String> f) {
        String name = m.getProperty("case");
        Plan plan = name == null ? null : PLANS.get(name);
        LocalTransactionState s = plan == null ? state(f.getOrDefault("strangers", "UNKNOW")) : plan.check();
        String number = ASKED_NUMBERS.get(m.getCommitLogOffset());
        emit("check", "case", name, "transaction_id", m.getProperty("UNIQ_KEY"), "n", plan == null ? null : plan.checks,
            "producer_group", f.get("group"), "message_id", m.getMsgId(), "queue_offset", m.getQueueOffset(),
            "asked_queue_offset", number == null ? null : Long.valueOf(number), "commit_log_offset", m.getCommitLogOffset(),
            "age_ms", System.currentTimeMillis() - m.getStoreTimestamp(), "answer", s.name());
        return s;
    }

    static void sent(Plan plan, Message m, SendResult r) {
        boolean tx = "transaction".equals(plan.fields.get("kind"));
        emit("sent", "case", plan.fields.get("case"), "plan", plan.fields.get("plan"), "kind", plan.fields.get("kind"),
            "transaction_id", tx ? plan.uniq : null, "message_id", r.getMsgId(), "producer_group", plan.fields.get("group"),
            "topic", m.getTopic(), "queue_id", r.getMessageQueue().getQueueId(), "queue_offset", r.getQueueOffset(),
            "commit_log_offset", commitLogOffset(plan.offsetMsgId), "offset_message_id", plan.offsetMsgId, "keys", m.getKeys(),
            "tags", m.getTags(), "flag", m.getFlag(), "status", r.getSendStatus().name());
    }

    static Message message(Map<String, String> f) {
        Message m = new Message(f.get("topic"), Base64.getDecoder().decode(f.getOrDefault("body", "")));
        if (f.containsKey("tags")) m.setTags(f.get("tags"));
        if (f.containsKey("keys")) m.setKeys(f.get("keys"));
        if (f.containsKey("flag")) m.setFlag(Integer.parseInt(f.get("flag")));
        if (f.containsKey("level")) m.setDelayTimeLevel(Integer.parseInt(f.get("level")));
        for (Map.Entry<String, String> e : f.entrySet())
            if (e.getKey().startsWith("p.")) m.putUserProperty(e.getKey().substring(2), e.getValue());
        m.putUserProperty("case", f.get("case"));
        return m;
    }

    static void send(Map<String, String> f) throws Exception {
        Plan plan = new Plan();
        plan.fields = f;
        PLANS.put(f.get("case"), plan);
        TransactionMQProducer p = PRODUCERS.get(f.get("group"));
        CURRENT.set(plan);
        try {
            if (f.get("kind").equals("transaction")) {
                p.sendMessageInTransaction(message(f), (m, arg) -> {
                    String first = f.getOrDefault("first", "UNKNOW");
                    if (first.equals("THROW")) throw new IllegalStateException("planned");
                    LocalTransactionState s = state(first);
                    if (s != LocalTransactionState.UNKNOW)
                        emit("decision", "case", f.get("case"), "transaction_id", plan.uniq, "what", s.name(), "by", "client",
                            "producer_group", f.get("group"), "queue_offset", plan.queueOffset, "commit_log_offset", commitLogOffset(plan.offsetMsgId));
                    return s;
                }, plan);
            } else {
                p.send(message(f));
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
        c.setHeartbeatBrokerInterval(1000);
        c.setInstanceName("consumer-" + f.get("group") + ProcessHandle.current().pid());
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (String t : f.get("topics").split(",")) c.subscribe(t, "*");
        c.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) emit("delivered", record(m, "consumer_group", f.get("group")));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        CONSUMERS.add(c);
        emit("consumer", "ref", f.get("ref"), "consumer_group", f.get("group"));
    }

    static Object[] record(MessageExt m, Object... more) {
        List<Object> r = new ArrayList<>(Arrays.asList("case", m.getProperty("case"), "transaction_id", m.getProperty("UNIQ_KEY"),
            "topic", m.getTopic(), "queue_id", m.getQueueId(), "queue_offset", m.getQueueOffset(), "commit_log_offset", m.getCommitLogOffset(),
            "prepared_transaction_offset", m.getPreparedTransactionOffset(), "system_flag", m.getSysFlag(), "flag", m.getFlag(),
            "born_time_ms", m.getBornTimestamp(), "store_time_ms", m.getStoreTimestamp(), "store_host", String.valueOf(m.getStoreHost()),
            "keys", m.getKeys(), "tags", m.getTags(), "body_length_bytes", m.getBody() == null ? null : m.getBody().length, "body_crc32", crc(m.getBody())));
        r.addAll(Arrays.asList(more));
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

    static void view(Map<String, String> f) throws Exception {
        long to = Long.parseLong(f.get("to")), file = Long.parseLong(f.get("file"));
        List<Object> rows = new ArrayList<>();
        for (long at = Long.parseLong(f.get("from")); at < to; ) {
            Map<String, String> q = new HashMap<>();
            q.put("address", f.get("address"));
            q.put("f.offset", "" + at);
            RemotingCommand r = request(q, VIEW_MESSAGE_BY_ID);
            boolean whole = r.getCode() == 0 && r.getBody() != null && r.getBody().length >= 8;
            if (!whole || ByteBuffer.wrap(r.getBody()).getInt(4) != SEND_MESSAGE_MAGIC) { // the blank at a file's end
                at = (at / file + 1) * file;
                continue;
            }
            MessageExt m = MessageDecoder.decode(ByteBuffer.wrap(r.getBody()), true);
            Map<String, Object> row = new HashMap<>();
            Object[] pairs = record(m, "properties", m.getProperties(), "length_bytes", m.getStoreSize(), "offset_message_id", m.getMsgId());
            for (int i = 0; i < pairs.length; i += 2) row.put((String) pairs[i], pairs[i + 1]);
            rows.add(row);
            at += m.getStoreSize();
        }
        emit("viewed", "ref", f.get("ref"), "records", rows);
    }

    // ---- the loop ---------------------------------------------------------------------------------------------

    static void command(String word, Map<String, String> f) throws Exception {
        switch (word) {
            case "producer": producer(f); break;
            case "leave":
                PRODUCERS.remove(f.get("group")).shutdown();
                emit("left", "ref", f.get("ref"), "group", f.get("group"));
                break;
            case "consumer": consumer(f); break;
            case "send": send(f); break;
            case "view": view(f); break;
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
        listen(OldScenario::command);
    }
}
