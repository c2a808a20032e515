"""The settings of an operator: the sections of the configuration, their defaults and limits.

Each setting is one statement with all its facts: type, default, limits, meaning. The file loader
and the environment variables read it; the published JSON Schema and the table in spec/config.md
are generated from it. So a setting is added here and nowhere else.

The rest of the runtime relies on two invariants: a configuration that exists is valid, however it
was made (CONF-01), and it never changes. Hence no other module checks a limit again.

A start with defaults imports this module, `config.types` and `config.sources`. `config.loading`
reads files and environment variables; it costs several times as much, and is imported only for a
file or if `needs_loading` returns True.
"""

# ruff: noqa: RUF009 - the functions called in the classes make fields, not defaults.
from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from attrs import astuple, fields, frozen

from ...version import __version__
from .types import (
    KEY_NAME,
    NOT_GIVEN,
    REDIS_SCHEMES,
    SCOPE,
    Choice,
    DeferredSection,
    Integer,
    Line,
    ListOf,
    Pattern,
    SettingError,
    Settings,
    StoreUrl,
    VariableName,
    byte_count,
    deferred,
    flag,
    group,
    milliseconds,
    setting,
)

if TYPE_CHECKING:
    from .feature_sections import (
        AacpSection,
        AgentsSection,
        AuditSection,
        RateLimitSection,
        SecuritySection,
        TasksSection,
        TelemetrySection,
    )
    from .http_sections import AuthorizationSection, HttpSection, OauthSection

ENVIRONMENT_PREFIX = "FOUNDATION_RT_"
"""The prefix of every environment variable of the runtime (CONF-07)."""

AdminMode = Literal["deny_all", "local_stdio_only", "scopes", "token"]
LogLevel = Literal["debug", "info", "warn", "error"]
CacheScope = Literal["private", "public"]

TOOL_NAME = Pattern("[A-Za-z0-9_./-]{1,256}", "the name of a tool")
_PLACES: dict[str, tuple[str, ...]] = {
    "nats": ("nats://",),
    "postgres": ("postgresql:", "postgres:"),
    "redis": ("redis://", "rediss://"),
}
"""The beginnings of the addresses that need an extra."""

_Section = TypeVar("_Section", bound="Settings")


@frozen(eq=False, repr=False)
class ServerSection(Settings):
    """The identity of the server, its lists and its shutdown."""

    name: str = setting("foundation-rt", Line(), "Name of the server, as clients see it.")
    version: str = setting(__version__, Line(), "Version of the server, as clients see it.")
    shutdown_timeout_ms: int = milliseconds(
        10_000, "Longest time from the start of the shutdown to the end of the process."
    )
    eof_grace_ms: int = milliseconds(
        250, "How long running calls may go on after the input has ended.", minimum=0
    )
    page_size: int = setting(1_000, Integer(1, 100_000), "Most entries of one page of a list.")
    cache_ttl_ms: int = milliseconds(
        0, "How long clients may cache lists, and resources without a time of their own.", minimum=0
    )
    cache_scope: CacheScope = setting(
        "private",
        Choice(get_args(CacheScope)),
        "Whether caches may share lists and resources among users.",
    )
    input_ttl_ms: int = milliseconds(
        600_000,
        "How long the server waits for a client's response, and accepts a stateless call's state.",
    )
    session_state_store: str = setting(
        "memory",
        StoreUrl(("memory",), REDIS_SCHEMES),
        "Where handlers' session state over HTTP is kept: `memory` (of one process) or"
        " `redis://...`.",
    )
    session_state_bytes: int = setting(
        65_536,
        Integer(1_024, 16_777_216),
        "Most bytes (JSON) that handlers keep for one session, or for one stateless principal.",
    )
    session_states: int = setting(
        10_000, Integer(1, 1_000_000), "Most stateless principals that handlers keep a state for."
    )
    session_state_idle_ms: int = milliseconds(
        3_600_000, "How long an unused state of a stateless principal is kept."
    )


@frozen(eq=False, repr=False)
class AdminPolicy(Settings):
    """Access to the administrative tools."""

    mode: AdminMode = setting(
        "deny_all",
        Choice(get_args(AdminMode)),
        "Access to the administrative tools; `token` is reserved and refuses every call.",
    )
    scopes: tuple[str, ...] = setting(
        (), ListOf(SCOPE), "Scopes that a token needs for them in mode `scopes`."
    )
    token_env_var: str | None = setting(
        None, VariableName(), "Environment variable that holds the token of mode `token`."
    )

    def __attrs_post_init__(self) -> None:
        if self.mode == "scopes" and not self.scopes:
            raise SettingError("scopes", 'at least one scope, because mode is "scopes"')
        if self.mode == "token" and self.token_env_var is None:
            raise SettingError("token_env_var", 'the name of a variable, because mode is "token"')


@frozen(eq=False, repr=False)
class ToolsSection(Settings):
    """The limits of every tool call."""

    default_timeout_ms: int = milliseconds(30_000, "Deadline of a call to a tool that states none.")
    max_payload_bytes: int = byte_count(1_048_576, "Largest arguments of a call, as JSON in UTF-8.")
    max_state_bytes: int = byte_count(262_144, "Largest state of an agent, as JSON in UTF-8.")
    max_response_bytes: int = byte_count(
        16 * 1024 * 1024, "Largest result of a call, as JSON in UTF-8."
    )
    cancel_grace_ms: int = milliseconds(
        5_000, "How long an aborted async handler runs on before it is cancelled.", minimum=0
    )
    expose_error_details: bool = flag(
        False, "Send clients the text of unexpected exceptions; it is always logged."
    )
    check_formats: bool = flag(
        True, "Refuse arguments and results that do not fit a `format` in the schema of their tool."
    )
    admin_registration_enabled: bool = flag(
        False,
        "One half of dynamic registration; the other is `security.dynamic_registration_enabled`.",
    )
    admin_agents_enabled: bool = flag(
        False, "Offer tools that list, cancel, requeue and purge the requests of agents."
    )
    admin_policy: AdminPolicy = group(AdminPolicy())

    def admin_scopes(self) -> tuple[str, ...]:
        """Return the scopes that the principal of an administrative call needs (ADMIN-12)."""
        return self.admin_policy.scopes if self.admin_policy.mode == "scopes" else ()

    name_separator: str = setting(
        "/",
        Choice(("/", "_", "__", "-", ".")),
        "Separator that replaces `/` in names of tools, for clients that refuse it.",
    )
    expose: str = setting("all", Choice(("all", "search")), "`search` lists three tools, not all.")
    pinned: tuple[str, ...] = setting((), ListOf(TOOL_NAME), "Tools that `search` lists besides.")


@frozen(eq=False, repr=False)
class ResourcesSection(Settings):
    """Limits of what runs at the same time."""

    max_concurrent_executions: int = setting(
        10, Integer(1, 10_000), "How many calls may run at once, `health` not counted."
    )
    max_server_requests: int = setting(
        1_000, Integer(1, 1_000_000), "Most requests to clients that are open at once."
    )
    max_subscriptions: int = setting(
        20_000,
        Integer(1, 1_000_000),
        "Most subscriptions at once: resources, tasks and open `subscriptions/listen`.",
    )
    principal_share_percent: int = setting(
        25,
        Integer(1, 100, "percent"),
        "Share of each limit that one principal may use, where there can be several.",
    )


@frozen(eq=False, repr=False)
class LoggingSection(Settings):
    """The log on stderr."""

    level: LogLevel = setting(
        "info", Choice(get_args(LogLevel)), "Least severe level that is logged."
    )
    redact_keys: tuple[str, ...] = setting(
        (), ListOf(KEY_NAME), "Keys whose values are redacted in logs, besides the built-in ones."
    )
    buffer_bytes: int = byte_count(
        4 * 1024 * 1024, "Most log text held while stderr is slow; the rest is dropped."
    )


@frozen(eq=False, repr=False)
class TransportSection(Settings):
    """The limits of input."""

    max_line_bytes: int = byte_count(
        16 * 1024 * 1024, "Longest incoming line; a longer one is discarded.", minimum=1024
    )


@frozen(eq=False, repr=False, slots=False, getstate_setstate=True)
class ServerConfig(Settings):
    """The whole configuration of a server.

    Like every section it raises `SettingError`, a ValueError, for a value that its setting does
    not accept (CONF-01).
    """

    server: ServerSection = group(ServerSection())
    tools: ToolsSection = group(ToolsSection())
    resources: ResourcesSection = group(ResourcesSection())
    logging: LoggingSection = group(LoggingSection())
    security: SecuritySection = deferred("feature_sections", "SecuritySection")
    transport: TransportSection = group(TransportSection())
    agents: AgentsSection = deferred("feature_sections", "AgentsSection")
    aacp: AacpSection = deferred("feature_sections", "AacpSection")
    tasks: TasksSection = deferred("feature_sections", "TasksSection")
    http: HttpSection = deferred("http_sections", "HttpSection")
    oauth: OauthSection = deferred("http_sections", "OauthSection")
    authorization: AuthorizationSection = deferred("http_sections", "AuthorizationSection")
    rate_limit: RateLimitSection = deferred("feature_sections", "RateLimitSection")
    audit: AuditSection = deferred("feature_sections", "AuditSection")
    telemetry: TelemetrySection = deferred("feature_sections", "TelemetrySection")

    def __attrs_post_init__(self) -> None:
        for name in [name for name, section in vars(self).items() if section is NOT_GIVEN]:
            del vars(self)[name]  # what is read instead is the `DeferredSection` of the class

    def is_given(self, *sections: str) -> bool:
        """Return whether any of these sections was given, or has been read: else none is made."""
        return not vars(self).keys().isdisjoint(sections)

    def section(self, cls: type[_Section]) -> _Section:
        """Return the section of that class, one of an application for instance (CONF-26).

        Raises:
            UsageError: the configuration has no such section.
        """
        sections = (getattr(self, each.name) for each in fields(type(self)))
        for found in chain([*vars(self).values()], sections):
            if type(found) is cls:
                return found
        from ...errors import UsageError  # this module is imported without it (CONF-21)

        raise UsageError(f"no section is a {cls.__name__}: name it in Server(sections=...)")

    def is_operated(self) -> bool:
        """Return whether calls are limited, audited, counted or traced."""
        return self.is_given("audit", "telemetry", "rate_limit") and (
            self.audit.enabled
            or self.telemetry.metrics
            or self.telemetry.otel_metrics
            or self.telemetry.tracing
            or self.rate_limit.is_set()
        )

    def extras(self) -> tuple[str, ...]:
        """Return the extras that these settings need besides that of HTTP (ERR-11)."""
        sections = (getattr(self, each.name) for each in fields(type(self)))
        texts = tuple(one for each in sections for one in astuple(each) if type(one) is str)
        needs = {
            extra: any(text.startswith(beginnings) for text in texts)
            for extra, beginnings in _PLACES.items()
        }
        needs |= {
            "http-full": self.has_issuer()
            or bool(self.http.cors_origins or self.rate_limit.is_set()),
            "metrics": self.telemetry.metrics,
            "otel": self.telemetry.tracing or self.telemetry.otel_metrics,
        }
        needs["client"] = self.authorization.url is not None
        return tuple(extra for extra, is_needed in needs.items() if is_needed)

    def has_issuer(self) -> bool:
        """Return whether tokens are accepted: of an issuer, or of this server itself."""
        return self.is_given("oauth", "authorization") and (
            self.oauth.issuer is not None or self.authorization.url is not None
        )

    def has_shares(self) -> bool:
        """Return whether several principals can connect: two API keys, or an issuer (RES-12)."""
        return (self.is_given("http") and len(self.http.api_keys) > 1) or self.has_issuer()

    def share_of(self, limit: int, identity: str | None) -> int:
        """Return how much of `limit` one principal may use: a share of it, or all (RES-12).

        Args:
            limit: a limit of the process, in its own unit; at least 1.
            identity: the principal's `identity_of`; None where the peer has none.

        Returns:
            At least 1, and at most `limit`.
        """
        if identity is None or not self.has_shares():
            return limit
        return -(-limit * self.resources.principal_share_percent // 100)  # rounded up

    def has_ledger(self) -> bool:
        """Return whether the operator names a ledger of agents, or a transport to one."""
        return self.is_given("aacp") and self.aacp.is_ledger_named()

    def is_dynamic_registration_effective(self) -> bool:
        """Return whether clients may register tools: both settings are on (CONF-17)."""
        return self.tools.admin_registration_enabled and self.security.dynamic_registration_enabled


for _each in fields(ServerConfig):
    if isinstance(_each.validator, DeferredSection):
        _each.validator.join(ServerConfig, _each.name)


def needs_loading(environ: Mapping[str, str]) -> bool:
    """Return whether `environ` sets anything, so that `config.loading` is needed (CONF-07)."""
    return any(map(is_setting_variable, environ))


def is_setting_variable(name: str) -> bool:
    """Return whether a variable of this name is one of the configuration, known or not."""
    return name.startswith(ENVIRONMENT_PREFIX) and "__" in name[len(ENVIRONMENT_PREFIX) :]
