"""Advice names only what works on the store at hand."""

from __future__ import annotations

from pathlib import Path

from rmqtx_cli.pages.usable_repairs import usable_advice
from tests.brokers import corpus
from tests.cli.conftest import Run

_ADVICE = "do not start the broker: rmqtx rebuild queues writes the queues again"


def test_a_dledger_log_gets_no_advice_to_rebuild_or_salvage(rmqtx: Run, tmp_path: Path) -> None:
    root = corpus.unpack("dledger-killed-5.1.4", tmp_path)
    for command in ("verify", "pending"):
        lines = [one for one in rmqtx(command, str(root)).err.splitlines() if "advice: " in one or "next: " in one]
        assert command == "pending" or any("DLedger group" in one for one in lines)
        assert not [one for one in lines if "rebuild queues" in one or "rmqtx salvage" in one]


def test_only_a_store_that_refuses_changes_the_advice(tmp_path: Path) -> None:
    dledger = str(corpus.unpack("dledger-killed-5.1.4", tmp_path / "a"))
    plain = str(corpus.unpack("common-5.3.3", tmp_path / "b"))
    assert usable_advice(_ADVICE, [plain]) == usable_advice(_ADVICE, [dledger, plain]) == _ADVICE
    assert usable_advice(_ADVICE, [dledger]).startswith("do not start the broker; start this member")


def test_a_given_length_that_fits_no_file_is_to_be_corrected(rmqtx: Run, tmp_path: Path) -> None:
    root = corpus.unpack("common-5.3.3", tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=123456\n")
    result = rmqtx("verify", str(root), "--broker-conf", str(conf))
    assert "advice: correct mappedFileSizeCommitLog in the configuration" in result.err


def test_an_empty_abort_may_be_of_rmqtx(rmqtx: Run, tmp_path: Path) -> None:
    root = corpus.unpack("common-4.9.7", tmp_path / "store")
    (root / "abort").write_bytes(b"")
    assert "abort exists: rmqtx changed this copy after a clean stop, or" in rmqtx("stores", str(root)).out
