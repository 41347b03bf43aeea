"""The faults that a mutant can have, as changes of a source text: found with `ast`, applied to the text in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Each comparison with the nearest other one, then with its opposite where that is another one.
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}
_SWAPPED = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum",
    "argmin": "argmax", "argmax": "argmin",
}
#: Calls that give their argument in another form: a mutant leaves the form as it is.
_FORMS = ("sorted", "reversed", "set", "abs", "unique")
#: Calls whose change alters no answer: a line for a log, a hint for a type checker.
_NO_FAULT = ("cast", "assert_never", "debug")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one source text.

    Shape: `function`: the qualified name of the function around it, as Python has it; None at the level of a module or
           a class. `change`: the old and the new expression. `nth`: which of several with the same `change` in that
           function. `first_line`, `last_line`: from the begin of its statement to the end of the expression. `begin`,
           `end`: the bytes that `new` replaces.
    """

    function: str | None
    operator: str
    change: str
    nth: int
    first_line: int
    last_line: int
    begin: int
    end: int
    new: str
    name: str | None = None

    def applied(self, source: str) -> str:
        """The text with this fault."""
        data = source.encode()
        return (data[: self.begin] + self.new.encode() + data[self.end :]).decode()

    def line_of(self, source: str) -> str:
        """The line in which the fault begins, without its indentation."""
        data = source.encode()
        return data[data.rfind(b"\n", 0, self.begin) + 1 :].splitlines()[0].decode().strip()


class _Finder(ast.NodeVisitor):
    """Collects mutations: of what functions do, and of values at the level of modules and classes."""

    def __init__(self, source: str) -> None:
        self.found: list[Mutation] = []
        self._counts: dict[tuple[str | None, str, str], int] = {}
        self._names: list[str] = []
        self._depth = 0
        self._statement: ast.stmt | None = None
        self._begins = [0]
        for line in source.encode().splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))

    def _at(self, line: int, column: int) -> int:
        return self._begins[line - 1] + column

    def add(self, operator: str, node: ast.expr | ast.stmt, new: ast.AST | str) -> None:
        """Note one mutation of a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        text = new if isinstance(new, str) else ast.unparse(new)
        written = text if isinstance(node, ast.stmt) else f"({text})"
        change = f"{_short(ast.unparse(node))} → {_short(text)}"
        function = ".".join(self._names) if self._depth else None
        key = (function, operator, change)
        nth = self._counts[key] = self._counts.get(key, -1) + 1
        statement = self._statement or node
        self.found.append(
            Mutation(
                function, operator, change, nth, statement.lineno, node.end_lineno,
                self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset), written,
                None if self._depth else _assigned(statement),
            )
        )

    # ---- where nothing is changed: annotations, docstrings, type checking, text with expressions in it

    def visit(self, node: ast.AST) -> None:
        """Visit a node, with its statement in mind."""
        if isinstance(node, ast.stmt):
            before, self._statement = self._statement, node
            super().visit(node)
            self._statement = before
        else:
            super().visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Python 3.11 has wrong places for what is in braces."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Only the value."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        """Nothing."""

    visit_ImportFrom = visit_Import  # type: ignore[assignment]  # noqa: N815

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nothing: an assertion of the product is for the type checker."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Nothing: what an exception says is words."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body, not the decorators."""
        self._names.append(node.name)
        depth, self._depth = self._depth, 0
        for statement in node.body:
            self.visit(statement)
        self._depth = depth
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """The body, and defaults as values of the level around it."""
        for default in [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]:
            self.visit(default)
        inside = self._depth > 0
        self._names += ["<locals>", node.name] if inside else [node.name]
        self._depth += 1
        for statement in node.body:
            self.visit(statement)
        self._depth -= 1
        del self._names[-2 if inside else -1 :]

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    # ---- faults

    def visit_If(self, node: ast.If | ast.IfExp | ast.While) -> None:
        """A condition that is a plain value is turned round; comparisons in it have their own faults."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node.test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            self.add("condition", node.test, ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    visit_IfExp = visit_If  # noqa: N815
    visit_While = visit_If  # noqa: N815

    def visit_Compare(self, node: ast.Compare) -> None:
        """Each comparison."""
        for place, operator in enumerate(node.ops):
            for other in _COMPARED[type(operator)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                self.add("comparison", node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`and` and `or`."""
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add("boolean", node, ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """`not` and `~` removed."""
        if isinstance(node.op, ast.Not | ast.Invert):
            self.add("removed not", node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Arithmetic, and masks."""
        if (other := _CALCULATED.get(type(node.op))) is not None and not _is_text(node):
            self.add("arithmetic", node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`+=` and the like."""
        if (other := _CALCULATED.get(type(node.op))) is not None and not _is_text(node.value):
            self.add("arithmetic", node, ast.AugAssign(node.target, other(), node.value))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Numbers by one, True and False."""
        if isinstance(node.value, bool):
            self.add("boolean", node, ast.Constant(not node.value))
        elif isinstance(node.value, int):
            self.add("constant", node, str(node.value + 1))
            self.add("constant", node, str(node.value - 1))

    def visit_Call(self, node: ast.Call) -> None:
        """`min` for `max`, and forms left out."""
        name = _called(node)
        if name in _NO_FAULT:
            return
        if name in _SWAPPED:
            other = _SWAPPED[name]
            function: ast.expr = (
                ast.Name(other) if isinstance(node.func, ast.Name) else ast.Attribute(node.func.value, other)  # type: ignore[attr-defined]
            )
            self.add("swapped", node, ast.Call(function, node.args, node.keywords))
        if name in _FORMS and len(node.args) == 1:
            self.add("removed call", node, node.args[0])
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call whose result nothing uses is removed."""
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call) and _called(node.value) not in _NO_FAULT:
            self.add("removed call", node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """None in place of a result."""
        if node.value is None:
            return
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.add("returned None", node, "return None")
        self.generic_visit(node)


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is_text(node: ast.expr) -> bool:
    return any(
        isinstance(one, ast.JoinedStr) or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
        for one in ast.walk(node)
    )


def _assigned(statement: ast.stmt | ast.expr) -> str | None:
    """The name that a statement at the level of a module or class assigns."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return target.id if isinstance(target, ast.Name) else getattr(statement, "name", None)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:150]}… ({len(text)})"


def mutations_of(source: str) -> list[Mutation]:
    """Every fault that a source text can have, in the order of the text; each can be compiled."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda one: (one.begin, one.end, one.operator, one.change))


def functions_of(source: str) -> list[tuple[str, int, int]]:
    """The functions of a source text: qualified name, first and last line."""
    return list(_functions(ast.parse(source), ""))


def _functions(tree: ast.AST, before: str) -> Iterator[tuple[str, int, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{before}{node.name}", node.lineno, node.end_lineno
            yield from _functions(node, f"{before}{node.name}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{before}{node.name}.")
        else:
            yield from _functions(node, before)


def users_of(name: str, module: Path, root: Path, files: list[Path]) -> dict[Path, list[int]]:
    """The lines that use a name of a module: in the module itself, and in files that import it from there."""
    found: dict[Path, list[int]] = {}
    for file in files:
        source = (root / file).read_text(encoding="utf-8")
        if name not in source:
            continue
        tree = ast.parse(source)
        if file != module and not any(
            isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == module.stem
            and any(one.name == name for one in node.names)
            for node in ast.walk(tree)
        ):
            continue
        lines = [
            node.lineno for node in ast.walk(tree)
            if (isinstance(node, ast.Name) and node.id == name)
            or (isinstance(node, ast.Attribute) and node.attr == name)
        ]
        if lines:
            found[file] = sorted(set(lines))
    return found
