"""Fields and markers of pydantic in the signature of a function (TYPED-60, TYPED-61).

``Annotated[int, Field(ge=1)]`` and ``n: int = Field(5, ge=1)`` are taken apart: what constrains
becomes markers as `annotated_types` has them, what describes becomes keywords of the schema, and
the alias and the default are the parameter's. Only what none of this can express, a validator for
instance, is left to pydantic itself (`pydantic_models`).

Nothing here imports pydantic: who has a field has imported it.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .binding import MadeDefault
from .constraints import Constraints, Header, Keywords, documentation
from .defaults import json_default
from .type_schema import REQUIRED, UnsupportedType

_OWN_METADATA = {"pattern", "strict", "allow_inf_nan"}
"""Of pydantic's general metadata: what the schema says, or what holds for every argument."""


def is_field(value: Any) -> bool:
    """Return whether `value` is what pydantic's ``Field(...)`` returns."""
    fields = sys.modules.get("pydantic.fields")
    return fields is not None and isinstance(value, fields.FieldInfo)


def parameter_field(name: str, hint: Any, default: Any) -> tuple[str, Any, Any]:
    """Return the name on the wire, the type and the default of a parameter.

    Args:
        name: of the parameter.
        hint: its type; fields in its ``Annotated`` lose their alias and their default.
        default: `REQUIRED` without one; a field becomes the last marker of the type.

    Raises:
        UnsupportedType: a field says what a parameter cannot have.
    """
    markers = list(hint.__metadata__) if typing.get_origin(hint) is typing.Annotated else []
    kind = hint.__origin__ if markers else hint
    if is_field(default):
        markers.append(default)
        default = REQUIRED
    if not any(map(is_field, markers)):
        return name, hint, default
    for index, field in enumerate(markers):
        if is_field(field):
            name = _wire_name(field, name)
            default = _default(field, default)
            markers[index] = _Described(field)
    return name, typing.Annotated[kind, *markers], default


class _Described:
    """A field of a parameter, without its alias and its default."""

    def __init__(self, field: Any) -> None:
        self.field = field


def _wire_name(field: Any, name: str) -> str:
    alias = field.alias if field.validation_alias is None else field.validation_alias
    choices = getattr(alias, "choices", None)  # AliasChoices
    if choices is not None:
        alias = choices[0]
    if alias is None:
        return name
    if not isinstance(alias, str) or not alias:
        raise UnsupportedType(f"its alias {alias!r} is no name")
    return alias


def _default(field: Any, default: Any) -> Any:
    if field.default_factory is not None:
        if field.default_factory_takes_validated_data:
            raise UnsupportedType("its default_factory takes data: write one without a parameter")
        return MadeDefault(field.default_factory)
    given = field.default
    return default if given is ... or type(given).__name__ == "PydanticUndefinedType" else given


# -- markers ---------------------------------------------------------------------------------------


def unfolded(markers: Iterable[Any]) -> Iterator[Any]:
    """Yield the markers, each field and each group of pydantic's as its parts.

    Raises:
        UnsupportedType: a field inside of a type has an alias or a default.
    """
    for marker in markers:
        if isinstance(marker, _Described):
            yield from _parts(marker.field)
        elif is_field(marker):
            if marker.alias or marker.validation_alias or not marker.is_required():
                raise UnsupportedType(
                    "a Field inside of a type has an alias or a default, which only a parameter "
                    "or the field of a model can have"
                )
            yield from _parts(marker)
        elif type(marker).__name__ == "StringConstraints":
            yield from marker
        elif marker is not None:  # pydantic's conint() adds it
            yield marker


def _parts(field: Any) -> Iterator[Any]:
    """Yield what constrains, then what describes."""
    yield from field.metadata
    if field.discriminator is not None:
        discriminator = sys.modules["pydantic"].Discriminator
        named = isinstance(field.discriminator, str)
        yield discriminator(field.discriminator) if named else field.discriminator
    said = {"title": field.title, "description": field.description, "examples": field.examples}
    if field.deprecated:
        said["deprecated"] = True
    if said["examples"] is not None:
        said["examples"] = [json_default(example) for example in said["examples"]]
        said["examples"] = [example for example in said["examples"] if example is not REQUIRED]
    keywords = {keyword: value for keyword, value in said.items() if value is not None}
    extra: dict[str, Any] | Callable[[dict[str, Any]], None] | None = field.json_schema_extra
    yield Keywords(keywords if not isinstance(extra, dict) else {**keywords, **extra})
    if callable(extra):
        yield Keywords(extra)


def is_for_pydantic(marker: Any) -> bool:
    """Return whether pydantic itself has to apply `marker` to values."""
    if isinstance(marker, Constraints):
        return False
    if type(marker).__name__ == "_PydanticGeneralMetadata":
        return not vars(marker).keys() <= _OWN_METADATA
    return hasattr(marker, "__get_pydantic_core_schema__") or hasattr(
        marker, "__get_pydantic_json_schema__"
    )


def is_serialized(hint: Any) -> bool:
    """Return whether `hint` is an ``Annotated`` with a serializer or an encoding of pydantic."""
    return typing.get_origin(hint) is typing.Annotated and any(
        type(marker).__module__ == "pydantic.functional_serializers"
        or type(marker).__name__ in ("EncodedBytes", "EncodedStr")
        for marker in hint.__metadata__
    )


def divided(markers: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return the markers for pydantic, in their order, and those that are applied here.

    As soon as one is for pydantic, all that constrain are: a validator may change the value that
    the next one checks. Raises as `unfolded`.
    """
    found = [*unfolded(markers)]
    if not any(map(is_for_pydantic, found)):
        return [], [marker for marker in found if not _is_silent(marker)]
    described = (Header, Keywords)
    theirs = [marker for marker in found if not isinstance(marker, described)]
    theirs = [marker for marker in theirs if documentation(marker) is None]
    for marker in theirs:
        _check_known(marker)
    return theirs, [marker for marker in found if not any(marker is one for one in theirs)]


def _check_known(marker: Any) -> None:
    """Refuse a marker that pydantic would drop (TYPED-58)."""
    kind = type(marker)
    is_theirs = kind is Constraints or kind.__module__.startswith(("pydantic.", "annotated_types"))
    if not (is_theirs or is_for_pydantic(marker)):
        raise UnsupportedType(
            f"its Annotated holds a {kind.__qualname__}, which pydantic does not understand and "
            "would drop: remove it, or write a validator"
        )


def _is_silent(marker: Any) -> bool:
    """Return whether pydantic's `marker` says what holds for every argument here."""
    if type(marker).__name__ == "_PydanticGeneralMetadata":
        return not getattr(marker, "pattern", None)
    return type(marker).__module__ == "pydantic.types" and type(marker).__name__ in (
        "Strict",
        "AllowInfNan",
    )
