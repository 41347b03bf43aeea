"""RocketMQ's own encoder, decoder and signing hook (Wire.java), of a named version."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote_plus

from rmqtx.remoting.protocol.connection_settings import Credentials
from rmqtx.remoting.protocol.frames import Encoding, Frame
from tests.brokers import maven

WIRE = Path(__file__).with_name("Wire.java")


def classpath(version: str) -> str:
    """The version's jars with our compiled Wire in front of them."""
    found = maven.jars(version)
    digest = hashlib.sha256(WIRE.read_bytes()).hexdigest()[:12]
    classes = maven.cache_directory() / version / f"wire-{digest}"
    if not (classes / "Wire.class").exists():
        command = ["javac", "-nowarn", "-cp", found, "-d", str(classes), str(WIRE)]
        subprocess.run(command, check=True, capture_output=True)
    return f"{classes}{os.pathsep}{found}"


def asked(version: str, lines: Sequence[tuple[str, Mapping[str, str]]]) -> list[dict[str, str]]:
    """What Java answers to some lines, in one process.

    Order: that of the lines.
    """
    text = "".join(
        "\t".join([word, *(f"{quote(name)}={quote(value, safe='')}" for name, value in values.items())]) + "\n"
        for word, values in lines
    )
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath(version), "Wire"]
    done = subprocess.run(command, input=text.encode(), check=True, capture_output=True, timeout=120)
    answers = [line for line in done.stdout.decode().splitlines() if line.startswith("answer")]
    assert len(answers) == len(lines), done.stderr.decode()
    return [
        {unquote_plus(name): unquote_plus(value) for name, _, value in (part.partition("=") for part in rest)}
        for rest in (line.split("\t")[1:] for line in answers)
    ]


def encode_line(
    frame: Frame, header_class: str | None = None, credentials: Credentials | None = None
) -> tuple[str, dict[str, str]]:
    """The line that has Java encode a frame: with a typed header, signed, if these are given."""
    values = {
        "code": str(frame.code), "opaque": str(frame.opaque), "version": str(frame.version), "flag": str(frame.flag),
        "language": frame.language, "type": frame.encoding.name,
        **({} if frame.remark is None else {"remark": frame.remark}),
        **({"body": base64.b64encode(frame.body).decode()} if frame.body else {}),
        **{f"f.{name}": value for name, value in frame.fields.items()},
        **({} if header_class is None else {"class": header_class}),
    }
    if credentials is not None:
        values |= {"access": credentials.access_key, "secret": credentials.secret_key}
        if credentials.security_token is not None:
            values["token"] = credentials.security_token
    return "encode", values


def frame_of(answer: Mapping[str, str], encoding: Encoding = Encoding.JSON) -> Frame:
    """What Java says of a frame, as ours."""
    return Frame(
        int(answer["code"]), int(answer["opaque"]),
        {name[2:]: value for name, value in answer.items() if name.startswith("f.")},
        base64.b64decode(answer.get("body", "")), int(answer["flag"]), answer.get("remark"), int(answer["version"]),
        answer["language"], encoding,
    )
