"""The arguments of a tool: its input schema, and the places of its arguments in a request.

Parameters and the properties of a body that is an object stand beside each other, as a model writes
them most easily. Where that could not say the same, the body is one argument (OAPI-16 to OAPI-18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from attrs import define, evolve, field, frozen

from .documents import MAX_DEPTH, OpenApiError, References, object_at
from .encoding import FILE_SCHEMA, FORM, MULTIPART, is_binary, is_file
from .naming import argument_name, shortened
from .operations import ApiBody, ApiOperation, ApiParameter, is_json
from .schemas import MAX_DESCRIPTION, MAX_SCHEMAS, STRUCTURE, SchemaConverter, TooManySchemasError

MAX_SCHEMA_BYTES: Final = 64 << 10

_DEPTHS: Final = (MAX_DEPTH, 16, 10, 7, 5, 3, 2)

_ORDER: Final = ("path", "query", "header", "cookie")
_FLAT: Final = frozenset(
    ("type", "properties", "required", "description", "title", "example", "examples", "default")
)
"""The keywords of an object whose properties can stand beside other arguments."""


@frozen
class ArgumentPlan:
    """The arguments of a tool.

    Attributes:
        schema: of all arguments; an object.
        parameters: by argument, the parameter of the operation.
        properties: by argument, the property of the body.
        body_argument: the argument that is the whole body; None if there is none.
        body: of the operation, its files known; None if it has none.
    """

    schema: dict[str, Any]
    parameters: Mapping[str, ApiParameter]
    properties: Mapping[str, str]
    body_argument: str | None
    body: ApiBody | None

    def body_value(self, arguments: Mapping[str, Any]) -> tuple[bool, Any]:
        """Return whether a call has a body, and its value."""
        if self.body is None:
            return False, None
        if self.body_argument is not None:
            return self.body_argument in arguments, arguments.get(self.body_argument)
        value = {
            name: arguments[argument]
            for argument, name in self.properties.items()
            if argument in arguments
        }
        return bool(value) or self.body.is_required, value


@define
class _Planner:
    converter: SchemaConverter
    properties: dict[str, Any] = field(factory=dict, init=False)
    required: list[str] = field(factory=list, init=False)
    parameters: dict[str, ApiParameter] = field(factory=dict, init=False)
    body_properties: dict[str, str] = field(factory=dict, init=False)
    body_argument: str | None = field(default=None, init=False)

    def add(self, name: str, schema: Any, is_required: bool, description: str | None) -> None:
        self.properties[name] = _described(schema, description)
        if is_required:
            self.required.append(name)

    def add_parameters(self, operation: ApiOperation) -> None:
        ordered = sorted(operation.parameters, key=lambda each: _ORDER.index(each.location))
        for parameter in ordered:
            name = argument_name(parameter.name, parameter.location, self.properties)
            given = self._with_description(parameter.schema, parameter.description)
            schema = self.converter.convert_value(given)
            self.add(name, schema, parameter.is_required, parameter.description)
            self.parameters[name] = parameter

    def _with_description(self, schema: Any, description: str | None) -> Any:
        """Return a schema of the document with a description, unless it has one or is shared.

        What the converter adds to a description does not replace that of the parameter.
        """
        final = self.converter.references.follow(schema)
        is_shared = final is not schema and isinstance(final, dict) and STRUCTURE & final.keys()
        if not isinstance(final, dict) or is_shared or final.get("description"):
            return schema
        return {**final, "description": description}

    def add_body(self, body: ApiBody) -> ApiBody:
        schema = self._object_schema(body)
        if body.media_type == MULTIPART and schema is not None:
            files = {
                name
                for name, each in object_at(schema, "properties").items()
                if is_file(self.converter.references, body, name, each)
            }
            body = evolve(body, files=frozenset(files))
        if schema is not None and self._is_flat(body, schema):
            self._add_properties(body, schema)
        else:
            self._add_whole(body, schema)
        return body

    def _object_schema(self, body: ApiBody) -> dict[str, Any] | None:
        """Return the schema of a body that is an object with properties."""
        schema = self.converter.references.follow(body.schema)
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":
            return None
        return schema if object_at(schema, "properties") else None

    def _is_flat(self, body: ApiBody, schema: dict[str, Any]) -> bool:
        """Return whether the properties of a body can be arguments of their own (OAPI-17)."""
        if not (is_json(body.media_type) or body.media_type in (FORM, MULTIPART)):
            return False
        more = {key for key in schema.keys() - _FLAT if not key.startswith("x-")}
        more -= {"xml", "externalDocs", "deprecated"}
        if "additionalProperties" in more and schema["additionalProperties"] is False:
            more.discard("additionalProperties")
        if more or schema.get("nullable") is True:
            return False
        if not body.is_required and schema.get("required"):
            return False
        properties = object_at(schema, "properties")
        names = {argument_name(name, "body", ()) for name in properties}
        return len(names) == len(properties) and names.isdisjoint(self.properties)

    def _add_properties(self, body: ApiBody, schema: dict[str, Any]) -> None:
        converted = self._with_files(body, schema)
        required = converted.get("required", ())
        for name, each in converted["properties"].items():
            argument = argument_name(name, "body", ())
            self.add(argument, each, name in required, None)
            self.body_properties[argument] = name

    def _add_whole(self, body: ApiBody, schema: dict[str, Any] | None) -> None:
        name = argument_name("body", "of_request", self.properties)
        if is_binary(body.media_type):
            note = f"The {body.media_type} body, in base64."
            converted: Any = {"type": "string", "description": note}
        elif not (is_json(body.media_type) or body.media_type in (FORM, MULTIPART)):
            converted = {"type": "string", "description": f"The {body.media_type} body."}
        elif body.files and schema is not None:
            converted = self._with_files(body, schema)
        elif body.schema is None and not is_json(body.media_type):
            converted = {"type": "object"}
        else:
            given = self._with_description(body.schema, body.description)
            converted = self.converter.convert_value(given)
        self.add(name, converted, body.is_required, body.description)
        self.body_argument = name

    def _with_files(self, body: ApiBody, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of an object whose files are given in base64 (OAPI-18)."""
        given = object_at(schema, "properties")
        others = {name: each for name, each in given.items() if name not in body.files}
        converted: dict[str, Any] = self.converter.convert({**schema, "properties": others})
        properties = converted.setdefault("properties", {})
        for name, one in given.items():
            if name not in body.files:
                continue
            final = self.converter.references.follow(one)
            file = _described(dict(FILE_SCHEMA), final.get("description"))
            is_array = final.get("type") == "array"
            properties[name] = {"type": "array", "items": dict(FILE_SCHEMA)} if is_array else file
        return converted


def plan_arguments(operation: ApiOperation, references: References) -> ArgumentPlan:
    """Return the arguments of the tool of an operation.

    A schema above `MAX_SCHEMA_BYTES` is cut to a depth at which it is smaller: hosts send the
    schemas of all tools to their model with every request (OAPI-14).

    Raises:
        OpenApiError: a schema of the operation cannot be used.
    """
    plan, deepest = None, MAX_DEPTH
    for depth in _DEPTHS:
        if depth > deepest:
            continue  # it would cut nothing
        converter = SchemaConverter(references, "input", depth)
        try:
            plan = _plan(operation, converter)
        except TooManySchemasError:
            continue
        if len(orjson.dumps(plan.schema)) <= MAX_SCHEMA_BYTES:
            break
        deepest = converter.deepest - 1
    if plan is None:
        raise OpenApiError(f"it has more than {MAX_SCHEMAS:,} arguments")
    return plan


def _plan(operation: ApiOperation, converter: SchemaConverter) -> ArgumentPlan:
    planner = _Planner(converter)
    planner.add_parameters(operation)
    body = None if operation.body is None else planner.add_body(operation.body)
    schema: dict[str, Any] = {"type": "object", "properties": planner.properties}
    if planner.required:
        schema["required"] = planner.required
    schema["additionalProperties"] = False
    if converter.definitions:
        schema["$defs"] = converter.definitions
    return ArgumentPlan(
        schema, planner.parameters, planner.body_properties, planner.body_argument, body
    )


def _described(schema: Any, description: str | None) -> Any:
    """Return a schema with a description, unless it has one."""
    if schema is False:
        schema = {"not": {}}
    if not description or "description" in schema:
        return schema
    return {**schema, "description": shortened(description, MAX_DESCRIPTION)}
