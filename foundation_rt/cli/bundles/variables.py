"""The environment variables that a program reads, which whoever installs it is asked for (PKG-05).

They are the settings of its own sections, and what its files read from `os.environ` by a name that
stands there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, evolve, fields_dict, frozen

from ...base.config.loading import settings, variable_name
from ...base.config.settings import ENVIRONMENT_PREFIX, ServerConfig
from ...base.config.types import Flag, Integer, Kind, ListOf
from ...base.logs.redaction import Redactor
from ...client.targets import is_inherited
from ...errors import UsageError

_READ = "The program reads this environment variable."


@frozen
class Variable:
    """A variable, as a manifest and `server.json` describe it.

    Attributes:
        name: of the variable, and of the value that a client asks for.
        kind: `string`, `number` or `boolean`.
        description: for whoever is asked.
        default: None if a value is needed; empty if the program does without.
        is_secret: it is never shown.
        bounds: the least and the greatest number, if there are any.
    """

    name: str
    kind: str = "string"
    description: str = ""
    default: str | int | bool | None = None
    is_secret: bool = False
    bounds: tuple[int, int] | None = None

    def user_config(self) -> dict[str, Any]:
        """Return its member of `user_config` in a manifest."""
        return {
            "type": self.kind,
            "title": self.name,
            "description": self.description,
            **({"required": True} if self.default is None else {"default": self.default}),
            **({"sensitive": True} if self.is_secret else {}),
            **({} if self.bounds is None else {"min": self.bounds[0], "max": self.bounds[1]}),
        }

    def input(self) -> dict[str, Any]:
        """Return its entry of `environmentVariables` in `server.json`."""
        text = str(self.default).lower() if self.kind == "boolean" else str(self.default)
        return {
            "name": self.name,
            "description": self.description,
            "format": self.kind,
            **({"isRequired": True} if self.default is None else {"default": text} if text else {}),
            **({"isSecret": True} if self.is_secret else {}),
        }


def variables_of(config: ServerConfig, sources: Mapping[str, bytes]) -> list[Variable]:
    """Return the variables of a program by name.

    Args:
        config: of the loaded server.
        sources: its files in Python.

    Raises:
        UsageError: one of them is no Python.
    """
    found = {each.name: each for each in _read(sources)}
    found |= {each.name: each for each in _settings(type(config))}
    return [_without_secret(found[name]) for name in sorted(found)]


def _without_secret(variable: Variable) -> Variable:
    """Return a variable; the default of a secret is not published, and has to be given."""
    return evolve(variable, default=variable.default and None) if variable.is_secret else variable


def _settings(cls: type[ServerConfig]) -> Iterator[Variable]:
    defaults = asdict(cls())
    for key, kind in settings(cls):
        if key[0] not in fields_dict(ServerConfig):
            default: Any = defaults
            for name in key:
                default = default[name]
            meaning = f"{_meaning(cls, key)} Expected: {kind.expected}."
            yield _setting(Variable(variable_name(key), description=meaning), kind, default)


def _meaning(cls: type[Any], key: Sequence[str]) -> str:
    for name in key[:-1]:
        section: Any = fields_dict(cls)[name].validator
        cls = section.cls
    return str(fields_dict(cls)[key[-1]].metadata["meaning"])


def _setting(variable: Variable, kind: Kind, default: Any) -> Variable:
    if isinstance(kind, Integer):
        bounds = (kind.minimum, kind.maximum)
        return evolve(variable, kind="number", default=default, bounds=bounds)
    if isinstance(kind, Flag):
        return evolve(variable, kind="boolean", default=default)
    if isinstance(kind, ListOf):
        default = ",".join(map(str, default))
    return evolve(variable, default=default, is_secret=kind.is_secret)


def _read(sources: Mapping[str, bytes]) -> Iterator[Variable]:
    """Yield what the files read by name; where one has a default, the first that has."""
    is_secret = Redactor().is_secret
    found: dict[str, str | None] = {}
    for path in sorted(sources):
        for node in ast.walk(_parsed(path, sources[path])):
            for name, default in _variable_in(node):
                if found.get(name) is None:
                    found[name] = default
    for name, default in found.items():
        if not name.startswith(ENVIRONMENT_PREFIX) and not is_inherited(name):
            yield Variable(name, "string", _READ, default, is_secret(name))


def _parsed(path: str, source: bytes) -> ast.AST:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path!r} cannot be read as Python: {error}") from None


def _variable_in(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    """Yield the variable that an expression reads, and its default; None if it needs a value."""
    match node:
        case ast.Subscript(value=place, slice=ast.Constant(value=str(name)), ctx=ast.Load()):
            if _ends(place) == "environ":
                yield name, None
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *rest]):
            if _ends(function) == "getenv" or (
                isinstance(function, ast.Attribute)
                and function.attr == "get"
                and _ends(function.value) == "environ"
            ):
                yield name, _default(rest[0]) if rest else ""


def _default(given: ast.expr) -> str | None:
    """Return the text of a literal; of what is none, a default is not known."""
    if not isinstance(given, ast.Constant):
        return None
    return "" if given.value is None or given.value is False else str(given.value)


def _ends(node: ast.AST) -> str:
    """Return the last name of an expression such as `os.environ`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
