"""What the vectors have a server send is what the official types of its revision say.

The vectors are the specification of this runtime; the types are what the rest of the world has.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.protocol.methods import METHODS
from tests.lab.peers.vectors import Vector, load

OURS = {"initialized"}
"""Requests that are answered though no revision has them (LIFE-05)."""

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
VERSION = "io.modelcontextprotocol/protocolVersion"


@pytest.mark.rule("REV-03", "REV-06")
@pytest.mark.parametrize("vector", load(), ids=lambda vector: vector.id)
def test_what_a_vector_sends_is_of_the_official_types(vector: Vector) -> None:
    from tests.lab.checks import official_types  # not above: its models take each worker a second

    requests: dict[Any, tuple[str, str]] = {}
    revision = "2025-11-25"
    rest = b""
    for step in vector.steps:
        *lines, rest = (rest + step.data).split(b"\n")
        requests |= _requests([*lines, rest], revision)
        for message in (each for sent in step.out for each in _several(sent)):
            meta = _member(message.get("params"), "_meta")
            answered = message.get("id", _member(meta, SUBSCRIPTION))
            method, spoken = requests.get(answered, ("", revision))
            if "result" not in message:
                official_types.check_message(spoken, message)
                continue
            if method == "initialize":
                spoken = revision = message["result"]["protocolVersion"]
            if method in METHODS and method not in OURS:
                official_types.check_result(spoken, method, message["result"])


def _requests(lines: list[bytes], revision: str) -> dict[Any, tuple[str, str]]:
    """Return the requests in some files, by id, each with its revision."""
    found = {}
    for line in lines:
        try:
            messages = _several(orjson.loads(line))
        except ValueError:
            continue
        for message in messages:
            if isinstance(message, dict) and isinstance(message.get("id"), str | int):
                spoken = _member(_member(message.get("params"), "_meta"), VERSION)
                found[message["id"]] = (str(message.get("method")), spoken or revision)
    return found


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _several(message: Any) -> list[Any]:
    return message if isinstance(message, list) else [message]
