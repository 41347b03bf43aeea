"""The salvage matrix: each store of the corpus × each way to damage it, and what must hold of the store made from it.

`python -m tests.repairs.salvage_matrix` plays all of it and prints the table of docs/salvage.md. What was destroyed is
known here by the damage itself, and where records lie by their bytes: nothing of it comes from the code under test.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.rebuild.rebuild import PARTS, index_has_tags, rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.repairs.salvage.salvage import Salvaged, salvage
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.comparing import cited
from tests.forge.stores import WITH_SEVERAL_SEGMENTS, copy_of, settings_of, unpacked

Row = dict[str, Any]
Places = dict[int, bytes]
_BODY_CRC_AT, _NUMBER_AT, _BODY_AT = 8, 20, 88


@dataclass(frozen=True, slots=True)
class Case:
    """What is given to salvage, and what else than the store's own records its files hold.

    Shape: no `paths`: the store's root; `copies` are altered records that are sound in themselves; `doubtful` is the
           length of a record of which only properties may be hit: without a CRC of theirs nothing tells.
    """

    did: str
    doubtful: int = 0
    paths: tuple[Path, ...] = ()
    copies: tuple[bytes, ...] = ()


Damage = Callable[[Path, Path, random.Random], Case]


@cache
def records_of(name: str) -> Places:
    """The bytes of every record of a store, by commit-log offset."""
    found: Places = {}
    for file in damage.log_files(unpacked(name)):
        data = file.read_bytes()
        found |= {int(file.name) + at: data[at : at + length] for at, length in damage.records_in(file)}
    return found


@cache
def verdicts_of(name: str) -> dict[str, Row]:
    """The rows of the audit of a store as its broker left it."""
    return _audited(unpacked(name), name)


def _audited(root: Path, name: str) -> dict[str, Row]:
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    for row in rows:  # made from files alone, a store is one that stopped cleanly
        row["flags"] = [flag for flag in row["flags"] if flag != "may_be_decided"]
        del row["causes"]  # they rest on facts of the whole store too: whether it was killed, its last op message
        row["reason"] = re.sub(r"; it may have been rolled back: ops of the last [^;]*", "", row["reason"])
    return {row["transaction_id"]: _nameless(row) for row in rows}


def _nameless(row: Row) -> Row:
    """A row without the path of its store."""
    return {
        key: [_nameless(entry) for entry in value] if isinstance(value, list) and value and isinstance(value[0], dict)
        else value
        for key, value in row.items()
        if key != "store"
    }


# --- damages ----------------------------------------------------------------------------------------------------------


def _filled_logs(root: Path) -> list[Path]:
    return [file for file in damage.log_files(root) if damage.records_in(file)]


def _stretch(log: Path, chance: random.Random) -> tuple[int, int, int]:
    """A range in the middle of a file's records that begins and ends within records, and the first one's length."""
    records = damage.records_in(log)
    count = len(records)
    first = records[count // 3 + chance.randint(0, count // 6)]
    last = records[count // 2 + chance.randint(0, count // 6)]
    begin = first[0] + chance.randrange(first[1])
    return begin, max(begin + 1, last[0] + chance.randrange(last[1])) - begin, first[1]


def _zeroed(root: Path, _: Path, chance: random.Random) -> Case:
    log = chance.choice(_filled_logs(root))
    begin, length, doubtful = _stretch(log, chance)
    return Case(damage.zero_bytes(log, begin, length), doubtful=doubtful)


def _overwritten(root: Path, _: Path, chance: random.Random) -> Case:
    log = chance.choice(_filled_logs(root))
    begin, length, doubtful = _stretch(log, chance)
    return Case(damage.write_bytes(log, begin, chance.randbytes(length)), doubtful=doubtful)


def _torn(root: Path, _: Path, chance: random.Random) -> Case:
    log = _filled_logs(root)[-1]
    records = damage.records_in(log)
    at, length = records[chance.randrange(len(records) // 2, len(records))]
    return Case(damage.truncate(log, at + chance.randrange(1, length)))


def _beheaded(root: Path, _: Path, chance: random.Random) -> Case:
    log = _filled_logs(root)[0]
    at = chance.randrange(1, 3000)
    log.write_bytes(log.read_bytes()[at:])
    return Case(f"{log.name} lost its first {at} bytes")


def _segment_zeroed(root: Path, _: Path, chance: random.Random) -> Case:
    log = chance.choice(_filled_logs(root)[:-1])
    return Case(damage.zero_bytes(log, 0, log.stat().st_size))


def _segment_dropped(root: Path, _: Path, chance: random.Random) -> Case:
    return Case(damage.drop(chance.choice(_filled_logs(root))))


def _swapped(root: Path, _: Path, chance: random.Random) -> Case:
    return Case(damage.swap(*chance.sample(_filled_logs(root), 2)))


def _misnamed(root: Path, _: Path, chance: random.Random) -> Case:
    log = chance.choice(_filled_logs(root))
    other = log.with_name(f"{(int(log.name) // log.stat().st_size + 1000) * log.stat().st_size:020d}")
    log.rename(other)
    return Case(f"{log.name} is called {other.name}")


def _overlapping(root: Path, _: Path, chance: random.Random) -> Case:
    log = chance.choice(_filled_logs(root))
    last = damage.log_files(root)[-1]
    other = log.with_name(f"{int(last.name) + last.stat().st_size:020d}")
    shutil.copy(log, other)
    return Case(f"{log.name} lies there as {other.name} too")


def _contradicting(root: Path, scratch: Path, chance: random.Random) -> Case:
    """A second file with records that say otherwise: some with a CRC that tells, some without."""
    log = chance.choice(_filled_logs(root))
    data = log.read_bytes()
    other, copies = bytearray(), []
    records = damage.records_in(log)
    for number, (at, length) in enumerate(chance.sample(records, min(6, len(records)))):
        record = bytearray(data[at : at + length])
        body_length = int.from_bytes(record[84:88], "big")
        if number % 3 == 0 and body_length:  # the body no longer matches
            record[_BODY_AT] ^= 0xFF
        elif number % 3 == 1 and body_length:  # it matches, and is another one
            record[_BODY_AT] ^= 0xFF
            crc = zlib.crc32(record[_BODY_AT : _BODY_AT + body_length]) & 0x7FFFFFFF
            record[_BODY_CRC_AT : _BODY_CRC_AT + 4] = crc.to_bytes(4, "big")
        else:
            record[_NUMBER_AT + 7] ^= 1
        copies.append(bytes(record))
        other += bytes(chance.randrange(40)) + record
    (scratch / "copy").write_bytes(other)
    did = f"{len(copies)} records of {log.name} have a contradicting copy"
    return Case(did, paths=(root, scratch / "copy"), copies=tuple(copies))


def _image(root: Path, scratch: Path, chance: random.Random) -> Case:
    logs = [log.read_bytes() for log in damage.log_files(root)]
    chance.shuffle(logs)
    with (scratch / "disk.img").open("wb") as image:
        for data in logs:
            image.write(chance.randbytes(chance.randrange(9000)))
            image.write(data)
        image.write(chance.randbytes(77))
    return Case("the log's files lie in an image, not aligned, garbage between them", paths=(scratch / "disk.img",))


def _loose(root: Path, scratch: Path, chance: random.Random) -> Case:
    log = chance.choice(_filled_logs(root))
    shutil.copy(log, scratch / "FILE0001.CHK")
    return Case(f"{log.name} is called FILE0001.CHK, and nothing else is left", paths=(scratch / "FILE0001.CHK",))


def _without_derived(root: Path, _: Path, __: random.Random) -> Case:
    for name in ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "checkpoint"):
        if (root / name).exists():
            damage.drop(root / name)
    return Case("queues, index and checkpoint were deleted")


DAMAGES: dict[str, Damage] = {
    "a stretch of zeros": _zeroed,
    "a stretch of garbage": _overwritten,
    "torn tail": _torn,
    "head cut off": _beheaded,
    "a segment of zeros": _segment_zeroed,
    "a segment missing": _segment_dropped,
    "two segments exchanged": _swapped,
    "a segment misnamed": _misnamed,
    "a segment twice": _overlapping,
    "contradicting copies": _contradicting,
    "raw image": _image,
    "one loose file": _loose,
    "no derived files": _without_derived,
}
NEED_SEVERAL = {"a segment of zeros", "a segment missing", "two segments exchanged"}
REBUILT = "no derived files, rebuilt"
CASES = (*DAMAGES, REBUILT)


# --- one case ---------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What came of one case; no violations is what is wanted. Counts are transactions."""

    name: str
    kind: str
    did: str = ""
    same: int = 0
    undecidable: int = 0
    gone: int = 0
    earlier: int = 0
    violations: list[str] = field(default_factory=list)


def play(name: str, kind: str, directory: Path, seed: int = 0) -> Result:
    """Damage a copy of a store below a directory that is there, make a store of it, and compare."""
    chance = random.Random(f"{name} {kind} {seed}")
    root = copy_of(name, directory / "damaged")
    scratch = directory / "scratch"
    scratch.mkdir()
    store = open_store(root)
    sizes, tags = store_sizes(store), index_has_tags(store, broker_settings(store))
    result = Result(name, kind)
    if kind == REBUILT:
        result.did = _without_derived(root, scratch, chance).did
        rebuild(PARTS, open_store(root), directory / "new", sizes, with_tags=tags)
        destroyed: set[int] = set()
    else:
        case = DAMAGES[kind](root, scratch, chance)
        result.did = case.did
        paths = list(case.paths) or [root]
        old = open_store(root) if root in paths else None
        knows = old is not None or name not in WITH_SEVERAL_SEGMENTS
        made = salvage(
            paths, directory / "new",
            sizes if knows else replace(sizes, log_file_bytes=1 << 30, is_log_file_guessed=True),
            config=root / "config", with_tags=tags, old_store=old,
        )
        if made.segment_bytes != sizes.log_file_bytes:
            result.violations.append(f"segments of {made.segment_bytes} bytes, not {sizes.log_file_bytes}")
        destroyed = _account(result, records_of(name), case, made)
    # without queues nothing says that the log went on
    known_end = max(set(records_of(name)) - destroyed) if kind == "one loose file" else None
    named = b"".join(records_of(name)[offset] for offset in destroyed)
    hit = {key for key, row in verdicts_of(name).items() if cited(row) & destroyed or key.encode() in named}
    compare(result, verdicts_of(name), _audited(directory / "new", name), destroyed, hit, known_end)
    return result


def _account(result: Result, records: Places, case: Case, made: Salvaged) -> set[int]:
    """Check the accounting in bytes against where records' bytes are; gives the offsets of those that are nowhere."""
    left: set[int] = set()
    for part in made.coverage:
        data = Path(part.file).read_bytes()
        counts = {offset: data.count(record) for offset, record in records.items()}
        left |= {offset for offset, count in counts.items() if count}
        decoded = sum(count * len(records[offset]) for offset, count in counts.items())
        decoded += sum(len(copy) for copy in case.copies if copy in data)
        if part.decoded_bytes - decoded not in (0, case.doubtful):
            result.violations.append(f"{part.file}: {part.decoded_bytes} bytes decoded, {decoded} are of records")
        if part.unread_bytes or part.size_bytes != len(data) or min(part.filler_bytes, part.damaged_bytes) < 0:
            result.violations.append(f"{part.file}: {part} does not add up to {len(data)} bytes")
        dirty = len(data) - data.count(0) - decoded
        if part.damaged_bytes < dirty - _noughtless(records, data):
            result.violations.append(f"{part.file}: {part.damaged_bytes} bytes damaged, of {dirty}")
    return set(records) - left


def _noughtless(records: Places, data: bytes) -> int:
    """The most by which zeros in records, and what blank records say, lower the count of bytes that are no zero."""
    return 8 + sum(record.count(0) for record in records.values())


def _claims_less(row: Row, now: Row) -> bool:
    """Whether a row is the same with fewer flags, or without the number of its deliveries: a COMMIT may be lost."""
    more: Row = {"deliveries_count": None} if now["deliveries_count"] is None else {}
    if {*now["flags"]} < {*row["flags"]}:
        more |= {"flags": now["flags"], "reason": now["reason"]}
    return bool(more) and now == row | more


def compare(
    result: Result, before: dict[str, Row], after: dict[str, Row], destroyed: set[int], hit: set[str],
    known_end: int | None = None,
) -> None:
    """A transaction whose records are all there has its row again; another one is undecidable, or as it was.

    What rests on the absence of a record may be undecidable where records are lost; the reason says which bytes are.
    `destroyed`: offsets of records that are nowhere; `hit`: the transactions that they belong to.
    `known_end`: the last record, where nothing says that others followed; what they decided is not decided then.
    """
    for identity, row in before.items():
        now = after.get(identity)
        is_hit = identity in hit
        if now == row:
            result.same += 1
        elif now is None:
            result.gone += 1
            if not is_hit or {copy["commit_log_offset"] for copy in row["half_copies"]} - destroyed:
                result.violations.append(f"{identity} was {row['state']}, is gone")
        elif now["state"] == "UNDECIDABLE":
            result.undecidable += 1
            if not destroyed or (row["state"] == "COMMITTED" and not is_hit):
                result.violations.append(f"{identity} was {row['state']}, is undecidable: {now['reason']}")
            elif not any(letter.isdigit() for letter in now["reason"]) and "log begins later" not in now["reason"]:
                result.violations.append(f"{identity} undecidable, and no bytes are named: {now['reason']}")
        elif known_end is not None and is_hit and min(cited(row) & destroyed, default=0) > known_end:
            result.earlier += 1
        elif destroyed and _claims_less(row, now):
            result.same += 1  # a flag that rests on the absence of a record is not claimed where records are lost
        elif not is_hit or now["state"] != row["state"]:
            changes = [f"{key} {row[key]!r} -> {now[key]!r}" for key in row if row[key] != now[key]]
            result.violations.append(f"{identity} ({'hit' if is_hit else 'not hit'}): {'; '.join(changes)}")
        else:
            result.same += 1
    for identity in after.keys() - before.keys():
        if after[identity]["state"] != "UNDECIDABLE" or not destroyed:
            result.violations.append(f"{identity} is new: {after[identity]}")


def cases() -> Iterator[tuple[str, str]]:
    """Every case: store, damage."""
    for name in corpus.corpus_names():
        for kind in CASES:
            if kind not in NEED_SEVERAL or name in WITH_SEVERAL_SEGMENTS:
                yield name, kind


# --- all of it --------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Play the matrix, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.repairs.salvage_matrix", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=1, help="how often, each time with other places")
    parser.add_argument("--only", default="", help="stores whose name has this in it")
    parser.add_argument("--kind", default="", help="damages whose name has this in it")
    asked = parser.parse_args(arguments)
    table: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    failures, begin = 0, time.monotonic()
    for seed in range(asked.seeds):
        for name, kind in cases():
            if asked.only not in name or asked.kind not in kind:
                continue
            with tempfile.TemporaryDirectory(prefix="rmqtx-salvage-") as directory:
                try:
                    result = play(name, kind, Path(directory), seed)
                except SourceError as error:
                    result = Result(name, kind, violations=[f"{type(error).__name__}: {error}"])
            failures += bool(result.violations)
            for violation in result.violations[:5]:
                print(f"{name}, {kind}, seed {seed} ({result.did}): {violation}", file=sys.stderr)
            counts = table[kind][name.rsplit("-", 1)[1]]
            counts.update(
                cases=1, failures=int(bool(result.violations)), same=result.same, undecidable=result.undecidable,
                gone=result.gone,
            )
    print(_markdown(table))
    print(f"{failures} failures, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return failures > 0


def _markdown(table: dict[str, dict[str, Counter[str]]]) -> str:
    versions = sorted({version for row in table.values() for version in row})
    lines = ["| damage | " + " | ".join(versions) + " |", "|---" * (len(versions) + 1) + "|"]
    for kind, row in table.items():
        lines.append(f"| {kind} | " + " | ".join(_cell(row[version]) for version in versions) + " |")
    return "\n".join(lines)


def _cell(counts: Counter[str]) -> str:
    if not counts["cases"]:
        return "–"
    numbers = f"{counts['same']} / {counts['undecidable']} / {counts['gone']}"
    return f"{int(counts['failures'])} wrong of {counts['cases']}" if counts["failures"] else numbers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
