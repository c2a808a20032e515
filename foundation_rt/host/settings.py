"""The section `host` of the configuration."""

from __future__ import annotations

import re

from attrs import frozen

from ..config.sections import (
    POSTGRES_SCHEMES,
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

SECTION = "host"

MEMORY = "memory"
DEFAULT_SERVERS = "mcp.json"
DEFAULT_PORT = 3000

_PATH = Pattern(r"[^\x00]{1,4095}", "the path of a file", optional=True)
_URL = Pattern(r"https?://[^\s/]+[^\s]*", "an http:// or https:// URL", optional=True)
_WORDS = Pattern(r"[^\s]{1,256}", "a name without spaces", optional=True)
_FOLDER = Pattern(r"/.*", "an absolute path")
_MAX_PROMPT = 32_768
_NUMBER = re.compile(r"[0-9](\.[0-9]{1,6})?")


class LongText(Kind):
    """A text of any number of lines, or None."""

    expected = f"a text of 1 to {_MAX_PROMPT} characters"

    def accepts(self, value: object) -> bool:
        """Return whether it is such a text."""
        return value is None or (type(value) is str and 0 < len(value.strip()) <= _MAX_PROMPT)


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
        _WORDS,
        "Provider of the model: `gemini`, `anthropic`, `openai`, `rules`, `script`; by default the"
        " first of the first three whose key is there, else `rules`.",
    )
    model: str | None = setting(
        None, _PATH, "Name of the model; by default the provider's, or the only one it lists."
    )
    base_url: str | None = setting(
        None, _URL, "URL of a server that speaks the provider's protocol, a local one for instance."
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
    tool_timeout_ms: int = milliseconds(60_000, "How long a call of a tool may take.")
    approve_all: bool = flag(False, "Call tools without asking a person.")
    roots: tuple[str, ...] = setting((), ListOf(_FOLDER), "Folders that servers are told of.")
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
    heartbeat_ms: int = milliseconds(
        30_000, "How often a quiet connection gets a sign of life.", minimum=100
    )
    silence_ms: int = milliseconds(
        65_000, "How long a client may be silent before its connection is closed.", minimum=200
    )

    @property
    def temperature_value(self) -> float | None:
        """The temperature as a number."""
        return None if self.temperature is None else float(self.temperature)
