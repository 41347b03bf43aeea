"""The stores of the corpus: reading them (with the standard library only) and packing them."""

from __future__ import annotations

import functools
import json
import lzma
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
BESIDE = "beside.tar.xz"
"""The store of another broker that has some of the same transactions."""
STORE, TRUTH, EXPECTED, RECIPE = "store.tar.xz", "truth.jsonl.xz", "expected.jsonl", "recipe.json"
HALF_TOPIC_DESIGN = "half_topic"
ROCKS_DESIGNS = ("rocksdb", "rocksdb_queues", "dledger", "controller")
"""Designs of stores that use RocksDB, DLedger or a controller: with transactions in RocksDB, with queues or
configuration there, with a commit log of DLedger entries, with the epochs of a controller.
"""
PAGE = 4096
EXECUTABLE, PLAIN = 0o755, 0o644

Row = dict[str, Any]


def corpus_names(design: str = HALF_TOPIC_DESIGN) -> list[str]:
    """The stores of the corpus of one design, by name."""
    return [name for name in all_names() if _design(name) == design]


@functools.cache
def _design(name: str) -> str:
    return str(recipe(name).get("design", HALF_TOPIC_DESIGN))


@functools.cache
def all_names() -> list[str]:
    """Every store of the corpus, by name."""
    return sorted(path.parent.name for path in CORPUS.glob(f"*/{RECIPE}"))


def unpack(name: str, to: Path) -> Path:
    """Unpack a store below a directory; return the store's root (`storePathRootDir`)."""
    return unpack_archive(CORPUS / name / STORE, to)


def unpack_beside(name: str, to: Path) -> Path:
    """Unpack the store of the other broker below a directory."""
    return unpack_archive(CORPUS / name / BESIDE, to)


def unpack_archive(archive: Path, to: Path) -> Path:
    """Unpack an archive of `pack`; zero pages become holes, so that preallocated files use no space."""
    to.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:xz") as tar:
        for member in tar:
            target = to / member.name
            if not target.resolve().is_relative_to(to.resolve()):
                raise ValueError(f"{member.name} leads out of the directory")
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            source = tar.extractfile(member)
            assert source is not None, member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                while page := source.read(PAGE):
                    if page.count(0) == len(page):
                        file.seek(len(page), os.SEEK_CUR)
                    else:
                        file.write(page)
                file.truncate(member.size)
    return to / "store"


def expected(name: str) -> list[Row]:
    """The rows that an audit must have, one for each transaction."""
    with (CORPUS / name / EXPECTED).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def truth(name: str) -> list[Row]:
    """What the clients, the consumers and the broker reported."""
    with lzma.open(CORPUS / name / TRUTH, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def recipe(name: str) -> Row:
    """How the store was made: version, seed, histories, broker configuration, how it was stopped, what is unusual in
    it.
    """
    found: Row = json.loads((CORPUS / name / RECIPE).read_text(encoding="utf-8"))
    return found


def broker_conf(name: str) -> str:
    """The broker's configuration as the text of a broker.conf."""
    return "".join(f"{key}={value}\n" for key, value in sorted(recipe(name)["broker_conf"].items()))


# ---- packing


def pack(store: Path, archive: Path) -> None:
    """Pack a store so that the same bytes give the same archive: sorted, no owner, no times."""
    with (
        lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in [store, *sorted(store.rglob("*"))]:
            inside = Path("store") / path.relative_to(store)
            info = tarfile.TarInfo(inside.as_posix())
            if path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, EXECUTABLE
                tar.addfile(info)
            else:
                info.size, info.mode = path.stat().st_size, PLAIN
                with path.open("rb") as content:
                    tar.addfile(info, content)


def machine_paths(store: Path, hints: Iterable[str]) -> list[str]:
    """Files of the store that contain the name of a directory of this machine (there must be none)."""
    wanted = [hint.encode() for hint in hints if len(hint) > 1]
    found = []
    for path in sorted(store.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            found += [f"{path.relative_to(store)}: {hint.decode()}" for hint in wanted if hint in content]
    return found


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines; packed if the name ends with .xz."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode(), preset=9))
    else:
        path.write_text(text, encoding="utf-8")
