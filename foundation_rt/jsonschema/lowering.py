"""Up to draft-07: the private schema that fastjsonschema compiles in place of the author's.

It means the same and stays within what fastjsonschema reads rightly (SCHEMA-10). Rewritten are:
references (functions are named after the last part of a path in lower case, so two definitions can
collide), `const` (fails without detailed exceptions), `pattern` (read as Python's), formats (looser
than their RFCs), `required` of what `additionalProperties` excludes (refused), `contentEncoding`
(replaces the value while it checks), and whatever is nested deeper than Python compiles.

Some places become definitions, so that they become functions of their own: what `codegen` has to
count, and what it decides itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import define, field

from .analysis import Survey
from .dialects import DRAFT_04, URIS, Schema
from .equality import are_different, identity, multiple_of, size
from .steps import DIVISION, IDENTITY, Run
from .weights import ROOT, Code, is_light

Exact = Callable[[Any, Run], bool]
"""Decides a value; takes the steps that depend on the size of the value out of the run."""

_MAX_NESTING: Final = 6
"""Schemas nested deeper become functions of their own: Python compiles 20 nested blocks, and one
level of schema is up to three of them."""

_MAX_INLINE_VALUES: Final = 8
"""Longest `enum` that is compared value by value."""

_AS_IT_IS: Final = frozenset(
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
        exact: name of a definition to what decides it in place of the generated function.
        shared: names of definitions that may be asked about one value more than once.
        calls_root: whether the root is a function that others call.
        needs_run: whether something in `exact` counts steps.
    """

    survey: Survey
    exact: dict[str, Exact] = field(factory=dict)
    shared: set[str] = field(factory=set)
    calls_root: bool = False
    needs_run: bool = False
    _definitions: dict[str, Schema] = field(factory=dict)
    _names: dict[int, str] = field(factory=dict)
    _count: int = 0
    _waiting: list[tuple[str, dict[str, Any]]] = field(factory=list)
    _shared_schemas: frozenset[int] | None = frozenset()

    def document(self) -> dict[str, Any]:
        """Return the private schema with every definition, under numbers as names."""
        survey = self.survey
        if survey.references:
            from .paths import find_ways  # 1.5 ms that schemas without references do not need

            ways = find_ways(survey.root, survey.referred, lambda schema: 0)
            self._shared_schemas = None if ways is None else ways.shared
        plain = not any(target is survey.root for target in survey.references.values())
        root = self._lower(survey.root, 0, plain)
        while self._waiting:
            name, schema = self._waiting.pop()
            self._definitions[name] = self._lower(schema, 0)
        whole = root if isinstance(root, dict) else {"allOf": [root]}
        return {**whole, "definitions": self._definitions, "$schema": URIS[survey.dialect]}

    def _is_shared(self, schema: dict[str, Any]) -> bool:
        return self._shared_schemas is None or id(schema) in self._shared_schemas

    def _refer(self, schema: Schema) -> Schema:
        if isinstance(schema, bool):
            return schema
        if schema is self.survey.root:
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
        """Return a reference to `lowered`, moved to where it becomes a function.

        Args:
            decide: says the same as `lowered`, and takes the place of the function.
        """
        name = self._new_name()
        self._definitions[name] = lowered
        if decide is not None:
            self.exact[name] = decide
        return {"$ref": f"#/definitions/{name}"}

    def _lower(self, schema: Schema, depth: int, plain: bool = False) -> Schema:
        """Return the private form of `schema`.

        Args:
            depth: how many schemas it is nested in, within its function.
            plain: whether it applies to one part of the value at most, and nothing beside it does:
                `properties` alone lead to it.
        """
        if isinstance(schema, bool):
            return schema
        if "$ref" in schema:
            return self._refer(self.survey.references[schema["$ref"]])
        if depth > _MAX_NESTING:
            return self._refer(schema)
        lowered = self._keywords(schema, depth, plain)
        if depth and isinstance(lowered, dict) and _varies(lowered, plain):
            return self._define(lowered)
        return lowered

    def _keywords(self, schema: dict[str, Any], depth: int, plain: bool) -> Schema:
        """Return the private form of the keywords of `schema`; see `_lower`."""
        lowered: dict[str, Any] = {}
        besides: list[Schema] = []
        for keyword, value in schema.items():
            match keyword:
                case _ if keyword in _AS_IT_IS:
                    lowered[keyword] = value
                case _ if keyword in _SCHEMA:
                    lowered[keyword] = self._lower(value, depth + 1)
                case "anyOf" | "oneOf":
                    lowered[keyword] = [self._lower(one, depth + 1) for one in value]
                case "allOf":
                    besides += [self._lower(one, depth + 1) for one in value]
                case "enum" if _is_short(value):
                    lowered[keyword] = value
                case "enum":
                    besides.append(self._one_of(value))
                case "const":
                    besides.append(self._one_of([value]))
                case "pattern":
                    lowered[keyword] = self.survey.patterns[value]
                case "format" if value in self.survey.formats:
                    lowered[keyword] = value
                case "multipleOf":
                    besides.append(self._multiple_of(value))
                case "uniqueItems" if value:
                    besides.append(self._unique_items())
                case "items" | "additionalItems" | "additionalProperties":
                    self._lower_rest(schema, keyword, depth, lowered)
                case "properties" if value:
                    lowered[keyword] = {
                        name: self._lower(one, depth + 1, plain) for name, one in value.items()
                    }
                case "patternProperties" | "dependencies" if value:
                    lowered[keyword] = self._lower_map(keyword, value, depth + 1)
        return self._settle(lowered, besides)

    def _lower_rest(
        self, schema: dict[str, Any], keyword: str, depth: int, lowered: dict[str, Any]
    ) -> None:
        """Keywords that generate an empty block, which is no Python, where they allow anything."""
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
                name = self.survey.patterns[name]
                while name in written:  # two patterns that differ for ECMA-262 only
                    name = f"(?:{name})"
            written[name] = one if isinstance(one, list) else self._lower(one, depth)
        return written

    def _one_of(self, values: list[Any]) -> Schema:
        """Return the schema of one of `values`."""
        if _is_short(values):
            return {"enum": values}
        texts = {identity(one) for one in values if not isinstance(one, list | dict)}
        lengths = {(type(one), len(one)) for one in values if isinstance(one, list | dict)}
        containers = {identity(one) for one in values if isinstance(one, list | dict)}

        def decide(value: Any, run: Run) -> bool:
            if not isinstance(value, list | dict):
                return identity(value) in texts
            if (type(value), len(value)) not in lengths:
                return False
            run.take(IDENTITY * size(value))
            return identity(value) in containers

        self.needs_run = self.needs_run or bool(lengths)
        return self._define({"enum": values}, decide)

    def _multiple_of(self, divisor: float) -> Schema:
        is_multiple = multiple_of(divisor)

        def decide(value: Any, run: Run) -> bool:
            if type(value) is float:
                run.take(DIVISION)
            elif type(value) is not int:
                return True
            return is_multiple(value)

        self.needs_run = True
        return self._define({"multipleOf": divisor}, decide)

    def _unique_items(self) -> Schema:
        def decide(value: Any, run: Run) -> bool:
            if not isinstance(value, list):
                return True
            run.take(IDENTITY * size(value))
            return are_different(value)

        self.needs_run = True
        return self._define({"uniqueItems": True}, decide)

    def _settle(self, lowered: dict[str, Any], besides: list[Schema]) -> Schema:
        if lowered.get("additionalProperties") is False and not (
            lowered.get("properties", {}).keys() >= set(lowered.get("required", ()))
        ):
            # Side by side, fastjsonschema refuses names that only `required` has.
            besides.append({"required": lowered.pop("required")})
        if besides:
            lowered["allOf"] = besides
        if not lowered and self.survey.dialect != DRAFT_04:
            return True  # generates `pass`, where nothing at all would be an empty block
        return lowered


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
"""Keywords whose cost may grow with the number of items or members."""


def _varies(lowered: dict[str, Any], plain: bool) -> bool:
    """Whether what a schema costs depends on the size of the value so much that it has to count.

    Args:
        lowered: the schema, in its private form.
        plain: whether it applies to one part of the value at most, and nothing beside it does.
    """
    if _VARYING.isdisjoint(lowered):
        return False
    code = Code({})
    return not is_light(lowered, code) if plain else code.charge(lowered)[1] > 0


def _is_short(values: list[Any]) -> bool:
    """Return whether `values` are few enough to be compared one by one."""
    return len(values) <= _MAX_INLINE_VALUES and sum(map(size, values)) <= _MAX_INLINE_VALUES
