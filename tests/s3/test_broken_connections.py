"""Connections that break off, servers that refuse: the bytes are right or an error names the cause, in one line."""

from __future__ import annotations

import itertools
import random
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rmqtx.readers.storage.remote_systems import as_os_error
from rmqtx.readers.storage.segments import open_file
from tests.cli.conftest import Run, rmqtx

__all__ = ["rmqtx"]

DATA = random.Random(5).randbytes(1 << 20)
_NUMBERS = itertools.count()


@dataclass
class Fake:
    """A server of one object. `sent_max`: after so many bytes of an answer its connection breaks off.

    `refused`: status and code of the next answers. `ranges`: begin and length of each range that was asked for.
    """

    sent_max: Callable[[int], int]
    place: str = ""
    refused: list[tuple[int, str]] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """A server in this process; each has a URI of its own, since clients are kept by URI."""
    fake = Fake(sent_max=lambda _: len(DATA))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def do_HEAD(self) -> None:
            self._answer(200, b"", len(DATA))

        def do_GET(self) -> None:
            if fake.refused:
                status, code = fake.refused.pop()
                text = f"<Error><Code>{code}</Code><Message>expecting 'eu-west-1'</Message></Error>".encode()
                self._answer(status, text, len(text))
                return
            begin, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            fake.ranges.append((begin, last + 1 - begin))
            sent = DATA[begin : last + 1][: fake.sent_max(len(fake.ranges))]
            self._answer(206, sent, last + 1 - begin)
            if len(sent) < last + 1 - begin:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        def _answer(self, status: int, body: bytes, length: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.send_header("Last-Modified", "Sun, 29 Nov 2026 23:00:00 GMT")
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fake.place = (
        f"s3://fake{next(_NUMBERS)}/data?region=us-east-1&scheme=http"
        f"&endpoint_override=127.0.0.1:{server.server_port}"
    )
    yield fake
    server.shutdown()
    server.server_close()


def test_a_connection_that_breaks_off_once_loses_nothing(fake: Fake) -> None:
    fake.sent_max = lambda number: 1000 if number == 1 else len(DATA)
    with open_file(fake.place, len(DATA), 1) as file:
        assert file.read(0, len(DATA)) == DATA
    assert len(fake.ranges) == 2


def test_throttled_requests_are_repeated(fake: Fake) -> None:
    fake.refused = [(503, "SlowDown")] * 2
    with open_file(fake.place, len(DATA), 1) as file:
        assert file.read(0, len(DATA)) == DATA
    assert not fake.refused


@pytest.mark.slow  # the client repeats the request for seconds
def test_connections_that_always_break_off_give_short_ranges(fake: Fake) -> None:
    fake.sent_max = lambda _: 200_000
    with open_file(fake.place, len(DATA), 1) as file:
        assert file.read(5, len(DATA)) == DATA[5:]
    whole = fake.ranges.index(next(one for one in fake.ranges if one[1] < 200_000))
    parts = fake.ranges[whole:]
    assert [begin for begin, _ in parts] == [0, *itertools.accumulate(length for _, length in parts)][:-1]
    assert sum(length for _, length in parts) == len(DATA)


def test_short_ranges_are_the_same_bytes(fake: Fake) -> None:
    with open_file(fake.place, len(DATA), 1) as file:
        file.handle.breaks_off = True  # type: ignore[attr-defined]
        assert bytes(file.fetch(5, 900_000)) == DATA[5:900_005]  # type: ignore[attr-defined]
    assert len(fake.ranges) == 7


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (400, "ExpiredToken", "the credentials have expired: renew them (ExpiredToken)"),
        (301, "PermanentRedirect", "the bucket is in another region, eu-west-1: set AWS_DEFAULT_REGION"),
        (400, "AuthorizationHeaderMalformed", "the bucket is in another region, eu-west-1: set AWS_DEFAULT_REGION"),
        (403, "SignatureDoesNotMatch", "the server does not accept these credentials"),
    ],
)
def test_a_refusal_is_10_and_one_line_with_its_remedy(
    fake: Fake, rmqtx: Run, status: int, code: str, words: str
) -> None:
    fake.refused = [(status, code)] * 2
    result = rmqtx("pending", fake.place)
    assert (result.status, result.out, len(result.err.splitlines())) == (10, "", 1)
    assert words in result.err
    assert len(fake.refused) == 1


def test_a_server_that_throttles_on_is_named() -> None:
    """The words of the client when it has given up, after seconds."""
    error = OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate.")
    words = "the server asks for fewer requests, and refused repeated ones too: try again later (SLOW_DOWN)"
    assert as_os_error(error).strerror == words
