"""Credentials: from the environment or a file, never shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest, BadText, UnreadableFile
from rmqtx.remoting.connections.credentials import from_environment, from_file, is_readable_by_others
from rmqtx.remoting.protocol.connection_settings import Credentials


def test_the_environment_gives_both_or_none() -> None:
    assert from_environment({}) is None
    assert from_environment({"RMQTX_ACCESS_KEY": "", "RMQTX_SECRET_KEY": ""}) is None
    both = {"RMQTX_ACCESS_KEY": "a", "RMQTX_SECRET_KEY": "s"}
    assert from_environment(both) == Credentials("a", "s")
    assert from_environment({**both, "RMQTX_SECURITY_TOKEN": "t"}) == Credentials("a", "s", "t")


@pytest.mark.parametrize("lacking", ["RMQTX_ACCESS_KEY", "RMQTX_SECRET_KEY"])
def test_half_of_them_is_an_error_that_shows_nothing(lacking: str) -> None:
    environment = {"RMQTX_ACCESS_KEY": "me-4711", "RMQTX_SECRET_KEY": "secret-4711"}
    del environment[lacking]
    with pytest.raises(BadRequest, match=f"and {lacking} is not - set both, or neither") as caught:
        from_environment(environment)
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("accessKey: rocketmq\nsecretKey: 12345678\n", ("rocketmq", "12345678", None)),
        ("#x\n---\naccessKey:  me \nsecretKey: '12''34'  # old\nsecurityToken: \"a b\"\n", ("me", "12'34", "a b")),
        ("\ufeffaccessKey: a\r\nsecretKey: b#c\r\nother: x\r\n", ("a", "b#c", None)),
        ("accessKey: a\nsecretKey: 'x: y'\nsecurityToken:\n", ("a", "x: y", None)),
    ],
)
def test_a_flat_file_is_read(text: str, wanted: tuple[str, str, str | None], tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    found = from_file(path)
    assert (found.access_key, found.secret_key, found.security_token) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accessKey: a\n", "the credentials lack secretKey"),
        ("", "the credentials lack accessKey and secretKey"),
        ("accessKey: a\nsecretKey: |\n  hidden-4711\n", "cannot parse line 2 of the credentials"),
        ("accounts:\n- accessKey: a\n", "cannot parse line 2 of the credentials"),
        ("accessKey: a\nsecretKey: {x: hidden-4711}\n", "line 2"),
        ("accessKey: a\nsecretKey: 'hidden-4711\n", "line 2"),
        ("accessKey: a\nsecretKey: \"hidden\\n4711\"\n", "line 2"),
        ("accessKey: a\naccessKey: hidden-4711\n", "line 2 of the credentials repeats accessKey"),
        ("  accessKey: a\n", "the credentials lack secretKey"),
        ("accessKey: a\nsecretKey: *hidden-4711\n", "line 2"),
        ("accessKey: a\nsecretKey: hidden: 4711\n", "line 2"),
        ("accessKey: hidden\x004711\n", "are not valid YAML"),
        ("[" * 20_000, "are not valid YAML"),
        ("? [hidden-4711]\n: b\n", "line 1"),
        ("accessKey:a\n", "line 1"),
        ("hidden-4711", "line 1"),
    ],
)
def test_what_is_not_understood_is_said_and_not_shown(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    with pytest.raises(BadText, match=says) as caught:
        from_file(path)
    for shown in (str(caught.value), repr(caught.value), repr(vars(caught.value))):
        assert "4711" not in shown


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="cannot read the credentials: No such file"):
        from_file(tmp_path / "none")
    with pytest.raises(UnreadableFile, match="cannot read the credentials: Is a directory"):
        from_file(tmp_path)
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    with pytest.raises(BadText, match="too large"):
        from_file(tmp_path / "large")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadText, match="not UTF-8"):
        from_file(tmp_path / "binary")


def test_who_can_read_a_file_is_known(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("x")
    path.chmod(0o600)
    assert not is_readable_by_others(path)
    path.chmod(0o640)
    assert is_readable_by_others(path)


def test_a_secret_does_not_show() -> None:
    who = Credentials("me", "secret-4711", "token-4711")
    assert repr(who) == str(who) == "Credentials(access_key='me')"
    assert pickle.loads(pickle.dumps(who)) == who
