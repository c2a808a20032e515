"""Which tests prove which rule: `python -m tests.trace`, that is `make trace`.

A rule is a paragraph of spec/*.md that starts with its id in bold. A test proves the rules named by
`pytest.mark.rule(...)` on itself, on its class, or in the `pytestmark` of its class or module; also
by the marks of a `pytest.param` among its decorators. A class made by a call, such as
``TestMachine = pytest.mark.rule("X-01")(Machine.TestCase)``, is a test of that name.

A conversation of spec/vectors proves the rules that its header names: the runners replay every one,
and `tests/test_trace.py` holds that they do.

The tests are read, not run: what a rule's tests are must not depend on what can be collected here.
Hence rule ids are literals; anything else is reported. Exits with 1 if a rule has no test, stands
in two places or is too long, or if a test names a rule that does not exist.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

ROOT = Path(__file__).parent.parent
_RULE = re.compile(r"^\*\*([A-Z]+-\d{2,3})\*\*(.*?)(?=\n\n|\n[#|]|\Z)", re.MULTILINE | re.DOTALL)
MAX_WORDS = 70
"""Most words of a rule: what is longer states several facts, which one mark cannot prove."""


@define
class Trace:
    """What was found.

    Attributes:
        rules: for each rule the tests that name it, both in order.
        problems: what is wrong, a sentence each.
    """

    rules: dict[str, list[str]] = field(factory=dict)
    problems: list[str] = field(factory=list)


def trace(spec: Path, tests: Path) -> Trace:
    """Read the rules in `spec`/*.md and the tests below `tests`."""
    found = Trace()
    for path in sorted(spec.glob("*.md")):
        for rule, text in _RULE.findall(path.read_text()):
            if rule in found.rules:
                found.problems.append(f"{path.name} states {rule} a second time")
            found.rules.setdefault(rule, [])
            if len(text.split()) > MAX_WORDS:
                found.problems.append(f"{rule} has more than {MAX_WORDS} words: split it")
    for path in sorted(tests.rglob("test_*.py")):
        name = path.relative_to(tests.parent).as_posix()
        for test, rule in _Scan(found.problems, name).module(ast.parse(path.read_text())):
            if rule not in found.rules:
                found.problems.append(f"{test} names {rule}, which no rule is called")
            elif test not in found.rules[rule]:
                found.rules[rule].append(test)
    for vector, rule in vectors(spec):
        if rule in found.rules:
            found.rules[rule].append(vector)
        else:
            found.problems.append(f"{vector} names {rule}, which no rule is called")
    found.problems += [f"{rule} has no test" for rule, named in found.rules.items() if not named]
    return found


def vectors(spec: Path) -> Iterator[tuple[str, str]]:
    """Yield each conversation of `spec`/vectors, as its file and name, with each of its rules."""
    for path in sorted(spec.glob("vectors/**/*.jsonl")):
        name = path.relative_to(spec.parent).as_posix()
        for line in path.read_text("utf-8").splitlines():
            entry = json.loads(line)
            for rule in entry.get("rules", ()):
                yield f"{name}: {entry['name']}", rule


@define
class _Scan:
    """Finds the (test, rule) pairs of one file."""

    problems: list[str]
    file: str

    def module(self, tree: ast.Module) -> Iterator[tuple[str, str]]:
        return self._body(tree.body, self.file, ())

    def _body(
        self, body: list[ast.stmt], within: str, inherited: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        for statement in body:
            if _assigned_name(statement) == "pytestmark":
                inherited += tuple(self._rules_in(statement, within))
        for statement in body:
            name = _assigned_name(statement) or getattr(statement, "name", "")
            test = f"{within}::{name}"
            if isinstance(statement, ast.ClassDef):
                if name.startswith("Test"):
                    own = tuple(self._rules_of(statement.decorator_list, test))
                    yield from self._body(statement.body, test, inherited + own)
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                if name.startswith("test"):
                    own = tuple(self._rules_of(statement.decorator_list, test))
                    yield from ((test, rule) for rule in inherited + own)
            elif name.startswith("Test"):
                own = tuple(self._rules_in(statement, test))
                yield from ((test, rule) for rule in inherited + own)

    def _rules_of(self, nodes: list[ast.expr], test: str) -> Iterator[str]:
        for node in nodes:
            yield from self._rules_in(node, test)

    def _rules_in(self, node: ast.AST, test: str) -> Iterator[str]:
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and _is_rule_mark(call.func):
                for argument in call.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield argument.value
                    else:
                        self.problems.append(
                            f"{test} names a rule by {ast.unparse(argument)}: write the id itself"
                        )


def _assigned_name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return ""


def _is_rule_mark(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr != "rule":
        return False
    return ast.unparse(function) in ("pytest.mark.rule", "mark.rule")


def report(found: Trace) -> str:
    """Return the table of rules and their tests, then the problems."""
    lines = []
    for rule, tests in found.rules.items():
        lines.append(rule)
        lines.extend(f"    {test}" for test in tests)
    named = {test for tests in found.rules.values() for test in tests}
    lines.append(f"\n{len(found.rules)} rules, {len(named)} tests and vectors that name one")
    lines.extend(f"problem: {problem}" for problem in found.problems)
    return "\n".join(lines)


def main() -> int:
    """Print the report; return the exit code."""
    found = trace(ROOT / "spec", ROOT / "tests")
    print(report(found))
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
