"""The dialects of JSON Schema: their names, and the keywords of each with the shapes of values.

One table defines which keywords exist, which shapes their values have, and where their subschemas
are (SCHEMA-03). It replaces the meta-schemas: compiling that of draft-07 alone takes six times as
long as compiling the schema of a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ...errors import RegistrationError
from .issues import step

Schema = dict[str, Any] | bool

DRAFT_04: Final = "draft-04"
DRAFT_06: Final = "draft-06"
DRAFT_07: Final = "draft-07"
DRAFT_2019_09: Final = "2019-09"
DRAFT_2020_12: Final = "2020-12"

DIALECTS: Final = (DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019_09, DRAFT_2020_12)
"""Every dialect that can be declared, oldest first (SCHEMA-02)."""

URIS: Final = {
    DRAFT_04: "http://json-schema.org/draft-04/schema#",
    DRAFT_06: "http://json-schema.org/draft-06/schema#",
    DRAFT_07: "http://json-schema.org/draft-07/schema#",
    DRAFT_2019_09: "https://json-schema.org/draft/2019-09/schema",
    DRAFT_2020_12: "https://json-schema.org/draft/2020-12/schema",
}

HEADER_KEYWORD: Final = "x-mcp-header"
"""A keyword of MCP 2026-07-28, for arguments that an HTTP header repeats; of no dialect."""

SILENT: Final = frozenset(
    (
        "$schema",
        "$id",
        "id",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "definitions",
        "$defs",
        HEADER_KEYWORD,
    )
)
"""The keywords that enforce nothing: `$ref` may have them as siblings in any dialect."""

_TYPES: Final = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))


def _is(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(name, str) for name in value)
        and len(set(value)) == len(value)
    )


def _is_type(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _is_names(names) and names != [] and _TYPES.issuperset(names)


def _is_full_array(value: Any) -> bool:
    return isinstance(value, list) and value != []


def _is_items(value: Any) -> bool:
    return isinstance(value, dict | bool) or _is_full_array(value)


def _is_dependencies(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, dict | bool) or _is_names(one) for one in value.values()
    )


def _is_name_lists(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_names, value.values()))


_SHAPES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "any": (_is(object), "anything"),
    "array": (_is(list), "an array"),
    "boolean": (_is(bool), "true or false"),
    "count": (_is_count, "a whole number that is not negative"),
    "dependencies": (_is_dependencies, "an object with schemas or arrays of names as its values"),
    "items": (_is_items, "a schema or an array of schemas"),
    "map": (_is(dict), "an object with schemas as its values"),
    "name lists": (_is_name_lists, "an object with arrays of different strings as its values"),
    "names": (_is_names, "an array of different strings"),
    "number": (_is_number, "a number"),
    "object": (_is(dict), "an object"),
    "positive": (_is_positive, "a number above 0"),
    "schema": (_is(dict | bool), "a schema, that is an object, true or false"),
    "schema or boolean": (_is(dict | bool), "a schema, true or false"),
    "schemas": (_is_full_array, "an array of one or more schemas"),
    "string": (_is(str), "a string"),
    "type": (_is_type, f"one of {', '.join(sorted(_TYPES))}, or an array of different ones"),
}
"""The shapes of keywords' values: the test of each, and its name in refusals."""

_FIRST, _LAST = DIALECTS[0], DIALECTS[-1]
_VOCABULARY: Final = (
    # first dialect, last dialect, shape, keywords
    (_FIRST, _LAST, "any", "default"),
    (_FIRST, _LAST, "string", "$schema $ref title description $comment format pattern"),
    (_FIRST, _LAST, "string", "contentEncoding contentMediaType"),
    (_FIRST, _LAST, "string", HEADER_KEYWORD),
    (_FIRST, _LAST, "boolean", "deprecated readOnly writeOnly uniqueItems"),
    (_FIRST, _LAST, "array", "enum examples"),
    (_FIRST, _LAST, "type", "type"),
    (_FIRST, _LAST, "names", "required"),
    (_FIRST, _LAST, "number", "minimum maximum"),
    (_FIRST, _LAST, "positive", "multipleOf"),
    (_FIRST, _LAST, "count", "minLength maxLength minItems maxItems minProperties maxProperties"),
    (_FIRST, _LAST, "schema", "not"),
    (_FIRST, _LAST, "schemas", "allOf anyOf oneOf"),
    (_FIRST, _LAST, "map", "properties patternProperties definitions $defs"),
    (_FIRST, _LAST, "schema or boolean", "additionalProperties"),
    (_FIRST, DRAFT_04, "string", "id"),
    (_FIRST, DRAFT_04, "boolean", "exclusiveMinimum exclusiveMaximum"),
    (_FIRST, DRAFT_07, "dependencies", "dependencies"),
    (_FIRST, DRAFT_2019_09, "items", "items"),
    (_FIRST, DRAFT_2019_09, "schema or boolean", "additionalItems"),
    (DRAFT_06, _LAST, "string", "$id"),
    (DRAFT_06, _LAST, "any", "const"),
    (DRAFT_06, _LAST, "number", "exclusiveMinimum exclusiveMaximum"),
    (DRAFT_06, _LAST, "schema", "contains propertyNames"),
    (DRAFT_07, _LAST, "schema", "if then else"),
    (DRAFT_2019_09, _LAST, "string", "$anchor"),
    (DRAFT_2019_09, _LAST, "object", "$vocabulary"),
    (DRAFT_2019_09, _LAST, "name lists", "dependentRequired"),
    (DRAFT_2019_09, _LAST, "schema", "contentSchema unevaluatedItems unevaluatedProperties"),
    (DRAFT_2019_09, _LAST, "map", "dependentSchemas"),
    (DRAFT_2019_09, _LAST, "count", "minContains maxContains"),
    (DRAFT_2019_09, DRAFT_2019_09, "string", "$recursiveRef"),
    (DRAFT_2019_09, DRAFT_2019_09, "boolean", "$recursiveAnchor"),
    (DRAFT_2020_12, _LAST, "string", "$dynamicRef $dynamicAnchor"),
    (DRAFT_2020_12, _LAST, "schema", "items"),
    (DRAFT_2020_12, _LAST, "schemas", "prefixItems"),
)


def _shapes_in(dialect: str) -> dict[str, str]:
    number = DIALECTS.index(dialect)
    return {
        keyword: shape
        for first, last, shape, keywords in _VOCABULARY
        if DIALECTS.index(first) <= number <= DIALECTS.index(last)
        for keyword in keywords.split()
    }


SHAPES_IN: Final = {dialect: _shapes_in(dialect) for dialect in DIALECTS}
"""The keywords of each dialect, with the shapes of their values."""

ENFORCING: Final = frozenset().union(*SHAPES_IN.values()) - SILENT
"""The keywords that enforce something in some dialect, or on which such keywords rely."""


def declared_dialect(uri: Any) -> str:
    """Return the dialect that `$schema` names; ignore the scheme, and a `#` at the end.

    Raises:
        RegistrationError: the dialect is unknown (SCHEMA-02).
    """
    for dialect, known in URIS.items():
        if isinstance(uri, str) and _bare(uri) == _bare(known):
            return dialect
    raise RegistrationError(f"`$schema` must be one of {', '.join(URIS.values())}, or be left out")


def _bare(uri: str) -> str:
    return uri.removesuffix("#").removeprefix("http://").removeprefix("https://")


def has_shape(value: Any, shape: str) -> bool:
    """Return whether `value` has the shape of that name."""
    return _SHAPES[shape][0](value)


def shape_name(shape: str) -> str:
    """Return the name of a shape in refusals."""
    return _SHAPES[shape][1]


def dialects_with(keyword: str, value: Any) -> list[str]:
    """Return the dialects in which `keyword` may have such a value, the oldest first."""
    return [
        dialect
        for dialect, shapes in SHAPES_IN.items()
        if keyword in shapes and has_shape(value, shapes[keyword])
    ]


def subschemas(shape: str, value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield the schemas in a keyword's value of that shape, each with its path."""
    if shape == "schema" or (shape == "schema or boolean" and isinstance(value, dict)):
        yield value, path
    elif shape == "map":
        for name, one in value.items():
            yield one, step(path, name)
    elif shape == "dependencies":
        for name, one in value.items():
            if not isinstance(one, list):
                yield one, step(path, name)
    elif shape in ("schemas", "items"):
        if isinstance(value, list):
            for number, one in enumerate(value):
                yield one, step(path, number)
        else:
            yield value, path
