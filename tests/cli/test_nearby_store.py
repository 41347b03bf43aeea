"""A store that nobody named: where it is looked for, and that a job without a terminal never gets one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx_cli.options import command_tree, nearby_store
from rmqtx_cli.options.configuration import OwnStore, own_store
from tests.cli.conftest import Run
from tests.forge.stores import copy_of


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A terminal, a home directory without a store, and no broker that runs."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("RMQTX_STORE", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nearby_store, "is_typed", lambda: True)
    monkeypatch.setattr(nearby_store, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(nearby_store, "_STORE_OF_ROOT", tmp_path / "root" / "store")
    monkeypatch.chdir(home)
    return home


def _store(root: Path) -> Path:
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(b"")
    return root


def _process(tmp_path: Path, *words: str, root: Path = Path("/"), cwd: str = "/") -> None:
    """A process of a broker, as /proc has it."""
    process = tmp_path / "proc" / "4711"
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (process / "root").symlink_to(root)
    (process / "cwd").symlink_to(cwd)


@pytest.mark.parametrize(("below", "where"), [("", "in this directory"), ("commitlog", "in the directory above")])
def test_the_directory_and_the_one_above(
    typed: Path, tmp_path: Path, below: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(typed / "store")
    here = _store(tmp_path / "here")
    monkeypatch.chdir(here / below)
    assert own_store() == OwnStore(str(here), None, where)


def test_the_store_of_a_broker_without_configuration(typed: Path, tmp_path: Path) -> None:
    assert own_store() is None
    _store(tmp_path / "root" / "store")
    assert own_store() == OwnStore(str(tmp_path / "root" / "store"), None, "in the home directory of root")
    _store(typed / "store")
    assert own_store() == OwnStore(str(typed / "store"), None, "in the home directory")


@pytest.mark.parametrize(
    ("program", "option", "line"),
    [
        ("broker.BrokerStartup", "-c", "storePathRootDir = {}"),
        ("broker.BrokerStartup", "--configFile", "storePathRootDir=/elsewhere\nstorePathRootDir={}"),
        ("proxy.ProxyStartup", "-bc", "storePathRootDir={}"),
        ("broker.BrokerStartup", "-c", "storePathRootDir=store"),
        ("broker.BrokerStartup", "-c", "brokerName=a"),
        ("broker.BrokerStartup", "", ""),
    ],
)
def test_a_running_broker_comes_before_the_home_directory(
    typed: Path, tmp_path: Path, program: str, option: str, line: str
) -> None:
    _store(typed / "store")
    root = _store(tmp_path / "data" / "store")
    (tmp_path / "data" / "a.conf").write_text(line.format(root) + "\n")
    given = (option, "a.conf") if option else ()
    home = f"-Duser.home={tmp_path / 'data'}"
    _process(tmp_path, "java", home, f"org.apache.rocketmq.{program}", *given, cwd=str(tmp_path / "data"))
    where = "in a.conf of process 4711" if option else "in the home directory of the user of process 4711"
    assert own_store() == OwnStore(str(root), None, where)


@pytest.mark.usefixtures("typed")
def test_a_broker_in_a_container_has_its_files_below_the_root_of_its_process(tmp_path: Path) -> None:
    inside = tmp_path / "container"
    _store(inside / "data")
    (inside / "a.conf").write_text("storePathRootDir=/data\n")
    _process(tmp_path, "org.apache.rocketmq.broker.BrokerStartup", "-c", "/a.conf", root=inside)
    found = str(tmp_path / "proc" / "4711" / "root" / "data")
    assert own_store() == OwnStore(found, None, "in /a.conf of process 4711")


@pytest.mark.usefixtures("typed")
def test_a_commit_log_outside_the_store_is_found_and_read(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "disk" / "log"
    root = copy_of("fifteen-5.3.3", tmp_path)
    log.parent.mkdir()
    (root / "commitlog").rename(log)
    (tmp_path / "a.conf").write_text(f"storePathRootDir={root}\nstorePathCommitLog={log}\n")
    _process(tmp_path, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(tmp_path / "a.conf"))
    where = f"in {tmp_path / 'a.conf'} of process 4711"
    assert own_store() == OwnStore(str(root), None, where, (str(log),))
    done = rmqtx("audit", "--format", "jsonl")
    assert f"{root}: this store was found {where}, as none was given, its commit log in {log}\n" in done.err
    given = rmqtx("audit", "--format", "jsonl", str(root), "--commitlog", str(log))
    assert (done.status, done.out) == (given.status, given.out)
    (tmp_path / "a.conf").write_text(f"storePathRootDir={root}\nstorePathCommitLog={tmp_path}/none,{log}\n")
    assert own_store() == OwnStore(str(root), None, where, (f"{tmp_path}/none", str(log)))
    log.rename(root / "commitlog")
    (tmp_path / "a.conf").write_text(f"storePathRootDir={root}\nstorePathCommitLog={root}/commitlog\n")
    assert own_store() == OwnStore(str(root), None, where)


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize("options", [("-c", "container.conf"), ("-b", "none.conf:a.conf:b.conf")])
def test_the_first_store_of_a_process_with_several_brokers(tmp_path: Path, options: tuple[str, str]) -> None:
    root = _store(tmp_path / "b")
    (tmp_path / "container.conf").write_text("listenPort=10811\nbrokerConfigPaths=none.conf:a.conf:b.conf\n")
    (tmp_path / "a.conf").write_text(f"storePathRootDir={tmp_path / 'a'}\n")
    (tmp_path / "b.conf").write_text(f"storePathRootDir={root}\n")
    _process(tmp_path, "org.apache.rocketmq.container.BrokerContainerStartup", *options, cwd=str(tmp_path))
    assert own_store() == OwnStore(str(root), None, "in b.conf of process 4711")


@pytest.mark.usefixtures("typed")
def test_the_process_of_another_user_shows_whole_paths_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> bool:
        raise PermissionError(path)

    root = _store(tmp_path / "data")
    (tmp_path / "a.conf").write_text(f"storePathRootDir={root}\n")
    _process(tmp_path, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(tmp_path / "a.conf"))
    monkeypatch.setattr(Path, "samefile", refuse)
    assert own_store() == OwnStore(str(root), None, f"in {tmp_path / 'a.conf'} of process 4711")


@pytest.mark.usefixtures("typed")
def test_a_configuration_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    _process(tmp_path, "org.apache.rocketmq.broker.BrokerStartup", "-c", "/not/there.conf")
    assert own_store() is None


def test_a_directory_without_a_log_is_none(typed: Path) -> None:
    (typed / "commitlog").mkdir()
    assert own_store() is None


def test_what_is_set_takes_precedence(typed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _store(typed)
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876")
    assert own_store() is None
    monkeypatch.setenv("RMQTX_STORE", "elsewhere")
    assert own_store() == OwnStore("elsewhere", "$RMQTX_STORE")


@pytest.mark.usefixtures("typed")
def test_a_job_gets_no_store(rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_store, "is_typed", lambda: False)
    monkeypatch.chdir(_store(tmp_path / "here"))
    done = rmqtx("pending")
    assert done.status == 2
    assert "no store and no live broker given" in done.err


@pytest.mark.usefixtures("typed")
def test_the_line_names_the_store(rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = _store(tmp_path / "here")
    monkeypatch.chdir(here)
    assert f"{here}: this store was found in this directory, as none was given" in rmqtx("verify").err
    assert rmqtx("commit", "ID", "--reason", "x").status == 2, "an act names its store"


def test_rmqtx_alone_names_the_store_of_the_environment(
    rmqtx: Run, typed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _store(tmp_path / "here")
    monkeypatch.setattr(command_tree, "is_typed", lambda: True)
    monkeypatch.setenv("RMQTX_STORE", str(root))
    assert f"{root}: the store of $RMQTX_STORE, as none was given" in rmqtx().err
