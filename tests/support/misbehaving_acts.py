"""Misbehaviours as hypothesis strategies: what a server may do, in the acts of its script."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.misbehaving_play import Act

_NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}
_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
_UPDATED = {
    "jsonrpc": "2.0",
    "method": "notifications/resources/updated",
    "params": {"uri": "play://one"},
}

FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
QUESTIONS = {"one": {"method": "elicitation/create", "params": FORM}}

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
    st.just(["reply", {"result": {"resultType": "input_required", "inputRequests": QUESTIONS}}]),
)
"""What is said, over any transport."""

held: st.SearchStrategy[Act] = st.one_of(
    st.builds(lambda nonce: ["wait", nonce], nonces),
    st.sampled_from([["wait", "notifications/cancelled"], ["wait", "tools/list"]]),
)
"""What goes on later, or never."""

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
"""What a process can do besides."""

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
"""What a server over HTTP can do besides; it lives on."""

in_memory: st.SearchStrategy[Act] = st.sampled_from(
    [["noise", "Listening on port 3000"], ["die"], ["fail", True], ["expire"], ["jam"], ["unjam"]]
)
"""What a channel without a transport can do besides."""


def of_a_call(besides: st.SearchStrategy[Act]) -> st.SearchStrategy[list[Act]]:
    """Return a strategy for the acts of one call."""
    return st.one_of(
        st.just([["answer"]]),
        st.builds(lambda wait: [wait, ["answer"]], held),
        st.lists(spoken | held | besides, max_size=4),
    )


def of_a_point(besides: st.SearchStrategy[Act]) -> st.SearchStrategy[list[Act]]:
    """Return a strategy for the acts at every point that is not a call."""
    return st.lists(spoken | held | besides, max_size=3)


def asks_again(acts: list[Act]) -> bool:
    """Whether a call that this is done with is sent several times, with what was asked for."""
    return any(act[0] == "reply" and "input_required" in str(act[1].get("result")) for act in acts)


def may_refuse(acts: list[Act]) -> bool:
    """Whether a server that does this may say that it did nothing, although it has got the call."""
    return any(
        (act[0] == "reply" and "error" in act[1])
        or (act[0] == "status" and act[1] >= 300)
        or act[0] == "expire"
        for act in acts
    )
