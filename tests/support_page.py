"""Write the tables of docs/support.md: releases and how each was tested, extras, licences.

Run `python -m tests.support_page`.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from rmqtx.readers.model.releases import LAST_OF_LINES, Version
from tests.brokers import maven
from tests.brokers.forcing.__main__ import VERSIONS as FORCED
from tests.histories.machine import RELEASES as PLAYED

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "support.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
#: Extras of those who work on rmqtx: no user installs them.
_OF_DEVELOPERS = ("dev", "docs")


def releases() -> list[str]:
    """One row for each line of releases: the stores of real brokers, and what was compared with its brokers."""
    names = [re.findall(r"\d+\.\d+\.\d+", folder.name) for folder in (ROOT / "tests" / "corpus").iterdir()]
    stores = Counter(found[-1] for found in names if found)
    rows = ["| line | stores | histories | starts | acts |", "|---|---|---|---|---|"]
    for last in LAST_OF_LINES:
        tested = (sorted(stores), PLAYED, maven.VERSIONS, FORCED)
        seen, *rest = ([one for one in versions if _line(one) == last[:2]] for versions in tested)
        cells = [", ".join(one) for one in ([f"{one} ({stores[one]})" for one in seen], *rest)]
        rows.append(f"| {_name(last)} | {' | '.join(cells)} |")
    return rows


def _line(version: str) -> tuple[int, int]:
    major, minor, _ = map(int, version.split("."))
    return major, minor


def _name(last: Version) -> str:
    line = f"{last[0]}.{last[1]}"
    return f"{line}, to {line}.{last[2]}" if 0 < last[2] < 100 else line


def needed(requirements: Iterable[str]) -> dict[str, metadata.Distribution | None]:
    """The packages that requirements bring, those that these require too; None if one is not installed here."""
    found: dict[str, metadata.Distribution | None] = {}
    left = [*map(Requirement, requirements)]
    while left:
        one = left.pop()
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        if name in found:
            continue
        try:
            found[name] = package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found[name] = None
            continue
        for inner in map(Requirement, package.requires or ()):
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in ("", *one.extras)):
                left.append(inner)
    return found


def extras() -> list[str]:
    """One row for each extra: what it adds to the packages that rmqtx always needs."""
    rows = ["| extra | packages that it adds | installed |", "|---|---|---|"]
    core = needed(PROJECT["dependencies"])
    rows.append(f"| (none) | {_text(core)} | {_size(core.values())} |")
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if extra not in _OF_DEVELOPERS:
            added = {name: one for name, one in needed(requirements).items() if name not in core}
            rows.append(f"| `{extra}` | {_text(added)} | {_size(added.values())} |")
    return rows


def _text(packages: Iterable[str]) -> str:
    return ", ".join(sorted(packages))


def _size(packages: Iterable[metadata.Distribution | None]) -> str:
    all_of_them = [*packages]
    if None in all_of_them:
        return "not measured"
    total = sum(file.size or 0 for one in all_of_them if one is not None for file in one.files or ())
    return f"{max(1, round(total / 1e6))} MB"


def licences() -> list[str]:
    """One row for each licence: the packages that have it, as their own metadata give it."""
    found = defaultdict(set)
    for extra, requirements in (("", PROJECT["dependencies"]), *PROJECT["optional-dependencies"].items()):
        if extra not in _OF_DEVELOPERS:
            for name, package in needed(requirements).items():
                found["not installed where this was written" if package is None else _licence(package)].add(name)
    return ["| licence | packages |", "|---|---|", *(f"| {one} | {_text(found[one])} |" for one in sorted(found))]


def _licence(package: metadata.Distribution) -> str:
    known = package.metadata
    classes = [one.split(" :: ")[-1] for one in known.get_all("Classifier") or () if one.startswith("License ::")]
    given = " or ".join(known.get_all("License-Expression") or classes or known.get_all("License") or ["unknown"])
    return given.splitlines()[0].replace(" License", "").strip()


def filled(text: str, tables: dict[str, Sequence[str]]) -> str:
    """The page with its tables written again."""
    for name, rows in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        text = "\n".join([head + begin, "", *rows, "", end + rest.partition(end)[2]])
    return text


def tables() -> Iterator[tuple[str, list[str]]]:
    """Each table of the page, by its name."""
    yield "releases", releases()
    yield "extras", extras()
    yield "licences", licences()


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8"), dict(tables())), "utf-8")
