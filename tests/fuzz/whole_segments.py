"""The whole-segment campaign: files of the log are zeroed, overwritten, moved, cut or deleted; then the commands run.

Each store of the corpus × the segments that hold records (first, one in the middle, last, several) × each damage.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from rmqtx.readers.store.store import open_store
from tests.brokers import corpus
from tests.fuzz import asking
from tests.fuzz.asking import Question, Truth
from tests.fuzz.meaningless import used_bytes
from tests.fuzz.outcomes import UNCHANGED, Case, Played, played

_PAGE = 4096


@dataclass(frozen=True)
class Original:
    """A segment before the damage: its bytes, the number of used bytes, and the bytes of the segment before it.

    `family`: other stores of the same design.
    """

    data: bytes
    used: int
    previous: bytes | None
    chance: random.Random
    family: Sequence[str]


Damage = Callable[[Original], bytes | None]


def _over(data: bytes, begin: int, other: bytes) -> bytes:
    return (data[:begin] + other + data[begin + len(other) :])[: len(data)]


def _down(count: int, original: Original) -> bytes:
    """Move all bytes to a later position, after zeros."""
    return (bytes(count) + original.data)[: len(original.data)]


def _up(count: int, original: Original) -> bytes:
    """Move all bytes to an earlier position."""
    return original.data[count:].ljust(len(original.data), b"\0")


def _middle(original: Original) -> int:
    return original.used // 2


def _range(original: Original) -> slice:
    """A range of the used bytes; short ones are as frequent as long ones."""
    begin = original.chance.randrange(original.used)
    length = int(16 * (original.used / 16) ** original.chance.random())
    return slice(begin, min(original.used, begin + length))


def _filled_range(byte: int, original: Original) -> bytes:
    hurt = _range(original)
    return _over(original.data, hurt.start, bytes([byte]) * (hurt.stop - hurt.start))


def _random_range(original: Original) -> bytes:
    hurt = _range(original)
    return _over(original.data, hurt.start, original.chance.randbytes(hurt.stop - hurt.start))


def _cut_short(original: Original) -> bytes:
    gone = _range(original)
    return original.data[: gone.start] + original.data[gone.stop :]


def _foreign_tail(original: Original) -> bytes:
    """End the records early: other bytes follow, then zeros."""
    begin = original.chance.randrange(original.used // 4, max(original.used // 4 + 1, original.used - 100))
    foreign = original.chance.randbytes(original.chance.randint(9, 3000))
    return _over(original.data[:begin].ljust(len(original.data), b"\0"), begin, foreign)


def _from_middle(byte: int, original: Original) -> bytes:
    return original.data[: _middle(original)].ljust(len(original.data), bytes([byte]))


def _of_another_broker(original: Original) -> bytes:
    """The first segment of another broker's log, which begins at offset 0 too."""
    data = _segments(asking.root_of(original.chance.choice(original.family)))[0].read_bytes()
    return data[: len(original.data)].ljust(len(original.data), b"\0")


def _tail_zeroed(original: Original) -> bytes:
    """Zero the last written pages, as after a power cut."""
    begin = max(0, (original.used - 1) // _PAGE * _PAGE)
    return original.data[:begin].ljust(len(original.data), b"\0")


DAMAGES: dict[str, Damage] = {
    "zero": lambda original: bytes(len(original.data)),
    "0xff": lambda original: b"\xff" * len(original.data),
    "random": lambda original: original.chance.randbytes(len(original.data)),
    "inverted": lambda original: bytes(byte ^ 0xFF for byte in original.data),
    "9 bytes later": partial(_down, 9),
    "4096 bytes later": partial(_down, _PAGE),
    "9 bytes earlier": partial(_up, 9),
    "4096 bytes earlier": partial(_up, _PAGE),
    "the segment before": lambda original: original.data if original.previous is None else original.previous,
    "another broker's": _of_another_broker,
    "zero from the middle": partial(_from_middle, 0),
    "0xff from the middle": partial(_from_middle, 0xFF),
    "random from the middle": lambda original: _over(
        original.data, _middle(original), original.chance.randbytes(len(original.data) - _middle(original))
    ),
    "zero to the middle": lambda original: bytes(_middle(original)) + original.data[_middle(original) :],
    "zero, a range": partial(_filled_range, 0),
    "0xff, a range": partial(_filled_range, 0xFF),
    "random, a range": _random_range,
    "a range cut out, shorter": _cut_short,
    "a range cut out, moved up": lambda original: _cut_short(original).ljust(len(original.data), b"\0"),
    "last page zero": _tail_zeroed,
    "foreign, then zeros": _foreign_tail,
    "deleted": lambda original: None,
    "empty": lambda original: b"",
    "cut in the middle": lambda original: original.data[: _middle(original)],
    "cut at a page": lambda original: original.data[: _middle(original) // _PAGE * _PAGE],
    "cut near the end": lambda original: original.data[: max(0, original.used - original.chance.randint(1, 400))],
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
    """The segments with data, in order."""
    return [
        Path(segment.file) for segment in open_store(root).commit_log
        if used_bytes(Path(segment.file).read_bytes())
    ]


def targets_of(root: Path) -> dict[str, list[Path]]:
    """The segments that can be damaged, by name."""
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
        for damage in DAMAGES:
            if target in _ONLY_OF.get(damage, TARGETS):
                yield Case(name, target, damage, seed)


Contents = dict[Path, bytes | None]


def damage_of(case: Case, chance: random.Random) -> tuple[Contents, Contents]:
    """Return the contents of the segments before and after the damage; None: no file."""
    root = asking.root_of(case.store)
    files = targets_of(root)[case.target]
    before = {file: file.read_bytes() for file in files}
    after: Contents = {}
    family = [name for name in _of_design(_design_of(case.store)) if name != case.store] or corpus.corpus_names()
    for file, data in before.items():
        all_files = _segments(root)
        place = all_files.index(file)
        previous = all_files[place - 1].read_bytes() if place else None
        after[file] = DAMAGES[case.damage](Original(data, used_bytes(data), previous, chance, family))
    return dict(before), after


def put(contents: Contents) -> None:
    """Write the segments."""
    for file, data in contents.items():
        if data is None:
            file.unlink()
        else:
            file.write_bytes(data)


def play(case: Case) -> Played:
    """Damage the segments, run the commands, and restore the segments."""
    truth = asking.truth_of(case.store)
    chance = random.Random(str(case) + str(case.seed))
    before, after = damage_of(case, chance)
    if after == before:
        return Played(str(case), case.store, case.damage, UNCHANGED)
    return played(
        str(case), case.store, case.damage,
        *asking.while_damaged(
            truth, partial(put, after), partial(put, before), _questions(truth, case, chance)
        ),
    )


def _questions(truth: Truth, case: Case, chance: random.Random) -> Iterator[Question]:
    is_destroyed = case.damage in DESTROYING
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
