"""The output of `foundation-rt check`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt import Server
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import (
    AdminPolicy,
    ServerConfig,
    ServerSection,
    ToolsSection,
)
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.cli.check import check
from foundation_rt.cli.render import render
from foundation_rt.features.composition import ServerOptions


@pytest.fixture
def server() -> Server:
    """Return a server that writes nothing to stderr by itself."""
    policy = AdminPolicy(mode="token", token_env_var="hunter2")
    made = Server(
        options=ServerOptions(
            config=ServerConfig(
                server=ServerSection(name="weather", version="1.2.3"),
                tools=ToolsSection(default_timeout_ms=2000, admin_policy=policy),
            ),
            logger=StructuredLogger(MemorySink(), ManualClock()),
        )
    )

    @made.tool
    def forecast(city: str, days: int = 3) -> dict[str, Any]:
        """Forecast for a city."""
        return {"city": city, "days": days}

    @made.tool
    async def later(text: str) -> str:
        return text

    return made


@pytest.mark.rule("CLI-04", "CONF-05", "CONF-19")
def test_check_prints_tools_schemas_and_configuration_without_secrets(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    report, page = check(server)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert b"hunter2" not in orjson.dumps(report)
    assert "hunter2" not in render(page)
    assert report["server"] == {"name": "weather", "version": "1.2.3"}
    assert [tool["name"] for tool in report["tools"]] == ["forecast", "health", "later"]
    assert report["tools"][0]["inputSchema"]["required"] == ["city"]
    assert report["tools"][0]["description"] == "Forecast for a city."
    assert report["configuration"]["tools"]["default_timeout_ms"] == 2000
    assert report["configuration"]["tools"]["admin_policy"]["token_env_var"] == "[REDACTED]"
    assert not {"resources", "resourceTemplates", "prompts"} & report.keys()


@pytest.mark.rule("CLI-04")
def test_check_prints_what_a_server_has_beside_tools(server: Server) -> None:
    server.register_method("acme/report", lambda params, ctx: None)
    server.resource("note://all")(lambda: "")

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def review(code: str) -> str:
        return code

    report, page = check(server)
    assert report["methods"] == [{"name": "acme/report"}]
    assert "extensions" not in report
    shown = render(page).splitlines()
    assert shown[shown.index("METHODS  1") + 1].strip() == "acme/report"
    assert report["resources"] == [{"uri": "note://all", "name": "<lambda>"}]
    assert report["resourceTemplates"] == [{"uriTemplate": "note://{name}", "name": "note"}]
    arguments = [{"name": "code", "required": True}]
    assert report["prompts"] == [{"name": "review", "arguments": arguments}]


@pytest.mark.rule("CLI-04")
def test_check_shows_tools_and_what_differs_from_the_defaults(server: Server) -> None:
    report, page = check(server)
    assert report["changed"] == [
        "server.name",
        "server.version",
        "tools.default_timeout_ms",
        "tools.admin_policy.mode",
        "tools.admin_policy.token_env_var",
    ]
    assert render(page).splitlines() == [
        "weather  1.2.3",
        "",
        "TOOLS  3",
        "forecast  Forecast for a city.",
        "health    Report the server's identity, limits, load and health status.",
        "later",
        "",
        "SETTINGS  3 that differ from the defaults",
        "SETTING                           VALUE       DEFAULT",
        "tools.default_timeout_ms          2000        30000",
        "tools.admin_policy.mode           token       deny_all",
        "tools.admin_policy.token_env_var  [REDACTED]  null",
    ]


@pytest.mark.rule("CLI-04")
def test_check_of_all_shows_schemas_prompts_and_every_setting(server: Server) -> None:
    @server.prompt
    def review(code: str) -> str:
        return code

    server.resource("note://all")(lambda: "")
    shown = render(check(server)[1])
    assert "PROMPTS  1\nreview\n" in shown and "RESOURCES  1\nnote://all" in shown
    whole = render(check(server, whole=True)[1])
    assert "city  string   required" in whole
    assert "code  required" in whole
    assert "server.page_size" in whole and "logging.level" in whole
    assert "logging.level" not in shown


@pytest.mark.rule("CLI-04")
def test_check_of_a_server_as_by_default_names_no_setting() -> None:
    made = Server(options=ServerOptions(logger=StructuredLogger(MemorySink(), ManualClock())))
    shown = render(check(made)[1])
    assert "SETTINGS  none that differ from the defaults\n--all lists those by default\n" in shown
