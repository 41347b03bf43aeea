"""Whether rocketmq-rust wrote a store, an implementation of the broker in Rust, which writes some files otherwise.

Its log and consume queues have the layouts of Java brokers. Different are index keys of ids (`topic#U#id`), the sixth
value of the checkpoint, `config/transactionMetrics` and the timer's files.
"""

from __future__ import annotations

from rmqtx.readers.store.fastjson import read_config
from rmqtx.readers.store.store import Store

#: Files and directories that rocketmq-rust 1.0.0 creates at each start, and no Java broker.
RUST_MARKS = (
    "timer-v2/FORMAT", "timerwheel.v2/FORMAT", "timerlog/v2", "config/timercheck.a", "config/timercheck.b",
    "config/timer-role.meta",
)
RUST = "rocketmq-rust"
_METRICS = "transactionMetrics"


def rust_mark(store: Store) -> str | None:
    """Return the file that shows that rocketmq-rust ran on the store; None if no file does.

    Source: rocketmq-broker/src/transaction/transaction_metrics.rs, rocketmq-store of rocketmq-rust 1.0.0.
    """
    for name in RUST_MARKS:
        if store.has(*name.split("/")):
            return name
    metrics = read_config(store, _METRICS).value
    if isinstance(metrics, dict) and "generation" in metrics and "topics" in metrics:
        return f"config/{_METRICS}"
    return None
