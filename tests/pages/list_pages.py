"""The pages of docs/ with lists from declarations: causes, lines of a broker's logs, files below a store's root."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rmqtx.readers.broker_logs.line_kinds import KINDS, LineKind
from rmqtx.readers.model.releases import ALWAYS, Version, dotted
from rmqtx.readers.store.paths import CURSOR_FILES, PATHS, StorePath
from rmqtx.verdicts.causes.cause import STRENGTHS, Cause
from rmqtx.verdicts.causes.strengths import CAUSES
from rmqtx.verdicts.model.store_evidence import BROKER_LOG

_FIELD_NAMES = {
    "log_offset": "log offset", "offset_id": "message id", "unique_key": "transaction id", "group": "group",
    "address": "client address", "topic": "topic",
    "queue_offset": "queue offset", "decision": "decision", "epoch_ms": "time in epoch milliseconds",
}


def filled(name: str, text: str) -> str:
    """Return the page with its lists generated again from the declarations. `name`: the file, as `causes.md`."""
    for mark, lines_of in _LISTS[name].items():
        before, begin, rest = text.partition(f"<!-- {mark} -->")
        _, end, after = rest.partition(f"<!-- /{mark} -->")
        text = "\n".join([before + begin, "", *lines_of(), "", end + after])
    return text


# --- causes.md: every cause with its releases, what follows, what to do, and the stores that show it ------------------


def _causes() -> Iterator[str]:
    yield from ("| strength | meaning |", "|---|---|", *(f"| `{word}` | {text} |" for word, text in STRENGTHS.items()))
    for cause in CAUSES.values():
        yield ""
        yield from _section(cause)


def _section(cause: Cause) -> list[str]:
    rows = {
        "releases": cause.releases,
        "needs": "; ".join(one.text for one in cause.needs),
        "shows in": " or ".join(cause.shows_in),
        "behaviour": "; ".join(f"{one.what} ({one.source})" for one in cause.affected),
        "what follows": cause.consequence,
        "do now": cause.act,
        "change": cause.change,
        "decided by": cause.decides,
        "could also be": ", ".join(f"`{word}`" for word in cause.rivals),
        "seen in the stores": ", ".join(cause.shown_by) or "none of the corpus",
    }
    lines = [f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows.items() if text]
    return [f"## {cause.word}", "", f"{cause.title[0].upper()}{cause.title[1:]}.", "", "| | |", "|---|---|", *lines]


# --- broker_logs.md: every line of a broker's logs that rmqtx reads ---------------------------------------------------


def _log_lines() -> list[str]:
    return [
        "| kind | file | the line begins with | meaning | names | releases | upstream file |",
        "|---|---|---|---|---|---|---|",
        *map(_log_line, KINDS), "", "Causes that these lines decide:", "",
        *(f"- [`{word}`](causes.md#{word}): {cause.title}" for word, cause in CAUSES.items()
          if BROKER_LOG in cause.shows_in),
    ]


def _log_line(kind: LineKind) -> str:
    files = ", ".join(f"{name}.log" for name in kind.log)
    named = ", ".join(_FIELD_NAMES[name] for name in kind.fields)
    named += "; the exception stands below it" if kind.has_exception else ""
    cells = (
        f"`{kind.word}`", files, f"`{kind.begins}`", kind.meaning, named.removeprefix("; "), kind.releases, kind.source
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# --- paths.md: files below the root of a store, since which release, and what moves them ------------------------------


def _paths() -> list[str]:
    return ["| path | since | what | made by | elsewhere by |", "|---|---|---|---|---|", *map(_path, PATHS)]


def _path(one: StorePath) -> str:
    paths = ", ".join(f"`{path}`" for path in one.path.split(", "))
    since = _dotted(one.since) + ("" if one.until is None else f" to {_dotted(one.until)}")
    return f"| {paths} | {since} | {one.what} | {one.setting or 'every broker'} | {one.moved_by} |"


def _cursors() -> list[str]:
    lines = ["| where | setting | written since | read at the start since |", "|---|---|---|---|"]
    for file in CURSOR_FILES:
        written, read = _dotted(file.written_since or ALWAYS), _dotted(file.loaded_since)
        lines.append(f"| `config/{file.name}` | `{file.setting}` | {written} | {read} |")
    for one in PATHS:
        if one.is_cursor_database:
            lines.append(f"| `{one.path}` | `{one.setting}` | {_dotted(one.since)} | {_dotted(one.since)} |")
    return lines


def _dotted(version: Version) -> str:
    return "all" if version == ALWAYS else dotted(version)


#: Page → mark of a list in it → its lines.
_LISTS: Mapping[str, Mapping[str, Callable[[], list[str] | Iterator[str]]]] = {
    "causes.md": {"causes": _causes},
    "broker_logs.md": {"kinds": _log_lines},
    "paths.md": {"paths": _paths, "cursors": _cursors},
}

if __name__ == "__main__":
    for name in _LISTS:
        page = Path(sys.argv[1]) / name
        page.write_text(filled(name, page.read_text(encoding="utf-8")), encoding="utf-8")
