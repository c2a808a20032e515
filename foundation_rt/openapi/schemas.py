"""JSON Schemas from the schemas of OpenAPI, for arguments or for results (OAPI-10 to OAPI-14).

Documents are full of small faults, so a keyword with a value of the wrong shape is left out: it
would have one tool refused. What OpenAPI 3.0 has of its own (`nullable`, exclusive limits that are
booleans) becomes what means the same. A schema that others refer to becomes one of `$defs`, unless
it is as simple as a string or a number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import orjson
from attrs import define, field

from ..jsonschema.dialects import DRAFT_2020_12, SHAPES_IN, has_shape
from ..jsonschema.formats import ENFORCED
from ..jsonschema.patterns import PatternError, translate
from ..signatures.type_schema import any_value
from .documents import MAX_DEPTH, OpenApiError, References
from .texts import shortened

Direction = Literal["input", "output"]

MAX_DESCRIPTION: Final = 500
"""Most characters of the description of a property."""

MAX_DEFINITIONS: Final = 1_000

_MAX_EXAMPLE_BYTES: Final = 200

_SHAPES: Final = SHAPES_IN[DRAFT_2020_12]
_SINGLE: Final = ("items", "additionalProperties", "not", "contains", "propertyNames")
_CONDITIONAL: Final = ("if", "then", "else")
_SEVERAL: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_PLAIN: Final = (
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
    "required",
)
_ANNOTATIONS: Final = ("description", "default", "examples", "deprecated")
_STRUCTURE: Final = frozenset((*_SINGLE, *_CONDITIONAL, *_SEVERAL, "properties", "$ref"))
_COMBINED: Final = ("allOf", "anyOf", "oneOf", "$ref")
_TYPED: Final = frozenset((*_COMBINED, "type", "enum", "const", "not"))
"""The keywords of which hosts want one in every schema."""

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_OF_TYPE: Final = {
    "array": frozenset(("items", "prefixItems", "contains")),
    "object": frozenset(("properties", "required", "additionalProperties", "propertyNames")),
}
"""Keywords that hosts refuse beside another type."""


@define
class SchemaConverter:
    """Converts the schemas of one tool, which share their `$defs`.

    Args:
        references: of the document.
        direction: "input" leaves out what is `readOnly`, "output" what is `writeOnly`.
        max_depth: schemas nested deeper say their type and their description alone.

    Attributes:
        definitions: the schemas that others refer to, by name.
    """

    references: References
    direction: Direction
    max_depth: int = MAX_DEPTH
    definitions: dict[str, Any] = field(factory=dict, init=False)
    _names: dict[str, str] = field(factory=dict, init=False)
    _depth: int = field(default=0, init=False)

    def convert(self, schema: Any) -> Any:
        """Return the JSON Schema of a schema of the document: an object, true or false.

        Raises:
            OpenApiError: a reference leads nowhere, or there are too many.
        """
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            return {}
        self._depth += 1
        try:
            if self._depth > self.max_depth:
                return self._bare(schema)
            if isinstance(schema.get("$ref"), str):
                return self._reference(schema)
            return self._converted(schema)
        finally:
            self._depth -= 1

    def convert_value(self, schema: Any, around: Sequence[str] = ()) -> Any:
        """Return the JSON Schema of a whole value: an argument always says its type (OAPI-45).

        Args:
            schema: of the document.
            around: the types of the schema that it is an alternative of.

        Raises:
            OpenApiError: a reference leads nowhere, or there are too many.
        """
        found = self.convert(schema)
        if self.direction == "output" or found is False:
            return found
        if found is not True and _TYPED & found.keys():
            return found
        kind = {"type": around[0]} if len(around) == 1 else any_value()
        return {**kind, **(found if isinstance(found, dict) else {})}

    def _bare(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return what a schema says without the schemas in it."""
        final = self.references.follow(schema)
        if not isinstance(final, dict):
            return {}
        types, is_nullable = _types(final)
        result = _with_types({}, types, is_nullable)
        _take_annotations(final, result)
        return result

    def _reference(self, schema: dict[str, Any]) -> Any:
        pointer, target = self.references.target(schema["$ref"])
        final = self.references.follow(target)
        if isinstance(final, dict) and not (_STRUCTURE & final.keys()):
            found = self.convert(final)
        else:
            found = {"$ref": f"#/$defs/{self._definition(pointer, final)}"}
        if self.references.has_boolean_limits or len(schema) == 1:
            return found
        beside = self._converted({key: each for key, each in schema.items() if key != "$ref"})
        if beside.keys() <= set(_ANNOTATIONS):
            return {**found, **beside}
        notes = {key: beside.pop(key) for key in _ANNOTATIONS if key in beside}
        return {"allOf": [found, beside], **notes}

    def _definition(self, pointer: str, target: Any) -> str:
        """Return the name in `$defs` of the schema at a place of the document."""
        name = self._names.get(pointer)
        if name is None:
            if len(self.definitions) >= MAX_DEFINITIONS:
                raise OpenApiError(f"a schema refers to more than {MAX_DEFINITIONS:,} others")
            base = re.sub(r"[^A-Za-z0-9_.-]+", "_", pointer.rpartition("/")[2])[:64] or "Schema"
            name, number = base, 2
            while name in self.definitions:
                name, number = f"{base}_{number}", number + 1
            self._names[pointer] = name
            self.definitions[name] = {}  # taken: the schema may refer to itself
            self.definitions[name] = self.convert(target)
        return name

    def _converted(self, schema: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self._take_plain(schema, result)
        types, is_nullable = _types(schema)
        self._take_subschemas(schema, result, types)
        if "properties" in schema and isinstance(schema["properties"], dict):
            self._take_properties(schema["properties"], result)
        if self.direction == "input" and "array" in types and "prefixItems" not in result:
            result.setdefault("items", any_value())
        result = _with_types(result, types, is_nullable)
        _take_annotations(schema, result)
        return result

    def _take_plain(self, schema: dict[str, Any], result: dict[str, Any]) -> None:
        for keyword in _PLAIN:
            value = schema.get(keyword)
            if keyword in schema and has_shape(value, _SHAPES[keyword]):
                result[keyword] = value
        for name in ("Minimum", "Maximum"):  # 3.0: a boolean that sharpens `minimum`
            if schema.get(f"exclusive{name}") is True and name.lower() in result:
                result[f"exclusive{name}"] = result.pop(name.lower())
        if result.get("enum") == []:
            del result["enum"]
        if schema.get("format") in ENFORCED:
            result["format"] = schema["format"]
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and _is_enforceable(pattern):
            result["pattern"] = pattern

    def _take_subschemas(
        self, schema: dict[str, Any], result: dict[str, Any], types: Sequence[str]
    ) -> None:
        for keyword in (*_SINGLE, *(_CONDITIONAL if "if" in schema else ())):
            value = schema.get(keyword)
            if isinstance(value, dict | bool):
                convert = self.convert_value if keyword == "items" else self.convert
                result[keyword] = convert(value)
        if result.get("additionalProperties") == {}:
            result["additionalProperties"] = True
        for keyword in _SEVERAL:
            value = schema.get(keyword)
            if isinstance(value, list) and value:
                around = types if keyword in _ALTERNATIVES else ()
                result[keyword] = [
                    self.convert(each) if keyword == "allOf" else self.convert_value(each, around)
                    for each in value
                ]
        alternatives = result.pop("oneOf", None)
        if alternatives is not None:
            # Alternatives of documents overlap: what fits two of them is what the API may want.
            if "anyOf" in result:
                result.setdefault("allOf", []).append({"anyOf": alternatives})
            else:
                result["anyOf"] = alternatives

    def _take_properties(self, given: dict[str, Any], result: dict[str, Any]) -> None:
        hidden = "readOnly" if self.direction == "input" else "writeOnly"
        properties = {}
        for name, each in given.items():
            final = self.references.follow(each)
            is_hidden = isinstance(final, dict) and final.get(hidden) is True
            if is_hidden or (isinstance(each, dict) and each.get(hidden) is True):
                if name in result.get("required", ()):
                    result["required"] = [one for one in result["required"] if one != name]
            else:
                properties[name] = self.convert_value(each)
        result["properties"] = properties
        if result.get("required") == []:
            del result["required"]


def _is_enforceable(pattern: str) -> bool:
    """Return whether a pattern is ECMA-262 that needs no optional engine."""
    try:
        translate(pattern)
    except PatternError:
        return False
    return True


def _types(schema: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the types of a schema but for `null`, and whether null is allowed."""
    given = schema.get("type")
    named = given if isinstance(given, list) else [given]
    known = [each for each in named if isinstance(each, str) and has_shape(each, "type")]
    types = list(dict.fromkeys(each for each in known if each != "null"))
    is_nullable = "null" in known or (schema.get("nullable") is True)
    if not types and isinstance(schema.get("properties"), dict):
        types = ["object"]
    if not types and isinstance(schema.get("items"), dict):
        types = ["array"]
    return types, is_nullable


def _with_types(result: dict[str, Any], types: list[str], is_nullable: bool) -> dict[str, Any]:
    """Return a schema with its types; several become `anyOf`, which every host takes (OAPI-12)."""
    if not is_nullable and len(types) <= 1:
        return {"type": types[0], **result} if types else result
    if not types and not any(keyword in result for keyword in (*_COMBINED, "enum")):
        return {"type": "null"} if is_nullable and not result else result
    if None in result.get("enum", ()):
        result["enum"] = [each for each in result["enum"] if each is not None]
        if not result["enum"]:
            return {"type": "null"}
    alternatives = [{"type": each, **_of_type(result, each)} for each in types] or [result]
    if is_nullable:
        alternatives.append({"type": "null"})
    return {"anyOf": alternatives}


def _of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a schema without the keywords that say something of another type alone."""
    others = frozenset().union(*(words for each, words in _OF_TYPE.items() if each != kind))
    return {keyword: value for keyword, value in schema.items() if keyword not in others}


def _take_annotations(schema: dict[str, Any], result: dict[str, Any]) -> None:
    description = schema.get("description")
    if isinstance(description, str) and description.strip():
        result["description"] = shortened(description, MAX_DESCRIPTION)
    if "default" in schema and schema["default"] is not None:
        result["default"] = schema["default"]
    examples = schema.get("examples")
    if not isinstance(examples, list):
        examples = [schema["example"]] if "example" in schema else []
    if examples and len(orjson.dumps(examples[:1])) <= _MAX_EXAMPLE_BYTES:
        result["examples"] = examples[:1]
    if schema.get("deprecated") is True:
        result["deprecated"] = True
