"""The sections of the HTTP transport, and of who may use it; see `settings`."""

from __future__ import annotations

from attrs import frozen

from .types import (
    FILE_PATH,
    REDIS_SCHEMES,
    SCOPE,
    SCOPE_TEXT,
    Choice,
    Integer,
    Line,
    ListOf,
    Pattern,
    Settings,
    StoreUrl,
    byte_count,
    flag,
    milliseconds,
    setting,
)


class AddressRange(Pattern):
    """An IP address or a network of them."""

    def __init__(self) -> None:
        super().__init__(
            "[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?", "an address or a network such as 10.0.0.0/8"
        )

    def accepts(self, value: object) -> bool:
        from ipaddress import ip_network

        try:
            return super().accepts(value) and bool(ip_network(str(value), strict=False))
        except ValueError:
            return False


_PORT = "(:[0-9]{1,5})?"
_HOST = r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\])" + _PORT
_REST_OF_URL = "(/[A-Za-z0-9._~%!&'()*+,;=:@/?-]*)?"
_LOOPBACK = r"http://(localhost|127\.0\.0\.1|\[::1\])" + _PORT

HTTP_PATH = Pattern(
    "/([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?", "a path such as /mcp", default="/mcp"
)
HOST_NAME = Pattern(rf"\*|{_HOST}", "a host such as example.com or example.com:8443, or *")
WORKER_ADDRESS = Pattern(
    r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[1-9][0-9]{0,4})?",
    "an address of this host such as 10.0.0.5 or 10.0.0.5:7000",
    optional=True,
)
ADDRESS_RANGE = AddressRange()
ORIGIN = Pattern(rf"\*|[a-z][a-z0-9+.-]*://{_HOST}", "an origin such as https://example.com, or *")
_KEY = "[A-Za-z0-9._~+/-]{16,256}=*"
API_KEY = Pattern(
    f"{_KEY}|[A-Za-z0-9._-]{{1,64}}:{_KEY}(:{SCOPE_TEXT}( {SCOPE_TEXT})*)?",
    "KEY, NAME:KEY or NAME:KEY:SCOPES, where KEY has at least 16 of the characters"
    " A-Z a-z 0-9 . _ ~ + / - and SCOPES have a space between them",
    is_secret=True,
)
ISSUER_URL = Pattern(
    f"(https://{_HOST}|{_LOOPBACK}){_REST_OF_URL}",
    "an https:// URL, or an http:// one of this machine",
    optional=True,
)
RESOURCE_URL = Pattern(
    f"https?://{_HOST}{_REST_OF_URL}", "an https:// or http:// URL without #", optional=True
)
HEADER_NAME = Pattern("[A-Za-z0-9._-]{1,64}", "the name of a header, such as X-Tenant")
CLIENT_ID = Pattern("[ -~]{1,2048}", "1 to 2048 characters of ASCII", optional=True)
CLIENT_SECRET = Pattern(
    "[ -~]{1,2048}", "1 to 2048 characters of ASCII", optional=True, is_secret=True
)
PROVIDERS = ("github", "google", "entra", "oidc", "oauth")
PROVIDER = Pattern("|".join(PROVIDERS), f"one of {', '.join(PROVIDERS)}", optional=True)
TENANT = Pattern(
    "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "the id of a directory", optional=True
)
PARAMETER = Pattern("[A-Za-z0-9._~-]{1,64}=[ -~]{0,512}", "NAME=VALUE")
ALLOWED = Pattern(
    r"\*|(sub|org):[!-~]{1,256}|[!-?A-~]{0,64}@[A-Za-z0-9.-]{1,253}",
    "sub:ID, an email address, @DOMAIN, org:NAME or *",
)
REDIRECT_URI = Pattern(
    f"loopback|https://{_HOST}{_REST_OF_URL}",
    "loopback, or an https:// URL without #",
    default="loopback",
)
SIGNATURE_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""The algorithms of tokens; none of them needs a secret that the server would have to share."""


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
