"""Play mutants of a folder, or of the files that differ from main; `python -m tests.mutants`.

Exit status: 0 every mutant was killed or is equivalent, 1 some survived, 2 the run proves nothing: the planted mutant
survived, or tests fail without a mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutants.drawing import SECONDS_MAX, Chooser, Mutant, drawn, product_files
from tests.mutants.equivalents import EQUIVALENT, key_of, read_equivalents, unknown
from tests.mutants.page import PAGE, RESULTS, draw_of, merged, write_page
from tests.mutants.touched import Database
from tests.mutants.trees import copied
from tests.mutants.worker import KILLED, NOT_COVERED, SURVIVED, TIMED_OUT, Job

ROOT = Path(__file__).resolve().parents[2]
MARKS = "not slow and not broker and not deep"
#: Tests that start JVMs or brokers, play for hours, or read the text of the tree and not what it does.
_LEFT_OUT = ("brokers", "spark", "fuzz", "kills", "histories", "s3", "man", "mutants", "corpus")
_PLANTED, _UNCHANGED = -1, -2
EQUIVALENT_TO_IT = "equivalent"
Row = dict[str, Any]


class ProvesNothing(Exception):
    """A run whose planted mutant survived, or whose tests fail without a mutant."""


def changed_files(root: Path, base: str = "main") -> list[str]:
    """The files of the product that differ from where this branch left `base`, and new ones."""
    begin = subprocess.check_output(["git", "merge-base", base, "HEAD"], cwd=root, text=True).strip()
    commands = (["git", "diff", "--name-only", begin], ["git", "ls-files", "-o", "--exclude-standard"])
    names = {name for command in commands for name in subprocess.check_output(command, cwd=root, text=True).split()}
    return sorted(names & set(product_files(root)))


def test_files(root: Path, places: list[str]) -> list[str]:
    """The test files to choose from; without places, all but those of folders that are left out."""
    if places:
        return sorted({
            path.relative_to(root).as_posix() for place in places
            for path in ([root / place] if place.endswith(".py") else (root / place).rglob("test_*.py"))
        })
    every = [path.relative_to(root) for path in (root / "tests").rglob("test_*.py")]
    return sorted(path.as_posix() for path in every if len(path.parts) > 2 and path.parts[1] not in _LEFT_OUT)


class Run:
    """One run: the tree of its mutants, and what is known of its tests."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache, self.tree = root, cache, cache / "tree"
        self.database = cache / "coverage.db"
        copied(root, self.tree)

    def _started(self, module: str, *arguments: str) -> int:
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(self.tree), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1", "XDG_STATE_HOME": str(self.cache / "state"),
        }
        command = [sys.executable, "-m", f"tests.mutants.{module}", "--root", str(self.tree), *arguments]
        with (self.cache / f"{module}.log").open("ab") as log:
            return subprocess.call(command, cwd=self.tree, stdout=log, stderr=log, env=environment)

    def measure(self, files: list[str]) -> None:
        """Run under coverage the test files that were not, as they are now: those of one folder in one process."""
        stale = Database(self.database, self.tree).stale(files, MARKS)
        folders = sorted({file.rpartition("/")[0] for file in stale})
        for folder in folders:
            some = [file for file in stale if file.rpartition("/")[0] == folder]
            print(f"coverage: {folder}, {len(some)} files", flush=True)
            status = self._started("touched", "--database", str(self.database), "--marks", MARKS, *some)
            if status:
                print(f"coverage: {folder}: status {status}, see {self.cache}/touched.log", file=sys.stderr)

    def recorded(self) -> str:
        """How many test files were run under coverage, of how many."""
        return f"{len(Database(self.database, self.tree).files())} of {len(test_files(self.tree, []))}"

    def play(
        self, files: list[str], mutants: list[Mutant], minutes: float | None, more: float, longest: float
    ) -> list[Row]:
        """Play mutants; a row for each, as far as the time suffices."""
        chooser = Chooser(self.tree, Database(self.database, self.tree))
        planted = chooser.planted(files)
        if planted is None:
            raise ProvesNothing("no test runs any function of these files")
        file, function, source, tests = planted
        unchanged = (self.tree / file).read_text(encoding="utf-8")
        texts = ((_PLANTED, source), (_UNCHANGED, unchanged))
        jobs = [Job(number, file, function, text, tests, 30, 30) for number, text in texts]
        rows: list[Row] = []
        for number, mutant in enumerate(mutants):
            every = chooser.tests_for(mutant)
            tests, cpu, wall = chooser.ordered(mutant.file, every, longest)
            one = mutant.mutation
            rows.append({
                "file": mutant.file, "line": one.first_line, "function": one.function, "operator": one.operator,
                "mutation": one.change, "nth": one.nth, "tests": len(tests), "left_out": len(every) - len(tests),
                "outcome": None if tests else NOT_COVERED, "by": "", "seconds": 0.0,
            })
            if tests:
                text = (self.tree / mutant.file).read_text(encoding="utf-8")
                jobs.append(Job(number, mutant.file, one.function, one.applied(text), tests, cpu, wall, more))
        outcomes = self._outcomes(jobs, minutes)
        # Of a run that ended early, only mutants before the first one that was not played: no choice by their kind.
        end = next((job.number for job in jobs if job.number >= 0 and job.number not in outcomes), len(rows))
        Database(self.database, self.tree).note_kills(one["by"] for one in outcomes.values() if "::" in one["by"])
        for number, outcome in outcomes.items():
            if number >= 0:
                rows[number] |= {name: outcome[name] for name in ("outcome", "by", "seconds")}
        return rows[:end]

    def _outcomes(self, jobs: list[Job], minutes: float | None) -> dict[int, Row]:
        """Outcomes by number, the first two proven first. Jobs that the time does not suffice for have none."""
        end = None if minutes is None else time.time() + 60 * minutes
        given, results = self.cache / "jobs.json", self.cache / "outcomes.jsonl"
        given.write_text(json.dumps([asdict(job) for job in jobs]), encoding="utf-8")
        results.unlink(missing_ok=True)
        more = [] if end is None else ["--until", str(end)]
        status = self._started("worker", "--jobs", str(given), "--results", str(results), *more)
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        found = {row["number"]: row for row in map(json.loads, lines)}
        if status or _PLANTED not in found or _UNCHANGED not in found:
            raise ProvesNothing(f"the tests could not be collected (status {status}), see {self.cache}/worker.log")
        if found[_PLANTED]["outcome"] not in (KILLED, TIMED_OUT):
            raise ProvesNothing(f"the planted mutant survived in {jobs[0].file}: {jobs[0].function}")
        if found[_UNCHANGED]["outcome"] != SURVIVED:
            raise ProvesNothing(f"without a mutant, a test fails: {found[_UNCHANGED]['by']}")
        return found


def settled(rows: list[Row], equivalents: dict[Any, str]) -> list[str]:
    """Mark the survivors that are equivalent; return what contradicts the list of them."""
    wrong = []
    for row in rows:
        key = row["file"], row["function"], row["mutation"], row["nth"]
        if key not in equivalents:
            continue
        if row["outcome"] in (KILLED, TIMED_OUT):
            wrong.append(f"{row['file']}:{row['line']}: `{row['mutation']}` changes an answer: {row['by']} finds it")
        else:
            row["outcome"] = EQUIVALENT_TO_IT
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Draw, play and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--folder", action="append", default=[], help="a folder or file of the product")
    parser.add_argument("--count", type=int, default=50, help="mutants of each folder")
    parser.add_argument("--seed", type=int, help="of the draw; one is drawn and printed if none is given")
    parser.add_argument("--minutes", type=float, help="for each folder; the rest of its mutants is left")
    parser.add_argument("--seconds", type=float, default=10, help="CPU time for each mutant, beside that of its tests")
    words = "CPU time of the tests of a mutant; further tests are left out"
    parser.add_argument("--longest", type=float, default=SECONDS_MAX, help=words)
    parser.add_argument("--tests", action="append", default=[], help="test files or folders to run under coverage")
    words = "only the survivors of the draw of --seed, or of the last draw"
    parser.add_argument("--survivors", action="store_true", help=words)
    parser.add_argument("--page", action="store_true", help="write docs/mutants.md")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    cache = root / ".cache" / "mutants"
    cache.mkdir(parents=True, exist_ok=True)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    parts = {folder: product_files(root, folder) for folder in options.folder} or {"changed": changed_files(root)}
    if not any(parts.values()):
        print("no file of the product differs from main; give a folder")
        return 0
    entries = read_equivalents(EQUIVALENT if root == ROOT else root / "tests" / "equivalent.toml")
    gone_entries = unknown(root, entries)
    for entry in gone_entries:
        print(f"{entry.file}: {entry.function}: no mutant `{entry.mutation}` of this line any longer", file=sys.stderr)
    equivalents = {entry.key: entry.why for entry in entries if entry not in gone_entries}
    run = Run(root, cache)
    run.measure(test_files(root, options.tests))
    status = 0
    for folder, files in parts.items():
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() and root == ROOT else {}
        key = draw_of(known, folder, options.seed) if options.survivors else f"{folder}@{seed}"
        mutants = drawn(root, files, options.count if not options.survivors else 1 << 30, f"{seed}:{folder}")
        gone: set[tuple[Any, ...]] = set()
        if options.survivors:
            gone = {(row["file"], row["function"], row["mutation"], row["nth"]) for row in known[key]["survivors"]}
            mutants = [one for one in mutants if key_of(one.file, one.mutation) in gone]
            gone -= {key_of(one.file, one.mutation) for one in mutants}
        print(f"{folder}: {len(mutants)} mutants, seed {seed}", flush=True)
        try:
            rows = run.play(files, mutants, options.minutes, options.seconds, options.longest)
        except ProvesNothing as why:
            print(f"{folder}: {why}", file=sys.stderr)
            return 2
        for line in settled(rows, equivalents):
            status = 1
            print(line, file=sys.stderr)
        one = merged(root, rows, seed, run.recorded(), known.get(key) if options.survivors else None, gone)
        counts = (f"{value} {name.replace('_', ' ')}" for name, value in one.items() if isinstance(value, int))
        print(f"{folder}: " + ", ".join(counts))
        for row in one["survivors"]:
            status = 1
            left = f" ({row['left_out']} of {row['tests'] + row['left_out']} tests left out)" if row["left_out"] else ""
            print(f"  {row['outcome']}: {row['file']}:{row['line']} {row['function']}: {row['mutation']}{left}")
        (cache / f"{folder.replace('/', '.')}.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        if options.page and root == ROOT:
            known[key] = one
            RESULTS.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            write_page(known, entries, PAGE)
    return status


if __name__ == "__main__":
    sys.exit(main())
