"""`python -m tests.guided TARGET --seconds N`: fuzz a decoder where atheris is installed; `--all` each for so long.

The inputs that reach new branches are added to the corpus of the target with `--keep`.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.guided import corpora

INPUT_BYTES_MAX = 4096
#: Of a target: `make test` plays each of them.
KEPT_MAX = 100
_SPARE_SECONDS = 900


def main() -> int:
    """Exit status 1 if an input made a target fail; 2 without atheris."""
    parser = argparse.ArgumentParser(prog="python -m tests.guided", description=__doc__)
    parser.add_argument("target", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the inputs that reach new branches")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install atheris (Python 3.11 to 3.13)", file=sys.stderr)
        return 2
    failed = [one for one in options.target or sorted(corpora.FIRST) if not _played(one, options)]
    print(f"failed: {', '.join(failed)}" if failed else "no target failed")
    return int(bool(failed))


def _played(target: str, options: argparse.Namespace) -> bool:
    """Whether a target withstood a run; its failing input is kept in .cache/guided."""
    failures = Path(".cache/guided")
    failures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rmqtx-guided-") as folder:
        place = Path(folder) / "inputs"
        place.mkdir()
        inputs = corpora.kept(target) or {str(n): data for n, data in enumerate(corpora.first_inputs(target))}
        for name, data in inputs.items():
            (place / name).write_bytes(data)
        player = [sys.executable, "-m", "tests.guided.player", target]
        common = [*player, f"-max_len={INPUT_BYTES_MAX}", "-rss_limit_mb=4096"]
        run = subprocess.run(
            [
                *common, f"-max_total_time={options.seconds}", f"-seed={options.seed}", "-print_final_stats=1",
                f"-artifact_prefix={failures}/{target}-", "-timeout=30", str(place),
            ],
            capture_output=True, text=True, errors="replace", timeout=options.seconds + _SPARE_SECONDS, check=False,
        )
        print(f"{target}: {_summary(run.stderr)}", flush=True)
        if run.returncode:
            print(run.stdout[-3000:] + run.stderr[-2000:], file=sys.stderr)
            return False
        if options.keep:
            found = sorted((path.read_bytes() for path in place.iterdir()), key=lambda data: (len(data), data))
            print(f"{target}: {corpora.keep(target, found[:: -(-len(found) // KEPT_MAX) or 1])} inputs kept")
    return True


def _summary(text: str) -> str:
    """The last figures of a run: executions, features."""
    done = [line for line in text.splitlines() if "cov:" in line or "number_of_executed_units" in line]
    return " ".join(done[-2:])


if __name__ == "__main__":
    sys.exit(main())
