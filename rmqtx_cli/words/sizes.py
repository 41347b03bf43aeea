"""Sizes as people write them, for options."""

from __future__ import annotations

from rmqtx.readers.model.units import parse_size_bytes

__all__ = ["parse_size_bytes"]
