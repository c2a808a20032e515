"""The table of sessions: their owners, number and lifetime."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.http.session_table import (
    SessionTable,
    new_session_id,
    session_quota,
)
from foundation_rt.protocol.principal import Principal, identity_of
from tests.lab.sizes import examples

ALICE, BOB = Principal("alice"), Principal("bob")
OWNERS = (ALICE, BOB, Principal("carol"), Principal("dave"), Principal("eve"))
IDLE_MS = 10_000


@define(eq=False)
class Content:
    """Stands for a connection."""

    is_busy: bool = False
    closed: list[str] = field(factory=list)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


KEYS = ("alice:" + "a" * 16, "bob:" + "b" * 16)


def table(
    max_sessions: int = 3, *, keys: tuple[str, ...] = ()
) -> tuple[SessionTable[Content], ManualClock]:
    clock = ManualClock()
    config = ServerConfig(http=HttpSection(max_sessions=max_sessions, api_keys=keys))
    return SessionTable(clock, IDLE_MS, session_quota(config), config.has_shares()), clock


@pytest.mark.rule("AUTH-15")
def test_session_ids_are_long_unique_and_visible_ascii() -> None:
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
def test_session_belongs_to_its_principal(
    owner: Principal | None, visitor: Principal | None, found: bool
) -> None:
    sessions, _ = table()
    content = Content()
    session_id = sessions.add(content, owner)
    assert sessions.get(session_id, visitor) is (content if found else None)
    assert content.closed == []


@pytest.mark.parametrize("session_id", [None, "", "nobody's", "\x00"])
def test_unknown_session_id_finds_nothing(session_id: str | None) -> None:
    sessions, _ = table()
    sessions.add(Content(), ALICE)
    assert sessions.get(session_id, ALICE) is None


@pytest.mark.rule("AUTH-16")
def test_number_of_sessions_is_limited() -> None:
    sessions, clock = table()
    contents = []
    for _ in range(3):
        assert sessions.check_capacity(ALICE) is None
        contents.append(Content())
        sessions.add(contents[-1], ALICE)
        clock.advance(3)
    refusal = sessions.check_capacity(ALICE)
    assert refusal is not None
    assert (refusal.status, refusal.headers[0][0]) == (503, b"retry-after")
    clock.advance(3)
    assert sessions.check_capacity(ALICE) is None
    assert [content.closed for content in contents] == [["session_expired"], [], []]


@pytest.mark.rule("RES-15")
def test_least_recently_used_own_session_gives_way() -> None:
    sessions, clock = table(8, keys=KEYS)
    of_bob = Content()
    sessions.add(of_bob, BOB)
    busy, first, second = Content(is_busy=True), Content(), Content()
    sessions.add(busy, ALICE)
    first_id = sessions.add(first, ALICE)
    clock.advance(1)
    assert sessions.check_capacity(ALICE) is None
    sessions.add(second, ALICE)
    assert sessions.get(first_id, ALICE) is None
    assert first.closed == ["replaced"]
    assert of_bob.closed == busy.closed == second.closed == []


@pytest.mark.rule("RES-13", "RES-22")
def test_principal_with_only_busy_sessions_is_refused() -> None:
    sessions, _ = table(8, keys=KEYS)
    contents = [Content(is_busy=True) for _ in range(2)]
    for content in contents:
        sessions.add(content, ALICE)
    refusal = sessions.check_capacity(ALICE)
    assert refusal is not None
    assert (refusal.status, refusal.reason) == (429, "principal_share")
    assert refusal.headers[0][0] == b"retry-after"
    assert refusal.data["code"] == "RESOURCE_EXHAUSTED"
    assert refusal.data["details"] == {"reason": "principal_share", "maxSessions": 8, "share": 2}
    assert sessions.check_capacity(BOB) is None
    assert [content.closed for content in contents] == [[], []]


@pytest.mark.rule("AUTH-16", "RES-22")
def test_sessions_of_other_principals_do_not_give_way() -> None:
    sessions, _ = table(4, keys=KEYS)
    for number in range(4):
        sessions.add(Content(), Principal(f"principal {number}"))
    refusal = sessions.check_capacity(Principal("one more"))
    assert refusal is not None
    assert (refusal.status, refusal.reason) == (503, "too_many_sessions")
    assert sessions.check_capacity(Principal("principal 0")) is None


@pytest.mark.rule("AUTH-16")
def test_tables_with_shared_quota_have_one_limit() -> None:
    quota = session_quota(ServerConfig(http=HttpSection(max_sessions=2)))
    clock = ManualClock()
    one, other = (SessionTable[Content](clock, IDLE_MS, quota) for _ in range(2))
    kept = one.add(Content(), None)
    other.add(Content(), None)
    assert one.check_capacity(None) is not None
    assert other.check_capacity(None) is not None
    one.end(kept, "deleted")
    assert other.check_capacity(None) is None


@pytest.mark.rule("AUTH-17")
def test_idle_session_is_closed() -> None:
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
def test_busy_session_is_not_idle() -> None:
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
def test_session_ends_once() -> None:
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


class TableMachine(RuleBasedStateMachine):
    """Any events in any order: a session exists, or was closed once."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.sessions, self.clock = table(max_sessions=4, keys=KEYS)
        self.contents: dict[str, Content] = {}
        self.owners: dict[str, Principal] = {}
        self.used: dict[str, float] = {}

    @rule(target=ids, is_busy=st.booleans(), owner=st.sampled_from(OWNERS))
    def add(self, is_busy: bool, owner: Principal) -> str:
        quota = self.sessions._quota
        if self.sessions.check_capacity(owner) is not None:
            own = [each for each, it in self.owners.items() if it == owner]
            assert all(self.contents[each].is_busy for each in own if self.is_there(each))
            return "none"
        replaces = quota.refusal(identity_of(owner)) is not None
        content = Content(is_busy)
        before = len(self.sessions)
        session_id = self.sessions.add(content, owner)
        assert len(self.sessions) == before + (not replaces)
        self.contents[session_id] = content
        self.owners[session_id] = owner
        self.used[session_id] = self.clock.monotonic()
        return session_id

    def is_there(self, session_id: str) -> bool:
        return not self.contents[session_id].closed

    @rule(session_id=ids, principal=st.sampled_from([*OWNERS, None]))
    def get(self, session_id: str, principal: Principal | None) -> None:
        content = self.sessions.get(session_id, principal)
        if content is not None:
            assert content is self.contents[session_id]
            assert principal is self.owners[session_id]
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
        there = [each for each in self.contents if self.is_there(each)]
        assert all(len(content.closed) <= 1 for content in self.contents.values())
        assert len(self.sessions) == len(there) <= 4
        owners = Counter(identity_of(self.owners[each]) for each in there)
        assert self.sessions._quota.used() == owners
        assert all(count <= 1 for count in owners.values())  # a quarter of four

    def teardown(self) -> None:
        self.sessions.end_all("shutdown")
        assert self.sessions._quota.used() == {}


TestTable = pytest.mark.rule("AUTH-16", "RES-22")(TableMachine.TestCase)
TestTable.settings = settings(max_examples=examples(50), stateful_step_count=30, deadline=None)
