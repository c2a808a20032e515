"""What an operator can set: the sections of the configuration, their defaults and their limits.

Each setting is one statement that says everything about it: type, default, limits, meaning. The
file loader, the environment variables, the published JSON Schema and the table in spec/config.md
all follow from it or are held to it by a test, so a setting is added here and nowhere else.

Two invariants carry the rest of the runtime: a configuration that exists is valid, however it was
made (CONF-01), and it never changes. Hence nothing downstream checks a limit again.

A start with defaults imports this module and no more. Reading files and environment variables is
the business of `config_loading`, which costs several times as much and is imported only when a
file is named or `needs_loading` says so.
"""

# ruff: noqa: RUF009 - the functions called in the classes make fields, not defaults.
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

from attrs import Attribute, field, frozen

from .version import __version__

ENVIRONMENT_PREFIX = "FOUNDATION_RT_"
"""What the name of every environment variable of the runtime starts with (CONF-07)."""

AdminMode = Literal["deny_all", "local_stdio_only", "token"]
LogLevel = Literal["debug", "info", "warn", "error"]

_Value = TypeVar("_Value")


class SettingError(ValueError):
    """A value that its setting does not accept; the value is not told: it may be a secret.

    `key` is the name of the setting within its section; `expected` completes "expected ...".
    """

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"{key}: expected {expected}")
        self.key = key
        self.expected = expected


class Kind(ABC):
    """What a setting accepts: an attrs validator that can also say what it expects."""

    expected: str
    """Completes the sentence "expected ..."."""

    is_secret = False
    """Whether the value is shown nowhere (CONF-05)."""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Whether `value` may be the value of the setting."""

    def __call__(self, instance: object, attribute: Attribute[Any], value: object) -> None:
        """Raise `SettingError` unless the setting accepts `value`."""
        if not self.accepts(value):
            raise SettingError(attribute.name, self.expected)


class Integer(Kind):
    """A whole number from `minimum` to `maximum`; neither ``True`` nor ``5.0`` is one."""

    def __init__(self, minimum: int, maximum: int, unit: str = "") -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.unit = unit
        self.expected = f"an integer from {minimum} to {maximum}" + (f" ({unit})" if unit else "")

    def accepts(self, value: object) -> bool:
        return type(value) is int and self.minimum <= value <= self.maximum


class Flag(Kind):
    """True or false."""

    expected = "true or false"

    def accepts(self, value: object) -> bool:
        return type(value) is bool


class Text(Kind):
    """A short line of text."""

    max_length = 256
    expected = f"a string of 1 to {max_length} characters without control characters"

    def accepts(self, value: object) -> bool:
        return type(value) is str and 0 < len(value) <= self.max_length and _is_printable(value)


class Choice(Kind):
    """One of a few words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.expected = "one of " + ", ".join(words)

    def accepts(self, value: object) -> bool:
        return type(value) is str and value in self.words


class KeyNames(Kind):
    """A tuple of names of keys."""

    expected = "a list of non-empty strings without control characters"

    def accepts(self, value: object) -> bool:
        return type(value) is tuple and all(
            type(name) is str and name != "" and _is_printable(name) for name in value
        )


class VariableName(Kind):
    """The name of an environment variable, or None; secret, lest somebody puts the token there."""

    is_secret = True
    expected = "the name of an environment variable (letters, digits and _, no digit first)"

    def accepts(self, value: object) -> bool:
        # An identifier of Python in ASCII is exactly a variable name of POSIX.
        return value is None or (type(value) is str and value.isascii() and value.isidentifier())


class Address(Kind):
    """Where something is: a word, or a URL of one of a few schemes; secret, it may hold a password.

    Args:
        words: what it may be besides a URL.
        schemes: those of the URLs.
    """

    is_secret = True

    def __init__(self, words: tuple[str, ...], schemes: tuple[str, ...]) -> None:
        self.words = words
        self.schemes = schemes
        urls = ", ".join(f"{scheme}:..." for scheme in schemes)
        self.expected = f"{', '.join(words)}, or {urls}"

    def accepts(self, value: object) -> bool:
        if type(value) is not str or not _is_printable(value):
            return False
        scheme, separator, rest = value.partition(":")
        return value in self.words or (scheme in self.schemes and separator != "" and rest != "")


class Section(Kind):
    """A group of settings, held by an instance of `cls`."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        self.expected = f"an instance of {cls.__name__}"

    def accepts(self, value: object) -> bool:
        return isinstance(value, self.cls)


def _is_printable(text: str) -> bool:
    # A lone surrogate, as an undecodable environment variable holds it, cannot be sent as UTF-8.
    return not any(c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff" for c in text)


def _setting(default: _Value, kind: Kind, meaning: str) -> _Value:
    return field(
        default=default, validator=kind, repr=not kind.is_secret, metadata={"meaning": meaning}
    )


def _flag(default: bool, meaning: str) -> bool:
    return _setting(default, Flag(), meaning)


def _milliseconds(default: int, meaning: str, *, minimum: int = 1) -> int:
    return _setting(default, Integer(minimum, 2**31 - 1, "milliseconds"), meaning)


def _bytes(default: int, meaning: str, *, minimum: int = 1) -> int:
    return _setting(default, Integer(minimum, 2**40, "bytes"), meaning)


def _section(default: _Value) -> _Value:
    # One default instance serves every configuration: it never changes.
    return field(default=default, validator=Section(type(default)))


@frozen
class ServerSection:
    """Who the server says it is, and how it ends."""

    name: str = _setting("foundation-rt", Text(), "Name of the server, told to clients.")
    version: str = _setting(__version__, Text(), "Version of the server, told to clients.")
    shutdown_timeout_ms: int = _milliseconds(
        10_000, "Longest time from the order to stop to the end of the process."
    )
    eof_grace_ms: int = _milliseconds(
        250, "How long running calls may still finish once input has ended.", minimum=0
    )


@frozen
class AdminPolicy:
    """Who may use the administrative tools."""

    mode: AdminMode = _setting(
        "deny_all",
        Choice(get_args(AdminMode)),
        "Who may use the administrative tools; `token` is reserved and refuses every call.",
    )
    token_env_var: str | None = _setting(
        None, VariableName(), "Environment variable that holds the token of mode `token`."
    )

    def __attrs_post_init__(self) -> None:
        if self.mode == "token" and self.token_env_var is None:
            raise SettingError("token_env_var", 'the name of a variable, because mode is "token"')


@frozen
class ToolsSection:
    """The limits of every tool call."""

    default_timeout_ms: int = _milliseconds(
        30_000, "Deadline of a call to a tool that states none."
    )
    max_payload_bytes: int = _bytes(1_048_576, "Largest arguments of a call, as JSON in UTF-8.")
    max_state_bytes: int = _bytes(262_144, "Largest state of an agent, as JSON in UTF-8.")
    max_response_bytes: int = _bytes(
        16 * 1024 * 1024, "Largest result of a call, as JSON in UTF-8."
    )
    cancel_grace_ms: int = _milliseconds(
        5_000, "How long an aborted async handler runs on before it is cancelled.", minimum=0
    )
    expose_error_details: bool = _flag(
        False, "Tell clients the text of unexpected exceptions; it is always logged."
    )
    admin_registration_enabled: bool = _flag(
        False,
        "One half of dynamic registration; the other is `security.dynamic_registration_enabled`.",
    )
    admin_policy: AdminPolicy = _section(AdminPolicy())


@frozen
class ResourcesSection:
    """How much may run at once."""

    max_concurrent_executions: int = _setting(
        10, Integer(1, 10_000), "How many calls may run at once, `health` not counted."
    )


@frozen
class LoggingSection:
    """What is written to stderr."""

    level: LogLevel = _setting(
        "info", Choice(get_args(LogLevel)), "Least severe level that is logged."
    )
    redact_keys: tuple[str, ...] = _setting(
        (), KeyNames(), "Keys whose values are redacted in logs, besides the built-in ones."
    )
    buffer_bytes: int = _bytes(
        4 * 1024 * 1024, "Most log text held while stderr is slow; what is beyond is dropped."
    )


@frozen
class SecuritySection:
    """What is off unless an operator turns it on."""

    dynamic_registration_enabled: bool = _flag(
        False, "One half of dynamic registration; the other is `tools.admin_registration_enabled`."
    )
    allow_arbitrary_code_tools: bool = _flag(False, "Reserved; has no effect.")


@frozen
class TransportSection:
    """The limits of the bytes that come in."""

    max_line_bytes: int = _bytes(
        16 * 1024 * 1024, "Longest incoming line; a longer one is discarded.", minimum=1024
    )


@frozen
class AgentsSection:
    """Messages to agents in the process."""

    max_queue: int = _setting(
        1_000, Integer(1, 1_000_000), "How many messages may wait for one agent."
    )


DEFAULT_AACP_NAME = "host"


@frozen
class AacpSection:
    """Delivery of messages between agents."""

    name: str = _setting(
        DEFAULT_AACP_NAME,
        Text(),
        "Who sends what no agent sends; unique among ledgers that a transport joins.",
    )
    store: str = _setting(
        "memory",
        Address(("memory",), ("sqlite", "postgresql")),
        "The ledger: `memory`, `sqlite:PATH` or `postgresql://...`.",
    )
    transport: str = _setting(
        "none",
        Address(("none",), ("nats",)),
        "The way to other ledgers: `none` or `nats://...`.",
    )
    default_ttl_ms: int = _milliseconds(
        86_400_000, "How long a message is kept unless it says otherwise."
    )
    request_timeout_ms: int = _milliseconds(
        30_000, "How long a request is waited for unless its sender says otherwise."
    )
    lease_ms: int = _milliseconds(
        30_000, "How long a claim to execute a request lasts unless it is renewed.", minimum=100
    )
    max_payload_bytes: int = _bytes(
        524_288, "Largest message between agents, and largest response, as JSON in UTF-8."
    )

    def is_ledger_named(self) -> bool:
        """Whether there is a ledger other than that in memory, or a way to one."""
        return self.store != "memory" or self.transport != "none"


@frozen
class ServerConfig:
    """The whole configuration of a server.

    Like every section it raises `SettingError`, a ValueError, for a value that its setting does
    not accept (CONF-01).
    """

    server: ServerSection = _section(ServerSection())
    tools: ToolsSection = _section(ToolsSection())
    resources: ResourcesSection = _section(ResourcesSection())
    logging: LoggingSection = _section(LoggingSection())
    security: SecuritySection = _section(SecuritySection())
    transport: TransportSection = _section(TransportSection())
    agents: AgentsSection = _section(AgentsSection())
    aacp: AacpSection = _section(AacpSection())

    def is_dynamic_registration_effective(self) -> bool:
        """Whether tools may be registered while the server runs: both halves say so (CONF-17)."""
        return self.tools.admin_registration_enabled and self.security.dynamic_registration_enabled


def needs_loading(environ: Mapping[str, str]) -> bool:
    """Whether `environ` sets anything, so that `config_loading` is to be imported (CONF-07)."""
    return any(map(is_setting_variable, environ))


def is_setting_variable(name: str) -> bool:
    """Whether an environment variable of this name is the configuration's, known or not."""
    return name.startswith(ENVIRONMENT_PREFIX) and "__" in name[len(ENVIRONMENT_PREFIX) :]
