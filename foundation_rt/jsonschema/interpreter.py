"""Up to draft-07: a schema read keyword by keyword, to say what is wrong with a value and where.

The generated validator (`codegen`) only knows that a value does not fit. This module finds the
reasons, with exact paths and in an order that schema and value alone decide, and only after a no:
it takes some ten times as long. The two are kept to the same answers by tests.

It reads twice. Deciding finds the first issue of a schema and a value, and remembers it: nothing is
decided twice, however many ways lead to it. Explaining then walks through what does not fit, and
through nothing else. Both share a budget; when that is used up, what was found is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from attrs import define, field

from .analysis import Survey
from .dialects import DRAFT_04, Schema
from .equality import are_different, identity, multiple_of, size
from .formats import predicate
from .issues import MAX_ISSUES, MESSAGES, TOO_DEEP, UNEXPLAINED, ValidationIssue, step
from .steps import TooComplex

Issues = Iterator[ValidationIssue]
Found = tuple[ValidationIssue, ...]

MAX_READINGS: Final = 50_000
"""Most parts of a value that are looked at to explain what is wrong with it: about 0.1 s."""


def explain(
    survey: Survey, value: Any, max_readings: int = MAX_READINGS
) -> tuple[ValidationIssue, ...]:
    """Return what is wrong with a value that does not fit: up to `MAX_ISSUES` issues (SCHEMA-21).

    When `max_readings` do not suffice, the issues found by then are the answer; without one, it is
    that the value does not fit.
    """
    found: list[ValidationIssue] = []
    try:
        explaining = Explaining(survey, Deciding(survey, max_readings))
        for issue in islice(explaining.read(survey.root, value, ""), MAX_ISSUES):
            found.append(issue)  # noqa: PERF402 -- what is found before an exception counts
    except TooComplex:
        pass
    except RecursionError:
        return TOO_DEEP
    return tuple(found) or UNEXPLAINED


@define
class Deciding:
    """Finds the first issue of a schema and a value, and remembers it.

    Attributes:
        left: how many looks may still be taken.
    """

    survey: Survey
    left: int
    _known: dict[tuple[int, int], Found] = field(factory=dict)

    @property
    def deciding(self) -> Deciding:
        """This."""
        return self

    def read(self, schema: Schema, value: Any, path: str) -> Found:
        """Return the first issue of `value`, which stands at `path`; nothing if it fits.

        Raises:
            TooComplex: the budget is used up.
        """
        self.look(1)
        question = id(schema), id(value)  # both outlive the reading
        found = self._known.get(question)
        if found is None:
            found = ()
            for check in _checks(schema):
                for issue in check(self, schema, value, ""):
                    found = (issue,)
                    break
                if found:
                    break
            self._known[question] = found
        return tuple(ValidationIssue(path + each.path, each.message) for each in found)

    def look(self, times: int) -> None:
        """Take so many looks out of the budget.

        Raises:
            TooComplex: it is used up.
        """
        self.left -= times
        if self.left < 0:
            raise TooComplex


@define
class Explaining:
    """Yields every issue, in the order of the schema; what fits is not entered."""

    survey: Survey
    deciding: Deciding

    def read(self, schema: Schema, value: Any, path: str) -> Issues:
        """Yield what is wrong with `value`, which stands at `path`, under `schema`."""
        if self.deciding.read(schema, value, ""):
            for check in _checks(schema):
                yield from check(self, schema, value, path)


Reading = Deciding | Explaining
Check = Callable[[Reading, Any, Any, str], Issues]
"""Yields what a keyword of a schema has against a value at a path."""


def _checks(schema: Schema) -> Iterator[Check]:
    """Yield the checks of a schema, in order."""
    if isinstance(schema, bool):
        if not schema:
            yield _false_schema
    elif "$ref" in schema:  # which makes these dialects ignore what stands beside it
        yield _reference
    else:
        yield from (_FLAT[keyword] for keyword in schema if keyword in _FLAT)
        # What leads further comes last: an alternative that is not meant fails at once.
        yield from (_LEADING[keyword] for keyword in schema if keyword in _LEADING)


def _issue(path: str, keyword: str, about: Any = None) -> ValidationIssue:
    return ValidationIssue(path, MESSAGES[keyword](about))


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_array(value: Any) -> bool:
    return isinstance(value, list)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _limit(
    keyword: str, applies: Callable[[Any], bool], holds: Callable[[Any, Any], bool]
) -> Check:
    """Return the check of a keyword that one look at the value decides."""

    def check(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
        if applies(value) and not holds(value, schema[keyword]):
            yield _issue(path, keyword, schema[keyword])

    return check


def _false_schema(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    yield _issue(path, "falseSchema")


def _reference(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    yield from reading.read(reading.survey.references[schema["$ref"]], value, path)


def _const(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if not _is_one_of(reading, value, [schema["const"]]):
        yield _issue(path, "const", schema["const"])


def _enum(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if not _is_one_of(reading, value, schema["enum"]):
        yield _issue(path, "enum", schema["enum"])


def _is_one_of(reading: Reading, value: Any, values: list[Any]) -> bool:
    if isinstance(value, list | dict):
        values = [one for one in values if type(one) is type(value) and len(one) == len(value)]
    if not values:
        return False
    reading.deciding.look(size(value))
    text = identity(value)
    return any(identity(one) == text for one in values)


def _unique_items(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if schema["uniqueItems"] and isinstance(value, list):
        reading.deciding.look(size(value))
        if not are_different(value):
            yield _issue(path, "uniqueItems")


def _type(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    types = schema["type"]
    whole_float = reading.survey.dialect != DRAFT_04
    if not any(
        _has_type(value, name, whole_float)
        for name in ([types] if isinstance(types, str) else types)
    ):
        yield _issue(path, "type", types)


def _has_type(value: Any, name: str, whole_float: bool) -> bool:
    match name:
        case "integer":
            return _is_number(value) and (
                isinstance(value, int) or (whole_float and value.is_integer())
            )
        case "number":
            return _is_number(value)
        case "null":
            return value is None
        case _:
            return isinstance(value, _PYTHON_TYPES[name])


_PYTHON_TYPES: Final = {"array": list, "boolean": bool, "object": dict, "string": str}


def _minimum(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    limit, exclusive = schema["minimum"], schema.get("exclusiveMinimum") is True  # draft-04
    if _is_number(value) and (value <= limit if exclusive else value < limit):
        yield _issue(path, "exclusiveMinimum" if exclusive else "minimum", limit)


def _maximum(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    limit, exclusive = schema["maximum"], schema.get("exclusiveMaximum") is True  # draft-04
    if _is_number(value) and (value >= limit if exclusive else value > limit):
        yield _issue(path, "exclusiveMaximum" if exclusive else "maximum", limit)


def _pattern(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    pattern = schema["pattern"]
    if isinstance(value, str) and not re.search(reading.survey.patterns[pattern], value):
        yield _issue(path, "pattern", pattern)


def _format(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    name = schema["format"]
    if name == "regex" and isinstance(value, str):
        reading.deciding.look(len(value))
    if isinstance(value, str) and name in reading.survey.formats and not predicate(name)(value):
        yield _issue(path, "format", name)


def _items(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if not isinstance(value, list):
        return
    items = schema["items"]
    first = items if isinstance(items, list) else []
    rest = schema.get("additionalItems", True) if isinstance(items, list) else items
    if rest is False and first and len(value) > len(first):
        yield _issue(path, "additionalItems", len(first))
        value = value[: len(first)]
    for number, one in enumerate(value):
        of_it = first[number] if number < len(first) else rest
        yield from reading.read(of_it, one, step(path, number))


def _fits(reading: Reading, schema: Schema, value: Any) -> bool:
    return not reading.deciding.read(schema, value, "")


def _contains(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, list) and not any(
        _fits(reading, schema["contains"], one) for one in value
    ):
        yield _issue(path, "contains")


def _required(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        missing = [name for name in schema["required"] if name not in value]
        if missing:
            yield _issue(path, "required", missing)


def _properties(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        for name, of_it in schema["properties"].items():
            if name in value:
                yield from reading.read(of_it, value[name], step(path, name))


def _pattern_properties(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        for pattern, of_it in schema["patternProperties"].items():
            search = re.compile(reading.survey.patterns[pattern]).search
            reading.deciding.look(len(value))
            for name, one in value.items():
                if search(name):
                    yield from reading.read(of_it, one, step(path, name))


def _additional_properties(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if not isinstance(value, dict):
        return
    named = schema.get("properties", {})
    patterns = [reading.survey.patterns[one] for one in schema.get("patternProperties", ())]
    reading.deciding.look(len(value) * (1 + len(patterns)))
    others = [
        name
        for name in value
        if name not in named and not any(re.search(pattern, name) for pattern in patterns)
    ]
    of_them = schema["additionalProperties"]
    if of_them is not False:
        for name in others:
            yield from reading.read(of_them, value[name], step(path, name))
    elif others:
        yield _issue(path, "additionalProperties", others)


def _property_names(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        of_them = schema["propertyNames"]
        if not all(_fits(reading, of_them, name) for name in value):
            yield _issue(path, "propertyNames")


def _dependencies(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if not isinstance(value, dict):
        return
    for name, demand in schema["dependencies"].items():
        if name not in value:
            continue
        if isinstance(demand, list):
            yield from _required(reading, {"required": demand}, value, path)
        else:
            yield from reading.read(demand, value, path)


def _all_of(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    for one in schema["allOf"]:
        yield from reading.read(one, value, path)


def _any_of(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    first_issues: list[ValidationIssue] = []
    for one in schema["anyOf"]:
        found = reading.deciding.read(one, value, "")
        if not found:
            return
        first_issues += found
    yield _issue(path, "anyOf")
    yield from _closest(reading, schema["anyOf"], first_issues, value, path)


def _one_of(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    first_issues: list[ValidationIssue] = []
    for one in schema["oneOf"]:
        first_issues += reading.deciding.read(one, value, "")
    fitting = len(schema["oneOf"]) - len(first_issues)
    if fitting != 1:
        yield _issue(path, "oneOf")
    if fitting == 0:
        yield from _closest(reading, schema["oneOf"], first_issues, value, path)


def _closest(
    reading: Reading,
    schemas: list[Schema],
    first_issues: list[ValidationIssue],
    value: Any,
    path: str,
) -> Issues:
    """What is wrong under the alternative that was meant: the only one to fail deepest inside."""
    depths = [first.path.count("/") for first in first_issues]
    deepest = max(depths)
    if deepest > 0 and depths.count(deepest) == 1:
        yield from reading.read(schemas[depths.index(deepest)], value, path)


def _not(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    if _fits(reading, schema["not"], value):
        yield _issue(path, "not")


def _if(reading: Reading, schema: Any, value: Any, path: str) -> Issues:
    branch = "then" if _fits(reading, schema["if"], value) else "else"
    yield from reading.read(schema.get(branch, True), value, path)


_FLAT: Final[dict[str, Check]] = {
    "const": _const,
    "enum": _enum,
    "exclusiveMaximum": _limit(
        "exclusiveMaximum",
        _is_number,
        lambda value, limit: isinstance(limit, bool) or value < limit,
    ),
    "exclusiveMinimum": _limit(
        "exclusiveMinimum",
        _is_number,
        lambda value, limit: isinstance(limit, bool) or value > limit,
    ),
    "format": _format,
    "maxItems": _limit("maxItems", _is_array, lambda value, limit: len(value) <= limit),
    "maxLength": _limit("maxLength", _is_string, lambda value, limit: len(value) <= limit),
    "maxProperties": _limit("maxProperties", _is_object, lambda value, limit: len(value) <= limit),
    "maximum": _maximum,
    "minItems": _limit("minItems", _is_array, lambda value, limit: len(value) >= limit),
    "minLength": _limit("minLength", _is_string, lambda value, limit: len(value) >= limit),
    "minProperties": _limit("minProperties", _is_object, lambda value, limit: len(value) >= limit),
    "minimum": _minimum,
    "multipleOf": _limit("multipleOf", _is_number, lambda value, limit: multiple_of(limit)(value)),
    "pattern": _pattern,
    "required": _required,
    "type": _type,
    "uniqueItems": _unique_items,
}
"""Keywords that do not lead to further schemas."""

_LEADING: Final[dict[str, Check]] = {
    "additionalProperties": _additional_properties,
    "allOf": _all_of,
    "anyOf": _any_of,
    "contains": _contains,
    "dependencies": _dependencies,
    "if": _if,
    "items": _items,
    "not": _not,
    "oneOf": _one_of,
    "patternProperties": _pattern_properties,
    "properties": _properties,
    "propertyNames": _property_names,
}
"""Keywords that lead on to further schemas."""
