"""`python -m tests.fuzz --seconds N --seed S`: damage real stores at random until the time is over."""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from pathlib import Path

from rmqtx.readers.log.kernels import use_accelerator
from tests.brokers import corpus
from tests.fuzz.rounds import Failure, play

MEMORY_BYTES = 2 << 30
"""What reading small stores may take beyond the libraries themselves."""


def bound_memory(extra_bytes: int) -> None:
    """Let the process have only so much more address space than it has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + extra_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def main() -> int:
    """Exit status 1 if any round failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--rounds", type=int, help="how many rounds, instead of how long")
    parser.add_argument("--seed", type=int, help="of all chance; one is drawn and printed if none is given")
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--only", type=int, help="the one round to do again")
    parser.add_argument("--store", action="append", help="a store of the corpus (default: all)")
    parser.add_argument("--other-designs", action="store_true", help="only the stores of designs beside half topics")
    parser.add_argument("--verbose", action="store_true", help="say when each round begins")
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    classic = set(corpus.corpus_names())
    names = options.store or [name for name in corpus.all_names() if not (options.other_designs and name in classic)]
    print(f"seed {seed}, {len(names)} stores", flush=True)
    use_accelerator(True)  # loads LLVM now, so that its size does not count for a reading
    use_accelerator(False)
    bound_memory(MEMORY_BYTES)
    failures: list[Failure] = []
    number = options.first if options.only is None else options.only
    begin = number
    end = time.monotonic() + options.seconds
    while len(failures) < options.failures:
        if options.only is not None:
            is_over = number > begin
        elif options.rounds is not None:
            is_over = number >= begin + options.rounds
        else:
            is_over = time.monotonic() >= end
        if is_over:
            break
        if options.verbose:
            print(f"{time.strftime('%H:%M:%S')} round {number}", flush=True)
        for failure in play(seed, number, names):
            print(f"\n{failure}", flush=True)
            failures.append(failure)
        number += 1
    print(f"seed {seed}: {number - begin} rounds, {len(failures)} failures", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
