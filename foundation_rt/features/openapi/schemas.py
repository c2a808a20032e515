"""JSON Schemas from the schemas of OpenAPI, for arguments or for results (OAPI-10 to OAPI-14).

Documents are full of small faults, so a keyword with a value of the wrong shape is left out: it
would have one tool refused. What the API may see otherwise stands in the description instead
(OAPI-59). What OpenAPI 3.0 has of its own (`nullable`, exclusive limits that are booleans) becomes
what means the same. A schema that others refer to becomes one of `$defs`, unless it is as simple as
a string or a number.

Documents are written by hand and in YAML: `enum: [1, 2]` stands beside `type: string`. Such values
become those of the type where both are written the same (OAPI-57).

Subtypes are told apart by a `discriminator` (OAPI-55). A supertype names its subtypes, and each of
them has the supertype in its `allOf`. So as a part of another schema a supertype is itself alone:
with its subtypes it would contain itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import orjson
from attrs import define, field, frozen

from ...base.jsonschema.dialects import DRAFT_2020_12, SHAPES_IN, has_shape
from ...base.jsonschema.formats import ENFORCED
from ...base.jsonschema.patterns import PatternError, translate
from ..signatures.type_schema import any_value
from .documents import MAX_DEPTH, OpenApiError, References, list_at
from .naming import shortened

Direction = Literal["input", "output"]

MAX_DESCRIPTION: Final = 500
"""Most characters of the description of a property."""

MAX_DEFINITIONS: Final = 1_000
MAX_SCHEMAS: Final = 5_000
"""Most schemas in that of one tool: more of them are more than 64 KiB."""

_MAX_VALUE_BYTES: Final = 32 << 10
"""Most bytes of the values in the schema of one tool: choices, defaults, required names."""

_MAX_EXAMPLE_BYTES: Final = 200
_MAX_PATTERN: Final = 1_000

_LITERAL: Final = re.compile(r"/.*/[a-z]*", re.DOTALL)

_SHAPES: Final = SHAPES_IN[DRAFT_2020_12]
_SINGLE: Final = ("items", "additionalProperties", "not", "contains", "propertyNames")
_CONDITIONAL: Final = ("if", "then", "else")
_SEVERAL: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NUMBERS: Final = (
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
)
_ANNOTATIONS: Final = ("description", "default", "examples", "deprecated")
STRUCTURE: Final = frozenset((*_SINGLE, *_CONDITIONAL, *_SEVERAL, "properties", "$ref"))
_COMBINED: Final = ("allOf", "anyOf", "oneOf", "$ref")
_TYPED: Final = frozenset((*_COMBINED, "type", "enum", "const", "not"))
"""The keywords of which hosts want one in every schema."""

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_BESIDE: Final = frozenset((*_CONDITIONAL, *_COMBINED, "not"))
_OF_TYPE: Final = {
    "array": frozenset(("items", "prefixItems", "contains")),
    "object": frozenset(("properties", "required", "additionalProperties", "propertyNames")),
}
"""Keywords that hosts refuse beside another type."""


class TooManySchemasError(OpenApiError):
    """The schema of a tool has more than `MAX_SCHEMAS` schemas in it."""


@define
class _Conversion:
    """One schema of the document, while it is converted.

    Attributes:
        whole: as the document has it.
        schema: without what its conversion leaves out.
        types: of its values but for `null`.
        is_nullable: whether null is one of them.
        result: the JSON Schema so far.
        notes: the sentences for what is not enforced.
    """

    whole: dict[str, Any]
    schema: dict[str, Any]
    types: list[str]
    is_nullable: bool
    result: dict[str, Any] = field(factory=dict, init=False)
    notes: list[str] = field(factory=list, init=False)


@define
class SchemaConverter:
    """Converts the schemas of one tool, which share their `$defs`.

    Args:
        references: of the document.
        direction: "input" leaves out what is `readOnly`, "output" what is `writeOnly`.
        max_depth: schemas nested deeper say their type and their description alone.

    Attributes:
        definitions: the schemas that others refer to, by name.
        deepest: how deep the schemas are nested in one another.
    """

    references: References
    direction: Direction
    max_depth: int = MAX_DEPTH
    definitions: dict[str, Any] = field(factory=dict, init=False)
    deepest: int = field(default=0, init=False)
    _names: dict[str, str] = field(factory=dict, init=False)
    _depth: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    _bytes_left: int = field(default=_MAX_VALUE_BYTES, init=False)

    def convert(self, schema: Any, *, is_base: bool = False) -> Any:
        """Return the JSON Schema of a schema of the document: an object, true or false.

        Args:
            schema: of the document.
            is_base: leave out its subtypes.

        Raises:
            TooManySchemasError: see there.
            OpenApiError: a reference leads nowhere, or there are too many.
        """
        self.references.count_schema()
        self._count += 1
        if self._count > MAX_SCHEMAS:
            raise TooManySchemasError(f"it has more than {MAX_SCHEMAS:,} schemas in it")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            return {}
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        try:
            if self._depth > self.max_depth:
                return self._bare(schema)
            if isinstance(schema.get("$ref"), str):
                return self._reference(schema)
            return self._converted(schema, is_base)
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
        one = _Conversion(final, final, *_types(final))
        one.result = _with_types({}, one.types, one.is_nullable)
        self._take_annotations(one)
        return one.result

    def _reference(self, schema: dict[str, Any]) -> Any:
        pointer, target = self.references.target(schema["$ref"])
        final = self.references.follow(target)
        beside = {key: each for key, each in schema.items() if key != "$ref"}
        if self.references.has_boolean_limits:
            beside = {}
        if isinstance(final, dict) and not (STRUCTURE & final.keys()):
            return self.convert({**final, **beside})
        found = {"$ref": f"#/$defs/{self._definition(pointer, final)}"}
        if not beside:
            return found
        converted = self._converted(beside)
        if converted.keys() <= set(_ANNOTATIONS):
            return {**found, **converted}
        notes = {key: converted.pop(key) for key in _ANNOTATIONS if key in converted}
        return {"allOf": [found, converted], **notes}

    def _definition(self, pointer: str, target: Any, *, is_base: bool = False) -> str:
        """Return the name in `$defs` of the schema at a place of the document."""
        place = f"{pointer} base" if is_base else pointer
        name = self._names.get(place)
        if name is None:
            if len(self.definitions) >= MAX_DEFINITIONS:
                raise OpenApiError(f"a schema refers to more than {MAX_DEFINITIONS:,} others")
            base = re.sub(r"[^A-Za-z0-9_.-]+", "_", place.rpartition("/")[2])[:64] or "Schema"
            name, number = base, 2
            while name in self.definitions:
                name, number = f"{base}_{number}", number + 1
            self._names[place] = name
            self.definitions[name] = {}  # taken: the schema may refer to itself
            self.definitions[name] = self.convert(target, is_base=is_base)
        return name

    def _converted(self, whole: dict[str, Any], is_base: bool = False) -> dict[str, Any]:
        schema = without_subtypes(whole) if is_base else whole
        one = _Conversion(whole, schema, *_types(schema))
        if one.types == ["array"]:
            one.schema = _with_choices_of_items(schema)
        self._take_plain(one)
        self._take_choices(one)
        self._take_subschemas(one)
        self._take_properties(one)
        self._take_subtypes(one)
        if self.direction == "input" and "array" in one.types and "prefixItems" not in one.result:
            one.result.setdefault("items", any_value())
        one.result = _with_types(one.result, one.types, one.is_nullable)
        self._take_annotations(one)
        return one.result

    def _take_plain(self, one: _Conversion) -> None:
        schema, result, once = one.schema, one.result, self.references.once
        for keyword in _NUMBERS:
            value = fitted(schema.get(keyword), ("boolean", "number"))[1]
            if has_shape(value, _SHAPES[keyword]):
                result[keyword] = value
        for name in ("Minimum", "Maximum"):  # 3.0: a boolean that sharpens `minimum`
            if schema.get(f"exclusive{name}") is True and name.lower() in result:
                result[f"exclusive{name}"] = result.pop(name.lower())
        if isinstance(schema.get("uniqueItems"), bool):
            result["uniqueItems"] = schema["uniqueItems"]
        required = schema.get("required")
        if isinstance(required, list):
            names = once(names_of, required)
            if self._affords(once(size_of, required)):
                result["required"] = [*names]
        format_, pattern = schema.get("format"), schema.get("pattern")
        if self.direction == "output" and format_ in ENFORCED:
            result["format"] = format_
        elif isinstance(format_, str) and not {"integer", "number"} & {*one.types}:
            one.notes.append(said(format_, "Format"))
        if isinstance(pattern, str):
            if _is_enforceable(pattern):
                result["pattern"] = pattern
            else:
                one.notes.append(said(pattern, "Pattern"))

    def _take_choices(self, one: _Conversion) -> None:
        """Take `enum` and `const`; the types become those of values that do not fit.

        Some hosts take an `enum` of strings alone, so in an input any other is described.
        """
        schema, once = one.schema, self.references.once
        given = schema.get("enum")
        if isinstance(given, list) and given:
            choices = once(choices_of, given, *one.types)
            one.types, one.is_nullable = [*choices.types], one.is_nullable or choices.is_nullable
            is_taken = one.types == ["string"] or self.direction == "output"
            if is_taken and choices.is_whole and self._affords(once(size_of, given)):
                one.result["enum"] = [*choices.values]
            elif choices.values:
                one.notes.append(choices.sentence)
        if "const" in schema and self._affords(once(size_of, schema["const"])):
            fits, one.result["const"] = once(fitted, schema["const"], tuple(one.types))
            one.types = one.types if fits else [type_of(schema["const"])]

    def _affords(self, size: int) -> bool:
        """Return whether a value is within what the schema may have of them, and count it."""
        is_within = size <= self._bytes_left
        self._bytes_left -= size if is_within else 0
        return is_within

    def _take_subschemas(self, one: _Conversion) -> None:
        schema, result = one.schema, one.result
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
                around = one.types if keyword in _ALTERNATIVES else ()
                result[keyword] = [
                    self._part(one.whole, each)
                    if keyword == "allOf"
                    else self.convert_value(each, around)
                    for each in value
                ]
        parts = result.pop("allOf", [])
        enforcing = [each for each in parts if each is False or _enforces(each)]
        if enforcing:
            result["allOf"] = enforcing
        for each in parts:
            if isinstance(each, dict) and not _enforces(each):  # it has no type, as hosts want it
                result.update({**each, **result})
        alternatives = result.pop("oneOf", None)
        if alternatives is not None:
            # Alternatives of documents overlap: what fits two of them is what the API may want.
            if "anyOf" in result:
                result.setdefault("allOf", []).append({"anyOf": alternatives})
            else:
                result["anyOf"] = alternatives

    def _part(self, whole: dict[str, Any], part: Any) -> Any:
        """Return a part of `allOf`: a supertype of `whole` without its subtypes (OAPI-55)."""
        if isinstance(part, dict) and isinstance(part.get("$ref"), str):
            pointer, target = self.references.target(part["$ref"])
            is_supertype = isinstance(target, dict) and "discriminator" in target
            once = self.references.once
            if is_supertype and id(whole) in once(descendants, target, self.references):
                return {"$ref": f"#/$defs/{self._definition(pointer, target, is_base=True)}"}
        return self.convert(part)

    def _take_subtypes(self, one: _Conversion) -> None:
        """Show the members of the subtypes that a `discriminator` tells apart (OAPI-55)."""
        schema, result, alternatives = one.schema, one.result, []
        named = self.references.once(subtypes, schema, self.references)
        for reference, values in named.items():
            pointer, target = self.references.target(reference)
            if target is schema:
                found = {"$ref": f"#/$defs/{self._definition(pointer, target, is_base=True)}"}
            else:
                found = self.convert({"$ref": reference})
            note = f"{schema['discriminator'].get('propertyName')}: {' or '.join(values)}"
            alternatives.append({"description": shortened(note, MAX_DESCRIPTION), **found})
        if alternatives:
            result["anyOf"] = alternatives
            result.pop("additionalProperties", None)

    def _take_properties(self, one: _Conversion) -> None:
        given, result = one.schema.get("properties"), one.result
        if not isinstance(given, dict):
            return
        word = "readOnly" if self.direction == "input" else "writeOnly"
        properties, hidden = {}, set()
        for name, each in given.items():
            final = self.references.follow(each)
            is_hidden = isinstance(final, dict) and final.get(word) is True
            if is_hidden or (isinstance(each, dict) and each.get(word) is True):
                hidden.add(name)
            else:
                properties[name] = self.convert_value(each)
        result["properties"] = properties
        required = [name for name in result.pop("required", ()) if name not in hidden]
        if required:
            result["required"] = required

    def _take_annotations(self, one: _Conversion) -> None:
        schema, result, once = one.schema, one.result, self.references.once
        types = tuple(one.types)
        default = schema.get("default")
        if default is not None:
            fits, value = once(fitted, default, types)
            if fits and self._affords(once(size_of, default)):
                result["default"] = value
            else:
                one.notes.append(once(said, default, "Default"))
        description = with_notes(schema.get("description"), one.notes, MAX_DESCRIPTION)
        if description:
            result["description"] = description
        examples = schema.get("examples")
        if not isinstance(examples, list):
            examples = [schema["example"]] if "example" in schema else []
        for each in examples[:1]:
            fits, value = once(fitted, each, types)
            if fits and once(size_of, each) <= _MAX_EXAMPLE_BYTES:
                result["examples"] = [value]
        if schema.get("deprecated") is True:
            result["deprecated"] = True


def _is_enforceable(pattern: str) -> bool:
    """Return whether a pattern is ECMA-262 that needs no optional engine, and within bounds.

    One between slashes is a literal of JavaScript: documents have them, and nothing fits them.
    """
    if len(pattern) > _MAX_PATTERN or _LITERAL.fullmatch(pattern):
        return False
    try:
        translate(pattern)
    except PatternError:
        return False
    return True


def _enforces(schema: Any) -> bool:
    """Return whether a JSON Schema has another keyword than those of annotations."""
    return isinstance(schema, dict) and bool(schema.keys() - {*_ANNOTATIONS})


def _with_choices_of_items(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an array whose `enum` has items as that of its items."""
    given, items = schema.get("enum"), schema.get("items") or {}
    if not isinstance(given, list) or any(isinstance(each, list) for each in given):
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword != "enum"}
    return {**rest, "items": {"enum": given, **items}} if isinstance(items, dict) else rest


def _types(schema: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the types of a schema but for `null`, and whether null is allowed."""
    given = schema.get("type")
    named = given if isinstance(given, list) else [given]
    known = [each for each in named if isinstance(each, str) and has_shape(each, "type")]
    types = list(dict.fromkeys(each for each in known if each != "null"))
    has_members = isinstance(schema.get("properties"), dict)
    if not types and (has_members or isinstance(schema.get("required"), list)):
        types = ["object"]
    if not types and isinstance(schema.get("items"), dict):
        types = ["array"]
    is_nullable = "null" in known and (bool(types) or len(known) == len(named))
    if schema.get("nullable") is True:  # of what has no type, it says nothing
        is_nullable = is_nullable or bool(types or {*_COMBINED, "enum"} & schema.keys())
    return types, is_nullable


def _with_types(result: dict[str, Any], types: list[str], is_nullable: bool) -> dict[str, Any]:
    """Return a schema with its types; several become `anyOf`, which every host takes (OAPI-12)."""
    if not is_nullable and len(types) <= 1:
        return {"type": types[0], **_of_type(result, types[0])} if types else result
    if not types and not any(keyword in result for keyword in (*_COMBINED, "enum")):
        return {"type": "null"} if is_nullable and not result else result
    # Schemas stand beside the alternatives: in each of them, they would unfold with their depth.
    shared = [key for key in result if key in _BESIDE and len(types) > 1]
    beside = {key: result.pop(key) for key in shared}
    alternatives = [{"type": each, **_of_type(result, each)} for each in types] or [result]
    if beside:
        alternatives = [{"allOf": [{"anyOf": alternatives}, beside]}]
    if beside and not is_nullable:
        return alternatives[0]
    if is_nullable:
        alternatives.append({"type": "null"})
    return {"anyOf": alternatives}


def _of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a schema without the keywords that say something of another type alone."""
    others = frozenset().union(*(words for each, words in _OF_TYPE.items() if each != kind))
    return {keyword: value for keyword, value in schema.items() if keyword not in others}


def subtypes(schema: dict[str, Any], references: References) -> dict[str, list[str]]:
    """Return the values that mean each subtype of a schema, by the reference to it.

    Args:
        schema: any. The `mapping` of its `discriminator` names its subtypes, or each of them has
            the schema in its `allOf`. Alternatives of its own are not repeated.
        references: of the document.
    """
    discriminator = schema.get("discriminator")
    if not isinstance(discriminator, dict) or "oneOf" in schema or "anyOf" in schema:
        return {}
    mapping = discriminator.get("mapping")
    if not isinstance(mapping, dict):
        mapping = {name: name for name in references.extensions(schema)}
    found: dict[str, list[str]] = {}
    for value, given in mapping.items():
        reference = f"#/components/schemas/{given}"
        for each in (reference, str(given)):
            try:
                references.follow({"$ref": each})
            except OpenApiError:
                continue
            found.setdefault(each, []).append(value)
            break
    return found


def descendants(supertype: dict[str, Any], references: References) -> set[int]:
    """Return the `id` of every schema that is a subtype, or a part of one, of a supertype."""
    found = {id(supertype)}
    seen: set[str] = set()
    waiting = [supertype]
    while waiting:
        schema = waiting.pop()
        named = references.once(subtypes, schema, references).keys() - seen
        seen |= named
        below = [{"$ref": each} for each in named]
        below += list_at(schema, "oneOf") + list_at(schema, "anyOf")
        if schema is not supertype:
            below += list_at(schema, "allOf")
        for each in below:
            try:
                final = references.follow(each)
            except OpenApiError:
                continue
            if isinstance(final, dict) and id(final) not in found:
                found.add(id(final))
                waiting.append(final)
    return found


def without_subtypes(supertype: dict[str, Any]) -> dict[str, Any]:
    """Return a supertype as a part of its subtypes, which have more members than it."""
    left_out = ("discriminator", "oneOf", "anyOf", "additionalProperties")
    return {keyword: value for keyword, value in supertype.items() if keyword not in left_out}


# -- values that do not fit the types beside them, and words for what is not enforced -------------

MAX_CHOICES: Final = 2_000
_MAX_SHOWN: Final = 50
_MAX_CHARACTERS: Final = 400

_KINDS: Final = {
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def type_of(value: Any) -> str:
    """Return the most special type of JSON Schema that a value has."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _KINDS[type(value)]


def fitted(value: Any, types: tuple[str, ...]) -> tuple[bool, Any]:
    """Return whether a value can be written in one of the types, and the value so written.

    Args:
        value: of JSON.
        types: of JSON Schema; none: any.

    Returns:
        The value is as it was where nothing that is written the same has one of the types.
    """
    if not types or _has_type(value, types):
        is_whole = isinstance(value, float) and value.is_integer() and "integer" in types
        return True, int(value) if is_whole else value
    if isinstance(value, str):
        try:
            read = orjson.loads(value)
            fits = _has_type(read, types) and orjson.dumps(read).decode() == value
        except (ValueError, TypeError):  # no JSON, or nested too deeply
            return False, value
        return fits, read if fits else value
    if "string" in types and isinstance(value, bool | int | float):
        return True, json_text(value)
    return False, value


def json_text(value: Any) -> str:
    """Return a value of a document as JSON.

    Raises:
        OpenApiError: it is nested too deeply.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise OpenApiError(f"a value cannot be written as JSON: {error}") from None


def _has_type(value: Any, types: tuple[str, ...]) -> bool:
    kind = type_of(value)
    return kind in types or (kind == "integer" and "number" in types)


def size_of(value: Any) -> int:
    """Return the size of a value of a document as JSON, about, in bytes."""
    return len(value) if isinstance(value, str) else len(json_text(value))


@frozen
class EnumValues:
    """The values of an `enum`, but for null.

    Attributes:
        values: without repetition, as the types have them; of many, the first.
        types: of the values: those that were given if all fit the one that was given.
        is_nullable: whether null is one of them.
        is_whole: whether `values` has all of them.
        sentence: that says them.
    """

    values: list[Any]
    types: list[str]
    is_nullable: bool
    is_whole: bool
    sentence: str


def choices_of(given: list[Any], *types: str) -> EnumValues:
    """Return the values of an `enum` beside types."""
    first = [each for each in given[:MAX_CHOICES] if each is not None]
    pairs = [fitted(each, types) for each in first]
    fits = all(each for each, _ in pairs)
    values = [each for _, each in pairs] if fits else first
    values = [*{json_text(each): each for each in values}.values()]
    found = list(types)
    if len(found) != 1 or not fits or not values:
        found = list(dict.fromkeys(map(type_of, values)))
    shown = ", ".join(json_text(each) for each in values[:_MAX_SHOWN])
    shown = shortened(shown, _MAX_CHARACTERS)
    many = f"{len(given):,}, such as " if len(given) > _MAX_SHOWN else ""
    is_whole = len(given) <= MAX_CHOICES
    return EnumValues(values, found, None in given, is_whole, f"One of {many}{shown}.")


def names_of(given: list[Any]) -> list[str]:
    """Return the names of a `required`, each once; none of too many."""
    if len(given) > MAX_CHOICES:
        return []
    return [*dict.fromkeys(each for each in given if isinstance(each, str))]


def said(value: Any, keyword: str) -> str:
    """Return the sentence that says a keyword which is not enforced."""
    text = value if isinstance(value, str) else json_text(value)
    return f"{keyword} `{shortened(text, _MAX_CHARACTERS)}`."


def with_notes(description: Any, notes: Iterable[str], most: int) -> str:
    """Return a description of a document within `most` characters, and the notes after it."""
    text = shortened(description, most) if isinstance(description, str) else ""
    said_more = " ".join(notes)
    if text and said_more and not text.endswith((".", "!", "?", ":", "…")):
        text += "."
    return f"{text} {said_more}".strip()
