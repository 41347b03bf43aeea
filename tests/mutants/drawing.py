"""Drawing mutants from a seed, choosing their tests, and planting one that must die."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Mutation, functions_of, mutations_of, users_of
from tests.mutants.touched import Database

#: Folders with the product.
PRODUCT = ("readers", "verdicts", "remoting", "repairs", "spark_tasks", "rmqtx_cli")
#: Compiled when it is first used, in a way that neither coverage nor a mutant in memory reaches.
COMPILED = ("readers/log/accelerator/",)
#: CPU time of the tests of one mutant; tests beyond it are left out, and a survivor is reported so.
SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation in its file."""

    file: str
    mutation: Mutation


def product_files(root: Path, below: str | None = None) -> list[str]:
    """The files of the product, or of one of its folders or files; not what stands in a link."""
    places = [below.rstrip("/")] if below else [one for one in PRODUCT if (root / one).is_dir()]
    files = [
        path for place in places
        for path in ([root / place] if place.endswith(".py") else sorted((root / place).rglob("*.py")))
    ]
    names = [path.relative_to(root).as_posix() for path in files]
    return [name for name in names if not name.startswith(COMPILED)]


def drawn(root: Path, files: list[str], count: int, seed: str) -> list[Mutant]:
    """Some mutants of these files, in the order of the draw: the first of them are a fair sample too."""
    every = [
        Mutant(file, mutation) for file in sorted(files)
        for mutation in mutations_of((root / file).read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


class Chooser:
    """Chooses tests by the lines that they run."""

    def __init__(self, root: Path, known: Database) -> None:
        self.root, self.known = root, known
        self._files = [Path(name) for name in product_files(root)]
        self._kills = known.kills_per_second()

    def tests_for(self, mutant: Mutant) -> set[str]:
        """The tests that run the mutant's lines; for the value of a module, those that run a line that uses it, and
        those of a file that names it.
        """
        one = mutant.mutation
        if one.function is not None:
            return self.known.tests_of(mutant.file, range(one.first_line, one.last_line + 1), one.function)
        if one.name is None:
            return set()
        found: set[str] = set()
        for file, lines in users_of(one.name, Path(mutant.file), self.root, self._files).items():
            spans = functions_of((self.root / file).read_text(encoding="utf-8"))
            for line in lines:
                inner = [name for name, begin, end in spans if begin <= line <= end]
                found |= self.known.tests_of(file.as_posix(), range(line, line + 1), inner[-1] if inner else None)
        word = re.compile(rf"\b{re.escape(one.name)}\b")
        for name in self.known.files():
            if word.search((self.root / name).read_text(encoding="utf-8")):
                found |= self.known.tests_in(name)
        return found

    def ordered(self, file: str, tests: set[str], seconds_max: float = SECONDS_MAX) -> tuple[list[str], float, float]:
        """Tests in the order in which to run them, with their CPU time and their time: those of the mutant's own folder
        first, of these the ones of files that found most mutants before, then the quick ones; those of a file together,
        as they share fixtures. The last are left out.
        """
        folder = file.rpartition("/")[0]
        package = file.partition("/")[0]

        def turn(test: str) -> tuple[int, float, float]:
            is_own = test.startswith(f"tests/{folder}/")
            place = 0 if is_own else 1 if test.startswith(f"tests/{package}/") else 2
            return place, -self._kills.get(test.partition("::")[0], 0.0), self.known.times[test][0]

        chosen: list[str] = []
        cpu = wall = 0.0
        for test in sorted(tests, key=lambda one: (*turn(one), one)):
            own_cpu, own_wall = self.known.times[test]
            if chosen and cpu + own_cpu > seconds_max:
                continue
            chosen.append(test)
            cpu, wall = cpu + own_cpu, wall + own_wall
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in chosen:
            by_file[test.partition("::")[0]].append(test)

        def turn_of_file(name: str) -> tuple[int, float, float]:
            return *turn(by_file[name][0])[:2], sum(self.known.times[test][0] for test in by_file[name])

        return [test for name in sorted(by_file, key=turn_of_file) for test in by_file[name]], cpu, wall

    def planted(self, files: list[str]) -> tuple[str, str, str, list[str]] | None:
        """A fault that must be found, in the function that the most tests run: file, function, source, tests."""
        best: tuple[int, str, str, str] | None = None
        tests: set[str] = set()
        for file in files:
            source = (self.root / file).read_text(encoding="utf-8")
            for name, line, column in _first_statements(ast.parse(source), ""):
                found = self.known.tests_of(file, range(line, line + 1), name)
                if found and (best is None or len(found) > best[0]):
                    lines = source.splitlines(keepends=True)
                    lines.insert(line - 1, f"{' ' * column}raise AssertionError('planted')\n")
                    best, tests = (len(found), file, name, "".join(lines)), found
        if best is None:
            return None
        quick = sorted(tests, key=lambda one: self.known.times[one][0])[:10]
        return best[1], best[2], best[3], quick


def _first_statements(tree: ast.AST, before: str) -> list[tuple[str, int, int]]:
    """The first statement of each function that begins a line: name of the function, line and column."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
            if body and body[0].lineno > node.lineno and not isinstance(body[0], ast.FunctionDef | ast.ClassDef):
                found.append((f"{before}{node.name}", body[0].lineno, body[0].col_offset))
        elif isinstance(node, ast.ClassDef):
            found += _first_statements(node, f"{before}{node.name}.")
    return found
