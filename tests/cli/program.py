"""`rmqtx` as a program of its own that reads stores at the moment of the tests (`tests/moment.py`).

With the real clock, what is pending in the corpus gets other flags as the corpus grows old.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RMQTX = [sys.executable, str(Path(__file__).resolve())]

if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    from rmqtx.verdicts.evidence import store_facts
    from tests.moment import moment_of

    store_facts.moment_ms = moment_of  # before the modules that import it by name
    from rmqtx_cli.main import run

    run()
