"""docs/forcing.md counts the tests of `make test-forcing` by version and file, and keeps what was not played again."""

from __future__ import annotations

from pathlib import Path

from tests.brokers.forcing import played, report

FAULTS, SLOW = "tests/brokers/forcing/test_faults.py::", "tests/brokers/forcing/test_guards_slow.py::"


def test_tests_are_counted_by_version_and_file(tmp_path: Path) -> None:
    ended = {
        "passed": [
            SLOW + "test_rocksdb_transactions",
            *(FAULTS + test for test in ("test_broker_down[4.9.7]", "test_cut[5.1.4-cut]", "test_hang[5.1.4]")),
        ],
        "failed": [SLOW + "test_slave[5.1.4]"],
        "skipped": [SLOW + "test_resume_unanswered", SLOW + "test_resume_compressed[5.5.0]"],
    }
    played.write(ended, tmp_path)
    page = tmp_path / "page.md"
    report.write(tmp_path, page)
    rows = [line for line in page.read_text().splitlines() if line.startswith(("| 4", "| 5"))]
    assert [row.split(" | ")[:6] for row in rows] == [
        ["| 4.9.7", "faults", "1", "0", "0", "0"],
        ["| 5.1.4", "faults", "2", "0", "0", "0"],
        ["| 5.1.4", "guards_slow", "0", "1", "0", "0"],
        ["| 5.5.0", "guards_slow", "1", "0", "0", "1"],
    ]


def test_what_is_played_again_takes_the_place_of_what_was_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for outcome in ("failed", "passed"):
        played.write({outcome: [FAULTS + "test_broker_down[4.9.7]"]}, tmp_path)
        report.write(tmp_path, page)
    assert "| 4.9.7 | faults | 1 | 0 | 0 | 0 |" in page.read_text()
