"""Up to draft-07: a schema read keyword by keyword, to say what is wrong with a value and where.

The generated validator (`generated`) only knows that a value does not fit. This module finds the
reasons, with exact paths and in an order that schema and value alone decide, and only after a no:
it takes some ten times as long. The two are kept to the same answers by tests.

It is also the validator of schemas that use `multipleOf`, which fastjsonschema decides by dividing
floating-point numbers: here it is exact, on the decimal numbers that were written (SCHEMA-11).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from attrs import define

from .dialects import DRAFT_04, Schema
from .formats import predicate
from .issues import MAX_ISSUES, MESSAGES, TOO_DEEP, ValidationIssue, step
from .survey import Survey

Issues = Iterator[ValidationIssue]


@define
class Reading:
    """The exact reading of one schema."""

    survey: Survey

    def issues(self, value: Any) -> tuple[ValidationIssue, ...]:
        """What is wrong with `value`: nothing, or up to `MAX_ISSUES` issues (SCHEMA-21)."""
        try:
            return tuple(islice(self.read(self.survey.root, value, ""), MAX_ISSUES))
        except RecursionError:
            return TOO_DEEP

    def read(self, schema: Schema, value: Any, path: str) -> Issues:
        """What is wrong with `value`, which stands at `path`, under `schema`."""
        if isinstance(schema, bool):
            if not schema:
                yield _issue(path, "falseSchema")
            return
        if "$ref" in schema:  # which makes these dialects ignore what stands beside it
            yield from self.read(self.survey.references[schema["$ref"]], value, path)
            return
        for keyword, limit in schema.items():
            if keyword in _LIMITS:
                applies, holds = _LIMITS[keyword]
                if applies(value) and not holds(value, limit):
                    yield _issue(path, keyword, limit)
            elif keyword in _FLAT:
                yield from _FLAT[keyword](self, schema, value, path)
        # What leads further comes last: an alternative that is not meant should fail at once, or
        # nested alternatives double the work at every level.
        for keyword in schema:
            if keyword in _LEADING:
                yield from _LEADING[keyword](self, schema, value, path)

    def fits(self, schema: Schema, value: Any) -> bool:
        """Whether `value` fits `schema`."""
        return next(self.read(schema, value, ""), None) is None


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


def _is_anything(value: Any) -> bool:
    return True


def _identity(value: Any) -> Any:
    """A hashable stand-in: two values are equal in JSON if and only if theirs are."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return (list, *map(_identity, value))
    if isinstance(value, dict):
        return (dict, frozenset((name, _identity(one)) for name, one in value.items()))
    return value


def _is_multiple(value: float, divisor: float) -> bool:
    if isinstance(value, int) and isinstance(divisor, int):
        return value % divisor == 0
    from fractions import Fraction

    # `repr` is the shortest decimal that means the float, so 0.3 is three times 0.1.
    return (Fraction(repr(value)) / Fraction(repr(divisor))).denominator == 1


def _are_different(values: list[Any]) -> bool:
    return len(set(map(_identity, values))) == len(values)


_LIMITS: Final[dict[str, tuple[Callable[[Any], bool], Callable[[Any, Any], bool]]]] = {
    "const": (_is_anything, lambda value, limit: _identity(value) == _identity(limit)),
    "enum": (_is_anything, lambda value, limit: _identity(value) in set(map(_identity, limit))),
    "exclusiveMaximum": (
        _is_number,
        lambda value, limit: isinstance(limit, bool) or value < limit,
    ),
    "exclusiveMinimum": (
        _is_number,
        lambda value, limit: isinstance(limit, bool) or value > limit,
    ),
    "maxItems": (_is_array, lambda value, limit: len(value) <= limit),
    "maxLength": (_is_string, lambda value, limit: len(value) <= limit),
    "maxProperties": (_is_object, lambda value, limit: len(value) <= limit),
    "minItems": (_is_array, lambda value, limit: len(value) >= limit),
    "minLength": (_is_string, lambda value, limit: len(value) >= limit),
    "minProperties": (_is_object, lambda value, limit: len(value) >= limit),
    "multipleOf": (_is_number, _is_multiple),
    "uniqueItems": (_is_array, lambda value, limit: not limit or _are_different(value)),
}
"""Keywords that one look at the value decides: what they apply to, and whether it holds."""


def _type(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
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


def _minimum(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    limit, exclusive = schema["minimum"], schema.get("exclusiveMinimum") is True  # draft-04
    if _is_number(value) and (value <= limit if exclusive else value < limit):
        yield _issue(path, "exclusiveMinimum" if exclusive else "minimum", limit)


def _maximum(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    limit, exclusive = schema["maximum"], schema.get("exclusiveMaximum") is True  # draft-04
    if _is_number(value) and (value >= limit if exclusive else value > limit):
        yield _issue(path, "exclusiveMaximum" if exclusive else "maximum", limit)


def _pattern(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    pattern = schema["pattern"]
    if isinstance(value, str) and not re.search(reading.survey.patterns[pattern], value):
        yield _issue(path, "pattern", pattern)


def _format(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    name = schema["format"]
    if isinstance(value, str) and name in reading.survey.formats and not predicate(name)(value):
        yield _issue(path, "format", name)


def _items(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
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


def _contains(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    if isinstance(value, list) and not any(reading.fits(schema["contains"], one) for one in value):
        yield _issue(path, "contains")


def _required(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        missing = [name for name in schema["required"] if name not in value]
        if missing:
            yield _issue(path, "required", missing)


def _properties(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        for name, of_it in schema["properties"].items():
            if name in value:
                yield from reading.read(of_it, value[name], step(path, name))


def _pattern_properties(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        for pattern, of_it in schema["patternProperties"].items():
            search = re.compile(reading.survey.patterns[pattern]).search
            for name, one in value.items():
                if search(name):
                    yield from reading.read(of_it, one, step(path, name))


def _additional_properties(
    reading: Reading, schema: dict[str, Any], value: Any, path: str
) -> Issues:
    if not isinstance(value, dict):
        return
    named = schema.get("properties", {})
    patterns = [reading.survey.patterns[one] for one in schema.get("patternProperties", ())]
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


def _property_names(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        of_them = schema["propertyNames"]
        if not all(reading.fits(of_them, name) for name in value):
            yield _issue(path, "propertyNames")


def _dependencies(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    if not isinstance(value, dict):
        return
    for name, demand in schema["dependencies"].items():
        if name not in value:
            continue
        if isinstance(demand, list):
            yield from _required(reading, {"required": demand}, value, path)
        else:
            yield from reading.read(demand, value, path)


def _all_of(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    for one in schema["allOf"]:
        yield from reading.read(one, value, path)


def _any_of(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    first_issues = []
    for one in schema["anyOf"]:
        first = next(reading.read(one, value, path), None)
        if first is None:
            return
        first_issues.append(first)
    yield _issue(path, "anyOf")
    yield from _closest(reading, schema["anyOf"], first_issues, value, path)


def _one_of(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    first_issues = [next(reading.read(one, value, path), None) for one in schema["oneOf"]]
    failed = [first for first in first_issues if first is not None]
    if len(first_issues) - len(failed) != 1:
        yield _issue(path, "oneOf")
    if len(failed) == len(first_issues):
        yield from _closest(reading, schema["oneOf"], failed, value, path)


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
    if deepest > path.count("/") and depths.count(deepest) == 1:
        yield from reading.read(schemas[depths.index(deepest)], value, path)


def _not(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    if reading.fits(schema["not"], value):
        yield _issue(path, "not")


def _if(reading: Reading, schema: dict[str, Any], value: Any, path: str) -> Issues:
    branch = "then" if reading.fits(schema["if"], value) else "else"
    yield from reading.read(schema.get(branch, True), value, path)


_FLAT: Final[dict[str, Callable[[Reading, dict[str, Any], Any, str], Issues]]] = {
    "format": _format,
    "maximum": _maximum,
    "minimum": _minimum,
    "pattern": _pattern,
    "required": _required,
    "type": _type,
}
"""Keywords that take more into account than their own value."""

_LEADING: Final[dict[str, Callable[[Reading, dict[str, Any], Any, str], Issues]]] = {
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
