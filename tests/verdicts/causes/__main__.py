"""Writes the table of docs/causes_seen.md: each cause in the stores of each release, with its strength."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from rmqtx.verdicts.causes.strengths import CAUSES
from tests.brokers import corpus
from tests.conftest import one_moment
from tests.verdicts.causes.diagnosed import diagnosed, strengths, version_of

_BEGIN, _END = "<!-- seen -->", "<!-- /seen -->"
_SEVERAL = "several"
#: The best strength comes first.
_STRENGTHS = ("explains", "could_explain", "ruled_out")


def filled(text: str) -> str:
    """Return the page with its table made again from the stores of the corpus."""
    before, _, rest = text.partition(_BEGIN)
    lines = [
        "| cause | release | history has it | explains | could explain | ruled out | silent |",
        "|---|---|---|---|---|---|---|", *_rows(),
    ]
    return "\n".join([before + _BEGIN, "", *lines, "", _END + rest.partition(_END)[2]])


def _rows() -> Iterator[str]:
    """A row for each cause and each release whose stores show it, with numbers of stores."""
    stores_count: Counter[str] = Counter()
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name in corpus.all_names():
        version = version_of(name)
        stores_count[version or _SEVERAL] += 1
        for word, counts in strengths(diagnosed(name, version)[1]).items():
            found[word, version or _SEVERAL][next(one for one in _STRENGTHS if one in counts)] += 1
    for word, cause in CAUSES.items():
        histories = Counter(version_of(name) or _SEVERAL for name in cause.shown_by)
        releases = sorted({release for one, release in found if one == word} | set(histories), key=_in_order)
        for release in releases:
            counts = found[word, release]
            silent = stores_count[release] - counts.total()
            cells = (f"`{word}`", release, histories[release], *(counts[one] for one in _STRENGTHS), silent)
            yield "| " + " | ".join(map(str, cells)) + " |"


def _in_order(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split("."))) if release != _SEVERAL else (99,)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    with one_moment():
        document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
