"""Mutants that no test can find, because they change no answer: `equivalent.toml` has each with its reason."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Mutation, mutations_of

EQUIVALENT = Path(__file__).parent / "equivalent.toml"
Key = tuple[str, str | None, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """One entry of the file. `function`: None for the value of a module or a class. `code`: the line with the fault."""

    file: str
    function: str | None = None
    mutation: str
    code: str
    why: str
    nth: int = 0

    @property
    def key(self) -> Key:
        """What it shares with a mutant."""
        return self.file, self.function, self.mutation, self.nth


def key_of(file: str, mutation: Mutation) -> Key:
    """The same of a mutant."""
    return file, mutation.function, mutation.change, mutation.nth


def read_equivalents(path: Path = EQUIVALENT) -> list[Equivalent]:
    """The entries."""
    if not path.is_file():
        return []
    return [Equivalent(**one) for one in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", ())]


def unknown(root: Path, entries: list[Equivalent]) -> list[Equivalent]:
    """The entries that no mutant has, in this line: the code has changed, and with it perhaps the reason."""
    found: dict[Key, str] = {}
    for file in {one.file for one in entries}:
        if (root / file).is_file():
            source = (root / file).read_text(encoding="utf-8")
            found |= {key_of(file, one): one.line_of(source) for one in mutations_of(source)}
    return [one for one in entries if found.get(one.key) != one.code]
