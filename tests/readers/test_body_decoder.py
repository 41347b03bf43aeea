"""Bodies through a filter: one process, in order, in time; a filter that fails loses no body."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmqtx.readers.jobs.body_decoder import BodyDecoder

UPPER = """
import base64, os, sys
for line in sys.stdin:
    print(os.getpid(), base64.b64decode(line).decode("latin-1").upper())
"""


def filter_of(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_one_process_answers_all_in_order() -> None:
    bodies = [f"body {number}".encode() * (number % 50) for number in range(3_000)]
    with BodyDecoder(filter_of(UPPER)) as decoder:
        found = decoder.decoded(bodies[:2_000]) + decoder.decoded([None]) + decoder.decoded(bodies[2_000:])
    texts = [one for one in found if one is not None]
    assert len({one.split(" ")[0] for one in texts}) == 1
    assert [one.partition(" ")[2] for one in texts] == [body.decode().upper() for body in bodies]
    assert found[2_000] is None
    assert (decoder.decoded_count, decoder.undecoded_count, decoder.note()) == (3_000, 0, None)


def test_large_bodies_do_not_block() -> None:
    big = b"x" * (3 << 20)
    with BodyDecoder(filter_of(UPPER)) as decoder:
        found = decoder.decoded([big, big, b"", big])
    assert [len(one or "") > 3 << 20 for one in found] == [True, True, False, True]


@pytest.mark.parametrize(
    ("text", "wanted", "why"),
    [
        ("import sys; sys.stdin.readline(); print('one'); sys.exit(3)", ["one", None, None],
         "it ended with status 3 before its last answer"),
        ("import time; time.sleep(60)", [None] * 3, "no answer within 3 s (does it write each line at once?)"),
        ("import sys\nfor line in sys.stdin: print('a'); print('b')", None, "it printed more lines"),
        ("import sys; sys.stderr.write('no \\x1b[31mcodec'); sys.exit(1)", [None] * 3, ": no \x1b[31mcodec"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", [None] * 3, "it ended with signal 15"),
        ("import sys\nsys.stdin.readline()\nwhile True: sys.stdout.write('x' * 65536)", [None] * 3,
         "longer than 16 MiB"),
        ("import sys\nfor line in sys.stdin: print()", [None] * 3, "for the others it printed an empty line"),
        ("import sys\nfor line in sys.stdin: print('a')\nsys.exit(4)", ["a"] * 3, "it ended with status 4"),
        ("import sys, time\nfor line in sys.stdin: print('a')\ntime.sleep(60)", ["a"] * 3, "did not end within"),
    ],
)
def test_a_failure_is_a_note_and_loses_no_body(text: str, wanted: list[str | None] | None, why: str) -> None:
    with BodyDecoder(filter_of(text), seconds_max=3 if "sleep" in text else 20) as decoder:
        found = decoder.decoded([b"1", b"2", b"3"])
        assert len(found) == 3
        assert wanted is None or found == wanted  # None: how many lines are seen in time depends on the machine
        if decoder.failure is not None:
            assert decoder.decoded([b"4"]) == [None]
    note = decoder.note()
    assert note is not None
    assert why in note, note


def test_a_filter_that_does_not_exist(tmp_path: Path) -> None:
    with BodyDecoder([str(tmp_path / "none")]) as decoder:
        assert decoder.decoded([b"1"]) == [None]
    assert decoder.note() == (
        f"--body-decoder failed: cannot run {tmp_path}/none: No such file or directory; 0 of 1 bodies decoded"
    )


def test_bytes_that_are_not_text_and_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQTX_SECRET_KEY", "hunter2")
    text = "import os, sys\nfor line in sys.stdin: sys.stdout.buffer.write(b'\\xff' + repr(os.environ.get("
    with BodyDecoder(filter_of(f"{text}'RMQTX_SECRET_KEY')).encode() + b'\\n'); sys.stdout.flush()")) as decoder:
        assert decoder.decoded([b"1"]) == ["\\xffNone"]
