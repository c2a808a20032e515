"""The absence of a session's client, and the end of its open server requests."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from foundation_rt.base.clock import ManualClock
from foundation_rt.features.server_requests.feature import ClientInput
from foundation_rt.features.server_requests.open_requests import SentRequests, fail_requests
from foundation_rt.http.session import ClientAbsence
from tests.lab.clock.fake_scheduler import FakeTimer
from tests.lab.servers.asgi import AsgiSession, Visit, open_session, request
from tests.lab.servers.http_harness import HttpHarness, harness
from tests.lab.sizes import examples

GRACE_MS = 10_000


class SessionClient:
    """A scripted client of a session, with the timers that are set for it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.is_here = True
        self.timers: list[FakeTimer] = []
        self.given_up: list[int] = []
        self.open = SentRequests()
        self.session = SimpleNamespace(parts={SentRequests: self.open})
        self.absence = ClientAbsence(self.clock, GRACE_MS, lambda: self.is_here)
        connection: Any = SimpleNamespace(session=self.session, scheduler=self, apply=self.apply)
        self.absence.connection = connection

    def call_later(self, seconds: float, callback: Any) -> FakeTimer:
        self.timers.append(FakeTimer(self.clock.monotonic() + seconds, callback))
        return self.timers[-1]

    def apply(self, decide: Any, away_ms: int) -> None:
        assert decide is fail_requests
        self.given_up.append(away_ms)
        self.open.callers.clear()

    def ask(self) -> None:
        self.open.callers["server-1"] = print
        self.absence.watch()

    def leave(self) -> None:
        self.is_here = False
        self.absence.note_contact()
        self.absence.watch()

    def pass_time(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        while due := [each for each in self.live() if each.due <= until]:
            first = min(due, key=lambda each: each.due)
            self.clock.advance(max(0.0, first.due - self.clock.monotonic()))
            first.fire()
        self.clock.advance(until - self.clock.monotonic())

    def live(self) -> list[FakeTimer]:
        return [each for each in self.timers if each.live]


@pytest.mark.rule("ASK-19")
def test_server_requests_end_after_client_was_away_for_grace() -> None:
    client = SessionClient()
    client.ask()
    client.pass_time(100)
    client.leave()
    client.pass_time(9.9)
    assert client.given_up == []
    client.pass_time(0.2)
    assert client.given_up == [GRACE_MS]


@pytest.mark.rule("ASK-19")
def test_returning_or_sending_client_keeps_its_server_requests() -> None:
    client = SessionClient()
    client.ask()
    client.leave()
    client.pass_time(9)
    client.is_here = True
    client.pass_time(100)
    client.leave()
    for _ in range(5):
        client.pass_time(9)
        client.absence.note_contact()
    assert client.given_up == []
    client.pass_time(11)
    assert client.given_up == [GRACE_MS]


@pytest.mark.rule("ASK-39")
def test_server_request_to_client_long_gone_ends_at_once() -> None:
    client = SessionClient()
    client.leave()
    client.pass_time(100)
    assert client.timers == []
    client.ask()
    client.pass_time(0)
    assert client.given_up == [GRACE_MS]


class Absences(RuleBasedStateMachine):
    """Any order of leaving, coming back, sending and asking, and time in between."""

    def __init__(self) -> None:
        super().__init__()
        self.client = SessionClient()
        self.seen = 0.0

    @rule()
    def ask(self) -> None:
        self.client.ask()

    @rule()
    def answer(self) -> None:
        self.client.open.callers.clear()

    @rule()
    def leave(self) -> None:
        if self.client.is_here:
            self.client.leave()
            self.seen = self.client.clock.monotonic()

    @rule()
    def come_back(self) -> None:
        self.client.is_here = True

    @rule()
    def send(self) -> None:
        self.client.absence.note_contact()
        self.seen = self.client.clock.monotonic()

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.0, 11.0]))
    def wait(self, seconds: float) -> None:
        asked = bool(self.client.open.callers)
        self.client.given_up.clear()
        self.client.pass_time(seconds)
        gone = self.client.clock.monotonic() - self.seen >= GRACE_MS / 1000
        assert bool(self.client.given_up) is (asked and gone and not self.client.is_here)

    @invariant()
    def one_timer_at_most(self) -> None:
        assert len(self.client.live()) <= 1

    def teardown(self) -> None:
        self.client.absence.close()
        assert self.client.live() == []


TestAbsences = pytest.mark.rule("ASK-19")(Absences.TestCase)
TestAbsences.settings = settings(max_examples=examples(60), deadline=None)


# -- a whole application -------------------------------------------------------------------------

ROOTS = {"roots": {}}


@pytest.fixture
def one(options: dict[str, int]) -> AbstractAsyncContextManager[HttpHarness]:
    """Return a harness with its own application and these settings of the section `http`."""
    return harness(**options)


async def open_request(one: HttpHarness) -> tuple[AsgiSession, Visit]:
    """Open a session with a server request; return it and the response with the request."""
    session = await open_session(one.app, capabilities=ROOTS)
    call = session.call("ask_roots", 1)
    await call.until(lambda: any(each.get("method") for each in call.messages))
    return session, call


@pytest.mark.rule("ASK-19", "RES-03")
@pytest.mark.options(server_request_grace_ms=1, retry_ms=0)
async def test_server_request_of_gone_client_releases_its_slot(one: HttpHarness) -> None:
    resources = one.server.runtime.resources
    session, call = await open_request(one)
    assert resources.concurrent_executions == 1
    call.leave()
    await call.finish()
    await one.idle()
    assert resources.concurrent_executions == 0
    back = session.get(call.events[-1]["id"])
    await back.finish()
    withdrawn, error = back.messages
    assert withdrawn["method"] == "notifications/cancelled"
    assert "client_gone" in error["result"]["content"][0]["text"]
    assert one.server.runtime.engine.part(ClientInput).open_requests.used() == {}


@pytest.mark.rule("ASK-19")
async def test_client_that_resumes_in_time_can_answer(one: HttpHarness) -> None:
    session, call = await open_request(one)
    call.leave()
    await call.finish()
    back = session.get(call.events[0]["id"])
    await back.until(lambda: back.messages)
    [server_request] = back.messages
    answer = {"jsonrpc": "2.0", "id": server_request["id"], "result": {"roots": []}}
    assert (await session.post(answer).finish()).status == 202
    await back.finish()
    assert back.messages[-1]["result"]["content"][0]["text"] == "0"


@pytest.mark.rule("ASK-40")
async def test_deleted_session_ends_its_server_requests(one: HttpHarness) -> None:
    session, call = await open_request(one)
    assert (await session.delete().finish()).status == 204
    await call.finish()
    await one.idle()
    assert one.server.runtime.resources.concurrent_executions == 0
    assert one.server.runtime.engine.part(ClientInput).open_requests.used() == {}


@pytest.mark.rule("ASK-19")
@pytest.mark.options(server_request_grace_ms=1, retry_ms=0)
async def test_client_with_another_open_stream_is_present(one: HttpHarness) -> None:
    session = await open_session(one.app, capabilities=ROOTS)
    stream = session.get()
    await stream.until(lambda: stream.status)
    call = session.call("ask_roots", 1)
    await call.until(lambda: any(each.get("method") for each in call.messages))
    [http_session] = one.app._service.endpoint.sessions  # type: ignore[union-attr]
    call.leave()
    await call.finish()
    assert http_session._absence._timer is None
    assert one.server.runtime.resources.concurrent_executions == 1
    assert (await session.post(request("ping", None, 2)).finish()).status == 200
    stream.leave()
    await stream.finish()
    await one.idle()
    assert one.server.runtime.resources.concurrent_executions == 0
