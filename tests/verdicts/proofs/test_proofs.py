"""A proof holds on a copy of its store, for `prove` and for the independent checker; whatever is altered is found."""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import random
import shutil
import sys
from pathlib import Path

import pytest

import rmqtx
from rmqtx.readers.model.errors import BadText, NoSuchTransaction
from rmqtx.verdicts.proofs import proof_file
from rmqtx.verdicts.proofs.proof_file import opened_proof
from rmqtx.verdicts.proofs.proving import Asked, Result
from tests.brokers.corpus import corpus_names, unpack
from tests.representatives import in_two_ways, rest_is_slow
from tests.verdicts.proofs.proof_files import (
    CHECKER,
    DERIVED_SETTINGS,
    Parts,
    alter_evidence,
    alter_setting,
    alter_verdict,
    altered_byte,
    checked,
    copied,
    made,
    proved,
)

#: docs/proofs.md has the number and the seed.
SEED, ALTERED = 37, 200
#: Stores that are altered: with decisions, checks and discards, of releases with lists of ops and without.
ALTERED_STORES = ("common-5.3.3", "discards-4.9.7", "common-4.3.0")
#: The checker does not judge all states, and reports none as different.
STATUSES = (0, 3)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """For each store that is altered: the store, and its proof."""
    folder = tmp_path_factory.mktemp("proofs")
    stores = {name: unpack(name, folder / name) for name in ALTERED_STORES}
    return {name: (store, made(store, folder / f"{name}.json")) for name, store in stores.items()}


@pytest.mark.parametrize("name", in_two_ways(corpus_names()))
def test_a_proof_holds_on_its_own_store(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path)
    file = made(store, tmp_path / "proof.json")
    rows = proved(file, store)
    assert [row for row in rows if row["result"] != Result.SAME] == []
    count = json.loads(file.read_text("ascii"))["verdicts_count"]
    assert len(rows) == count
    status, out = checked(file, store, "--all-bytes")
    assert status in STATUSES, out
    assert "0 differs" in out


def test_it_holds_on_a_copy_elsewhere_compressed_and_for_a_sample(
    originals: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    store, file = originals["common-5.3.3"]
    other = copied(store, tmp_path / "elsewhere")
    packed = tmp_path / "proof.json.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    rows = proved(packed, other, Asked(sample=20, seed=3))
    assert [row["result"] for row in rows] == [Result.SAME] * 20
    assert rows != proved(packed, other, Asked(sample=20, seed=4))
    assert checked(packed, other, "--sample", 20)[0] == 0
    name = rows[0]["transaction_id"]
    assert [row["transaction_id"] for row in proved(file, other, Asked(transaction=name))] == [name]
    assert checked(file, other, "--transaction", name)[1].startswith("1 same")
    with pytest.raises(NoSuchTransaction):
        proved(file, other, Asked(transaction="nothing"))
    assert checked(file, other, "--transaction", "nothing")[0] == 3


@pytest.mark.parametrize("number", rest_is_slow(range(ALTERED), quick=12))
def test_each_altered_proof_and_store_is_found(
    number: int, originals: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """The proofs are sealed again: neither finds them by the digest."""
    draw = random.Random(f"{SEED}/{number}")
    store, file = originals[ALTERED_STORES[number % 3]]
    parts = Parts.of(file)
    verdict = draw.choice(parts.verdicts)
    asked = verdict["transaction_id"]
    kind = ("byte", "verdict", "setting", "evidence")[number // 3 % 4]
    if kind == "byte":
        witness = draw.choice(verdict["witnesses"])
        log = store / parts.head["stores"][0]["segments"][witness["segment"]]["file"]
        position = witness["position_bytes"] + draw.randrange(witness["length_bytes"])
        with altered_byte(log, position, 1 << draw.randrange(8)):
            rows = proved(file, store, Asked(transaction=asked))
            status, out = checked(file, store, "--transaction", asked)
        found = [row for row in rows if row["what"].startswith("bytes of")]
        assert any(row["position_bytes"] <= position < row["position_bytes"] + row["length_bytes"] for row in found)
        assert status == 1, out
        assert f"bytes {witness['position_bytes']} to" in out
        return
    what = (
        alter_verdict(draw, verdict) if kind == "verdict"
        else alter_evidence(draw, verdict) if kind == "evidence"
        else alter_setting(draw, parts.head, DERIVED_SETTINGS)
    )
    forged = parts.sealed(tmp_path / "forged.json")
    asked = verdict["transaction_id"]
    rows = proved(forged, store, Asked(transaction=asked))
    status, out = checked(forged, store, "--transaction", asked)
    assert any(row["result"] == Result.DIFFERS for row in rows), what
    assert status in (1, 3), (what, out)  # 3: without any record the checker judges nothing
    if kind == "setting":
        assert [row["what"] for row in rows if row["result"] == Result.DIFFERS] == [f"setting {what}"]


@pytest.mark.parametrize("name", ["version_low", "version_high", "broker_role"])
def test_prove_derives_release_and_role_and_the_checker_finds_them_by_the_digest(
    name: str, originals: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    store, file = originals["common-5.3.3"]
    parts = Parts.of(file)
    alter_setting(random.Random(SEED), parts.head, [name])
    forged = parts.sealed(tmp_path / "forged.json")
    assert f"setting {name}" in [row["what"] for row in proved(forged, store, Asked(sample=1))]
    digest = json.loads(file.read_text("ascii"))["digest"]
    lines = forged.read_bytes().splitlines(keepends=True)
    forged.write_bytes(b"".join([*lines[:-1], b'"digest":"' + digest.encode() + b'"}\n']))
    assert "the digest" in checked(forged, store, "--sample", 1)[1]
    assert "digest" in [row["what"] for row in proved(forged, store, Asked(sample=1))]


def test_a_witness_that_a_proof_hides_is_found_in_index_and_op_queue(
    originals: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """Whoever removes a COMMIT record or an op message from a proof, and judges rightly by the rest, is found."""
    store, file = originals["common-5.3.3"]
    parts = Parts.of(file)
    template = next(one for one in parts.verdicts if one["state"] == "ROLLED_BACK")["not_found"][0]
    for state, hidden, rule in (("COMMITTED", "final_record", "rule a"), ("ROLLED_BACK", "op_mark", "rule b")):
        verdict = json.loads(json.dumps(next(
            one for one in parts.verdicts
            if one["state"] == state and {w["kind"] for w in one["witnesses"]} >= {hidden, "half_copy", "op_mark"}
        )))
        verdict["witnesses"] = [one for one in verdict["witnesses"] if one["kind"] != hidden]
        verdict["state"] = "ROLLED_BACK" if state == "COMMITTED" else "LOST"
        half = min(one["position_bytes"] for one in verdict["witnesses"] if one["kind"] == "half_copy")
        verdict["deliveries_count"], verdict["decided_time_ms"] = 0, None
        if state == "COMMITTED":
            from_op = next(one for one in verdict["witnesses"] if one["kind"] == "op_mark")
            log = (store / "commitlog" / f"{0:020}").read_bytes()
            at = from_op["position_bytes"] + 56
            verdict["decided_time_ms"] = int.from_bytes(log[at : at + 8], "big")
        looked = {**template, "from_offset": half, "kinds": ["final_record", "op_mark", "discard_copy"], "buckets": []}
        index = parts.head["stores"][0]["index"]
        for kind, topic in (("final_record", verdict["topic"]), ("discard_copy", "TRANS_CHECK_MAX_TIME_TOPIC")):
            for one in index:
                hashed = _java_hash(f"{topic}#{verdict['transaction_id']}")
                bucket = {"kind": kind, "file": one["file"], "bucket": hashed % one["slots_count"]}
                looked["buckets"].append({**bucket, "entries": None, "sha256": None})
        verdict["not_found"] = [looked]
        forged = Parts(parts.head, [verdict], parts.segments, {**parts.end, "verdicts_count": 1})
        status, out = checked(forged.sealed(tmp_path / "forged.json"), store)
        assert (status, rule in out) == (1, True), out
        assert {row["result"] for row in proved(tmp_path / "forged.json", store)} == {Result.DIFFERS}


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >= 1 << 31 else value)


def test_a_byte_beside_all_evidence_is_found_by_the_tree(
    originals: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    store, file = originals["common-5.3.3"]
    other = copied(store, tmp_path / "store")
    log = other / "commitlog" / f"{0:020}"
    with altered_byte(log, log.stat().st_size - 1, 1):
        assert "tree" in [row["what"] for row in proved(file, other)]
        assert checked(file, other, "--all-bytes")[0] == 1
    cursors = other / "config" / "consumerOffset.json"
    cursors.write_bytes(cursors.read_bytes() + b" ")
    assert "consumerOffset.json has other bytes" in checked(file, other, "--sample", 1)[1]
    assert "file" in [row["what"] for row in proved(file, other, Asked(sample=1))]
    shutil.rmtree(other / "commitlog")
    assert checked(file, other)[0] in (1, 10)


def test_a_verdict_that_the_copy_lacks_leaves_the_others_comparable(
    originals: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    store = copied(originals["common-5.3.3"][0], tmp_path / "store")
    file = made(store, tmp_path / "proof.json", at_ms=4_000_000_000_000)
    whole = proved(file, store)
    assert {row["result"] for row in whole} == {"same"}
    ended = [one for one in rmqtx.open(store).audit() if one.state == "ROLLED_BACK" and len(one.half_copies) == 1]
    offset = ended[len(ended) // 2].half_copies[0].commit_log_offset
    with (store / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(offset)
        log.write(bytes(64))
    rows = proved(file, store)
    missing = [row["transaction_id"] for row in rows if row["what"] == "verdict" and row["actual"] == "none"]
    assert missing == [ended[len(ended) // 2].transaction_id]
    assert sum(row["result"] == "same" for row in rows) > len(whole) // 2


@pytest.mark.parametrize("place", rest_is_slow(range(40), quick=6))
def test_a_proof_that_is_cut_off_or_has_other_bytes_is_no_proof(
    place: int, originals: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    store, file = originals["discards-4.9.7"]
    data, draw = file.read_bytes(), random.Random(f"{SEED}/{place}")
    broken = tmp_path / "broken.json"
    at = draw.randrange(len(data) - 1)
    broken.write_bytes(data[:at])
    with pytest.raises(BadText):
        proved(broken, store, Asked(sample=1))
    assert checked(broken, store, "--sample", 1)[0] != 0
    broken.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with contextlib.suppress(BadText):
        assert any(row["result"] == Result.DIFFERS for row in proved(broken, store, Asked(sample=1)))
    assert checked(broken, store, "--sample", 1)[0] != 0


def test_the_checker_is_independent_and_short() -> None:
    source = CHECKER.read_text("utf-8")
    assert len(source.splitlines()) <= 400
    imported = {
        name.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom) for name in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)


def test_trees_are_those_of_rfc_6962() -> None:
    """The roots of the test vectors of Certificate Transparency."""
    inputs = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
    roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    ]
    leaves = [proof_file.leaf(one) for one in inputs]
    assert [proof_file.root(leaves[: count + 1]).hex() for count in range(len(leaves))] == roots


def test_text_of_producers_stays_on_its_line(originals: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    store, file = originals["common-5.3.3"]
    parts = Parts.of(file)
    parts.verdicts[0]["transaction_id"] = 'x\n],"segments":[\x1b[2J'
    forged = parts.sealed(tmp_path / "forged.json")
    with opened_proof(forged) as reader:
        assert len(list(reader.verdict_lines())) == len(parts.verdicts)
    status, out = checked(forged, store, "--sample", 1_000)
    assert status == 1
    assert "\x1b" not in out
    assert all(line.startswith(("differs: ", "unknown: ")) or " same, " in line for line in out.splitlines())
