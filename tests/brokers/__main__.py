"""`python -m tests.brokers`: play histories on a real broker, or make the corpus again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.brokers import corpus, maven, table
from tests.brokers.expectation import expected_rows
from tests.brokers.histories import HISTORIES
from tests.brokers.make import make_all, make_example, play, save
from tests.brokers.recipes import Recipe, common, recipes
from tests.brokers.script import Script


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="one store of one version")
    one.add_argument("version", help=f"one of {', '.join(maven.VERSIONS)} (others may work)")
    one.add_argument("out", type=Path, help="directory for the store, its truth and the logs")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument(
        "--history", nargs="*", metavar="NAME[:COUNT]", help=f"default: the common ones; known: {', '.join(HISTORIES)}"
    )
    one.add_argument("--kill", action="store_true", help="end the broker by SIGKILL")
    one.add_argument("--conf", nargs="*", default=[], metavar="NAME=VALUE", help="broker settings")
    every = commands.add_parser("corpus", help="make the committed stores again")
    every.add_argument("--only", nargs="*", metavar="NAME", help="names, or beginnings of names")
    every.add_argument("--seed", type=int, help="another seed than the committed ones")
    every.add_argument("--at-once", type=int, default=2, help="brokers running at the same time (default 2)")
    every.add_argument("--keep", action="store_true", help="keep the working directories")
    every.add_argument("--list", action="store_true", help="only list the names")
    commands.add_parser("expect", help="work out the expected rows of all committed stores again from their truth")
    commands.add_parser("table", help="write the generated parts of docs/corpus.md again")
    commands.add_parser("example", help="make the example store again")
    return parser


def main() -> int:
    """Run the command line; gives the exit status."""
    options = arguments().parse_args()
    if options.command == "corpus" and options.list:
        for recipe in recipes().values():
            print(f"{recipe.name:24} {recipe.about}")
        return 0
    if options.command == "expect":
        for name in corpus.all_names():
            corpus.write_rows(corpus.CORPUS / name / corpus.EXPECTED, expected_rows(corpus.truth(name)))
        return 0
    if options.command == "table":
        table.write()
        return 0
    reason = maven.why_not()
    if reason is not None:
        print(f"no broker can be run here: {reason}", file=sys.stderr)
        return 2
    if options.command == "example":
        print(make_example())
        return 0
    if options.command == "run":
        wanted = dict(common(options.version))
        if options.history:
            pairs = [item.partition(":") for item in options.history]
            wanted = {name: int(count or "5") for name, _, count in pairs}
        conf = dict(item.split("=", 1) for item in options.conf)
        script = Script(options.version, options.seed, wanted, "kill" if options.kill else "clean", conf)
        recipe = Recipe("run", "One run.", script)
        rows = save(recipe, play(recipe, options.out), options.out / "packed")
        print(f"{len(rows)} transactions, store {options.out / 'store'}, truth and rows in {options.out / 'packed'}")
        return 0
    chosen = [
        recipe
        for recipe in recipes(options.seed).values()
        if not options.only or any(recipe.name.startswith(name) for name in options.only)
    ]
    return 0 if make_all(chosen, options.at_once, options.keep) else 1


if __name__ == "__main__":
    sys.exit(main())
