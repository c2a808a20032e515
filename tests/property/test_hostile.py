"""Bytes that mean harm, against a whole server: it answers what it must, and lives on."""

from __future__ import annotations

import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.lab.servers.fixture import HANDSHAKE
from tests.lab.sizes import examples
from tests.lab.values.hostile_bytes import assert_survived, feed_in_pieces, one_rig, rig

thorough = settings(max_examples=examples(300))
sizes = st.lists(st.integers(1, 300), max_size=6)


@pytest.mark.rule("RPC-01", "RPC-02", "ERR-06", "FRAME-01", "FRAME-04")
@thorough
@given(
    data=st.lists(
        st.binary(max_size=80) | st.sampled_from([b"\n", b"\r\n", b"{", b"}", b'"', b"\\", b"\0"]),
        max_size=30,
    ).map(b"".join),
    shake_hands=st.booleans(),
    sizes=sizes,
)
@example(data=b"\n" * 1000, shake_hands=True, sizes=[])
@example(data=b"\r" * 10_000, shake_hands=True, sizes=[7])
@example(data=b"[" * 100_000 + b"\n", shake_hands=True, sizes=[])
@example(data=b"\xff" * 9000 + b"\n", shake_hands=False, sizes=[1])
def test_random_bytes_never_end_a_connection(
    data: bytes, shake_hands: bool, sizes: list[int]
) -> None:
    made = one_rig()
    made.sink.clear()
    peer = made.connect(handshake=shake_hands)
    feed_in_pieces(peer, data, sizes)
    assert_survived(made, peer, data)


# -- conversations that were valid once ------------------------------------------------------------


def _line(method: str, params: Any = None, **members: Any) -> bytes:
    message = {"jsonrpc": "2.0", **members, "method": method}
    return orjson.dumps(message if params is None else message | {"params": params}) + b"\n"


CONVERSATION = [
    _line("initialize", HANDSHAKE, id="hello"),
    _line("notifications/initialized"),
    _line("tools/list", id=1),
    _line("tools/call", {"name": "echo", "arguments": {"message": "hi"}}, id=2),
    _line("tools/call", {"name": "echo", "arguments": {"message": "hi", "times": 3}}, id="three"),
    _line("tools/call", {"name": "echo", "arguments": {"message": 5}}, id=-4),
    _line("tools/call", {"name": "none", "arguments": {}, "_meta": {"correlationId": "c"}}, id=5),
    _line("tools/call", {"name": "echo", "arguments": {"message": "x" * 2000}}, id=6),
    _line("tools/call", {"name": "health"}, id=7),
    _line("notifications/cancelled", {"requestId": 2, "reason": "changed my mind"}),
    _line("ping", id=2**63),
    _line("no/such/method", [1, 2], id=8),
]

TOKENS = [
    b"null", b"true", b"1.5", b"-0", b"1e400", b"NaN", b"[]", b"{}", b'""', b"\n", b"\r\n", b"\0",
    b'"\\ud800"', b"\xef\xbb\xbf", b"\xc3\x28", b'"id":1,', b'"method":"ping",', b'{"name":{}}',
    b'"jsonrpc":"1.0",', b'"_meta":{"correlationId":5},', b"[" * 300, b'{"a":' * 300, b"x" * 5000,
    b"18446744073709551616", b'"params":null', b'"result":{},', b'"error":{},',
]  # fmt: skip

mutations = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "repeat", "insert", "replace", "swap lines", "drop line"]),
        st.floats(0, 1),
        st.floats(0, 1),
        st.sampled_from(TOKENS) | st.binary(min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=12,
)


def mutate(lines: list[bytes], how: str, first: float, second: float, token: bytes) -> list[bytes]:
    """One small accident to a conversation."""
    if how == "swap lines" or how == "drop line":
        lines = list(lines)
        taken = lines.pop(int(first * (len(lines) - 1)))
        if how == "swap lines":
            lines.insert(int(second * len(lines)), taken)
        return lines or [token]
    data = bytearray(b"".join(lines))
    start, end = sorted(int(share * (len(data) - 1)) for share in (first, second))
    end = min(end, start + 200)
    if how == "flip":
        data[start] ^= token[0] or 1
    elif how == "cut":
        del data[start:end]
    elif how == "repeat":
        data[end:end] = data[start:end]
    elif how == "insert":
        data[start:start] = token
    else:
        data[start : start + len(token)] = token
    return bytes(data).splitlines(keepends=True) or [token]


@pytest.mark.rule("ERR-06", "RPC-01", "RPC-02", "RPC-06", "FRAME-01")
@thorough
@given(mutations=mutations, sizes=sizes)
def test_mutated_conversations_never_end_a_connection(
    mutations: list[tuple[str, float, float, bytes]], sizes: list[int]
) -> None:
    made = one_rig()
    made.sink.clear()
    peer = made.connect(handshake=False)
    lines = CONVERSATION
    for how, first, second, token in mutations:
        lines = mutate(lines, how, first, second, token)
    data = b"".join(lines)
    feed_in_pieces(peer, data, sizes)
    assert_survived(made, peer, data)


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.rule("ERR-06", "RES-01")
def test_what_a_client_sends_leaves_nothing_behind() -> None:
    made = rig()
    peer = made.connect(handshake=False)
    data = b"".join(CONVERSATION)

    def converse(times: int) -> None:
        for _ in range(times):
            peer.connection.feed(data)
            peer.take()
            made.sink.clear()

    converse(5)
    tracemalloc.start()
    try:
        converse(1)
        before, _ = tracemalloc.get_traced_memory()
        converse(50)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000
    assert_survived(made, peer, b"")
