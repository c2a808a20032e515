"""Types that pydantic converts: models, their unions, validators in ``Annotated`` (TYPED-60).

Used only where the author's program has imported pydantic, from `sys.modules`. A ``TypeAdapter``
gives the schema, which is rewritten to what our validators take, and the conversion. So a value
passes two checks: the advertised schema, then pydantic's own, whose problems become a refusal with
their paths. pydantic reads JSON, as it does from a request, so that ``strict`` means what it means
for JSON: a date is a string.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import orjson

from ...base.exact_json import dumps
from ...base.jsonschema.dialects import DRAFT_2020_12, SHAPES_IN, subschemas
from ...base.jsonschema.formats import ENFORCED
from ...errors import ToolError
from .constraints import accepted_types, admitting_any, fitting
from .containers import refusal_text
from .converters import ConversionError, Converter, json_pointer
from .pydantic_fields import is_field, is_for_pydantic, unfolded
from .type_schema import Schema, TypeSchema, UnsupportedType, any_value
from .unions import tuple_items

MAX_ISSUES = 20
"""The most problems of one refusal (SCHEMA-21)."""

_NOT_ENFORCED = ("contentMediaType", "contentSchema", "discriminator")
_SHAPES = SHAPES_IN[DRAFT_2020_12]
_NOTES = frozenset(("default", "deprecated", "description", "examples", "title"))


def is_pydantic_class(hint: Any) -> bool:
    """Return whether `hint` is a class that pydantic converts by rules of the class.

    Raises:
        UnsupportedType: it is a model of pydantic 1.
    """
    if not isinstance(hint, type):
        return False
    if hasattr(hint, "__get_pydantic_core_schema__") or hasattr(hint, "__pydantic_validator__"):
        return True
    if any(base.__module__.startswith("pydantic.") for base in hint.__mro__):
        raise UnsupportedType(
            f"{hint.__name__} is of pydantic 1: derive it from a class of pydantic 2"
        )
    return dataclasses.is_dataclass(hint) and any(
        is_field(field.default) for field in dataclasses.fields(hint)
    )


def needs_pydantic(hint: Any) -> bool:
    """Return whether something in `hint` can only be converted by pydantic.

    Raises:
        UnsupportedType: as `is_pydantic_class`, and for a field that has an alias or a default.
    """
    if typing.get_origin(hint) is typing.Annotated:
        if any(is_for_pydantic(marker) for marker in unfolded(hint.__metadata__)):
            return True
        return needs_pydantic(hint.__origin__)
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return False
    return is_pydantic_class(hint if origin is None else origin) or any(
        needs_pydantic(argument) for argument in typing.get_args(hint)
    )


class Adapted:
    """The schemas and the conversion that pydantic has for one type.

    Args:
        hint: the type.
        is_written: the schemas are those of values as they are written.

    Raises:
        UnsupportedType: pydantic has no schema for it.

    Attributes:
        schema: of the type. References are those of pydantic, ``#/$defs/{name}``.
        definitions: the schemas that it and they refer to, by name.
    """

    def __init__(self, hint: Any, *, is_written: bool) -> None:
        pydantic = sys.modules["pydantic"]
        if not hasattr(pydantic, "TypeAdapter"):
            raise UnsupportedType("it needs pydantic 2")
        mode: Any = "serialization" if is_written else "validation"
        try:
            self._adapter = pydantic.TypeAdapter(_plain_groups(hint))
            schemas, shared = pydantic.TypeAdapter.json_schemas(
                [("it", mode, self._adapter)], schema_generator=_generator()
            )
        except (pydantic.PydanticUserError, pydantic.errors.PydanticInvalidForJsonSchema) as error:
            text = str(error).partition("\n")[0]
            raise UnsupportedType(f"pydantic has no schema for it: {text}") from None
        except (ImportError, NameError, TypeError, ValueError) as error:
            raise UnsupportedType(f"pydantic cannot read it: {error}") from None
        self._is_written = is_written
        self._takes_raw = False  # a validator of the author sees values that no schema has checked
        self.schema: Schema = schemas["it", mode]
        self.definitions: dict[str, Schema] = shared.get("$defs", {})
        for schema in (self.schema, *self.definitions.values()):
            self._rewrite(schema)
        for name, schema in self.definitions.items():
            if "$ref" in schema:  # a definition that is replaced by its schema must be one
                self.definitions[name] = {"allOf": [schema]}

    def type_schema(self) -> TypeSchema:
        """Return the type schema, with the references as they are."""
        accepts = accepted_types(self.schema, self.definitions)
        convert = _converter(self._adapter.validator, takes_raw=self._takes_raw)
        return TypeSchema(self.schema, accepts, convert)

    def _rewrite(self, schema: Any) -> None:
        """Use the keywords of both dialects, and drop what nothing enforces (TYPED-68)."""
        if not isinstance(schema, dict):
            return
        self._takes_raw |= fitting(schema) is not schema
        for keyword in _NOT_ENFORCED:
            schema.pop(keyword, None)
        for keyword in ("max_digits", "decimal_places"):  # on what is no Decimal
            if keyword in schema:
                raise UnsupportedType(f"{keyword} does not apply to its type")
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        if "oneOf" in schema and "anyOf" not in schema:
            # It is written for tags, which no two alternatives share; pydantic checks it again.
            schema["anyOf"] = schema.pop("oneOf")
        if schema.get("format", "") not in ("", *ENFORCED):
            del schema["format"]
        for keyword, value in [*schema.items()]:
            shape = _SHAPES.get(keyword)
            if shape is not None:
                for subschema, _ in subschemas(shape, value, ""):
                    self._rewrite(subschema)
        if "prefixItems" in schema:
            self._rewrite_tuple(schema)
        if not self._is_written and schema.keys() <= _NOTES:  # Any
            schema.update(any_value())

    def _rewrite_tuple(self, schema: Schema) -> None:
        first, *others = items = schema["prefixItems"]
        is_fixed = len(items) == schema.get("maxItems")
        if is_fixed and all(other == first for other in others):
            del schema["prefixItems"]
            schema["items"] = first
            return
        again = deepcopy(items)
        if not is_fixed:
            again.append(schema.pop("items", {}))
        schema |= tuple_items(items, again)


def places(schema: Any) -> Iterator[Schema]:
    """Yield the schemas within `schema`, itself included, that are references."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield schema
    for keyword, value in schema.items():
        shape = _SHAPES.get(keyword)
        if shape is not None:
            for subschema, _ in subschemas(shape, value, ""):
                yield from places(subschema)


def closure(name: str, definitions: Mapping[str, Schema]) -> bytes:
    """Return the definition `name` with all that it refers to, as one comparable text."""
    found: dict[str, Schema] = {}
    open_names = [name]
    while open_names:
        one = open_names.pop()
        if one not in found:
            found[one] = definitions[one]
            open_names += [reference_name(place) for place in places(definitions[one])]
    return dumps([name, found], option=orjson.OPT_SORT_KEYS, default=repr)


def reference_name(place: Schema) -> str:
    """Return the name that a reference of pydantic refers to."""
    name: str = place["$ref"].rpartition("/")[2]
    return name


def _plain_groups(hint: Any) -> Any:
    """Return `hint` with the fields in its outermost ``Annotated`` taken apart."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    return typing.Annotated[hint.__origin__, *unfolded(hint.__metadata__)]


@cache
def _generator() -> Any:
    """Return the class that generates schemas: no titles that only repeat names (TYPED-68)."""
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def emit_warning(self, kind: Any, detail: str) -> None:
            """Say nothing: a default that JSON cannot express is left out (TYPED-28)."""

        def ser_schema(self, schema: Any) -> Any:
            made = super().ser_schema(schema)
            # A function that does not say what it returns may return anything.
            is_whole = schema["type"] == "function-plain" or schema.get("is_field_serializer")
            is_silent = schema["type"].startswith("function-") and "return_schema" not in schema
            return {} if made is None and is_whole and is_silent else made

        def function_before_schema(self, schema: Any) -> Any:
            return self._of_raw_values(schema, super().function_before_schema(schema))

        def function_wrap_schema(self, schema: Any) -> Any:
            return self._of_raw_values(schema, super().function_wrap_schema(schema))

        def _of_raw_values(self, schema: Any, made: Schema) -> Schema:
            # The author's validator takes what it can make a fitting value of (TYPED-93).
            module = str(getattr(schema["function"]["function"], "__module__", ""))
            is_own = not module.startswith("pydantic")
            is_open = is_own and "json_schema_input_schema" not in schema
            return admitting_any(made) if is_open and self.mode == "validation" else made

        def model_field_schema(self, schema: Any) -> Any:
            _check_alias(schema, self.mode)
            return super().model_field_schema(schema)

        def dataclass_field_schema(self, schema: Any) -> Any:
            _check_alias(schema, self.mode)
            return super().dataclass_field_schema(schema)

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def generate_definitions(self, inputs: Any) -> Any:
            schemas, definitions = super().generate_definitions(inputs)
            return schemas, {name: _untitled(one, name) for name, one in definitions.items()}

        def datetime_schema(self, schema: Any) -> Any:
            return _clock(super().datetime_schema(schema), schema, self.mode)

        def time_schema(self, schema: Any) -> Any:
            return _clock(super().time_schema(schema), schema, self.mode)

        def timedelta_schema(self, schema: Any) -> Any:
            # Seconds have fractions, which the format does not have.
            made = super().timedelta_schema(schema)
            return {"type": "string"} if self.mode == "serialization" else made

        def decimal_schema(self, schema: Any) -> Any:
            # Its pattern has a look-ahead, which not every host has; pydantic checks it again.
            made = super().decimal_schema(schema)
            for one in made.get("anyOf", (made,)):
                one.pop("pattern", None)
            return made

    return Generator


def _check_alias(field: Any, mode: str) -> None:
    """Refuse a field that is only found deep in another one: no property can be its own."""
    alias = field.get("validation_alias")
    if mode == "serialization" or not isinstance(alias, list):
        return
    paths = alias if isinstance(alias[0], list) else [alias]  # AliasChoices, or one AliasPath
    if all(len(path) > 1 for path in paths):
        raise UnsupportedType(
            f"a field with the AliasPath {'.'.join(map(str, paths[0]))} has no name of its own in "
            "a schema: give it an alias too, as AliasChoices does"
        )


def _clock(made: Schema, core_schema: Any, mode: str) -> Schema:
    """Return the schema of a moment or a time; the formats ask for an offset (TYPED-31)."""
    constraint = core_schema.get("tz_constraint")
    has_offset = constraint != "naive" and (mode == "validation" or constraint is not None)
    return made if has_offset else {"type": "string"}


def _untitled(schema: Schema, name: str) -> Schema:
    if re.sub(r"[^A-Za-z0-9.\-_]", "_", str(schema.get("title", ""))) == name:
        schema.pop("title", None)
    return schema


# -- conversion ------------------------------------------------------------------------------------


def _converter(validator: Any, *, takes_raw: bool) -> Converter:
    validate = validator.validate_json
    refusal = sys.modules["pydantic_core"].ValidationError

    def convert(value: Any) -> Any:
        try:
            text = dumps(value)
        except TypeError:  # from 254 levels on; pydantic takes fewer
            raise ConversionError("is nested too deeply") from None
        try:
            return validate(text)
        except refusal as error:
            issues = _issues(error, value)
            raise ConversionError(issues[0][1], issues=issues) from error
        except ToolError:
            raise
        except Exception as error:
            if takes_raw:
                raise ConversionError(refusal_text(None, value, type(error).__name__)) from error
            raise

    return convert


def _issues(error: Any, value: Any) -> list[tuple[str, str]]:
    """Return the paths and the texts of the problems that pydantic has found, each once."""
    found: dict[tuple[str, str], None] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        text = refusal_text(each["msg"], value, each["type"])
        found[_pointer(each["loc"], value, each["type"]), text] = None
        if len(found) == MAX_ISSUES:
            break
    return [*found]


def _pointer(location: tuple[str | int, ...], value: Any, kind: str) -> str:
    """Return the JSON pointer of a location, which also has names of types and of validators."""
    steps: list[str | int] = []
    for number, step in enumerate(location):
        is_item = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if is_item or (isinstance(value, dict) and step in value):
            steps.append(step)
            value = value[step]
        elif kind == "missing" and number == len(location) - 1:
            steps.append(step)
    return json_pointer(steps)
