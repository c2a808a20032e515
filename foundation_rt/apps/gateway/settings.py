"""The section `gateway` of the configuration."""

from __future__ import annotations

from attrs import frozen

from ...base.config.sections import Choice, Integer, Pattern, Settings, milliseconds, setting

SECTION = "gateway"

ALWAYS = "always"
NEVER = "never"
ALL = "all"
SEARCH = "search"

_PATH = Pattern(r"[^\x00]+", "a path", optional=True)


@frozen(eq=False, repr=False)
class GatewaySettings(Settings):
    """The gateway: how it shows the servers behind it."""

    prefix: str = setting(
        ALWAYS,
        Choice((ALWAYS, NEVER)),
        "Whether names of tools and prompts begin with the id of their server.",
    )
    expose: str = setting(
        ALL,
        Choice((ALL, SEARCH)),
        "`search` lists three tools instead of all: to search, to describe and to call.",
    )
    lock: str | None = setting(
        None, _PATH, "File with a hash of each definition; one that changes is withheld."
    )
    start_wait_ms: int = milliseconds(
        10_000, "How long lists wait for servers that are starting.", minimum=0
    )
    max_parked_calls: int = setting(
        100, Integer(1, 100_000), "Most calls of one principal that wait for its answers."
    )
