"""The walk over a type for values whose annotation says how they are written (TYPED-81, TYPED-87).

An enumeration by its names, and a serializer of pydantic in ``Annotated``, are no property of the
value. So the annotation makes a function, which replaces the value before it is written. It is
lenient: a value of another type stays as it is, and the output schema decides.

Imported for the first such annotation of a result, or of a parameter with a default.
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from ...protocol.plain_values import ExplicitResult, unstructured
from .classes import is_class_with_members, is_typed_class, written_members_of
from .constraints import ByName
from .enumerations import is_by_name
from .generics import alias_value, meaning

if TYPE_CHECKING:
    from .annotations import Names

Writer = Callable[[Any], Any]
"""Returns the value to be written instead of a value, or the value itself."""


def writer_of(hint: Any, names: Names) -> Writer | None:
    """Return the function that replaces values of a type; None if they are written as they are.

    Args:
        hint: the type, resolved; one that a schema was derived from.
        names: those that the annotations of the function may use.
    """
    return _Walk(names).writer(hint)


class _Walk:
    def __init__(self, names: Names) -> None:
        self._names = names
        # A class or an alias that contains itself meets itself here.
        self._shared: dict[Any, list[Writer | None]] = {}

    def writer(self, hint: Any, *, by_name: bool = False) -> Writer | None:
        """Return the writer of a type; its enumerations are written by name with `by_name`."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(hint)
        if origin in (typing.Union, types.UnionType):
            return self._union(hint, by_name)
        if origin in (typing.Required, typing.NotRequired):
            return self.writer(arguments[0])
        if isinstance(hint, typing.NewType):
            return self.writer(hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            return self.writer(meaning(hint))
        if "TypeAliasType" in (type(hint).__name__, type(origin).__name__):
            return self._once(hint, lambda: self.writer(self._alias(hint)))
        cls = origin or hint
        if not isinstance(cls, type):
            return None
        if issubclass(cls, enum.Enum):
            return _name_of(cls) if by_name or is_by_name(cls) else None
        if hasattr(cls, "__pydantic_serializer__"):
            return None
        if is_class_with_members(cls) or is_typed_class(cls):
            return self._once(hint, lambda: self._class(cls, hint))
        return self._container(cls, arguments)

    def _once(self, hint: Any, make: Callable[[], Writer | None]) -> Writer | None:
        if hint in self._shared:
            made = self._shared[hint]

            def later(value: Any) -> Any:
                return value if made[0] is None else made[0](value)

            return later
        self._shared[hint] = [None]
        self._shared[hint][0] = writer = make()
        return writer

    def _annotated(self, hint: Any) -> Writer | None:
        if _is_serialized(hint):
            return _serializer(hint)
        by_name = any(isinstance(marker, ByName) for marker in hint.__metadata__)
        return self.writer(hint.__origin__, by_name=by_name)

    def _alias(self, alias: Any) -> Any:
        origin = typing.get_origin(alias)
        if origin is not None:
            return alias_value(origin, typing.get_args(alias))
        return self._names.resolve(alias.__value__)

    def _union(self, hint: Any, by_name: bool) -> Writer | None:
        if any(map(_is_serialized, typing.get_args(hint))):
            return _serializer(hint)
        found = [(one, self.writer(one, by_name=by_name)) for one in typing.get_args(hint)]
        choices = [(_class_of(one), write) for one, write in found]
        if not any(write for _, write in choices):
            return None
        choices.sort(key=lambda choice: choice[0] is object)  # which every value is an instance of

        def write(value: Any) -> Any:
            for cls, write_one in choices:
                if isinstance(value, cls):
                    return value if write_one is None else write_one(value)
            return value

        return write

    def _class(self, cls: Any, hint: Any) -> Writer | None:
        found = {one.key: self.writer(one.hint) for one in written_members_of(hint, self._names)}
        writers = {key: write for key, write in found.items() if write is not None}
        if is_typed_class(cls):
            return _attributes_writer(cls, found)
        if not writers:
            return None
        kind = dict if hasattr(cls, "__required_keys__") else cls

        def write(value: Any) -> Any:
            if not isinstance(value, kind):
                return value
            held = dict(value) if isinstance(value, dict) else unstructured(value)
            return {key: _write(writers.get(key), item) for key, item in held.items()}

        return write

    def _container(self, cls: type, arguments: Sequence[Any]) -> Writer | None:
        if issubclass(cls, Mapping) and len(arguments) == 2:
            key, item = map(self.writer, arguments)
            return (key or item) and _object_writer(key, item)
        if cls is tuple and arguments and arguments[-1] is not ...:
            items = [self.writer(one) for one in arguments]
            return _tuple_writer(items) if any(items) else None
        one = self.writer(arguments[0]) if arguments else None
        return one and _array_writer(one)


def _is_serialized(hint: Any) -> bool:
    if "pydantic" not in sys.modules:
        return False
    from .pydantic_fields import is_serialized

    return is_serialized(hint)


def _serializer(hint: Any) -> Writer:
    adapter = sys.modules["pydantic"].TypeAdapter(hint)

    def write(value: Any) -> Any:
        return adapter.dump_python(value, mode="json", by_alias=True, warnings=False)

    return write


def _name_of(cls: type[enum.Enum]) -> Writer:
    def write(value: Any) -> Any:
        return value.name if isinstance(value, cls) else value

    return write


def _write(writer: Writer | None, value: Any) -> Any:
    return value if writer is None else writer(value)


def _attributes_writer(cls: type, writers: Mapping[str, Writer | None]) -> Writer:
    def write(value: Any) -> Any:
        if not isinstance(value, cls):
            return value
        held = {key: getattr(value, key) for key in writers if hasattr(value, key)}
        return {key: _write(writers[key], item) for key, item in held.items()}

    return write


def _object_writer(key: Writer | None, item: Writer | None) -> Writer:
    def write(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {_write(key, name): _write(item, held) for name, held in value.items()}

    return write


def _tuple_writer(items: Sequence[Writer | None]) -> Writer:
    def write(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(items):
            return value
        return [_write(writer, item) for writer, item in zip(items, value, strict=True)]

    return write


def _array_writer(item: Writer) -> Writer:
    def write(value: Any) -> Any:
        if isinstance(value, Set):
            return {item(one) for one in value}
        if isinstance(value, str | bytes | Mapping | ExplicitResult) or not hasattr(
            value, "__iter__"
        ):
            return value
        return [item(one) for one in value]

    return write


def _class_of(hint: Any) -> type:
    """Return the class whose instances are the values of one member of a union."""
    if isinstance(hint, typing.NewType):
        return _class_of(hint.__supertype__)
    if typing.get_origin(hint) is typing.Annotated:
        return _class_of(hint.__origin__)
    cls = type(None) if hint is None else typing.get_origin(hint) or hint
    if cls is typing.Any or not isinstance(cls, type):  # a Literal, an alias
        return object
    return dict if hasattr(cls, "__required_keys__") else cls
