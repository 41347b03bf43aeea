"""The custody that a file's schema carries, as a test reads it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from rmqtx.verdicts.audit.provenance import METADATA_KEY


def custody_of(schema: pa.Schema) -> dict[str, Any] | None:
    """None where it carries none."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    return None if text is None else dict(json.loads(text))
