"""What `foundation-rt check` and `foundation-rt call` print, and with which exit code they end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt import ErrorCode, Server, ToolError
from foundation_rt.clock import ManualClock
from foundation_rt.command_line.commands import call, check
from foundation_rt.configuration.sections import (
    AdminPolicy,
    ServerConfig,
    ServerSection,
    ToolsSection,
)
from foundation_rt.logs.logger import MemorySink, StructuredLogger
from foundation_rt.runtime import ServerOptions


@pytest.fixture
def server() -> Server:
    """A server that says nothing on stderr by itself."""
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
        if city == "Atlantis":
            raise ToolError(ErrorCode.NOT_FOUND, "no such city", {"city": city})
        return {"city": city, "days": days}

    @made.tool
    async def later(text: str) -> str:
        return text

    return made


@pytest.mark.rule("CLI-04", "CONF-05", "CONF-19")
def test_check_prints_tools_schemas_and_configuration_without_secrets(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(server) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "hunter2" not in printed.out
    report = orjson.loads(printed.out)
    assert report["server"] == {"name": "weather", "version": "1.2.3"}
    assert [tool["name"] for tool in report["tools"]] == ["forecast", "health", "later"]
    assert report["tools"][0]["inputSchema"]["required"] == ["city"]
    assert report["tools"][0]["description"] == "Forecast for a city."
    assert report["configuration"]["tools"]["default_timeout_ms"] == 2000
    assert report["configuration"]["tools"]["admin_policy"]["token_env_var"] == "[REDACTED]"
    assert printed.out.endswith("}\n")
    assert not {"resources", "resourceTemplates", "prompts"} & report.keys()


@pytest.mark.rule("CLI-04")
def test_check_prints_resources_templates_and_prompts(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.resource("note://all")(lambda: "")

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def review(code: str) -> str:
        return code

    assert check(server) == 0
    report = orjson.loads(capsys.readouterr().out)
    assert report["resources"] == [{"uri": "note://all", "name": "<lambda>"}]
    assert report["resourceTemplates"] == [{"uriTemplate": "note://{name}", "name": "note"}]
    arguments = [{"name": "code", "required": True}]
    assert report["prompts"] == [{"name": "review", "arguments": arguments}]


@pytest.mark.rule("CLI-05")
@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("forecast", '{"city": "Oslo"}', {"city": "Oslo", "days": 3}),
        ("later", '{"text": "hej, å"}', "hej, å"),
    ],
)
def test_call_prints_the_result(
    server: Server, capsys: pytest.CaptureFixture[str], tool: str, arguments: str, result: Any
) -> None:
    assert call(server, tool, arguments) == 0
    printed = capsys.readouterr()
    assert orjson.loads(printed.out) == result
    assert printed.err == ""


@pytest.mark.rule("CLI-05", "ERR-02")
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("forecast", '{"city": "Atlantis"}', "NOT_FOUND"),
        ("forecast", '{"city": 5}', "INVALID_ARGUMENT"),
        ("forecast", "{}", "INVALID_ARGUMENT"),
        ("no such tool", "{}", "NOT_FOUND"),
    ],
)
def test_a_tool_error_is_printed_on_stderr(
    server: Server, capsys: pytest.CaptureFixture[str], tool: str, arguments: str, code: str
) -> None:
    assert call(server, tool, arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    error = orjson.loads(printed.err)
    assert error["code"] == code
    assert error["message"]


@pytest.mark.rule("CLI-05", "CLI-06")
@pytest.mark.parametrize(
    ("arguments", "what"), [("{", "not valid JSON"), ("[1]", "must be a JSON object"), ("", "JSON")]
)
def test_arguments_that_are_no_json_object_are_a_wrong_command_line(
    server: Server, capsys: pytest.CaptureFixture[str], arguments: str, what: str
) -> None:
    assert call(server, "forecast", arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("foundation-rt: ")
    assert what in printed.err


@pytest.mark.rule("CLI-05")
def test_a_result_larger_than_a_line_is_printed_whole(
    capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    text = "x" * 100_000
    assert call(server, "later", orjson.dumps({"text": text}).decode()) == 0
    assert orjson.loads(capsys.readouterr().out) == text
