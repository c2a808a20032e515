"""Forms: the restricted JSON Schemas of elicitation, and the values that come back.

The specification allows flat objects of primitive properties (ASK-06), and nothing that a form
cannot show. A class may stand for a schema: an attrs class, a dataclass or a ``TypedDict`` whose
members are strings, numbers, booleans, or choices of strings (ASK-07).

One value is asked for in a form of one field, `value` (ASK-48): a form cannot be anything but an
object.

A schema is compiled once for all calls that use it, since handlers create it in every call.
"""

from __future__ import annotations

import enum
import sys
import threading
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, evolve, field, frozen

from ...base.bounded_dict import BoundedDict
from ...base.exact_json import compact
from ...base.jsonschema.compilation import Validator, compile_schema
from ...errors import UsageError
from .errors import ClientCapabilityError, InvalidClientResult

if TYPE_CHECKING:
    from ...protocol.revisions import Revision
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
    _made: BoundedDict[Any, Form] = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._made = BoundedDict(self.capacity)

    def form(self, response_type: Any) -> Form:
        """Return the form of a schema, of a class, of one value, of choices or of nothing (None).

        Raises:
            UsageError: a form cannot have such a field; the message says what to change.
        """
        shape = _shape_of(response_type)
        key = response_type if shape is None else shape
        with self._lock:
            form = self._made.use(key)
        if form is not None:
            return form
        form = _form_of_type(response_type) if shape is None else _form_of_schema(*shape)
        with self._lock:
            self._made[key] = form
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


# -- forms of types ------------------------------------------------------------------------------


@frozen
class _Field:
    """A field for a value of a type.

    Attributes:
        schema: of the field.
        values: by their texts, the JSON values to choose from, if not all of them are strings.
        may_be_empty: the type takes None, so the field is not required.
    """

    schema: dict[str, Any]
    values: dict[str, Any]
    may_be_empty: bool = False

    def read(self, content: Any) -> Any:
        """Return the JSON value of what the user has filled in."""
        if not self.values:
            return content
        return [*map(self.read, content)] if type(content) is list else self.values[content]


def _form_of_type(hint: Any) -> Form:
    """Return the form whose fields are the members of a class (ASK-07), or one value (ASK-48)."""
    from ..signatures.annotations import Names
    from ..signatures.classes import is_class_with_members
    from ..signatures.containers import then
    from ..signatures.schema_deriver import Deriver
    from ..signatures.type_schema import UnsupportedType

    names = Names({}, {}, {})
    deriver = Deriver(names)
    try:
        derived = deriver.derive(hint)
        convert = derived.convert or _as_it_is
        if _is_model(hint):
            fields, required = _fields_of_model(hint, derived.schema, deriver.definitions())
        elif isinstance(hint, type) and is_class_with_members(hint):
            fields, required = _fields_of_class(hint, names)
        else:
            fields, required = {_VALUE: _field(derived.schema, hint)}, [_VALUE]
            convert = then(_the_value, convert)
    except UnsupportedType as error:
        shown = getattr(hint, "__name__", repr(hint))
        raise UsageError(f"a form cannot be made of {shown}: {error}") from None
    nothing = {name: None for name in required if fields[name].may_be_empty}
    schema = {
        "type": "object",
        "properties": {name: one.schema for name, one in fields.items()},
        "required": [name for name in required if name not in nothing],
    }
    _check(schema)

    def read(known: dict[str, Any]) -> dict[str, Any]:
        return nothing | {name: fields[name].read(content) for name, content in known.items()}

    return Form(schema, compile_schema(schema).validate, then(read, convert))


def _as_it_is(value: Any) -> Any:
    return value


def _field(schema: dict[str, Any], hint: Any) -> _Field:
    """Return the field of a value of the type `hint`, whose schema is `schema`."""
    from ..signatures.constraints import fitting

    schema = fitting(schema)
    alternatives = schema.get("anyOf", [schema])
    kept = [one for one in alternatives if one != {"type": "null"}]
    field = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
    values = _other_values(kept)
    if values:
        field = {keyword: field[keyword] for keyword in field.keys() & {*_TEXT, "default"}}
        field |= _choice(_titled(values, hint))
    elif len(kept) == 1:
        field |= kept[0]
        values = _other_values([field.get("items", {})])
        if values:
            field["items"] = _choice(_titled(values, hint), "anyOf")
    else:
        field = schema  # `_check` says why no form has it
    default = field.pop("default", None)
    if default is not None:
        is_list = type(default) is list
        texts = [_text_of(one) for one in default] if is_list else _text_of(default)
        field["default"] = texts if values else default
    return _Field(field, values, len(kept) < len(alternatives))


def _other_values(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return by their texts the values that `schemas` enumerate; none if one has only strings."""
    if not all("enum" in one for one in schemas):
        return {}
    values = [value for one in schemas for value in one["enum"]]
    if len(schemas) == 1 and _are_texts(values):
        return {}
    texts = {_text_of(value): value for value in values}
    if len(texts) < len(values):
        raise UsageError(f"a form cannot offer {values!r}: two of them have the same text")
    return texts


def _text_of(value: Any) -> str:
    return value if type(value) is str else orjson.dumps(value).decode()


def _titled(texts: Mapping[str, Any], hint: Any) -> Any:
    """Return the choices: titled by the names of its members if `hint` has an enumeration."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        names = {_text_of(member.value): member.name for member in hint}
        return {text: {"title": names.get(text, text)} for text in texts}
    found = (_titled(texts, one) for one in typing.get_args(hint))
    return next((one for one in found if type(one) is dict), [*texts])


def _is_model(hint: Any) -> bool:
    """Return whether `hint` is a class of pydantic with fields."""
    if "pydantic" not in sys.modules or not isinstance(hint, type):
        return False
    from ..signatures.pydantic_models import is_pydantic_class

    has_fields = hasattr(hint, "model_fields") or hasattr(hint, "__pydantic_fields__")
    return has_fields and is_pydantic_class(hint)


def _fields_of_model(
    model: Any, schema: dict[str, Any], shared: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, _Field], list[str]]:
    """Return the fields of a model, and the names of those that are required.

    What a form cannot say, the model checks when it is read.
    """
    from ..signatures.constraints import fitting

    schema = fitting(schema)
    hints = {name: one.annotation for name, one in model.__pydantic_fields__.items()}
    fields = {}
    for name, one in schema["properties"].items():
        field = _field(_written_out(one, shared), hints.get(name))
        known = _FIELD_KEYWORDS.get(field.schema.get("type", ""), field.schema.keys())
        if "enum" in field.schema or "oneOf" in field.schema:
            known = known | _CHOICE_KEYWORDS
        if field.schema.get("format", _FORMATS[0]) not in _FORMATS:
            known = known - {"format"}
        kept = {keyword: value for keyword, value in field.schema.items() if keyword in known}
        fields[name] = evolve(field, schema=kept)
    return fields, schema.get("required", [])


def _written_out(schema: dict[str, Any], shared: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return `schema` with the schemas that it refers to, an enumeration for example."""
    made = dict(schema)
    for reference in made.pop("allOf", [made]):
        if "$ref" in reference:
            made |= shared[reference["$ref"].rpartition("/")[2]]
            made.pop("$ref", None)
    if "anyOf" in made:
        made["anyOf"] = [_written_out(one, shared) for one in made["anyOf"]]
    if "items" in made:
        made["items"] = _written_out(made["items"], shared)
    return made


def _fields_of_class(cls: type, names: Names) -> tuple[dict[str, _Field], list[str]]:
    """Return the fields of the members of `cls`, and the names of those that are required."""
    from ..signatures.classes import members_of
    from ..signatures.schema_deriver import Deriver
    from ..signatures.type_schema import REQUIRED

    fields = {}
    members = members_of(cls, names)
    for member in members:
        default = REQUIRED if member.default is None else member.default
        derived = Deriver(names).derive(
            member.hint, description=member.description, default=default
        )
        fields[member.key] = _field(derived.schema, member.hint)
    return fields, [member.key for member in members if member.default is REQUIRED]
