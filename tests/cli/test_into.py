"""`rmqtx table STORE --into TABLE`: what it prints, what it refuses, its exit statuses, and the jobs of deploy/."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

from rmqtx.verdicts.growing.tables import table_name
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.spark.growing import Growing
from tests.verdicts.growing.grown import table_rows

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_a_table_that_grows(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    growing, table = Growing(common, tmp_path / "copy"), tmp_path / "verdicts"
    growing.write_to((growing.begin + growing.end) // 2)
    first = rmqtx("table", growing.root, "--into", table)
    assert (first.status, first.out) == (3, "")  # queues that point behind the end of the log
    growing.write_to(growing.end)
    second = rmqtx("table", growing.root, "--into", table)
    assert (second.status, second.out) == (0, "")
    assert re.search(r"verdicts: \S+ KiB read; \d+ new, \d+ changed; now 109 transactions, 57 COMMITTED", second.err)
    third = rmqtx("table", growing.root, "--into", table)
    assert "0 B read; 0 new, 0 changed" in third.err
    rows = table_rows(table_name(str(table))).to_pylist()
    wanted = json.loads(rmqtx("audit", growing.root, "--format", "json").out)
    current = {row["transaction_id"]: row["state"] for row in rows if row["valid_to"] is None}
    assert current == {row["transaction_id"]: row["state"] for row in wanted}
    assert len(rows) > len(current)


def test_a_log_that_was_cut_back_is_10_and_names_the_checkpoint(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    growing, table = Growing(common, tmp_path / "copy"), tmp_path / "verdicts"
    growing.write_to(100_000)
    rmqtx("table", growing.root, "--into", table)
    growing.write_to(50_000)
    result = rmqtx("table", growing.root, "--into", table)
    assert result.status == 10
    assert f"remove {table}/_rmqtx/checkpoint.sqlite" in result.err.splitlines()[-1]
    (table / "_rmqtx" / "checkpoint.sqlite").unlink()
    assert "now " in rmqtx("table", growing.root, "--into", table).err


def test_the_old_spelling_names_the_command(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    for words in (("--into", tmp_path / "verdicts"), (f"--into={tmp_path / 'verdicts'}", "--where", "state = PENDING")):
        result = rmqtx("audit", common, *words)
        assert (result.status, result.out) == (2, "")
        assert result.err == (
            "rmqtx: No such option: --into - use rmqtx table STORE --into TABLE\n"
        )
        assert not (tmp_path / "verdicts").exists()


def test_what_is_missing_is_one_line(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    result = rmqtx("table", common, "--into", "iceberg:prod.audits.verdicts")
    assert (result.status, result.out) == (2, "")
    assert "add --checkpoint FILE, on a disk that the next run has too" in result.err
    assert "Missing option '--into'" in rmqtx("table", common, "--checkpoint", tmp_path / "c").err
    result = rmqtx("table", common, "--into", common / "commitlog" / "verdicts")
    assert (result.status, "lies inside the store" in result.err) == (2, True)
    hidden = [sys.executable, "-c", "import sys; sys.modules['deltalake'] = sys.modules['pyiceberg.catalog'] = None; "
              "from rmqtx_cli.main import run; run()"]
    for name, advice in (("delta", "pip install 'rmqtx[delta]'"), ("iceberg", "pip install 'rmqtx[iceberg]'")):
        place = f"delta:{tmp_path}/table" if name == "delta" else "iceberg:prod.audits.verdicts"
        command = [*hidden, "table", str(common), "--into", place, "--checkpoint", str(tmp_path / "c"), "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, advice in done.stderr, len(done.stderr.splitlines())) == (10, True, 1), done.stderr


def airflow_command(stores: Path, table: Path, checkpoint: Path) -> str:
    """The shell command of the DAG, with these names for those that its user changes."""
    text = (DEPLOY / "airflow" / "rmqtx_verdicts.py").read_text("utf-8")
    assigned = {
        target.id: node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }
    names = {"STORES": str(stores), "TABLE": str(table), "CHECKPOINT": str(checkpoint)}
    command = eval(compile(ast.Expression(assigned["COMMAND"]), "COMMAND", "eval"), names)
    return f'rmqtx() {{ {" ".join(WARM)} "$@"; }}\n{command}'


def test_the_job_of_airflow(common: Path, tmp_path: Path) -> None:
    growing = Growing(common, tmp_path / "copy")
    growing.write_to(100_000)  # queues point behind the end of the log: status 3
    command = airflow_command(growing.root, tmp_path / "v", tmp_path / "c")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "evidence is missing or damaged" in done.stderr
    assert table_rows(table_name(str(tmp_path / "v"))).num_rows > 0
    growing.write_to(50_000)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 10
