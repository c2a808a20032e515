"""Validators for dialects up to draft-07, whose code is generated when it is first needed.

Most tools of a server are never called in the life of a process, and a start should not wait for
their checks: generating one takes some 2 ms, and importing the generator 5. Everything that can be
wrong with a schema was found by its analysis. Only a large schema is generated at once, as its
first call would have to wait (REG-05).

The function that generates stands in the place of the generated one, so later calls pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .budget import CheckRun, Mismatch, TooComplex
from .issues import TOO_COMPLEX, TOO_DEEP, ValidationIssue

if TYPE_CHECKING:
    from .analysis import SchemaAnalysis
    from .formats import Predicate

MAX_DEFERRED: Final = 64
"""The most schemas within a schema whose code is generated later: 10 ms."""


def deferred_validator(
    analysis: SchemaAnalysis, *, max_steps: int
) -> Callable[[Any], tuple[ValidationIssue, ...]]:
    """Return the validator for a schema of draft-04, draft-06 or draft-07."""
    check: Callable[[Any, dict[str, Any]], None]
    formats: dict[str, Predicate] = {}
    counts_steps = False
    counted: tuple[str, ...] = ()

    def generate() -> None:
        """Replace `check`; two threads that come first at once do the same, each for itself."""
        nonlocal check, counted, counts_steps, formats
        from .codegen import generate_check

        generated = generate_check(analysis)
        # `check` is the last: a thread that sees it sees the others as well.
        formats, counts_steps = generated.formats, generated.counts_steps
        counted = generated.counted
        check = generated.check

    def generate_and_check(value: Any, run: dict[str, Any]) -> None:
        generate()
        check(value, CheckRun(formats, max_steps, counted) if counts_steps else formats)

    check = generate_and_check

    def validate(value: Any) -> tuple[ValidationIssue, ...]:
        run: dict[str, Any] = CheckRun(formats, max_steps, counted) if counts_steps else formats
        try:
            check(value, run)
        except Mismatch:
            return explain(value, run.left if isinstance(run, CheckRun) else max_steps)
        except RecursionError:
            return TOO_DEEP
        except TooComplex:
            return TOO_COMPLEX
        return ()

    def explain(value: Any, left: float) -> tuple[ValidationIssue, ...]:
        from .interpreter import explain  # imported for the first value that does not fit

        return explain(analysis, value, left)

    if analysis.size > MAX_DEFERRED:
        generate()
    return validate
