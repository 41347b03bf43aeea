import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.zip.CRC32;

/**
 * How a scenario of official clients is spoken to: commands are lines on standard input, a word and URL-encoded fields
 * name=value behind tabs; events are JSON lines on standard output.
 */
class Lines {
    static final PrintStream OUT = System.out;
    static final ExecutorService THREADS = Executors.newCachedThreadPool();

    /** What carries out a command. */
    interface Commands {
        void run(String word, Map<String, String> f) throws Exception;
    }

    static String json(Object o) {
        if (o == null) return "null";
        if (o instanceof Number || o instanceof Boolean) return o.toString();
        StringBuilder b = new StringBuilder();
        if (o instanceof Map) {
            b.append('{');
            for (Map.Entry<?, ?> e : new TreeMap<Object, Object>((Map<?, ?>) o).entrySet())
                b.append(b.length() > 1 ? ", " : "").append(json(e.getKey())).append(": ").append(json(e.getValue()));
            return b.append('}').toString();
        }
        if (o instanceof List) {
            b.append('[');
            for (Object x : (List<?>) o) b.append(b.length() > 1 ? ", " : "").append(json(x));
            return b.append(']').toString();
        }
        b.append('"');
        for (char c : o.toString().toCharArray()) {
            if (c == '"' || c == '\\') b.append('\\').append(c);
            else if (c < 0x20 || Character.isSurrogate(c)) b.append(String.format("\\u%04x", (int) c));
            else b.append(c);
        }
        return b.append('"').toString();
    }

    static synchronized void emit(String event, Object... pairs) {
        StringBuilder b = new StringBuilder("{\"event\": ").append(json(event));
        for (int i = 0; i < pairs.length; i += 2) b.append(", ").append(json(pairs[i])).append(": ").append(json(pairs[i + 1]));
        OUT.println(b.append(", \"time_ms\": ").append(System.currentTimeMillis()).append('}'));
        OUT.flush();
    }

    static Object crc(byte[] body) {
        if (body == null) return null;
        CRC32 c = new CRC32();
        c.update(body);
        return c.getValue();
    }

    static Long commitLogOffset(String offsetMsgId) {
        return offsetMsgId == null ? null : Long.parseUnsignedLong(offsetMsgId.substring(offsetMsgId.length() - 16), 16);
    }

    /** Carry out commands side by side until the line that ends them. */
    static void listen(Commands commands) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        emit("ready");
        for (String line; (line = in.readLine()) != null && !line.equals("quit"); ) {
            String[] words = line.split("\t");
            Map<String, String> f = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                int at = words[i].indexOf('=');
                f.put(URLDecoder.decode(words[i].substring(0, at), "UTF-8"), URLDecoder.decode(words[i].substring(at + 1), "UTF-8"));
            }
            THREADS.submit(() -> {
                try {
                    commands.run(words[0], f);
                } catch (Throwable e) {
                    e.printStackTrace();
                    emit("error", "ref", f.get("ref"), "case", f.get("case"), "plan", f.get("plan"), "error", String.valueOf(e));
                }
            });
        }
        System.exit(0); // without shutting down: the broker notices a closed connection
    }
}
