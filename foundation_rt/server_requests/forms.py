"""Forms: the restricted JSON Schemas of elicitation, and the values that come back.

The specification allows flat objects of primitive properties (ASK-06), and nothing that a form
cannot show. A class may stand for a schema: an attrs class, a dataclass or a ``TypedDict`` whose
members are strings, numbers, booleans, or choices of strings (ASK-07).

One value is asked for in a form of one field, `value` (ASK-48): a form cannot be anything but an
object.

A schema is compiled once for all calls that use it, since handlers create it in every call.
"""

from __future__ import annotations

import sys
import threading
import types
import typing
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from ..errors import UsageError
from ..jsonschema.compilation import Validator, compile_schema
from ..protocol.jsonrpc import compact
from .errors import ClientCapabilityError, InvalidClientResult

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from ..signatures.annotations import Names
    from ..signatures.converters import Converter

_TEXT = {"title", "description"}
_STRING = _TEXT | {"type", "minLength", "maxLength", "format", "default"}
_NUMBER = _TEXT | {"type", "minimum", "maximum", "default"}
_FIELD_KEYWORDS: dict[str, set[str]] = {
    "string": _STRING,
    "integer": _NUMBER,
    "number": _NUMBER,
    "boolean": _TEXT | {"type", "default"},
    "array": _TEXT | {"type", "minItems", "maxItems", "items", "default"},
}
_CHOICE_KEYWORDS = _TEXT | {"type", "enum", "enumNames", "oneOf", "default"}
_FORMATS = ("email", "uri", "date", "date-time")
_VALUE = "value"
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
_ROOT_KEYWORDS = {"$schema", "type", "properties", "required"}


@define(eq=False, repr=False)
class Form:
    """The schema of a form, and the conversion of its values.

    Attributes:
        schema: in the form of the newest revision.
    """

    schema: dict[str, Any]
    _validate: Validator
    _convert: Converter | None = None

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the schema in the form of `revision` (ASK-06).

        Raises:
            ClientCapabilityError: the revision cannot express a field.
        """
        fields = self.schema["properties"].items()
        properties = {name: _field_to_wire(name, one, revision) for name, one in fields}
        return revision.keep("form", {**self.schema, "properties": properties})

    def read(self, content: Any) -> Any:
        """Return the user's values: a dict, or an instance of the class of the form.

        Unknown properties are left out.

        Raises:
            InvalidClientResult: the values do not match the form (ASK-09).
        """
        if type(content) is not dict:
            raise InvalidClientResult(("/content", "is not an object"))
        known = {name: content[name] for name in self.schema["properties"] if name in content}
        issues = self._validate(known)
        if issues:
            raise InvalidClientResult(*((f"/content{one.path}", one.message) for one in issues))
        if self._convert is None:
            return known
        from ..signatures.converters import ConversionError

        try:
            return self._convert(known)
        except ConversionError as error:
            path = "/content" + "".join(f"/{step}" for step in reversed(error.path))
            problems = error.issues or [("", error.text)]
            raise InvalidClientResult(*((path + at, text) for at, text in problems)) from None


@define(eq=False, repr=False)
class Forms:
    """A cache of forms; safe from any thread.

    Args:
        capacity: how many are kept; the least recently used one is dropped first.
    """

    capacity: int = 256
    _made: OrderedDict[Any, Form] = field(factory=OrderedDict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def form(self, response_type: Any) -> Form:
        """Return the form of a schema, of a class, of one value, of choices or of nothing (None).

        Raises:
            UsageError: a form cannot have such a field; the message says what to change.
        """
        shape = _shape_of(response_type)
        key = response_type if shape is None else shape
        with self._lock:
            form = self._made.get(key)
            if form is not None:
                self._made.move_to_end(key)
                return form
        form = _form_of_type(response_type) if shape is None else _form_of_schema(*shape)
        with self._lock:
            self._made[key] = form
            while len(self._made) > self.capacity:
                self._made.popitem(last=False)
        return form


def _shape_of(response_type: Any) -> tuple[bytes, Converter | None] | None:
    """Return the schema of a form that no type describes, and its conversion; None for a type.

    Raises:
        UsageError: it is neither a type nor a schema, choices or None.
    """
    if response_type is None:
        return _canonical(_NOTHING), _as_nothing
    if isinstance(response_type, Mapping) and not _is_titled(response_type):
        return _canonical(response_type), None
    if isinstance(response_type, Sequence) and not isinstance(response_type, str | bytes):
        if len(response_type) == 1 and not isinstance(response_type[0], str):
            several = {"type": "array", "items": _choice(response_type[0], "anyOf")}
            return _canonical(_one_value(several)), _the_value
    elif not isinstance(response_type, Mapping):
        try:
            hash(response_type)
        except TypeError:
            response_type = repr(response_type)
        if isinstance(response_type, str | bytes | int | float):
            raise UsageError(f"a form needs a type or a JSON Schema, not {response_type!r}")
        return None
    return _canonical(_one_value(_choice(response_type))), _the_value


def _choice(options: Any, titled: str = "oneOf") -> dict[str, Any]:
    """Return the schema of one of several texts, with titles or without."""
    if _is_titled(options):
        listed = [{"const": value, "title": each["title"]} for value, each in options.items()]
        return {titled: listed} if titled == "anyOf" else {"type": "string", titled: listed}
    if not isinstance(options, Sequence) or not _are_texts(list(options)):
        raise UsageError(
            'choices are texts, ["low", "high"], or texts with titles,'
            f' {{"low": {{"title": "Low"}}}}; in a list of one for several; not {options!r}'
        )
    return {"type": "string", "enum": [*options]}


def _is_titled(options: Any) -> bool:
    return (
        isinstance(options, Mapping)
        and bool(options)
        and all(isinstance(each, Mapping) and [*each] == ["title"] for each in options.values())
    )


def _one_value(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {_VALUE: schema}, "required": [_VALUE]}


def _the_value(known: dict[str, Any]) -> Any:
    return known[_VALUE]


def _as_nothing(known: dict[str, Any]) -> None:
    """Drop the content of a form without fields."""


def _canonical(schema: Mapping[str, Any]) -> bytes:
    try:
        return compact(orjson.dumps(dict(schema)))
    except (TypeError, ValueError) as error:
        raise UsageError(f"the schema of a form must be JSON: {error}") from None


def _form_of_schema(canonical: bytes, convert: Converter | None) -> Form:
    schema: dict[str, Any] = orjson.loads(canonical)
    schema.setdefault("properties", {})
    _check(schema)
    return Form(schema, compile_schema(schema).validate, convert)


# -- what a form may ask for ---------------------------------------------------------------------


def _check(schema: dict[str, Any]) -> None:
    """Raise `UsageError` unless `schema` is a restricted schema of the specification (ASK-06)."""
    if schema.get("type") != "object" or type(schema["properties"]) is not dict:
        raise UsageError('the schema of a form must be {"type": "object", "properties": {...}}')
    unknown = schema.keys() - _ROOT_KEYWORDS
    if unknown:
        raise UsageError(f"a form cannot say {min(unknown)!r}: remove it from its schema")
    required = schema.get("required", [])
    if type(required) is not list or any(name not in [*schema["properties"]] for name in required):
        raise UsageError("`required` of a form must list names of its properties")
    for name, one in schema["properties"].items():
        problem = _problem_of_field(one)
        if problem:
            raise UsageError(f"a form cannot ask for {name!r}: {problem}")


def _problem_of_field(schema: Any) -> str:
    """Return why a property cannot be a field of a form; "" if it can."""
    kind = schema.get("type") if type(schema) is dict else None
    if type(kind) is not str or kind not in _FIELD_KEYWORDS:
        return f"its type must be one of {', '.join(_FIELD_KEYWORDS)}"
    is_choice = kind == "string" and ("enum" in schema or "oneOf" in schema)
    unknown = schema.keys() - (_CHOICE_KEYWORDS if is_choice else _FIELD_KEYWORDS[kind])
    if unknown:
        return f"a field of type {kind} has no {min(unknown)!r}"
    if kind == "array":
        return _problem_of_items(schema.get("items"))
    if is_choice:
        return _problem_of_choice(schema, "oneOf")
    if kind == "string" and schema.get("format", _FORMATS[0]) not in _FORMATS:
        return f"its format must be one of {', '.join(_FORMATS)}"
    return ""


def _problem_of_items(items: Any) -> str:
    problem = "the items of a list must be a choice of strings, by `enum` or titled by `anyOf`"
    if type(items) is not dict or not ("enum" in items or "anyOf" in items):
        return problem
    if items.keys() - {"type", "enum", "anyOf"} or items.get("type", "string") != "string":
        return problem
    return _problem_of_choice(items, "anyOf")


def _problem_of_choice(schema: dict[str, Any], titled: str) -> str:
    if "enum" in schema and titled in schema:
        return f"it is given by `enum` and by `{titled}`: keep one"
    if "enum" in schema:
        values = schema["enum"]
        names = schema.get("enumNames", values)
        if not _are_texts(values) or not _are_texts(names) or len(names) != len(values):
            return "`enum` must list strings, and `enumNames` as many"
        return ""
    options = schema[titled]
    if type(options) is not list or not options or not all(map(_is_option, options)):
        return f'`{titled}` must list options {{"const": ..., "title": ...}} of strings'
    return ""


def _are_texts(values: Any) -> bool:
    return type(values) is list and bool(values) and all(type(value) is str for value in values)


def _is_option(option: Any) -> bool:
    return (
        type(option) is dict
        and option.keys() == {"const", "title"}
        and all(type(value) is str for value in option.values())
    )


def _field_to_wire(name: str, schema: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """Return a field in the form of `revision`, which may have fewer kinds of fields."""
    if schema["type"] == "array" and not revision.has("form_field", "items"):
        lacking = f" and a revision that has lists, for the field {name!r}"
        raise ClientCapabilityError({"elicitation": {"form": {}}}, lacking)
    wire = dict(schema)
    if "oneOf" in schema and not revision.has("form_field", "oneOf"):
        options = wire.pop("oneOf")
        wire["enum"] = [option["const"] for option in options]
        wire["enumNames"] = [option["title"] for option in options]
    if schema["type"] != "boolean":  # a boolean has had a default from the start
        wire = revision.keep("form_field", wire)
    return wire


# -- forms of classes ----------------------------------------------------------------------------


def _form_of_type(hint: Any) -> Form:
    """Return the form whose fields are the members of a class (ASK-07), or one value (ASK-48)."""
    from ..signatures.annotations import Names
    from ..signatures.classes import is_class_with_members
    from ..signatures.schema_deriver import Deriver
    from ..signatures.type_schema import UnsupportedType

    names = Names({}, {}, {})
    try:
        if _is_model(hint):
            deriver = Deriver(names)
            derived = deriver.derive(hint)
            deriver.definitions()  # puts each schema in the place that refers to it
            schema, convert = _fields_of_model(derived.schema), derived.convert
        elif isinstance(hint, type) and is_class_with_members(hint):
            schema, convert = _fields_of_class(hint, names), Deriver(names).derive(hint).convert
        else:
            derived = Deriver(names).derive(hint)
            schema, convert = _one_value(derived.schema), _of_value(derived.convert)
    except UnsupportedType as error:
        shown = getattr(hint, "__name__", repr(hint))
        raise UsageError(f"a form cannot be made of {shown}: {error}") from None
    _check(schema)
    return Form(schema, compile_schema(schema).validate, convert)


def _is_model(hint: Any) -> bool:
    """Return whether `hint` is a class of pydantic with fields."""
    if "pydantic" not in sys.modules or not isinstance(hint, type):
        return False
    from ..signatures.pydantic_models import is_pydantic_class

    has_fields = hasattr(hint, "model_fields") or hasattr(hint, "__pydantic_fields__")
    return has_fields and is_pydantic_class(hint)


def _fields_of_model(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a model. What a form cannot say, the model checks when it is read."""
    properties = {name: _field_of_model(one) for name, one in schema["properties"].items()}
    required = schema.get("required", [])
    return {"type": "object", "properties": properties, "required": required}


def _field_of_model(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the field of one property; ``str`` for ``str | None`` as in `_without_none`."""
    if "anyOf" in schema and "default" in schema and schema["default"] is None:
        kept = [one for one in schema["anyOf"] if one != {"type": "null"}]
        if len(kept) == 1:
            schema = {**schema, **kept[0]}
            del schema["anyOf"], schema["default"]
    known = _FIELD_KEYWORDS.get(schema.get("type", ""), schema.keys())
    if "enum" in schema:
        known = known | _CHOICE_KEYWORDS
    field = {keyword: value for keyword, value in schema.items() if keyword in known}
    if field.get("format", _FORMATS[0]) not in _FORMATS:
        del field["format"]
    return field


def _of_value(convert: Converter | None) -> Converter:
    return _the_value if convert is None else lambda known: convert(known[_VALUE])


def _fields_of_class(cls: type, names: Names) -> dict[str, Any]:
    """Return the schema whose properties are the members of `cls`."""
    from ..signatures.classes import members_of
    from ..signatures.schema_deriver import Deriver
    from ..signatures.type_schema import REQUIRED

    properties: dict[str, Any] = {}
    members = members_of(cls, names)
    for member in members:
        default = REQUIRED if member.default is None else member.default
        hint = _without_none(member.hint) if member.default is None else member.hint
        derived = Deriver(names).derive(hint, description=member.description, default=default)
        properties[member.key] = derived.schema
    return {
        "type": "object",
        "properties": properties,
        "required": [member.key for member in members if member.default is REQUIRED],
    }


def _without_none(hint: Any) -> Any:
    """Return ``str`` for ``str | None``: with the default None the field may be left out."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kept = tuple(one for one in typing.get_args(hint) if one is not type(None))
        return typing.Union[kept]  # noqa: UP007 - how many there are is known only here
    return hint
