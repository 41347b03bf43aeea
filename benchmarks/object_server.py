"""A read-only object store for one directory, by the part of S3's protocol that reading needs.

Each request is counted, and answered after a delay.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

BUCKET = "evidence"
#: S3 gives at most this many keys an answer.
KEYS_MAX = 1000
_CHUNK_BYTES = 1 << 20


class Asked(NamedTuple):
    """A request: `begin` and `end` are the bytes of the object that it asks for, in a listing 0."""

    method: str
    key: str
    begin: int
    end: int


@dataclass
class ObjectServer:
    """A running server. `requests`, `sent_bytes`: since `reset`, listings and answers without a body included.

    `delay_s`: time before each answer. `asked`: what the requests asked for, in their order.
    """

    endpoint: str = ""
    delay_s: float = 0.0
    requests: int = 0
    sent_bytes: int = 0
    asked: list[Asked] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to talk to the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }

    def reset(self, delay_s: float) -> None:
        """Count from zero, and answer later from now on."""
        with self._lock:
            self.requests = self.sent_bytes = 0
            self.delay_s = delay_s
            self.asked.clear()

    def count(self, requests: int, sent_bytes: int) -> None:
        """Add to the counts."""
        with self._lock:
            self.requests += requests
            self.sent_bytes += sent_bytes


@contextmanager
def serving(directory: Path) -> Iterator[ObjectServer]:
    """Serve the files of a directory as `s3://BUCKET/...` for the duration of a block."""
    counted = ObjectServer()

    class Handler(_Handler):
        root, served = directory.resolve(), counted

    server = _Server(("127.0.0.1", 0), Handler)
    counted.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield counted
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that closes its connection is not an error."""


class _Handler(BaseHTTPRequestHandler):
    """Answers HEAD and GET of an object, with or without a range, and ListObjectsV2 of the bucket."""

    protocol_version = "HTTP/1.1"  # as S3 does: the connection stays open
    disable_nagle_algorithm = True  # else a small answer waits 40 ms for the acknowledgement of its head
    root: Path
    served: ObjectServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        time.sleep(self.served.delay_s)
        self.served.count(1, 0)
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        path = self.root / key
        if bucket != BUCKET:
            self._send_text(404, "<Error><Code>NoSuchBucket</Code></Error>", has_body=has_body)
        elif not key:
            found = self._listing({name: words[0] for name, words in parse_qs(parts.query).items()})
            self._send_text(200, found, has_body=has_body)
        elif not path.is_file() or self.root not in path.resolve().parents:
            self._send_text(404, "<Error><Code>NoSuchKey</Code></Error>", has_body=has_body)
        else:
            self._send_object(path, has_body=has_body)

    def _send_text(self, status: int, text: str, *, has_body: bool) -> None:
        data = f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if has_body:
            self.served.count(0, len(data))
            self.wfile.write(data)

    def _send_object(self, path: Path, *, has_body: bool) -> None:
        state = path.stat()
        first, end = 0, state.st_size
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes="):
            start, _, last = wanted.removeprefix("bytes=").partition("-")
            first, end = int(start), min(int(last) + 1 if last else end, end)
        self.served.asked.append(Asked(self.command, path.relative_to(self.root).as_posix(), first, end))
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{state.st_size}")
        self.send_header("Content-Length", str(max(end - first, 0)))
        self.send_header("Last-Modified", formatdate(state.st_mtime, usegmt=True))
        self.send_header("ETag", f'"{state.st_mtime_ns:x}-{state.st_size:x}"')
        self.end_headers()
        if has_body:
            self._send_range(path, first, end)

    def _send_range(self, path: Path, first: int, end: int) -> None:
        with path.open("rb", buffering=0) as file:
            while first < end and (data := os.pread(file.fileno(), min(end - first, _CHUNK_BYTES), first)):
                self.wfile.write(data)
                self.served.count(0, len(data))
                first += len(data)

    def _listing(self, query: dict[str, str]) -> str:
        """Return ListObjectsV2's answer; a key is below the root, a prefix with a delimiter gives folders too."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", query.get("start-after", ""))
        entries: dict[str, str] = {}
        for key, path in self._objects():
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folder = prefix + rest.partition(delimiter)[0] + delimiter
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = _entry(key, path)
        names = sorted(name for name in entries if name > after)
        shown = names[: int(query.get("max-keys", KEYS_MAX))]
        is_cut = len(shown) < len(names)
        more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if is_cut and shown else ""
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(shown)}</KeyCount>"
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{more}{''.join(entries[name] for name in shown)}"
            "</ListBucketResult>"
        )

    def _objects(self) -> Iterator[tuple[str, Path]]:
        for path in self.root.rglob("*"):
            if path.is_file():
                yield path.relative_to(self.root).as_posix(), path


def _entry(key: str, path: Path) -> str:
    state = path.stat()
    modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(state.st_mtime))
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified><Size>{state.st_size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )
