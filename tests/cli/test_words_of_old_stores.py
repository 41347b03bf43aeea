"""What commands print about stores from before 4.3 has no word for what these brokers do not have."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge import damage
from tests.forge.stores import copy_of

#: Things of later releases.
LATER = re.compile(
    r"half message|half queue|half topic|half record|op message|op queue|op topic|op mark|\bno op\b|RMQ_SYS_TRANS|"
    r"put back|half cursor|transactionCheck|transactionTimeOut|4\.5\.1|enableLmq|LOST"
)
COMMANDS = (
    ("audit",), ("pending",), ("verify", "--full"), ("check",), ("simulate",), ("stores",), ("diagnose", "--store"),
)


def _whole(root: Path) -> None:
    assert root.is_dir()


def _zeroed(root: Path) -> None:
    (file,) = damage.log_files(root)
    place = damage.records_in(file)[20][0]
    damage.zero_bytes(file, place, 4096)


def _cut(root: Path) -> None:
    (file,) = damage.log_files(root)
    damage.truncate(file, damage.records_in(file)[30][0] + 7)


def _without_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders")


def _without_the_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def _without_tables(root: Path) -> None:
    shutil.rmtree(root / "transaction", ignore_errors=True)


def _without_cursors(root: Path) -> None:
    for file in (root / "config").glob("consumerOffset*"):
        file.unlink()


def _with_a_file_of_another_length(root: Path) -> None:
    (file,) = damage.log_files(root)
    (file.parent / f"{file.stat().st_size:020}").write_bytes(bytes(4096))


def _with_torn_properties(root: Path) -> None:
    (file,) = damage.log_files(root)
    data = file.read_bytes()
    for key in (b"PGROUP\x01", b"UNIQ_KEY\x01"):
        if (place := data.find(key)) >= 0:
            damage.zero_bytes(file, place - 2, 12)


DAMAGES = (
    _whole, _zeroed, _cut, _without_a_queue, _without_the_log, _without_tables, _without_cursors,
    _with_a_file_of_another_length, _with_torn_properties,
)


@pytest.mark.parametrize("harm", DAMAGES)
@pytest.mark.parametrize("name", ["statetable-3.1.4", "prepared-3.2.6"])
def test_no_word_of_a_later_release(rmqtx: Run, tmp_path: Path, name: str, harm: Callable[[Path], None]) -> None:
    root = copy_of(name, tmp_path / "store")
    harm(root)
    found = []
    for words in COMMANDS:
        result = rmqtx(*words, root)
        for line in f"{result.err}\n{result.out}".splitlines():
            if match := LATER.search(line):
                found.append((words[0], match.group(), line[:300]))
    assert found == []


def test_a_flag_is_explained_by_the_records_of_the_design(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("prepared-3.2.6", tmp_path / "store")
    case = next(
        row["transaction_id"] for row in corpus.expected("prepared-3.2.6") if "conflict" in row["flags_at_least"]
    )
    result = rmqtx("show", case, "--store", root)
    assert "both a COMMIT and a ROLLBACK record name it" in result.out
    assert not LATER.search(result.out + result.err)


def test_records_are_counted_by_their_own_name(rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path) -> None:
    root = corpus_store("prepared-3.2.6")
    found = rmqtx("diagnose", "--store", root)
    assert " prepared records, sent" in found.out
    assert "half cop" not in found.out
    assert rmqtx("report", root, "-o", tmp_path / "page.html").status == DONE
    page = (tmp_path / "page.html").read_text()
    assert "both a COMMIT and a ROLLBACK record name it" in page
    assert " prepared records, sent" in page
    later = rmqtx("diagnose", "--store", corpus_store("fifteen-4.9.7"))
    assert "half cop" in later.out


def test_later_designs_keep_their_words(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    result = rmqtx("audit", corpus_store("upgraded-4.2.0-4.9.7"))
    assert " half copies of " in result.err + result.out
    result = rmqtx("simulate", corpus_store("empty-4.9.7"))
    assert "half message" in result.err
