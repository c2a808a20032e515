"""The table of sessions: whose they are, how many, and for how long."""

from __future__ import annotations

import re

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from foundation_rt.clock import ManualClock
from foundation_rt.protocol.principal import Principal
from foundation_rt.transports.http.sessions import SessionTable, new_session_id

ALICE, BOB = Principal("alice"), Principal("bob")
IDLE_MS = 10_000


@define(eq=False)
class Content:
    """Stands for a connection."""

    is_busy: bool = False
    closed: list[str] = field(factory=list)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def table(max_sessions: int = 3) -> tuple[SessionTable[Content], ManualClock]:
    clock = ManualClock()
    return SessionTable(clock, max_sessions, IDLE_MS), clock


@pytest.mark.rule("AUTH-15")
def test_ids_are_long_new_and_visible() -> None:
    ids = {new_session_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("[A-Za-z0-9_-]{43}", each) for each in ids)


@pytest.mark.rule("AUTH-11", "AUTH-14")
@pytest.mark.parametrize(
    ("owner", "visitor", "found"),
    [
        (ALICE, ALICE, True),
        (ALICE, Principal("alice", frozenset(("more",))), True),
        (ALICE, Principal("alice", client_id="other client"), False),
        (ALICE, BOB, False),
        (ALICE, None, False),
        (None, ALICE, False),
        (None, None, True),
    ],
)
def test_a_session_is_its_principals(
    owner: Principal | None, visitor: Principal | None, found: bool
) -> None:
    sessions, _ = table()
    content = Content()
    session_id = sessions.add(content, owner)
    assert sessions.get(session_id, visitor) is (content if found else None)
    assert content.closed == []


@pytest.mark.parametrize("session_id", [None, "", "nobody's", "\x00"])
def test_an_id_that_was_not_given_out_is_nobodys(session_id: str | None) -> None:
    sessions, _ = table()
    sessions.add(Content(), ALICE)
    assert sessions.get(session_id, ALICE) is None


@pytest.mark.rule("AUTH-16")
def test_there_are_only_so_many() -> None:
    sessions, clock = table()
    contents = []
    for _ in range(3):
        assert sessions.make_room() is None
        contents.append(Content())
        sessions.add(contents[-1], ALICE)
        clock.advance(3)
    refusal = sessions.make_room()
    assert refusal is not None
    assert (refusal.status, refusal.headers[0][0]) == (503, b"retry-after")
    clock.advance(3)
    assert sessions.make_room() is None
    assert [content.closed for content in contents] == [["session_expired"], [], []]


@pytest.mark.rule("AUTH-17")
def test_a_session_that_nobody_uses_is_closed() -> None:
    sessions, clock = table()
    content = Content()
    session_id = sessions.add(content, ALICE)
    for _ in range(5):
        clock.advance(9)
        assert sessions.get(session_id, ALICE) is content
        assert sessions.expire() == 0
    clock.advance(9)
    sessions.touch(session_id)
    clock.advance(9)
    assert sessions.expire() == 0
    clock.advance(1)
    assert sessions.get(session_id, ALICE) is None
    assert content.closed == ["session_expired"]
    assert len(sessions) == sessions.expire() == 0
    sessions.touch(session_id)


@pytest.mark.rule("AUTH-17")
def test_a_session_that_is_busy_is_not_idle() -> None:
    sessions, clock = table()
    content = Content(is_busy=True)
    session_id = sessions.add(content, ALICE)
    clock.advance(60)
    assert sessions.get(session_id, ALICE) is content
    clock.advance(60)
    assert sessions.expire() == 0
    content.is_busy = False
    clock.advance(60)
    assert sessions.expire() == 1


@pytest.mark.rule("AUTH-18")
def test_a_session_ends_once() -> None:
    sessions, _ = table()
    contents = [Content() for _ in range(3)]
    ids = [sessions.add(content, ALICE) for content in contents]
    sessions.end(ids[0], "deleted")
    sessions.end(ids[0], "again")
    assert sessions.get(ids[0], ALICE) is None
    sessions.end_all("shutdown")
    sessions.end_all("shutdown")
    assert [content.closed for content in contents] == [["deleted"], ["shutdown"], ["shutdown"]]
    assert len(sessions) == 0


class Table(RuleBasedStateMachine):
    """Whatever happens in whatever order: a session is there, or was closed once."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.sessions, self.clock = table(max_sessions=4)
        self.contents: dict[str, Content] = {}
        self.used: dict[str, float] = {}

    @rule(target=ids, is_busy=st.booleans())
    def add(self, is_busy: bool) -> str:
        if self.sessions.make_room() is not None:
            assert len(self.sessions) == 4
            return "none"
        content = Content(is_busy)
        session_id = self.sessions.add(content, ALICE)
        self.contents[session_id] = content
        self.used[session_id] = self.clock.monotonic()
        return session_id

    @rule(session_id=ids, principal=st.sampled_from([ALICE, BOB, None]))
    def get(self, session_id: str, principal: Principal | None) -> None:
        content = self.sessions.get(session_id, principal)
        if content is not None:
            assert content is self.contents[session_id]
            assert principal is ALICE
            idle = self.clock.monotonic() - self.used[session_id]
            assert content.is_busy or idle < IDLE_MS / 1000
            self.used[session_id] = self.clock.monotonic()

    @rule(session_id=ids)
    def end(self, session_id: str) -> None:
        self.sessions.end(session_id, "deleted")

    @rule(session_id=ids)
    def rest(self, session_id: str) -> None:
        if session_id in self.contents:
            self.contents[session_id].is_busy = False
            self.sessions.touch(session_id)
            self.used[session_id] = self.clock.monotonic()

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        self.sessions.expire()

    @invariant()
    def each_is_there_or_was_closed_once(self) -> None:
        closed = [content for content in self.contents.values() if content.closed]
        assert all(len(content.closed) == 1 for content in closed)
        assert len(self.sessions) == len(self.contents) - len(closed) <= 4


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
