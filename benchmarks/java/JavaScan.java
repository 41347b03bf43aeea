import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The peer: what a Java engineer writes in a day with the official {@code MessageDecoder}, on one thread over mapped files.
 *
 * <p>Work: {@code nobody} decodes header, topic and properties; {@code body} reads the body too; {@code crc} also checks it;
 * {@code pending} decodes everything and keeps halves without an op in hash maps; {@code pendingpeek} does the same but
 * looks at the topic's bytes first and decodes only what matters. Each pass prints one line of JSON; with more than one
 * pass the later ones show the speed of a warmed-up virtual machine.
 */
public class JavaScan {
    static final byte[] HALF = bytes("RMQ_SYS_TRANS_HALF_TOPIC");
    static final byte[] OP = bytes("RMQ_SYS_TRANS_OP_HALF_TOPIC");
    static final byte[] DISCARD = bytes("TRANS_CHECK_MAX_TIME_TOPIC");
    static final int SYS_FLAG_AT = 36;
    static final int BODY_LENGTH_AT = 84;

    /** What the pending loop keeps of a transaction. */
    static final class Transaction {
        String id;
        String group;
        String topic;
        long firstLogOffset;
        long lastLogOffset;
        long lastQueueOffset;
        int checks;
        final List<Long> queueOffsets = new ArrayList<>(1);
    }

    final List<Path> files = new ArrayList<>();
    final String work;
    final Map<Long, Transaction> byQueueOffset = new HashMap<>();
    final Map<String, Transaction> byId = new HashMap<>();
    long records;
    long recordBytes;
    long sum;

    JavaScan(Path store, String work) throws IOException {
        this.work = work;
        try (DirectoryStream<Path> found = Files.newDirectoryStream(store.resolve("commitlog"))) {
            for (Path file : found) {
                files.add(file);
            }
        }
        Collections.sort(files);
    }

    void scan() throws IOException {
        for (Path file : files) {
            try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
                MappedByteBuffer mapped = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
                if (!scan(mapped)) {
                    return;
                }
            }
        }
    }

    /** Whether the file ended in a blank record, so that the next one goes on. */
    private boolean scan(MappedByteBuffer mapped) {
        boolean crc = work.equals("crc");
        boolean body = !work.equals("nobody");
        boolean pending = work.startsWith("pending");
        boolean peek = work.equals("pendingpeek");
        int position = 0;
        int limit = mapped.limit();
        while (position + 8 <= limit) {
            int size = mapped.getInt(position);
            int magic = mapped.getInt(position + 4);
            if (magic == MessageDecoder.BLANK_MAGIC_CODE) {
                return true;
            }
            boolean known = magic == MessageDecoder.MESSAGE_MAGIC_CODE || magic == MessageDecoder.MESSAGE_MAGIC_CODE_V2;
            if (size <= 0 || position + size > limit || !known) {
                return false;
            }
            records++;
            recordBytes += size;
            if (!peek || matters(mapped, position)) {
                ByteBuffer record = mapped.slice(position, size);
                MessageExt message = crc
                    ? MessageDecoder.decode(record, true, false, false, false, true)
                    : MessageDecoder.decode(record, body, false, false);
                if (message == null) {
                    throw new IllegalStateException("not decoded: record at " + position);
                }
                if (pending) {
                    apply(message);
                } else {
                    sum += message.getQueueOffset() + message.getProperties().size();
                }
            }
            position += size;
        }
        return true;
    }

    private static boolean matters(ByteBuffer log, int record) {
        int sysFlag = log.getInt(record + SYS_FLAG_AT);
        int at = record + BODY_LENGTH_AT + ((sysFlag & 0x10) != 0 ? 12 : 0) + ((sysFlag & 0x20) != 0 ? 12 : 0);
        at += 4 + log.getInt(at);
        int length;
        if (log.getInt(record + 4) == MessageDecoder.MESSAGE_MAGIC_CODE_V2) {
            length = log.getShort(at);
            at += 2;
        } else {
            length = log.get(at++);
        }
        return same(log, at, length, HALF) || same(log, at, length, OP) || same(log, at, length, DISCARD);
    }

    private static boolean same(ByteBuffer log, int at, int length, byte[] topic) {
        if (length != topic.length) {
            return false;
        }
        for (int i = 0; i < length; i++) {
            if (log.get(at + i) != topic[i]) {
                return false;
            }
        }
        return true;
    }

    private void apply(MessageExt message) {
        switch (message.getTopic()) {
            case "RMQ_SYS_TRANS_HALF_TOPIC":
                half(message);
                break;
            case "RMQ_SYS_TRANS_OP_HALF_TOPIC":
                for (String number : new String(message.getBody(), StandardCharsets.UTF_8).split(",")) {
                    if (!number.isEmpty()) {
                        drop(byQueueOffset.get(Long.parseLong(number)));
                    }
                }
                break;
            case "TRANS_CHECK_MAX_TIME_TOPIC":
                drop(byId.get(message.getProperty("UNIQ_KEY")));
                break;
            default:
        }
    }

    private void half(MessageExt message) {
        String id = message.getProperty("UNIQ_KEY");
        Transaction transaction = byId.get(id);
        if (transaction == null) {
            transaction = new Transaction();
            transaction.id = id;
            transaction.group = message.getProperty("PGROUP");
            transaction.topic = message.getProperty("REAL_TOPIC");
            transaction.firstLogOffset = message.getCommitLogOffset();
            byId.put(id, transaction);
        }
        transaction.lastLogOffset = message.getCommitLogOffset();
        transaction.lastQueueOffset = message.getQueueOffset();
        String checks = message.getProperty("TRANSACTION_CHECK_TIMES");
        if (checks != null) {
            transaction.checks = Integer.parseInt(checks);
        }
        transaction.queueOffsets.add(message.getQueueOffset());
        byQueueOffset.put(message.getQueueOffset(), transaction);
    }

    private void drop(Transaction transaction) {
        if (transaction == null) {
            return;
        }
        for (Long queueOffset : transaction.queueOffsets) {
            byQueueOffset.remove(queueOffset);
        }
        byId.remove(transaction.id);
    }

    private void write(Path out) throws IOException {
        List<Transaction> all = new ArrayList<>(byId.values());
        all.sort(Comparator.comparingLong(transaction -> transaction.firstLogOffset));
        StringBuilder text = new StringBuilder("transaction_id\tproducer_group\treal_topic\tfirst_commit_log_offset"
            + "\tlast_commit_log_offset\tlast_queue_offset\tchecks\n");
        for (Transaction one : all) {
            text.append(String.join("\t", one.id, one.group, one.topic, "" + one.firstLogOffset,
                "" + one.lastLogOffset, "" + one.lastQueueOffset, "" + one.checks)).append('\n');
        }
        Files.writeString(out, text);
    }

    public static void main(String[] words) throws Exception {
        if (words.length < 3) {
            System.err.println("usage: JavaScan STORE nobody|body|crc|pending|pendingpeek OUT [PASSES]");
            System.exit(2);
        }
        int passes = words.length > 3 ? Integer.parseInt(words[3]) : 1;
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        for (int pass = 1; pass <= passes; pass++) {
            JavaScan scan = new JavaScan(Paths.get(words[0]), words[1]);
            long wall = System.nanoTime();
            long thread = threads.getCurrentThreadCpuTime();
            long cpu = process.getProcessCpuTime();
            scan.scan();
            boolean pending = words[1].startsWith("pending");
            if (pending) {
                scan.write(Paths.get(words[2]));
            }
            System.out.printf(Locale.ROOT,
                "{\"pass\":%d,\"records\":%d,\"bytes\":%d,\"result\":%d,\"wall_s\":%.4f,\"thread_cpu_s\":%.4f,"
                    + "\"process_cpu_s\":%.4f}%n",
                pass, scan.records, scan.recordBytes, pending ? scan.byId.size() : scan.sum,
                (System.nanoTime() - wall) / 1e9, (threads.getCurrentThreadCpuTime() - thread) / 1e9,
                (process.getProcessCpuTime() - cpu) / 1e9);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }
}
