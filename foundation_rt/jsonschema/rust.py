"""Schemas that the optional jsonschema-rs compiles: of 2019-09 and 2020-12 (SCHEMA-05), and those
of other people that have patterns, whatever their dialect (CTOOL-05).

It is asked for what the rest of the package promises: formats are enforced by the same predicates
and no others, a reference that leads out of the schema is refused, and an issue says what was
expected in the same words and without the value.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from ..errors import MissingExtraError, RegistrationError
from .analysis import Survey, place
from .dialects import DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019_09, DRAFT_2020_12
from .formats import ENFORCED, predicate
from .issues import MAX_ISSUES, MESSAGES, TOO_COMPLEX, TOO_DEEP, ValidationIssue, step
from .steps import MAX_STEPS, TooComplex
from .visits import limit_visits

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

_ENGINES: Final = {
    DRAFT_04: "Draft4Validator",
    DRAFT_06: "Draft6Validator",
    DRAFT_07: "Draft7Validator",
    DRAFT_2019_09: "Draft201909Validator",
    DRAFT_2020_12: "Draft202012Validator",
}
_NOT_ENFORCED: Final = ("idn-email", "idn-hostname", "iri", "iri-reference", "uri-template")
"""Formats that jsonschema-rs would check by rules of its own."""

FOREIGN_PATTERN_BYTES: Final = 2 * 1024 * 1024
"""Most bytes that all patterns of a schema of somebody else take, compiled: 10 to 50 ns a byte."""

_MAX_BYTES_FOR_ALL: Final = 8192
"""Longest value (bytes of JSON) of which all issues are told: the engine collects every error
before it tells the first, 6 s for 500,000 of them; the first alone takes 50 us (SCHEMA-21)."""


def compile_later(
    survey: Survey, *, linear: bool = False, max_steps: int = MAX_STEPS
) -> Callable[[Any], tuple[ValidationIssue, ...]]:
    """The validator of a schema.

    Args:
        linear: refuse patterns that cannot be matched in a time that the length of the text bounds
            (look-arounds and back-references).
        max_steps: most steps that a check may take, as far as they can be known before (SCHEMA-27).

    Raises:
        RegistrationError: the extra is missing, or the engine refuses the schema.
    """
    try:
        import jsonschema_rs
    except ImportError:
        need = f"dialect {survey.dialect} ({survey.reason or '#/$schema: declared'})"
        if not survey.is_later:
            need = "running the pattern of somebody else"
        raise RegistrationError(str(MissingExtraError(need, "jsonschema"))) from None
    engine = getattr(jsonschema_rs, _ENGINES[survey.dialect])
    options = None
    if linear:
        each = FOREIGN_PATTERN_BYTES // max(1, survey.pattern_count)
        options = jsonschema_rs.RegexOptions(size_limit=each, dfa_size_limit=2 * each)
    formats = {name: predicate(name) for name in ENFORCED}
    formats.update((name, _accept) for name in _NOT_ENFORCED)
    try:
        validator = engine(
            survey.root,
            formats=formats,
            validate_formats=survey.check_formats,
            retriever=_refuse_to_fetch,
            pattern_options=options,
        )
    except jsonschema_rs.ValidationError as error:
        at = "".join(f"/{one}" for one in error.instance_path)
        raise RegistrationError(
            f"{place(at)} is refused by jsonschema-rs: {error.message}"
        ) from None

    limit = limit_visits(survey, max_steps)

    def validate(arguments: Any) -> tuple[ValidationIssue, ...]:
        try:
            if limit is not None:
                limit(arguments)
            validator.validate(arguments)
        except jsonschema_rs.ValidationError as first:
            if _is_small(arguments):
                return tuple(map(_issue, islice(validator.iter_errors(arguments), MAX_ISSUES)))
            return (_issue(first),)
        except (ValueError, RecursionError):  # a ValueError is its recursion limit
            return TOO_DEEP
        except TooComplex:
            return TOO_COMPLEX
        return ()

    return validate


def _is_small(value: Any) -> bool:
    try:
        return len(orjson.dumps(value)) <= _MAX_BYTES_FOR_ALL
    except TypeError:  # deeper than orjson writes, which is not as deep as the engine goes
        return False


def _accept(text: str) -> bool:
    return True


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError("nothing is ever fetched: copy what it means into `$defs`")


def _issue(error: ValidationError) -> ValidationIssue:
    path = ""
    for one in error.instance_path:
        path = step(path, one)
    keyword, about = error.kind.name, error.kind.value
    if keyword == "required":
        about = [about]
    elif keyword == "falseSchema" and error.schema_path[-1] == "additionalProperties":
        keyword, about = "maxProperties", 0  # where it stands alone, the engine names none
    say = MESSAGES.get(keyword)
    return ValidationIssue(path, say(about) if say else f"must satisfy `{keyword}`")
