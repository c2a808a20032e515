"""From a file, environment variables and code to one `ServerConfig`, or to all its problems.

The sources are merged first, key by key, and only the merged values are checked: one walk over one
mapping finds every problem, and a second mapping has the source of each key. A value that another
source overrides is not checked (CONF-02).

Nothing is converted on the way. The values of a file have the types of its format. The text of a
variable is read as its setting's type, or left as it is, and the check refuses it. So `settings`
alone decides which values are valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike, fspath
from reprlib import Repr
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import Factory, asdict, define, fields, fields_dict

from ...errors import ConfigError, ConfigProblem
from ..logs.redaction import REDACTED
from ..logs.traversal import sanitize
from .settings import ENVIRONMENT_PREFIX, ServerConfig, is_setting_variable
from .types import Flag, Integer, Kind, ListOf, Section, SettingError

if TYPE_CHECKING:
    from pathlib import Path

Key = tuple[str, ...]
"""The path of a setting: the names of its sections, then its own."""

_LONGEST_SHOWN = 100  # characters of a key, a variable or a string
_MOST_HINTS = 20
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
    cls: type[ServerConfig] = ServerConfig,
) -> ServerConfig:
    """Return the configuration: the defaults, overridden by code, file and environment (CONF-02).

    Args:
        file: path of a ``.toml`` or ``.json`` file with one table for each section.
        environ: environment variables; those of other programs are ignored.
        code: one mapping for each section, as a file would have it; ``attrs.asdict`` of a
            `ServerConfig` is one.
        cls: the class of the configuration, with the sections of an application.

    Raises:
        ConfigError: with every problem there is, in its message and as `ConfigProblem` in
            `problems` (CONF-04).
    """
    draft = _Draft(cls)
    if code is not None:
        draft.overlay(code, "code")
    if file is not None:
        draft.overlay_file(fspath(file))
    draft.overlay_environment(environ)
    return draft.finish()


def to_mapping(config: ServerConfig) -> dict[str, dict[str, Any]]:
    """Return the effective configuration as JSON-serializable data, without secrets (CONF-05)."""
    mapping = asdict(config)
    for key, kind in settings(type(config)):
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

    cls: type[ServerConfig]
    values: dict[str, Any] = Factory(dict)
    sources: dict[Key, str] = Factory(dict)
    problems: list[ConfigProblem] = Factory(list)

    def overlay(
        self,
        layer: Mapping[str, Any],
        source: str,
        section: type[Any] | None = None,
        above: Key = (),
    ) -> None:
        known = fields_dict(section or self.cls)
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
            from pathlib import Path

            self.overlay(read_file(Path(path)), source)
        except UnusableFileError as error:
            self.problems.append(_problem("", None, str(error), source))

    def overlay_environment(self, environ: Mapping[str, str]) -> None:
        given = sorted(filter(is_setting_variable, environ))
        if not given:
            return
        known = {variable_name(key): (key, kind) for key, kind in settings(self.cls)}
        for name in given:
            source = f"environment {name[:_LONGEST_SHOWN]}"
            if name in known:
                key, kind = known[name]
                self._put(key, _read_as(kind, environ[name]), source)
            else:
                words = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
                expected = f"a known variable{self._hint(name, known)}"
                self.problems.append(_problem(_dotted(words), REDACTED, expected, source))

    def finish(self) -> ServerConfig:
        config: ServerConfig = self._section(self.cls, self.values, ())
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

    def _section(self, cls: type[Any], table: dict[str, Any], above: Key) -> Any:
        """Return the section in `table`; if it is refused, note every problem of it."""
        values: dict[str, Any] = {}
        problems = len(self.problems)
        for each in fields(cls):
            if each.name not in table:
                continue
            key, kind, value = (*above, each.name), each.validator, table[each.name]
            if isinstance(kind, Section):
                value = self._section(kind.cls, value, key)
            elif isinstance(kind, ListOf) and type(value) is list:
                value = tuple(value)
            if not isinstance(kind, Section) and not kind.accepts(value):
                self._note(key, kind, kind.expected)
            values[each.name] = value
        for name in sorted(table.keys() - fields_dict(cls).keys(), key=str):
            self._note_unknown((*above, name))
        if len(self.problems) == problems:
            try:
                return cls(**values)
            except SettingError as error:  # two settings of the section disagree (CONF-18)
                known = fields_dict(cls)
                kind = known[error.key].validator if error.key in known else None
                self._note((*above, error.key), kind, error.expected)
        return None

    def _note(self, key: Key, kind: Any, expected: str) -> None:
        value = _table_with(key, self.values).get(key[-1])
        if value is not None and getattr(kind, "is_secret", True):
            value = REDACTED
        # A missing setting has no source; the last source of its section made it necessary.
        source = self.sources.get(key) or self.sources.get(key[:-1], "default")
        self.problems.append(_problem(_dotted(key), value, expected, source))

    def _note_unknown(self, key: Key) -> None:
        expected = f"a known key{self._hint(_dotted(key), _known_keys(self.cls))}"
        self.problems.append(_problem(_dotted(key), REDACTED, expected, self.sources[key]))

    def _hint(self, word: str, known: Iterable[str]) -> str:
        """Return the nearest known word; "" after many problems: each search takes 3 ms."""
        if len(self.problems) >= _MOST_HINTS:
            return ""
        return f"; the nearest is {_nearest(word, known)}"


def _table_with(key: Key, mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the table within `mapping` that has, or would have, the setting."""
    for section in key[:-1]:
        mapping = mapping[section]
    return mapping


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


def _known_keys(cls: type[ServerConfig]) -> Iterator[str]:
    """Yield the keys of all sections and settings."""
    return (_dotted(key[: i + 1]) for key, _ in settings(cls) for i in range(len(key)))


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
        if type(value) is int:
            str(value)  # raises; from Python 3.14 `Repr` shows the address of a long integer
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
    except UnicodeDecodeError as error:
        reason = f"text in UTF-8; byte {error.start} is not valid"
        raise UnusableFileError(reason) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if path.is_dir():
            raise UnusableFileError("a file; this is a directory") from None
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
