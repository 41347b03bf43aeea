"""The command `rmqtx`: parse, call, print. It decodes no bytes and contains no rules.

Importing this package, and `rmqtx --help`, load neither pyarrow nor numpy nor pyspark: commands import what they call
when they run (a test holds that), because an operator's shell should answer at once.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_HOME = Path(__file__).resolve().parent.parent


def _refuse_foreign_packages() -> None:
    """End with one sentence if Python would import another package of the same name instead of one of ours."""
    for name in ("readers", "verdicts", "remoting", "repairs", "spark_tasks"):
        spec = find_spec(name)
        if spec is None or spec.origin is None or Path(spec.origin).resolve().parent != _HOME / name:
            found = "is missing" if spec is None else f"is another's: {spec.origin or name}"
            sys.stderr.write(
                f"rmqtx: the Python package {name} {found} - rmqtx needs its own, in {_HOME}: look at PYTHONPATH\n"
            )
            raise SystemExit(2)


_refuse_foreign_packages()
