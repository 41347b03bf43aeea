"""A salvaged store is verified before it gets its name: what is wrong in it is reported, not passed on in silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.verify.verify import Verify

#: What the lines about the salvage report already: fillers count as damage, and a missing config/ has a note.
_TOLD = frozenset({"record-damaged", "config-missing"})


def verified(root: Path, target: Path, known: list[Finding]) -> list[Finding]:
    """Return the errors and warnings of `rmqtx verify` about a new store, with the names that it gets.

    `root`: where it was built; `target`: its later place; `known`: findings that need not be repeated.
    Order: as those of a verification.
    Raises: UnreadableFile, FileChanged.
    """
    reading = run_job(Verify(), plan_splits([open_store(root)]))
    rows = reading.table().to_pylist()
    places = {(one.code, one.commit_log_offset) for one in known if one.commit_log_offset is not None}
    built, name = as_text(root), as_text(target)

    def renamed(text: str | None) -> str | None:
        return None if text is None else text.replace(built, name)

    found = [*reading.findings, *(_finding(row) for row in rows)]
    return [
        replace(
            one, store=name, file=renamed(one.file), expected=renamed(one.expected), actual=renamed(one.actual),
            meaning=renamed(one.meaning),
        )
        for one in dict.fromkeys(found)
        if one.kind.severity is not Severity.NOTE
        and one.code not in _TOLD
        and (one.code, one.commit_log_offset) not in places
    ]


def _finding(row: dict[str, object]) -> Finding:
    return Finding(**{name: row[name] for name in _FIELDS})  # type: ignore[arg-type]


_FIELDS = (
    "store", "code", "file", "position_bytes", "length_bytes", "commit_log_offset", "expected", "actual", "meaning",
)
