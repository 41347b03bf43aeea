"""What can go wrong with an object store is one clear line or a finding; never fewer rows without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from rmqtx.readers.model.errors import BadRequest, FileChanged, NotAStore, UnreadableFile
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.storage.places import normalised
from rmqtx.readers.storage.segments import open_file
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.stores import settings_of
from tests.s3.conftest import Copied, Run
from tests.s3.server import SECRET, S3Server


def one_line(err: str) -> str:
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("rmqtx: ")
    return lines[0]


@pytest.mark.parametrize("verb", [["pending"], ["audit"], ["stores"], ["decode", "half"], ["show", "K", "--store"]])
def test_what_is_not_there_is_10_and_one_line(s3: S3Server, copied: Copied, rmqtx: Run, verb: list[str]) -> None:
    _, uri = copied("fifteen-5.3.3")
    for place, words in {
        "s3://no-such-bucket/store": "does not exist: there is no bucket no-such-bucket",
        "s3://evidence/no/such/store": "does not exist",
        "s3://evidence/*/nothing": "matches no directory",
        f"{uri}/checkpoint": "is a file, not a store",
        f"{uri}/config": "is not a store",
        f"{uri}/commitlog": f"give the store's root: {uri}",
        uri.removesuffix("/store"): f"did you mean {uri}?",
        "ftp://host/store": "pyarrow cannot open ftp:// file systems",
    }.items():
        if verb == ["stores"] and place == uri.removesuffix("/store"):
            continue  # which looks below
        result = rmqtx(*verb, place)
        assert (result.status, result.out) == (10, ""), place
        assert words in one_line(result.err)


def test_a_wrong_key_is_10_and_one_line(
    s3: S3Server, copied: Copied, rmqtx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri = copied("fifteen-5.3.3")
    # a region of its own: clients are kept by their URI
    place = f"{uri}?region=eu-west-1"
    s3.require_signatures(of_anybody_known=True)
    try:
        result = rmqtx("audit", place)
    finally:
        s3.require_signatures(of_anybody_known=False)
    assert (result.status, result.out) == (10, "")
    line = one_line(result.err)
    assert "the server does not accept these credentials: examine AWS_ACCESS_KEY_ID" in line
    assert SECRET not in line
    assert rmqtx("audit", place).status == 0


def test_a_server_that_does_not_answer_is_10_and_one_line(s3: S3Server, rmqtx: Run) -> None:
    result = rmqtx("pending", "s3://evidence/store?endpoint_override=127.0.0.1:1&scheme=http")
    assert (result.status, result.out) == (10, "")
    assert "NETWORK_CONNECTION" in one_line(result.err)


@pytest.mark.parametrize(
    "place",
    [
        "s3://AKIAX:hidden@evidence/store", "s3://AKIAX:hid/den@evidence/store", "s3://hidden@evidence/store",
        "s3://evidence/store?access_key=hidden", "s3://evidence/store?region=x&secret_key=hidden",
        "s3://evidence/store?session_token=hidden", "hdfs://user:hidden@namenode:8020/store",
        "abfs://container:hidden@account.dfs.core.windows.net/store", "abfs://c@a/store?sas_token=hidden",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(rmqtx: Run, place: str) -> None:
    for verb in ("pending", "stores"):
        result = rmqtx(verb, place)
        assert (result.status, result.out) == (2, "")
        line = one_line(result.err)
        assert "environment" in line
        assert "hid" not in line
    with pytest.raises(BadRequest):
        open_store(place)


def test_an_object_that_vanishes_is_a_finding_and_what_it_held_is_undecidable(s3: S3Server, copied: Copied) -> None:
    local, _ = copied("common-5.3.3")
    settings = settings_of("common-5.3.3")
    whole = {row["transaction_id"]: row["state"] for row in audit([open_store(local)], settings).table().to_pylist()}
    uri = s3.upload(local, "evidence/vanishing/store")
    store = open_store(uri)
    s3.delete(store.commit_log[0].file.removeprefix("s3://"))
    reading = audit([store], settings)
    rows = reading.table().to_pylist()
    codes = {finding.code: finding for finding in reading.findings}
    assert "unreadable-file" in codes
    assert store.commit_log[0].file in codes["unreadable-file"].line()
    assert all(row["state"] in (whole[row["transaction_id"]], "UNDECIDABLE") for row in rows)


def test_a_segment_that_vanishes_leaves_the_others(s3: S3Server, copied: Copied, rmqtx: Run) -> None:
    local, uri = copied("killed-4.4.0")
    settings = settings_of("killed-4.4.0")
    before = {row["transaction_id"]: row for row in audit([open_store(uri)], settings).table().to_pylist()}
    store = open_store(s3.upload(local, "evidence/one-less/store"))
    s3.delete(store.commit_log[2].file.removeprefix("s3://"))
    reading = audit([store], settings)
    after = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    assert [f.code for f in reading.findings if f.file == store.commit_log[2].file] == ["unreadable-file"]
    assert 0 < len(after) <= len(before)
    changed = {name for name, row in after.items() if row["state"] != before[name]["state"]}
    assert {after[name]["state"] for name in changed} <= {"UNDECIDABLE"}
    result = rmqtx("audit", "s3://evidence/one-less/store")  # a new snapshot: now the file is a gap
    assert result.status == 3
    assert "segment-gap" in result.err


def test_what_vanishes_or_shrinks_under_an_open_file_is_an_error(s3: S3Server, copied: Copied) -> None:
    local, _ = copied("common-5.3.3")
    segment = open_store(s3.upload(local, "evidence/shrinking/store")).commit_log[0]
    segment = replace(segment, modified_ns=None)  # so that nothing of it is kept
    path = segment.file.removeprefix("s3://")
    with segment.open() as file:
        assert file.read(0, 8)
        s3.put(path, (local / "commitlog" / "00000000000000000000").read_bytes()[:100_000])
        with pytest.raises(FileChanged) as caught:
            file.read(0, segment.size_bytes * 2)
        s3.delete(path)
        with pytest.raises(UnreadableFile, match="the file was deleted while it was read") as gone:
            file.read(0, segment.size_bytes * 2)
    assert (caught.value.file, gone.value.file) == (segment.file, segment.file)


@pytest.mark.parametrize("runs", [[(0, 100), (500_000, 500_100)], [(0, 3 << 20), (4 << 20, 5 << 20)]])
def test_what_shrinks_under_runs_is_an_error_and_not_other_bytes(s3: S3Server, runs: list[tuple[int, int]]) -> None:
    s3.put("evidence/runs/data", b"\1" * (5 << 20))
    with open_file("s3://evidence/runs/data", 5 << 20) as file:
        s3.put("evidence/runs/data", b"\1" * 50_000)
        data = bytearray(sum(end - begin for begin, end in runs))
        with pytest.raises(FileChanged):
            file.read_runs(runs, memoryview(data))
        s3.delete("evidence/runs/data")
        with pytest.raises(UnreadableFile, match="the file was deleted while it was read"):
            file.read_runs(runs, memoryview(data))


def test_processes_end_cleanly(s3: S3Server, copied: Copied) -> None:
    """The S3 client says nothing when the interpreter ends, and does not hold it up."""
    _, uri = copied("fifteen-5.3.3")
    command = [sys.executable, "-W", "error", "-m", "rmqtx_cli.main", "audit", uri, "--format", "jsonl", "--quiet"]
    done = subprocess.run(
        command, env={**os.environ, **s3.environment}, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(json.loads(line)["store"] == uri for line in done.stdout.splitlines())


def test_file_uris_are_local_paths(copied: Copied) -> None:
    assert normalised("file:///evidence/a%20b/store/") == "/evidence/a b/store"
    assert normalised("file://localhost/evidence") == "/evidence"
    with pytest.raises(BadRequest):
        normalised("file://elsewhere/evidence")
    local, _ = copied("fifteen-5.3.3")
    assert expand([f"file://{local.parent}/s*e"]) == [str(local)]
    with pytest.raises(NotAStore, match="matches no directory"):
        expand([str(local / "nothing*")])
