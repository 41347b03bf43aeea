"""The error for an interrupted change; in a module of its own, because every command line loads it."""

from __future__ import annotations

from rmqtx.readers.model.errors import RmqtxError


class Interrupted(RmqtxError):
    """A change was interrupted, and must be completed or reverted."""

    status = 130
