"""Keywords for what the validators of attrs classes check (TYPED-80).

A validator runs when the instance is made, whatever the schema says. Its keywords tell the caller
before. So a validator without a keyword of the same meaning has none, and that is no error.
"""

from __future__ import annotations

import re
from typing import Any

from ...base.jsonschema.patterns import PatternError, translate
from .constraints import KEYWORDS, accepted_types
from .defaults import json_default
from .type_schema import NUMBERS, NoneType, Schema

_COMPARED = {
    ">=": "minimum",
    "<=": "maximum",
    ">": "exclusiveMinimum",
    "<": "exclusiveMaximum",
}


def put_limits(validator: Any, schema: Schema) -> None:
    """Put what `validator` of attrs checks into `schema`, where a keyword says the same.

    Args:
        validator: of an attribute; one of another origin is left alone.
        schema: of the attribute. A keyword that it has stays as it is.
    """
    if type(validator).__module__ != "attr.validators" and not hasattr(validator, "_validators"):
        return
    for one in schema.get("anyOf", (schema,)):
        for keyword, limit in _keywords(validator, one, accepted_types(one, {})).items():
            one.setdefault(keyword, limit)


def _keywords(validator: Any, schema: Schema, kinds: frozenset[type]) -> Schema:
    """Return the keywords for one validator; descend into those that hold others."""
    match type(validator).__name__:
        case "_AndValidator":
            for one in validator._validators:
                put_limits(one, schema)
        case "_OptionalValidator":
            put_limits(validator.validator, schema)
        case "_DeepIterable":
            items = schema.get("items")
            if isinstance(items, dict) and "$ref" not in items and validator.member_validator:
                put_limits(validator.member_validator, items)
            if validator.iterable_validator:
                put_limits(validator.iterable_validator, schema)
        case "_NumberValidator":
            keyword = _COMPARED.get(validator.compare_op)
            if keyword and kinds & NUMBERS and type(validator.bound) in NUMBERS:
                return {keyword: validator.bound}
        case "_InValidator":
            return _options(validator.options, kinds)
        case "_MinLengthValidator":
            return _length("min_length", validator.min_length, kinds)
        case "_MaxLengthValidator":
            return _length("max_length", validator.max_length, kinds)
        case "_MatchesReValidator":
            return _pattern(validator)
    return {}


def _length(name: str, limit: int, kinds: frozenset[type]) -> Schema:
    return {keyword: limit for kind, keyword in KEYWORDS[name].items() if kind in kinds}


def _options(options: Any, kinds: frozenset[type]) -> Schema:
    """Return the keyword for the values allowed, if all of them have a JSON form."""
    if isinstance(options, str) or kinds == {NoneType}:
        return {}
    try:
        values = [json_default(option) for option in options]
    except TypeError:
        return {}
    if not all(type(value) in (str, bool, int, float, NoneType) for value in values):
        return {}
    possible = [value for value in values if type(value) in kinds]
    return {"enum": possible} if possible else {}


def _pattern(validator: Any) -> Schema:
    """Return the keyword for an expression that means the same in ECMA-262."""
    written = validator.pattern.pattern
    if type(written) is not str or validator.pattern.flags != re.UNICODE:
        return {}
    name = validator.match_func.__name__
    text = {"search": written, "match": f"^(?:{written})"}.get(name, f"^(?:{written})$")
    try:
        translate(text)
    except PatternError:
        return {}
    return {"pattern": text}
