"""The process that atheris drives: `python -m tests.guided.player TARGET LIBFUZZER-OPTION…`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["rmqtx"], enable_loader_override=False):
    from tests.guided.targets import TARGETS

if __name__ == "__main__":
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
    atheris.Fuzz()
