"""Compare `rmqtx pending -n` with the official pull consumer: one broker with many open half messages, in one run.

No half message is decided, so all are listed. The consumer only pulls and decodes them; rmqtx also reads the op
messages, looks for COMMIT records and discard copies, judges and prints. Its memory is measured at two sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import measure, rocketmq
from benchmarks.bench import rmqtx
from benchmarks.report import circumstances, table
from rmqtx.readers.model import clock
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.protocol.codes import RequestCode
from tests.brokers.rig import Rig

SIZES = (10_000, 100_000)
TURNS = 3
BODY = b"{}" + b" " * 198
CONF = {
    "transactionCheckInterval": "100000000", "mappedFileSizeCommitLog": str(1 << 28),
    "mappedFileSizeConsumeQueue": str(20 * 300_000), "maxHashSlotNum": "500000", "maxIndexNum": "2000000",
}
PAGE = """# Listing the open halves of a live broker

One broker of {version} with {count} open half messages of {body} bytes each, checks off; `rmqtx pending -n` writes all
rows as JSON lines. For comparison the official `DefaultMQPullConsumer` pulls and decodes the same half topic, 32
messages a pull, in the same run and in turns. Wall times are of whole processes; `pulling` is the consumer's own
measurement from its first request to its last message; `others` is the share of other processes, that is, of the
broker. Written by `python -m benchmarks.live_pull`.

{facts}

{rows}

rmqtx took {ratio:.2f} times as long as the whole Java process, and {pull_ratio:.2f} times as long as its pulling alone.
From {small} to {count} half messages its peak memory grew from {small_mib:.0f} to {large_mib:.0f} MiB: by
{per_row:.0f} bytes for each row, because the rows are judged and written together; bodies are dropped on arrival.
"""


def halves(count: int) -> Iterator[Request]:
    """Yield half messages as a producer sends them; all of one group without a connected producer."""
    prefix = secrets.token_hex(8).upper()
    for number in range(count):
        names = {
            "KEYS": f"order-{number}", "UNIQ_KEY": f"{prefix}{number:016X}", "WAIT": "true", "TRAN_MSG": "true",
            "PGROUP": "benchmark",
        }
        fields: dict[str, str | int | bool | None] = {
            "producerGroup": "benchmark", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": number % 4, "sysFlag": 4, "bornTimestamp": clock.now_ms(), "flag": 0,
            "properties": "".join(f"{name}\x01{value}\x02" for name, value in names.items()),
            "reconsumeTimes": 0, "unitMode": False, "batch": False,
        }
        yield Request(RequestCode.SEND_MESSAGE, fields, BODY)


def measured(rig: Rig, count: int, turns: int, directory: Path) -> tuple[measure.Measured, measure.Measured, float]:
    """Return the runs of rmqtx and of the Java consumer, and the median of the consumer's own pulling times."""
    out = directory / "pending.jsonl"

    def check_rows(_output: str) -> None:
        with out.open("rb") as lines:
            found = sum(1 for _ in lines)
        if found != count:
            raise measure.CommandFailed(f"{found} rows, not {count}")

    def check_pulled(output: str) -> None:
        if json.loads(output)["count"] != count:
            raise measure.CommandFailed(output)

    listing = measure.Command(
        f"rmqtx pending, {count}",
        [*rmqtx(), "pending", "-n", rig.name_server, "--format", "jsonl", "-o", str(out), "-q"], check_rows,
    )
    pulling = measure.Command(
        f"Java pull consumer, {count}",
        rocketmq.java("HalfPull", rig.name_server, rig.conf["brokerName"]), check_pulled,
    )
    ours, theirs = [], []
    for _ in range(turns):
        ours.append(measure.run(listing))
        theirs.append(measure.run(pulling))
    seconds = sorted(json.loads(run.output)["seconds"] for run in theirs)[turns // 2]
    return measure.Measured(listing.name, tuple(ours)), measure.Measured(pulling.name, tuple(theirs)), seconds


def row(one: measure.Measured, pulling_s: float | None = None) -> list[str]:
    """Return a line of the table."""
    return [
        one.name, f"{one.wall_s:.2f} s", "" if pulling_s is None else f"{pulling_s:.2f} s", f"{one.cpu_s:.2f} s",
        f"{one.peak_rss_bytes / (1 << 20):.0f} MiB", f"{one.others_share:.0%}",
    ]


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/performance_live.md"))
    asked = parser.parse_args(words)
    load = os.getloadavg()
    small, large = asked.sizes
    rows: list[list[str]] = []
    results = []
    with tempfile.TemporaryDirectory() as place, Rig(rocketmq.VERSION, Path(place), CONF) as rig:
        rig.start_names()
        rig.start_broker()
        agent = rig.agent()
        rig.wait_broker(agent)
        rig.create_topic(agent, "orders")
        agent.close()
        with Client() as client:
            sent = 0
            for count in (small, large):
                for _ in client.calls(rig.address, halves(count - sent), window=64):
                    pass
                sent = count
                results.append(measured(rig, count, asked.turns, Path(place)))
    for ours, theirs, seconds in results:
        rows += [row(ours), row(theirs, seconds)]
    ours, theirs, seconds = results[-1]
    grown = ours.peak_rss_bytes - results[0][0].peak_rss_bytes
    facts = table(["", ""], [list(fact) for fact in circumstances(load, 0.0)])
    header = ["process", "wall median", "pulling", "CPU", "peak RSS", "others"]
    asked.output.write_text(
        PAGE.format(
            version=rocketmq.VERSION, count=large, small=small, body=len(BODY), facts="\n".join(facts),
            rows="\n".join(table(header, rows)), ratio=measure.ratio(ours, theirs), pull_ratio=ours.wall_s / seconds,
            small_mib=results[0][0].peak_rss_bytes / (1 << 20), large_mib=ours.peak_rss_bytes / (1 << 20),
            per_row=grown / (large - small),
        )
    )
    print(asked.output.read_text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
