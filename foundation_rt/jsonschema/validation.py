"""Compiling a JSON Schema into the function that checks arguments, results and answers.

What is advertised is enforced, whole, or the tool is refused at registration: a schema is private
data once it is here, its dialect is decided, every keyword of it is enforced exactly or named in a
refusal or a warning, and nothing is compiled or fetched on a call (spec/schemas.md).

`compile_schema` imports what it needs when it is first called: a server without tools of its own
should not pay for fastjsonschema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen

from ..errors import RegistrationError
from ..protocol import exact_json
from .issues import ValidationIssue
from .steps import MAX_STEPS

if TYPE_CHECKING:
    from .analysis import Survey

__all__ = ["CompiledSchema", "ValidationIssue", "ValidationResult", "Validator", "compile_schema"]

Validator = Callable[[Any], tuple[ValidationIssue, ...]]
"""Takes any JSON value, returns what is wrong with it: `()` when nothing is. It never raises, and
never changes the value or fills in defaults (SCHEMA-17)."""


@frozen
class ValidationResult:
    """Whether something is valid, and if not, why."""

    valid: bool
    errors: tuple[ValidationIssue, ...] = ()


@frozen
class CompiledSchema:
    """A schema ready for use.

    Attributes:
        dialect: `draft-04`, `draft-06`, `draft-07`, `2019-09` or `2020-12`.
        validate: checks a value.
        warnings: what the schema says that is not enforced, each with its place.
        mirrored: the places of schemas with an `x-mcp-header`.
    """

    dialect: str
    validate: Validator
    warnings: tuple[str, ...]
    mirrored: tuple[str, ...] = ()


def compile_schema(
    schema: Mapping[str, Any],
    *,
    any_root: bool = False,
    linear: bool = False,
    check_formats: bool = True,
    max_steps: int = MAX_STEPS,
) -> CompiledSchema:
    """Compile a schema: of the arguments of a tool, of its results, of what a user is asked for.

    Args:
        schema: JSON Schema of any dialect from draft-04 to 2020-12. Later changes of it have no
            effect.
        any_root: take any root that is an object; by default it says `"type": "object"`.
        linear: the schema is not ours: run its patterns only in an engine that takes no more time
            than the text is long (CTOOL-05).
        check_formats: enforce the formats of SCHEMA-13; otherwise `format` is an annotation.
        max_steps: most steps of a check; a value that would take more is answered with
            `issues.TOO_COMPLEX` (SCHEMA-27).

    Raises:
        RegistrationError: it is no such schema, or cannot be enforced; the message says what is
            wrong, where, and how to mend it (SCHEMA-01 to SCHEMA-16).
    """
    from .analysis import survey

    root = _private_copy(schema, exact=linear)
    if not any_root and root.get("type") != "object":
        raise RegistrationError('the schema must have "type": "object" at its root')
    try:
        found = survey(root, check_formats=check_formats)
        validate = _compile(found, linear, max_steps)
    except RecursionError:
        raise RegistrationError(
            "the schema is nested too deeply: move inner parts into `definitions`"
        ) from None
    return CompiledSchema(found.dialect, validate, tuple(found.warnings), tuple(found.mirrored))


def _private_copy(schema: Mapping[str, Any], *, exact: bool) -> dict[str, Any]:
    """Return the schema as a client will read it, that is as JSON.

    Args:
        exact: take integers beyond 64 bits, which a server of ours cannot advertise.
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


def _compile(survey: Survey, linear: bool, max_steps: int) -> Validator:
    if survey.is_later or (linear and survey.patterns):
        from .rust import compile_later

        return compile_later(survey, linear=linear, max_steps=max_steps)
    from .codegen import compile_generated

    return compile_generated(survey, max_steps=max_steps)
