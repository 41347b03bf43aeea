"""Where a path points: places as text, patterns, and what no place may carry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest, NotAStore
from rmqtx.readers.storage.file_systems import expand, files_of
from rmqtx.readers.storage.places import identity_of, is_uri, joined, name_of, normalised, parent_of, uri_of


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("store/", "store"),
        ("./a//b/", "a/b"),
        ("/", "/"),
        ("s3:/b/x", "s3:/b/x"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3://bucket/a%20b c", "s3://bucket/a%20b c"),
        ("s3://bucket/a?region=eu-west-1", "s3://bucket/a?region=eu-west-1"),
        ("s3://bucket?endpoint_override=localhost:9000&scheme=http", "s3://bucket?endpoint_override=localhost:9000&scheme=http"),
        ("abfs://c@account.dfs.core.windows.net/x", "abfs://c@account.dfs.core.windows.net/x"),
        ("hdfs://user@namenode:8020/x/", "hdfs://user@namenode:8020/x"),
        ("hdfs://[::1]:8020/x", "hdfs://[::1]:8020/x"),
        ("file:///a%20b/c%2Fd", "/a b/c/d"),
        ("file:///a?b", "/a?b"),
    ],
)
def test_a_place_is_one_text(given: str, place: str) -> None:
    assert normalised(given) == place
    assert normalised(place) == place


@pytest.mark.parametrize("root", ["/a/store", "store", "s3://bucket/store", "s3://bucket", "s3://bucket/s?region=x"])
def test_what_is_joined_comes_apart_again(root: str) -> None:
    below = joined(root, "consumequeue", "%RETRY%g?", "0")
    assert name_of(below) == "0"
    assert name_of(parent_of(below)) == "%RETRY%g?"
    assert parent_of(parent_of(parent_of(below))) == root
    assert is_uri(below) == root.startswith("s3:")
    if is_uri(root):
        assert uri_of(below).query == uri_of(root).query
        assert uri_of(below).base == uri_of(root).base


def test_the_same_local_place_has_one_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    monkeypatch.chdir(tmp_path)
    assert identity_of("link") == identity_of(str(tmp_path / "store"))
    assert identity_of("s3://bucket/store") == "s3://bucket/store"


def test_patterns_name_directories_by_name(tmp_path: Path) -> None:
    for name in ("broker-b/store", "broker-a/store", "broker-c/other", ".hidden/store", "broker-a/deep/store"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "broker-d").write_text("a file")

    def found(pattern: str) -> list[str]:
        return [os.path.relpath(place, tmp_path) for place in expand([tmp_path / pattern])]

    assert found("*/store") == ["broker-a/store", "broker-b/store"]
    assert found("broker-[bc]/*") == ["broker-b/store", "broker-c/other"]
    assert found("broker-?") == ["broker-a", "broker-b", "broker-c"]
    assert found(".h*/store") == [".hidden/store"]
    assert found("*/*/store") == ["broker-a/deep/store"]
    assert found("missing") == ["missing"]
    for pattern in ("nothing*", "*/nothing", "broker-d/*"):
        with pytest.raises(NotAStore, match="matches no directory") as caught:
            expand([tmp_path / pattern])
        assert str(tmp_path / pattern) in str(caught.value)


def test_a_name_that_looks_like_a_pattern_is_itself_where_it_exists(tmp_path: Path) -> None:
    (tmp_path / "broker[1]").mkdir()
    (tmp_path / "broker1").mkdir()
    assert expand([tmp_path / "broker[1]"]) == [str(tmp_path / "broker[1]")]
    assert expand([tmp_path / "broker[1-3]"]) == [str(tmp_path / "broker1")]


@pytest.mark.parametrize("place", ["s3://bucket?", "s3://buck?t/x", "file://host:secret@x/y", "file://", "s3://?x"])
def test_what_is_no_uri_is_said_to_be_none(place: str) -> None:
    with pytest.raises(BadRequest) as caught:
        expand([place])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [
        "s3://K:hidden@b/x", "s3://hidden@b", "gs://b/x?private_key=hidden", "S3A://a:hidden@b/x",
        "s3://b/x?endpoint_override=http://u:hidden@h",
    ],
)
def test_credentials_are_refused_and_not_repeated(place: str) -> None:
    with pytest.raises(BadRequest) as caught:
        expand([place])
    assert "hidden" not in str(caught.value)
    assert "environment" in str(caught.value)


def test_a_local_store_loads_no_file_systems(tmp_path: Path) -> None:
    """Loading pyarrow.fs and its clients costs what a small question costs."""
    (tmp_path / "commitlog").mkdir()
    program = (
        "import sys; from rmqtx.readers.store.store import open_store\n"
        "from rmqtx.readers.storage.file_systems import expand\n"
        f"store = open_store(expand([{str(tmp_path)!r}])[0]); list(store.queues()); store.has('abort')\n"
        "print(sorted(name for name in sys.modules"
        " if name.startswith('pyarrow') or name == 'rmqtx.readers.storage.remote_files'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_has_a_name_with_a_zero_in_it(tmp_path: Path) -> None:
    files = files_of(str(tmp_path), 0)
    assert files.entry(str(tmp_path / "a\0b")) is None
    with pytest.raises(FileNotFoundError):
        files.entries(str(tmp_path / "a\0b"))
