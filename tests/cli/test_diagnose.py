"""`rmqtx diagnose`: rows, statuses, one transaction, hostile text, the page of all causes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
from rmqtx.verdicts.causes.strengths import CAUSES
from tests.cli.conftest import Run
from tests.forge.damage import log_files
from tests.forge.logs import Forge
from tests.pages.list_pages import filled

PAGE = Path(__file__).resolve().parents[2] / "docs" / "causes.md"


def test_the_page_is_what_is_declared() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == filled("causes.md", text), "make man"


def test_rows_for_scripts(rmqtx: Run, common: Path) -> None:
    result = rmqtx("diagnose", common, "--format", "json")
    rows = json.loads(result.out)
    assert result.status == 0
    assert {row["cause"] for row in rows} <= set(CAUSES)
    assert set(DIAGNOSES.names) <= set(rows[0])
    counts = [row["transactions_count"] for row in rows if row["strength"] != "ruled_out"]
    assert counts == sorted(counts, reverse=True)
    assert "transactions are unusual: causes explain" in result.err
    assert "next: rmqtx explain" in result.err
    explained = rmqtx("diagnose", common, "--where", "strength = explains", "--fields", "cause", "--format", "jsonl")
    assert {json.loads(line)["cause"] for line in explained.out.splitlines()} < {row["cause"] for row in rows}


def test_the_page_has_all_strengths_of_a_cause_in_one_part(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    killed = corpus_store("killed-5.3.3")
    rows = json.loads(rmqtx("diagnose", killed, "--broker-version", "5.3.3", "--format", "json").out)
    page = rmqtx("diagnose", killed, "--broker-version", "5.3.3").out
    parts = [part.splitlines() for part in page.split("\n\n")]
    heads = {part[0].partition(":")[0]: part for part in parts if not part[0].startswith(" ")}
    assert set(heads) == {row["cause"] for row in rows if row["strength"] != "ruled_out"}
    for row in rows:
        if row["strength"] != "ruled_out":
            words = f"  {row['strength'].replace('_', ' '):<14}{row['transactions_count']} transaction"
            assert any(line.startswith(words) for line in heads[row["cause"]]), row
    assert any(len({line[:16] for line in part} & {"  explains      ", "  could explain "}) == 2 for part in parts)
    chosen = rmqtx("diagnose", killed, "--fields", "cause,strength").out
    assert chosen.splitlines()[0].split() == ["cause", "strength"]


def test_the_configuration_of_the_proxies(rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path) -> None:
    store, conf = corpus_store("proxy-5.3.3"), tmp_path / "rmq-proxy.json"

    def words(*options: object) -> set[str]:
        return {row["cause"] for row in json.loads(rmqtx("diagnose", store, *options, "--format", "json").out)}

    assert {"proxy-forgot-half", "proxy-loses-remoting-decision"} & words() == {"proxy-forgot-half"}
    conf.write_text("{}")
    assert words("--proxy-conf", conf) >= {"proxy-forgot-half", "proxy-loses-remoting-decision"}
    conf.write_text('{"transactionDataExpireMillis": 600000}')
    assert {"proxy-forgot-half", "proxy-loses-remoting-decision"} & words("--proxy-conf", conf) == {
        "proxy-loses-remoting-decision"
    }
    conf.write_text("mode=CLUSTER")
    result = rmqtx("diagnose", store, "--proxy-conf", conf)
    assert result.status == 10
    assert "rmq-proxy.json" in result.err
    assert rmqtx("diagnose", store, "--proxy-conf", tmp_path / "missing").status == 10


def test_one_transaction_has_the_causes_of_its_row(rmqtx: Run, common: Path) -> None:
    rows = json.loads(rmqtx("diagnose", common, "--format", "json").out)
    wanted = next(row for row in rows if row["cause"] == "decided-after-discard")["examples"][0]["transaction_id"]
    result = rmqtx("diagnose", common, "--transaction", wanted, "--format", "json")
    found = json.loads(result.out)
    assert "decided-after-discard" in {row["cause"] for row in found}
    assert {row["transactions_count"] for row in found} == {1}
    assert {example["transaction_id"] for row in found for example in row["examples"]} == {wanted}
    assert rmqtx("diagnose", common, "--transaction", "no-such-id").status != 0


def test_missing_evidence_is_never_status_0(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(common, store)
    for file in log_files(store):
        file.write_bytes(bytes(file.stat().st_size))
    result = rmqtx("diagnose", store)
    assert result.status == 3
    assert "log-missing" in result.err


def test_no_cause_found_is_a_line(rmqtx: Run, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    forge.half("id", immunity=1_000_000_000)
    result = rmqtx("diagnose", forge.write(), "--broker-version", "5.3.3")
    assert "1 of 1 transaction is unusual: no known cause fits 1" in result.err  # its producer asked not to be asked
    assert "no known cause found" in result.err


def test_unanswered_ones_of_a_stopped_broker_only_wait(rmqtx: Run, tmp_path: Path) -> None:
    """Only the clock makes them late: no cause is missing, and `pending` and `audit` do not name `diagnose`."""
    forge = Forge(tmp_path / "store")
    forge.half("id")
    forge.half("id2")
    store = forge.write()
    result = rmqtx("diagnose", store, "--broker-version", "5.3.3")
    assert "none of 2 transactions is unusual" in result.err
    assert "2 are pending without an answer: no broker runs on these files" in result.err
    assert "no known cause fits" not in result.err
    one = rmqtx("diagnose", store, "--transaction", "id2", "--broker-version", "5.3.3")
    assert "1 is pending without an answer: no broker runs on these files" in one.err
    for command in ("pending", "audit"):
        assert "rmqtx diagnose" not in rmqtx(command, store).err


def test_text_of_a_store_is_escaped(rmqtx: Run, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "st\x1b[31more")
    name = "id\x1b]0;title\x07"
    forge.half(name, topic="or\x1b[2Jders")
    store = forge.write()
    for form in ("table", "csv", "json"):
        for words in ([], ["--transaction", name]):
            result = rmqtx("diagnose", store, *words, "--format", form)
            assert "\x1b" not in result.out + result.err
            assert "\x07" not in result.out + result.err


@pytest.mark.parametrize("word", ["decided-twice", "could_explain"])
def test_words_are_explained(rmqtx: Run, word: str) -> None:
    result = rmqtx("explain", word)
    assert result.status == 0
    assert "docs/causes.md" in result.out


def test_show_ends_with_the_causes(rmqtx: Run, common: Path) -> None:
    rows = json.loads(rmqtx("diagnose", common, "--format", "json").out)
    wanted = next(row for row in rows if row["cause"] == "decided-after-discard")["examples"][0]["transaction_id"]
    page = rmqtx("show", wanted, "--store", common).out
    assert page.rstrip().splitlines()[-1].startswith("  explains decided-after-discard: ")
    found = json.loads(rmqtx("show", wanted, "--store", common, "--format", "json").out)
    assert [cause["cause"] for cause in found[0]["causes"]] == ["decided-after-discard"]
    assert "causes (" not in rmqtx("show", wanted, "--store", common, "--at", "2026-11-21T05:42:00Z").out


@pytest.mark.parametrize("word", CAUSES)
def test_what_to_do_names_commands_and_options_that_exist(rmqtx: Run, word: str) -> None:
    cause = CAUSES[word]
    for text in (cause.act, cause.change, cause.decides):
        for command, rest in re.findall(r"rmqtx ([a-z]+(?: set)?)([^;]*)", text):
            page = rmqtx(*command.split(), "--help").out
            assert page.startswith("Usage"), command
            for option in re.findall(r"(?<= )--?[a-z-]+", rest.partition("rmqtx ")[0]):
                assert option in page, (command, option)


def test_pending_transactions_beside_unusual_ones_are_others(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    """Of 16 pending ones two are unusual, and counted among these."""
    result = rmqtx("diagnose", corpus_store("common-5.1.4"), "--broker-version", "5.1.4")
    assert "14 others are pending without an answer" in result.err
