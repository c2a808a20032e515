"""An interpreter of schemas up to draft-07, which finds the issues of an invalid value.

The generated validator (`codegen`) only decides that a value is invalid. This module then finds the
reasons, with exact paths and in an order that depends on schema and value only. It takes some ten
times as long, so it runs only for invalid values. Tests hold that the two agree.

It walks twice. The `Decider` finds the first issue of a schema and a value, and remembers it:
nothing is decided twice. The `Explainer` then walks through the invalid parts only. Both share a
budget; when it is used up, the issues found so far are the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from attrs import define, field

from .analysis import SchemaAnalysis
from .budget import CHARACTER, TooComplex
from .dialects import DRAFT_04, Schema
from .equality import are_different, identities, identity, multiple_of, size
from .formats import predicate
from .issues import TOO_DEEP, UNEXPLAINED, ValidationIssue, step
from .messages import MESSAGES, Selection

Issues = Iterator[ValidationIssue]
Found = tuple[ValidationIssue, ...]
T = TypeVar("T")

MAX_LOOKS: Final = 60_000
"""The most looks at parts of a value to find its issues: about 0.1 s."""

MIN_LOOKS: Final = 5_000
"""The least of them, however much of its budget the check has used up."""

LOOK: Final = 40
"""The steps of a check (`budget`) that take as long as a look."""

_NAMES: Final = 16
"""The names of a schema that are looked up in the time of a look."""

_SHORT: Final = 64
"""The longest string that is as quick to check again as to remember."""


def explain(
    analysis: SchemaAnalysis, value: Any, left: float = MAX_LOOKS * LOOK
) -> tuple[ValidationIssue, ...]:
    """Return the issues of an invalid value, up to `MAX_ISSUES` of them (SCHEMA-21).

    If the looks do not suffice, return the issues found by then, or `UNEXPLAINED`.

    Args:
        analysis: the analysis of the schema.
        value: the value.
        left: the steps that the check has left of its budget.
    """
    looks = max(MIN_LOOKS, min(MAX_LOOKS, int(left) // LOOK))
    explainer = Explainer(analysis, Decider(analysis, looks))
    selection = explainer.selection
    try:
        for issue in explainer.read(analysis.root, value, ""):
            selection.add(issue, explainer.item)
            if selection.is_complete:
                break
    except TooComplex:
        pass
    except RecursionError:
        return TOO_DEEP
    return selection.issues() or UNEXPLAINED


@define
class Decider:
    """Finds the first issue of a schema and a value, and remembers it.

    Attributes:
        analysis: the analysis of the schema.
        left: the number of looks left.
    """

    analysis: SchemaAnalysis
    left: int
    _known: dict[tuple[int, int], Found] = field(factory=dict)
    _plans: dict[int, tuple[tuple[Check, ...], bool, int]] = field(factory=dict)
    _kept: dict[int, Any] = field(factory=dict)

    @property
    def decider(self) -> Decider:
        """Return itself, as `Explainer` has it."""
        return self

    def read(self, schema: Schema, value: Any, path: str) -> Found:
        """Return the first issue of `value`, which is at `path`; none if it is valid.

        Raises:
            TooComplex: the budget is used up.
        """
        plan = self._plans.get(id(schema))
        if plan is None:
            plan = tuple(_checks(schema)), _has_subschemas(schema), _looks(schema)
            self._plans[id(schema)] = plan
        checks, has_subschemas, looks = plan
        self.spend(looks)
        # Else as quick to decide again, and many.
        remembers = has_subschemas or isinstance(value, dict | list)
        remembers = remembers or (isinstance(value, str) and len(value) > _SHORT)
        memo_key = id(schema), id(value)  # both outlive the check
        found = self._known.get(memo_key) if remembers else None
        if found is None:
            found = ()
            for check in checks:
                for issue in check(self, schema, value, ""):
                    found = (issue,)
                    break
                if found:
                    break
            if remembers:
                self._known[memo_key] = found
        if not path:
            return found
        return tuple(ValidationIssue(path + each.path, each.message) for each in found)

    read_item = read

    def keep(self, part: Any, make: Callable[[Any], T]) -> T:
        """Return `make(part)` of a part of the schema, made once."""
        kept: T | None = self._kept.get(id(part))
        if kept is None:
            kept = self._kept[id(part)] = make(part)
        return kept

    def spend(self, times: int) -> None:
        """Take looks from the budget.

        Raises:
            TooComplex: the budget is used up.
        """
        self.left -= times
        if self.left < 0:
            raise TooComplex


@define
class Explainer:
    """Yields every issue, in the order of the schema; skips valid parts.

    Attributes:
        selection: of the issues that were yielded.
        item: the path of the item of the outermost array that is being read, if there is one.
    """

    analysis: SchemaAnalysis
    decider: Decider
    selection: Selection = field(factory=Selection, init=False)
    item: str | None = field(default=None, init=False)

    def read(self, schema: Schema, value: Any, path: str) -> Issues:
        """Yield the issues under `schema` of `value`, which is at `path`."""
        if self.decider.read(schema, value, ""):
            for check in _checks(schema):
                yield from check(self, schema, value, path)

    def read_item(self, schema: Schema, value: Any, path: str) -> Issues:
        """Yield the issues of an item of an array; no more than can be selected."""
        is_outermost = self.item is None
        if is_outermost:
            self.item = path
        for issue in self.read(schema, value, path):
            yield issue
            if self.selection.is_brief:
                break
        if is_outermost:
            self.item = None


Walk = Decider | Explainer
Check = Callable[[Walk, Any, Any, str], Issues]
"""Yields the issues of a value at a path under one keyword of a schema."""


def _checks(schema: Schema) -> Iterator[Check]:
    """Yield the checks of a schema, in order."""
    if isinstance(schema, bool):
        if not schema:
            yield _false_schema
    elif "$ref" in schema:  # these dialects ignore the keywords beside it
        yield _reference
    else:
        yield from (_ASSERTIONS[keyword] for keyword in schema if keyword in _ASSERTIONS)
        # Applicators come last: so an alternative that is not meant fails at once.
        yield from (_APPLICATORS[keyword] for keyword in schema if keyword in _APPLICATORS)


def _looks(schema: Schema) -> int:
    """Return the looks that a schema itself takes: some of its names take as long as one."""
    if isinstance(schema, bool):
        return 1
    names = sum(len(schema.get(one, ())) for one in ("dependencies", "properties", "required"))
    return 1 + names // _NAMES


def _has_subschemas(schema: Schema) -> bool:
    return isinstance(schema, dict) and (
        "$ref" in schema or not _APPLICATORS.keys().isdisjoint(schema)
    )


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
    """Return the check of a keyword that compares the value with a limit."""

    def check(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
        if applies(value) and not holds(value, schema[keyword]):
            yield _issue(path, keyword, schema[keyword])

    return check


def _false_schema(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    yield _issue(path, "falseSchema")


def _reference(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    yield from walk.read(walk.analysis.references[schema["$ref"]], value, path)


def _const(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if not _is_one_of(walk, value, schema, [schema["const"]]):
        yield _issue(path, "const", schema["const"])


def _enum(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if not _is_one_of(walk, value, schema["enum"], schema["enum"]):
        yield _issue(path, "enum", schema["enum"])


def _is_one_of(walk: Walk, value: Any, part: Any, values: list[Any]) -> bool:
    """Return whether `value` is one of `values`, which are in a part of the schema."""
    texts, lengths = walk.decider.keep(part, lambda _: identities(values))
    if isinstance(value, list | dict):
        if (type(value), len(value)) not in lengths:
            return False
        walk.decider.spend(size(value))
    return identity(value) in texts


def _unique_items(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if schema["uniqueItems"] and isinstance(value, list):
        walk.decider.spend(size(value))
        if not are_different(value):
            yield _issue(path, "uniqueItems")


def _type(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    types = schema["type"]
    if not _has_one_type(walk, value, [types] if isinstance(types, str) else types):
        yield _issue(path, "type", types)


def _has_one_type(walk: Walk, value: Any, names: list[str]) -> bool:
    whole_float = walk.analysis.dialect != DRAFT_04
    return any(_has_type(value, name, whole_float) for name in names)


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


def _minimum(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    limit, exclusive = schema["minimum"], schema.get("exclusiveMinimum") is True  # draft-04
    if _is_number(value) and (value <= limit if exclusive else value < limit):
        yield _issue(path, "exclusiveMinimum" if exclusive else "minimum", limit)


def _maximum(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    limit, exclusive = schema["maximum"], schema.get("exclusiveMaximum") is True  # draft-04
    if _is_number(value) and (value >= limit if exclusive else value > limit):
        yield _issue(path, "exclusiveMaximum" if exclusive else "maximum", limit)


def _multiple_of(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    divisor = schema["multipleOf"]
    if _is_number(value) and not walk.decider.keep(divisor, multiple_of)(value):
        yield _issue(path, "multipleOf", divisor)


def _pattern(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    pattern = schema["pattern"]
    if isinstance(value, str) and not re.search(walk.analysis.patterns[pattern], value):
        yield _issue(path, "pattern", pattern)


def _format(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    name = schema["format"]
    if isinstance(value, str) and name in walk.analysis.formats:
        walk.decider.spend(int(CHARACTER.get(name, 0) * len(value)) // LOOK)
        if not predicate(name)(value):
            yield _issue(path, "format", name)


def _items(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if not isinstance(value, list):
        return
    items = schema["items"]
    first = items if isinstance(items, list) else []
    rest = schema.get("additionalItems", True) if isinstance(items, list) else items
    if rest is False and first and len(value) > len(first):
        yield _issue(path, "additionalItems", len(first))
        value = value[: len(first)]
    for number, one in enumerate(value):
        subschema = first[number] if number < len(first) else rest
        if not _fits(walk, subschema, one):
            yield from walk.read_item(subschema, one, step(path, number))


def _fits(walk: Walk, schema: Schema, value: Any) -> bool:
    return not walk.decider.read(schema, value, "")


def _contains(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, list) and not any(_fits(walk, schema["contains"], one) for one in value):
        yield _issue(path, "contains")


def _required(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        missing = [name for name in schema["required"] if name not in value]
        if missing:
            yield _issue(path, "required", missing)


def _properties(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        for name, subschema in schema["properties"].items():
            if name in value:
                yield from walk.read(subschema, value[name], step(path, name))


def _pattern_properties(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        for pattern, subschema in schema["patternProperties"].items():
            search = re.compile(walk.analysis.patterns[pattern]).search
            walk.decider.spend(len(value))
            for name, one in value.items():
                if search(name):
                    yield from walk.read(subschema, one, step(path, name))


def _additional_properties(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if not isinstance(value, dict):
        return
    named = schema.get("properties", {})
    patterns = [walk.analysis.patterns[one] for one in schema.get("patternProperties", ())]
    walk.decider.spend(len(value) * (1 + len(patterns)))
    others = [
        name
        for name in value
        if name not in named and not any(re.search(pattern, name) for pattern in patterns)
    ]
    subschema = schema["additionalProperties"]
    if subschema is not False:
        for name in others:
            yield from walk.read(subschema, value[name], step(path, name))
    elif others:
        yield _issue(path, "additionalProperties", others)


def _property_names(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if isinstance(value, dict):
        subschema = schema["propertyNames"]
        if not all(_fits(walk, subschema, name) for name in value):
            yield _issue(path, "propertyNames")


def _dependencies(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if not isinstance(value, dict):
        return
    for name, demand in schema["dependencies"].items():
        if name not in value:
            continue
        if isinstance(demand, list):
            yield from _required(walk, {"required": demand}, value, path)
        else:
            yield from walk.read(demand, value, path)


def _all_of(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    for one in schema["allOf"]:
        yield from walk.read(one, value, path)


def _any_of(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    first_issues: list[ValidationIssue] = []
    for one in schema["anyOf"]:
        found = walk.decider.read(one, value, "")
        if not found:
            return
        first_issues += found
    types = _types_of(schema["anyOf"])
    meant = [one for one, names in types if _has_one_type(walk, value, names)]
    if types and not meant:
        names = [name for _, own in types for name in own]
        yield _issue(path, "type", list(dict.fromkeys(names)))
    elif len(meant) == 1:
        yield from walk.read(meant[0], value, path)
    else:
        yield _issue(path, "anyOf")
        yield from _closest(walk, schema["anyOf"], first_issues, value, path)


def _types_of(schemas: list[Schema]) -> list[tuple[Schema, list[str]]]:
    """Return the alternatives with their types; none if one of them does not state its own."""
    found: list[tuple[Schema, list[str]]] = []
    for one in schemas:
        if isinstance(one, bool) or "$ref" in one or "type" not in one:
            return []
        found.append((one, [one["type"]] if isinstance(one["type"], str) else one["type"]))
    return found


def _one_of(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    first_issues: list[ValidationIssue] = []
    for one in schema["oneOf"]:
        first_issues += walk.decider.read(one, value, "")
    fitting = len(schema["oneOf"]) - len(first_issues)
    if fitting != 1:
        yield _issue(path, "oneOf")
    if fitting == 0:
        yield from _closest(walk, schema["oneOf"], first_issues, value, path)


def _closest(
    walk: Walk,
    schemas: list[Schema],
    first_issues: list[ValidationIssue],
    value: Any,
    path: str,
) -> Issues:
    """Yield the issues under the intended alternative: the only one that fails deepest inside."""
    depths = [first.path.count("/") for first in first_issues]
    deepest = max(depths)
    if deepest > 0 and depths.count(deepest) == 1:
        yield from walk.read(schemas[depths.index(deepest)], value, path)


def _not(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    if _fits(walk, schema["not"], value):
        yield _issue(path, "not")


def _if(walk: Walk, schema: Any, value: Any, path: str) -> Issues:
    branch = "then" if _fits(walk, schema["if"], value) else "else"
    yield from walk.read(schema.get(branch, True), value, path)


_ASSERTIONS: Final[dict[str, Check]] = {
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
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "required": _required,
    "type": _type,
    "uniqueItems": _unique_items,
}
"""The keywords without subschemas."""

_APPLICATORS: Final[dict[str, Check]] = {
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
"""The keywords that apply subschemas."""
