"""The JSON of brokers: what fastjson writes is read, what is no JSON is refused with its place."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.store.fastjson import parse, read_config, read_text
from rmqtx.readers.store.store import open_store
from tests.brokers import corpus
from tests.forge.stores import opened, unpacked
from tests.representatives import each_store

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers().map(str), inner, max_size=4),
    max_leaves=20,
)


def dialect(value: Any) -> str:
    """The value with integer keys unquoted, as fastjson writes maps with integer keys."""
    if isinstance(value, dict):
        keys = [key if key.lstrip("-").isdecimal() and key.isascii() else json.dumps(key) for key in value]
        return "{" + ",\n\t".join(f"{k}: {dialect(v)}" for k, v in zip(keys, value.values(), strict=True)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dialect, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@given(JSON)
def test_both_forms_of_keys_give_the_same_value(value: Any) -> None:
    assert parse(dialect(value)) == value
    assert parse(json.dumps(value)) == value


def test_keys_are_not_looked_for_inside_strings() -> None:
    text = '{"a{1:b":"x,2:y\\"{3:4", 7 : "\t{-1:", -8:[{9:0\n}]}'
    assert parse(text) == {"a{1:b": 'x,2:y"{3:4', "7": "\t{-1:", "-8": [{"9": 0}]}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("{1:2", 4),
        ('{1:{2:3}} x', 10),
        ('{1:{22:3,}}', 8 if sys.version_info >= (3, 13) else 9),  # at the comma, or behind it
        ('{"é":1,2:}', 10),
        ('{1:"abc', 3),
        ('{1:"abc\\', 3),
        ("{1}", 1),
        ("{1.5:2}", 1),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str, position: int) -> None:
    with pytest.raises(BadText) as caught:
        parse(text)
    assert caught.value.position_bytes == position


@pytest.mark.parametrize("text", ["[" * 200_000, "{1:" * 200_000, "{1:" + "9" * 6000 + "}"])
def test_what_no_broker_writes_is_refused(text: str) -> None:
    with pytest.raises(BadText):
        parse(text)


@given(st.text(alphabet='{}[]:,"\\1-a\t é', max_size=60))
def test_nothing_else_is_raised(text: str) -> None:
    with contextlib.suppress(BadText):
        parse(text)


def test_many_open_strings_take_no_longer_than_few() -> None:
    with pytest.raises(BadText):
        parse('\\"' * 1_000_000)
    with pytest.raises(BadText):
        parse("{1 " * 500_000 + " " * 1_000_000)


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_every_configuration_of_real_brokers_is_read(name: str) -> None:
    for path in (unpacked(name) / "config").iterdir():
        if path.suffix == ".json":
            config = read_config(opened(name), path.name)
            assert config.findings == []
            assert isinstance(config.value, dict)
            assert config.file == str(path)


@pytest.mark.parametrize(
    ("main", "backup", "value", "code"),
    [
        ("{1:2}", "{3:4}", {"1": 2}, None),
        (None, "{3:4}", {"3": 4}, "config-backup"),
        ("", "{3:4}", {"3": 4}, "config-backup"),
        ("\0\0\0", "{3:4}", {"3": 4}, "config-backup"),
        ("{1:", "{3:4}", {"3": 4}, "config-backup"),
        ("{1:", "{3:", None, "config-damaged"),
        ("{1:", None, None, "config-damaged"),
        (None, "", None, "config-damaged"),
        (None, None, None, "config-missing"),
    ],
)
def test_the_backup_is_read_where_a_broker_would(
    tmp_path: Path, main: str | None, backup: str | None, value: object, code: str | None
) -> None:
    (tmp_path / "config").mkdir()
    for name, text in (("a.json", main), ("a.json.bak", backup)):
        if text is not None:
            (tmp_path / "config" / name).write_text(text)
    config = read_config(open_store(tmp_path), "a.json")
    assert config.value == value
    assert [finding.code for finding in config.findings] == ([] if code is None else [code])


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"\xe9":1}')
    with pytest.raises(BadText) as caught:
        read_text(tmp_path / "latin")
    assert caught.value.position_bytes == 2
    with pytest.raises(UnreadableFile):
        read_text(tmp_path)
    assert read_text(tmp_path / "nothing") is None
