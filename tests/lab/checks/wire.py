"""Checks what a server sends and logs against spec/schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
from attrs import define, field

from foundation_rt.kernel.records import REQUEST_COMPLETED, TOOL_CALL_COMPLETED
from foundation_rt.protocol.jsonrpc import Request
from foundation_rt.protocol.methods import METHODS, SERVER_DISCOVER

FOLDER = Path(__file__).parents[3] / "spec" / "schemas"
RESULTS = {
    "completion/complete": "completion-result",
    "initialize": "initialize-result",
    "prompts/get": "prompts-get-result",
    "prompts/list": "prompts-list-result",
    "resources/list": "resources-list-result",
    "resources/read": "resources-read-result",
    "resources/templates/list": "resource-templates-list-result",
    "subscriptions/listen": "subscriptions-listen-result",
    "tools/list": "tools-list-result",
    "tools/call": "tools-call-result",
}


def schema(name: str) -> dict[str, Any]:
    """Return a schema of spec/schemas."""
    found: dict[str, Any] = orjson.loads((FOLDER / f"{name}.schema.json").read_bytes())
    return found


VALIDATORS = {
    path.name.removesuffix(".schema.json"): jsonschema_rs.validator_for(
        orjson.loads(path.read_bytes())
    )
    for path in FOLDER.glob("*.schema.json")
}


def problems(name: str, value: Any) -> list[str]:
    """Return the errors of a value by the schema of that name."""
    return [f"{name}: {error}" for error in VALIDATORS[name].iter_errors(value)]


def _schema_of(message: dict[str, Any]) -> str:
    """Return the name of the schema of a message that is no response."""
    if "id" in message:
        return "server-request"
    return "notification" if "params" in message else "list-changed"


@define
class WireChecker:
    """Fails on what the schemas do not allow.

    Attributes:
        used: the schemas that something was checked against.
    """

    used: set[str] = field(factory=set)

    def check_line(self, request: Request | None, line: bytes) -> None:
        """Check a line that was sent, with the request it answers if that is known."""
        message = orjson.loads(line)
        if "method" in message:
            self._check(_schema_of(message), message)
            return
        self._check("json-rpc-response", message)
        if "error" in message:
            self._check("json-rpc-error", message["error"])
            return
        assert request is not None
        result = message["result"]
        if request.method not in RESULTS:
            # What it returns is held to the official types, by tests/test_official_vectors.py.
            has_own_result = request.method == SERVER_DISCOVER or request.method not in METHODS
            assert result == {} or has_own_result
            return
        if result.get("resultType") == "input_required":
            self._check("input-required-result", result)
            return
        self._check(RESULTS[request.method], result)
        if request.method == "tools/call":
            if request.params["name"] == "show":
                return  # a text of its own, and no JSON
            text = result["content"][0]["text"]
            if result["isError"]:
                self._check("structured-error", orjson.loads(text))
            elif request.params["name"] == "health":
                self._check("health-report", orjson.loads(text))

    def check_record(self, record: dict[str, Any]) -> None:
        """Check a record of the log."""
        self._check("log-record", record)
        if record["message"] in (TOOL_CALL_COMPLETED, REQUEST_COMPLETED):
            self._check("completion-record", record)

    def _check(self, name: str, value: Any) -> None:
        self.used.add(name)
        found = problems(name, value)
        assert not found, (found, value)
