import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * RocketMQ's own encoder, decoder and signing hook, for lines of stdin: a word, then name=value, all separated by tabs
 * and URL-encoded. Answers with one such line each. Fields of a frame are named f.NAME.
 */
public class Wire {
    static final String[] PACKAGES = {"org.apache.rocketmq.common.protocol.header.", "org.apache.rocketmq.remoting.protocol.header."};

    static Class<?> header(String name) throws ClassNotFoundException {
        for (String p : PACKAGES) {
            try {
                return Class.forName(p + name);
            } catch (ClassNotFoundException e) {
                // the other version's package
            }
        }
        throw new ClassNotFoundException(name);
    }

    static Map<String, Field> members(Class<?> c) {
        Map<String, Field> found = new TreeMap<>();
        for (Class<?> k = c; k != null && k != Object.class; k = k.getSuperclass())
            for (Field m : k.getDeclaredFields())
                if (!Modifier.isStatic(m.getModifiers()) && !m.getName().startsWith("this")) {
                    m.setAccessible(true);
                    found.putIfAbsent(m.getName(), m);
                }
        return found;
    }

    static Object typed(Class<?> t, String s) {
        if (t == String.class) return s;
        if (t == int.class || t == Integer.class) return Integer.valueOf(s);
        if (t == long.class || t == Long.class) return Long.valueOf(s);
        if (t == boolean.class || t == Boolean.class) return Boolean.valueOf(s);
        throw new IllegalArgumentException(t.getName());
    }

    /** A frame as the official client makes it: a typed header, if `class` is given, else bare fields. */
    static RemotingCommand command(Map<String, String> f) throws Exception {
        int code = Integer.parseInt(f.get("code"));
        RemotingCommand c;
        if (f.containsKey("class")) {
            Class<?> k = header(f.get("class"));
            CommandCustomHeader h = (CommandCustomHeader) k.getDeclaredConstructor().newInstance();
            Map<String, Field> members = members(k);
            for (Map.Entry<String, String> e : f.entrySet())
                if (e.getKey().startsWith("f.") && members.containsKey(e.getKey().substring(2))) {
                    Field m = members.get(e.getKey().substring(2));
                    m.set(h, typed(m.getType(), e.getValue()));
                }
            c = RemotingCommand.createRequestCommand(code, h);
            c.makeCustomHeaderToNet();
        } else {
            c = RemotingCommand.createRequestCommand(code, null);
            for (Map.Entry<String, String> e : f.entrySet())
                if (e.getKey().startsWith("f.")) c.addExtField(e.getKey().substring(2), e.getValue());
        }
        c.setOpaque(Integer.parseInt(f.get("opaque")));
        c.setVersion(Integer.parseInt(f.get("version")));
        c.setLanguage(LanguageCode.valueOf(f.getOrDefault("language", "OTHER")));
        c.setFlag(Integer.parseInt(f.getOrDefault("flag", "0")));
        c.setRemark(f.get("remark"));
        if (f.containsKey("body")) c.setBody(Base64.getDecoder().decode(f.get("body")));
        c.setSerializeTypeCurrentRPC(SerializeType.valueOf(f.getOrDefault("type", "JSON")));
        return c;
    }

    /** By reflection: 4.3.0 has no such hook. */
    static void sign(RemotingCommand c, Map<String, String> f) throws Exception {
        Class<?> s = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object who = f.containsKey("token")
            ? s.getConstructor(String.class, String.class, String.class).newInstance(f.get("access"), f.get("secret"), f.get("token"))
            : s.getConstructor(String.class, String.class).newInstance(f.get("access"), f.get("secret"));
        Class<?> h = Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook");
        Object hook = h.getConstructor(s).newInstance(who);
        h.getMethod("doBeforeRequest", String.class, RemotingCommand.class).invoke(hook, "127.0.0.1:1", c);
    }

    static Map<String, String> describe(RemotingCommand c) {
        Map<String, String> r = new TreeMap<>();
        r.put("code", "" + c.getCode());
        r.put("opaque", "" + c.getOpaque());
        r.put("version", "" + c.getVersion());
        r.put("flag", "" + c.getFlag());
        r.put("language", c.getLanguage().name());
        if (c.getRemark() != null) r.put("remark", c.getRemark());
        if (c.getBody() != null) r.put("body", Base64.getEncoder().encodeToString(c.getBody()));
        if (c.getExtFields() != null) c.getExtFields().forEach((k, v) -> { if (v != null) r.put("f." + k, v); });
        return r;
    }

    static String hex(ByteBuffer b) {
        StringBuilder s = new StringBuilder();
        while (b.hasRemaining()) s.append(String.format("%02x", b.get()));
        return s.toString();
    }

    static byte[] bytes(String hex) {
        byte[] b = new byte[hex.length() / 2];
        for (int i = 0; i < b.length; i++) b[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        return b;
    }

    static Map<String, String> answer(String word, Map<String, String> f) throws Exception {
        Map<String, String> r = new TreeMap<>();
        if (word.equals("encode")) {
            RemotingCommand c = command(f);
            if (f.containsKey("access")) sign(c, f);
            r = describe(c);
            r.put("hex", hex(c.encode()));
            return r;
        }
        byte[] data = bytes(f.get("hex")); // the length field is taken off by Netty's decoder before this one
        RemotingCommand c = RemotingCommand.decode(ByteBuffer.wrap(data, 4, data.length - 4).slice());
        r = describe(c);
        if (f.containsKey("class")) {
            Class<? extends CommandCustomHeader> k = header(f.get("class")).asSubclass(CommandCustomHeader.class);
            CommandCustomHeader h = c.decodeCommandCustomHeader(k);
            h.checkFields();
            for (Map.Entry<String, Field> m : members(k).entrySet()) {
                Object v = m.getValue().get(h);
                if (v != null) r.put("h." + m.getKey(), v.toString());
            }
        }
        return r;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t");
            Map<String, String> f = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                int at = words[i].indexOf('=');
                f.put(URLDecoder.decode(words[i].substring(0, at), "UTF-8"), URLDecoder.decode(words[i].substring(at + 1), "UTF-8"));
            }
            StringBuilder s = new StringBuilder("answer");
            try {
                for (Map.Entry<String, String> e : answer(words[0], f).entrySet())
                    s.append('\t').append(URLEncoder.encode(e.getKey(), "UTF-8")).append('=').append(URLEncoder.encode(e.getValue(), "UTF-8"));
            } catch (Throwable e) {
                s.append("\terror=").append(URLEncoder.encode(String.valueOf(e.getCause() == null ? e : e.getCause()), "UTF-8"));
            }
            out.println(s);
        }
    }
}
