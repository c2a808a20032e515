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
from typing import Literal, TypeVar, get_args

from attrs import astuple, field, fields, frozen

from ...version import __version__
from .types import (
    ADDRESS_RANGE,
    ALLOWED,
    API_KEY,
    CLIENT_ID,
    CLIENT_SECRET,
    FILE_PATH,
    HEADER_NAME,
    HOST_NAME,
    HTTP_PATH,
    ISSUER_URL,
    KEY_NAME,
    ORIGIN,
    PARAMETER,
    POSTGRES_SCHEMES,
    PROVIDER,
    REDIRECT_URI,
    REDIS_SCHEMES,
    RESOURCE_URL,
    SCOPE,
    STATE_KEY,
    TENANT,
    TOOL_LIMIT,
    WORKER_ADDRESS,
    Choice,
    Flag,
    Integer,
    Kind,
    Line,
    ListOf,
    Section,
    SettingError,
    StoreUrl,
    VariableName,
)

ENVIRONMENT_PREFIX = "FOUNDATION_RT_"
"""The prefix of every environment variable of the runtime (CONF-07)."""

AdminMode = Literal["deny_all", "local_stdio_only", "scopes", "token"]
LogLevel = Literal["debug", "info", "warn", "error"]
CacheScope = Literal["private", "public"]
AuditCategory = Literal["SECURITY", "TOOL", "DATA", "ADMIN", "ERROR"]
SensitiveData = Literal["truncate", "redact", "full"]

_Value = TypeVar("_Value")
_PLACES: dict[str, tuple[str, ...]] = {
    "nats": ("nats://",),
    "postgres": ("postgresql:", "postgres:"),
    "redis": ("redis://", "rediss://"),
}
"""The beginnings of the addresses that need an extra."""

_Section = TypeVar("_Section", bound="Settings")


def setting(default: _Value, kind: Kind, meaning: str) -> _Value:
    """Define a setting: an attribute of a section (CONF-01).

    Args:
        default: a value that `kind` accepts.
        kind: the type of the setting; where it `is_secret`, the value is never shown (CONF-05).
        meaning: one sentence for the operator.
    """
    return field(
        default=default, validator=kind, repr=not kind.is_secret, metadata={"meaning": meaning}
    )


def flag(default: bool, meaning: str) -> bool:
    """Define a setting that is true or false."""
    return setting(default, Flag(), meaning)


def milliseconds(default: int, meaning: str, *, minimum: int = 1) -> int:
    """Define a time from `minimum` to 2**31 - 1, in milliseconds."""
    return setting(default, Integer(minimum, 2**31 - 1, "milliseconds"), meaning)


def byte_count(default: int, meaning: str, *, minimum: int = 1) -> int:
    """Define a size from `minimum` to 2**40, in bytes."""
    return setting(default, Integer(minimum, 2**40, "bytes"), meaning)


def group(default: _Value) -> _Value:
    """Define a table of settings within a section; `default` is an instance of its class."""
    # One default instance serves every configuration: it never changes.
    return field(default=default, validator=Section(type(default)))


@frozen(eq=False, repr=False)
class Settings:
    """The base of all sections, also of those of applications (CONF-24).

    A section is a frozen attrs class; `setting` and `group` make its attributes. Sections are
    compared by value, and their representation has no secret.

    Raises:
        SettingError: a ValueError: a setting does not accept its value.
    """

    # attrs would generate these for each section: a third of the import of this module.

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and astuple(self, recurse=False) == astuple(
            other, recurse=False
        )

    def __hash__(self) -> int:
        return hash(astuple(self, recurse=False))

    def __repr__(self) -> str:
        shown = (each.name for each in fields(type(self)) if each.repr)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({values})"


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
class TransportSection(Settings):
    """The limits of input."""

    max_line_bytes: int = byte_count(
        16 * 1024 * 1024, "Longest incoming line; a longer one is discarded.", minimum=1024
    )


@frozen(eq=False, repr=False)
class AgentsSection(Settings):
    """Messages to agents in the process."""

    max_queue: int = setting(
        1_000, Integer(1, 1_000_000), "How many messages may wait for one agent."
    )


DEFAULT_AACP_NAME = "host"

SIGNATURE_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""The algorithms of tokens; none of them needs a secret that the server would have to share."""


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
class HttpSection(Settings):
    """The HTTP transport, and access to it."""

    host: str = setting("127.0.0.1", Line(), "Address that is listened on.")
    port: int = setting(8000, Integer(0, 65_535), "Port; 0 takes any that is free.")
    path: str = setting("/mcp", HTTP_PATH, "Path of the endpoint.")
    allowed_hosts: tuple[str, ...] = setting(
        (), ListOf(HOST_NAME), "Values of `Host` besides those of the bound address; `*` is any."
    )
    allowed_origins: tuple[str, ...] = setting(
        (), ListOf(ORIGIN), "Values of `Origin` besides those of this machine; `*` is any."
    )
    cors_origins: tuple[str, ...] = setting(
        (), ListOf(ORIGIN), "Origins whose pages may use the server from a browser; `*` is any."
    )
    api_keys: tuple[str, ...] = setting(
        (), ListOf(API_KEY), "API keys of clients, each `KEY`, `NAME:KEY` or `NAME:KEY:SCOPES`."
    )
    trusted_proxies: tuple[str, ...] = setting(
        (), ListOf(ADDRESS_RANGE), "Addresses of proxies whose `X-Forwarded-Proto` is believed."
    )
    no_auth: bool = flag(False, "Serve every client: neither a key nor a token is needed.")
    request_headers: tuple[str, ...] = setting(
        (), ListOf(HEADER_NAME), "Request headers that handlers get, by name."
    )
    max_body_bytes: int = byte_count(4 * 1024 * 1024, "Largest body of a request.", minimum=1024)
    header_timeout_ms: int = milliseconds(
        10_000, "Longest time until the head of a request has come."
    )
    body_timeout_ms: int = milliseconds(
        30_000, "Longest time until the body of a request has come."
    )
    keep_alive_ms: int = milliseconds(
        15_000, "Idle time after which a stream carries a comment, so that no proxy cuts it."
    )
    session_idle_ms: int = milliseconds(1_800_000, "How long an idle session is kept.")
    max_sessions: int = setting(10_000, Integer(1, 1_000_000), "Most sessions at once.")
    max_connections: int = setting(20_000, Integer(1, 1_000_000), "Most connections at once.")
    max_unread_bytes: int = byte_count(
        64 * 1024 * 1024,
        "Most unread bytes of responses, of all connections together.",
        minimum=1024 * 1024,
    )
    event_store: str = setting(
        "memory",
        StoreUrl(("memory",), REDIS_SCHEMES),
        "Store of the messages of streams, so that clients can resume: `memory` or `redis://...`.",
    )
    worker_address: str | None = setting(
        None,
        WORKER_ADDRESS,
        "Private address, `HOST` or `HOST:PORT`, at which the workers of other hosts reach this"
        " one; each further worker has the next port.",
    )
    max_events: int = setting(
        1_000, Integer(1, 1_000_000), "Most messages of one session that are kept."
    )
    event_ttl_ms: int = milliseconds(300_000, "How long a message is kept.")
    retry_ms: int = milliseconds(
        1_000, "When a client should reconnect after its stream has ended.", minimum=0
    )
    server_request_grace_ms: int = milliseconds(
        60_000,
        "How long, beyond `http.retry_ms`, a request waits for a client without a connection.",
    )


@frozen(eq=False, repr=False)
class OauthSection(Settings):
    """The server as a resource server of OAuth 2.1."""

    issuer: str | None = setting(
        None, ISSUER_URL, "The authorization server whose tokens are accepted."
    )
    audience: str | None = setting(
        None, RESOURCE_URL, "The URL of this server, as tokens have to name it."
    )
    jwks_uri: str | None = setting(
        None, ISSUER_URL, "URL of the issuer's keys, if it is not that of its metadata."
    )
    scopes: tuple[str, ...] = setting((), ListOf(SCOPE), "Scopes that every token needs.")
    algorithms: tuple[str, ...] = setting(
        ("RS256", "ES256"),
        ListOf(Choice(SIGNATURE_ALGORITHMS)),
        "Algorithms that a token may be signed with.",
    )
    introspection_uri: str | None = setting(
        None, ISSUER_URL, "URL at which the issuer is asked about every token, instead of its keys."
    )
    introspection_client_id: str | None = setting(
        None, CLIENT_ID, "Client as which this server asks there."
    )
    introspection_client_secret: str | None = setting(None, CLIENT_SECRET, "Secret of that client.")


@frozen(eq=False, repr=False)
class AuthorizationSection(Settings):
    """The server as an authorization server, before an identity provider."""

    url: str | None = setting(
        None, ISSUER_URL, "Public URL below which the server is reached; the issuer of its tokens."
    )
    provider: str | None = setting(
        None, PROVIDER, "Where people log in: `github`, `google`, `entra`, `oidc` or `oauth`."
    )
    provider_url: str | None = setting(
        None, ISSUER_URL, "The issuer, for `oidc` and `oauth`; of an own GitHub, its address."
    )
    tenant: str | None = setting(None, TENANT, "The directory (tenant id), for `entra`.")
    provider_scopes: tuple[str, ...] = setting(
        (), ListOf(SCOPE), "Scopes asked of the provider, instead of those that a login needs."
    )
    provider_parameters: tuple[str, ...] = setting(
        (), ListOf(PARAMETER), "Further parameters of the provider's page, each `NAME=VALUE`."
    )
    client_id: str | None = setting(None, CLIENT_ID, "This server as a client of the provider.")
    client_secret: str | None = setting(None, CLIENT_SECRET, "Secret of that client.")
    client_key_file: str | None = setting(
        None, FILE_PATH, "File of its private key (PEM), instead of a secret."
    )
    allow: tuple[str, ...] = setting(
        (),
        ListOf(ALLOWED),
        "Who may use the server: `sub:ID`, verified emails, `@DOMAIN`, `org:NAME`, `*`.",
    )
    redirect_uris: tuple[str, ...] = setting(
        ("loopback",), ListOf(REDIRECT_URI), "Where clients may be: `loopback`, or URLs."
    )
    store: str = setting(
        "memory",
        StoreUrl(("memory",), ("sqlite", *REDIS_SCHEMES)),
        "Where logins are kept: `memory`, `sqlite:PATH` or `redis://...`.",
    )
    access_ttl_ms: int = milliseconds(900_000, "How long an access token lasts.", minimum=60_000)
    refresh_ttl_ms: int = setting(
        2_592_000_000,
        Integer(60_000, 31_536_000_000, "milliseconds"),
        "How long a login lasts that no client uses.",
    )
    keep_provider_tokens: bool = flag(
        False, "Keep the provider's tokens for `await ctx.provider_token()`."
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


@frozen(eq=False, repr=False)
class ServerConfig(Settings):
    """The whole configuration of a server.

    Like every section it raises `SettingError`, a ValueError, for a value that its setting does
    not accept (CONF-01).
    """

    server: ServerSection = group(ServerSection())
    tools: ToolsSection = group(ToolsSection())
    resources: ResourcesSection = group(ResourcesSection())
    logging: LoggingSection = group(LoggingSection())
    security: SecuritySection = group(SecuritySection())
    transport: TransportSection = group(TransportSection())
    agents: AgentsSection = group(AgentsSection())
    aacp: AacpSection = group(AacpSection())
    tasks: TasksSection = group(TasksSection())
    http: HttpSection = group(HttpSection())
    oauth: OauthSection = group(OauthSection())
    authorization: AuthorizationSection = group(AuthorizationSection())
    rate_limit: RateLimitSection = group(RateLimitSection())
    audit: AuditSection = group(AuditSection())
    telemetry: TelemetrySection = group(TelemetrySection())

    def section(self, cls: type[_Section]) -> _Section:
        """Return the section of that class, one of an application for instance (CONF-26).

        Raises:
            UsageError: the configuration has no such section.
        """
        for each in fields(type(self)):
            found = getattr(self, each.name)
            if type(found) is cls:
                return found
        from ...errors import UsageError  # this module is imported without it (CONF-21)

        raise UsageError(f"no section is a {cls.__name__}: name it in Server(sections=...)")

    def is_operated(self) -> bool:
        """Return whether calls are limited, audited, counted or traced."""
        return (
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
            "metrics": self.telemetry.metrics,
            "otel": self.telemetry.tracing or self.telemetry.otel_metrics,
        }
        needs["client"] = self.authorization.url is not None
        return tuple(extra for extra, is_needed in needs.items() if is_needed)

    def has_issuer(self) -> bool:
        """Return whether tokens are accepted: of an issuer, or of this server itself."""
        return self.oauth.issuer is not None or self.authorization.url is not None

    def has_shares(self) -> bool:
        """Return whether several principals can connect: two API keys, or an issuer (RES-12)."""
        return len(self.http.api_keys) > 1 or self.has_issuer()

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

    def is_dynamic_registration_effective(self) -> bool:
        """Return whether clients may register tools: both settings are on (CONF-17)."""
        return self.tools.admin_registration_enabled and self.security.dynamic_registration_enabled


def needs_loading(environ: Mapping[str, str]) -> bool:
    """Return whether `environ` sets anything, so that `config.loading` is needed (CONF-07)."""
    return any(map(is_setting_variable, environ))


def is_setting_variable(name: str) -> bool:
    """Return whether a variable of this name is one of the configuration, known or not."""
    return name.startswith(ENVIRONMENT_PREFIX) and "__" in name[len(ENVIRONMENT_PREFIX) :]
