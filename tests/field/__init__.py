"""Stores on which public reports of operators were played with real brokers; beside each, what is right and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.brokers.corpus import unpack_archive

_HERE = Path(__file__).resolve().parent


def field_stores(name: str, to: Path) -> Path:
    """Unpack the stores of a report below a directory; return the directory that has `store`, or `master` and `slave`.
    """
    return unpack_archive(_HERE / name / "store.tar.xz", to / name).parent


def right(name: str) -> dict[str, Any]:
    """What is right for the stores of a report."""
    found: dict[str, Any] = json.loads((_HERE / name / "right.json").read_text(encoding="utf-8"))["right"]
    return found
