"""Open file systems with pyarrow, mostly those of URIs, and convert their errors to OSErrors."""

from __future__ import annotations

import errno
import functools
import os
import re

import pyarrow as pa
from pyarrow import fs

from rmqtx.readers.storage.places import Uri, is_uri, uri_of

_REASON_CHARACTERS_MAX = 300
#: The most requests under way.
CONNECTIONS = 32


#: Schemes of other tools, with the scheme that pyarrow uses.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


#: Google's client retries for 15 minutes by default, even if a name is only misspelt.
_GS_RETRY = "retry_limit_seconds"


#: What refusals of S3 mean, and what to do, by the words of the client; the region is what the server expects.
_REFUSALS = (
    (re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired"), "the credentials have expired: renew them"),
    (
        re.compile(r"PermanentRedirect|AuthorizationHeaderMalformed|HTTP status 301"),
        "the bucket is in another region{region}: set AWS_DEFAULT_REGION, or add ?region=REGION to the URI",
    ),
    (
        re.compile(r"SLOW_DOWN|SlowDown|THROTTLING|TooManyRequests|REQUEST_LIMIT_EXCEEDED"),
        "the server asks for fewer requests, and refused repeated ones too: try again later",
    ),
    (
        re.compile(r"INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|InvalidAccessKeyId|SignatureDoesNotMatch"),
        "the server does not accept these credentials: examine AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (re.compile(r"REQUEST_TIME_TOO_SKEWED"), "the clocks of this machine and of the server differ too much"),
    (
        re.compile(r"NETWORK_CONNECTION"),
        "no connection to the server, or it broke off, and so did repeated ones{detail}: examine the network and "
        "AWS_ENDPOINT_URL, and run the command again",
    ),
)
_CURL_DETAIL = re.compile(r"curlCode: \d+, ([^;]+)")
_EXPECTED_REGION = re.compile(r"expecting '([\w-]+)'")
#: A connection that broke off after some bytes, by the number of curl; not a server that cannot be reached.
_BROKEN_OFF = re.compile(r"NETWORK_CONNECTION.*curlCode: (18|28|52|55|56|92)\b", re.DOTALL)


_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY")


@functools.lru_cache(maxsize=64)
def _file_system(base: Uri) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI without its path, and the root's path in it.

    It is opened from a URI, because pyarrow reads AWS_ENDPOINT_URL only then.
    """
    scheme, query = _SCHEMES.get(base.scheme, base.scheme), base.query
    if scheme == "gs" and _GS_RETRY not in query:
        query = f"{query}&{_GS_RETRY}=20" if query else f"?{_GS_RETRY}=20"
    known = base._replace(scheme=scheme, query=query).base
    # The number of connections of a client is that of the threads that pyarrow reads with when the client is made.
    pa.set_io_thread_count(max(CONNECTIONS, pa.io_thread_count()))
    try:
        system, root = fs.FileSystem.from_uri(known)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem" in str(error):
            raise OSError(errno.EPROTONOSUPPORT, f"pyarrow cannot open {base.scheme}:// file systems") from error
        raise OSError(errno.EINVAL, _reason(error)) from error
    return system, root.rstrip("/")


def opened(place: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a place, a URI or a path of this machine, and the path in it. Raises: OSError."""
    if not is_uri(place):
        return fs.LocalFileSystem(), place
    uri = uri_of(place)
    try:
        system, root = _file_system(uri._replace(path=""))
    except (pa.ArrowException, OSError) as error:
        raise as_os_error(error) from error
    return system, root + uri.path


def _reason(error: BaseException) -> str:
    """Return the error message of the file system's client as one line, without request numbers and secrets."""
    text = " ".join(str(error).split())
    text = re.sub(r" \(Request ID: [^)]*\)|^\[Errno \d+\] ", "", text)
    for name in _SECRETS:
        value = os.environ.get(name)
        if value:
            text = text.replace(value, f"${name}")
    for pattern, words in _REFUSALS:
        if found := pattern.search(text):
            region, detail = _EXPECTED_REGION.search(text), _CURL_DETAIL.search(text)
            known = {
                "region": f", {region[1]}" if region else "", "detail": f" ({detail[1].lower()})" if detail else "",
            }
            return f"{words.format(**known)} ({found[0]})"
    return text[:_REASON_CHARACTERS_MAX]


def is_broken_off(error: BaseException) -> bool:
    """Whether a read failed because its connection broke off, each time it was tried."""
    return _BROKEN_OFF.search(str(error)) is not None


def as_os_error(error: BaseException) -> OSError:
    """Return the error as an OSError with the reason in `strerror`."""
    if isinstance(error, OSError) and error.strerror is not None and error.errno not in (None, errno.ENOENT):
        return error
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return OSError(errno.EIO, _reason(error))
