"""A store on which an older broker was started after a younger one: the last one's rules hold, both are said."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.check.check_rules import supposed_version
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened

NAME = "downgraded-5.5.0-5.3.3-4.9.7"
HOUR_NS = 3_600 * 10**9


def test_the_last_broker_is_told_by_what_every_broker_rewrites() -> None:
    found = broker_settings(opened(NAME))
    assert (found.version_low, found.version_high) == (None, (4, 9, 8))
    assert found.describe().startswith(
        "broker 4.9.8 or earlier (config/consumerOffset.json), previously 5.4.0 or later (rocksdbstore); "
    )
    assert found.transaction_check_interval_ms == 60_000
    assert found.batches_ops is False
    assert supposed_version(found)[0] == (4, 9, 8)


def test_within_one_line_the_json_library_tells_it() -> None:
    found = broker_settings(opened("downgraded-5.5.0-5.3.3"))
    assert found.describe().startswith(
        "broker 5.0.0 or later and 5.3.4 or earlier (config/consumerOffset.json), "
        "previously 5.4.0 or later (rocksdbstore); "
    )
    assert supposed_version(found)[0] == (5, 3, 4)


def test_a_named_version_may_be_the_older_one() -> None:
    found = broker_settings(opened(NAME), version="4.9.7")
    assert found.version == "4.9.7"
    assert "previously 5.4.0 or later (rocksdbstore)" in found.describe()


def continued(younger: str, older: str, tmp_path: Path) -> Path:
    """The store of a younger broker with the cursors as an older one writes them."""
    root = copy_of(younger, tmp_path)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        shutil.copyfile(Path(opened(older).root, "config", name), root / "config" / name)
    return root


def aged(path: Path, by_ns: int) -> None:
    for file in (path, *path.iterdir()) if path.is_dir() else (path,):
        now_ns = file.stat().st_mtime_ns
        os.utime(file, ns=(now_ns - by_ns, now_ns - by_ns))


def said(store: Store) -> tuple[str, str | None]:
    found = broker_settings(store)
    return found.version, found.origin.get("once")


@pytest.mark.parametrize(
    ("younger", "older", "version", "once"),
    [
        ("common-5.5.0", "common-5.3.3", "5.0.0 or later and 5.3.4 or earlier", "5.4.0 or later (rocksdbstore)"),
        ("common-5.3.3", "common-4.9.7", "4.9.8 or earlier", "5.2.0 or later (config/transactionMetrics)"),
        ("common-5.5.0", "common-5.5.0", "5.4.0 or later", None),
        ("common-4.9.7", "common-4.3.0", "4.7.1 or later and 4.9.8 or earlier", None),
    ],
)
def test_the_form_of_the_cursors_tells_the_line(
    younger: str, older: str, version: str, once: str | None, tmp_path: Path
) -> None:
    assert said(open_store(continued(younger, older, tmp_path))) == (version, once)


def test_a_killed_broker_may_have_left_the_file_of_the_one_before_it(tmp_path: Path) -> None:
    root = continued("killed-5.5.0", "common-5.3.3", tmp_path)
    cursors = root / "config" / "consumerOffset.json"
    aged(cursors, HOUR_NS)
    assert said(open_store(root)) == ("5.4.0 or later", None)
    aged(cursors, -2 * HOUR_NS)
    assert said(open_store(root))[1] == "5.4.0 or later (rocksdbstore)"


@pytest.mark.parametrize("name", ["rocksdb-queues-5.5.0", "rocksdb-single-5.5.0", "rocksdb-configs-5.5.0"])
def test_a_broker_with_its_cursors_in_rocksdb_leaves_the_file_as_it_was(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    file = "config/consumerOffset.json"
    shutil.copyfile(Path(opened("common-4.9.7").root, file), root / file)
    assert said(open_store(root))[1] is None


def test_no_other_store_of_one_broker_seems_set_back() -> None:
    changed = {name for name in corpus.all_names() if "once" in broker_settings(opened(name)).origin}
    assert changed == {NAME, "downgraded-5.5.0-5.3.3"}
