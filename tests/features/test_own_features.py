"""Features of an author: what joins a server with them, and what they may refuse."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from foundation_rt import (
    ErrorCode,
    Feature,
    Invocation,
    JsonRpcErrorCode,
    RegistrationError,
    Server,
    ToolError,
    UsageError,
)
from foundation_rt.config.sections import Integer, Settings, setting
from foundation_rt.testing import ProtocolError, TestClient
from tests.support.forwarders import ScriptedForwarder


@frozen
class GateSettings(Settings):
    """A gate."""

    most: int = setting(3, Integer(0, 100), "Most calls.")


class Gate(Feature):
    """Refuses calls of some methods, and notes what happens."""

    def __init__(self, *closed: str) -> None:
        self.closed = set(closed)
        self.asked: list[str] = []

    def allow(self, call: Invocation) -> None:
        self.asked.append(f"{call.method} {call.name}".rstrip())
        if call.method in self.closed:
            raise ToolError(ErrorCode.UNAUTHORIZED, "The gate is closed.", {"reason": "gate"})

    def instructions(self) -> str:
        return "Mind the gate."


def make_server(feature: Feature, **options: Any) -> Server:
    server = Server("gated", instructions="Be kind.", **options)
    server.add_feature(feature)

    @server.tool(inline=True)
    def work() -> str:
        return "done"

    @server.resource("note://{id}", inline=True)
    def note(id: str) -> str:
        return id

    @server.prompt(inline=True)
    def review(code: str) -> str:
        return code

    @server.completion("review", "code", inline=True)
    def code(value: str) -> list[str]:
        return [value]

    @server.method("acme/own", inline=True)
    def own() -> None: ...

    return server


REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "tools/call": ({"name": "work", "arguments": {}}, "work"),
    "resources/read": ({"uri": "note://1"}, "note://1"),
    "prompts/get": ({"name": "review", "arguments": {"code": "x"}}, "review"),
    "completion/complete": (
        {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "code", "value": ""},
        },
        "review",
    ),
    "acme/own": ({}, ""),
}


@pytest.mark.rule("EXT-13")
@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_feature_refuses_a_call_of_any_method(method: str, revision: str) -> None:
    gate, (params, name) = Gate(), REQUESTS[method]
    server = make_server(gate, config={"resources": {"max_concurrent_executions": 1}})
    async with TestClient(server, revision=revision) as client:
        await client.request(method, params)
        gate.closed = {method}
        for _ in range(3):
            if method == "tools/call":
                with pytest.raises(ToolError) as caught:
                    await client.call("work")
                assert caught.value.code == ErrorCode.UNAUTHORIZED
            else:
                with pytest.raises(ProtocolError) as refused:
                    await client.request(method, params)
                assert refused.value.code == JsonRpcErrorCode.INTERNAL_ERROR
                assert refused.value.data["details"] == {"reason": "gate"}
        assert server.runtime.resources.concurrent_executions == 0
        gate.closed.clear()
        await client.request(method, params)
    assert gate.asked == [f"{method} {name}".rstrip()] * 5


@pytest.mark.rule("EXT-13")
async def test_forwarded_call_is_refused_as_well() -> None:
    gate = Gate("tools/call")
    server = Server("gated")
    server.add_feature(gate)
    server.forward(ScriptedForwarder())
    async with TestClient(server) as client:
        with pytest.raises(ToolError, match="The gate is closed"):
            await client.call("elsewhere")


@pytest.mark.rule("EXT-13", "CALL-43")
async def test_policies_of_the_runtime_come_first_and_features_in_their_order() -> None:
    first, second = Gate(), Gate()
    server = make_server(first)
    server.add_feature(second)
    server.register_method("acme/hidden", lambda params, ctx: None)
    server.tool(visible=lambda principal: False)(hidden)
    async with TestClient(server) as client:
        with pytest.raises(ToolError) as caught:
            await client.call("hidden")
        assert caught.value.code == ErrorCode.NOT_FOUND
        assert first.asked == []
        first.closed = {"tools/call"}
        with pytest.raises(ToolError, match="The gate is closed"):
            await client.call("work")
        assert (first.asked, second.asked) == (["tools/call work"], [])


def hidden() -> str:
    raise AssertionError


@pytest.mark.rule("EXT-13", "RPC-10")
@pytest.mark.parametrize("method", REQUESTS)
async def test_exception_of_a_feature_is_an_internal_error(method: str) -> None:
    class Broken(Feature):
        def allow(self, call: Invocation) -> None:
            raise KeyError("secret")

    server = make_server(Broken())
    async with TestClient(server) as client:
        try:
            shown = str(await client.request(method, REQUESTS[method][0]))
        except ProtocolError as error:
            assert error.code == JsonRpcErrorCode.INTERNAL_ERROR
            shown = f"{error} {error.data}"
        assert "secret" not in shown
        assert server.runtime.resources.concurrent_executions == 0
        assert client.connection.session.in_flight == {}


@pytest.mark.rule("EXT-12", "FWD-28")
async def test_advice_of_a_feature_follows_that_of_the_server() -> None:
    async with TestClient(make_server(Gate()), handshake=False) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        result = await client.request("initialize", params)
        assert result["instructions"] == "Be kind.\n\nMind the gate."


@pytest.mark.rule("EXT-12", "CONF-24")
def test_feature_brings_settings_and_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOUNDATION_RT_GATE__MOST", "7")
    server = Server("gated", extensions={"a.b/c": {}})
    gate = Gate()
    server.add_feature(gate, sections={"gate": GateSettings}, extensions={"a.b/gate": {"x": 1}})
    assert server.settings(GateSettings).most == 7
    assert server.options.extensions == {"a.b/c": {}, "a.b/gate": {"x": 1}}
    with pytest.raises(UsageError, match="takes an object of a class of Feature, once"):
        server.add_feature(gate)
    other: Any = object()
    with pytest.raises(UsageError, match="takes an object of a class of Feature, once"):
        server.add_feature(other)
    with pytest.raises(RegistrationError, match="section 'gate': there is one of this name"):
        server.add_feature(Gate(), sections={"gate": GateSettings})
    with pytest.raises(UsageError, match=r"declares the extension 'a\.b/c' already"):
        server.add_feature(Gate(), extensions={"a.b/c": {}})
    with pytest.raises(UsageError, match="needs the reversed name of a domain"):
        server.add_feature(Gate(), extensions={"gate": {}})
    wrong: Any = ["gate"]
    with pytest.raises(UsageError, match="sections is a mapping of classes"):
        server.add_feature(Gate(), sections=wrong)
    assert server.options.own_features == (gate,)


@pytest.mark.rule("EXT-12", "MOUNT-06")
async def test_feature_joins_a_whole_server_before_it_starts() -> None:
    inner = Server("inner")
    inner.add_feature(Gate())
    with pytest.raises(UsageError, match="a mounted server has no features of its own"):
        Server("outer").mount(inner)
    async with TestClient(inner):
        with pytest.raises(UsageError, match="add a feature before the server is started"):
            inner.add_feature(Gate())
