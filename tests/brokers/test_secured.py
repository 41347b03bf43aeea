"""The command line at brokers with access control and with TLS: right ones get in, wrong ones get one line."""

from __future__ import annotations

import os
import re
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.remoting.connections.batched_reads import Pace, queries
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.transport import tls_context
from rmqtx.remoting.producer.producer import Member, Message, our_client_id
from rmqtx.remoting.protocol.connection_settings import Credentials, RemotingSettings
from rmqtx.remoting.protocol.errors import Refused, Unreachable
from rmqtx_cli.main import status_of
from tests.brokers import maven
from tests.brokers.rig import Rig
from tests.brokers.secured import (
    ADMIN,
    GROUP,
    OPERATOR,
    STRANGER,
    TOPIC,
    USER,
    WRONG_SECRET,
    Certificates,
    guarded_broker,
    make_certificates,
    tls_broker,
)

WHY_NOT = maven.why_not() or (None if shutil.which("openssl") else "openssl is not on the PATH")
pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

NAMED = os.environ.get("RMQTX_BROKER_VERSIONS")
#: Access control is one of two kinds, so both are tried every time.
ACL_VERSIONS = [v for v in NAMED.split() if v in ("4.9.7", "5.3.3", "5.5.0")] if NAMED else ["4.9.7", "5.3.3"]
TLS_VERSIONS = [v for v in NAMED.split() if v >= "4.9"] if NAMED else ["5.3.3"]
KEYS = [f"{1000 + number}5ECFED0000" for number in range(2)]
SECRETS = re.compile("|".join(who.secret_key for who in (ADMIN, OPERATOR, USER, WRONG_SECRET, STRANGER)))


@pytest.fixture(scope="module", params=ACL_VERSIONS)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with guarded_broker(request.param, tmp_path_factory.mktemp("guarded")) as rig:
        member = Member(RemotingSettings(credentials=ADMIN), rig.address, [GROUP], our_client_id(), lambda check: None)
        member.heartbeat()
        for key in KEYS:
            member.send_half(Message(TOPIC, b"half", key))
        member.close()
        yield rig


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Receipts go where nobody else's are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("RMQTX_ACCESS_KEY", "RMQTX_SECRET_KEY", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "state"


def come_as(who: Credentials | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if who is not None:
        monkeypatch.setenv("RMQTX_ACCESS_KEY", who.access_key)
        monkeypatch.setenv("RMQTX_SECRET_KEY", who.secret_key)


def test_the_rights_that_the_manual_names_list_and_settle(
    guarded: Rig, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    come_as(OPERATOR, monkeypatch)
    listed = ["pending", "-n", guarded.name_server, "--format", "csv", "--fields", "transaction_id"]
    assert status_of(listed) == 0
    output = capsys.readouterr()
    assert set(KEYS) <= set(output.out.split())
    assert status_of(["rollback", KEYS[0], "-n", guarded.name_server, "--yes", "--reason", "test"]) == 0
    acted = capsys.readouterr()
    written = "".join(path.read_text() for path in state.rglob("*") if path.is_file())
    assert KEYS[0] in written
    assert not SECRETS.search(output.out + output.err + acted.out + acted.err + written)


def test_a_hold_needs_an_administrator_up_to_5_2_and_any_login_after_that(
    guarded: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    come_as(OPERATOR, monkeypatch)
    hold = ["hold", "-n", guarded.name_server, "--for", "1h", "--reason", "test", "--yes", "--no-wait"]
    is_old = guarded.release < (5, 3)
    assert status_of(hold) == (15 if is_old else 0)
    output = capsys.readouterr()
    assert ("Need admin permission for request code=25" in output.err) == is_old, output.err
    come_as(ADMIN, monkeypatch)
    assert status_of(hold) == 0
    assert status_of(["release", "-n", guarded.name_server, "--yes"]) == 0
    output = capsys.readouterr()
    assert not SECRETS.search(output.out + output.err)


def test_a_drain_needs_the_same_rights_as_a_hold(
    guarded: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    come_as(OPERATOR, monkeypatch)
    drain = ["drain", "--broker", guarded.address, "--for", "1s", "--yes"]
    is_old = guarded.release < (5, 3)
    assert status_of(drain) == (15 if is_old else 1)
    output = capsys.readouterr()
    assert ("Need admin permission for request code=25" in output.err) == is_old, output.err
    assert "safe to stop now" not in output.err
    come_as(ADMIN, monkeypatch)
    assert status_of(drain) == 1
    assert status_of(["release", "--broker", guarded.address, "--yes"]) == 0
    output = capsys.readouterr()
    assert not SECRETS.search(output.out + output.err)


def test_a_file_gives_credentials_too(guarded: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    path.chmod(0o600)
    arguments = ["pending", "-n", guarded.name_server, "--credentials", str(path), "--format", "csv"]
    assert status_of(arguments) == 0
    assert KEYS[1] in capsys.readouterr().out
    path.chmod(0o644)
    assert status_of([*arguments, "--quiet"]) == 0
    assert "other users can read" in capsys.readouterr().err


@pytest.mark.parametrize("who", [WRONG_SECRET, STRANGER, USER, None], ids=["secret", "stranger", "rights", "nobody"])
@pytest.mark.parametrize(
    "words", [["pending"], ["audit"], ["show", KEYS[1]], ["commit", KEYS[1], "--yes"]], ids=lambda words: words[0]
)
def test_wrong_ones_get_one_line(
    guarded: Rig, words: list[str], who: Credentials | None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    come_as(who, monkeypatch)
    monkeypatch.setenv("RMQTX_DEBUG", "1")
    assert status_of([*words, "-n", guarded.name_server]) == 15
    output = capsys.readouterr()
    lines = [line for line in output.err.splitlines() if " refused " in line]
    assert len(lines) == 1, output.err
    assert "--credentials FILE" in lines[0]
    assert output.out == ""
    assert "Traceback" not in output.err
    assert not SECRETS.search(output.err)


def test_a_refusal_is_never_nothing(guarded: Rig) -> None:
    """Neither 'no producer is connected' nor 'no such record': with ACL of 4.x these share a code with it."""
    with Client(RemotingSettings(credentials=STRANGER)) as client:
        broker = Broker(client, guarded.address, "broker-a", "rmqtx")
        for ask in (
            lambda: broker.producer_connections("x"), lambda: broker.view(1 << 40),
            lambda: broker.slots(TOPIC, 0, 0, 1), lambda: broker.pull(TOPIC, 0, 0),
            lambda: list(queries(broker, [(TOPIC, "x")], Pace())), lambda: broker.max_offset(TOPIC),
            lambda: broker.consumer_offset("x", TOPIC), broker.runtime, broker.config,
        ):
            with pytest.raises(Refused) as caught:
                ask()
            shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
            assert not SECRETS.search(shown)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=TLS_VERSIONS)
def enforcing(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    with tls_broker(request.param, tmp_path_factory.mktemp("tls"), certificates, wants_client=True) as rig:
        yield rig


def test_tls_with_both_certificates(
    enforcing: Rig, certificates: Certificates, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: list[object] = ["--tls-ca", certificates.authority, "--tls-cert", certificates.client]
    arguments += ["--tls-key", certificates.client_key]
    assert status_of(["pending", "-n", enforcing.name_server, *map(str, arguments)]) == 0
    assert "nothing is pending" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tls"], "its certificate is not trusted .* --tls-ca FILE"),
        (["--tls-ca", "stranger"], "its certificate is not trusted"),
        (["--tls-ca", "authority", "--tls-server-name", "other.example"], "for another name .* --tls-server-name NAME"),
        (["--tls-ca", "authority"], "--tls-cert FILE|certificate"),
        ([], "--tls"),
    ],
    ids=["system's", "stranger", "name", "no client certificate", "plain"],
)
def test_tls_that_fails_says_why(
    enforcing: Rig, certificates: Certificates, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(getattr(certificates, word)) if word in ("stranger", "authority") else word for word in options]
    assert status_of(["pending", "--broker", enforcing.address, "--timeout", "10s", *words]) == 14
    error = capsys.readouterr().err
    assert re.search(says, error), error
    assert len(error.splitlines()) == 1


@pytest.mark.skipif(NAMED is None, reason="a broker more: make test-brokers starts it")
@pytest.mark.parametrize("version", TLS_VERSIONS)
def test_tls_to_a_broker_without(version: str, certificates: Certificates, tmp_path: Path) -> None:
    settings = RemotingSettings(tls=tls_context(ca=certificates.authority))
    says = pytest.raises(Unreachable, match="leave --tls out")
    with tls_broker(version, tmp_path, certificates, mode="disabled") as rig, Client(settings) as client, says:
        Broker(client, rig.address, "a", "c").version()
