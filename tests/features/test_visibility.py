"""Tags, predicates and switches, as clients see them."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Principal, RegistrationError, Server, ToolDefinition, UsageError
from tests.lab.servers.fixture import ServerFixture, ServerPeer

ANN, BEN = Principal("ann", frozenset(("admin",))), Principal("ben")
CHANGED = "notifications/tools/list_changed"


def add_all(server: Server, name: str, **options: Any) -> None:
    """Add one entry of each kind."""

    def value(v: Literal["a"] = "a") -> str:
        return v

    server.tool(name=name, inline=True, **options)(value)
    server.resource(f"a:{name}", name=name, inline=True, **options)(lambda: name)
    server.resource(f"t:{name}/{{v}}", name=name, inline=True, **options)(value)
    server.prompt(name=name, inline=True, **options)(value)


def connect(fixture: ServerFixture, principal: Principal | None) -> ServerPeer:
    peer = fixture.connect()
    peer.connection.session.principal = principal
    return peer


def ask(peer: ServerPeer, method: str, params: Any = None) -> dict[str, Any]:
    answer = peer.answer(peer.ask(method, params))
    peer.take()
    return answer


def names(peer: ServerPeer) -> list[set[str]]:
    """Return the names in each list of the server."""
    lists = [
        ask(peer, method)["result"][member]
        for method, member in {
            "tools/list": "tools",
            "resources/list": "resources",
            "resources/templates/list": "resourceTemplates",
            "prompts/list": "prompts",
        }.items()
    ]
    return [{each["name"] for each in found} - {"health"} for found in lists]


def uses(peer: ServerPeer, name: str) -> list[Any]:
    """Return the answers of requests that use each entry of that name, without their ids."""
    ref = {"type": "ref/prompt", "name": name}
    answers = [
        ask(peer, "tools/call", {"name": name}),
        ask(peer, "resources/read", {"uri": f"a:{name}"}),
        ask(peer, "resources/subscribe", {"uri": f"a:{name}"}),
        ask(peer, "resources/read", {"uri": f"t:{name}/a"}),
        ask(peer, "prompts/get", {"name": name}),
        ask(peer, "completion/complete", {"ref": ref, "argument": {"name": "v", "value": ""}}),
        ask(
            peer,
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": f"t:{name}/{{v}}"},
                "argument": {"name": "v", "value": ""},
            },
        ),
    ]
    for answer in answers:
        del answer["id"]
    return [
        answer.get("error", answer.get("result", {}).get("isError") and answer["result"]["content"])
        for answer in answers
    ]


def without_ids(answers: list[Any], name: str) -> str:
    text = str(answers).replace(name, "?")
    return "".join(each for each in text if each not in "0123456789abcdef-")


@pytest.mark.rule("VIS-01", "VIS-02")
@pytest.mark.parametrize("visible", [lambda principal: principal == ANN, {"admin"}])
def test_entry_is_not_there_for_principals_that_do_not_see_it(visible: Any) -> None:
    fixture = ServerFixture()
    add_all(fixture.server, "open")
    add_all(fixture.server, "secret", visible=visible)
    fixture.server.completion("open", "v")(lambda value: [])
    ann, ben = connect(fixture, ANN), connect(fixture, BEN)
    assert names(ann) == [{"open", "secret"}] * 4
    assert names(ben) == [{"open"}] * 4
    assert not any(uses(ann, "secret"))
    refused = uses(ben, "secret")
    assert all(refused)
    assert without_ids(refused, "secret") == without_ids(uses(ben, "missing"), "missing")
    hidden = names(connect(fixture, None)) == [{"open"}] * 4
    assert hidden is callable(visible)  # scopes hide nothing where authentication is off


@pytest.mark.rule("VIS-03")
def test_exception_of_a_predicate_answers_the_request() -> None:
    fixture = ServerFixture()
    fixture.server.tool(name="x", visible=lambda principal: 1 // 0)(lambda: 1)
    peer = connect(fixture, ANN)
    assert ask(peer, "tools/list")["error"]["code"] == -32603
    assert ask(peer, "ping")["result"] == {}


@pytest.mark.rule("VIS-04", "VIS-05")
def test_switches_take_entries_away_and_bring_them_back() -> None:
    fixture = ServerFixture()
    server = fixture.server
    add_all(server, "one", tags={"x", "y"})
    add_all(server, "two", tags={"y"})
    peer = connect(fixture, None)
    server.disable(tags={"x"})
    server.disable("two", "a:two")
    assert names(peer) == [set(), set(), {"two"}, set()]
    assert all(uses(peer, "one"))
    add_all(server, "three", tags={"x"})
    assert names(peer) == [set(), set(), {"two"}, set()]
    with pytest.raises(RegistrationError, match="already registered"):
        server.register(ToolDefinition("one", "", {"type": "object"}), lambda a, c: 1)
    server.enable(tags={"y"})
    assert names(peer) == [{"one", "two"}] * 4
    assert not any(uses(peer, "one"))
    server.disable(tags={"x"})
    assert server.unregister("one")
    server.enable(tags={"x"})
    assert names(peer) == [{"two", "three"}, *[{"one", "two", "three"}] * 3]


@pytest.mark.rule("VIS-06")
def test_only_switches_everything_else_off_but_health() -> None:
    fixture = ServerFixture()
    add_all(fixture.server, "one", tags={"x"})
    add_all(fixture.server, "two")
    peer = connect(fixture, None)
    fixture.server.enable("two", tags={"x"}, only=True)
    assert names(peer) == [{"one", "two"}, {"one"}, {"one"}, {"one", "two"}]
    assert not ask(peer, "tools/call", {"name": "health"})["result"]["isError"]
    fixture.server.disable("health")
    assert ask(peer, "tools/call", {"name": "health"})["result"]["isError"]


@pytest.mark.rule("VIS-07")
def test_changes_are_notified_to_those_who_see_them() -> None:
    fixture = ServerFixture()
    server = fixture.server
    peers = [connect(fixture, principal) for principal in (ANN, BEN)]
    for peer in peers:
        peer.take()

    def notified() -> list[list[str]]:
        fixture.clock.advance(1)  # the next change is not held
        return [[each["method"] for each in peer.take()] for peer in peers]

    server.tool(name="x", visible={"admin"}, tags={"t"})(lambda: 1)
    assert notified() == [[CHANGED], []]
    server.tool(name="y", scopes={"admin"}, tags={"t"})(lambda: 1)
    assert notified() == [[CHANGED], []]
    server.disable(tags={"t"})
    assert notified() == [[CHANGED], []]
    server.disable("x")
    assert notified() == [[], []]
    server.tool(name="z")(lambda: 1)
    assert notified() == [[CHANGED], [CHANGED]]
    server.enable("x", "y")
    assert notified() == [[CHANGED], []]


@pytest.mark.rule("VIS-01")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tags": "admin"}, r"tool 'x': tags must be several strings.*tags=\{\"admin\"\}"),
        ({"tags": [1]}, "tags must be"),
        ({"tags": ["a\n"]}, "tags must be"),
        ({"tags": 5}, "tags must be"),
        ({"visible": 5}, "visible must be a function of the principal, or scopes, not 5"),
        ({"visible": "admin"}, "scopes must be several strings"),
        ({"visible": [1]}, "no scope"),
    ],
)
def test_wrong_option_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Server("s").tool(name="x", **options)(lambda: 1)


@pytest.mark.rule("VIS-04")
def test_switch_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="name what to switch"):
        Server("s").disable()
    with pytest.raises(UsageError, match="names are strings"):
        Server("s").enable(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tags must be"):
        Server("s").enable("x", tags="y")


TAGS = st.frozensets(st.sampled_from("ab"))


@pytest.mark.rule("VIS-04")
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from("xyz"), TAGS),
            st.tuples(
                st.sampled_from(["on", "off", "only"]), st.frozensets(st.sampled_from("xyz")), TAGS
            ),
        ),
        max_size=12,
    )
)
def test_last_switch_that_concerns_an_entry_decides(steps: list[Any]) -> None:
    server = Server("s")
    tags: dict[str, frozenset[str]] = {}
    switches: list[tuple[bool, set[str] | None, frozenset[str]]] = []
    for action, which, given_tags in steps:
        if action == "add":
            if which not in tags:
                server.tool(name=which, tags=given_tags)(lambda: 1)
                tags[which] = given_tags
        elif which or given_tags:
            if action == "only":
                switches.append((False, None, frozenset()))
            switch = server.disable if action == "off" else server.enable
            switch(*which, tags=given_tags, **({"only": True} if action == "only" else {}))
            switches.append((action != "off", set(which), given_tags))
    expected = {"health"}
    for name, own in tags.items():
        found = [on for on, named, wide in switches if named is None or name in named or own & wide]
        if not found or found[-1]:
            expected.add(name)
    assert {each.name for each in server.list()} == expected
