"""Stores of the other designs at the command line: what they are called, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.stores import unpacked
from tests.representatives import each_store, one_of_each_design

NAMES = [
    name for design in ("state_table", "prepared_records", "rocksdb") for name in corpus.corpus_names(design=design)
]
SHOWN = {
    "statetable": ["state_table"], "prepared": ["prepared_records"], "rocksdb-both": ["half_topic", "rocksdb"],
    "rocksdb": ["rocksdb"], "upgraded-3.1.4": ["state_table", "prepared_records"],
    "upgraded-4.2.0": ["prepared_records", "half_topic"],
    # these have their consume queues or their configurations in RocksDB, not their transactions
    "rocksdb-queues": ["half_topic"], "rocksdb-combined": ["half_topic"], "rocksdb-separate": ["half_topic"],
    "rocksdb-configs": ["half_topic"], "rocksdb-single": ["half_topic"],
    "empty": [],  # no broker ever got a message there
}


def shown(name: str) -> list[str]:
    """What a store must be called, by the longest name that fits; half topics where none does."""
    fitting = [prefix for prefix in SHOWN if name.startswith(prefix)]
    return SHOWN[max(fitting, key=len)] if fitting else ["half_topic"]


def framing(name: str) -> list[str]:
    """What else `stores` must say of how a store is kept, by what its broker was told."""
    conf = corpus.recipe(name)["broker_conf"]
    said = []
    is_double = conf.get("rocksdbCQDoubleWriteEnable") == "true"
    if is_double:
        said.append("file and RocksDB consume queues (5.2.0+)")
    elif conf.get("storeType") == "defaultRocksDB":
        said.append(", RocksDB consume queues (5.2.0+)")
    else:
        said.append(", file consume queues")
    if conf.get("enableDLegerCommitLog") == "true":
        said.append("DLedger commit log (4.5.0+), read only")
    if conf.get("enableControllerMode") == "true":
        said.append("a controller's replica (5.0.0+, epochFileCheckpoint), read only")
    return said


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize("name", each_store(corpus.all_names()))
def test_stores_names_the_designs_and_what_shows_them(rmqtx: Run, name: str) -> None:
    row = json.loads(rmqtx("stores", unpacked(name), "--format", "jsonl").out)
    assert row["designs"] == shown(name)
    assert len(row["designs_shown_by"]) == len(row["designs"])
    recipe = corpus.recipe(name)
    last = version(str(recipe.get("upgrade", recipe["version"])))
    for bound in row["broker_versions"].split(" and "):
        number, _, side = bound.partition(" or ")
        assert side in ("later", "earlier", "")  # nothing: this version alone
        assert side == "earlier" or version(number) <= last
        assert side == "later" or last <= version(number)
    assert f"broker {row['broker_versions']} (" in row["settings"], "what shows the versions"
    assert all(words in row["generation"] for words in framing(name)), row["generation"]


@pytest.mark.parametrize(
    "name", one_of_each_design(name for name in NAMES if name.startswith(("statetable", "prepared", "upgraded-4")))
)
def test_what_means_nothing_for_a_prepared_record_is_refused_by_one_name(rmqtx: Run, name: str, tmp_path: Path) -> None:
    pending = rmqtx("pending", unpacked(name), "--format", "jsonl").out.splitlines()
    row = next(json.loads(line) for line in pending if "prepared record" in line)
    recipe = corpus.recipe(name)
    where = ["--store", unpacked(name), "--to", f"{tmp_path}/new", "--yes",
             "--broker-version", str(recipe.get("upgrade", recipe["version"]))]
    for action in ("close", "resume"):
        for more in ([], ["--override", "still-open", "--reason", "a test"]):
            result = rmqtx(action, row["transaction_id"], *where, *more)
            assert result.status == exit_status.REFUSED_BY_GUARD
            assert "prepared-record" in result.err
            assert "Traceback" not in result.err
    result = rmqtx("rollback", row["transaction_id"], *where, "--override", "prepared-record", "--reason", "a test")
    assert result.status == exit_status.USAGE
    assert "cannot be overridden" in result.err
    assert not (tmp_path / "new").exists()
    result = rmqtx("rollback", row["transaction_id"], *where)
    assert result.status == exit_status.DONE, result.err
    shown_row = rmqtx("show", row["transaction_id"], f"{tmp_path}/new").out
    assert "ROLLED_BACK" in shown_row
    assert "ROLLBACK record" in shown_row
