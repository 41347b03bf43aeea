"""What packages of a release are made of, without building one: the root, lists of files, the start of the one file."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer

from rmqtx_cli.main import app
from tests.cli.test_deployed import DEPLOY, ROOT

RELEASE = DEPLOY / "release"
UNITS = "usr/lib/systemd/system"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a package, with a stand-in for Python and all packages."""
    directory = tmp_path_factory.mktemp("package")
    start = directory / "tree" / "bin" / "rmqtx"
    start.parent.mkdir(parents=True)
    start.write_text("#!/bin/sh\necho $_RMQTX_COMPLETE\n")
    start.chmod(0o755)
    subprocess.run(
        [RELEASE / "root.sh", directory / "tree", directory / "root", UNITS], check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
    )
    return directory / "root"


def test_units_run_commands_of_the_program_with_the_configuration_of_the_package(root: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    services = sorted((root / UNITS).glob("*.service"))
    assert [one.name for one in services] == ["rmqtx-check.service", "rmqtx-exporter.service"]
    for file in services:
        text = file.read_text("utf-8")
        [line] = re.findall(r"^ExecStart=(.*)", text, re.MULTILINE)
        program, name, *words = shlex.split(line)
        assert (program, "/data/" in line) == ("/usr/bin/rmqtx", False)
        commands[name].make_context("rmqtx", words)
        assert "\nEnvironment=RMQTX_CONFIG=/etc/rmqtx/config.toml\n" in text


def test_each_path_of_the_lists_is_there(root: Path) -> None:
    listed = (RELEASE / "deb" / "conffiles").read_text("utf-8").split()
    spec = (RELEASE / "rpm" / "rmqtx.spec").read_text("utf-8")
    listed += re.findall(r"^(?:%\w+(?:\(\w+\))? )?(/\S+)$", spec.split("%files")[1], re.MULTILINE)
    assert len(listed) > 8
    for path in listed:
        assert list(root.glob(path[1:])), path
    kept = {file.name.removesuffix(".gz") for file in (root / "usr/share/man").rglob("*.gz")}
    assert kept == {file.name for file in (ROOT / "man").iterdir()}


def test_everything_has_the_time_of_the_commit(root: Path) -> None:
    assert {file.lstat().st_mtime for file in root.rglob("*")} <= {1700000000}


def one_file(directory: Path, payload: bytes) -> Path:
    """The one file with a payload, as the makefile puts both together."""
    head = (RELEASE / "onefile.sh").read_text("utf-8")
    head = head.replace("@SUM@", "one").replace("@LINES@", str(head.count("\n") + 1))
    file = directory / "rmqtx"
    file.write_bytes(head.encode() + payload)
    file.chmod(0o755)
    return file


def payload() -> bytes:
    """A tree in which a script stands for Python."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("bin/python3")
        script = b'#!/bin/sh\necho "$2"; shift 2; echo "$@"; exit 7\n'
        member.size, member.mode = len(script), 0o755
        archive.addfile(member, io.BytesIO(script))
    return packed.getvalue()


def started(file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the one file printed."""
    return subprocess.run(
        [file, "a b", "c"], env={"PATH": os.defpath, **environment}, capture_output=True, text=True, check=False
    )


def test_the_one_file_unpacks_once_and_passes_words_and_status(tmp_path: Path) -> None:
    file = one_file(tmp_path, payload())
    for _ in range(2):
        done = started(file, HOME=str(tmp_path))
        assert (done.returncode, done.stderr) == (7, "")
        assert done.stdout == f"{tmp_path}/.cache/rmqtx-onefile/one/bin/rmqtx\na b c\n"
        (tmp_path / ".cache/rmqtx-onefile").chmod(0o500)  # a second unpacking would fail
    assert [one.name for one in (tmp_path / ".cache/rmqtx-onefile").iterdir()] == ["one"]
    (tmp_path / ".cache/rmqtx-onefile").chmod(0o700)


def test_a_cut_one_file_starts_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    done = started(one_file(tmp_path, payload()[:-30]), RMQTX_UNPACKED=str(tmp_path / "to"))
    assert done.returncode == 10
    assert "could not unpack" in done.stderr
    assert list((tmp_path / "to").iterdir()) == []


def test_the_one_file_needs_a_place(tmp_path: Path) -> None:
    done = started(one_file(tmp_path, payload()))
    assert done.returncode == 2
    assert "RMQTX_UNPACKED" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_the_one_file_runs_nothing_of_another_user(tmp_path: Path) -> None:
    file = one_file(tmp_path, payload())
    started(file, HOME=str(tmp_path))
    os.chown(tmp_path / ".cache/rmqtx-onefile/one", 1, 1)
    done = started(file, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (10, "")
    assert "belongs to another user" in done.stderr


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """The address of a mirror of Debian with one package."""
    package = tmp_path / "served/debian/pool/one.deb"
    package.parent.mkdir(parents=True)
    package.write_bytes(b"one")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/debian"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"one", "one", ""),
        (b"two", "one", "not " + hashlib.sha256(b"two").hexdigest()),
        (b"one", "two", "404"),
        (b"one", "", "names no file"),
    ],
)
def test_only_a_package_with_its_digest_is_fetched(
    content: bytes, name: str, words: str, mirror: str, tmp_path: Path
) -> None:
    listed = tmp_path / "list"
    line = f"{hashlib.sha256(content).hexdigest()}  debian/pool/{name}.deb\n"
    listed.write_text(f"# In Debian at 20261130T000000Z.\n{line if name else ''}")
    done = subprocess.run(
        [sys.executable, RELEASE / "debian.py", listed, tmp_path / "to"], capture_output=True, text=True, check=False,
        env={**os.environ, "RMQTX_MIRROR": mirror},
    )
    assert (done.returncode, words in done.stderr) == (1 if words else 0, True)
    assert [file.read_bytes() for file in (tmp_path / "to").rglob("*")] == ([] if words else [b"one"])


def test_lists_of_debian_name_packages_and_sources_by_digest() -> None:
    for name, suffix in (("base.packages", r"\.deb"), ("interpreter.sources", r"\.(dsc|tar\.xz)")):
        first, *lines = (RELEASE / name).read_text("utf-8").splitlines()
        assert re.search(r" in Debian at \d{8}T\d{6}Z\.$", first)
        assert len(lines) > 6
        form = re.compile(rf"[0-9a-f]{{64}}  debian(-security)?/pool/\S+{suffix}")
        assert [one for one in lines if not form.fullmatch(one)] == []


def _image(file: Path, name: str) -> None:
    """An image as buildah writes it, in the container of this name."""
    configuration = {"container": name, "config": {"Hostname": name, "User": "3000:3000"}, "os": "linux"}
    data = json.dumps(configuration).encode()
    config = f"{hashlib.sha256(data).hexdigest()}.json"
    manifest = [{"Config": config, "RepoTags": ["rmqtx:1"], "Layers": ["one.tar"]}]
    with tarfile.open(file, "w") as archive:
        listed = json.dumps(manifest).encode()
        for member, content in ((config, data), ("one.tar", b"layer"), ("manifest.json", listed)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_images_of_two_containers_are_the_same(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.tar" for name in ("a", "b")]
    for file in files:
        _image(file, file.stem)
        subprocess.run([sys.executable, RELEASE / "same_image.py", file], check=True)
    assert files[0].read_bytes() == files[1].read_bytes()
    with tarfile.open(files[0]) as archive:
        content = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    [image] = json.loads(content["manifest.json"])
    assert (image["RepoTags"], content["one.tar"]) == (["rmqtx:1"], b"layer")
    assert image["Config"] == f"{hashlib.sha256(content[image['Config']]).hexdigest()}.json"
    assert json.loads(content[image["Config"]]) == {"config": {"User": "3000:3000"}, "os": "linux"}


def test_lists_of_installed_packages_name_what_is_there(tmp_path: Path) -> None:
    info = tmp_path / "lib/python3.13/dist-packages/one-1.dist-info"
    info.mkdir(parents=True)
    (info.parent / "one.py").write_text("")
    (info / "direct_url.json").write_text('{"url": "file:///place/of/the/build"}')
    names = ("one.py", "one_test.py", "bin/one", "one-1.dist-info/direct_url.json", "one-1.dist-info/RECORD")
    (info / "RECORD").write_text("".join(f"{name},sha256=x,1\n" for name in names))
    script = "import pathlib, sys, tree; tree.record_what_is_left(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True, env={**os.environ, "PYTHONPATH": str(RELEASE)})
    assert (info / "RECORD").read_text() == "one.py,sha256=x,1\none-1.dist-info/RECORD,sha256=x,1\n"
    assert not (info / "direct_url.json").exists()
