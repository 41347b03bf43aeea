"""Audit a store with the library: write the rows into a file as the command does, or iterate over them.

    python -m benchmarks.api_audit STORE [FILE.parquet]

Without a file, it prints the number of typed rows in each state, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import rmqtx
from rmqtx_cli.options.options import RowForm
from rmqtx_cli.output.port import chosen_format, open_port
from rmqtx_cli.output.views import plain_view


def write(audit: rmqtx.Rows[rmqtx.Transaction], file: Path) -> None:
    """Write the rows with the writer of the command, so that both differ in the reading only."""
    with open_port(chosen_format(None, file), file, audit.schema, plain_view(audit.schema.names), RowForm()) as port:
        for batch in audit.batches():
            port.write(batch)


def main(words: list[str]) -> int:
    """The command line; the status is that of the audit."""
    audit = rmqtx.open(words[0]).audit()
    if len(words) > 1:
        write(audit, Path(words[1]))
    else:
        print(json.dumps(Counter(str(one.state) for one in audit)))
    return audit.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
