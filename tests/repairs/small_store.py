"""A store so small that every crash of a change of it can be tried, and changes of it."""

from __future__ import annotations

from pathlib import Path

from rmqtx.repairs.changes.change_sets import Barrier, ChangeSet, CreateFile, RemoveFile, ReplaceFile, WriteAt

SEGMENT, NEXT = "commitlog/00000000000000000000", "commitlog/00000000000000004096"
CURSORS = "config/consumerOffset.json"

#: What an act does that closes a file of the log and begins the next.
ROLL_OVER = ChangeSet((
    CreateFile("abort", 0),
    Barrier(),
    WriteAt(SEGMENT, 3000, b"\xcb" * 1096),
    CreateFile(NEXT, 4096, b"\xda" * 900),
    Barrier(),
    ReplaceFile(CURSORS, b'{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:8}}}'),
))
#: Every kind of change, in many places.
SCATTERED = ChangeSet((
    WriteAt(SEGMENT, 100, b"a" * 700),
    WriteAt(SEGMENT, 2900, b"b" * 30),
    WriteAt("consumequeue/T/0/00000000000000000000", 40, b"\1" * 20),
    RemoveFile("checkpoint"),
    CreateFile("config/new.json", 3, b"{}\n"),
    Barrier(),
    ReplaceFile(CURSORS + ".bak", b"{}"),
    RemoveFile(CURSORS),
))
#: Files of a directory that is a file system of its own cannot be made elsewhere and renamed.
ON_ANOTHER_DISK = ChangeSet((
    WriteAt(SEGMENT, 3000, b"\xcb" * 1096), CreateFile(NEXT, 4096, b"\xda" * 900),
    RemoveFile("consumequeue/T/0/00000000000000000000"), Barrier(), CreateFile("abort", 0),
))
CHANGE_SETS = {"roll-over": ROLL_OVER, "scattered": SCATTERED, "on another disk": ON_ANOTHER_DISK}


def lay_out_store(root: Path) -> Path:
    """Write the files of a small store below a directory; gives the directory."""
    files = {
        SEGMENT: b"\xaa" * 3000 + bytes(1096), "consumequeue/T/0/00000000000000000000": bytes(200), "lock": b"lock",
        "checkpoint": bytes(range(64)), CURSORS: b'{"offsetTable":{}}', "config/topics.json": b"{}",
    }
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def facts(root: Path) -> dict[str, object]:
    """Every path below a directory with its content, mode and time."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (content, status.st_mode, status.st_mtime_ns)
    return found
