"""What a client opens with, and what it does with whatever comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.errors import (
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    NotOfferedError,
)
from foundation_rt.client.resilience.error_mapping import map_http_status, map_mcp_error
from foundation_rt.client.session.handshake import Handshake, HandshakeRequest, ServerDescription
from foundation_rt.protocol.peer import SERVER_INFO_KEY
from foundation_rt.protocol.revisions import (
    HANDSHAKE_REVISIONS,
    REVISIONS,
    STATELESS_REVISIONS,
    Revision,
)

OLD, MIDDLE, NEWER, NEW = HANDSHAKE_REVISIONS
[MODERN] = STATELESS_REVISIONS
INFO = {"name": "c", "version": "1", "title": "C"}

Answer = Mapping[str, Any] | MCPError


# -- servers, by what they answer to an opening


@define
class RevisionServer:
    """Answers openings as a server would that speaks these revisions."""

    speaks: Sequence[str]
    discover: Answer | None = None
    initialize: Answer | None = None

    def answer(self, opening: HandshakeRequest) -> Answer:
        is_discovery = opening.method == "server/discover"
        said = self.discover if is_discovery else self.initialize
        if said is not None:
            return said
        return self._discovered(opening) if is_discovery else self._initialized(opening)

    def _discovered(self, opening: HandshakeRequest) -> Answer:
        if not {*self.speaks} & {*STATELESS_REVISIONS}:
            return error(-32601, "server/discover")
        if opening.revision.name not in self.speaks:
            return unsupported(*self.speaks)
        meta = {SERVER_INFO_KEY: {"name": "s"}}
        return {"supportedVersions": [*self.speaks], "capabilities": {}, "_meta": meta}

    def _initialized(self, opening: HandshakeRequest) -> Answer:
        older = [name for name in self.speaks if name in HANDSHAKE_REVISIONS]
        if not older:
            return unsupported(*self.speaks)
        name = opening.revision.name
        return introduced(name if name in older else max(older))


def introduced(name: str) -> dict[str, Any]:
    return {"protocolVersion": name, "capabilities": {}, "serverInfo": {"name": "s"}}


def error(code: int, method: str, data: Any = None) -> MCPError:
    return map_mcp_error({"code": code, "message": "No.", "data": data}, method)


def unsupported(*names: Any, code: int = -32022, method: str = "initialize") -> MCPError:
    return error(code, method, {"supported": [*names], "requested": "?"})


Trace = list[tuple[str, str]]


def run(
    server: RevisionServer, forced: str | None = None, known: str | None = None
) -> tuple[Trace, ServerDescription | MCPError]:
    """Return what the handshake opens, in order, and its outcome."""
    handshake = Handshake(INFO, lambda _: {}, _revision(forced), _revision(known))
    trace: Trace = []
    outcome: HandshakeRequest | ServerDescription = handshake.first()
    try:
        while isinstance(outcome, HandshakeRequest):
            assert len(trace) < 8, "it does not end"
            trace.append((outcome.method, outcome.revision.name))
            answer = server.answer(outcome)
            if isinstance(answer, MCPError):
                outcome = handshake.refused(outcome, answer)
            else:
                outcome = handshake.answered(outcome, answer)
    except MCPError as problem:
        return trace, problem
    return trace, outcome


def _revision(name: str | None) -> Revision | None:
    return None if name is None else REVISIONS[name]


def discover(name: str = MODERN) -> tuple[str, str]:
    return ("server/discover", name)


def initialize(name: str = NEW) -> tuple[str, str]:
    return ("initialize", name)


def check(
    server: RevisionServer,
    openings: Trace,
    end: str,
    forced: str | None = None,
    known: str | None = None,
) -> None:
    """`end`: the revision that is spoken then, or the code of the error."""
    trace, outcome = run(server, forced, known)
    assert trace == openings
    assert (outcome.code if isinstance(outcome, MCPError) else outcome.revision.name) == end


# -- what is said


@pytest.mark.rule("CLIENT-04")
@pytest.mark.parametrize("name", HANDSHAKE_REVISIONS)
def test_initialize_has_only_members_of_its_revision(name: str) -> None:
    handshake = Handshake(INFO, lambda revision: {"roots": {"of": revision.name}}, REVISIONS[name])
    opening = handshake.first()
    info = INFO if name >= NEWER else {"name": "c", "version": "1"}
    assert opening.method == "initialize"
    assert opening.params == {
        "protocolVersion": name,
        "capabilities": {"roots": {"of": name}},
        "clientInfo": info,
    }


# -- servers that are well


@pytest.mark.rule("CLIENT-01")
@pytest.mark.parametrize("speaks", [[MODERN], [*REVISIONS], ["2099-01-01", MODERN], [MODERN, OLD]])
def test_stateless_server_gets_one_request(speaks: list[str]) -> None:
    check(RevisionServer(speaks), [discover()], MODERN)
    check(RevisionServer(speaks), [discover()], MODERN, forced=MODERN)
    check(RevisionServer(speaks), [discover()], MODERN, known=MODERN)


# -- servers that refuse


@pytest.mark.rule("CLIENT-02")
@pytest.mark.parametrize(
    ("names", "then", "end"),
    [
        ([OLD, NEWER], initialize(NEWER), NEWER),
        (["2099-01-01", OLD, 5, None], initialize(OLD), OLD),
        (["2099-01-01"], None, "E206"),
        ([], None, "E206"),
        ([5, [], {}], None, "E206"),
    ],
)
def test_refused_revision_is_replaced_by_the_newest_common_one(
    names: list[Any], then: tuple[str, str] | None, end: str
) -> None:
    openings = [discover(), *([then] if then else [])]
    check(RevisionServer([OLD, NEWER], discover=unsupported(*names)), openings, end)
    if names:  # in its answer, and not in an error
        listed = {"supportedVersions": names, "capabilities": {}}
        is_none = not any(type(name) is str for name in names)
        if is_none:
            openings, end = [discover(), initialize()], NEWER
        check(RevisionServer([OLD, NEWER], discover=listed), openings, end)


@pytest.mark.rule("CLIENT-02")
@pytest.mark.parametrize("code", [-32602, -32600, -32000, -32022])
def test_refused_initialize_is_repeated_with_the_servers_revision(code: int) -> None:
    handshake = Handshake(INFO, lambda _: {}, None, REVISIONS[NEW])
    again = handshake.refused(handshake.first(), unsupported(MIDDLE, OLD, code=code))
    assert (again.method, again.revision.name) == initialize(MIDDLE)


LEGACY_REFUSALS: dict[str, MCPError] = {
    "an unknown method": error(-32601, "server/discover"),
    "not initialized": error(-32002, "server/discover"),
    "invalid params": error(-32602, "server/discover"),
    "other revisions, in the older way": unsupported(NEW, code=-32602, method="server/discover"),
    "a failure": error(-32603, "server/discover"),
    "an error of its own": error(-1, "server/discover"),
    "an error that is none": map_mcp_error("no", "server/discover"),
    "400": map_http_status(400),
    "404": map_http_status(404),
    "405": map_http_status(405),
    "500": map_http_status(500),
    "a time out": map_http_status(504),
    "no answer": InvalidResponseError("the response is neither JSON nor a stream of events"),
}


@pytest.mark.rule("CLIENT-35")
@pytest.mark.parametrize("name", LEGACY_REFUSALS)
def test_any_other_refusal_of_discover_leads_to_initialize(name: str) -> None:
    refusal = LEGACY_REFUSALS[name]
    check(RevisionServer([NEW], discover=refusal), [discover(), initialize()], NEW)
    # A server that understood all but the method is of the other kind; a failure is one.
    is_failure = refusal.original_code in (None, -32603)
    code = refusal.code if is_failure else "E206"
    check(RevisionServer([NEW], discover=refusal), [discover()], code, forced=MODERN)


@pytest.mark.rule("CLIENT-35")
@pytest.mark.parametrize(
    "result",
    [
        {},
        {"supportedVersions": None},
        {"supportedVersions": MODERN},
        {"supportedVersions": {MODERN: 1}},
        {"supportedVersions": [5]},
        {"tools": []},
        introduced(NEW),
    ],
    ids=repr,
)
def test_an_answer_that_names_no_revision_is_of_an_older_server(result: dict[str, Any]) -> None:
    check(RevisionServer([NEW], discover=result), [discover(), initialize()], NEW)
    check(RevisionServer([NEW], discover=result), [discover()], "E209", forced=MODERN)


FINAL_REFUSALS: dict[str, MCPError] = {
    "other headers": error(-32020, "server/discover"),
    "a missing capability": error(-32021, "server/discover", {"requiredCapabilities": {}}),
    "401": map_http_status(401),
    "403": map_http_status(403),
    "429": map_http_status(429),
    "a lost connection": ConnectionLostError("gone", may_have_run=True),
}


@pytest.mark.rule("CLIENT-35")
@pytest.mark.parametrize("name", FINAL_REFUSALS)
def test_nothing_else_is_tried_where_it_would_be_of_no_use(name: str) -> None:
    refusal = FINAL_REFUSALS[name]
    trace, outcome = run(RevisionServer([NEW], discover=refusal))
    assert (trace, outcome) == ([discover()], refusal)


@pytest.mark.rule("CLIENT-02")
@pytest.mark.parametrize("name", [*LEGACY_REFUSALS, *FINAL_REFUSALS])
def test_an_initialize_that_is_refused_without_names_is_the_end(name: str) -> None:
    refusal = {**LEGACY_REFUSALS, **FINAL_REFUSALS}[name]
    if not name.startswith("other revisions"):
        trace, outcome = run(RevisionServer([], initialize=refusal))
        assert (trace, outcome) == ([discover(), initialize()], refusal)


# -- introductions


@pytest.mark.rule("CLIENT-08")
@pytest.mark.parametrize(
    ("result", "code"),
    [
        (introduced("2099-01-01"), "E206"),
        (introduced(""), "E206"),
        (introduced(MODERN), "E206"),
        ({}, "E209"),
        ({"protocolVersion": 5, "capabilities": {}}, "E209"),
        ({"protocolVersion": None}, "E209"),
        ({"protocolVersion": [NEW]}, "E209"),
        ({"protocolVersion": NEW}, "E209"),
        ({"protocolVersion": NEW, "capabilities": None}, "E209"),
        ({"protocolVersion": NEW, "capabilities": []}, "E209"),
    ],
    ids=repr,
)
def test_an_introduction_without_revision_or_capabilities_is_none(
    result: dict[str, Any], code: str
) -> None:
    check(RevisionServer([NEW], initialize=result), [discover(), initialize()], code)
    nothing = {"supportedVersions": [MODERN], "capabilities": result.get("capabilities", [])}
    if nothing["capabilities"] != {}:
        check(RevisionServer([], discover=nothing), [discover()], "E209")


@pytest.mark.rule("CLIENT-08")
def test_description_keeps_members_of_the_right_type() -> None:
    said = {**introduced(NEW), "instructions": "Ask.", "serverInfo": {"name": "s", "x": 1}}
    _, server = run(RevisionServer([], initialize=said), forced=NEW)
    assert isinstance(server, ServerDescription)
    assert (server.name, server.instructions) == ("s", "Ask.")
    assert server.implementation == {"name": "s", "x": 1}
    odd = {**introduced(NEW), "instructions": ["Ask."], "serverInfo": "s"}
    _, server = run(RevisionServer([], initialize=odd), forced=NEW)
    assert isinstance(server, ServerDescription)
    assert (server.name, server.instructions, server.implementation) == ("", None, {})


@pytest.mark.rule("CLIENT-01")
@pytest.mark.parametrize(
    ("members", "name"),
    [
        ({"_meta": {SERVER_INFO_KEY: {"name": "in meta"}}}, "in meta"),
        ({"serverInfo": {"name": "beside"}}, "beside"),
        ({"_meta": {SERVER_INFO_KEY: 5}}, ""),
        ({"_meta": 5}, ""),
        ({}, ""),
    ],
)
def test_a_stateless_server_says_its_name_in_meta(members: dict[str, Any], name: str) -> None:
    result = {"supportedVersions": [MODERN], "capabilities": {}, **members}
    _, server = run(RevisionServer([], discover=result))
    assert isinstance(server, ServerDescription)
    assert server.name == name


@pytest.mark.rule("CLIENT-08")
def test_error_lists_revisions_in_bounded_length() -> None:
    names = ["\x1b[2J" + "x" * 5000] * 1000
    _, problem = run(RevisionServer([], discover=unsupported(*names)))
    assert isinstance(problem, MCPError)
    assert problem.code == "E206"
    assert len(problem.message) < 15_000
    assert "\x1b" not in problem.message
    assert MODERN in problem.message
    assert problem.data == {"supported": names}
    _, problem = run(RevisionServer([], initialize=introduced("\x1b\n")))
    assert isinstance(problem, MCPError)
    assert problem.message.isprintable()


# -- what is known of a server

DEEP: Any = orjson.loads(b'{"a":' * 1000 + b"1" + b"}" * 1000)


def server(capabilities: Any = None, **implementation: Any) -> ServerDescription:
    return ServerDescription(REVISIONS[NEW], capabilities or {}, implementation)


@pytest.mark.rule("CLIENT-06")
@pytest.mark.parametrize(
    ("declared", "is_offered"),
    [
        ({}, True),
        ({"listChanged": False}, True),
        (True, True),
        ([], True),
        (None, False),
        (False, False),
    ],
    ids=repr,
)
def test_a_capability_is_there_unless_it_is_denied(declared: Any, is_offered: bool) -> None:
    assert server({"tools": declared}).can("tools") is is_offered


@pytest.mark.rule("CLIENT-06")
def test_a_capability_within_another_one_is_named_by_its_path() -> None:
    known = server({"resources": {"subscribe": True, "listChanged": False}, "tools": True})
    assert known.can("resources", "subscribe")
    assert not known.can("resources", "listChanged")
    assert not known.can("tools", "listChanged")
    assert not known.can("prompts", "listChanged")
    known.check(["resources.subscribe", "tools"])
    known.check([])


@pytest.mark.rule("CLIENT-06")
@pytest.mark.parametrize("name", ["tools", "resources", "prompts", None])
def test_one_of_three_capabilities_is_enough(name: str | None) -> None:
    if name is not None:
        server({"logging": {}, name: {}}).check_any()
        return
    with pytest.raises(NotOfferedError) as caught:
        server({"logging": {}}).check_any()
    assert caught.value.code == "E205"


@pytest.mark.rule("CLIENT-06")
def test_the_first_that_is_missing_is_named() -> None:
    with pytest.raises(NotOfferedError) as caught:
        server({"resources": {}}).check({"tools", "resources", "resources.subscribe", "prompts"})
    assert (caught.value.code, caught.value.capability) == ("E205", "prompts")
    assert not caught.value.may_have_run
    assert not caught.value.retryable


def test_name_and_version_are_used_if_they_are_text() -> None:
    known = server(name="s", version="1.0")
    assert (known.name, known.version) == ("s", "1.0")
    for said in ({}, {"name": None, "version": 1}, {"name": DEEP, "version": [DEEP]}):
        known = server(**said)
        assert (known.name, known.version) == ("", "")


# -- who may have ended it


@pytest.mark.rule("CLIENT-37")
def test_server_that_ends_is_started_again_only_if_discover_may_be_the_cause() -> None:
    def handshake(forced: str | None = None, known: str | None = None) -> Handshake:
        return Handshake(INFO, lambda _: {}, _revision(forced), _revision(known))

    assert handshake().may_have_ended_it
    assert not handshake(forced=MODERN).may_have_ended_it
    assert not handshake(known=MODERN).may_have_ended_it
    refused, named, answered = handshake(), handshake(), handshake()
    refused.refused(refused.first(), error(-32601, "server/discover"))
    assert refused.may_have_ended_it
    named.refused(named.first(), unsupported(MODERN))
    assert not named.may_have_ended_it
    answered.answered(answered.first(), {})
    assert not answered.may_have_ended_it


# -- anything at all

names = st.sampled_from([*REVISIONS, "2099-01-01", "", 5])
data = st.none() | st.just("x") | st.fixed_dictionaries({"supported": st.lists(names) | st.none()})
refusals = st.builds(
    error,
    st.sampled_from([-32700, -32603, -32602, -32601, -32002, -32020, -32021, -32022, -32042, 0]),
    st.sampled_from(["server/discover", "initialize"]),
    data,
) | st.sampled_from([*LEGACY_REFUSALS.values(), *FINAL_REFUSALS.values()])
results = st.fixed_dictionaries(
    {},
    optional={
        "protocolVersion": names,
        "supportedVersions": st.lists(names) | names,
        "capabilities": st.sampled_from([{}, None, []]),
        "serverInfo": st.sampled_from([{}, None, "s"]),
        "_meta": st.sampled_from([{}, None, "s", {SERVER_INFO_KEY: []}]),
    },
)


@pytest.mark.rule("CLIENT-01", "CLIENT-37", "CLIENT-08")
@given(
    forced=st.none() | st.sampled_from([*REVISIONS]),
    known=st.none() | st.sampled_from([*REVISIONS]),
    answers=st.lists(refusals | results, min_size=8, max_size=8),
)
def test_whatever_a_server_answers_it_ends_after_a_few_openings(
    forced: str | None, known: str | None, answers: list[Answer]
) -> None:
    class Whatever(RevisionServer):
        def answer(self, opening: HandshakeRequest) -> Answer:
            return answers.pop()

    trace, outcome = run(Whatever([]), forced, known)
    if forced is not None:
        assert {name for _, name in trace} == {forced}
    for method, name in trace:
        assert (method == "server/discover") is (name in STATELESS_REVISIONS)
    if isinstance(outcome, ServerDescription):
        assert outcome.revision.is_stateless is (trace[-1][0] == "server/discover")
