"""Validators compiled by the optional jsonschema-rs.

It compiles schemas of 2019-09 and 2020-12 (SCHEMA-05), and schemas of peers that have patterns, in
any dialect (CTOOL-05). It is configured to behave as the other engine: formats are enforced by the
same predicates, references that leave the schema are refused, and issues have the same messages,
without the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from ...errors import MissingExtraError, RegistrationError
from .analysis import SchemaAnalysis
from .budget import MAX_STEPS, TooComplex
from .dialects import DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019_09, DRAFT_2020_12
from .equality import size
from .formats import ENFORCED, predicate
from .issues import TOO_COMPLEX, TOO_DEEP, ValidationIssue, place, step
from .messages import MESSAGES, Selection
from .rust_validator_cost import step_limit

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
"""The formats that jsonschema-rs would check by its own rules."""

FOREIGN_PATTERN_BYTES: Final = 2 * 1024 * 1024
"""The most bytes that the compiled patterns of a peer's schema take: 10 to 50 ns a byte."""

_MAX_PARTS_FOR_ALL: Final = 5_000
"""The most values within a value whose issues are all found: the engine collects every error before
it yields the first, 12 us each; the first alone takes 50 us (SCHEMA-40)."""

_MAX_BYTES_FOR_ALL: Final = 65_536
"""The longest such value (bytes of JSON): each error holds a copy of the part that has it."""

_INDEX: Final = re.compile(r"\+?[0-9]+")
"""The names of members that the engine has as integers in its paths."""


def build_rust_validator(
    analysis: SchemaAnalysis, *, linear: bool = False, max_steps: int = MAX_STEPS
) -> Callable[[Any], tuple[ValidationIssue, ...]]:
    """Return the validator for a schema.

    Args:
        analysis: the analysis of the schema.
        linear: whether to refuse patterns that cannot be matched in linear time (look-arounds and
            back-references).
        max_steps: the most steps of a check, as far as they can be known before (SCHEMA-27).

    Raises:
        RegistrationError: the extra is missing, or the engine refuses the schema.
    """
    validator = _compile(analysis, linear)
    from jsonschema_rs import ValidationError

    limit = step_limit(analysis, max_steps, linear=linear)

    def validate(arguments: Any) -> tuple[ValidationIssue, ...]:
        try:
            if limit is not None:
                limit(arguments)
            validator.validate(arguments)
        except ValidationError as first:
            selection = Selection()
            for error in validator.iter_errors(arguments) if _is_small(arguments) else [first]:
                _add(error, arguments, selection)
                if selection.is_complete:
                    break
            return selection.issues()
        except (ValueError, RecursionError):  # a ValueError is its recursion limit
            return TOO_DEEP
        except TooComplex:
            return TOO_COMPLEX
        return ()

    return validate


def _compile(analysis: SchemaAnalysis, linear: bool) -> Any:
    """Return the engine's validator for a schema; see `build_rust_validator`."""
    try:
        import jsonschema_rs
    except ImportError:
        need = f"dialect {analysis.dialect} ({analysis.reason or '#/$schema: declared'})"
        if not analysis.is_modern:
            need = "running a pattern of a peer"
        raise RegistrationError(str(MissingExtraError(need, "jsonschema"))) from None
    engine = getattr(jsonschema_rs, _ENGINES[analysis.dialect])
    options = None
    if linear:
        each = FOREIGN_PATTERN_BYTES // max(1, analysis.pattern_count)
        options = jsonschema_rs.RegexOptions(size_limit=each, dfa_size_limit=2 * each)
    formats = {name: predicate(name) for name in ENFORCED}
    formats.update((name, _accept) for name in _NOT_ENFORCED)
    try:
        return engine(
            analysis.root,
            formats=formats,
            validate_formats=analysis.check_formats,
            retriever=_refuse_to_fetch,
            mask="the value",  # each error would hold a text of the part as well
            pattern_options=options,
        )
    except jsonschema_rs.ValidationError as error:
        at = "".join(f"/{one}" for one in error.instance_path)
        raise RegistrationError(
            f"{place(at)} is refused by jsonschema-rs: {error.message}"
        ) from None


def _is_small(value: Any) -> bool:
    try:
        if len(orjson.dumps(value)) > _MAX_BYTES_FOR_ALL:
            return False
        return size(value) <= _MAX_PARTS_FOR_ALL
    except TypeError:  # deeper than orjson writes, which is not as deep as the engine goes
        return False


def _accept(text: str) -> bool:
    return True


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError("nothing is ever fetched: copy what it means into `$defs`")


def _keys(value: Any, path: Sequence[str | int]) -> Iterator[str | int]:
    """Yield the keys of a path of the engine, which has names such as "007" as integers."""
    for one in path:
        key: str | int = one
        if isinstance(value, list):
            value = value[int(one)]
        elif isinstance(value, dict):
            key = str(one)
            if key not in value:
                alike = (each for each in value if _INDEX.fullmatch(each) and int(each) == one)
                key = next(alike, key)
            value = value.get(key)
        yield key


def _add(error: ValidationError, value: Any, selection: Selection) -> None:
    """Add the issue of an error of `value`."""
    path, item = "", None
    for key in _keys(value, error.instance_path):
        path = step(path, key)
        if item is None and isinstance(key, int):
            item = path
    keyword, about = error.kind.name, error.kind.value
    if keyword == "required":
        about = [about]
    elif keyword == "falseSchema" and error.schema_path[-1] == "additionalProperties":
        keyword, about = "maxProperties", 0  # where it stands alone, the engine names none
    say = MESSAGES.get(keyword)
    message = say(about) if say else f"must satisfy `{keyword}`"
    selection.add(ValidationIssue(path, message), item)
