/** The time of a history: it stands still, but for the sleeps of the thread that carries out a step. */
public final class Clock {
    private static final long SLEEP_MS_MAX = 2;
    private static final int CALLS_MAX = 20_000;
    private static int calls;
    private static long laterMs = 1;
    private static volatile long nowMs = System.currentTimeMillis();
    /** Whether a sleep takes time: in a round of the check, not at a start or stop. */
    static volatile boolean isMoved;

    private Clock() {
    }

    /**
     * A round that asks for the time again and again waits for the next millisecond, or for the end of its 60 seconds:
     * time moves on, by more each time.
     */
    public static long currentTimeMillis() {
        if (isMoved && "main".equals(Thread.currentThread().getName()) && ++calls > CALLS_MAX) {
            calls = 0;
            nowMs += laterMs;
            laterMs *= 2;
        }
        return nowMs;
    }

    /** The sleeps of other threads only wait for more work, which needs no more than this. */
    public static void sleep(long ms) throws InterruptedException {
        if ("main".equals(Thread.currentThread().getName()) && isMoved) {
            nowMs += ms;
        }
        Thread.sleep(Math.min(ms, SLEEP_MS_MAX));
    }

    static void set(long ms) {
        calls = 0;
        laterMs = 1;
        nowMs = ms;
    }
}
