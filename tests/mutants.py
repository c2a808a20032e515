"""Change the core in one place, and see whether a test fails: `make mutants`.

With `--parts client --tests client` it is that part of the package, and those tests. A mutant is
the part with one expression or statement changed: a comparison, a constant, a call that is left
out. Each is run by the tests that run its line in their own process, those that run the
fewest lines first. One that no test fails for is a gap, or means the same as the original: it is
printed, for a person to judge.

The mutants are a sample, the same for a seed. Nothing is changed in this checkout: they stand in
copies of it, below the folder for temporary files.
"""

from __future__ import annotations

import argparse
import ast
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha1
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import coverage
import pytest
from attrs import field, frozen

ROOT = Path(__file__).parent.parent
_NO_CORE = ("test_site", "test_types")
"""Slow, and of no line of the core."""
CORE = ("protocol", "kernel", "features", "base")
TESTS = (
    *("base", "features", "kernel", "property", "protocol"),
    *(path.name for path in sorted(ROOT.glob("tests/test_*.py")) if path.stem not in _NO_CORE),
)
"""What calls the core in the process of the test."""
NOT_COPIED = (".venv", ".*_cache", ".hypothesis", "build", "dist", "node_modules")

_DATA = "FOUNDATION_RT_MUTANTS_DATA"
"""The variable that has the file into which the tests write which lines each of them runs."""
_PARTS = "FOUNDATION_RT_MUTANTS_PARTS"
"""The variable that names the parts of the package whose lines they write."""
_FIRST = 60
"""So many tests are run at first: most mutants fail one of them."""
_PATIENCE_S = 600
"""A mutant whose first tests do not end in this time has been noticed; of the others, that many
tests may just take so long."""

_MEMORY = 4 << 30
"""A mutant that takes more bytes fails: one took all of the machine's."""

_OTHER: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
}  # fmt: skip

_Node = ast.expr | ast.stmt


@frozen(order=True)
class Mutant:
    """One change of one file: the bytes from `start` to `end` become `text`."""

    path: str
    line: int
    start: int
    end: int
    text: str = field(order=False)

    def write(self, tree: Path) -> None:
        """Change the file in a copy of the checkout."""
        source = (ROOT / self.path).read_bytes()
        changed = source[: self.start] + self.text.encode() + source[self.end :]
        (tree / self.path).write_bytes(changed)

    def __str__(self) -> str:
        was = (ROOT / self.path).read_bytes()[self.start : self.end].decode()
        return f"{self.path}:{self.line}: {' '.join(was.split())}  ->  {self.text}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    source = path.read_bytes()
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    name = path.relative_to(ROOT).as_posix()
    for line, node, changed in _changes(ast.parse(source)):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        new = ast.unparse(changed)
        yield Mutant(name, line, start, end, f"({new})" if isinstance(changed, ast.expr) else new)


def _changes(node: ast.AST, line: int = 1) -> Iterator[tuple[int, _Node, _Node]]:
    """Yield what can be changed below a node, but for what only readers and type checkers see.

    Each with the line on which its statement begins, as that is what a test is known to run.
    """
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_only_read(child):
                continue
            began = child.lineno if isinstance(child, ast.stmt) else line
            if isinstance(child, ast.expr | ast.stmt):
                yield from ((began, child, changed) for changed in _changed(child))
            yield from _changes(child, began)


def _is_only_read(node: ast.AST) -> bool:
    match node:
        case ast.Expr(ast.Constant()) | ast.JoinedStr() | ast.ImportFrom() | ast.Import():
            return True
        case ast.If(ast.Name("TYPE_CHECKING")):
            return True
    return False


def _changed(node: _Node) -> Iterator[_Node]:
    """Yield what may stand in the place of a node."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in _OTHER:
            yield ast.Compare(left, [_OTHER[type(op)]()], [right])
        case ast.BoolOp(op, values):
            yield ast.BoolOp(_OTHER[type(op)](), values)
        case ast.BinOp(left, op, right) if type(op) in _OTHER:
            yield ast.BinOp(left, _OTHER[type(op)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(str() as value) if value.isidentifier():  # a text is for people
            yield ast.Constant(f"other_{value}")
        case ast.Call(function, [first, second, *others], keywords):
            yield ast.Call(function, [second, first, *others], keywords)
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


class Lines:
    """A plugin of pytest: it notes the lines that each test runs."""

    def __init__(self, data: str, parts: list[str]) -> None:
        files = [str(ROOT / "foundation_rt" / part / "*") for part in parts]
        self._coverage = coverage.Coverage(
            data_file=data, data_suffix=True, config_file=False, include=files
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()


def pytest_configure(config: pytest.Config) -> None:
    """Note the lines where tests run, not where they are handed out."""
    if (data := os.environ.get(_DATA)) and (
        hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    ):
        config.pluginmanager.register(Lines(data, os.environ[_PARTS].split()))


def _tests_by_line(
    tree: Path, jobs: int, parts: list[str], names: list[str]
) -> tuple[dict[tuple[str, int], set[str]], dict[str, int]]:
    """Run these tests; return those that run each line, and how many lines each of them runs.

    Raises:
        CalledProcessError: one fails, in a copy in which nothing is changed.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder, "lines"))
        paths = [f"tests/{name}" for name in names]
        command = [sys.executable, "-m", "pytest", "-p", "tests.mutants", "-n", str(jobs), *paths]
        environment = {**os.environ, _DATA: data, _PARTS: " ".join(parts)}
        subprocess.run(command, cwd=tree, env=environment, check=True)
        found = coverage.CoverageData(no_disk=True)
        for each in Path(folder).glob("lines.*"):
            part = coverage.CoverageData(str(each))
            part.read()
            found.update(part)
    by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
    sizes: dict[str, int] = defaultdict(int)
    for file in found.measured_files():
        path = Path(file).relative_to(tree).as_posix()
        for line, tests in found.contexts_by_lineno(file).items():
            for test in filter(None, tests):
                by_line[path, line].add(test)
                sizes[test] += 1
    return by_line, sizes


def _is_noticed(mutant: Mutant, tests: list[str], tree: Path) -> bool:
    """Return whether a test fails, does not end, or cannot be collected."""
    mutant.write(tree)
    try:
        first, others = tests[:_FIRST], tests[_FIRST:]
        return _fails(first, tree, at_limit=True) or (
            bool(others) and _fails(others, tree, at_limit=False)
        )
    finally:
        shutil.copy2(ROOT / mutant.path, tree / mutant.path)


def _fails(tests: list[str], tree: Path, *, at_limit: bool) -> bool:
    # -B: bytecode of a mutant would be taken for that of the next one in the same second.
    command = [sys.executable, "-B", "-m", "pytest", "-x", *tests]
    try:
        ended = subprocess.run(
            command, cwd=tree, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return at_limit
    return ended.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--sample", type=int, default=300, help="so many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--parts", nargs="+", default=CORE, help="of these parts of the package")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="noticed by these tests")
    options = parser.parse_args()
    jobs = os.cpu_count() or 1
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        trees = SimpleQueue[Path]()
        ignored = shutil.ignore_patterns(*NOT_COPIED)
        first = Path(shutil.copytree(ROOT, Path(folder, "0"), ignore=ignored)).resolve()
        by_line, sizes = _tests_by_line(first, jobs + 1, options.parts, options.tests)
        trees.put(first)
        for number in range(1, jobs):  # with the bytecode of the first one
            trees.put(Path(shutil.copytree(first, first.with_name(str(number)))))
        sample = _sample(by_line, options.parts, options.sample, options.seed)

        def alive(mutant: Mutant) -> Mutant | None:
            tests = sorted(by_line[mutant.path, mutant.line], key=lambda test: (sizes[test], test))
            tree = trees.get()
            try:
                return None if _is_noticed(mutant, tests, tree) else mutant
            finally:
                trees.put(tree)

        left = 0
        for mutant in filter(None, pool.map(alive, sample)):
            left += 1
            print(f"alive: {mutant}", flush=True)
    dead = len(sample) - left
    print(f"{dead} of {len(sample)} are noticed ({dead / len(sample):.0%})")
    return 0 if dead >= 0.9 * len(sample) else 1


def _sample(
    run: Container[tuple[str, int]], parts: list[str], size: int, seed: int
) -> list[Mutant]:
    """Return so many mutants of the lines that are run, and say of how many."""
    files = (path for part in parts for path in (ROOT / "foundation_rt" / part).rglob("*.py"))
    every = sorted(mutant for path in files for mutant in mutants(path))
    tried = [mutant for mutant in every if (mutant.path, mutant.line) in run]
    # By a hash: where fewer lines are run, the others of the sample stay the same.
    sample = sorted(tried, key=lambda mutant: sha1(f"{seed} {mutant!r}".encode()).digest())[:size]
    left = len(every) - len(tried)
    print(f"{len(sample)} of {len(tried)} mutants, seed {seed}; no test runs the lines of {left}")
    return sample


if __name__ == "__main__":
    sys.exit(main())
