"""`rmqtx` as a program of its own that reads stores at the moment of the tests (`tests/conftest.py`).

With the real clock, what is pending in the corpus gets other flags as the corpus grows old.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RMQTX = [sys.executable, str(Path(__file__).resolve())]

if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    from rmqtx_cli.main import run
    from tests.conftest import one_moment

    with one_moment():
        run()
