"""A folder of verdicts whose writer was killed: the next run begins again; one whose writer runs is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest
from rmqtx.verdicts.export.verdict_folder import verdict_folder
from tests.cli.conftest import Run
from tests.cli.conftest import rmqtx as rmqtx
from tests.forge.stores import unpacked

PROGRAM = """
import sys, time
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.verdicts.export.verdict_folder import verdict_folder
folder = verdict_folder(sys.argv[1])
with folder.begun():
    written = [folder.write(0, TRANSACTIONS.empty_table())]
    if sys.argv[2] == "finishing":
        import rmqtx.verdicts.export.verdict_folder as module
        write = module._write_json
        def stop(system, path, value):
            if path.endswith("_SUCCESS"):
                print("here", flush=True)
                time.sleep(600)
            write(system, path, value)
        module._write_json = stop
        from rmqtx.readers.model.tables import ALL_TABLES, findings_table
        folder.finish(written, findings_table([]), ALL_TABLES["coverage"].empty_table(), {})
    print("here", flush=True)
    time.sleep(600)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="owners are found in /proc")


@pytest.mark.parametrize("moment", ["writing", "finishing"])
def test_what_a_killed_writer_left_is_removed(rmqtx: Run, tmp_path: Path, moment: str) -> None:
    place = tmp_path / "verdicts"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, place, moment], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        with pytest.raises(BadRequest, match="not finished"), verdict_folder(place).begun():
            pass
        os.kill(process.pid, signal.SIGKILL)
    assert (place / "_unfinished").exists()
    assert not (place / "_SUCCESS").exists()
    (place / "notes.txt").touch()
    with pytest.raises(BadRequest, match=r"holds notes\.txt"), verdict_folder(place).begun():
        pass
    (place / "notes.txt").unlink()
    done = rmqtx("audit", unpacked("common-5.3.3"), "-o", f"{place}/")
    assert done.status == 0, done.err
    assert sorted(path.name for path in place.iterdir()) == [
        "_SUCCESS", "coverage.parquet", "findings.parquet", "provenance.json", "transactions",
    ]
