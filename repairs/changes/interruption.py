"""What is said when somebody stops a change in its middle; in a module of its own, as every command line loads it."""

from __future__ import annotations

from readers.model.errors import RmqtxError


class Interrupted(RmqtxError):
    """Somebody stopped it in the middle of what must be completed or taken back."""
