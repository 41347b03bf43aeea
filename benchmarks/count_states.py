"""Count the transactions in each state in a file that `rmqtx audit` wrote, and print the counts as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

CHUNK_BYTES = 16 << 20
STATE = re.compile(rb'"state":\s?"([A-Z_]+)"')


def of_lines(path: Path) -> Counter[str]:
    """Return the counts of a file with one JSON object a line, by pattern: parsing would take minutes."""
    counts: Counter[str] = Counter()
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            lines, newline, rest = (rest + chunk).rpartition(b"\n")
            counts.update(state.decode() for state in STATE.findall(lines + newline))
    counts.update(state.decode() for state in STATE.findall(rest))
    return counts


def of_parquet(path: Path) -> Counter[str]:
    """Return the counts of a Parquet file."""
    counts: Counter[str] = Counter()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["state"]):
            for pair in pc.value_counts(batch["state"]).to_pylist():
                counts[pair["values"]] += pair["counts"]
    return counts


def main(words: list[str]) -> int:
    """The command line: the counts of one file."""
    path = Path(words[0])
    print(json.dumps(of_parquet(path) if path.suffix == ".parquet" else of_lines(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
