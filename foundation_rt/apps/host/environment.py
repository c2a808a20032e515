"""The environment of a host, and what counts of `.env` (HOST-04 to HOST-07, HOST-40 to HOST-42).

A file `.env` lies in the working directory, which somebody else may have written. It sets what
nobody is harmed by; it gets at no secret of the person, and changes no environment of a process.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...base.file_changes import FileWatch
from ...errors import ConfigError, MissingExtraError, UsageError
from .llm.providers import ANTHROPIC, GEMINI, KEY_VARIABLES, OPENAI
from .settings import BASE_URL, SECTION

if TYPE_CHECKING:
    from ...server import Server

ENV_FILE = ".env"

VARIABLES = {
    "LLM_PROVIDER": "FOUNDATION_RT_HOST__PROVIDER",
    "LLM_MODEL": "FOUNDATION_RT_HOST__MODEL",
    "LLM_BASE_URL": "FOUNDATION_RT_HOST__BASE_URL",
    "LLM_TOOL_MODE": "FOUNDATION_RT_HOST__TOOL_MODE",
    "MCP_JSON_PATH": "FOUNDATION_RT_HOST__SERVERS",
    "MAX_TOKEN_COUNT": "FOUNDATION_RT_HOST__MAX_TOKEN_COUNT",
    "DEFAULT_TOOL_TIMEOUT_MS": "FOUNDATION_RT_HOST__TOOL_TIMEOUT_MS",
    "LOG_LEVEL": "FOUNDATION_RT_LOGGING__LEVEL",
    "PORT": "FOUNDATION_RT_HTTP__PORT",
}
"""The seed's variables, and the variable of the same setting, which wins."""

_SECTIONS = "FOUNDATION_RT_"
_LLM_URL = "LLM_BASE_URL"
_URL_VARIABLES = {
    OPENAI: "OPENAI_BASE_URL",
    ANTHROPIC: "ANTHROPIC_BASE_URL",
    GEMINI: "GOOGLE_GEMINI_BASE_URL",
}
"""The variables with a base URL that the packages of the vendors read from the environment."""

_SENT_VARIABLES = {
    OPENAI: ("OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
    ANTHROPIC: ("ANTHROPIC_API_KEY", "ANTHROPIC_CUSTOM_HEADERS"),
    GEMINI: ("GEMINI_API_KEY",),
}
"""Those whose values the packages send to any base URL."""

_NUMBERS = ("MAX_TOKEN_COUNT", "DEFAULT_TOOL_TIMEOUT_MS", "PORT")
_DECIMAL = re.compile(r"[0-9]{1,20}")

_LEVELS = {"trace": "debug"}
"""The levels of the seed that are none of ours, and ours."""

_MAX_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@frozen
class NamedProblem:
    """A reason why a configuration is refused, as people read it.

    Attributes:
        text: names the variable that people have set.
        key: the setting, as in `host.store`; empty if all of a source is refused.
        source: as in `ConfigProblem`.
    """

    text: str
    key: str = ""
    source: str = ""

    def __str__(self) -> str:
        return self.text


@define(eq=False)
class HostEnvironment:
    """The environment variables of a host, and those of `.env` below them.

    Attributes:
        file: the path of `.env`, which need not be there.
        variables: of the process; `load` sets in them the settings that the seed's variables stand
            for, and nothing else.
        from_file: the variables of `.env` that the environment does not set.
        defaults: the settings of `.env`, by section; everything else wins over them (HOST-05).
        notes: what people are told at the start, as that something in `.env` does not count.
        watch: notices changes of the file since this was made.
    """

    file: Path = Path(ENV_FILE)
    variables: MutableMapping[str, str] = field(factory=lambda: os.environ, repr=False)
    from_file: dict[str, str] = field(factory=dict, init=False, repr=False)
    defaults: dict[str, dict[str, str | int]] = field(factory=dict, init=False, repr=False)
    notes: list[str] = field(factory=list, init=False)
    watch: FileWatch = field(init=False)
    _given: frozenset[str] = field(init=False, repr=False)
    _aliases: dict[str, str] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.watch = FileWatch([self.file])
        self._given = frozenset(name for name, value in self.variables.items() if value)

    def load(self) -> list[str]:
        """Read `.env`; set the settings of the seed's variables; return the problems of the file.

        Lines without a problem count nevertheless, so that what else is wrong is found. A problem
        names its line and never shows it: it may hold a secret.
        """
        values, problems = self._read()
        self.from_file = {name: each for name, each in values.items() if name not in self._given}
        self.notes += (
            f"{name} in {self.file} does not count: set it in the environment, or in --config FILE"
            for name in self.from_file
            if name.startswith(_SECTIONS)
        )
        for name, own in VARIABLES.items():
            value, of_file = self.variables.get(name), self.from_file.get(name)
            if name == "LOG_LEVEL":
                value, of_file = (_LEVELS.get(each or "", each) for each in (value, of_file))
            if self.variables.get(own):
                continue
            if value:
                self.variables[own] = value
                self._aliases[own] = name
            elif of_file and name != _LLM_URL:  # it depends on the provider whether that counts
                is_number = name in _NUMBERS and _DECIMAL.fullmatch(of_file)
                section, setting = _key_of(own)
                given = self.defaults.setdefault(section, {})
                given[setting] = int(of_file) if is_number else of_file
        return problems

    def read_keys(self) -> dict[str, str]:
        """Read `.env` again, for keys that were rotated; return the keys by provider.

        Raises:
            UsageError: the file is malformed; then no key has changed.
        """
        values, problems = self._read()
        if problems:
            raise UsageError("\n".join(problems))
        for name in KEY_VARIABLES.values():
            if name not in self._given and name in values:
                self.from_file[name] = values[name]
        return self.keys

    @property
    def keys(self) -> dict[str, str]:
        """The keys of the vendors by provider; without those that are not set."""
        found = {
            provider: (self.variables.get(name) or self.from_file.get(name, "")).strip()
            for provider, name in KEY_VARIABLES.items()
        }
        return {provider: key for provider, key in found.items() if key}

    def has_set(self, setting: str, value: str | None) -> bool:
        """Return whether this value of a setting of the host may be that of `.env`."""
        return value is not None and self.defaults.get(SECTION, {}).get(setting) == value

    def base_url(self, provider: str) -> str | None:
        """Return the base URL that `.env` has for a provider, if it counts (HOST-41).

        Neither a key nor a header of the environment goes there: with one, the URL is left out, and
        `notes` says so.

        Raises:
            UsageError: it is no URL.
        """
        own = _URL_VARIABLES.get(provider)
        name = next((each for each in (_LLM_URL, own) if self.from_file.get(each or "")), None)
        if own is None or name is None or own in self._given:
            return None
        secret = next(filter(self._given.__contains__, _SENT_VARIABLES[provider]), None)
        if secret is not None:
            self.notes.append(
                f"{name} in {self.file} does not count, since {secret} is set in the environment"
                f" and would be sent there: to use it, set {name} in the environment too"
            )
            return None
        if not BASE_URL.accepts(self.from_file[name]):
            raise UsageError(f"{name} in {self.file}: expected {BASE_URL.expected}")
        return self.from_file[name]

    def config_of(self, server: Server) -> tuple[Any, list[NamedProblem]]:
        """Return the configuration of a server; or None, and its problems, by their variables."""
        try:
            return server.load_config(), []
        except ConfigError as error:
            problems = [
                NamedProblem(self._named(str(each)), each.key, each.source)
                for each in error.problems
            ]
            return None, problems or [NamedProblem(str(error), _overridden_key(error))]

    def drop(self, problems: Iterable[NamedProblem]) -> None:
        """Unset what is refused, of the variables and of `.env`, where nothing will start."""
        for each in problems:
            self.variables.pop(each.source.removeprefix("environment "), None)
            section, _, setting = each.key.partition(".")
            self.defaults.get(section, {}).pop(setting, None)

    def _named(self, problem: str) -> str:
        for own, name in self._aliases.items():
            problem = problem.replace(f"environment {own})", f"environment {name})")
        for name, own in VARIABLES.items():
            section, setting = _key_of(own)
            if setting in self.defaults.get(section, {}):
                place = re.escape(f"{section}.{setting} = ")
                problem = re.sub(rf"\A({place}.*) \(code\)", rf"\1 ({name} in .env)", problem)
        return problem

    def _read(self) -> tuple[Mapping[str, str], list[str]]:
        if not self.file.is_file():  # reading a pipe would wait for ever
            return {}, []
        try:
            with self.file.open("rb") as opened:
                raw = opened.read(_MAX_BYTES + 1)
        except OSError as error:
            return {}, [f"{self.file} cannot be read ({error.strerror}): mend it, or remove it"]
        if len(raw) > _MAX_BYTES:
            return {}, [f"{self.file} has more than 1 MiB: keep to lines NAME=VALUE"]
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw[: error.start].count(b"\n") + 1
            return {}, [f"{self.file}, line {line}: not in UTF-8: save the file in UTF-8"]
        return _parse(text, self.file)


def _key_of(variable: str) -> tuple[str, str]:
    """Return the section and the name of the setting of a `FOUNDATION_RT_...`."""
    section, _, setting = variable.removeprefix(_SECTIONS).lower().partition("__")
    return section, setting


def _overridden_key(error: ConfigError) -> str:
    """Return the setting of a command line that is refused; "" for any other problem."""
    key = getattr(error.__cause__, "key", None)
    return f"{str(error).partition(':')[0]}.{key}" if key else ""


def _parse(text: str, file: Path) -> tuple[Mapping[str, str], list[str]]:
    try:
        from dotenv.parser import parse_stream
        from dotenv.variables import parse_variables
    except ModuleNotFoundError:
        raise MissingExtraError("the file .env", "host") from None
    problems: list[str] = []
    values: dict[str, str | None] = {}
    for binding in parse_stream(io.StringIO(text)):
        is_blank = binding.key is None and not binding.error
        is_whole = binding.key is not None and _NAME.fullmatch(binding.key) is not None
        if binding.error or not (is_blank or (is_whole and binding.value is not None)):
            line = binding.original.line + _blank_lines(binding.original.string)
            problems.append(f"{file}, line {line}: write NAME=VALUE, a value with spaces in quotes")
        elif binding.key is not None:
            # Of the file alone: a value of the environment would go where the file says (HOST-42).
            atoms = parse_variables(binding.value or "")
            values[binding.key] = "".join(each.resolve(values) for each in atoms)
    return {name: value or "" for name, value in values.items()}, problems


def _blank_lines(text: str) -> int:
    """Return how many empty lines come before the first that is not."""
    return text[: len(text) - len(text.lstrip())].count("\n")
