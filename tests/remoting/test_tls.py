"""TLS: who is trusted, who is not, and one line that says what to do."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest, UnreadableFile
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.transport import tls_context
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import RemotingError, Unreachable
from rmqtx.remoting.protocol.frames import Frame
from tests.brokers.secured import Certificates, make_certificates
from tests.remoting.fake import Answer, FakeServer, response

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on the PATH: it makes the keys")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def echo(request: Frame) -> Answer:
    return response(request, offset=request.fields["queueId"])


@contextmanager
def speaking_tls(
    certificates: Certificates, *, is_other: bool = False, wants_client: bool = False
) -> Iterator[FakeServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if is_other:
        context.load_cert_chain(certificates.other, certificates.other_key)
    else:
        context.load_cert_chain(certificates.server, certificates.server_key)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.authority)
    with FakeServer(echo, context) as server:
        yield server


def asked(server: FakeServer, context: ssl.SSLContext | None, name: str | None = None) -> int:
    with Client(RemotingSettings(timeout_ms=2000, tls=context, tls_server_name=name)) as client:
        return Broker(client, server.address, "a", "c").min_offset("t", 5)


def test_a_broker_whose_authority_is_named_is_trusted(certificates: Certificates) -> None:
    with speaking_tls(certificates) as server:
        assert asked(server, tls_context(ca=certificates.authority)) == 5


def test_many_threads_send_and_receive_over_one_tls_connection(certificates: Certificates) -> None:
    settings = RemotingSettings(tls=tls_context(ca=certificates.authority))
    with speaking_tls(certificates) as server, Client(settings) as client:
        broker = Broker(client, server.address, "a", "c")
        topic = "t" * 40_000  # several records of TLS each, so that pieces could mix
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda number: broker.min_offset(topic, number), range(400))) == list(range(400))
        assert server.connections == 1


@pytest.mark.parametrize("ca", ["system", "stranger"])
def test_a_stranger_s_certificate_is_refused(certificates: Certificates, ca: str) -> None:
    says = r"cannot use TLS with .*: its certificate is not trusted \(.*\) - give its CA certificate: --tls-ca FILE"
    with speaking_tls(certificates) as server, pytest.raises(Unreachable, match=says):
        asked(server, tls_context(ca=None if ca == "system" else certificates.stranger))


def test_a_certificate_for_another_name_needs_that_name(certificates: Certificates) -> None:
    with speaking_tls(certificates, is_other=True) as server:
        context = tls_context(ca=certificates.authority)
        with pytest.raises(Unreachable, match=r"is for another name .* - give the name in it: --tls-server-name NAME"):
            asked(server, context)
        assert asked(server, context, "broker.example") == 5


def test_insecure_trusts_anybody(certificates: Certificates) -> None:
    with speaking_tls(certificates, is_other=True) as server:
        assert asked(server, tls_context(is_insecure=True)) == 5


def test_a_client_certificate_is_shown_where_one_is_wanted(certificates: Certificates) -> None:
    with speaking_tls(certificates, wants_client=True) as server:
        ours = tls_context(
            ca=certificates.authority, certificate=certificates.client, key=certificates.client_key
        )
        assert asked(server, ours) == 5
        with pytest.raises(RemotingError, match=r"--tls-cert"):
            asked(server, tls_context(ca=certificates.authority))


def test_tls_to_a_plain_port_is_told(certificates: Certificates) -> None:
    says = r"cannot use TLS with .*: it ends the handshake, as a port without TLS does - .*leave --tls out"
    with FakeServer(lambda request: None) as server, pytest.raises(Unreachable, match=says):
        asked(server, tls_context(ca=certificates.authority))


def test_plain_to_a_tls_port_is_told(certificates: Certificates) -> None:
    with speaking_tls(certificates) as server, pytest.raises(RemotingError) as caught:
        asked(server, None)
    assert str(caught.value).endswith(" add --tls")


def test_files_that_are_none_are_named(certificates: Certificates, tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no certificate\n")
    with pytest.raises(UnreadableFile, match=rf"not a certificate in PEM form \({text}\)"):
        tls_context(ca=text)
    with pytest.raises(UnreadableFile, match=r"cannot read the certificate: No such file"):
        tls_context(ca=tmp_path / "none.pem")
    with pytest.raises(UnreadableFile, match="not a certificate and its key"):
        tls_context(certificate=text)
    with pytest.raises(UnreadableFile, match="the key does not belong to the certificate"):
        tls_context(certificate=certificates.client, key=certificates.server_key)
    with pytest.raises(UnreadableFile, match=r"cannot read the file: No such file or directory \(.*none\.key\)"):
        tls_context(certificate=certificates.client, key=tmp_path / "none.key")
    with pytest.raises(BadRequest, match="--tls-key is given without its certificate"):
        tls_context(key=certificates.client_key)
    with pytest.raises(BadRequest, match="leave one out"):
        tls_context(ca=certificates.authority, is_insecure=True)


def test_an_encrypted_key_is_never_asked_for(certificates: Certificates, tmp_path: Path) -> None:
    import subprocess

    key = tmp_path / "encrypted.key"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(certificates.client_key), "-out", str(key)]
    subprocess.run([*command, "-passout", "pass:opensesame"], check=True, capture_output=True)
    with pytest.raises(UnreadableFile, match="RMQTX_TLS_KEY_PASSWORD") as caught:
        tls_context(certificate=certificates.client, key=key, key_password="wrong-4711")
    assert "wrong-4711" not in repr(caught.value)
    with pytest.raises(UnreadableFile, match="RMQTX_TLS_KEY_PASSWORD"):
        tls_context(certificate=certificates.client, key=key)
    tls_context(certificate=certificates.client, key=key, key_password="opensesame")
