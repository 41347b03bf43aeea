#!/usr/bin/env python3
"""Check a proof of rmqtx on copies of its stores, without rmqtx: read the bytes that it names, and judge again.

    python3 check_proof.py PROOF.json COPY... [--sample N] [--seed N] [--transaction ID] [--all-bytes]
                           [--broker-conf FILE] [--broker-version V]

COPY: one for each store of the proof, in its order. For transactions in the half and op topics (RocketMQ 4.3 and later)
with queues in files. Prints a line for each verdict that is not the same, then a summary. Exit status 0: every verdict
that was asked for is the same; 1: something differs; 2: wrong arguments; 3: something is unknown; 10: a file cannot
be read. Format and rules: docs/proofs.md of rmqtx. Python 3.11 or later, standard library only.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

HALF, OP, DISCARD = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
MAGICS, BLANK = (0xDAA320A7, 0xDAA320AB), 0xCBD43194
CURSORS, CHECK_GROUP = "config/consumerOffset.json", "CID_RMQ_SYS_TRANS"
#: Settings that verdicts depend on: key, and defaults by first release.
SETTINGS = {
    "transaction_time_out_ms": ("transactionTimeOut", {(0,): 3000, (4, 3, 1): 6000}),
    "transaction_check_max": ("transactionCheckMax", {(0,): 5, (4, 3, 1): 15}),
    "transaction_check_interval_ms": ("transactionCheckInterval", {(0,): 60000, (5, 1, 1): 30000}),
    "transaction_op_batch_interval_ms": ("transactionOpBatchInterval", {(0,): 0, (5, 1, 0): 3000}),
    "file_reserved_time_hours": ("fileReservedTime", {(0,): 72}),
    "max_hash_slots": ("maxHashSlotNum", {(0,): 5000000}), "max_index_entries": ("maxIndexNum", {(0,): 20000000}),
}
SINCE = {"writes_discard_copy": (4, 5, 2), "batches_ops": (5, 1, 0)}
UNUSUAL = {"masked", "delayed_half", "number_shared", "number_taken"}


Differs = type("Differs", (Exception,), {})  # the copy, the verdict or the proof is not as it was
Unknown = type("Unknown", (Exception,), {})  # what is read here does not decide it
Found = dict[str, list[tuple[int, "Record"]]]  # records by kind of witness, each with the number of its store
KINDS = ("half_copy", "op_mark", "final_record", "discard_copy")

class Record:
    def __init__(self, data: bytes, offset: int) -> None:
        length, magic, crc, _, _, self.number, own, self.sys, _ = struct.unpack_from(">iIIiiqqiq", data)
        if magic not in MAGICS or own != offset or length != len(data):
            raise Differs(f"no record at commit-log offset {offset}")
        host = slice((at := 60 + (16 if self.sys & 0x10 else 4)), at + (20 if self.sys & 0x20 else 8))
        self.stored_ms = struct.unpack_from(">q", data, host.start - 8)[0]
        self.prepared, size = struct.unpack_from(">qi", data, host.stop + 4)
        at = host.stop + 16
        self.body, at = data[at : at + size], at + size
        wide = 2 if magic == MAGICS[1] else 1
        end = at + wide + int.from_bytes(data[at : at + wide], "big")
        self.topic = data[at + wide : end].decode("utf-8", "replace")
        text = data[end + 2 : end + 2 + int.from_bytes(data[end : end + 2], "big")].decode("utf-8", "replace")
        self.properties = dict(pair.split("\1", 1) for pair in text.split("\2") if "\1" in pair)
        self.offset, self.end = offset, offset + length
        self.is_sound = not self.body or zlib.crc32(self.body) & 0x7FFFFFFF == crc
        self.id = self.properties.get("UNIQ_KEY") or f"{data[host].hex()}{offset:016x}".upper()
        self.is_commit = self.sys & 0xC == 8 and self.topic not in (HALF, OP)
        checks = self.properties.get("TRANSACTION_CHECK_TIMES", "0")
        self.checks = int(checks) if checks.isdecimal() else 0
        parts = self.body.decode("ascii", "replace").split(",")
        is_op = self.topic == OP and self.properties.get("TAGS") == "d" and self.is_sound
        #: The half queue offsets that an op message lists.
        self.settled = [int(one) for one in parts if one.isdecimal()] if is_op else []

class Marks(bytearray):
    """Half queue offsets that op messages list, one bit each."""
    def add(self, record: Record) -> None:
        for number in (one for one in record.settled if one < 1 << 36):
            self.extend(bytes(max(0, number // 8 + 1 - len(self))))
            self[number // 8] |= 1 << number % 8
    def __contains__(self, number: object) -> bool:
        return number // 8 < len(self) and bool(self[number // 8] >> number % 8 & 1)

class Copy:
    def __init__(self, root: str, facts: dict) -> None:
        self.root, self.facts, self.bytes = root, facts, 0
        self.open: dict[str, int] = {}
        self.scanned: dict[tuple[int, int], list[Record]] = {}
        self.marked = Marks()
        folder = f"consumequeue/{OP}/0"
        names = sorted(os.listdir(f"{root}/{folder}")) if os.path.isdir(f"{root}/{folder}") else []
        self.op_files = [(int(one), f"{folder}/{one}", os.path.getsize(f"{root}/{folder}/{one}")) for one in names]
        self.op_from = self.op_end = sum((base + size for base, _, size in self.op_files[-1:]), 0) // 20
        self.cursor = self.read_cursor()
    def read(self, file: str, position: int, length: int) -> bytes:
        path = os.path.join(self.root, file)
        if path not in self.open:
            while len(self.open) > 200:
                os.close(self.open.popitem()[1])
            self.open[path] = os.open(path, os.O_RDONLY)
        self.bytes += len(data := os.pread(self.open[path], max(0, length), position))
        return data
    def log(self, offset: int, length: int) -> tuple[bytes, int]:
        """Bytes of the log, and the offset behind the last byte of their segment."""
        for one in self.facts["segments"]:
            end = one["base_offset"] + one["size_bytes"]
            if one["base_offset"] <= offset < end:
                return self.read(one["file"], offset - one["base_offset"], min(length, end - offset)), end
        raise Unknown(f"no file has commit-log offset {offset}")
    def record(self, offset: int, length: int | None = None) -> Record:
        return Record(self.log(offset, length or int.from_bytes(self.log(offset, 4)[0], "big"))[0], offset)
    def read_cursor(self) -> int | None:
        """The next half queue offset that the check reads, by the file itself; its keys may be bare numbers."""
        text = self.read(CURSORS, 0, 1 << 30).decode() if os.path.exists(f"{self.root}/{CURSORS}") else ""
        table = json.loads(re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', text)) if text else None
        return None if table is None else table["offsetTable"].get(f"{HALF}@{CHECK_GROUP}", {}).get("0", 0)
    def op_slot(self, number: int) -> tuple[int, int]:
        return next((struct.unpack(">qi", self.read(file, number * 20 - base, 12)) for base, file, size in self.op_files
                     if base <= number * 20 < base + size), (0, 0))
    def read_ops(self, offset: int) -> None:
        low, high = self.op_files[0][0] // 20 if self.op_files else 0, self.op_from
        while low < high:  # slots ascend by place
            place, size = self.op_slot(middle := (low + high) // 2)
            low, high = (middle + 1, high) if size and place < offset else (low, middle)
        for number in range(low, self.op_from):
            place, size = self.op_slot(number)
            if not size:
                break
            record = self.record(place, size)
            if record.topic != OP or record.number != number or not record.is_sound:
                raise Differs(f"slot {number} of the op queue leads to no sound op message")
            self.marked.add(record)
        self.op_from = min(low, self.op_from)
    def scan(self, begin: int, end: int) -> list[Record]:
        """The COMMIT records and discard copies in a range of the log, read record by record; notes its op messages."""
        if (begin, end) not in self.scanned:
            found, offset = self.scanned.setdefault((begin, end), []), begin
            while offset < end:
                head, end_of_file = self.log(offset, 8)
                length, magic = struct.unpack(">II", head)
                if not magic and not length:
                    break
                record = None if magic == BLANK else self.record(offset, length)
                if record is not None:
                    self.marked.add(record)
                    found += [record] if record.is_commit or record.topic == DISCARD else []
                offset = end_of_file if record is None else record.end
        return self.scanned[begin, end]
    def unindexed(self, begin: int) -> list[tuple[int, int]]:
        heads = [struct.unpack(">qqqqii", self.read(one["file"], 0, 40)) for one in self.facts["index"]]
        left = []
        for low, high in sorted((one[2], one[3]) for one in heads if one[5] > 1):
            left += [(begin, low)] if low > begin else []
            begin = max(begin, high)
        return [*left, (begin, self.facts["end_offset"])]
    def in_bucket(self, bucket: dict, key: str) -> list[int]:
        file, hashed = bucket["file"], java_hash(key)
        slots = next(one["slots_count"] for one in self.facts["index"] if one["file"] == file)
        if bucket["bucket"] != hashed % slots:
            raise Differs(f"{file}: the bucket of the key is {hashed % slots}, not {bucket['bucket']}")
        data = self.read(file, 40 + 4 * bucket["bucket"], 4)
        digest, number, places, count = hashlib.sha256(data), int.from_bytes(data, "big"), [], 0
        while number:
            data = self.read(file, 40 + 4 * slots + 20 * number, 20)
            digest.update(data)
            value, place, _, older = struct.unpack(">iqii", data) if len(data) == 20 else (-1, 0, 0, 0)
            if value < 0 or value % slots != bucket["bucket"] or not 0 <= older < number:
                raise Differs(f"{file}: entry {number} does not belong to bucket {bucket['bucket']}")
            places += [place] if value == hashed else []
            number, count = older, count + 1
        if bucket["sha256"] is not None and (digest.hexdigest(), count) != (bucket["sha256"], bucket["entries"]):
            raise Differs(f"{file}: bucket {bucket['bucket']} has other bytes")
        return places

def java_hash(text: str) -> int:
    value, units = 0, text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return min(value, (1 << 32) - value) % (1 << 31)

def judged(copies: list[Copy], verdict: dict, found: Found) -> tuple[str, str]:
    halves, discards, name = found["half_copy"], found["discard_copy"], verdict["transaction_id"]
    named = {(store, one.offset) for store, one in (*halves, *discards)}
    marks = {one["half_queue_offset"] for one in verdict["witnesses"] if one["kind"] == "op_mark"}
    if halves and marks - {one.number for _, one in halves}:
        raise Differs("an op mark of another half message is among its records")
    if any(one.id == name or (store, one.prepared) in named for store, one in found["final_record"]):
        return "COMMITTED", "a"
    if halves and marks:
        return "ROLLED_BACK", "b"
    if not halves and not discards:
        raise Unknown("neither a half copy nor a decision is among its records")
    last = max((one.offset for _, one in discards), default=-1)
    if any(copies[store].cursor is None for store, _ in halves):
        raise Unknown("no cursor of the check")
    if any(one.number >= copies[store].cursor and one.offset > last for store, one in halves):
        return "PENDING", "c"
    if discards:
        return "DISCARDED", "d"
    store, newest = max(halves, key=lambda one: one[1].offset)
    settings = copies[store].facts["settings"]
    if settings["writes_discard_copy"]["value"] is not True and newest.checks:
        if newest.checks >= settings["transaction_check_max"]["value"]:
            return "DISCARDED", "d"
        raise Unknown("its release writes no discard copies, and the most checks of any copy are not read here")
    return "LOST", "e"

def require_values(copies: list[Copy], verdict: dict, found: Found) -> None:
    halves, marks, finals, discards = ([one for _, one in found[kind]] for kind in KINDS)
    is_counted, right = len(copies) == 1 and verdict["deliveries_count"] is not None, {}
    if halves:
        first = min(halves, key=lambda one: one.offset)
        times = {"COMMITTED": min((one.stored_ms for one in finals), default=None),
                 "ROLLED_BACK": min((one.stored_ms for one in marks), default=None),
                 "DISCARDED": max((one.stored_ms for one in discards), default=None)}
        right |= {
            "transaction_id": first.id, "half_store_time_ms": first.stored_ms, "keys": first.properties.get("KEYS"),
            "decided_time_ms": times.get(verdict["state"]), "topic": first.properties.get("REAL_TOPIC"),
            "checks_count": max(one.checks for one in halves + discards),
            "producer_group": first.properties.get("PGROUP")}
    for name, value in (right | ({"deliveries_count": len(finals)} if is_counted else {})).items():
        if verdict[name] != value:
            raise Differs(f"{name} {verdict[name]!r}, expected {value!r}")

def require_absence(copies: list[Copy], verdict: dict, found: Found) -> None:
    """Look for what would change the state: by index and op queue, and in the ranges that these do not cover."""
    name, topics = verdict["transaction_id"], {"final_record": verdict["topic"], "discard_copy": DISCARD}
    missing = {"final_record", *(() if verdict["state"] == "ROLLED_BACK" else ("op_mark",))}
    known = {one.offset for entries in found.values() for _, one in entries}
    looked_for = {one["store"]: one for one in verdict["not_found"]}
    for number, copy in enumerate(copies):
        looked, halves = looked_for.get(number), [one for store, one in found["half_copy"] if store == number]
        if looked is None or not missing <= set(looked["kinds"]):
            raise Differs(f"it does not show what was looked for in store {number}")
        begin = min((one.offset for one in halves), default=copy.facts["begin_offset"])
        if looked["from_offset"] != begin:
            raise Differs(f"what was looked for begins at {looked['from_offset']}, expected {begin}")
        if any(end > begin for _, end in copy.facts["missing"]):
            raise Unknown("a part of the log is missing")
        wanted = {(kind, one["file"]) for kind, topic in topics.items() if kind in looked["kinds"] and topic
                  for one in copy.facts["index"]}
        if {(one["kind"], one["file"]) for one in looked["buckets"]} != wanted:
            raise Differs("its index buckets are not one of each file")
        places = {place for one in looked["buckets"] for place in copy.in_bucket(one, f"{topics[one['kind']]}#{name}")}
        others = [copy.record(place) for place in places - known]
        others += [one for span in copy.unindexed(begin) for one in copy.scan(*span) if one.offset not in known]
        for one in others:
            if one.is_commit and (one.id == name or one.prepared in known) or one.topic == DISCARD and one.id == name:
                raise Differs(f"rule {'a' if one.is_commit else 'd'}: a record at commit-log offset {one.offset}")
        if "op_mark" in missing:
            copy.read_ops(begin)
            if any(one.number in copy.marked for one in halves):
                raise Differs("rule b: an op message lists the half queue offset of a copy")

def check(copies: list[Copy], verdict: dict) -> None:
    found: Found = {kind: [] for kind in KINDS}
    for one in verdict["witnesses"]:
        kind, segment = one["kind"], copies[one["store"]].facts["segments"][one["segment"]]
        data = copies[one["store"]].read(segment["file"], one["position_bytes"], one["length_bytes"])
        if not data or hashlib.sha256(data).hexdigest() != one["sha256"]:
            place = f"bytes {one['position_bytes']} to {one['position_bytes'] + one['length_bytes']}"
            raise Differs(f"{segment['file']}: {place} ({kind}) are other ones")
        record = Record(data, segment["base_offset"] + one["position_bytes"])
        if not {"half_copy": record.topic == HALF, "op_mark": one["half_queue_offset"] in record.settled,
                "final_record": record.is_commit, "discard_copy": record.topic == DISCARD}[kind]:
            raise Differs(f"the record at commit-log offset {record.offset} is not a {kind}")
        found[kind].append((one["store"], record))
    if unusual := UNUSUAL & set(verdict["flags"]):
        raise Unknown(f"its flag {min(unusual)} depends on records of other transactions")
    if (right := judged(copies, verdict, found))[0] != verdict["state"]:
        raise Differs(f"state {verdict['state']}, expected {right[0]} by rule {right[1]}")
    require_values(copies, verdict, found)
    if verdict["state"] != "COMMITTED":
        require_absence(copies, verdict, found)
    elif found["half_copy"] and not found["op_mark"] and "commit_without_op" not in verdict["flags"]:
        raise Differs("it has no op mark, and no flag commit_without_op")

def wrong_facts(copy: Copy, asked: argparse.Namespace) -> Iterator[Exception]:
    for one in copy.facts["files"]:
        data = copy.read(one["file"], 0, one["size_bytes"] + 1) if os.path.exists(f"{copy.root}/{one['file']}") else b""
        if hashlib.sha256(data).hexdigest() != one["sha256"]:
            yield Differs(f"{one['file']} has other bytes")
    settings, conf, bounds = copy.facts["settings"], {}, []
    for line in Path(asked.broker_conf).read_text("utf-8").splitlines() if asked.broker_conf else ():
        conf |= {line.partition("=")[0].strip(): line.partition("=")[2].strip()}
    for name, other in (("version_low", (0,)), ("version_high", (99,))):
        text, origin = settings[name]["value"], settings[name]["origin"] or ""
        bounds.append(tuple(map(int, text.split("."))) if text else other)
        if origin.startswith("given") and text != asked.broker_version:
            yield (Differs if asked.broker_version else Unknown)(f"{name} {text} was given: --broker-version")
    (low, high), since_ops = bounds, SINCE["batches_ops"]
    for name, (key, defaults) in SETTINGS.items():
        value, begins = settings[name]["value"], [*defaults][1:] + [(100,)]
        possible = [one for (since, one), end in zip(defaults.items(), begins) if since <= high and end > low]
        if name == "transaction_op_batch_interval_ms" and high < since_ops:
            possible = [0]
        elif conf.get(key, "").isdecimal():
            possible = [int(conf[key])]
        elif settings[name]["origin"] == "broker.conf":
            possible = [value]
            yield Unknown(f"{name} {value} is from broker.conf: --broker-conf")
        if value not in possible:
            yield Differs(f"{name} {value}, expected {' or '.join(map(str, possible))}")
    for name, since in SINCE.items():
        if settings[name]["value"] is not (right := True if low >= since else False if high < since else None):
            yield Differs(f"{name} {settings[name]['value']}, expected {right}")

def merkle(leaves: list[bytes]) -> bytes:
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256().digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + merkle(leaves[:half]) + merkle(leaves[half:])).digest()

class Run:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.counts, self.digest = asked, {"same": 0, "differs": 0, "unknown": 0}, hashlib.sha256()
        self.lines = self.read_lines()
        self.head = json.loads(next(self.lines).removesuffix(b',"verdicts":[\n') + b"}")
        if self.head["proof_version"] != 1 or len(self.head["stores"]) != len(asked.copies):
            raise ValueError(f"expected a proof of version 1 and {len(self.head['stores'])} copies")
        self.copies = [Copy(root, facts) for root, facts in zip(asked.copies, self.head["stores"], strict=True)]
    def read_lines(self) -> Iterator[bytes]:
        with (gzip.open if self.asked.proof.endswith(".gz") else open)(self.asked.proof, "rb") as file:
            for line in file:
                self.digest.update(b"" if line.startswith(b'"digest"') else line)
                yield line
    def until(self, last: bytes) -> Iterator[bytes]:
        while (line := next(self.lines, b"")) != last:
            if not line:
                raise ValueError("the proof is cut off")
            yield line.rstrip(b",\n")
    def say(self, name: str, error: Exception) -> None:
        word = "unknown" if isinstance(error, Unknown) else "differs"
        self.counts[word] += 1
        print(f"{word}: {ascii(name)[1:-1]}: {ascii(str(error))[1:-1]}")
    def verdict(self, line: bytes) -> None:
        name = "?"
        try:
            name = str((verdict := json.loads(line))["transaction_id"])
            if verdict["state"] == "UNDECIDABLE" or self.head["at_ms"] is not None:
                raise Unknown("UNDECIDABLE, or as of a past time")
            check(self.copies, verdict)
            self.counts["same"] += 1
        except Exception as error:  # an altered proof or store can have anything
            self.say(name, error if isinstance(error, (Differs, Unknown)) else Differs(f"cannot be checked: {error!r}"))
    def facts_and_verdicts(self) -> None:
        for copy in self.copies:
            for error in wrong_facts(copy, self.asked):
                self.say(copy.root, error)
        kept, chance = [], random.Random(self.asked.seed)
        for number, line in enumerate(self.until(b'],"segments":[\n')):
            if self.asked.sample is None and self.asked.transaction in (None, json.loads(line)["transaction_id"]):
                self.verdict(line)
            elif len(kept) < (self.asked.sample or 0):
                kept.append(line)
            elif (place := chance.randrange(number + 1)) < (self.asked.sample or 0):
                kept[place] = line
        for line in kept:
            self.verdict(line)
        if not sum(self.counts.values()):
            self.say(str(self.asked.transaction), Unknown("no verdict of the proof was checked"))
    def trees(self) -> None:
        roots = []
        for entry in map(json.loads, self.until(b"],\n")):
            leaves = [bytes.fromhex(one) for one in entry["leaves"]]
            roots.append(merkle(leaves))
            copy, numbers = self.copies[entry["store"]], entry["chunks"] or range(len(leaves))
            file, size = copy.facts["segments"][entry["segment"]]["file"], entry["chunk_bytes"]
            for number, leaf in zip(numbers, leaves, strict=True) if self.asked.all_bytes else ():
                if hashlib.sha256(b"\0" + copy.read(file, number * size, size)).digest() != leaf:
                    self.say(copy.root, Differs(f"{file}: bytes {number * size} to {(number + 1) * size}"))
        end = json.loads(b"{" + next(self.lines).rstrip(b",\n") + b"}")
        if merkle(roots).hex() != end["merkle_root"]:
            self.say(self.asked.proof, Differs("the Merkle root is not that of the leaves"))
        if [*self.lines] != [b'"digest":"%s"}\n' % self.digest.hexdigest().encode()]:
            self.say(self.asked.proof, Differs("the digest at its end is not that of the proof"))

def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, more in {
        "proof": {}, "copies": {"nargs": "+"}, "--sample": {"type": int}, "--seed": {"type": int}, "--transaction": {},
        "--broker-conf": {}, "--broker-version": {}, "--all-bytes": {"action": "store_true"},
    }.items():
        parser.add_argument(name, **more)
    try:
        run = Run(parser.parse_args())
        run.facts_and_verdicts()
        run.trees()
    except (OSError, ValueError, LookupError, TypeError, StopIteration) as error:
        print(f"cannot read: {ascii(str(error))[1:-1]}")
        return 10
    _ = [os.close(file) for copy in run.copies for file in copy.open.values()]
    size = sum(one["size_bytes"] for copy in run.copies for one in copy.facts["segments"])
    read = sum(copy.bytes for copy in run.copies)
    print(", ".join(f"{count} {word}" for word, count in run.counts.items()) + f"; read {read} of {size} bytes"
          f" ({100 * read / max(1, size):.3f} %)")
    return 1 if run.counts["differs"] else 3 if run.counts["unknown"] else 0

if __name__ == "__main__":
    sys.exit(main())
