"""The approval of a plan: a signature of its file by a second person, verified by ssh-keygen.

OpenSSH has keys, an agent, hardware tokens and a file of allowed signers (`ssh-keygen(1)`); rmqtx has none of these.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from rmqtx.readers.model.errors import NotApproved, UnreadableFile
from rmqtx.readers.model.shell_words import quoted
from rmqtx.repairs.receipts.plan_file import Plan

#: What a signature is for: one for another purpose, like a commit of git, approves no plan.
NAMESPACE = "rmqtx-plan"
_PROGRAM = "ssh-keygen"
_SECONDS_MAX = 60
_KEY = re.compile(r" with (\S+ key \S+)\s*$")
_SUDO = re.compile(r"\(sudo by ([^)]*)\)")
_PATTERN = re.compile(r"[*?!]")
_FIELD = re.compile(r'"([^"]*)"|([^\s#]\S*)')


def approval(plan: Plan, text: bytes, file: Path, allowed: Path) -> str:
    """Return the approver of a plan, and the key: `giulia@shop with ED25519 key SHA256:...`.

    `text`: the content of the file; `allowed`: the allowed-signers file. The signature is in FILE.sig.
    Raises: NotApproved with the reason; UnreadableFile.
    """
    signature = file.with_name(f"{file.name}.sig")
    for one in (allowed, signature):
        try:
            one.read_bytes()
        except FileNotFoundError as error:
            if one is allowed:
                raise UnreadableFile(f"cannot read {one}: {error.strerror}", file=one) from error
            sign = f"{_PROGRAM} -Y sign -f KEY -n {NAMESPACE} {quoted(str(file))}"
            raise NotApproved(
                f"{file} is not approved: {one} does not exist", advice=f"another person signs it: {sign}"
            ) from error
        except OSError as error:
            raise UnreadableFile(f"cannot read {one}: {error.strerror}", file=one) from error
    authors = people(plan.written_by)
    if not authors:
        raise NotApproved(f"{file} does not name its author", advice="write it again with this release of rmqtx")
    signer = _signer(signature, allowed)
    found = _verified(signer, text, signature, allowed)
    if found.returncode != 0:
        raise NotApproved(
            f"{signature} does not approve {file} as it is now: {_line(found)}",
            advice=f"was the plan altered after {signer} signed it, or signed without -n {NAMESPACE}?",
        )
    # ssh-keygen names the first line with the key; the same key may have further names.
    for name in dict.fromkeys([signer, *_names(allowed)]):
        is_doubtful = _user(name) in authors or _PATTERN.search(name) is not None
        if is_doubtful and _verified(name, text, signature, allowed).returncode == 0:
            _refuse(name, authors, signature)
    key = _KEY.search(found.stdout)
    return signer if key is None else f"{signer} with {key[1]}"


def people(names: Iterable[str]) -> frozenset[str]:
    """Return the users in names as receipts have them: of `root@host (sudo by paolo)` root and paolo."""
    found = set()
    for name in names:
        found.add(_user(name))
        found.update(_user(one) for one in _SUDO.findall(name))
    return frozenset(found - {""})


def _user(name: str) -> str:
    return name.partition("@")[0].strip().casefold()


def _signer(signature: Path, allowed: Path) -> str:
    """Return the first name that the allowed-signers file has for the key of a signature."""
    found = _run("-Y", "find-principals", "-s", signature, "-f", allowed)
    names = [line.strip() for line in found.stdout.splitlines() if line.strip()]
    if found.returncode != 0 or not names:
        raise NotApproved(
            f"{signature} is not by a key of {allowed}: {_line(found)}", advice="the signer's key must be in that file"
        )
    return names[0].partition(",")[0]


def _names(allowed: Path) -> list[str]:
    """Return every name in an allowed-signers file: the first field of each line, which may be quoted, is a list."""
    text = allowed.read_bytes().decode("utf-8", "surrogateescape")
    fields = (_FIELD.match(line.strip()) for line in text.splitlines())
    return [one.strip() for field in fields if field for one in (field[1] or field[2]).split(",") if one.strip()]


def _verified(name: str, text: bytes, signature: Path, allowed: Path) -> subprocess.CompletedProcess[str]:
    """Verify a signature as one of this name."""
    return _run("-Y", "verify", "-f", allowed, "-I", name, "-n", NAMESPACE, "-s", signature, given=text)


def _refuse(name: str, authors: frozenset[str], signature: Path) -> NoReturn:
    if _user(name) in authors:
        raise NotApproved(f"{signature} is by {name}, an author of the plan", advice="another person must approve it")
    raise NotApproved(
        f"{signature} is by a key for the pattern {name}, which names no person",
        advice="give each key its own name in the allowed-signers file",
    )


def _run(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    words = [_PROGRAM, *map(str, arguments)]
    try:
        ran = subprocess.run(
            words, input=given, capture_output=True, timeout=_SECONDS_MAX, check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError as error:
        raise NotApproved(
            f"cannot verify an approval: {_PROGRAM} was not found", advice="install OpenSSH 8.2 or later"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotApproved(f"cannot verify an approval: {_PROGRAM} failed: {error}") from error
    out, errors = (part.decode("utf-8", "backslashreplace") for part in (ran.stdout, ran.stderr))
    return subprocess.CompletedProcess(words, ran.returncode, out, errors)


def _line(ran: subprocess.CompletedProcess[str]) -> str:
    """What ssh-keygen printed, in one line."""
    errors = " ".join(f"{ran.stderr} {ran.stdout if ran.returncode else ''}".split())
    return errors or f"{_PROGRAM} ended with status {ran.returncode}"
