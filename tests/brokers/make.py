"""Make a store from a recipe: run it, run its copy, derive the expected rows, pack."""

from __future__ import annotations

import json
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.brokers import corpus, shop
from tests.brokers.empty_stage import DESIGN, EmptyPlay
from tests.brokers.expectation import expected_rows, states
from tests.brokers.histories import HISTORIES
from tests.brokers.old_histories import OLD_HISTORIES
from tests.brokers.old_stage import OldScript, play_old
from tests.brokers.proxied_stage import ProxiedPlay
from tests.brokers.recipes import Recipe
from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB, RocksPlay
from tests.brokers.script import Act, Script
from tests.brokers.stage import Play

AT_ONCE = 2


def play(recipe: Recipe, out: Path, acts: Mapping[str, Act] = HISTORIES) -> Play:
    """Play a recipe in a directory: the store is then `out/store`, the truth in the result."""
    if isinstance(recipe.script, OldScript):
        return play_old(recipe.script, out, OLD_HISTORIES)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run = player(recipe.script)(recipe.script, out)
    with run.rig:
        run.run(acts)
    run.after()
    if recipe.script.as_is:
        run.after_as_is()
    return run


def player(script: Script) -> type[Play]:
    """The class that plays a script: others for transactions in RocksDB, and for an empty store."""
    if script.design == DESIGN:
        return EmptyPlay
    if script.proxy is not None:
        return ProxiedPlay
    settings = dict(script.conf) | dict(script.restart or {})
    return RocksPlay if set(TRANSACTIONS_IN_ROCKSDB) <= set(settings) else Play


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def make_example() -> str:
    """Make the example store; return a line about it."""
    recipe = shop.recipe()
    out = Path(tempfile.gettempdir()) / "rmqtx-brokers" / recipe.name
    run = play(recipe, out, shop.ACTS)
    rows = save(recipe, run, out / "packed")
    shutil.copyfile(out / "packed" / corpus.STORE, EXAMPLES / f"{recipe.name}.tar.xz")
    return f"{recipe.name}: {tell(rows)}"


@dataclass(frozen=True)
class Live:
    """A store fresh from a broker: its root, the expected rows, the truth, the broker's configuration."""

    store: Path
    rows: list[corpus.Row]
    truth: list[corpus.Row]
    broker_conf: dict[str, str]


def live(script: Script, out: Path) -> Live:
    """Play a script on a real broker, for a test (ask `maven.why_not()` first); the store stays below `out`."""
    run = play(Recipe("live", "A test's own store.", script), out)
    return Live(run.rig.store, expected_rows(run.truth), run.truth, final_conf(run))


def final_conf(run: Play) -> dict[str, str]:
    """The broker's configuration when it stopped, without values of this machine."""
    return {"storePathRootDir": "store", "storePathCommitLog": "store/commitlog"} | run.rig.conf


def save(recipe: Recipe, run: Play, to: Path) -> list[corpus.Row]:
    """Write a finished run into a directory of the corpus; return the expected rows."""
    found = corpus.machine_paths(run.rig.store, (str(run.out), str(Path.home()) + "/", tempfile.gettempdir() + "/"))
    if found:
        raise RuntimeError(f"{recipe.name}: paths of this machine in the store: {found}")
    rows = expected_rows(run.truth)
    to.mkdir(parents=True, exist_ok=True)
    corpus.pack(run.rig.store, to / corpus.STORE)
    if run.beside is not None:
        corpus.pack(run.beside, to / corpus.BESIDE)
    corpus.write_rows(to / corpus.TRUTH, run.truth)
    corpus.write_rows(to / corpus.EXPECTED, rows)
    script = recipe.script
    conf = final_conf(run)
    described = {
        "name": recipe.name,
        "about": recipe.about,
        "version": script.version,
        "design": script.design,
        "seed": script.seed,
        "stop": script.stop,
        "histories": dict(script.histories),
        "topics": dict(script.topics),
        "groups": list(script.groups),
        "broker_conf": conf,
        "half_cursor": script.half_cursor,
        "restart": None if script.restart is None else dict(script.restart),
        "states": dict(sorted(Counter(" or ".join(sorted(states(row))) for row in rows).items())),
    }
    if script.earlier:
        described["earlier"] = list(script.earlier)
    if script.proxy is not None:
        described["proxy"] = script.proxy
    if isinstance(script, OldScript) and script.upgrade is not None:
        described |= {"upgrade": script.upgrade, "later": dict(script.later)}
    (to / corpus.RECIPE).write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return rows


def make(recipe: Recipe, to: Path | None = None, keep: bool = False, tries: int = 2) -> str:
    """Make one store of the corpus; return a line about it."""
    out = Path(tempfile.gettempdir()) / "rmqtx-brokers" / recipe.name
    for attempt in range(1, tries + 1):
        try:
            run = play(recipe, out)
            rows = save(recipe, run, to or corpus.CORPUS / recipe.name)
        except Exception:
            if attempt == tries:
                return f"{recipe.name}: FAILED\n{traceback.format_exc(limit=-2)}see {out}"
        else:
            break
    if not keep:
        shutil.rmtree(out)
    return f"{recipe.name}: {tell(rows)}"


def tell(rows: list[corpus.Row]) -> str:
    """A summary of the rows."""
    counted = Counter(" or ".join(sorted(states(row))) for row in rows)
    told = ", ".join(f"{state} {count}" for state, count in sorted(counted.items()))
    return f"{len(rows)} transactions ({told}), {sum(bool(row['open']) for row in rows)} open"


def make_all(recipes: Iterable[Recipe], at_once: int = AT_ONCE, keep: bool = False) -> bool:
    """Make stores, some at once; return whether all were made."""
    good = True
    with ThreadPoolExecutor(at_once) as pool:
        for line in pool.map(lambda recipe: make(recipe, keep=keep), recipes):
            print(line, flush=True)
            good = good and "FAILED" not in line
    return good
