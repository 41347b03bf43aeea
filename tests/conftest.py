"""What all tests share: the option that writes expectations again, and a clean environment."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.file_seconds import order_of, scope_of
from tests.moment import MOMENT as MOMENT
from tests.moment import MOMENTS, moment_of
from tests.moment import READ_AT_MS as READ_AT_MS

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

    from rmqtx.remoting.connections.client import Client

# The same examples every time, so that a red run is red for everybody; `make fuzz` looks for new ones.
settings.register_profile("quick", derandomize=True, deadline=None)
settings.load_profile("quick")

ROOT = Path(__file__).resolve().parents[1]
# Without pyspark, as in `make test-lowest`, no module of Spark asks for the moment.
_MOMENTS = [place for place in MOMENTS if "spark" not in place or find_spec("pyspark")]

# What a script starts with `&` ignores Ctrl-C, and what nohup starts SIGHUP, and so would every program that a test
# starts and interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: the search for garbage leaves them out, now and in every test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000)  # as in commands: their columns and rows make no cycles
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In one of several processes: the longest files come first."""
    if hasattr(config, "workerinput"):
        places = order_of(item.nodeid for item in items)
        items.sort(key=lambda item: places[scope_of(item.nodeid)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """With `--dist loadfile`: a process for each file, and one for all of Spark's tests, which share its session.

    Files begin in the order of the tests that the processes collect, not those with most tests first.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False

    class OneSparkSession(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return OneSparkSession(config, log)


@contextmanager
def one_moment() -> Iterator[None]:
    """Stores are read soon after the corpus was written, or when a test says, which lies before."""
    with pytest.MonkeyPatch.context() as patch:
        for place in _MOMENTS:
            patch.setattr(place, moment_of)
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_moment() -> Iterator[None]:
    """Stores are read at one moment, whenever a test runs; tests of real brokers undo that."""
    with one_moment():
        yield


@contextmanager
def real_moment() -> Iterator[None]:
    """Stores are read when they are read."""
    with pytest.MonkeyPatch.context() as patch:
        for place in _MOMENTS:
            patch.setattr(place, lambda store: store.taken_time_ms)
        yield


@pytest.fixture
def at_the_real_moment() -> Iterator[None]:
    """A test for which stores are read when they are read."""
    with real_moment():
        yield


@pytest.fixture
def client() -> Iterator[Client]:
    """Connections to brokers, which end with the test."""
    from rmqtx.remoting.connections.client import Client

    with Client() as opened:
        yield opened


def linked_folders() -> dict[Path, str]:
    """The folders to which `rmqtx/` links, and the name of each: `readers/`, "rmqtx.readers"."""
    links = [path for path in (ROOT / "rmqtx").iterdir() if path.is_symlink()]
    return {path.resolve(): f"rmqtx.{path.name}" for path in links}


def other_names() -> dict[str, str]:
    """The modules of the library that this process has loaded under another name than their own, with that name.

    The root of the repository is on the path of tests, so `import readers` would work, and load modules twice.
    """
    linked = linked_folders()
    found = {}
    folder_of = functools.cache(os.path.realpath)  # thousands of modules in a few hundred folders
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or name == "__main__":
            continue
        directory, _, base = file.rpartition("/")
        if not folder_of(directory).startswith(f"{ROOT}/") and not Path(file).is_symlink():
            continue
        place = Path(folder_of(directory), base).resolve().with_suffix("")
        place = place.parent if place.name == "__init__" else place
        for folder, package in linked.items():
            if folder == place or folder in place.parents:
                own = ".".join([package, *place.relative_to(folder).parts])
                if name != own:
                    found[name] = own
    return found


@pytest.fixture(autouse=True, scope="session")
def _one_name_for_each_module() -> Iterator[None]:
    """No test, and nothing that tests call in their process, loads a module of the library under a second name."""
    yield
    assert other_names() == {}


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "write transcripts, the README's session and the table of verdicts again"
    parser.addoption("--rewrite", action="store_true", help=words)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test depends on the terminal, the locale's width or the home directory of whoever runs it."""
    for name in ("COLUMNS", "LINES", "RMQTX_DEBUG", "NO_COLOR", "FORCE_COLOR", "RMQTX_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))
