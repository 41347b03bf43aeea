"""The table of docs/broker_logs.md: every line of a broker's logs that rmqtx reads."""

from __future__ import annotations

import sys
from pathlib import Path

from rmqtx.readers.broker_logs.line_kinds import KINDS, LineKind
from rmqtx.verdicts.causes.register import CAUSES
from rmqtx.verdicts.model.store_evidence import BROKER_LOG

_BEGIN, _END = "<!-- kinds -->", "<!-- /kinds -->"
_NAMES = {
    "log_offset": "log offset", "offset_id": "message id", "unique_key": "transaction id", "group": "group",
    "address": "client address", "topic": "topic",
    "queue_offset": "queue offset", "decision": "decision", "epoch_ms": "time in epoch milliseconds",
}  # fmt: skip


def filled(text: str) -> str:
    """Return the page with its tables generated again from the declared kinds and causes."""
    before, _, rest = text.partition(_BEGIN)
    lines = [
        "| kind | file | the line begins with | meaning | names | releases | upstream file |",
        "|---|---|---|---|---|---|---|",
        *map(_row, KINDS), "", "Causes that these lines decide:", "",
        *(f"- [`{word}`](causes.md#{word}): {cause.title}" for word, cause in CAUSES.items()
          if BROKER_LOG in cause.shows_in),
    ]  # fmt: skip
    return "\n".join([before + _BEGIN, "", *lines, "", _END + rest.partition(_END)[2]])


def _row(kind: LineKind) -> str:
    files = ", ".join(f"{name}.log" for name in kind.log)
    named = ", ".join(_NAMES[name] for name in kind.fields)
    named += "; the exception stands below it" if kind.has_exception else ""
    cells = (
        f"`{kind.word}`", files, f"`{kind.begins}`", kind.meaning, named.removeprefix("; "), kind.releases, kind.source
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
