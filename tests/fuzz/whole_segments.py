"""The whole-segment campaign: a file of the log zeroed, overwritten, moved, cut, gone; then every question is asked.

Each store of the corpus × the segments that hold records (first, one in the middle, last, several) × each deed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from readers.store.store import open_store
from tests.brokers import corpus
from tests.fuzz import asking
from tests.fuzz.asking import Question, Truth
from tests.fuzz.meaningless import used_bytes
from tests.fuzz.outcomes import UNCHANGED, Case, Played, played

_PAGE = 4096


@dataclass(frozen=True)
class Wound:
    """What a deed has before it: a segment's bytes, how many of them are used, and those of the one before it.

    `family`: other stores of the same design.
    """

    data: bytes
    used: int
    previous: bytes | None
    chance: random.Random
    family: Sequence[str]


Deed = Callable[[Wound], bytes | None]


def _over(data: bytes, begin: int, other: bytes) -> bytes:
    return (data[:begin] + other + data[begin + len(other) :])[: len(data)]


def _down(count: int, wound: Wound) -> bytes:
    """All stands so many bytes later, behind zeros."""
    return (bytes(count) + wound.data)[: len(wound.data)]


def _up(count: int, wound: Wound) -> bytes:
    """All stands so many bytes earlier."""
    return wound.data[count:].ljust(len(wound.data), b"\0")


def _middle(wound: Wound) -> int:
    return wound.used // 2


def _range(wound: Wound) -> slice:
    """A range of what is used, short ones as often as long ones."""
    begin = wound.chance.randrange(wound.used)
    length = int(16 * (wound.used / 16) ** wound.chance.random())
    return slice(begin, min(wound.used, begin + length))


def _filled_range(byte: int, wound: Wound) -> bytes:
    hurt = _range(wound)
    return _over(wound.data, hurt.start, bytes([byte]) * (hurt.stop - hurt.start))


def _random_range(wound: Wound) -> bytes:
    hurt = _range(wound)
    return _over(wound.data, hurt.start, wound.chance.randbytes(hurt.stop - hurt.start))


def _cut_short(wound: Wound) -> bytes:
    gone = _range(wound)
    return wound.data[: gone.start] + wound.data[gone.stop :]


def _foreign_tail(wound: Wound) -> bytes:
    """Some bytes of something else where the records end too early, and zeros behind them."""
    begin = wound.chance.randrange(wound.used // 4, max(wound.used // 4 + 1, wound.used - 100))
    foreign = wound.chance.randbytes(wound.chance.randint(9, 3000))
    return _over(wound.data[:begin].ljust(len(wound.data), b"\0"), begin, foreign)


def _from_middle(byte: int, wound: Wound) -> bytes:
    return wound.data[: _middle(wound)].ljust(len(wound.data), bytes([byte]))


def _of_another_broker(wound: Wound) -> bytes:
    """The first segment of another broker's log, which begins at offset 0 too."""
    data = _segments(asking.root_of(wound.chance.choice(wound.family)))[0].read_bytes()
    return data[: len(wound.data)].ljust(len(wound.data), b"\0")


def _tail_zeroed(wound: Wound) -> bytes:
    """The last pages that were written are zeros, as after a power cut."""
    begin = max(0, (wound.used - 1) // _PAGE * _PAGE)
    return wound.data[:begin].ljust(len(wound.data), b"\0")


DEEDS: dict[str, Deed] = {
    "zero": lambda wound: bytes(len(wound.data)),
    "0xff": lambda wound: b"\xff" * len(wound.data),
    "random": lambda wound: wound.chance.randbytes(len(wound.data)),
    "inverted": lambda wound: bytes(byte ^ 0xFF for byte in wound.data),
    "9 bytes later": partial(_down, 9),
    "4096 bytes later": partial(_down, _PAGE),
    "9 bytes earlier": partial(_up, 9),
    "4096 bytes earlier": partial(_up, _PAGE),
    "the segment before": lambda wound: wound.data if wound.previous is None else wound.previous,
    "another broker's": _of_another_broker,
    "zero from the middle": partial(_from_middle, 0),
    "0xff from the middle": partial(_from_middle, 0xFF),
    "random from the middle": lambda wound: _over(
        wound.data, _middle(wound), wound.chance.randbytes(len(wound.data) - _middle(wound))
    ),
    "zero to the middle": lambda wound: bytes(_middle(wound)) + wound.data[_middle(wound) :],
    "zero, a range": partial(_filled_range, 0),
    "0xff, a range": partial(_filled_range, 0xFF),
    "random, a range": _random_range,
    "a range cut out, shorter": _cut_short,
    "a range cut out, moved up": lambda wound: _cut_short(wound).ljust(len(wound.data), b"\0"),
    "last page zero": _tail_zeroed,
    "foreign, then zeros": _foreign_tail,
    "deleted": lambda wound: None,
    "empty": lambda wound: b"",
    "cut in the middle": lambda wound: wound.data[: _middle(wound)],
    "cut at a page": lambda wound: wound.data[: _middle(wound) // _PAGE * _PAGE],
    "cut near the end": lambda wound: wound.data[: max(0, wound.used - wound.chance.randint(1, 400))],
}
#: After these, nothing of the segment is left that could be read.
DESTROYING = frozenset(
    {"zero", "0xff", "random", "inverted", "the segment before", "another broker's", "deleted", "empty"}
)
_ONLY_OF = {"the segment before": ("middle", "last"), "another broker's": ("only", "first")}
TARGETS = ("only", "first", "middle", "last", "first and last", "last two", "all")


def _design_of(name: str) -> str:
    return str(corpus.recipe(name).get("design", corpus.HALF_TOPIC_DESIGN))


@cache
def _of_design(design: str) -> list[str]:
    return [name for name in corpus.all_names() if _design_of(name) == design]


@cache
def _segments(root: Path) -> list[Path]:
    """The segments that hold anything, in their order."""
    return [
        Path(segment.file) for segment in open_store(root).commit_log
        if used_bytes(Path(segment.file).read_bytes())
    ]


def targets_of(root: Path) -> dict[str, list[Path]]:
    """Which segments there are to damage, by what they are called."""
    files = _segments(root)
    if len(files) < 2:
        return {"only": files} if files else {}
    found = {"first": files[:1], "last": files[-1:], "all": files}
    if len(files) > 2:
        found |= {"middle": [files[len(files) // 2]], "first and last": [files[0], files[-1]], "last two": files[-2:]}
    return found


def cases_of(name: str, seed: int) -> Iterator[Case]:
    """Every damage of a store."""
    for target in targets_of(asking.root_of(name)):
        for deed in DEEDS:
            if target in _ONLY_OF.get(deed, TARGETS):
                yield Case(name, target, deed, seed)


def play(case: Case) -> Played:
    """Do the damage, ask, and undo it."""
    truth = asking.truth_of(case.store)
    chance = random.Random(str(case) + str(case.seed))
    files = targets_of(truth.root)[case.target]
    before = {file: file.read_bytes() for file in files}
    after: dict[Path, bytes | None] = {}
    family = [name for name in _of_design(_design_of(case.store)) if name != case.store] or corpus.corpus_names()
    for file, data in before.items():
        all_files = _segments(truth.root)
        place = all_files.index(file)
        previous = all_files[place - 1].read_bytes() if place else None
        after[file] = DEEDS[case.deed](Wound(data, used_bytes(data), previous, chance, family))
    if after == before:
        return Played(str(case), case.store, case.deed, UNCHANGED)

    def put(contents: dict[Path, bytes | None]) -> None:
        for file, data in contents.items():
            if data is None:
                file.unlink()
            else:
                file.write_bytes(data)

    return played(
        str(case), case.store, case.deed,
        *asking.while_damaged(
            truth, partial(put, after), partial(put, dict(before)), _questions(truth, case, chance)
        ),
    )


def _questions(truth: Truth, case: Case, chance: random.Random) -> Iterator[Question]:
    is_destroyed = case.deed in DESTROYING
    for question in ("audit", "pending", "simulate"):
        yield partial(asking.listed, truth, question)
    if chance.random() < 0.2:
        yield partial(asking.listed, truth, "followed")
        yield partial(asking.listed, truth, "scanned")
        yield partial(asking.compared, truth)
        yield partial(asking.exported, truth)
    yield partial(asking.checked, truth, is_destroyed=is_destroyed)
    is_end_destroyed = is_destroyed and case.target not in ("first", "middle")
    yield partial(asking.described, truth, is_end_destroyed=is_end_destroyed)
    by_state: dict[str, list[str]] = {}
    for identity, state in truth.states.items():
        by_state.setdefault(state, []).append(identity)
    chosen = [chance.choice(names) for names in by_state.values()]
    for identity in chance.sample(chosen, min(2, len(chosen))):
        yield partial(asking.shown, truth, identity)
    yield partial(asking.shown, truth, chance.choice(chosen), "--scan")
    decided = by_state.get("COMMITTED", []) + by_state.get("ROLLED_BACK", [])
    if decided and chance.random() < 0.3:
        yield partial(asking.acted, truth, chance.choice(decided), chance.choice(["commit", "rollback"]))
