"""Requests to a scripted client over stdio, in both protocol modes and by one process."""

from __future__ import annotations

import signal
from typing import Any

import orjson
import pytest

from tests.lab.peers.answering_client import PREFIX, accepted
from tests.lab.peers.clients import ABLE
from tests.lab.servers.process import ServerProcess, serve

APP = '''
import attrs
from foundation_rt import Elicit, Roots, Sample, Server, ToolContext

server = Server("asking")
notes = {"1": "one"}


@attrs.frozen
class Guest:
    """Who comes.

    Attributes:
        name: of the guest.
    """

    name: str
    nights: int = 1


@server.tool
async def book(ctx: ToolContext, room: int) -> str:
    guest = await ctx.elicit("Who comes?", Guest)
    if guest.content is None:
        return guest.action
    ctx.report_progress(1, 2)
    greeting = await ctx.sample(f"Greet {guest.content.name}.", max_tokens=20)
    ctx.log("notice", {"room": room})
    return f"{greeting.text} {guest.content.nights} in {room}"


@server.tool
async def survey(ctx: ToolContext) -> list:
    answers = await ctx.ask({"guest": Elicit("Who?", Guest), "roots": Roots()})
    return [answers["guest"].content.name, [root.uri for root in answers["roots"]]]


@server.tool
async def wait_for_user(ctx: ToolContext) -> None:
    await ctx.roots()


@server.tool
async def hand_on(ctx: ToolContext, method: str, params: dict) -> dict:
    ctx.notify("notifications/progress", {"progress": 1, "step": {"n": 1}})
    return await ctx.request_client(method, params)


@server.resource("note://{id}")
def note(id: str) -> str:
    return notes[id]


@server.tool
def write(id: str, text: str) -> None:
    notes[id] = text
    server.resource_updated(f"note://{id}")
'''

STATELESS = "2026-07-28"
GREETING = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Welcome!"}}


def shake_hands(server: ServerProcess, revision: str = "2025-11-25") -> None:
    server.request("initialize", {"protocolVersion": revision, "capabilities": ABLE})
    server.send("notifications/initialized")


def modern(params: dict[str, Any], **meta: Any) -> dict[str, Any]:
    meta |= {f"{PREFIX}protocolVersion": STATELESS, f"{PREFIX}clientCapabilities": ABLE}
    return {**params, "_meta": meta}


def next_message(server: ServerProcess) -> dict[str, Any]:
    """Return the next message, in order, and forget those before it."""
    server.wait_for_messages(1)
    return server.messages.pop(0)


def respond(server: ServerProcess, server_request: dict[str, Any], result: Any) -> None:
    line = orjson.dumps({"jsonrpc": "2.0", "id": server_request["id"], "result": result})
    server.write(line + b"\n")


def text_of(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


@pytest.mark.rule("ASK-01", "ASK-17", "NOTE-01", "NOTE-04")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_the_handshake_mode(revision: str) -> None:
    with serve(APP, handshake=False) as server:
        shake_hands(server, revision)
        server.messages.clear()
        params = {"name": "book", "arguments": {"room": 5}, "_meta": {"progressToken": "p"}}
        call = server.ask("tools/call", params)
        form = next_message(server)
        assert form["method"] == "elicitation/create"
        assert form["params"]["requestedSchema"]["required"] == ["name"]
        assert ("default" in form["params"]["requestedSchema"]["properties"]["nights"]) == (
            revision == "2025-11-25"
        )
        respond(server, form, accepted(name="Ann", nights=3))
        assert next_message(server)["params"] == {"progressToken": "p", "progress": 1, "total": 2}
        sample = next_message(server)
        assert sample["params"]["messages"][0]["content"]["text"] == "Greet Ann."
        respond(server, sample, GREETING)
        assert next_message(server)["params"] == {"level": "notice", "data": {"room": 5}}
        answer = next_message(server)
        assert (answer["id"], text_of(answer)) == (call, "Welcome! 3 in 5")
        assert server.finish() == 0


@pytest.mark.rule("ASK-42", "NOTE-09")
def test_request_of_another_server_passes_as_it_came() -> None:
    with serve(APP, handshake=False) as server:
        shake_hands(server)
        server.messages.clear()
        sampling = {"messages": [], "maxTokens": 1, "ünknown": {"a": [None, 1.5]}}
        arguments = {"method": "sampling/createMessage", "params": sampling}
        params = {"name": "hand_on", "arguments": arguments, "_meta": {"progressToken": 7}}
        server.ask("tools/call", params)
        progress = {"progress": 1, "step": {"n": 1}, "progressToken": 7}
        assert next_message(server)["params"] == progress
        asked = next_message(server)
        assert (asked["method"], asked["params"]) == ("sampling/createMessage", sampling)
        respond(server, asked, {"ünknown": [1]})
        assert orjson.loads(text_of(next_message(server))) == {"ünknown": [1]}
        assert server.finish() == 0


@pytest.mark.rule("ASK-10", "ASK-14", "REV-02")
def test_the_stateless_mode_beside_it() -> None:
    with serve(APP, handshake=False) as server:
        shake_hands(server)
        server.messages.clear()
        older = server.start("book", room=1)
        form = next_message(server)
        assert form["method"] == "elicitation/create"

        params = {"name": "book", "arguments": {"room": 2}}
        first = server.request("tools/call", modern(params))["result"]
        assert [*first["inputRequests"]] == ["1"]
        params |= {
            "requestState": first["requestState"],
            "inputResponses": {"1": accepted(name="B")},
        }
        second = server.request("tools/call", modern(params, progressToken="q"))["result"]
        assert [*second["inputRequests"]] == ["2"]
        params |= {"requestState": second["requestState"], "inputResponses": {"2": GREETING}}
        level = {f"{PREFIX}logLevel": "info"}
        third = server.ask("tools/call", modern(params, **level))
        assert text_of(server.answer(third)) == "Welcome! 1 in 2"
        told = [each["method"] for each in server.messages if "method" in each]
        assert told == ["notifications/progress", "notifications/message"]

        server.messages.clear()
        respond(server, form, {"action": "decline"})
        assert text_of(server.answer(older)) == "decline"


@pytest.mark.rule("ASK-14", "ASK-15")
def test_another_process_with_the_same_key_goes_on() -> None:
    settings = {"security.state_key": "5a" * 32}
    params: dict[str, Any] = {"name": "survey"}
    with serve(APP, handshake=False, settings=settings) as server:
        result = server.request("tools/call", modern(params))["result"]
        assert [*result["inputRequests"]] == ["guest", "roots"]
    responses = {"guest": accepted(name="Ann"), "roots": {"roots": [{"uri": "file:///a"}]}}
    params |= {"requestState": result["requestState"], "inputResponses": responses}
    with serve(APP, handshake=False, settings=settings) as server:
        answer = server.request("tools/call", modern(params))
        assert text_of(answer) == '["Ann",["file:///a"]]'
    with serve(APP, handshake=False) as server:
        error = server.request("tools/call", modern(params))["error"]
        assert error["data"]["reason"] == "state_tampered"


@pytest.mark.rule("ASK-34")
def test_a_client_that_leaves_owes_nothing() -> None:
    with serve(APP, handshake=False, settings={"server.eof_grace_ms": 0}) as server:
        shake_hands(server)
        server.messages.clear()
        server.start("wait_for_user")
        next_message(server)
        assert server.finish() == 0
        assert server.completion("wait_for_user")["outcome"] == "aborted"
        assert server.messages == []


@pytest.mark.rule("SUB-01", "SUB-03", "SUB-07")
def test_subscribers_of_both_modes_hear_of_an_update() -> None:
    with serve(APP, handshake=False) as server:
        shake_hands(server)
        assert server.request("resources/subscribe", {"uri": "note://1"})["result"] == {}
        wanted = {"notifications": {"resourceSubscriptions": ["note://1"]}}
        server.messages.clear()
        subscription = server.ask("subscriptions/listen", modern(wanted))
        acknowledged = next_message(server)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        call = server.start("write", id="1", text="eins")
        server.wait_for_messages(3)
        updates = [each for each in server.messages if "method" in each]
        assert [each.get("id") for each in server.messages if "method" not in each] == [call]
        assert {each["method"] for each in updates} == {"notifications/resources/updated"}
        metas = [each["params"].get("_meta") for each in updates]
        assert sorted(metas, key=bool) == [None, {f"{PREFIX}subscriptionId": subscription}]


@pytest.mark.rule("SUB-12")
@pytest.mark.parametrize(("how", "code"), [("end of file", 0), ("SIGTERM", 143), ("SIGINT", 130)])
def test_a_subscription_ends_with_a_result_when_the_server_does(how: str, code: int) -> None:
    with serve(APP, handshake=False) as server:
        wanted = {"notifications": {"toolsListChanged": True}}
        subscription = server.ask("subscriptions/listen", modern(wanted))
        next_message(server)
        if how == "end of file":
            server.close_input()
        else:
            server.signal(signal.Signals[how])
        assert server.wait() == code
        result, cancelled = server.messages
        assert result["id"] == subscription
        assert result["result"]["_meta"][f"{PREFIX}subscriptionId"] == subscription
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == subscription
