"""What a type checker sees of the client; read by mypy --strict, never run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

from foundation_rt import Server
from foundation_rt.client import (
    CallResult,
    CircuitState,
    Client,
    ClientHandlers,
    CompletionResult,
    ConnectionLostError,
    ElicitationRequest,
    ElicitResult,
    FileRoute,
    GetPromptResult,
    HttpServer,
    ListedPromptArgument,
    MCPError,
    Prompt,
    ReadResult,
    Resource,
    ResourceTemplate,
    RetryPolicy,
    Revision,
    Router,
    ServerDescription,
    ServerRequestHandlers,
    ServerRequestRefused,
    SizeTimeout,
    StdioServer,
    ToolSchema,
    blocking,
    connect,
    map_mcp_error,
)


def fill_in(request: ElicitationRequest) -> ElicitResult[dict[str, Any]] | None:
    return None


class Handing:
    def capabilities(self, revision: Revision) -> dict[str, Any]:
        return {}

    async def handle(self, method: str, params: Any, revision: Revision) -> dict[str, Any]:
        raise ServerRequestRefused(-32603, "no")


def watch() -> Client:
    handlers: ServerRequestHandlers = Handing()
    return connect(
        "uvx some-server",
        handlers=handlers,
        on_connected=lambda server: assert_type(server, ServerDescription),
        on_disconnected=lambda error: assert_type(error, MCPError),
        on_circuit=lambda tool, state: assert_type((tool, state), tuple[str | None, CircuitState]),
        on_notification=lambda method, params: assert_type(params, Mapping[str, Any]),
    )


async def use() -> None:
    async with connect("uvx some-server", timeout=5, elicitation=fill_in) as client:
        assert_type(client, Client)
        assert_type(await client.initialize(), ServerDescription)
        result = await client.call("forecast", {"city": "Oslo"}, timeout=5, correlation_id="c")
        assert_type(result, CallResult)
        assert_type(result.is_error, bool)
        assert_type(result.value(), Any)
        assert_type(result.text, str)
        assert_type(await client.list_tools(), tuple[ToolSchema, ...])
        assert_type(await client.get_tool_schema("forecast"), ToolSchema)
        assert_type(await client.list_resources(), tuple[Resource, ...])
        assert_type(await client.list_resource_templates(), tuple[ResourceTemplate, ...])
        for prompt in await client.list_prompts():
            assert_type(prompt, Prompt)
            assert_type(prompt.arguments, tuple[ListedPromptArgument, ...])
            assert_type((prompt.title, prompt.description), tuple[str | None, str | None])
        assert_type(await client.read_resource("a:b"), ReadResult)
        assert_type(await client.get_prompt("review", {"code": "x"}), GetPromptResult)
        assert_type(await client.complete("review", "code", "x"), CompletionResult)
        assert_type(await client.request("odd/method", {"a": 1}, max_timeout=60), dict[str, Any])
        connect("server", extensions={"com.example/reports": {}})
        assert_type(await client.request_all("tools/list"), list[dict[str, Any]])
        await client.call("forecast", handlers=ClientHandlers(elicitation=fill_in))
        await client.request("tools/call", {"name": "a"}, handlers=Handing())
        assert_type(await client.ping(), float)
        assert_type(client.has_capability("tools"), bool)
        assert_type(client.circuit_state, CircuitState)
        async with client.subscribe("a:b", "a:c") as changes:
            async for uri in changes:
                assert_type(uri, str)
        await client.call(5)  # type: ignore[arg-type]
        await client.call("forecast", city="Oslo")  # type: ignore[call-arg]
        await client.call("forecast", ["Oslo"])  # type: ignore[arg-type]
        await client.call("forecast", {}, on_progress=5)  # type: ignore[arg-type]
        await client.get_prompt("review", {"depth": 1})  # type: ignore[dict-item]


connect("https://host/mcp", headers={"Authorization": "Bearer x"})
connect(HttpServer("https://host/mcp"))
connect(StdioServer("some-server", ["a"], {"A": "b"}, "/"))
connect(Server("s"))
connect(5)  # type: ignore[arg-type]
connect("some-server", headers=["A: b"])  # type: ignore[arg-type]
connect(["some-server", "--root", "/a"], env={"A": "b"}, cwd=Path("/"))
connect(Path("server.py"))
connect({"mcpServers": {"a": {"command": "some-server"}}})
blocking.connect("some-server", env={"A": "b"}, cwd="/")
connect("some-server", require=["resources"], roots=["file:///a"], retries=RetryPolicy())
assert_type(blocking.connect("some-server").call("forecast", {"city": "Oslo"}), CallResult)
connect("some-server", timeout="5")  # type: ignore[arg-type]
connect("some-server", timeuot=5)  # type: ignore[call-arg]
connect("some-server", sampling=fill_in)  # type: ignore[arg-type]
blocking.connect("some-server", timeuot=5)  # type: ignore[call-arg]
assert_type(blocking.connect("some-server", timeout=5), blocking.BlockingClient)
Router([FileRoute(".pdf", "convert", SizeTimeout(60, 10, 600))])
StdioServer(["some-server"])  # type: ignore[arg-type]

problem = map_mcp_error({"code": -32601, "message": "no"})
assert_type(problem, MCPError)
assert_type(problem.may_have_run, bool)
assert_type(problem.retry_after, float | None)
MCPError(5, "x")  # type: ignore[arg-type]
ConnectionLostError("x")  # type: ignore[call-arg]
