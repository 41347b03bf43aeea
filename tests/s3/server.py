"""An S3-compatible server in a process of its own: moto, with every request counted.

It serves on a free port of 127.0.0.1 until its standard input closes, so it never outlives whoever started it.
`python -m tests.s3.server` starts one by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Where the server answers questions about itself.
_CONTROL = "/-/"
KEY, SECRET = "test-key", "test-secret-that-must-not-be-shown"
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server. `environment`: what a process needs to talk to it, as an operator would set it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _file_system(self) -> Any:
        from pyarrow import fs

        return fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, region=REGION, endpoint_override=self.endpoint,
            allow_bucket_creation=True,
        )

    def upload(self, directory: Path, to: str) -> str:
        """Copy a directory to `bucket/path`; gives its URI."""
        system = self._file_system()
        system.create_dir(to.partition("/")[0])
        for file in sorted(directory.rglob("*")):
            if file.is_file():
                self.put(f"{to}/{file.relative_to(directory).as_posix()}", file.read_bytes())
        return f"s3://{to}"

    def put(self, path: str, data: bytes) -> None:
        """Write one object."""
        with self._file_system().open_output_stream(path) as stream:
            stream.write(data)

    def delete(self, path: str) -> None:
        """Remove one object."""
        self._file_system().delete_file(path)

    def requests(self) -> list[str]:
        """The requests since this was asked last: `GET /bucket/key 0-4095`."""
        found: list[str] = self._ask("requests")
        return found

    def require_signatures(self, *, of_anybody_known: bool) -> None:
        """From now on only keys that IAM knows may do anything; false allows everybody everything again."""
        self._ask(f"free-requests?{'0' if of_anybody_known else 'inf'}")

    def _ask(self, question: str) -> Any:
        with urllib.request.urlopen(f"{self.endpoint}{_CONTROL}{question}") as answer:
            return json.load(answer)


@contextmanager
def serving() -> Iterator[S3Server]:
    """A server for the duration of a block."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.s3.server"], cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        endpoint = process.stdout.readline().strip()
        assert endpoint.startswith("http"), "the S3 server did not start"
        yield S3Server(endpoint)
    finally:
        process.stdin.close()
        process.wait(timeout=300)
        process.stdout.close()


class _Counted:
    """The application with a record of its requests."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._seen: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path.startswith(_CONTROL):
            return self._control(path.removeprefix(_CONTROL), environ["QUERY_STRING"], start_response)
        words = [environ["REQUEST_METHOD"], path, environ["QUERY_STRING"], environ.get("HTTP_RANGE", "")]
        self._seen.append(" ".join(word for word in words if word))
        return self._application(environ, start_response)

    def _control(self, name: str, query: str, start_response: Any) -> list[bytes]:
        answer: Any = None
        if name == "requests":
            answer, self._seen = self._seen, []
        elif name == "free-requests":
            from moto import settings

            settings.INITIAL_NO_AUTH_ACTION_COUNT = float(query)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


def main() -> None:
    """Serve until standard input closes."""
    from threading import Thread

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # as S3 does: the connection stays open

        def log(self, *_: Any, **__: Any) -> None:
            pass

    application = _Counted(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
