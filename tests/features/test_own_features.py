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
from foundation_rt.kernel.feature import RuntimeFeature
from foundation_rt.testing import ManualClock, ProtocolError, TestClient
from tests.lab.peers.forwarders import ScriptedForwarder


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


class Failing(Feature):
    """Has an `allow` that neither returns None nor refuses by an error of its own."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def allow(self, call: Invocation) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.rule("EXT-16", "RPC-10", "CALL-14")
@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("answer", [KeyError("secret"), False, True, "secret"])
async def test_bug_of_a_feature_refuses_the_call_and_has_its_record(
    method: str, answer: object
) -> None:
    server = make_server(Failing(answer))
    async with TestClient(server, clock=ManualClock()) as client:
        with pytest.raises(ProtocolError) as refused:
            await client.request(method, REQUESTS[method][0])
        assert refused.value.code == JsonRpcErrorCode.INTERNAL_ERROR
        assert "secret" not in f"{refused.value} {refused.value.data}"
        [record] = [each for each in client.logs or () if "outcome" in each]
        assert (record["outcome"], record["errorCode"]) == ("tool_error", "INTERNAL")
        [bug] = [each for each in client.logs or () if each["message"] == "internal error"]
        if not isinstance(answer, Exception):
            found = f"Failing.allow returned {type(answer).__name__}: return None, or raise"
            assert found in bug["error"]["message"]
        assert server.runtime.resources.concurrent_executions == 0
        assert client.connection.session.in_flight == {}


@pytest.mark.rule("EXT-14")
async def test_hook_that_cannot_be_called_as_one_is_refused_by_its_name() -> None:
    async def waits(*of_call: object) -> None: ...

    def takes_more(one: object, two: object, three: object) -> None: ...

    for hook in ("allow", "instructions"):
        wrong: Any
        for wrong in (waits, takes_more, "text"):
            of_class, of_object = type("Odd", (Feature,), {hook: wrong})(), Gate()
            setattr(of_object, hook, wrong)
            for feature, name in ((of_class, "Odd"), (of_object, "Gate")):
                with pytest.raises(
                    RegistrationError, match=rf"{name}\.{hook} is refused: write `def {hook}\(self"
                ):
                    Server("gated").add_feature(feature)


@pytest.mark.rule("EXT-14", "EXT-16")
async def test_hook_of_the_object_counts_and_what_it_has_not_let_pass_does_not_start() -> None:
    def refuse(call: Invocation) -> None:
        raise ToolError(ErrorCode.UNAUTHORIZED, "Not by this object.")

    gate: Any = Gate()
    gate.allow = refuse
    async with TestClient(make_server(gate)) as client:
        with pytest.raises(ToolError, match="Not by this object"):
            await client.call("work")


class Named(Feature):
    """Has methods and attributes of its own under names that features of the runtime use."""

    requests = 0
    messages = notifications = needs_event_loop = None

    def own(self, text: str) -> dict[str, str]:
        return {"own": text}


HOOKS = [name for name in vars(RuntimeFeature) if not name.startswith("_")]
for _name in HOOKS:
    if callable(getattr(RuntimeFeature, _name)) and _name not in vars(Feature):
        setattr(Named, _name, Named.own)


@pytest.mark.rule("EXT-12")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_every_other_name_of_a_feature_is_its_own(revision: str) -> None:
    feature: Any = Named()
    server = make_server(feature)
    for name in HOOKS:
        if getattr(Named, name, None) is Named.own:
            server.method(f"acme/{name}", inline=True)(getattr(feature, name))
    async with TestClient(server, revision=revision) as client:
        for method in server.options.methods.keys() - {"acme/own"}:
            assert (await client.request(method, {"text": "x"}))["own"] == "x"
        for method, (params, _) in REQUESTS.items():
            await client.request(method, params)
        with pytest.raises(ToolError, match="There is no tool"):
            await client.call("none")


@pytest.mark.rule("EXT-12", "FWD-28")
async def test_advice_of_a_feature_follows_that_of_the_server() -> None:
    async with TestClient(make_server(Gate()), handshake=False) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        result = await client.request("initialize", params)
        assert result["instructions"] == "Be kind.\n\nMind the gate."


@pytest.mark.rule("EXT-15")
@pytest.mark.parametrize("advice", [ValueError("secret"), 5])
async def test_advice_that_fails_is_logged_and_left_out(advice: object) -> None:
    class Odd(Feature):
        def instructions(self) -> Any:
            if isinstance(advice, Exception):
                raise advice
            return advice

    server = make_server(Odd())
    server.add_feature(Gate())
    async with TestClient(server, clock=ManualClock(), handshake=False) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        result = await client.request("initialize", params)
        assert result["instructions"] == "Be kind.\n\nMind the gate."
        assert "instructions failed" in [each["message"] for each in client.logs or ()]


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
