"""The private schema that fastjsonschema compiles in place of the author's, up to draft-07.

It has the same meaning, within the subset that fastjsonschema implements correctly (SCHEMA-10).
Rewritten are: references (functions are named after the last part of a path in lower case, so two
definitions can collide), `const` (fails without detailed exceptions), `pattern` (taken as
Python's), formats (looser than their RFCs), `required` names that `additionalProperties` excludes
(refused), `contentEncoding` (replaces the value during the check), and schemas nested deeper than
Python can compile.

Some places become definitions, and so functions of their own: those whose steps `codegen` has to
count, and those that it decides by other code. `weigh` computes the cost of each function, in
steps, as far as its code alone determines it. A step is some 50 ns. The weights are measured,
rounded up, and counted as if every keyword of a schema applied to every value. A function has a
fixed cost, and a cost for each item or member of its value, whose size the code cannot know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import define, field

from ..shown import Shown
from .analysis import SchemaAnalysis
from .budget import DIVISION, IDENTITY, CheckRun
from .dialects import DRAFT_04, SILENT, URIS, Schema

Charge = tuple[int, int]
"""The fixed steps of a function, and its steps for each item or member of its value."""

_CALL: Final = 12
"""A call of a function that counts its own steps, or of an exact one."""
_TRIAL: Final = 14
"""A branch that may fail: an exception is made, raised and caught."""

_WEIGHTS: Final = {"format": 45, "pattern": 8}
_MAX_LEAF: Final = 200
"""The most steps of a function that its callers count for it."""

_MAX_MEMBERS: Final = 100
"""The most steps of all properties that are counted as if every property were present. Beyond,
each member of the value counts as the most expensive property."""

_LIGHT_STEPS: Final = 5
"""The steps for each byte of a value that need no count: those of 1 MiB are within the budget."""

ROOT: Final = ""
"""The name of the root among the names of definitions."""

Exact = Callable[[Any, CheckRun], bool]
"""Decides whether a value is valid; takes the steps that depend on its size from the run."""

_MAX_NESTING: Final = 6
"""The depth beyond which schemas become functions of their own: Python compiles 20 nested blocks,
and one level of a schema is up to three of them."""

_MAX_INLINE_VALUES: Final = 8
"""The longest `enum` that is compared value by value."""

_UNCHANGED: Final = frozenset(
    (
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "required",
        "type",
    )
)
_SCHEMA: Final = frozenset(("not", "contains", "propertyNames", "if", "then", "else"))


@define(eq=False, repr=False)
class Lowering:
    """Writes the private schema; `document()` is all of it.

    Attributes:
        analysis: the analysis of the schema.
        exact: the functions that replace generated ones, by the names of their definitions.
        shared: the names of the definitions that may check one value more than once.
        calls_root: whether other functions call the root's function.
        counts_steps: whether a function in `exact` counts steps.
    """

    analysis: SchemaAnalysis
    exact: dict[str, Exact] = field(factory=dict)
    shared: set[str] = field(factory=set)
    calls_root: bool = False
    counts_steps: bool = False
    _definitions: dict[str, Schema] = field(factory=dict)
    _names: dict[int, str] = field(factory=dict)
    _count: int = 0
    _waiting: list[tuple[str, dict[str, Any]]] = field(factory=list)
    _shared_schemas: frozenset[int] | None = frozenset()

    def document(self) -> dict[str, Any]:
        """Return the private schema with every definition, under numbers as names."""
        analysis = self.analysis
        if analysis.references:
            from .reachability import walk_states  # 1.5 ms, saved without references

            reach = walk_states(analysis.root, analysis.referred, lambda schema: 0)
            self._shared_schemas = None if reach is None else reach.shared
        plain = not any(target is analysis.root for target in analysis.references.values())
        root = self._lower(analysis.root, 0, plain)
        while self._waiting:
            name, schema = self._waiting.pop()
            self._definitions[name] = self._lower(schema, 0)
        whole = root if isinstance(root, dict) else {"allOf": [root]}
        return {**whole, "definitions": self._definitions, "$schema": URIS[analysis.dialect]}

    def _is_shared(self, schema: dict[str, Any]) -> bool:
        return self._shared_schemas is None or id(schema) in self._shared_schemas

    def _refer(self, schema: Schema) -> Schema:
        if isinstance(schema, bool):
            return schema
        if schema is self.analysis.root:
            self.calls_root = True
            if self._is_shared(schema):
                self.shared.add(ROOT)
            return {"$ref": "#"}
        name = self._names.get(id(schema))
        if name is None:
            name = self._names[id(schema)] = self._new_name()
            self._waiting.append((name, schema))
            if self._is_shared(schema):
                self.shared.add(name)
        return {"$ref": f"#/definitions/{name}"}

    def _new_name(self) -> str:
        self._count += 1
        return str(self._count)

    def _define(self, lowered: dict[str, Any], decide: Exact | None = None) -> Schema:
        """Return a reference to `lowered`, moved to a definition.

        Args:
            lowered: a private schema.
            decide: replaces the function generated from `lowered`.
        """
        name = self._new_name()
        self._definitions[name] = lowered
        if decide is not None:
            self.exact[name] = decide
        return {"$ref": f"#/definitions/{name}"}

    def _lower(self, schema: Schema, depth: int, plain: bool = False) -> Schema:
        """Return the private form of `schema`.

        Args:
            schema: a schema of the author's.
            depth: the depth of its nesting within its function.
            plain: whether it is reached through `properties` alone, and so applies to one part of
                the value at most.
        """
        if isinstance(schema, bool):
            return schema
        if "$ref" in schema:
            return self._refer(self.analysis.references[schema["$ref"]])
        if depth > _MAX_NESTING:
            return self._refer(schema)
        lowered = self._keywords(_one_step(schema), depth, plain)
        if depth and isinstance(lowered, dict) and _varies(lowered, plain):
            return self._define(lowered)
        return lowered

    def _keywords(self, schema: dict[str, Any], depth: int, plain: bool) -> Schema:
        """Return the private form of the keywords of `schema`; see `_lower`."""
        lowered: dict[str, Any] = {}
        extra: list[Schema] = []
        for keyword, value in schema.items():
            match keyword:
                case _ if keyword in _UNCHANGED:
                    lowered[keyword] = value
                case _ if keyword in _SCHEMA:
                    lowered[keyword] = self._lower(value, depth + 1)
                case "anyOf" | "oneOf":
                    lowered[keyword] = [self._lower(one, depth + 1) for one in value]
                case "allOf":
                    extra += [self._lower(one, depth + 1) for one in value]
                case "enum" if _is_short(value):
                    lowered[keyword] = value
                case "enum":
                    extra.append(self._one_of(value))
                case "const":
                    extra.append(self._one_of([value]))
                case "pattern":
                    lowered[keyword] = self.analysis.patterns[value]
                case "format" if value in self.analysis.formats:
                    lowered[keyword] = value
                case "multipleOf":
                    extra.append(self._multiple_of(value))
                case "uniqueItems" if value:
                    extra.append(self._unique_items())
                case "items" | "additionalItems" | "additionalProperties":
                    self._lower_rest(schema, keyword, depth, lowered)
                case "properties" if value:
                    lowered[keyword] = {
                        name: self._lower(one, depth + 1, plain) for name, one in value.items()
                    }
                case "patternProperties" | "dependencies" if value:
                    lowered[keyword] = self._lower_map(keyword, value, depth + 1)
        return self._settle(lowered, extra)

    def _lower_rest(
        self, schema: dict[str, Any], keyword: str, depth: int, lowered: dict[str, Any]
    ) -> None:
        """Write a keyword, unless it allows anything: it would generate an empty block."""
        value = schema[keyword]
        if isinstance(value, list):
            lowered[keyword] = [self._lower(one, depth + 1) for one in value]
            return
        if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
            return
        rest = self._lower(value, depth + 1)
        if rest is not True and rest != {}:
            lowered[keyword] = rest

    def _lower_map(self, keyword: str, value: dict[str, Any], depth: int) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for name, one in value.items():
            if keyword == "patternProperties":
                name = self.analysis.patterns[name]
                while name in written:  # two patterns that differ in ECMA-262 only
                    name = f"(?:{name})"
            written[name] = one if isinstance(one, list) else self._lower(one, depth)
        return written

    def _one_of(self, values: list[Any]) -> Schema:
        """Return the schema of one of `values`."""
        if _is_short(values):
            return {"enum": values}
        from .equality import identities, identity, size

        texts, lengths = identities(values)

        def decide(value: Any, run: CheckRun) -> bool:
            if isinstance(value, list | dict):
                if (type(value), len(value)) not in lengths:
                    return False
                run.take(IDENTITY * size(value))
            return identity(value) in texts

        self.counts_steps = self.counts_steps or bool(lengths)
        return self._define({"enum": values}, decide)

    def _multiple_of(self, divisor: float) -> Schema:
        from .equality import multiple_of

        is_multiple = multiple_of(divisor)

        def decide(value: Any, run: CheckRun) -> bool:
            if type(value) is float:
                run.take(DIVISION)
            elif type(value) is not int:
                return True
            return is_multiple(value)

        self.counts_steps = True
        return self._define({"multipleOf": divisor}, decide)

    def _unique_items(self) -> Schema:
        from .equality import are_different, size

        def decide(value: Any, run: CheckRun) -> bool:
            if not isinstance(value, list):
                return True
            run.take(IDENTITY * size(value))
            return are_different(value)

        self.counts_steps = True
        return self._define({"uniqueItems": True}, decide)

    def _settle(self, lowered: dict[str, Any], extra: list[Schema]) -> Schema:
        if lowered.get("additionalProperties") is False and not (
            lowered.get("properties", {}).keys() >= set(lowered.get("required", ()))
        ):
            # In one schema, fastjsonschema refuses names that only `required` has.
            extra.append({"required": lowered.pop("required")})
        if extra:
            lowered["allOf"] = extra
        if not lowered and self.analysis.dialect != DRAFT_04:
            return True  # generates `pass`; `{}` would generate an empty block
        return lowered


def _one_step(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` with an ``anyOf`` of different types as a list of types, which is one check.

    ``anyOf`` tries its schemas, and every trial that fails is an exception. It is left as it is
    where a keyword would apply to values of another type than its own.
    """
    if "anyOf" not in schema or schema.keys() - SILENT != {"anyOf"}:
        return schema
    merged: dict[str, Any] = {"type": []}
    for one in schema["anyOf"]:
        kind = one.get("type") if isinstance(one, dict) else None
        if not isinstance(kind, str) or kind in merged["type"]:
            return schema
        own = {keyword: one[keyword] for keyword in one.keys() - SILENT - {"type"}}
        if not own.keys() <= _KEYWORDS_OF.get(kind, frozenset()):
            return schema
        merged["type"].append(kind)
        merged.update(own)
    if {"integer", "number"} <= {*merged["type"]}:
        return schema
    if len(merged["type"]) == 6:  # every type of JSON
        del merged["type"]
    return merged


_OF_NUMBERS: Final = frozenset(
    ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf")
)
_KEYWORDS_OF: Final[dict[str, frozenset[str]]] = {
    "integer": _OF_NUMBERS,
    "number": _OF_NUMBERS,
    "string": frozenset(("format", "maxLength", "minLength", "pattern")),
    "array": frozenset(
        ("additionalItems", "contains", "items", "maxItems", "minItems", "uniqueItems")
    ),
    "object": frozenset(
        (
            "additionalProperties",
            "dependencies",
            "maxProperties",
            "minProperties",
            "patternProperties",
            "properties",
            "propertyNames",
            "required",
        )
    ),
}
"""The keywords that apply to values of one JSON type, and to no others."""

_VARYING: Final = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "contains",
        "items",
        "patternProperties",
        "properties",
        "propertyNames",
    )
)
"""The keywords whose cost may grow with the number of items or members."""


def _varies(lowered: dict[str, Any], plain: bool) -> bool:
    """Return whether the cost of a schema depends so much on the value's size that it must count.

    Args:
        lowered: the schema, in its private form.
        plain: whether it applies to one part of the value at most.
    """
    if _VARYING.isdisjoint(lowered):
        return False
    code = CodeCost({})
    return not is_light(lowered, code) if plain else code.charge(lowered)[1] > 0


def _is_short(values: list[Any]) -> bool:
    """Return whether `values` are few enough to be compared one by one."""
    from .equality import size

    return len(values) <= _MAX_INLINE_VALUES and sum(map(size, values)) <= _MAX_INLINE_VALUES


def weigh(
    document: dict[str, Any],
    exact: Collection[str],
    shared: Collection[str],
    *,
    calls_root: bool,
) -> dict[str, Charge]:
    """Return the charges of the functions that have to count, by the names of their definitions.

    Callers count for functions that call no others, do not loop and cost little. The root counts
    if other functions call it, or if it loops.

    Args:
        document: the private schema.
        exact: the definitions that other code decides.
        shared: the definitions that may check one value more than once.
        calls_root: whether other functions call the root's function.
    """
    functions = {
        name: schema for name, schema in document["definitions"].items() if name not in exact
    }
    called = dict.fromkeys(exact, 0)
    called.update((name, fixed) for name, fixed in _leaves(functions, exact) if name not in shared)
    code = CodeCost(called)
    charges = {name: code.charge(schema) for name, schema in functions.items()}
    if calls_root or not is_light(document, code):
        charges[ROOT] = code.charge(document)
    return {name: charge for name, charge in charges.items() if name not in called}


def is_light(schema: dict[str, Any], code: CodeCost) -> bool:
    """Return whether the steps of `schema` for each item need not be counted.

    Only for a schema that applies to one part of a value at most: the more bytes each item has at
    least, the fewer items a value can have.
    """
    item = schema.get("items")
    least = 2  # a digit and a comma
    if isinstance(item, dict) and item.get("type") in ("array", "object", "string"):
        least = 3
        if item["type"] == "object":
            least += sum(len(name) + len('"":0') for name in item.get("required", ()))
    return code.loops(schema) <= _LIGHT_STEPS * least


def _leaves(functions: Mapping[str, Schema], exact: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the functions that call no others, do not loop and cost little, with their costs."""
    for name, schema in functions.items():
        code = CodeCost(dict.fromkeys(exact, 0))
        fixed, each = code.charge(schema)
        if not each and not code.calls and fixed <= _MAX_LEAF:
            yield name, fixed


@define(eq=False, repr=False)
class CodeCost(Shown):
    """The cost of generated code.

    Attributes:
        called: the costs of the functions that do not count for themselves.
        calls: the other functions that the code calls.
    """

    called: dict[str, int]
    calls: set[str] = field(factory=set)

    def charge(self, schema: Schema) -> Charge:
        """Return the cost of a function: fixed, and for each item or member."""
        if isinstance(schema, bool):
            return 1, 0
        members = [self._all([one]) for one in schema.get("properties", {}).values()]
        fixed, each = self._fixed(schema) + 2 * len(members), self.loops(schema)
        if sum(members) <= _MAX_MEMBERS:
            return fixed + sum(members), each
        return fixed, each + max(members)

    def loops(self, schema: dict[str, Any]) -> int:
        """Return the cost of the code that runs for each item or member."""
        each = self._loop(schema.get("items"), 2) + self._loop(schema.get("additionalItems"), 2)
        each += self._loop(schema.get("contains"), _TRIAL)
        each += self._loop(schema.get("propertyNames"), _TRIAL)
        for one in schema.get("patternProperties", {}).values():
            each += _WEIGHTS["pattern"] + self._all([one])
        others = schema.get("additionalProperties")
        return each + self._loop(others, 4 + len(schema.get("properties", ())) // 2)

    def _loop(self, schema: Any, weight: int) -> int:
        """Return the cost of `schema`, if it is one, plus `weight`."""
        return weight + self._all([schema]) if isinstance(schema, dict) else 0

    def _all(self, schemas: Iterable[Schema], weight: int = 0) -> int:
        """Return the cost of `schemas`, plus `weight` for each."""
        return sum(weight + sum(self.charge(schema)) for schema in schemas)

    def _fixed(self, schema: dict[str, Any]) -> int:
        """Return the cost of the code that runs once."""
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#").removeprefix("/definitions/")
            if name not in self.called:
                self.calls.add(name)
            return _CALL + self.called.get(name, 0)
        weight = sum(_WEIGHTS.get(keyword, 1) for keyword in schema)
        weight += len(schema.get("required", ())) + 2 * len(schema.get("enum", ()))
        weight += self._all(schema.get("allOf", ()))
        weight += self._all((*schema.get("anyOf", ()), *schema.get("oneOf", ())), _TRIAL)
        weight += self._all((schema[one] for one in ("not", "if") if one in schema), _TRIAL)
        weight += self._all(schema[one] for one in ("then", "else") if one in schema)
        if isinstance(schema.get("items"), list):
            weight += self._all(schema["items"], 1)
        for one in schema.get("dependencies", {}).values():
            weight += len(one) if isinstance(one, list) else self._all([one], 1)
        return weight
