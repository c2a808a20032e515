"""The configuration classes: their limits and defaults."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from foundation_rt.base.config import feature_sections as features
from foundation_rt.base.config import http_sections as http
from foundation_rt.base.config import types
from foundation_rt.base.config.feature_sections import (
    AacpSection,
    AgentsSection,
    AuditSection,
    RateLimitSection,
    SecuritySection,
    TelemetrySection,
)
from foundation_rt.base.config.http_sections import AuthorizationSection, HttpSection, OauthSection
from foundation_rt.base.config.loading import settings, variable_name
from foundation_rt.base.config.settings import (
    TOOL_NAME,
    AdminPolicy,
    LoggingSection,
    ResourcesSection,
    ServerConfig,
    ServerSection,
    ToolsSection,
    TransportSection,
    needs_loading,
)
from foundation_rt.base.config.types import (
    Choice,
    Flag,
    Integer,
    Kind,
    Line,
    ListOf,
    Pattern,
    Section,
    StoreUrl,
    VariableName,
)
from tests.lab.programs.program import run_source

SECTIONS = (
    ServerSection,
    AdminPolicy,
    ToolsSection,
    ResourcesSection,
    LoggingSection,
    SecuritySection,
    TransportSection,
    AgentsSection,
    AacpSection,
    HttpSection,
    OauthSection,
    AuthorizationSection,
    RateLimitSection,
    AuditSection,
    TelemetrySection,
    ServerConfig,
)

EXAMPLES = {
    types.KEY_NAME: (
        ["iban", "a b", "ключ", "c" * 256],
        ["", "--", "—", "c" * 257, "a\n", "\udcff"],
    ),
    TOOL_NAME: (
        ["find", "admin/registerTool", "a.b-c_d", "x" * 256],
        ["", "a b", "a\n", "ä", "x" * 257],
    ),
    types.FILE_PATH: (
        ["audit.jsonl", "/var/log/a b/ä.jsonl", "x" * 4095],
        ["", "x" * 4096, "a\n", "a\x00b", "\udcff"],
    ),
    http.HTTP_PATH: (
        ["/", "/mcp", "/a/b.c"],
        ["", "mcp", "/mcp/", "//", "/a?b", "/a\n", "/ä"],
    ),
    http.HOST_NAME: (
        ["*", "example.com", "example.com:8443", "[::1]:80", "under_score"],
        ["", "https://example.com", "a b", "example.com:", "*.example.com", "a/b", "a\n", "ä.de"],
    ),
    http.WORKER_ADDRESS: (
        [None, "10.0.0.5", "10.0.0.5:7000", "[fd00::5]:7000", "host-1.example.com"],
        ["", "10.0.0.5:", "10.0.0.5:0", "[fd00::5", "http://a", "a b", "a\n", "ä.de"],
    ),
    http.ADDRESS_RANGE: (
        ["127.0.0.1", "10.0.0.0/8", "10.0.0.1/8", "::1", "fd00::/8"],
        ["", "localhost", "10.0.0.256", "10.0.0.0/33", "10.0.0.1:80", "*", "127.0.0.1\n"],
    ),
    http.ORIGIN: (
        ["*", "https://example.com", "http://localhost:3000", "chrome-extension://abc"],
        ["", "example.com", "https://example.com/", "null", "https://*.example.com", "http://a\n"],
    ),
    http.API_KEY: (
        ["k" * 16, "alice:" + "k" * 32, "aA0._~+/-aA0._~+/-==", "a:" + "k" * 16 + ":b:c d"],
        [
            "",
            "a:" + "k" * 16 + ":",
            "a:" + "k" * 16 + ":b  c",
            "k" * 15,
            "alice:short",
            "k" * 257,
            "k" * 16 + "\n",
            "k" * 8 + " " + "k" * 8,
        ],
    ),
    http.ISSUER_URL: (
        [None, "https://login.example.com", "https://a.b/c?d=e", "http://127.0.0.1:8080/realm"],
        ["", "http://example.com", "https://", "https://a.b/#c", 'https://a.b/"', "ftp://a.b"],
    ),
    http.RESOURCE_URL: (
        [None, "https://example.com/mcp", "http://10.0.0.1:8000/mcp"],
        ["", "api://example", "https://a.b/#c", 'https://a.b/"', "https://a.b/\n"],
    ),
    http.CLIENT_ID: ([None, "Iv1.0f", "https://a.b/c"], ["", "a\n", "ä", "x" * 2049]),
    http.CLIENT_SECRET: ([None, "a b:%", "s" * 2048], ["", "a\n", "ä", "x" * 2049]),
    http.PROVIDER: ([None, "github", "oauth"], ["", "gitlab", "GitHub", "oidc\n"]),
    http.TENANT: (
        [None, "0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f"],
        ["", "common", "example.com", "0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0", "g" * 36],
    ),
    http.PARAMETER: (
        ["prompt=consent", "a=", "x.y=a b"],
        ["", "a", "=b", "a b=c", "a=\n"],
    ),
    http.ALLOWED: (
        ["*", "sub:1", "org:acme", "ann@x.org", "@x.org"],
        ["", "ann", "@", "ann@", "a@b@c", "sub:", "org:a b", "**", "ann@x.org\n"],
    ),
    http.REDIRECT_URI: (
        ["loopback", "https://a.b/back?c=d"],
        ["", "http://a.b/back", "https://a.b/#c", "https://*", "loopback "],
    ),
    types.SCOPE: (["mcp", "tools:call", "https://a.b/c"], ["", "a b", 'a"b', "a\\b", "a\n", "ä"]),
    http.HEADER_NAME: (
        ["X-Tenant", "a", "x" * 64],
        ["", "a b", "a:", "a\n", "ä", "x" * 65],
    ),
    features.TOOL_LIMIT: (
        ["mcp-tasks=100", "admin/registerTool=0", "a.b_c=1000000"],
        ["", "a", "a=", "=5", "a=-1", "a=01", "a=1000001", "a b=5", "a=5 ", "a=b=5", "a=5\n"],
    ),
    types.STATE_KEY: ([None, "0f" * 32, "AB" * 64], ["", "0f" * 31, "0" * 65, "g" * 64]),
}
"""Accepted and refused values of each pattern."""


# The classes


def settings_of(cls: type) -> list[attrs.Attribute]:
    return [a for a in attrs.fields(cls) if not isinstance(a.validator, Section)]


def wrong_values(kind: Kind) -> list[Any]:
    match kind:
        case Integer():
            return [kind.minimum - 1, kind.maximum + 1, "5", 5.0, True, None]
        case Flag():
            return [0, 1, "true", None]
        case Line():
            return ["", "x" * 257, "a\nb", "\x00", "\x7f", "\x85", "\ud800", b"x", 5, None]
        case Choice():
            return ["", "INFO", "verbose", 1, None, ["info"]]
        case Pattern():
            return [*EXAMPLES[kind][1], 5, b"x", *([] if kind.optional else [None])]
        case ListOf():
            right = right_values(kind.item)
            wrong = [(right[0], value) for value in wrong_values(kind.item)]
            return [*wrong, *right, list(right), None]
        case VariableName():
            return ["", "1A", "A B", "A-B", "Ä", 5]
        case StoreUrl():
            scheme = kind.schemes[0]
            return ["", "elsewhere", f"{scheme}:", scheme, "ftp://x", f"{scheme}:a\nb", 5, None]
    raise AssertionError(kind)


def right_values(kind: Kind) -> list[Any]:
    match kind:
        case Integer():
            return [kind.minimum, kind.maximum]
        case Flag():
            return [True, False]
        case Line():
            return ["x", "x" * 256, "Ærlig talt 🙂", "a b"]
        case Choice():
            return [word for word in kind.words if word not in ("token", "scopes")]
        case Pattern():
            return EXAMPLES[kind][0]
        case ListOf():
            return [(), tuple(right_values(kind.item))]
        case VariableName():
            return [None, "_", "ADMIN_TOKEN", "a1"]
        case StoreUrl():
            return [*kind.words, *(f"{scheme}://somewhere/1" for scheme in kind.schemes)]
    raise AssertionError(kind)


EVERY_SETTING = [
    pytest.param(cls, attribute, id=f"{cls.__name__}.{attribute.name}")
    for cls in SECTIONS
    for attribute in settings_of(cls)
]


@pytest.mark.rule("CONF-01")
@pytest.mark.parametrize(("cls", "attribute"), EVERY_SETTING)
def test_setting_accepts_its_values(cls: type, attribute: attrs.Attribute) -> None:
    for value in right_values(attribute.validator):
        assert getattr(cls(**{attribute.name: value}), attribute.name) == value


@pytest.mark.rule("CONF-22")
@pytest.mark.parametrize(("cls", "attribute"), EVERY_SETTING)
def test_setting_refuses_other_values(cls: type, attribute: attrs.Attribute) -> None:
    for value in wrong_values(attribute.validator):
        with pytest.raises(ValueError) as refusal:
            cls(**{attribute.name: value})
        assert str(refusal.value) == f"{attribute.name}: expected {attribute.validator.expected}"


@pytest.mark.rule("CONF-22")
def test_a_section_is_an_instance_of_its_class() -> None:
    with pytest.raises(ValueError, match="tools: expected an instance of ToolsSection"):
        ServerConfig(tools={"default_timeout_ms": 5})
    with pytest.raises(ValueError, match="admin_policy: expected an instance of AdminPolicy"):
        ToolsSection(admin_policy=None)


@pytest.mark.rule("CONF-01")
@pytest.mark.parametrize("cls", SECTIONS)
def test_a_configuration_never_changes(cls: type) -> None:
    instance = cls()
    for attribute in attrs.fields(cls):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(instance, attribute.name, attribute.default)
    assert hash(instance) == hash(cls())


TWO_KEYS = HttpSection(api_keys=("alice:" + "a" * 16, "bob:" + "b" * 16))


def shares(percent: int, http: HttpSection = TWO_KEYS, **sections: Any) -> ServerConfig:
    resources = ResourcesSection(principal_share_percent=percent)
    return ServerConfig(http=http, resources=resources, **sections)


@pytest.mark.rule("RES-12")
@pytest.mark.parametrize(
    ("percent", "limit", "share"),
    [(25, 10, 3), (25, 8, 2), (25, 1, 1), (1, 1, 1), (1, 100, 1), (1, 101, 2), (100, 7, 7)],
)
def test_a_share_is_rounded_up_and_at_least_one(percent: int, limit: int, share: int) -> None:
    assert shares(percent).share_of(limit, "alice") == share


@pytest.mark.rule("RES-21")
def test_shares_apply_only_where_several_principals_can_connect() -> None:
    one_key = HttpSection(api_keys=("alice:" + "a" * 16,))
    issuer = OauthSection(issuer="https://issuer.example", audience="https://server.example")
    assert ServerConfig().share_of(10, "alice") == 10
    assert shares(25, one_key).share_of(10, "alice") == 10
    assert shares(25, one_key, oauth=issuer).share_of(10, "alice") == 3
    assert shares(25, HttpSection(), oauth=issuer).share_of(10, "alice") == 3


@pytest.mark.rule("RES-12", "RES-21")
def test_a_peer_without_a_principal_may_use_the_whole_limit() -> None:
    assert shares(25).share_of(10, None) == 10


@pytest.mark.rule("CONF-05")
def test_a_secret_is_in_no_repr_and_in_no_message() -> None:
    policy = AdminPolicy(mode="token", token_env_var="s3cr3t")
    assert "s3cr3t" not in repr(ServerConfig(tools=ToolsSection(admin_policy=policy)))
    with pytest.raises(ValueError) as refusal:
        AdminPolicy(mode="token", token_env_var="s3cr3t!")
    assert "s3cr3t" not in str(refusal.value)


@pytest.mark.rule("CONF-05")
def test_the_keys_of_http_are_in_no_repr_and_in_no_message() -> None:
    http = HttpSection(api_keys=("alice:s3cr3ts3cr3ts3cr3t",))
    security = SecuritySection(state_key="0f" * 32)
    shown = repr(ServerConfig(http=http, security=security))
    assert "s3cr3t" not in shown
    assert "0f0f" not in shown
    with pytest.raises(ValueError) as refusal:
        HttpSection(api_keys=("s3cr3t",))
    assert "s3cr3t" not in str(refusal.value)


@pytest.mark.rule("CONF-29", "CONF-05")
@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cr3t@127.0.0.1:port",
        "redis://:s3cr3t@127.0.0.1:99999",
        "redis://:s3cr3t/word@127.0.0.1",
        "redis://:s3cr3t@127.0.0.1/first",
        "redis://:s3cr3t@127.0.0.1?db=first",
        "rediss://:s3cr3t@127.0.0.1/0?unknown=1",
        "redis:s3cr3t",
        "redis://[::1",
        "unix://s3cr3t",
    ],
)
def test_a_url_that_no_client_of_redis_takes_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="store: expected memory, or redis://HOST:") as refusal:
        RateLimitSection(store=url)
    assert "s3cr3t" not in str(refusal.value)


@pytest.mark.rule("CONF-17")
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_dynamic_registration_needs_both_settings(one: bool, other: bool) -> None:
    config = ServerConfig(
        tools=ToolsSection(admin_registration_enabled=one),
        security=SecuritySection(dynamic_registration_enabled=other),
    )
    assert config.is_dynamic_registration_effective() is (one and other)


@pytest.mark.rule("CONF-18")
def test_mode_token_needs_the_name_of_a_variable() -> None:
    with pytest.raises(ValueError, match="token_env_var: expected the name of a variable"):
        AdminPolicy(mode="token")
    assert AdminPolicy(mode="token", token_env_var="T").token_env_var == "T"
    assert AdminPolicy(mode="local_stdio_only", token_env_var="T").mode == "local_stdio_only"


@pytest.mark.rule("CONF-07")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("FOUNDATION_RT_TOOLS__DEFAULT_TIMEOUT_MS", True),
        ("FOUNDATION_RT_TOOLS__ADMIN_POLICY__MODE", True),
        ("FOUNDATION_RT_NO__SUCH", True),
        ("FOUNDATION_RT_tools__level", True),
        ("FOUNDATION_RT_X__", True),
        ("FOUNDATION_RT___X", True),
        ("FOUNDATION_RT__X", False),
        ("FOUNDATION_RT_X", False),
        ("FOUNDATION_RT_", False),
        ("foundation_rt_tools__level", False),
        ("MY_FOUNDATION_RT_TOOLS__X", False),
        ("PATH", False),
    ],
)
def test_only_prefixed_variables_are_settings(name: str, expected: bool) -> None:
    assert needs_loading({"HOME": "/", name: "1"}) is expected


@pytest.mark.rule("CONF-07")
def test_no_name_of_a_setting_is_ambiguous_in_a_variable() -> None:
    keys = [key for key, _ in settings()]
    assert len({variable_name(key) for key in keys}) == len(keys) > 0
    assert not any("__" in name or name != name.lower() for key in keys for name in key)


@pytest.mark.rule("CONF-21")
def test_settings_do_not_import_the_loader() -> None:
    program = "import sys, foundation_rt.base.config.settings; print(*sys.modules)"
    output = run_source(program)
    loading = "foundation_rt.base.config.loading"
    sections = "foundation_rt.base.config.sections"
    costly = {"tomli", "difflib", "orjson", "asyncio", loading, sections}
    assert costly.isdisjoint(output.stdout.split())
