"""Lines of a broker.conf that brokers do not take as written: one note each, with the value that brokers reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.store.broker_conf import conf_notes, read_broker_conf
from rmqtx.readers.store.broker_keys import INTS, KEYS, LONGS, OTHERS, SWITCHES
from rmqtx.readers.store.broker_settings import settings_of_conf
from tests.brokers import corpus

OUT = "transactionTimeOut 6000 (default of 4.3.1 or later)"


def notes(*lines: str, version: str = "5.3.3", tmp_path: Path) -> list[str]:
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    found = conf_notes(settings_of_conf(read_broker_conf(file), version))
    assert all(one.startswith("broker.conf: ") for one in found)
    return [one.removeprefix("broker.conf: ") for one in found]


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("transactionTimeOut=29*1000", f"brokers cannot parse '29*1000': in force is {OUT}"),
        ("transactionTimeOut=29000 ", f"brokers cannot parse '29000 ': in force is {OUT}"),
        ("transactionTimeOut=15000L", f"brokers cannot parse '15000L': in force is {OUT}"),
        ("transactionTimeOut=", f"brokers cannot parse '': in force is {OUT}"),
        ("transactionTimeOut=29s", f"brokers cannot parse '29s': in force is {OUT}"),
        ("transactionCheckMax=15L", "brokers cannot parse '15L': in force is transactionCheckMax 15 "
         "(default of 4.3.1 or later)"),
        ("transactionCheckMax=3000000000", "brokers cannot parse '3000000000': in force is transactionCheckMax 15 "
         "(default of 4.3.1 or later)"),
        ("transactionTimeout=29000", "brokers do not have the setting transactionTimeout, and ignore it; its name is "
         f"transactionTimeOut: in force is {OUT}"),
        ("TransactionTimeOut=29000", "brokers do not have the setting TransactionTimeOut, and ignore it; its name is "
         f"transactionTimeOut: in force is {OUT}"),
        ("transactionCheckMaxs=5", "brokers do not have the setting transactionCheckMaxs, and ignore it; its name is "
         "transactionCheckMax: in force is transactionCheckMax 15 (default of 4.3.1 or later)"),
        ("noSuchKey=1", "brokers do not have the setting noSuchKey, and ignore it"),
        ("flushDiskType=SYNC", "brokers do not have 'SYNC': in force is flushDiskType ASYNC_FLUSH (default)"),
        ("brokerRole=SLAVE ", "brokers do not have 'SLAVE ': in force is brokerRole ASYNC_MASTER (default)"),
        ("enableLmq=true ", "brokers take 'true ' as false: in force is enableLmq false"),
        ("listenPort=10911;", "brokers cannot parse '10911;': in force is the default of listenPort"),
    ],
)
def test_one_note_with_the_value_in_force(line: str, note: str, tmp_path: Path) -> None:
    assert notes(line, tmp_path=tmp_path) == [note]


@pytest.mark.parametrize(
    "line",
    ["transactionTimeOut=29000", "transactionTimeOut = 29000", "transactionTimeOut:29000", "transactionTimeOut=+29000",
     "brokerName=broker a", "enableLmq=TRUE", "brokerRole=SLAVE", "rmqAddressServerDomain=jmenv.example", "# any=1"],
)
def test_what_brokers_take_has_no_note(line: str, tmp_path: Path) -> None:
    assert notes(line, tmp_path=tmp_path) == []


def test_the_right_key_beside_a_wrong_one_is_in_force(tmp_path: Path) -> None:
    found = notes("transactionTimeout=1", "transactionTimeOut=15000", tmp_path=tmp_path)
    assert len(found) == 1
    assert found[0].endswith("in force is transactionTimeOut 15000 (broker.conf)")


def test_the_default_in_force_is_that_of_the_release(tmp_path: Path) -> None:
    (found,) = notes("transactionCheckInterval=30s", version="4.9.7", tmp_path=tmp_path)
    assert found.endswith("transactionCheckInterval 60000 (default before 5.1.1)")
    (found,) = notes("transactionCheckInterval=30s", version="5.5.0", tmp_path=tmp_path)
    assert found.endswith("transactionCheckInterval 30000 (default of 5.1.1 or later)")


def test_configurations_of_real_brokers_have_no_note() -> None:
    for name in corpus.all_names():
        recipe = corpus.recipe(name)
        assert conf_notes(settings_of_conf(recipe.get("broker_conf") or {})) == [], name


def test_each_setting_has_one_type() -> None:
    assert len(KEYS) == sum(map(len, (INTS, LONGS, SWITCHES, OTHERS)))
    assert {"transactionCheckMax", "transactionOpBatchInterval", "fileReservedTime", "listenPort"} <= INTS
    assert {"transactionTimeOut", "transactionCheckInterval"} <= LONGS


def test_fields_in_a_file_that_a_broker_wrote_are_not_reported(tmp_path: Path) -> None:
    """A broker writes all its settings after a change, with fields that it does not read again (seen on 5.3.3)."""
    written = [f"{key}=1" for key in sorted(INTS)[:120]]
    fields = ["isBrokerContainer=false", "timerCheckMetricsWhen=05", "timerStopDequeue=false"]
    assert notes(*written, *fields, tmp_path=tmp_path) == []
    assert len(notes(*written[:10], *fields, tmp_path=tmp_path)) == len(fields)
    assert notes(*written, "transactionTimeout=29000", tmp_path=tmp_path) != []
