import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pulls the whole half topic of a broker with the official pull consumer, one pull after the other, as its examples do. */
public class HalfPull {
    public static void main(String[] words) {
        try {
            pull(words);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the client's threads would keep the process
        }
        System.exit(0);
    }

    private static void pull(String[] words) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("TOOLS_CONSUMER");
        consumer.setNamesrvAddr(words[0]);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumerPullTimeoutMillis(60_000);
        consumer.start();
        MessageQueue queue = new MessageQueue("RMQ_SYS_TRANS_HALF_TOPIC", words[1], 0);
        long started = System.nanoTime();
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long count = 0;
        long ids = 0;
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            List<MessageExt> found = result.getMsgFoundList();
            if (found != null) {
                for (MessageExt message : found) {
                    ids += message.getProperty("UNIQ_KEY").length();
                    count++;
                }
            }
            offset = result.getNextBeginOffset();
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.println("{\"count\": " + count + ", \"seconds\": " + seconds + ", \"ids\": " + ids + "}");
        consumer.shutdown();
    }
}
