"""Every byte on stdout arrives, or the status is not 0: full disks, short writes, pipes that do not block."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.program import WARM
from tests.representatives import rest_is_slow
from tests.verdicts.truth import audited

FORMATS = ["csv", "jsonl", "json", "arrow", "parquet", "table"]
#: Commands with other writers on stdout, and the status of a run whose output does not arrive.
WRITERS = [
    (["audit", "STORE", "-q", "--format", "jsonl"], 10), (["verify", "STORE", "-q"], 10), (["stores", "STORE"], 10),
    (["show", "order-1", "--store", "STORE"], 16), (["--version"], 10), (["--help"], 10), (["pending", "--help"], 10),
    (["explain", "pending"], 10), (["decode", "commitlog", "STORE"], 10), (["diagnose", "STORE", "-q"], 10),
    (["check", "STORE"], 3), (["check", "STORE", "--format", "json"], 3),
]
#: With PYTHONUNBUFFERED, as in most containers, Python does not continue a short write.
WAYS = pytest.mark.parametrize("unbuffered", ["1", ""])


def environment(unbuffered: str) -> dict[str, str]:
    return os.environ | {"PYTHONUNBUFFERED": unbuffered}


def run(words: list[str], store: Path, unbuffered: str, **streams: object) -> subprocess.CompletedProcess[bytes]:
    arguments = [str(store) if word == "STORE" else word for word in words]
    return subprocess.run([*WARM, *arguments], env=environment(unbuffered), check=False, **streams)  # type: ignore[call-overload,no-any-return]


def limiting(size_bytes: int) -> Callable[[], None]:
    """Files end at this size, for the process: a write that reaches it is short, the next one fails."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


@WAYS
@pytest.mark.parametrize("form", rest_is_slow(FORMATS, quick=1))
def test_a_file_that_takes_a_part_is_10(common: Path, tmp_path: Path, form: str, unbuffered: str) -> None:
    words, whole, cut = ["audit", "STORE", "-q", "--format", form], tmp_path / "whole", tmp_path / "cut"
    assert run([*words, "-o", str(whole)], common, unbuffered).returncode == 0
    with cut.open("wb") as stream:
        half = limiting(whole.stat().st_size // 2)
        done = run(words, common, unbuffered, stdout=stream, stderr=subprocess.PIPE, preexec_fn=half)
    assert (done.returncode, done.stderr) == (10, b"rmqtx: File too large: the output\n")
    assert run(words, common, unbuffered, stdout=subprocess.DEVNULL).returncode == 0


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "full"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=False,
                      capture_output=True).returncode:
        pytest.skip("this user cannot mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


@WAYS
def test_a_disk_that_becomes_full_is_10(common: Path, full_disk: Path, unbuffered: str) -> None:
    with (full_disk / "rows").open("wb") as stream:
        done = run(["audit", "STORE", "-q", "--format", "jsonl"], common, unbuffered, stdout=stream,
                   stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (10, b"rmqtx: No space left on device: the output\n")


def test_an_act_whose_receipt_cannot_be_printed_is_still_named(common: Path, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (identity,) = [row["transaction_id"] for row in audited("common-5.3.3") if "pending.0" in (row["keys"] or "")]
    words = ["commit", identity, "--store", "STORE", "--to", str(tmp_path / "new"), "--reason", "test", "--yes",
             "--broker-version", "5.3.3"]
    with open("/dev/full", "wb") as full:
        done = run(words, common, "", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 10
    assert f"{tmp_path / 'new'} is the changed store".encode() in done.stderr
    assert b"receipts are in " in done.stderr
    assert b"No space left on device: the output" in done.stderr


@WAYS
@pytest.mark.parametrize(("words", "status"), rest_is_slow(WRITERS, quick=3))
def test_each_writer_reports_a_full_disk(common: Path, words: list[str], status: int, unbuffered: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = run(words, common, unbuffered, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    if status != 16:
        assert done.stderr.splitlines()[-1] == b"rmqtx: No space left on device: the output"


@WAYS
def test_a_pipe_that_does_not_block_gets_everything(common: Path, tmp_path: Path, unbuffered: str) -> None:
    words = ["audit", "STORE", "-q", "--format", "jsonl"]
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    arguments = [str(common) if word == "STORE" else word for word in words]
    process = subprocess.Popen([*WARM, *arguments], stdout=writer, env=environment(unbuffered))
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        found = stream.read()
    assert process.wait() == 0
    run([*words, "-o", str(tmp_path / "whole")], common, unbuffered)
    assert found == (tmp_path / "whole").read_bytes()


def closing(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for number in descriptors:
            os.close(number)

    return close


@WAYS
@pytest.mark.parametrize(("words", "status"), rest_is_slow(WRITERS, quick=3))
def test_without_stdout_there_is_one_line(common: Path, words: list[str], status: int, unbuffered: str) -> None:
    done = run(words, common, unbuffered, stderr=subprocess.PIPE, preexec_fn=closing(1))
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    if status != 16:
        assert done.stderr.splitlines()[-1] == b"rmqtx: cannot write the results: standard output is closed"


def test_without_stdout_a_file_is_written(common: Path, tmp_path: Path) -> None:
    words = ["pending", "STORE", "-q", "-o", str(tmp_path / "rows.csv")]
    assert run(words, common, "", preexec_fn=closing(1)).returncode == 0
    assert (tmp_path / "rows.csv").stat().st_size


@WAYS
def test_without_stderr_and_stdin_the_rows_are_written(common: Path, unbuffered: str) -> None:
    words = ["pending", "STORE"]
    whole = run(words, common, unbuffered, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    bare = run(words, common, unbuffered, stdout=subprocess.PIPE, preexec_fn=closing(0, 2))
    assert bare.stdout.count(b"\n") == whole.stdout.count(b"\n") > 1
    assert bare.returncode == whole.returncode == 0
    assert run(words, common, unbuffered, preexec_fn=closing(0, 1, 2)).returncode == 10


def test_a_closed_stdin_is_an_empty_one(common: Path, tmp_path: Path) -> None:
    pending = run(["pending", "STORE", "--format", "csv", "--fields", "id", "-q"], common, "", stdout=subprocess.PIPE)
    number = pending.stdout.split()[1].decode()
    words = ["commit", number, "--store", "STORE", "--to", str(tmp_path / "new"),
             "--broker-version", "5.3.3", "--reason", "x"]
    closed = run(words, common, "", stderr=subprocess.PIPE, preexec_fn=closing(0))
    empty = run(words, common, "", stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert (closed.returncode, closed.stderr.splitlines()[-1]) == (empty.returncode, empty.stderr.splitlines()[-1])
    assert closed.returncode == 2, closed.stderr.decode()


def test_files_opened_later_do_not_become_a_closed_stream() -> None:
    code = (
        "import os; from rmqtx_cli.output.streams import own_standard_streams; own_standard_streams(); "
        "file = os.open('/dev/zero', os.O_RDONLY); raise SystemExit(0 if file > 2 else 1)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, preexec_fn=closing(0, 1, 2))
    assert done.returncode == 0
