"""The sections of security, agents, tasks, and what operators see and limit; see `settings`."""

# ruff: noqa: RUF009 - the functions called in the classes make fields, not defaults.
from __future__ import annotations

from typing import Literal, get_args

from attrs import frozen

from .types import (
    FILE_PATH,
    POSTGRES_SCHEMES,
    REDIS_SCHEMES,
    STATE_KEY,
    Choice,
    Integer,
    Line,
    ListOf,
    Pattern,
    SettingError,
    Settings,
    StoreUrl,
    byte_count,
    flag,
    milliseconds,
    setting,
)

AuditCategory = Literal["SECURITY", "TOOL", "DATA", "ADMIN", "ERROR"]
SensitiveData = Literal["truncate", "redact", "full"]

TOOL_LIMIT = Pattern(
    "[A-Za-z0-9_./-]{1,256}=(0|[1-9][0-9]{0,5}|1000000)",
    "NAME=CALLS: the name of a tool, and 0 to 1000000 calls",
)
DEFAULT_AACP_NAME = "host"


@frozen(eq=False, repr=False)
class SecuritySection(Settings):
    """Features that are off by default, and the key of request states."""

    dynamic_registration_enabled: bool = flag(
        False, "One half of dynamic registration; the other is `tools.admin_registration_enabled`."
    )
    allow_arbitrary_code_tools: bool = flag(False, "Reserved; has no effect.")
    state_key: str | None = setting(
        None,
        STATE_KEY,
        "Key that seals the state of stateless calls, and ids; the same for all workers.",
    )


@frozen(eq=False, repr=False)
class AgentsSection(Settings):
    """Messages to agents in the process."""

    max_queue: int = setting(
        1_000, Integer(1, 1_000_000), "How many messages may wait for one agent."
    )


@frozen(eq=False, repr=False)
class AacpSection(Settings):
    """Delivery of messages between agents."""

    name: str = setting(
        DEFAULT_AACP_NAME,
        Line(),
        "Sender of messages that no agent sends; unique among the ledgers of a transport.",
    )
    store: str = setting(
        "memory",
        StoreUrl(("memory",), ("sqlite", *POSTGRES_SCHEMES)),
        "The ledger: `memory`, `sqlite:PATH` or `postgresql://...`.",
    )
    transport: str = setting(
        "none",
        StoreUrl(("none",), ("nats",)),
        "The transport to other ledgers: `none` or `nats://...`.",
    )
    default_ttl_ms: int = milliseconds(
        86_400_000, "How long a message is kept unless it says otherwise."
    )
    request_timeout_ms: int = milliseconds(
        30_000, "How long a sender waits for a response unless it sets another time."
    )
    lease_ms: int = milliseconds(
        30_000, "How long a claim to execute a request lasts unless it is renewed.", minimum=100
    )
    max_payload_bytes: int = byte_count(
        524_288, "Largest message between agents, and largest response, as JSON in UTF-8."
    )
    max_memory_records: int = setting(
        200_000, Integer(1, 2**31 - 1), "The most records that a ledger in memory holds."
    )
    max_memory_bytes: int = byte_count(
        256 * 1024 * 1024, "The most bytes that a ledger in memory holds, 1 KiB a record included."
    )

    def is_ledger_named(self) -> bool:
        """Return whether there is a ledger other than that in memory, or a transport to one."""
        return self.store != "memory" or self.transport != "none"


@frozen(eq=False, repr=False)
class TasksSection(Settings):
    """Calls that outlive their request: the extension `io.modelcontextprotocol/tasks`."""

    max_run_ms: int = milliseconds(
        1_800_000, "Deadline of a call that has become a task, from then on."
    )
    keep_ms: int = milliseconds(
        1_800_000, "How long a task is kept beyond that, so that its result can be fetched."
    )
    poll_interval_ms: int = milliseconds(1_000, "The interval at which clients should poll.")
    max_tasks: int = setting(1_000, Integer(1, 1_000_000), "Most tasks that are kept.")
    max_result_bytes: int = byte_count(
        64 * 1024 * 1024, "Most bytes that the results of all tasks have together."
    )


@frozen(eq=False, repr=False)
class RateLimitSection(Settings):
    """Limits of the calls of a client in a window of time."""

    store: str = setting(
        "memory",
        StoreUrl(("memory",), REDIS_SCHEMES),
        "Where calls are counted: `memory` (of one process) or `redis://...`.",
    )
    per_key: int = setting(
        0, Integer(0, 1_000_000), "Calls of one client in a window; 0 is no limit."
    )
    per_tool: int = setting(
        0, Integer(0, 1_000_000), "Calls of one client to one tool in a window; 0 is no limit."
    )
    tools: tuple[str, ...] = setting(
        (), ListOf(TOOL_LIMIT), "Limits of single tools, each `NAME=CALLS`, instead of `per_tool`."
    )
    window_ms: int = milliseconds(60_000, "Length of the window.")

    def __attrs_post_init__(self) -> None:
        if len(self.calls_by_tool()) < len(self.tools):
            raise SettingError("tools", "each tool once")

    def calls_by_tool(self) -> dict[str, int]:
        """Return the limits of single tools, by name; 0 is no limit."""
        pairs = (each.rpartition("=") for each in self.tools)
        return {name: int(calls) for name, _, calls in pairs}

    def is_set(self) -> bool:
        """Return whether there is any limit."""
        return self.per_key > 0 or self.per_tool > 0 or any(self.calls_by_tool().values())


@frozen(eq=False, repr=False)
class AuditSection(Settings):
    """The audit log."""

    enabled: bool = flag(False, "Write audit records.")
    categories: tuple[AuditCategory, ...] = setting(
        get_args(AuditCategory),
        ListOf(Choice(get_args(AuditCategory))),
        "The categories that are recorded.",
    )
    sensitive_data: SensitiveData = setting(
        "truncate", Choice(get_args(SensitiveData)), "How arguments are shown."
    )
    file: str | None = setting(
        None, FILE_PATH, "File of the records, as JSON lines; by default they are in the log."
    )


@frozen(eq=False, repr=False)
class TelemetrySection(Settings):
    """Metrics and traces."""

    metrics: bool = flag(False, "Count for Prometheus, at `/metrics` (extra `metrics`).")
    otel_metrics: bool = flag(False, "Record metrics with OpenTelemetry (extra `otel`).")
    tracing: bool = flag(False, "Make OpenTelemetry spans (extra `otel`).")
