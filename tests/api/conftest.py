"""The commands, to compare with."""

from __future__ import annotations

from tests.cli.conftest import rmqtx as command

__all__ = ["command"]
