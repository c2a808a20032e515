"""The section `host` of the configuration."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from attrs import frozen

from ...base.config.sections import (
    POSTGRES_SCHEMES,
    AbsolutePath,
    Choice,
    Integer,
    Kind,
    ListOf,
    Pattern,
    Settings,
    StoreUrl,
    flag,
    milliseconds,
    setting,
)
from .llm.providers import PROVIDERS, provider_problem

SECTION = "host"

MEMORY = "memory"
DEFAULT_SERVERS = "mcp.json"
DEFAULT_PORT = 3000

_PATH = Pattern(r"[^\x00]{1,4095}", "the path of a file", optional=True)
_MAX_PROMPT = 32_768
_NUMBER = re.compile(r"[0-9](\.[0-9]{1,6})?")


class HttpUrl(Pattern):
    """An http:// or https:// URL with a host, or None."""

    def __init__(self) -> None:
        super().__init__(r"https?://[^\s/]+[^\s]*", "an http:// or https:// URL", optional=True)

    def accepts(self, value: object) -> bool:
        """Return whether it is such a URL."""
        try:
            parts = urlsplit(str(value))
            is_whole = value is None or bool(parts.hostname and (parts.port is None or parts.port))
        except ValueError:  # the port is none, or a bracket is missing
            return False
        return is_whole and super().accepts(value)


BASE_URL = HttpUrl()


class LongText(Kind):
    """A text of any number of lines, or None."""

    expected = f"a text of 1 to {_MAX_PROMPT} characters"

    def accepts(self, value: object) -> bool:
        """Return whether it is such a text."""
        return value is None or (type(value) is str and 0 < len(value.strip()) <= _MAX_PROMPT)


class ProviderName(Pattern):
    """The name of a provider that is there, or None."""

    def __init__(self) -> None:
        known = f"one of {', '.join(PROVIDERS)}, or one that a package adds"
        super().__init__(r"[A-Za-z0-9_.-]{1,64}", known, optional=True)

    def accepts(self, value: object) -> bool:
        """Return whether there is such a provider."""
        is_there = value is None or provider_problem(str(value)) is None
        return is_there and super().accepts(value)


class Temperature(Kind):
    """A number from 0 to 2, as such or as text, or None."""

    expected = "a number from 0 to 2, such as 0.7"

    def accepts(self, value: object) -> bool:
        """Return whether it is such a number."""
        if type(value) is str:
            value = float(value) if _NUMBER.fullmatch(value) else None
            return value is not None and value <= 2
        return value is None or (type(value) in (int, float) and 0 <= value <= 2)  # type: ignore[operator]


@frozen(eq=False, repr=False)
class HostSettings(Settings):
    """The chat host: its model, its servers, its chats."""

    provider: str | None = setting(
        None,
        ProviderName(),
        "Provider of the model; by default the first of `gemini`, `anthropic`, `openai` whose key"
        " is there, else `rules`.",
    )
    model: str | None = setting(
        None, _PATH, "Name of the model; by default the provider's, or the only one it lists."
    )
    base_url: str | None = setting(
        None,
        BASE_URL,
        "URL of a server that speaks the provider's protocol, a local one for instance.",
    )
    tool_mode: str = setting(
        "native",
        Choice(("native", "text")),
        "`text` writes calls of tools as text, for models without function calls.",
    )
    system_prompt: str | None = setting(None, LongText(), "What the model is told first.")
    temperature: float | str | None = setting(
        None, Temperature(), "Temperature of the model; by default the provider's."
    )
    max_token_count: int = setting(
        32_768, Integer(1_024, 10_000_000), "Most tokens of a request to the model."
    )
    summarization_threshold: int = setting(
        0,
        Integer(0, 10_000_000),
        "Tokens of a chat from which on its older part is summarised; 0 is never.",
    )
    servers: str | None = setting(
        None, _PATH, "File that lists the servers; by default ./mcp.json."
    )
    first_token_timeout_ms: int = milliseconds(
        60_000, "How long the model may take to begin an answer."
    )
    retry_attempts: int = setting(
        3, Integer(0, 20), "How often a request to the model that failed is tried again."
    )
    retry_delay_ms: int = milliseconds(
        1_000, "How long to wait before the first of them; doubled with each.", minimum=0
    )
    circuit_failures: int = setting(
        5,
        Integer(1, 1_000),
        "Failures after which a tool, or its server, is not called for a while; an entry's"
        " `circuitFailures` and the like win over these.",
    )
    circuit_window_ms: int = milliseconds(60_000, "Age up to which such a failure counts.")
    circuit_open_ms: int = milliseconds(60_000, "How long it is not called then.")
    max_rounds: int = setting(
        10, Integer(1, 1_000), "Most answers of the model in a turn whose calls of tools run."
    )
    max_repeats: int = setting(
        10,
        Integer(2, 1_000),
        "How often in a turn one call may have one result; then no tool can be called any more.",
    )
    turn_timeout_ms: int = milliseconds(
        600_000, "How long a turn may take; to wait for people does not count."
    )
    approval_timeout_ms: int = milliseconds(
        300_000, "How long an approval, or a question of a server, waits for people."
    )
    tool_timeout_ms: int = milliseconds(60_000, "How long a call of a tool may take.")
    approve_all: bool = flag(False, "Call tools without asking a person.")
    roots: tuple[str, ...] = setting(
        (), ListOf(AbsolutePath()), "Folders that servers are told of."
    )
    store: str = setting(
        MEMORY,
        StoreUrl((MEMORY,), ("sqlite", *POSTGRES_SCHEMES)),
        "Where chats are kept: `memory`, `sqlite:FILE` or `postgresql://...`.",
    )
    keep_chats_days: int = setting(
        0,
        Integer(0, 36_500),
        "Days after which a chat in a database that nobody has used is deleted; 0 is never.",
    )
    silence_ms: int = milliseconds(
        65_000, "How long a client may be silent before its connection is closed.", minimum=200
    )

    @property
    def temperature_value(self) -> float | None:
        """The temperature as a number."""
        return None if self.temperature is None else float(self.temperature)
