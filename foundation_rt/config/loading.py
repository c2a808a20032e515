"""From a file, environment variables and code to one `ServerConfig`, or to all its problems.

The sources are merged first, key by key, and only the merged values are checked: one pass of cattrs
over one mapping finds every problem, and a second mapping has the source of each key. A value that
another source overrides is not checked (CONF-02).

Nothing is converted on the way. The values of a file have the types of its format. The text of a
variable is read as its setting's type, or left as it is, and the check refuses it. So `settings`
alone decides which values are valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from reprlib import Repr
from types import MappingProxyType
from typing import Any, NoReturn

from attrs import Attribute, Factory, asdict, define, fields, fields_dict
from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from ..errors import ConfigError, ConfigProblem
from ..logs.redaction import REDACTED, sanitize
from .settings import ENVIRONMENT_PREFIX, ServerConfig, is_setting_variable
from .types import Flag, Integer, Kind, ListOf, Section, SettingError

Key = tuple[str, ...]
"""The path of a setting: the names of its sections, then its own."""

_LONGEST_SHOWN = 100  # characters of a key, a variable or a string
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")
_FLAGS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def _problem(key: str, value: object, expected: str, source: str) -> ConfigProblem:
    """Return a problem with its message, which redacts secrets."""
    found = f"{key} = {_shown(value)} ({source})" if key else source
    return ConfigProblem(key, value, expected, source, sanitize(f"{found}: expected {expected}"))


def load_config(
    *,
    file: str | PathLike[str] | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    code: Mapping[str, Any] | None = None,
) -> ServerConfig:
    """Return the configuration: the defaults, overridden by code, file and environment (CONF-02).

    Args:
        file: path of a ``.toml`` or ``.json`` file with one table for each section.
        environ: environment variables; those of other programs are ignored.
        code: one mapping for each section, as a file would have it; ``attrs.asdict`` of a
            `ServerConfig` is one.

    Raises:
        ConfigError: with every problem there is, in its message and as `ConfigProblem` in
            `problems` (CONF-04).
    """
    draft = _Draft()
    if code is not None:
        draft.overlay(code, "code")
    if file is not None:
        draft.overlay_file(fspath(file))
    draft.overlay_environment(environ)
    return draft.finish()


def to_mapping(config: ServerConfig) -> dict[str, dict[str, Any]]:
    """Return the effective configuration as JSON-serializable data, without secrets (CONF-05)."""
    mapping = asdict(config)
    for key, kind in settings():
        table = _table_with(key, mapping)
        if kind.is_secret and table[key[-1]] not in (None, ()):
            table[key[-1]] = REDACTED
    return mapping


def settings(cls: type[Any] = ServerConfig, above: Key = ()) -> Iterator[tuple[Key, Kind]]:
    """Yield every setting of a section with its kind, in the order of definition."""
    for attribute in fields(cls):
        key = (*above, attribute.name)
        kind = attribute.validator
        if isinstance(kind, Section):
            yield from settings(kind.cls, key)
        else:
            yield key, kind


def variable_name(key: Key) -> str:
    """Return the environment variable of a setting (CONF-07)."""
    return ENVIRONMENT_PREFIX + "__".join(key).upper()


@define
class _Draft:
    """The merged values so far, the source of each, and the problems found so far."""

    values: dict[str, Any] = Factory(dict)
    sources: dict[Key, str] = Factory(dict)
    problems: list[ConfigProblem] = Factory(list)

    def overlay(
        self,
        layer: Mapping[str, Any],
        source: str,
        cls: type[Any] = ServerConfig,
        above: Key = (),
    ) -> None:
        known = fields_dict(cls)
        for name, value in layer.items():
            key = (*above, name)
            kind = known[name].validator if name in known else None
            if not isinstance(kind, Section):
                self._put(key, value, source)
            elif isinstance(value, Mapping):
                self.overlay(value, source, kind.cls, key)
            else:
                self.problems.append(_problem(_dotted(key), value, "a table", source))

    def overlay_file(self, path: str) -> None:
        source = f"file {path}"
        try:
            self.overlay(read_file(Path(path)), source)
        except UnusableFileError as error:
            self.problems.append(_problem("", None, str(error), source))

    def overlay_environment(self, environ: Mapping[str, str]) -> None:
        known = {variable_name(key): (key, kind) for key, kind in settings()}
        for name in sorted(filter(is_setting_variable, environ)):
            source = f"environment {name[:_LONGEST_SHOWN]}"
            if name in known:
                key, kind = known[name]
                self._put(key, _read_as(kind, environ[name]), source)
            else:
                words = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
                expected = f"a known variable; the nearest is {_nearest(name, known)}"
                self.problems.append(_problem(_dotted(words), REDACTED, expected, source))

    def finish(self) -> ServerConfig:
        try:
            config: ServerConfig = _converter()(self.values, ServerConfig)
        except ClassValidationError as error:
            for section, cause in _causes(error):
                self.problems.extend(self._explain(section, cause))
        if self.problems:
            lines = "".join(f"\n  {problem}" for problem in self.problems)
            raise ConfigError(f"the configuration is refused:{lines}", tuple(self.problems))
        return config

    def _put(self, key: Key, value: object, source: str) -> None:
        table = self.values
        for depth, name in enumerate(key[:-1], 1):
            self.sources[key[:depth]] = source
            table = table.setdefault(name, {})
        self.sources[key] = source
        table[key[-1]] = value

    def _explain(self, section: Key, cause: Exception) -> Iterator[ConfigProblem]:
        """Yield the problems behind one exception that cattrs collected in `section`."""
        if isinstance(cause, ForbiddenExtraKeysError):
            for name in sorted(cause.extra_fields, key=str):
                key = (*section, name)
                expected = f"a known key; the nearest is {_nearest(_dotted(key), _known_keys())}"
                yield _problem(_dotted(key), REDACTED, expected, self.sources[key])
            return
        assert isinstance(cause, SettingError), cause
        key = (*section, cause.key)
        value = _table_with(key, self.values).get(cause.key)
        if value is not None and dict(settings())[key].is_secret:
            value = REDACTED
        # A missing setting has no source; the last source of its section made it necessary.
        source = self.sources.get(key) or self.sources[section]
        yield _problem(_dotted(key), value, cause.expected, source)


@cache
def _converter() -> Callable[[Any, Any], Any]:
    """Return the function that makes a `ServerConfig` of a mapping, or raises all problems.

    It is generated code, the same each time, and takes a hundred times as long to make as to run.
    """
    return _make_converter(ServerConfig, Converter(forbid_extra_keys=True))


def _make_converter(cls: type[Any], converter: Converter) -> Callable[[Any, Any], Any]:
    hooks: dict[str, Any] = {
        attribute.name: override(struct_hook=_hook(attribute, attribute.validator, converter))
        for attribute in fields(cls)
    }
    return make_dict_structure_fn(cls, converter, **hooks)


def _hook(attribute: Attribute[Any], kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Return the converter of one attribute; it converts nothing but a list to a tuple."""

    def structure_setting(value: Any, _: Any) -> Any:
        if isinstance(kind, ListOf) and type(value) is list:
            value = tuple(value)
        kind(None, attribute, value)
        return value

    if isinstance(kind, Section):
        return _make_converter(kind.cls, converter)
    return structure_setting


def _table_with(key: Key, mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the table within `mapping` that has, or would have, the setting."""
    for section in key[:-1]:
        mapping = mapping[section]
    return mapping


def _causes(error: ClassValidationError, section: Key = ()) -> Iterator[tuple[Key, Exception]]:
    """Yield each exception that cattrs collected, with the section it was raised in."""
    in_attributes, in_section = error.group_exceptions()
    for cause, note in in_attributes:
        if isinstance(cause, ClassValidationError):
            yield from _causes(cause, (*section, note.name))
        else:
            yield section, cause
    for cause in in_section:
        yield section, cause


def _read_as(kind: Kind, text: str) -> object:
    """Return the text of a variable as its setting's type; unchanged if it cannot be read so."""
    match kind:
        case Integer():
            return int(text) if _DECIMAL.fullmatch(text) else text
        case Flag():
            return _FLAGS.get(text.lower(), text)
        case ListOf():
            return _read_list(text)
        case _:
            return text


def _read_list(text: str) -> object:
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return [item.strip() for item in text.split(",")] if text else []


def _known_keys() -> list[str]:
    """Return the keys of all sections and settings."""
    return [_dotted(key[: i + 1]) for key, _ in settings() for i in range(len(key))]


def _nearest(word: str, known: Iterable[str]) -> str:
    """Return the most similar one of `known`; upper and lower case are equal."""
    from difflib import get_close_matches  # for errors only

    spelled = {candidate.lower(): candidate for candidate in known}
    return spelled[get_close_matches(word[:_LONGEST_SHOWN].lower(), spelled, n=1, cutoff=0)[0]]


def _dotted(key: Iterable[object]) -> str:
    return ".".join(map(str, key))[:_LONGEST_SHOWN]


def _shown(value: object) -> str:
    """Return any value in one short line, tables without their content."""
    brief = Repr()
    brief.maxlevel = 2
    brief.maxdict = 0
    brief.maxstring = _LONGEST_SHOWN
    try:
        return brief.repr(value) if value != REDACTED else REDACTED
    except ValueError:
        return "an integer too long to show"


# -- files (CONF-12 to CONF-16) ------------------------------------------------------------------


class UnusableFileError(Exception):
    """A file that holds no settings; the message completes "expected ..."."""


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a ``.toml`` or ``.json`` file, a table in either case.

    The content need not be a valid configuration.

    Raises:
        UnusableFileError: the name ends otherwise; the file can't be read, is not in UTF-8, breaks
            the rules of its format, names one key twice, or is no table at the top.
    """
    ending = path.suffix.lower()
    if ending not in (".toml", ".json"):
        raise UnusableFileError("a file whose name ends in .toml or .json")
    text = _read_text(path)
    try:
        content = _parse_toml(text) if ending == ".toml" else _parse_json(text)
    except (ValueError, RecursionError) as error:
        raise UnusableFileError(f"valid {ending[1:].upper()}: {error}") from None
    if not isinstance(content, dict):
        raise UnusableFileError("an object that has the sections as its members")
    return content


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # editors on Windows put a BOM first
    except FileNotFoundError:
        raise UnusableFileError("an existing file; there is none by that name") from None
    except IsADirectoryError:
        raise UnusableFileError("a file; this is a directory") from None
    except UnicodeDecodeError as error:
        reason = f"text in UTF-8; byte {error.start} is not valid"
        raise UnusableFileError(reason) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UnusableFileError(f"a file that can be read: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    import tomli  # a start with environment variables alone does not pay for it

    return tomli.loads(text)


def _parse_json(text: str) -> Any:
    # Not orjson: of two equal keys it keeps the last without a word.
    return json.loads(text, object_pairs_hook=_without_twins, parse_constant=_refuse_constant)


def _without_twins(members: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in members:
        if name in table:
            raise ValueError(f"the key {name!r} stands twice in one object")
        table[name] = value
    return table


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
