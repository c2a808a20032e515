"""The environment of a host: `.env` below it, and the seed's variables (HOST-04 to HOST-07)."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ..errors import ConfigError, MissingExtraError, UsageError
from .llm.providers import KEY_VARIABLES

if TYPE_CHECKING:
    from ..server import Server

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
    """The environment variables of a host, with those of `.env` below them.

    Its methods change `variables`, so that servers' entries can refer to the variables of `.env`.

    Attributes:
        file: the path of `.env`, which need not be there.
        variables: of the process.
    """

    file: Path = Path(ENV_FILE)
    variables: MutableMapping[str, str] = field(factory=lambda: os.environ, repr=False)
    _given: frozenset[str] = field(init=False, repr=False)
    _aliases: dict[str, str] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._given = frozenset(name for name, value in self.variables.items() if value)

    def load(self) -> list[str]:
        """Read `.env`, and set what the environment does not; return the problems of the file.

        Lines without a problem count nevertheless, so that what else is wrong is found. A problem
        names its line and never shows it: it may hold a secret.
        """
        values, problems = self._read()
        for name, value in values.items():
            if name not in self._given:
                self.variables[name] = value
        for name, own in VARIABLES.items():
            if self.variables.get(name) and not self.variables.get(own):
                self.variables[own] = self.variables[name]
                self._aliases[own] = name
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
                self.variables[name] = values[name]
        return self.keys

    @property
    def keys(self) -> dict[str, str]:
        """The keys of the vendors by provider; without those that are not set."""
        found = {
            provider: self.variables.get(name, "").strip()
            for provider, name in KEY_VARIABLES.items()
        }
        return {provider: key for provider, key in found.items() if key}

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
        """Unset the variables that are refused, in a process that will not start."""
        for each in problems:
            self.variables.pop(each.source.removeprefix("environment "), None)

    def _named(self, problem: str) -> str:
        for own, name in self._aliases.items():
            problem = problem.replace(f"environment {own})", f"environment {name})")
        return problem

    def _read(self) -> tuple[Mapping[str, str], list[str]]:
        try:
            with self.file.open("rb") as opened:
                raw = opened.read(_MAX_BYTES + 1)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return {}, []
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


def _overridden_key(error: ConfigError) -> str:
    """Return the setting of a command line that is refused; "" for any other problem."""
    key = getattr(error.__cause__, "key", None)
    return f"{str(error).partition(':')[0]}.{key}" if key else ""


def _parse(text: str, file: Path) -> tuple[Mapping[str, str], list[str]]:
    try:
        from dotenv import dotenv_values
        from dotenv.parser import parse_stream
    except ModuleNotFoundError:
        raise MissingExtraError("the file .env", "host") from None
    problems, whole = [], []
    for binding in parse_stream(io.StringIO(text)):
        is_blank = binding.key is None and not binding.error
        is_whole = binding.key is not None and _NAME.fullmatch(binding.key) is not None
        if binding.error or not (is_blank or (is_whole and binding.value is not None)):
            line = binding.original.line + _blank_lines(binding.original.string)
            problems.append(f"{file}, line {line}: write NAME=VALUE, a value with spaces in quotes")
        else:
            whole.append(binding.original.string)
    values = dotenv_values(stream=io.StringIO("".join(whole)))
    return {name: value for name, value in values.items() if value is not None}, problems


def _blank_lines(text: str) -> int:
    """Return how many empty lines come before the first that is not."""
    return text[: len(text) - len(text.lstrip())].count("\n")
