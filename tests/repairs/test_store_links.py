"""Links in a store from elsewhere: what leads out of it is neither copied nor written to, and reading says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import UnsafeStore
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store, open_store
from rmqtx.readers.store.store_roots import is_own_directory, is_own_path, leads_out
from rmqtx.repairs.bundles.bundle import BundleSource, make_bundle
from rmqtx.repairs.changes.clones import cloned
from rmqtx.repairs.rebuild.rebuild import PARTS, rebuild
from rmqtx.repairs.records.store_sizes import StoreSizes, store_sizes
from rmqtx.repairs.salvage.salvage import salvage
from tests.forge.stores import copy_of

NAME = "fifteen-5.3.3"


def clone(store: Path, target: Path) -> None:
    with cloned(store, target):
        pass


def rebuilt(store: Path, target: Path) -> None:
    rebuild(PARTS, open_store(store), target, sizes_of(open_store(store)))


def salvaged(store: Path, target: Path) -> None:
    salvage([store], target, sizes_of(open_store(store)), old_store=open_store(store))


def bundled(store: Path, target: Path) -> None:
    make_bundle(BundleSource(open_store(store), version="5.3.3"), [], ["slot-invalid"], target, is_archive=False)


def sizes_of(store: Store) -> StoreSizes:
    return store_sizes(store)


COPYING = {"clone": clone, "rebuild": rebuilt, "salvage": salvaged, "bundle": bundled}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_of(NAME, tmp_path / "store")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    place = tmp_path / "elsewhere"
    (place / "ssh").mkdir(parents=True)
    (place / "ssh" / "id_rsa").write_text("secret")
    return place


@pytest.mark.parametrize("copying", COPYING.values(), ids=COPYING.keys())
@pytest.mark.parametrize("path", ["etc", "config/consumerOffset.json", "consumequeue/more", "index"])
def test_what_leads_out_is_not_copied(
    store: Path, elsewhere: Path, tmp_path: Path, copying: Callable[[Path, Path], None], path: str
) -> None:
    place = store / path
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(elsewhere / "ssh" / "id_rsa" if path.endswith(".json") else elsewhere)
    with pytest.raises(UnsafeStore, match=rf"{path} leads out of the store, to .*elsewhere"):
        copying(store, tmp_path / "new")
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("copying", [clone, rebuilt, salvaged])
def test_a_circle_is_met_once(store: Path, tmp_path: Path, copying: Callable[[Path, Path], None]) -> None:
    (store / "loop").symlink_to(".")
    (store / "config" / "up").symlink_to("../consumequeue")
    copying(store, tmp_path / "new")
    assert not (tmp_path / "new" / "loop").exists()
    assert not (tmp_path / "new" / "config" / "up").exists()
    assert [one.file for one in segments(tmp_path / "new")]


def segments(store: Path) -> tuple[Segment, ...]:
    return open_store(store).commit_log


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config"])
def test_a_directory_of_the_store_on_another_disk_is_the_store_s(store: Path, tmp_path: Path, name: str) -> None:
    kept = {path.relative_to(store): path.read_bytes() for path in (store / name).rglob("*") if path.is_file()}
    assert kept
    (store / name).rename(tmp_path / "disk2")
    (store / name).symlink_to(tmp_path / "disk2")
    assert "link-out" not in {finding.code for finding in open_store(store).findings}
    clone(store, tmp_path / "new")
    for path, data in kept.items():
        assert (tmp_path / "new" / path).read_bytes() == data
    rebuilt(store, tmp_path / "made")
    (tmp_path / "disk2" / "authorized_keys").write_text("not a broker's")
    with pytest.raises(UnsafeStore, match="leads out"):
        clone(store, tmp_path / "other")


def test_a_directory_to_which_two_links_lead_is_copied_once(store: Path, tmp_path: Path) -> None:
    (store / "commitlog").rename(tmp_path / "disk2")
    for name in ("commitlog", "commitlog-b"):
        (store / name).symlink_to(tmp_path / "disk2")
    clone(store, tmp_path / "new")
    copied = [path.relative_to(tmp_path / "new") for path in (tmp_path / "new").glob("commitlog*/*")]
    assert copied == [Path("commitlog", path.name) for path in (tmp_path / "disk2").iterdir()]


def test_a_link_in_a_directory_on_another_disk_leads_out(store: Path, elsewhere: Path, tmp_path: Path) -> None:
    (store / "consumequeue").rename(tmp_path / "disk2")
    (store / "consumequeue").symlink_to(tmp_path / "disk2")
    (tmp_path / "disk2" / "topic").symlink_to(elsewhere)
    with pytest.raises(UnsafeStore, match="topic leads out"):
        clone(store, tmp_path / "new")


def test_reading_says_so(store: Path, elsewhere: Path) -> None:
    (store / "etc").symlink_to("/etc")
    os.link(store / "checkpoint", elsewhere / "hard")
    segment = Path(segments(store)[0].file)
    segment.rename(elsewhere / segment.name)
    segment.symlink_to(elsewhere / segment.name)
    found = [finding.file for finding in open_store(store).findings if finding.code == "link-out"]
    assert found == [str(store / "etc"), str(segment)]


def test_what_a_store_s_own_paths_are(store: Path, elsewhere: Path) -> None:
    for path in (
        "abort", "checkpoint", "timerwheel.4096", "brokerIdentity-temp", "commitlog-b/0", "config/rdb/CURRENT",
        "kvStore/CURRENT", "transaction/statetable/0",
    ):
        assert is_own_path(path), path
    for path in ("etc/passwd", "authorized_keys", ".ssh/id_rsa", "commitlog", "lock"):
        assert not is_own_path(path), path
    (store / "timerlog").symlink_to(elsewhere)
    assert not is_own_directory(store / "timerlog", store)
    assert leads_out(store / "timerlog", store)
