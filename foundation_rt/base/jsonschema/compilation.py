"""The compilation of a JSON Schema into the function that validates arguments and results.

An advertised schema is enforced as a whole, or the tool is refused at registration: the schema is
copied, its dialect is determined, each of its keywords is enforced exactly or named in a refusal or
a warning, and nothing is ever fetched (spec/schemas.md).

Up to draft-07 the code of a check is generated when it is first needed. Most tools of a server are
never called in the life of a process, and a start should not wait for their checks: generating one
takes some 2 ms, and importing the generator 5. Everything that can be wrong with a schema was found
by its analysis. Only a large schema is generated at once, as its first call would have to wait
(REG-05). The function that generates stands in the place of the generated one, so later calls pay
nothing.

`compile_schema` imports the analysis with the first schema that is not plain (`plain`): it takes
2 ms, and a client that checks nothing does not load it either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from ...errors import RegistrationError
from .. import exact_json
from .budget import MAX_STEPS, CheckRun, Mismatch, TooComplex
from .issues import TOO_COMPLEX, TOO_DEEP, ValidationIssue
from .plain import Validator, plain_validator

if TYPE_CHECKING:
    from .analysis import SchemaAnalysis
    from .formats import Predicate


__all__ = ["CompiledSchema", "ValidationIssue", "ValidationResult", "Validator", "compile_schema"]


class ValidationResult(NamedTuple):
    """The result of a validation, with the reasons if it failed."""

    valid: bool
    errors: tuple[ValidationIssue, ...] = ()


class CompiledSchema(NamedTuple):
    """A compiled schema.

    Attributes:
        dialect: `draft-04`, `draft-06`, `draft-07`, `2019-09` or `2020-12`.
        validate: validates a value.
        warnings: the parts of the schema that are not enforced, each with its place.
        header_params: the places of schemas with an `x-mcp-header`.
    """

    dialect: str
    validate: Validator
    warnings: tuple[str, ...]
    header_params: tuple[str, ...] = ()


def compile_schema(
    schema: Mapping[str, Any],
    *,
    any_root: bool = False,
    linear: bool = False,
    check_formats: bool = True,
    max_steps: int = MAX_STEPS,
) -> CompiledSchema:
    """Compile the schema of a tool's arguments, of its results, or of a form for a user.

    Args:
        schema: a JSON Schema of any dialect from draft-04 to 2020-12. Later changes of it have no
            effect.
        any_root: whether the root may lack `"type": "object"`.
        linear: whether the schema comes from a peer: its patterns then run only in an engine that
            takes time linear in the length of the text (CTOOL-05).
        check_formats: whether the formats of SCHEMA-13 are enforced; otherwise `format` is an
            annotation.
        max_steps: the most steps of a check; a value that would take more has the issues
            `issues.TOO_COMPLEX` (SCHEMA-27).

    Raises:
        RegistrationError: it is not such a schema, or cannot be enforced; the message names the
            fault, its place and a remedy (SCHEMA-01 to SCHEMA-16).
    """
    root = _private_copy(schema, exact=linear)
    if not any_root and root.get("type") != "object":
        raise RegistrationError('the schema must have "type": "object" at its root')
    try:
        plain = plain_validator(root, _when_needed(root, max_steps))
        if plain is not None:
            return CompiledSchema("draft-07", plain, ())  # of which a plain schema is (SCHEMA-04)
        from .analysis import analyze

        found = analyze(root, check_formats=check_formats)
        validate = _compile(found, linear, max_steps)
    except RecursionError:
        raise RegistrationError(
            "the schema is nested too deeply: move inner parts into `definitions`"
        ) from None
    return CompiledSchema(
        found.dialect, validate, tuple(found.warnings), tuple(found.header_params)
    )


def _private_copy(schema: Mapping[str, Any], *, exact: bool) -> dict[str, Any]:
    """Return a copy of the schema by way of JSON, as a client will read it.

    Args:
        schema: the schema.
        exact: whether integers beyond 64 bits are allowed, which this server cannot advertise.
    """
    try:
        copy: dict[str, Any]
        if exact:
            copy = exact_json.loads(exact_json.dumps(dict(schema)))
        else:
            copy = orjson.loads(orjson.dumps(dict(schema)))
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"the schema must be JSON: {error}") from None
    return copy


def _when_needed(root: dict[str, Any], max_steps: int) -> Validator:
    """Return the validator for a schema without faults that is analyzed with its first value."""
    made: Validator | None = None

    def validate(value: Any) -> tuple[ValidationIssue, ...]:
        nonlocal made
        try:
            if made is None:
                from .analysis import analyze

                made = deferred_validator(analyze(root), max_steps=max_steps)
            return made(value)
        except RecursionError:
            return TOO_DEEP

    return validate


def _compile(analysis: SchemaAnalysis, linear: bool, max_steps: int) -> Validator:
    if analysis.is_modern or (linear and analysis.patterns):
        from .rust_validator import build_rust_validator

        return build_rust_validator(analysis, linear=linear, max_steps=max_steps)
    return deferred_validator(analysis, max_steps=max_steps)


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
        from .interpreter import explain

        return explain(analysis, value, left)

    if analysis.size > MAX_DEFERRED:
        generate()
    return validate
