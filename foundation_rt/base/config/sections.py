"""Sections of applications: what defines one, and how they join the configuration (CONF-24).

An application imports from here what it defines its section with: `Settings`, `setting`, `group`,
and the types of settings. There is an example in
`spec/guide/configuration.md`. An operator sets them as ours: by a variable,
`FOUNDATION_RT_SHOP__MAX_ORDERS=500`, or by a table `[shop]` in a file.

A start without such sections does not import this module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from typing import Any

from attrs import fields, fields_dict, make_class

from ...errors import RegistrationError, UsageError
from .settings import ServerConfig
from .types import (
    POSTGRES_SCHEMES,
    Choice,
    Flag,
    Integer,
    Kind,
    Line,
    ListOf,
    Pattern,
    Section,
    SettingError,
    Settings,
    StoreUrl,
    VariableName,
    byte_count,
    flag,
    group,
    milliseconds,
    setting,
)

__all__ = [
    "POSTGRES_SCHEMES",
    "AbsolutePath",
    "Choice",
    "Flag",
    "Integer",
    "Kind",
    "Line",
    "ListOf",
    "Pattern",
    "SettingError",
    "Settings",
    "StoreUrl",
    "VariableName",
    "byte_count",
    "flag",
    "group",
    "milliseconds",
    "setting",
]

_NAME = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MAX_NAME = 64
_EXPECTED_NAME = (
    f"expected a name of 1 to {_MAX_NAME} letters a-z, digits and single _, a letter first,"
    " and no keyword of Python"
)


class AbsolutePath(Pattern):
    """An absolute path of this system; on Windows with a drive, or of a share.

    Args:
        optional: None is accepted as well.
    """

    def __init__(self, *, optional: bool = False) -> None:
        pattern = r"[A-Za-z]:[\\/].*|\\\\.*" if sys.platform == "win32" else r"/.*"
        super().__init__(pattern, "an absolute path", optional=optional)


def config_with(sections: Mapping[str, type[Settings]]) -> type[ServerConfig]:
    """Return the class of a configuration that has these sections besides ours.

    Raises:
        RegistrationError: a name or a class is not that of a section (CONF-25).
        UsageError: `sections` is not a mapping.
    """
    if not isinstance(sections, Mapping):
        raise UsageError('sections is a mapping of classes, as in {"shop": ShopSettings}')
    attributes: dict[str, Any] = {}
    classes: list[object] = []
    for name, cls in sections.items():
        problem = _problem_of_name(name) or next(_problems_of_class(cls), None)
        if problem is None and cls in classes:
            problem = f"{cls.__name__} is the class of another section"
        if problem is not None:
            raise RegistrationError(f"section {name!r}: {problem}")
        classes.append(cls)
        attributes[name] = group(_default_of(name, cls))
    return make_class(
        "ServerConfig", attributes, bases=(ServerConfig,), frozen=True, eq=False, repr=False
    )


def _problem_of_name(name: object) -> str | None:
    if not _is_name(name):
        return _EXPECTED_NAME
    if hasattr(ServerConfig, str(name)) or name in fields_dict(ServerConfig):
        return "the runtime has this name"
    return None


def _is_name(name: object) -> bool:
    if type(name) is not str or iskeyword(name):
        return False
    return _NAME.fullmatch(name) is not None and len(name) <= _MAX_NAME


def _problems_of_class(cls: Any) -> Iterator[str]:
    """Yield what keeps a class from being a section, its groups included."""
    if not (isinstance(cls, type) and issubclass(cls, Settings)):
        yield "expected a class that derives from Settings"
    elif "__attrs_attrs__" not in vars(cls):
        yield f"decorate {cls.__name__} with attrs.frozen"
    else:
        for each in fields(cls):
            if not isinstance(each.validator, Kind) or each.alias != each.name:
                yield f"{each.name} is not made by setting() or group()"
            elif not _is_name(each.name):
                yield f"{each.name}: {_EXPECTED_NAME}"
            elif isinstance(each.validator, Section):
                yield from _problems_of_class(each.validator.cls)


def _default_of(name: str, cls: type[Settings]) -> Settings:
    try:
        return cls()
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"section {name!r}: a default is refused: {error}") from error
