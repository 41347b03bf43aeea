"""Where receipts, and what commands keep for their next runs, are on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def state_directory() -> Path:
    """Directory of the receipts, and of the state that `check` and `verify` keep for their next runs.

    RMQTX_STATE_DIR, else rmqtx in XDG_STATE_HOME, which is ~/.local/state by default.
    """
    own = os.environ.get("RMQTX_STATE_DIR")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path must be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "rmqtx"
