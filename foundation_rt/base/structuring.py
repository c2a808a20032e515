"""The border between JSON and attrs classes, by cattrs.

A class says what JSON it is made of: its fields, their types and validators. A field is the member
of its name in camelCase, or of the name that its metadata has as `wire`. A member that is null
counts as absent, and one that no field has is passed over.

Types are exact: cattrs alone makes 7 of `"7"`, and three texts of `"abc"`. All problems are told at
once, as JSON pointers and what is wrong there. A value is never repeated: it may be a secret.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from attrs import NOTHING, Attribute, Factory, fields, has, resolve_types
from cattrs import AttributeValidationNote, ClassValidationError, Converter
from cattrs.gen import make_dict_structure_fn, override

from .jsonschema.issues import step

MAX_ISSUES = 100
"""Most problems that are told; the items of an array behind so many are not looked at."""

MAX_SHOWN = 5
"""Most problems in the text of an error."""

Hook = Callable[..., Any]
"""Returns a value of JSON, its first argument, as one of a type; raises `StructuringError`."""


class StructuringError(ValueError):
    """A value is not what its class is made of.

    Attributes:
        issues: each problem as a JSON pointer and a text: `("/name", "is not a string")`.
    """

    def __init__(self, *issues: tuple[str, str]) -> None:
        self.issues = issues
        shown = [f"{path or 'it'} {problem}" for path, problem in issues[:MAX_SHOWN]]
        more = [f"and {len(issues) - MAX_SHOWN} more"] if len(issues) > MAX_SHOWN else []
        super().__init__("; ".join(shown + more))


class Structurer:
    """Makes instances of attrs classes of JSON.

    Args:
        leaves_out: an optional member that is wrong is left out, and so are the wrong items of one
            that is an array; otherwise they are refused.
    """

    def __init__(self, *, leaves_out: bool = False) -> None:
        self._leaves_out = leaves_out
        self._converter = converter = Converter()
        for kind, hook in _EXACT.items():
            converter.register_structure_hook(kind, hook)
        converter.register_structure_hook_func(_is_words, _word)
        converter.register_structure_hook_func(_is_mapping, _object)
        converter.register_structure_hook_factory(_is_sequence, self._sequence)
        converter.register_structure_hook_factory(has, self._class)

    def register(self, kind: Any, hook: Hook) -> None:
        """Use `hook` for a type, which may be a union."""
        self._converter.register_structure_hook_func(lambda asked: asked == kind, hook)

    def register_kinds(self, union: Any) -> None:
        """Tell the classes of a union apart by the member `type`, which is the `kind` of one."""
        kinds = {each.kind: each for each in get_args(union)}

        def hook(value: Any, _: Any) -> Any:
            kind = _object(value).get("type")
            if not isinstance(kind, str) or kind not in kinds:
                raise StructuringError(("/type", f"is not one of {', '.join(kinds)}"))
            return self.structure(value, kinds[kind])

        self.register(union, hook)

    def register_one_or_several(self, kind: Any) -> None:
        """Let a value that is no array stand for a tuple of it alone."""
        several, of = self._sequence(kind), get_args(kind)[0]

        def hook(value: Any, _: Any) -> Any:
            return several(value) if type(value) is list else (self.structure(value, of),)

        self.register(kind, hook)

    def structure(self, value: Any, kind: Any) -> Any:
        """Return a value of JSON as an instance of `kind`.

        Raises:
            StructuringError: it is none.
        """
        return self._converter.structure(value, kind)

    def _class(self, kind: Any) -> Hook:
        resolve_types(kind)
        members = {each.name: _member(each) for each in fields(kind)}
        read: dict[str, Any] = {
            each.name: override(rename=members[each.name], struct_hook=self._field(each))
            for each in fields(kind)
        }
        make = make_dict_structure_fn(kind, self._converter, **read)

        def hook(value: Any, _: Any) -> Any:
            given = {name: each for name, each in _object(value).items() if each is not None}
            try:
                return make(given, kind)
            except ClassValidationError as error:
                raise StructuringError(*_issues_of(error, members)) from None

        return hook

    def _field(self, described: Attribute[Any]) -> Hook:
        """Return the hook of a field: that of its type, and its validator."""
        kind = _without_none(described.type)
        may_be_left_out = self._leaves_out and described.default is not NOTHING
        if may_be_left_out and _is_sequence(kind):
            structure = self._sequence(kind, leaves_out=True)
        else:
            structure = self._converter.get_structure_hook(kind)

        def hook(value: Any, _: Any) -> Any:
            try:
                made = structure(value, kind)
                if described.validator is not None:
                    described.validator(None, described, made)
            except (TypeError, ValueError) as error:
                if may_be_left_out:
                    return _default(described)
                if isinstance(error, StructuringError):
                    raise
                # Its text may repeat the value.
                raise StructuringError(("", "is not a value that is allowed")) from None
            return made

        return hook

    def _sequence(self, kind: Any, *, leaves_out: bool = False) -> Hook:
        of = get_args(kind)[0]
        structure = self._converter.get_structure_hook(of)

        def hook(value: Any, _: Any = kind) -> Any:
            if type(value) is not list:
                raise StructuringError(("", "is not an array"))
            made: list[Any] = []
            issues: list[tuple[str, str]] = []
            for at, each in enumerate(value):
                try:
                    made.append(structure(each, of))
                except StructuringError as error:
                    issues += _below(str(at), error.issues)
                    if len(issues) >= MAX_ISSUES:
                        break
            if issues and not leaves_out:
                raise StructuringError(*issues[:MAX_ISSUES])
            return tuple(made) if get_origin(kind) is tuple else made

        return hook


def camel_case(name: str) -> str:
    """Return a name of Python as a member of JSON has it: `mimeType` for `mime_type`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _member(described: Attribute[Any]) -> str:
    return described.metadata.get("wire") or camel_case(described.name)


def _default(described: Attribute[Any]) -> Any:
    default: Any = described.default
    return default.factory() if isinstance(default, Factory) else default  # type: ignore[arg-type]


def _issues_of(
    error: ClassValidationError, members: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for each in error.exceptions:
        notes = getattr(each, "__notes__", ())
        name = next((one.name for one in notes if isinstance(one, AttributeValidationNote)), None)
        if name is None:  # the class has refused values that are each allowed
            yield "", "is not a value that is allowed"
        elif isinstance(each, StructuringError):
            yield from _below(members[name], each.issues)
        else:
            assert isinstance(each, KeyError), each
            yield step("", members[name]), "is missing"


def _below(name: str, issues: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for path, problem in issues:
        yield step("", name) + path, problem


# -- types


def _exact(kind: type, words: str) -> Hook:
    def hook(value: Any, _: Any = kind) -> Any:
        if type(value) is not kind:
            raise StructuringError(("", f"is not {words}"))
        return value

    return hook


_object = _exact(dict, "an object")
_text = _exact(str, "a string")


def _integer(value: Any, _: Any) -> int:
    # As in JSON Schema, where 5.0 is an integer.
    if type(value) is int or (type(value) is float and value.is_integer()):
        return int(value)
    raise StructuringError(("", "is not a whole number"))


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise StructuringError(("", "is not a number"))
    return cast("float", value)


def _base64(value: Any, _: Any) -> bytes:
    try:
        return a2b_base64(_text(value), strict_mode=True)
    except StructuringError:
        raise
    except ValueError:
        raise StructuringError(("", "is not base64")) from None


def _word(value: Any, kind: Any) -> str:
    words = get_args(kind)
    if type(value) is not str or value not in words:
        raise StructuringError(("", f"is not one of {', '.join(words)}"))
    return value


_EXACT: Mapping[type, Hook] = {
    str: _text,
    bool: _exact(bool, "true or false"),
    int: _integer,
    float: _number,
    bytes: _base64,
}


def _is_words(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) in (dict, Mapping)


def _is_sequence(kind: Any) -> bool:
    return get_origin(kind) in (tuple, Sequence)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    kinds = tuple(each for each in get_args(kind) if each is not NoneType)
    return kinds[0] if len(kinds) == 1 else Union[kinds]  # noqa: UP007
