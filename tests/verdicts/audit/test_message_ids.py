"""An offset message id is that of a record only if address and offset are the record's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import NoSuchTransaction
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups as live
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import Scan, show
from rmqtx.verdicts.audit.message_ids import other_id_words, stores_of_message_id
from tests.cli.conftest import Run
from tests.cli.conftest import journal_directory as journal_directory
from tests.cli.conftest import rmqtx as rmqtx
from tests.field import field_stores
from tests.forge.logs import Forge
from tests.forge.stores import copy_of
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker

FOREIGN, OWN = "0A00000100002A9F0000000000000C1F", "7F0000010000B3570000000000000C1F"
HALF = "8B5DC344512906E32F076157A01F7C22"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return field_stores("foreign-message-id", tmp_path) / "store"


def shown(stores: list[Store], identity: str, *, scan: bool = False) -> list[str]:
    found = show(stores, broker_settings, identity, scan=Scan.asked(None, scan=scan)).table()
    ids: list[str] = found["transaction_id"].to_pylist()
    return ids


@pytest.mark.parametrize("scan", [False, True])
def test_the_id_of_another_broker_is_not_found_and_the_own_one_is_named(root: Path, scan: bool) -> None:
    store = open_store(root)
    for identity, own in ((FOREIGN, OWN), (FOREIGN[:16] + "0" * 16, OWN[:16] + "0" * 16), (FOREIGN.lower(), OWN)):
        with pytest.raises(NoSuchTransaction, match=f"has the id {own}: this id names another broker"):
            shown([store], identity, scan=scan)
    assert shown([store], OWN, scan=scan) == shown([store], OWN.lower(), scan=scan) == [HALF]


@pytest.mark.parametrize("action", ["commit", "rollback", "discard", "resume", "close"])
def test_no_act_takes_it(rmqtx: Run, root: Path, tmp_path: Path, action: str) -> None:
    how = ("--to", tmp_path / "new", "--broker-version", "5.3.3", "--reason", "x", "--yes")
    result = rmqtx(action, FOREIGN, "--store", root, *how)
    assert result.status == 16
    assert OWN in result.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["show", "plan", "search", "bundle"])
def test_no_command_takes_it(rmqtx: Run, root: Path, tmp_path: Path, command: str) -> None:
    arguments = {
        "show": ["show", FOREIGN, "--store", root],
        "plan": ["plan", "commit", FOREIGN, "--store", root, "--reason", "x", "-o", tmp_path / "plan.json"],
        "search": ["search", "--id", FOREIGN, root],
        "bundle": ["bundle", root, "--transaction", FOREIGN, "--to", tmp_path / "bundle"],
    }[command]
    result = rmqtx(*arguments)
    assert (result.status, result.out) == ((0 if command == "search" else 16), ""), result.err
    assert not (tmp_path / "plan.json").exists()


def test_of_several_stores_only_that_with_the_address_is_meant(root: Path, tmp_path: Path) -> None:
    """Each has a half message at offset 0; the records of the forged one have another store host."""
    other = Forge(tmp_path / "other")
    other.half("OTHER")
    stores = [open_store(root), open_store(other.write())]
    first = OWN[:16] + "0" * 16
    assert stores_of_message_id(stores, first) == {str(root)}
    assert shown(stores, first) == ["ED75EC5A2D0828B83810514B575C2F3C"]
    assert str(tmp_path / "other") in other_id_words(stores, first)


def test_a_key_that_looks_like_an_id_is_a_key(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    forge.half(FOREIGN)
    store = open_store(forge.write())
    assert shown([store], FOREIGN) == [FOREIGN]


def test_a_live_broker_is_not_asked_to_take_it(root: Path) -> None:
    store = open_store(root)
    with FakeServer(StoreBroker(store, broker_settings(store), "5.3.3")) as server, Client() as client:
        broker = Broker(client, server.address, "b", "c")
        with pytest.raises(NoSuchTransaction, match=OWN):
            live.show([broker], FOREIGN)
        assert live.show([broker], OWN.lower()).table()["transaction_id"].to_pylist() == [HALF]


@pytest.mark.parametrize("name", ["prepared-3.2.6", "statetable-3.1.4", "ipv6-5.1.4", "dledger-4.9.7"])
def test_ids_of_other_designs(name: str, tmp_path: Path) -> None:
    """Of 3.x, with IPv6 addresses, and in a DLedger log."""
    store = open_store(copy_of(name, tmp_path))
    rows = audit([store], broker_settings).table().to_pylist()
    row = next(row for row in rows if row["half_copies"])
    place = row["half_copies"][0]["commit_log_offset"]
    ids = [
        block.message_ids().to_pylist()[number]
        for split in plan_splits([store]) for block in split.scan()
        for number in (block.commit_log_offsets == place).nonzero()[0].tolist()
    ]
    assert shown([store], ids[0]) == [row["transaction_id"]]
    address = ids[0][:-16]
    strange = f"{(int(address, 16) ^ 1 << 40):0{len(address)}X}{ids[0][-16:]}"
    with pytest.raises(NoSuchTransaction, match=ids[0]):
        shown([store], strange)
