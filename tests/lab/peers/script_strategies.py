"""Hypothesis strategies for the acts of a server that misbehaves."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.lab.peers.script import Act

_NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}
_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
_UPDATED = {
    "jsonrpc": "2.0",
    "method": "notifications/resources/updated",
    "params": {"uri": "play://one"},
}

FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
INPUT_REQUESTS = {"one": {"method": "elicitation/create", "params": FORM}}

nonces = st.integers(0, 7).map("call {}".format)
codes = st.sampled_from([-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32020])
nonsense = st.sampled_from([None, 5, "x", [], {}, {"content": 5}, {"tools": [{}]}, {"content": []}])

spoken: st.SearchStrategy[Act] = st.one_of(
    st.just(["answer"]),
    st.just(["answer", {"id": "nobody"}]),
    st.builds(lambda value: ["reply", {"result": value}], nonsense),
    st.builds(lambda code: ["reply", {"error": {"code": code, "message": "no"}}], codes),
    st.builds(lambda value: ["reply", {"error": value}], nonsense),
    st.just(["raw", '{"jsonrpc":']),
    st.sampled_from([["flood", 3, _NOTE], ["flood", 1, _CHANGED], ["flood", 1, _UPDATED]]),
    st.sampled_from([["ask", "ping", {}], ["ask", "sampling/createMessage", [1]]]),
    st.sampled_from([["progress", 1], ["page"], ["ask", "elicitation/create", FORM]]),
    st.just(["reply", {"result": {"resultType": "input_required", "requestState": "x"}}]),
    st.just(
        ["reply", {"result": {"resultType": "input_required", "inputRequests": INPUT_REQUESTS}}]
    ),
)
"""Acts that send something at once, over any transport."""

held: st.SearchStrategy[Act] = st.one_of(
    st.builds(lambda nonce: ["wait", nonce], nonces),
    st.sampled_from([["wait", "notifications/cancelled"], ["wait", "tools/list"]]),
)
"""Acts that hold those after them, perhaps for ever."""

over_stdio: st.SearchStrategy[Act] = st.sampled_from(
    [
        ["part", 0.5],
        ["noise", "Listening on port 3000\n"],
        ["noise", "half a line"],
        ["stderr", 100_000],
        ["exit", 0],
        ["exit", 3],
        ["kill"],
        ["close", "stdout"],
        ["close", "stdin"],
        ["deaf"],
        ["stubborn"],
        ["grandchild"],
    ]
)
"""Further acts of a server over stdio."""

over_http: st.SearchStrategy[Act] = st.sampled_from(
    [
        ["stream"],
        ["event", ": hello"],
        ["event", "id: 1\nretry: 1\ndata: "],
        ["finish"],
        ["cut"],
        ["part", 0.1],
        ["part", 0.8],
        ["drip", 100],
        ["status", 200, {"Content-Type": "text/html"}, "<h1>Welcome</h1>"],
        ["status", 302, {"Location": "http://127.0.0.1:1/"}],
        ["status", 404],
        ["status", 429, {"Retry-After": "1"}],
        ["status", 500],
        ["status", 503],
        ["bytes", "HTTP/9.9"],
        ["session", "made up"],
        ["forget"],
    ]
)
"""Further acts of a server over HTTP; none of them ends its process."""

in_memory: st.SearchStrategy[Act] = st.sampled_from(
    [["noise", "Listening on port 3000"], ["die"], ["fail", True], ["expire"], ["jam"], ["unjam"]]
)
"""Further acts of a server in memory."""


def acts_of_a_call(besides: st.SearchStrategy[Act]) -> st.SearchStrategy[list[Act]]:
    """Return a strategy for the acts of one call; `besides` are those of the transport."""
    return st.one_of(
        st.just([["answer"]]),
        st.builds(lambda wait: [wait, ["answer"]], held),
        st.lists(spoken | held | besides, max_size=4),
    )


def acts_at_a_point(besides: st.SearchStrategy[Act]) -> st.SearchStrategy[list[Act]]:
    """Return a strategy for the acts at a point that is not a call."""
    return st.lists(spoken | held | besides, max_size=3)


def asks_again(acts: list[Act]) -> bool:
    """Return whether these acts make the client send a call again, with the requested input."""
    return any(act[0] == "reply" and "input_required" in str(act[1].get("result")) for act in acts)


def may_refuse(acts: list[Act]) -> bool:
    """Return whether these acts may report that a call did not run, although it was received."""
    return any(
        (act[0] == "reply" and "error" in act[1])
        or (act[0] == "status" and act[1] >= 300)
        or act[0] == "expire"
        for act in acts
    )
