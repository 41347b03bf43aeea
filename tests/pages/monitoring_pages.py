"""The manual page rmqtx-monitoring(7), and the table of docs/monitoring.md, from the declared metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rmqtx.readers.model.exit_status import CHECK_MEANINGS
from rmqtx_cli.monitoring.measure import REMEMBERED_AGE_MS, REMEMBERED_MAX
from rmqtx_cli.monitoring.metrics import OF_CHECK, OF_EXPORTED_STORES, OF_EXPORTER, OF_PROBE, OF_STORES, Metric
from rmqtx_cli.words.text import grouped
from rmqtx_cli.words.times import duration_text
from tests.pages.roff import heading, item, page, paragraph, subheading

_BEGIN, _END = "<!-- metrics -->", "<!-- /metrics -->"
_SECTIONS: dict[str, Sequence[Metric]] = {
    "Of each store or broker, by the exporter and by check --textfile": OF_STORES,
    "Of each store or broker, by the exporter only": OF_EXPORTED_STORES,
    "Of the exporter": OF_EXPORTER,
    "Of a run of check --textfile": OF_CHECK,
    "Of a run of probe --textfile": OF_PROBE,
}
_WAYS = {
    "rmqtx exporter STORE": "serves metrics over HTTP for Prometheus; alert rules, a dashboard and a unit are in "
    "deploy/ of the source",
    "rmqtx check STORE --textfile FILE": "writes the same metrics of a store for node_exporter, from cron or a timer",
    "rmqtx check STORE": "prints one line with performance data for Nagios, Icinga and Naemon",
    "rmqtx check STORE --format json": "prints one JSON object, for Zabbix and scripts",
    "rmqtx probe -n HOST:PORT --topic T --group G": "sends transactions of its own through live brokers",
    "rmqtx report STORE -o FILE.html": "writes a page for people, for example each night",
}
_ABSENT = (
    "A number of 0 that missing evidence may hide is absent, and rmqtx_evidence_missing names the evidence; other "
    "numbers are then lower bounds. If a reading fails, all numbers of stores are absent and rmqtx_up is 0. Numbers "
    "are as old as rmqtx_reading_age_seconds. Counters begin at 0 when the exporter starts, and count "
    f"transactions that a reading saw pending for {duration_text(REMEMBERED_AGE_MS)} or longer, of these the "
    f"{grouped(REMEMBERED_MAX)} oldest."
)
_LABELS = (
    "store is the directory of a store or NAME@HOST:PORT of a broker; cluster and node_id are the cluster's and the "
    "broker's name as in RocketMQ's own metrics, of live brokers and of stores read with --broker-conf, else absent."
)


def monitoring_page() -> str:
    """Return the roff of the page."""
    return page("rmqtx-monitoring", 7, _lines())


def _lines() -> Iterator[str]:
    yield from heading("NAME")
    yield from paragraph("rmqtx-monitoring - watch transactions of RocketMQ with Prometheus, Nagios, Zabbix or cron")
    yield from heading("WAYS")
    for command, what in _WAYS.items():
        yield from item(command, f"{what}.")
    yield from heading("METRICS")
    yield from paragraph(_LABELS)
    yield from paragraph(_ABSENT)
    for title, metrics in _SECTIONS.items():
        yield from subheading(title)
        for metric in metrics:
            labels = f" Labels: {', '.join(metric.labels)}." if metric.labels else ""
            yield from item(f"{metric.name} ({metric.kind})", f"{metric.meaning}{labels}")
    yield from heading("STATUS OF CHECK AND PROBE")
    for status, meaning in CHECK_MEANINGS.items():
        yield from item(str(int(status)), f"{meaning}.")
    yield from heading("SEE ALSO")
    yield from paragraph("rmqtx-exporter(1), rmqtx-check(1), rmqtx-probe(1), rmqtx-report(1), rmqtx-diagnose(1)")


def filled(text: str) -> str:
    """Return the page of the documentation with its tables generated again from the declarations."""
    before, _, rest = text.partition(_BEGIN)
    lines = [_LABELS, "", _ABSENT, ""]
    for title, metrics in _SECTIONS.items():
        lines += [f"### {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        lines += [f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.meaning} |" for one in metrics]
        lines.append("")
    return "\n".join([before + _BEGIN, "", *lines, _END + rest.partition(_END)[2]])


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
