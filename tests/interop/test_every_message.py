"""Every message the server can send is what the official types of its revision say.

In each revision a server process is driven through all it has. What it sends is checked line by
line, and at the end it must have sent everything that the official types know for the revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import define, field
from mcp_types import methods

from tests.lab.checks import official_types
from tests.lab.servers.process import ServerProcess, command, environment

APP = Path(__file__).parent / "app.py"
STATELESS = "2026-07-28"
CAPABILITIES = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
RESPONSES: dict[str, dict[str, Any]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "roots/list": {"roots": [{"uri": "file:///home/ada"}]},
    "sampling/createMessage": {
        "role": "assistant",
        "model": "test",
        "content": {"type": "text", "text": "I am a model"},
    },
}
ASKING = {
    "roots/list": "ask_roots",
    "sampling/createMessage": "ask_model",
    "elicitation/create": "ask_user",
}
"""The tools that ask, by what they ask."""
ADD = {"name": "add", "arguments": {"a": 2, "b": 3}}
NAME = {"name": "name", "value": "A"}
LOOKING: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
    ("resources/read", {"uri": "note://today"}),
    ("resources/read", {"uri": "note://photo"}),
    ("resources/read", {"uri": "note://by-name/rent"}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": NAME},
    ),
    ("tools/call", ADD),
    ("tools/call", {"name": "gallery", "arguments": {}}),
    ("tools/call", {"name": "add", "arguments": {"a": "two"}}),
    ("tools/call", {"name": "no such tool", "arguments": {}}),
    ("tools/call", {"name": "enough"}),
    ("tools/call", {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": "p"}}),
]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("resources/read", {"uri": "note://nowhere"}),
    ("prompts/get", {"name": "nobody"}),
    ("prompts/get", {"name": "greet", "arguments": {}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "nobody"}, "argument": NAME}),
    ("tools/list", {"cursor": "nonsense"}),
    ("no/such/method", {}),
    ("tools/call", {"name": 5}),
]


@define
class ProcessClient:
    """Speaks one revision with a server process, and checks all that it is sent.

    Attributes:
        lacks: what of the revision's the server cannot send.
        seen: what of the revision's has come: results by method, and messages of the server's own.
    """

    server: ServerProcess
    revision: str
    lacks: frozenset[str] = frozenset()
    seen: set[str] = field(factory=set)
    _checked: int = 0
    _asked: dict[int, str] = field(factory=dict)
    _read: dict[str, int] = field(factory=dict)

    @property
    def stateless(self) -> bool:
        return self.revision == STATELESS

    def ask(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; return its id."""
        request_id = self.server.ask(method, self._complete(params or {}))
        self._asked[request_id] = method
        return request_id

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        answer = self.server.answer(self.ask(method, params))
        self.check()
        return answer

    def notified(self, method: str) -> dict[str, Any]:
        """Wait for the next message of this method."""
        position = self._read.get(method, 0)

        def all_of_them() -> list[dict[str, Any]]:
            return [each for each in self.server.messages if each.get("method") == method]

        self.server.wait_until(lambda: len(all_of_them()) > position, method)
        self._read[method] = position + 1
        self.check()
        return all_of_them()[position]

    def check(self) -> None:
        """Check every message that has come since."""
        messages = self.server.messages[self._checked :]
        self._checked += len(messages)
        for message in messages:
            if "result" in message:
                method = self._asked[message["id"]]
                official_types.check_result(self.revision, method, message["result"])
                self.seen.add(method)
            else:
                official_types.check_message(self.revision, message)
                self.seen.add(message.get("method", "error"))

    def _complete(self, params: dict[str, Any]) -> dict[str, Any]:
        if not self.stateless:
            return params
        meta = {
            "io.modelcontextprotocol/protocolVersion": self.revision,
            "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
            "io.modelcontextprotocol/logLevel": "debug",
            **params.get("_meta", {}),
        }
        return {**params, "_meta": meta}


@pytest.fixture
def connect() -> Iterator[Callable[[str], ProcessClient]]:
    """Start a server and speak a revision with it."""
    with ServerProcess(command("serve", str(APP)), environment()) as server:
        yield lambda revision: ProcessClient(server, revision)


@pytest.mark.rule("REV-03", "REV-08")
@pytest.mark.parametrize("revision", official_types.REVISIONS[:-1])
def test_in_the_handshake_mode(connect: Callable[[str], ProcessClient], revision: str) -> None:
    client = connect(revision)
    info = {"name": "tests", "version": "0"}
    hello = {"protocolVersion": revision, "capabilities": CAPABILITIES, "clientInfo": info}
    assert client.request("initialize", hello)["result"]["protocolVersion"] == revision
    client.server.send("notifications/initialized")
    client.request("ping")
    client.request("logging/setLevel", {"level": "debug"})
    _look(client)

    for sent in _requests_of(revision):
        _answer(client, ASKING[sent], sent)
    if "notifications/elicitation/complete" in _known(revision):
        _answer(client, "ask_elsewhere", "elicitation/create")
        if "notifications/elicitation/complete" not in client.lacks:
            client.notified("notifications/elicitation/complete")
    withdrawn = client.ask("tools/call", {"name": "ask_roots", "arguments": {}})
    client.notified("roots/list")
    client.server.cancel(withdrawn)
    client.notified("notifications/cancelled")

    client.request("resources/subscribe", {"uri": "note://today"})
    _change(client)
    client.request("resources/unsubscribe", {"uri": "note://today"})
    assert client.server.finish() == 0
    client.check()
    assert client.seen >= _known(revision) - client.lacks


@pytest.mark.rule("REV-03", "REV-06", "REV-07")
def test_in_the_stateless_mode(connect: Callable[[str], ProcessClient]) -> None:
    client = connect(STATELESS)
    client.request("server/discover")
    _look(client)
    for tool in ASKING.values():
        required = client.request("tools/call", {"name": tool, "arguments": {}})["result"]
        assert required["resultType"] == "input_required"
        [(key, sent)] = required["inputRequests"].items()
        again = {
            "name": tool,
            "arguments": {},
            "inputResponses": {key: RESPONSES[sent["method"]]},
            "requestState": required["requestState"],
        }
        assert client.request("tools/call", again)["result"]["resultType"] == "complete"

    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["note://today"],
    }
    client.ask("subscriptions/listen", {"notifications": wanted})
    client.notified("notifications/subscriptions/acknowledged")
    _change(client)
    assert client.server.finish() == 0
    client.check()
    # It asks nothing, so there is nothing that it could withdraw.
    assert client.seen >= _known(STATELESS) - {"notifications/cancelled"}


def _look(client: ProcessClient) -> None:
    """Everything that is answered at once."""
    for method, params in LOOKING:
        assert "result" in client.request(method, params), (method, params)
    for method, params in REFUSED:
        assert "error" in client.request(method, params), (method, params)
    client.server.write(b"no JSON\n")
    client.server.wait_until(
        lambda: any("error" in each and each["id"] is None for each in client.server.messages),
        "an error that answers no request",
    )
    client.check()


def _answer(client: ProcessClient, tool: str, sent: str) -> None:
    """Call a tool that asks, and answer it."""
    call = client.ask("tools/call", {"name": tool, "arguments": {}})
    asked = client.notified(sent)
    client.server.write(
        orjson.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": RESPONSES[sent]}) + b"\n"
    )
    assert client.server.answer(call)["result"]["isError"] is False
    client.check()


def _change(client: ProcessClient) -> None:
    """Change a resource and every list."""
    client.request("tools/call", {"name": "touch", "arguments": {"uri": "note://today"}})
    client.notified("notifications/resources/updated")
    client.request("tools/call", {"name": "learn", "arguments": {}})
    for noun in ("tools", "resources", "prompts"):
        client.notified(f"notifications/{noun}/list_changed")


def _requests_of(revision: str) -> list[str]:
    """Return the methods that a server can ask its client, in a revision."""
    return [
        method for method, date in methods.SERVER_REQUESTS if date == revision and method in ASKING
    ]


def _known(revision: str) -> set[str]:
    """Return the methods whose results or messages a server of this revision can send."""
    tables = (methods.SERVER_RESULTS, methods.SERVER_NOTIFICATIONS)
    known = {method for table in tables for method, date in table if date == revision}
    return known | {*_requests_of(revision), "error"}
