/** The time of a history: it stands still, but for the sleeps of the thread that carries out a step. */
public final class Clock {
    private static final long SLEEP_MS_MAX = 2;
    private static volatile long nowMs = System.currentTimeMillis();
    /** Whether a sleep takes time: in a round of the check, not at a start or stop. */
    static volatile boolean isMoved;

    private Clock() {
    }

    public static long currentTimeMillis() {
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
        nowMs = ms;
    }
}
