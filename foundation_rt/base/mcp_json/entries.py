"""One server of a file: how to start or reach it, and its settings (MCPJSON-01 to -05).

Such files are shared by several clients, so unknown members are passed over. Known ones are used
exactly or refused. The values of `env` and `headers` are secrets as a rule: no message and no
representation repeats one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, fields, frozen

from ...errors import RegistrationError
from .members import (
    HTTP_TRANSPORTS,
    HTTP_TYPES,
    MEMBERS,
    OAUTH_MEMBERS,
    STDIO_TYPES,
    choice,
)
from .problems import NotYetError, ServerFileError
from .variables import UnsetVariableError, VariableError, expand

if TYPE_CHECKING:
    from ..transforms import Transform

TIMEOUT_VARIABLE = "DEFAULT_TOOL_TIMEOUT_MS"
"""Sets the time of calls where an entry does not say it (MCPJSON-04)."""


def _default(member: str) -> Any:
    return MEMBERS[member].default


@frozen(kw_only=True)
class ServerSettings:
    """The settings of one server, for those who run many.

    Attributes:
        timeout_ms: of a call.
        max_timeout_ms: of a call whose progress extends its deadline.
        connect_timeout_ms: of one attempt to connect.
        idle_timeout_ms: after which an unused session of one client is closed.
        max_concurrent: the most calls at one time.
        circuit_failures: failures after which a tool, or the server, is not called; None, as of
            those below: what whoever runs the servers says.
        circuit_window_ms: age up to which a failure counts.
        circuit_open_ms: how long nothing is called then.
        isolation: `session`, `principal` or `shared`; None leaves it to the server's revision.
        disabled: whether the server is left out.
        allowed_tools: patterns of the tools that are listed; None: all.
        disabled_tools: patterns of the tools that are left out.
        always_allow: patterns of the tools that a chat host calls without asking a person.
        trust: whether a chat host believes the annotations of the tools.
        headers_from: header of the server by header of the client.
        tools: how a gateway shapes the tools (GATE-64); None: as they come.
    """

    timeout_ms: int = _default("timeoutMs")
    max_timeout_ms: int = _default("maxTimeoutMs")
    connect_timeout_ms: int = _default("connectTimeoutMs")
    idle_timeout_ms: int = _default("idleTimeoutMs")
    max_concurrent: int = _default("maxConcurrent")
    circuit_failures: int | None = None
    circuit_window_ms: int | None = None
    circuit_open_ms: int | None = None
    isolation: str | None = None
    disabled: bool = False
    allowed_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    always_allow: tuple[str, ...] = ()
    trust: bool = False
    headers_from: Mapping[str, str] = field(factory=dict)
    tools: Transform | None = None

    def allows(self, tool: str) -> bool:
        """Return whether a tool is listed; `disabled_tools` wins (MCPJSON-05)."""
        if any(fnmatchcase(tool, pattern) for pattern in self.disabled_tools):
            return False
        allowed = self.allowed_tools
        return allowed is None or any(fnmatchcase(tool, pattern) for pattern in allowed)


@frozen(kw_only=True)
class OAuthEntry:
    """The client's registration at a server's authorization server (MCPJSON-18).

    Attributes:
        client_id: None if the client is registered by itself, or not at all.
        issuer: the authorization server that knows it.
        scopes: asked for besides those that the server names.
        callback_port: that the browser comes back to; None: any that is free.
        shared: whether all users of a gateway act as the person who logged in.
    """

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    callback_port: int | None = None
    shared: bool = False


@frozen(kw_only=True)
class ServerEntry:
    """A server of a file, its variables replaced by their values.

    It has either a command or a URL. `connect` takes it as a target.

    Attributes:
        name: its key in the file.
        place: the file and the name, for messages.
        command: the program; None if there is a URL.
        args: of the program.
        env: of the program.
        cwd: of the program; None: that of this process. An entry of the home's has it (MCPJSON-16).
        url: None if there is a command.
        headers: for the URL.
        oauth: how a person logs in to the URL; None: nobody does.
        settings: for those who run many servers.
    """

    name: str
    place: str = field(eq=False)
    command: str | None = None
    # These may hold secrets, so the repr leaves them out.
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    oauth: OAuthEntry | None = None
    settings: ServerSettings = field(factory=ServerSettings)


@define(eq=False, repr=False)
class EntryReader:
    """Reads one entry, member by member.

    Args:
        path: of the file.
        name: of the server.
        members: the entry, as it came.
        variables: the environment.
        default_cwd: of the program, where the entry does not say it.
    """

    path: Path
    name: str
    members: Any
    variables: Mapping[str, str]
    default_cwd: str | None = None

    @property
    def place(self) -> str:
        """The file and the name of the server, for messages."""
        return f"{self.path}, server {self.name!r}"

    def read(self) -> ServerEntry:
        """Return the entry.

        Raises:
            ServerFileError: a member cannot be used, or a variable is not set.
        """
        if not isinstance(self.members, dict):
            raise self.refusal("should be an object")
        self._check_members()
        settings = self._settings()
        shared: dict[str, Any] = {"name": self.name, "place": self.place, "settings": settings}
        if self._given("url") is not None:
            return ServerEntry(
                url=self._text("url"),
                headers=self._texts("headers"),
                oauth=self._oauth(),
                **shared,
            )
        return ServerEntry(
            command=self._text("command"),
            args=tuple(self._expand(each, "args") for each in self._given("args") or ()),
            env=self._texts("env"),
            cwd=self.default_cwd if self._given("cwd") is None else self._text("cwd"),
            **shared,
        )

    def refusal(self, problem: str) -> ServerFileError:
        """Return the error for this entry."""
        return ServerFileError(f"{self.place}: {problem}")

    # -- checks

    def _check_members(self) -> None:
        problems = []
        for name, member in MEMBERS.items():
            value = self._given(name)
            # Which words `type` may be depends on the way to the server, and is said below.
            problem = None if value is None or name in _OF_THE_WAY else member.kind.problem(value)
            problems += [] if problem is None else [f'"{name}" {problem}']
        if problems:
            raise self.refusal("; ".join(problems))
        if (self._given("command") is None) == (self._given("url") is None):
            named = next((each for each in _MISTAKEN_URLS if each in self.members), None)
            hint = "" if named is None else f': write "url" instead of "{named}"'
            raise self.refusal(f'needs either "command" or "url"{hint}')
        self._check_way()
        if self._given("id") not in (None, self.name):
            raise self.refusal(f'"id" should be {self.name!r}, the name of the server, or absent')

    def _check_way(self) -> None:
        over_http = self._given("url") is not None
        ways = {
            "type": HTTP_TYPES if over_http else STDIO_TYPES,
            "transport": HTTP_TRANSPORTS if over_http else STDIO_TYPES[:1],
        }
        for name, words in ways.items():
            value = self._given(name)
            problem = None if value is None else choice(words).problem(value)
            if problem is not None:
                given = "url" if over_http else "command"
                raise self.refusal(f'"{name}" {problem} beside "{given}"')
        if not over_http and self._given("envFile") is not None:
            raise self.refusal('"envFile" is not read: put its variables into "env"')
        for name in ("headersFrom", "oauth"):
            if not over_http and self._given(name) is not None:
                raise self.refusal(f'"{name}" goes with "url"')

    def _settings(self) -> ServerSettings:
        given = _values(self.members, _SETTINGS)
        timeout = given.setdefault("timeout_ms", self._default_timeout())
        most = given.setdefault("max_timeout_ms", max(timeout, _default("maxTimeoutMs")))
        if most < timeout:
            raise self.refusal('"maxTimeoutMs" should be at least "timeoutMs"')
        return ServerSettings(**{**given, "tools": self._transform()})

    def _transform(self) -> Transform | None:
        given = self._given("tools")
        if not isinstance(given, dict):  # other programs list names there
            return None
        from ..transforms import Transform

        try:
            return Transform(given)
        except RegistrationError as error:
            raise self.refusal(f'"tools": {error}') from None

    def _oauth(self) -> OAuthEntry | None:
        given = self._given("oauth")
        if given is None:
            return None
        values = _values(given, OAUTH_MEMBERS)
        texts = {name: each for name, each in values.items() if isinstance(each, str)}
        expanded = {name: self._expand(each, "oauth") for name, each in texts.items()}
        return OAuthEntry(**{**values, **expanded})

    def _default_timeout(self) -> int:
        said = self.variables.get(TIMEOUT_VARIABLE)
        if not said:
            return int(_default("timeoutMs"))
        value = int(said) if said.isascii() and said.isdigit() and len(said) < 12 else 0
        kind = MEMBERS["timeoutMs"].kind
        problem = kind.problem(value)
        if problem is not None:
            raise self.refusal(f"the environment variable {TIMEOUT_VARIABLE} {problem}")
        return value

    # -- values

    def _given(self, member: str) -> Any:
        """Return a member as it came; None if it is absent."""
        return self.members.get(member)

    def _text(self, member: str) -> str:
        return self._expand(self._given(member), member)

    def _texts(self, member: str) -> dict[str, str]:
        values = self._given(member) or {}
        return {key: self._expand(value, member) for key, value in values.items()}

    def _expand(self, text: str, member: str) -> str:
        try:
            return expand(text, self.variables, self.path)
        except UnsetVariableError as error:
            raise NotYetError(f'{self.place}: "{member}" {error}') from None
        except VariableError as error:
            raise self.refusal(f'"{member}" {error}') from None


def _field(member: str) -> str:
    """Return the name of a member as one of Python: `timeout_ms` for `timeoutMs`."""
    return re.sub("(?=[A-Z])", "_", member).lower()


def _values(given: Mapping[str, Any], members: Iterable[str]) -> dict[str, Any]:
    """Return the members that are there, by names of Python; arrays as tuples, and 5 for 5.0."""
    there = {_field(name): given[name] for name in members if given.get(name) is not None}
    return {
        name: tuple(value) if type(value) is list else int(value) if type(value) is float else value
        for name, value in there.items()
    }


_FIELDS = {each.name for each in fields(ServerSettings)}
_SETTINGS = [name for name in MEMBERS if _field(name) in _FIELDS]
_OF_THE_WAY = ("type", "transport")
_MISTAKEN_URLS = ("uri", "endpoint")
"""Members in which people write the URL, and no client does."""
