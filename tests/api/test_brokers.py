"""Live brokers by the programming interface, and the page with its scripts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqtx
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from tests.forge.stores import unpacked
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
_PAID = 2


@pytest.fixture
def address() -> Iterator[str]:
    """A broker that answers with the records of a store."""
    store = open_store(unpacked("common-5.3.3"))
    with FakeServer(StoreBroker(store, broker_settings(store), "5.3.3")) as server:
        yield server.address


def test_a_live_broker_gives_the_transactions_of_its_files(address: str) -> None:
    files = {one.transaction_id: one.state for one in rmqtx.open(unpacked("common-5.3.3")).audit()}
    with rmqtx.connect(broker=[address]) as brokers:
        pending = brokers.pending()
        found = {one.transaction_id: one.state for one in pending}
        assert found
        assert all(files[name] == state for name, state in found.items())
        assert pending.to_arrow().num_rows == len(found)
        (shown,) = brokers.show(next(iter(found)))
        assert shown.transaction_id in found
        assert [one.transaction_id for one in brokers.lookup([shown.transaction_id])] == [shown.transaction_id]
        assert {one.transaction_id for one in brokers.halves()} >= {*found}
        assert list(brokers.ops())


def test_nothing_that_listens_is_one_error(address: str) -> None:
    with pytest.raises(rmqtx.BadRequest):
        rmqtx.connect()
    with pytest.raises(rmqtx.Unreachable) as gone:
        rmqtx.connect(broker=["127.0.0.1:1"])
    assert "127.0.0.1:1" in str(gone.value)


def test_the_script_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(unpacked("common-5.3.3"), tmp_path / "store")
    waiting = [one for one in rmqtx.open(tmp_path / "store").pending() if one.state == rmqtx.State.PENDING]
    rows = [f"{(one.keys or '').split(' ')[0]},{'PAID' if n < _PAID else 'OPEN'}" for n, one in enumerate(waiting)]
    (tmp_path / "ledger.csv").write_text("order_id,status\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    script = PAGE.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    exec(compile(script, str(PAGE), "exec"), {})
    printed = capfd.readouterr().out.splitlines()
    assert len([line for line in printed if " PENDING " in line]) == len(waiting)
    assert printed[-1] == str(sorted((one.transaction_id,) for one in waiting[:_PAID]))


def test_the_page_names_what_there_is() -> None:
    page = PAGE.read_text("utf-8")
    methods = {name for kind in (rmqtx.Stores, rmqtx.Brokers) for name in vars(kind) if not name.startswith("_")}
    assert [name for name in sorted(methods - {"close"}) if f".{name}(" not in page] == []


def test_causes_of_a_live_broker_are_those_of_its_files(address: str) -> None:
    files = {(one.cause, one.strength) for one in rmqtx.open(unpacked("common-5.3.3")).diagnose()}
    with rmqtx.connect(broker=[address]) as brokers:
        causes = brokers.diagnose()
        found = {(one.cause, one.strength) for one in causes}
        assert found & files
        assert causes.is_complete


def test_what_only_files_answer_is_one_error_with_the_call_for_them(address: str) -> None:
    with rmqtx.connect(broker=[address]) as brokers:
        for name in sorted({"records", "trace", "verify", "simulate", "tables"}):
            with pytest.raises(rmqtx.BadRequest) as only:
                getattr(brokers, name)()
            assert f"rmqtx.open(STORE).{name}()" in str(only.value.advice)
    names = {name for name in vars(rmqtx.Stores) if not name.startswith("_")}
    assert names == {name for name in vars(rmqtx.Brokers) if not name.startswith("_")} - {"close"}
