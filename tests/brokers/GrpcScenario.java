import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.client.java.impl.producer.SendReceiptImpl;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/**
 * The official gRPC client behind a proxy, told what to do by the lines that Scenario takes: producer (group is the topic),
 * leave, release, send (kind=transaction). What it sees leaves as the same events; commit-log offsets are null, for this
 * client does not get them. A decision that the proxy refuses is the event decision_lost.
 */
public class GrpcScenario extends Lines {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Map<String, Producer> PRODUCERS = new ConcurrentHashMap<>();
    static final Map<String, Plan> PLANS = new ConcurrentHashMap<>();
    static ClientConfiguration configuration;

    /** What is to become of one transaction. */
    static class Plan {
        final Map<String, String> fields;
        final CountDownLatch late = new CountDownLatch(1);
        String id;
        long queueOffset;
        int checks;

        Plan(Map<String, String> fields) { this.fields = fields; }

        TransactionResolution first() throws InterruptedException {
            String f = fields.getOrDefault("first", "UNKNOW");
            int at = f.indexOf('@');
            if (at > 0) {
                late.await(60, TimeUnit.SECONDS);
                Thread.sleep(300);
            }
            if (fields.containsKey("at")) Thread.sleep(Math.max(0, Long.parseLong(fields.get("at")) - System.currentTimeMillis()));
            return resolution(f);
        }

        synchronized TransactionResolution check() {
            checks++;
            String f = fields.getOrDefault("first", "");
            int at = f.indexOf('@');
            if (at > 0 && checks >= Integer.parseInt(f.substring(at + 1))) late.countDown();
            String[] answers = fields.getOrDefault("checks", "UNKNOW").split(",");
            return resolution(answers[Math.min(checks, answers.length) - 1]);
        }
    }

    static TransactionResolution resolution(String s) {
        return s.startsWith("COMMIT") ? TransactionResolution.COMMIT
            : s.startsWith("ROLLBACK") ? TransactionResolution.ROLLBACK : TransactionResolution.UNKNOWN;
    }

    static String word(TransactionResolution r) {
        return r == TransactionResolution.UNKNOWN ? "UNKNOW" : r.name() + "_MESSAGE";
    }

    static TransactionResolution checked(MessageView m, String strangers) {
        String id = m.getMessageId().toString();
        Plan plan = PLANS.get(id);
        TransactionResolution r = plan == null ? resolution(strangers) : plan.check();
        emit("check", "case", m.getProperties().get("case"), "transaction_id", id, "n", plan == null ? null : plan.checks,
            "queue_offset", ((MessageViewImpl) m).getOffset(), "commit_log_offset", null, "answer", word(r));
        return r;
    }

    static void producer(Map<String, String> f) throws Exception {
        String strangers = f.getOrDefault("strangers", "UNKNOW");
        PRODUCERS.put(f.get("group"), PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(f.get("group")).setTransactionChecker(m -> checked(m, strangers)).build());
        emit("producer", "ref", f.get("ref"), "group", f.get("group"));
    }

    static Message message(Map<String, String> f) {
        MessageBuilder m = PROVIDER.newMessageBuilder().setTopic(f.get("topic"))
            .setBody(Base64.getDecoder().decode(f.getOrDefault("body", ""))).addProperty("case", f.get("case"));
        if (f.containsKey("keys")) m.setKeys(f.get("keys").split(" "));
        if (f.containsKey("tags")) m.setTag(f.get("tags"));
        return m.build();
    }

    static void send(Map<String, String> f) throws Exception {
        Plan plan = new Plan(f);
        Producer p = PRODUCERS.get(f.get("group"));
        Transaction transaction = p.beginTransaction();
        SendReceiptImpl r = (SendReceiptImpl) p.send(message(f), transaction);
        plan.id = r.getMessageId().toString();
        plan.queueOffset = r.getOffset();
        PLANS.put(plan.id, plan);
        emit("sent", "case", f.get("case"), "plan", f.get("plan"), "kind", "transaction", "transaction_id", plan.id,
            "message_id", plan.id, "producer_group", f.get("group"), "topic", f.get("topic"),
            "queue_id", r.getMessageQueue().getQueueId(), "queue_offset", plan.queueOffset, "commit_log_offset", null,
            "keys", f.get("keys"), "tags", f.get("tags"), "status", "SEND_OK");
        decide(plan, transaction);
        emit("done", "ref", f.get("ref"));
    }

    static void decide(Plan plan, Transaction transaction) throws InterruptedException {
        TransactionResolution what = plan.first();
        if (what == TransactionResolution.UNKNOWN) return;
        String event = "decision", error = null;
        try {
            if (what == TransactionResolution.COMMIT) transaction.commit();
            else transaction.rollback();
        } catch (ClientException refused) {
            event = "decision_lost";
            error = String.valueOf(refused);
        }
        emit(event, "case", plan.fields.get("case"), "transaction_id", plan.id, "what", word(what), "by", "client",
            "queue_offset", plan.queueOffset, "commit_log_offset", null, "error", error);
    }

    static void command(String word, Map<String, String> f) throws Exception {
        switch (word) {
            case "producer": producer(f); break;
            case "leave":
                PRODUCERS.remove(f.get("group")).close();
                emit("left", "ref", f.get("ref"), "group", f.get("group"));
                break;
            case "release":
                PLANS.get(f.get("id")).late.countDown();
                emit("done", "ref", f.get("ref"));
                break;
            case "send": send(f); break;
            default: throw new IllegalArgumentException(word);
        }
    }

    public static void main(String[] args) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(15)).build();
        listen(GrpcScenario::command);
    }
}
