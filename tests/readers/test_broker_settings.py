"""What a store shows of its broker's version is never wrong; defaults are the broker's; Java's properties are read."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest, BadText, UnreadableFile
from rmqtx.readers.model.releases import parse_version
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS
from rmqtx.readers.store.store import open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened
from tests.representatives import each_store


def of_version(tmp_path: Path, version: str, **conf: str) -> BrokerSettings:
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    return broker_settings(open_store(tmp_path), conf=conf, version=version)


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_the_version_that_a_real_store_shows_includes_its_brokers(name: str) -> None:
    true = parse_version(str(corpus.recipe(name)["version"]))
    found = broker_settings(opened(name))
    assert found.version_low is not None or "once" in found.origin
    assert found.version_low is None or found.version_low <= true
    assert found.version_high is None or true <= found.version_high
    assert found.batches_ops in (None, true >= (5, 1, 0))
    assert found.writes_discard_copy in (None, true >= (4, 5, 2))
    assert found.origin["once" if "once" in found.origin else "version_low"] in found.describe()


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("common-4.3.0", (4, 3, 0), (4, 3, 0)),
        ("common-4.4.0", (4, 3, 1), (4, 9, 8)),
        ("common-4.9.7", (4, 7, 1), (4, 9, 8)),
        ("common-5.1.4", (5, 1, 0), None),
        ("common-5.3.3", (5, 2, 0), None),
        ("common-5.5.0", (5, 4, 0), None),
    ],
)
def test_how_close_a_store_comes_to_its_version(
    name: str, low: tuple[int, int, int], high: tuple[int, int, int] | None
) -> None:
    found = broker_settings(opened(name))
    assert (found.version_low, found.version_high) == (low, high)


@pytest.mark.parametrize(
    ("version", "time_out", "checks", "interval", "batch", "copies"),
    [
        ("4.3.0", 3_000, 5, 60_000, 0, False),
        ("4.3.1", 6_000, 15, 60_000, 0, False),
        ("4.5.1", 6_000, 15, 60_000, 0, False),
        ("4.5.2", 6_000, 15, 60_000, 0, True),
        ("5.0.0", 6_000, 15, 60_000, 0, True),
        ("5.1.0", 6_000, 15, 60_000, 3_000, True),
        ("5.1.1", 6_000, 15, 30_000, 3_000, True),
        ("5.5.0", 6_000, 15, 30_000, 3_000, True),
    ],
)
def test_defaults_are_those_of_the_version(
    tmp_path: Path, version: str, time_out: int, checks: int, interval: int, batch: int, copies: bool
) -> None:
    found = of_version(tmp_path, version)
    assert found.transaction_time_out_ms == time_out
    assert found.transaction_check_max == checks
    assert found.transaction_check_interval_ms == interval
    assert found.transaction_op_batch_interval_ms == batch
    assert found.batches_ops == (batch > 0)
    assert found.writes_discard_copy == copies
    assert (found.file_reserved_time_hours, found.broker_role) == (72, "ASYNC_MASTER")
    assert not found.check_max_is_configured


def test_what_is_given_is_taken_and_said(tmp_path: Path) -> None:
    found = of_version(tmp_path, "5.3.3", transactionCheckMax="7", transactionTimeOut="+9000", brokerRole="SLAVE")
    assert (found.transaction_check_max, found.transaction_time_out_ms, found.broker_role) == (7, 9_000, "SLAVE")
    assert found.check_max_is_configured
    assert "broker.conf: transactionTimeOut 9000, transactionCheckMax 7" in found.describe()
    assert "broker 5.3.3 (given)" in found.describe()
    assert set(found.origin) >= {"broker_role", "max_hash_slots", "writes_discard_copy"}


@pytest.mark.parametrize("value", ["", "7 ", "0x7", "7L", "2147483648", "seven", "٧"])
def test_a_value_that_no_broker_reads_leaves_the_default(tmp_path: Path, value: str) -> None:
    found = of_version(tmp_path, "5.3.3", transactionCheckMax=value)
    assert found.transaction_check_max == 15
    assert not found.check_max_is_configured
    assert repr(value) in found.describe()


def test_a_store_that_shows_nothing_is_assumed_to_be_of_today(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    found = broker_settings(open_store(tmp_path))
    assert (found.version_low, found.version_high) == (None, None)
    assert (found.writes_discard_copy, found.batches_ops) == (None, None)
    assert found.transaction_check_max == 15
    assert "assumed, default of 4.3.1 or later (5 before)" in found.describe()
    assert "unknown version" in found.describe()


def test_records_add_to_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    store = open_store(tmp_path)
    assert broker_settings(store, has_op_lists=True).version_low == (5, 1, 0)
    single = broker_settings(store, has_op_lists=False)
    assert (single.version_high, single.transaction_op_batch_interval_ms) == ((5, 0, 0), 0)
    # what an older broker left behind says nothing about the one that came after it
    assert broker_settings(opened("common-5.3.3"), has_op_lists=False).version_high is None


@pytest.mark.parametrize(("field", "low"), [("confirm_offset", (5, 1, 1)), ("logics_offset", (5, 5, 0))])
def test_late_fields_of_the_checkpoint_show_the_version(
    tmp_path: Path, field: str, low: tuple[int, int, int]
) -> None:
    (tmp_path / "checkpoint").write_bytes(CHECKPOINT_FIELDS.pack(**{field: 1}).ljust(4096, b"\0"))
    assert broker_settings(open_store(tmp_path)).version_low == low


def test_an_abort_marker_shows_which_kind_of_broker_ran(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "abort").touch()
    assert broker_settings(open_store(tmp_path)).version_high == (4, 9, 8)
    (tmp_path / "abort").write_text("4711")
    assert broker_settings(open_store(tmp_path)).version_low == (5, 0, 0)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("5.1.4", (5, 1, 4)), ("V5_1_4", (5, 1, 4)), ("V4_2_0_SNAPSHOT", (4, 2, 0)), ("4.9.7-SNAPSHOT", (4, 9, 7)),
        (" 5.3 ", (5, 3, 0)),
    ],
)
def test_versions_as_people_write_them(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "five", "5", "5.x", "1234.1.1", "-5.1.1", "5.1.12345"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_version(text)


# ---- broker.conf


def conf(tmp_path: Path, data: bytes | str) -> dict[str, str]:
    path = tmp_path / "broker.conf"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_broker_conf(path)


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    text = (
        "# a comment = no\n  ! nor this\r\n\n"
        "plain=1\rspaced  =  two words \ncolon:3\nblank 4\n"
        "long = a\\\n   b\\\\\nnext=c\n"
        "esc\\=aped\\ key = \\u00e9\\t\\q\n"
        "empty=\nalone\nlistenPort=1\nlast=x\\"
    )
    assert conf(tmp_path, text) == {
        "plain": "1", "spaced": "two words ", "colon": "3", "blank": "4", "long": "ab\\", "next": "c",
        "esc=aped key": "é\tq", "empty": "", "alone": "", "listenPort": "1",
        "last": "x",
    }


def test_what_mqadmin_prints_is_read(tmp_path: Path) -> None:
    settings = f"{'transactionCheckMax':<50}=  15\n{'brokerRole':<50}=  SLAVE\n"
    lines = f"============127.0.0.1:10911============\n{settings}"
    assert conf(tmp_path, lines) == {"transactionCheckMax": "15", "brokerRole": "SLAVE"}


@pytest.mark.parametrize("name", corpus.corpus_names()[:3])
def test_the_configuration_of_a_real_store_is_read(tmp_path: Path, name: str) -> None:
    found = broker_settings(opened(name), conf=conf(tmp_path, corpus.broker_conf(name)))
    assert found.check_max_is_configured
    assert (found.max_hash_slots, found.max_index_entries) == (1000, 4000)


def test_what_is_no_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadText):
        conf(tmp_path, b"a=1\n\0\0")
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UnreadableFile):
            read_broker_conf(path)
    assert conf(tmp_path, b"a=\xe9") == {"a": "é"}


@pytest.mark.parametrize("seed", range(100))
def test_noise_never_raises_anything_else(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    noise = bytes(chance.choices(b"=: \\\n\r\t#!au0041\xc3\xa9\xff", k=chance.randrange(200)))
    with suppress(BadText):  # brokers have none of its settings
        for key, value in conf(tmp_path, noise).items():
            assert isinstance(key + value, str)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_configurations_of_a_store_never_raise(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = copy_of("common-5.3.3", tmp_path)
    for path in [*(root / "config").iterdir(), root / "checkpoint"]:
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(6) if data else 0):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
    assert broker_settings(open_store(root)).describe()


def test_another_file_is_no_configuration(tmp_path: Path) -> None:
    users = b"root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:\nbin:x:2:2:bin:/bin:\n"
    with pytest.raises(BadText, match="brokers have none of its 3 settings"):
        conf(tmp_path, users)
    assert len(conf(tmp_path, users + b"BROKERROLE=SLAVE\n")) == 4
