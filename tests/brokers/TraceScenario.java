import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer with message trace. Arguments: address of the name server, producer group, topic. Each line of stdin is the
 * number of a transaction and its decisions (CRU), separated by a tab: the first one at once, the others in answer to
 * checks, the last one again and again; a small letter waits LATE_MS before. Prints one JSON object for each half message sent and each decision. The end of
 * stdin ends it in order, so that all traces are written.
 */
public class TraceScenario {
    static final Map<String, String> PLANS = new ConcurrentHashMap<>();
    static final long LATE_MS = 20_000;
    static final Map<String, Integer> ASKED = new ConcurrentHashMap<>();

    static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    static LocalTransactionState decide(Message message, String id, int place, boolean isCheck) {
        String plan = PLANS.get(message.getKeys());
        char given = plan.charAt(Math.min(place, plan.length() - 1));
        char letter = Character.toUpperCase(given);
        if (letter != given) {
            try {
                Thread.sleep(LATE_MS);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        String word = letter == 'C' ? "COMMIT" : letter == 'R' ? "ROLLBACK" : "UNKNOWN";
        say("{\"event\":\"decided\",\"id\":\"" + id + "\",\"keys\":\"" + message.getKeys() + "\",\"decision\":\"" + word
            + "\",\"is_answer\":" + isCheck + ",\"time_ms\":" + System.currentTimeMillis() + "}");
        return letter == 'C' ? LocalTransactionState.COMMIT_MESSAGE
            : letter == 'R' ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    public static void main(String[] arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(null, arguments[1], null, true, null);
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60000);
        producer.setExecutorService(Executors.newFixedThreadPool(32)); // with one thread, a late answer delays the others
        producer.setHeartbeatBrokerInterval(1000); // before, a client of 5.1 is not asked
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return decide(message, message.getTransactionId(), 0, false);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int place = ASKED.merge(message.getKeys(), 1, Integer::sum);
                return decide(message, message.getTransactionId(), place, true);
            }
        });
        producer.start();
        say("{\"event\":\"ready\"}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            PLANS.put(words[0], words[1]);
            byte[] body = new byte[64];
            Arrays.fill(body, (byte) 'x');
            Message message = new Message(arguments[2], null, words[0], body);
            for (int attempt = 0; ; attempt++) {
                try {
                    TransactionSendResult sent = producer.sendMessageInTransaction(message, null);
                    say("{\"event\":\"sent\",\"id\":\"" + sent.getMsgId() + "\",\"keys\":\"" + words[0] + "\"}");
                    break;
                } catch (Exception error) {
                    if (attempt >= 20) throw error;
                    Thread.sleep(500);
                }
            }
        }
        producer.shutdown();
        System.exit(0);
    }
}
