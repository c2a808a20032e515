"""Two principals do whatever they like with a server: in the end nothing is counted for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import define, field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation_rt import Roots, Server, ToolContext
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import TasksSection
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ResourcesSection, ServerConfig
from foundation_rt.features.composition import ServerOptions
from foundation_rt.features.server_requests.feature import ClientInput
from foundation_rt.features.subscriptions.methods import subscriptions_of
from foundation_rt.features.tasks.feature import Tasks
from foundation_rt.http.app import HttpApplication
from tests.lab.servers.asgi import META, REVISION, Visit, post, request, visit
from tests.lab.sizes import examples
from tests.lab.waiting import until

KEYS = {"alice": "a" * 16, "bob": "b" * 16}
CONFIG = ServerConfig(
    http=HttpSection(
        api_keys=tuple(f"{name}:{key}" for name, key in KEYS.items()),
        max_sessions=8,
        session_idle_ms=60_000,
    ),
    resources=ResourcesSection(
        max_concurrent_executions=8, max_server_requests=8, max_subscriptions=8
    ),
    tasks=TasksSection(max_tasks=8, max_run_ms=1_000, keep_ms=1_000),
)
WITH_TASKS = {
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "roots": {},
    }
}


def make_server(clock: ManualClock) -> Server:
    server = Server("shared", options=ServerOptions(config=CONFIG, clock=clock))

    @server.tool
    async def hold(ctx: ToolContext) -> str:
        await ctx.abort_signal.wait()
        return "held"

    @server.tool
    async def ask(ctx: ToolContext, count: int) -> str:
        await ctx.ask({str(number): Roots() for number in range(count)})
        return "answered"

    @server.tool(task="optional")
    async def long(ctx: ToolContext) -> str:
        await ctx.roots()
        return "done"

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    return server


@define(eq=False)
class SharePeer:
    """One principal, and all it has begun."""

    app: HttpApplication
    key: str
    sessions: list[str] = field(factory=list)
    visits: list[Visit] = field(factory=list)
    tasks: list[str] = field(factory=list)
    count: int = 0

    def send(self, message: dict[str, Any], **headers: str) -> Visit:
        self.visits.append(post(self.app, message, {"x-api-key": self.key, **headers}))
        return self.visits[-1]

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        return request(method, params, self.count)

    def stateless(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> Visit:
        message = self.request(method, {**params, "_meta": {**META, **(meta or {})}})
        name = str(params.get("name") or params.get("taskId") or "")
        headers = {"mcp-protocol-version": REVISION, "mcp-method": method, "mcp-name": name}
        return self.send(message, **headers)

    def in_session(self, which: int, method: str, **params: Any) -> None:
        for session_id in self.sessions[which : which + 1]:
            self.send(self.request(method, params), **{"mcp-session-id": session_id})

    # -- what it may do ------------------------------------------------------------------------

    async def open(self, which: int) -> None:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "test", "version": "1"},
        }
        answer = await self.send(self.request("initialize", params)).finish()
        assert answer.status in (200, 429, 503)
        if answer.status == 200:
            self.sessions.append(answer.headers["mcp-session-id"])
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self.send(told, **{"mcp-session-id": self.sessions[-1]}).finish()

    async def delete(self, which: int) -> None:
        for session_id in self.sessions[which : which + 1]:
            headers = {"x-api-key": self.key, "mcp-session-id": session_id}
            await visit(self.app, "DELETE", headers=headers).finish()
        del self.sessions[which : which + 1]

    async def hold(self, which: int) -> None:
        self.in_session(which, "tools/call", name="hold", arguments={})

    async def hold_stateless(self, which: int) -> None:
        self.stateless("tools/call", name="hold", arguments={})

    async def ask(self, which: int) -> None:
        self.in_session(which, "tools/call", name="ask", arguments={"count": which + 1})

    async def answer(self, which: int) -> None:
        for number in range(1, 9):
            answer = {"jsonrpc": "2.0", "id": f"server-{number}", "result": {"roots": []}}
            for session_id in self.sessions[which : which + 1]:
                self.send(answer, **{"mcp-session-id": session_id})

    async def cancel(self, which: int) -> None:
        for number in range(max(1, self.count - 5), self.count + 1):
            params = {"requestId": number}
            message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            for session_id in self.sessions[which : which + 1]:
                self.send(message, **{"mcp-session-id": session_id})

    async def subscribe(self, which: int) -> None:
        self.in_session(which, "resources/subscribe", uri=f"note://{self.count}")

    async def unsubscribe(self, which: int) -> None:
        self.in_session(which, "resources/unsubscribe", uri=f"note://{self.count - 1}")

    async def listen(self, which: int) -> None:
        wanted = {"resourceSubscriptions": ["note://a"], "taskIds": self.tasks[:1]}
        self.stateless("subscriptions/listen", WITH_TASKS, notifications=wanted)

    async def begin_task(self, which: int) -> None:
        answer = self.stateless("tools/call", WITH_TASKS, name="long", arguments={})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if answer.ended and "taskId" in answer.json.get("result", {}):
            self.tasks.append(answer.json["result"]["taskId"])

    async def answer_task(self, which: int) -> None:
        for task_id in self.tasks[which : which + 1]:
            responses = {str(which + 1): {"roots": []}}
            self.stateless("tasks/update", WITH_TASKS, taskId=task_id, inputResponses=responses)

    async def cancel_task(self, which: int) -> None:
        for task_id in self.tasks[which : which + 1]:
            await self.stateless("tasks/cancel", WITH_TASKS, taskId=task_id).finish()

    async def leave(self, which: int) -> None:
        for one in self.visits[-1 - which :]:
            one.leave()


STEPS = (
    *("open", "open", "delete", "hold", "hold_stateless", "ask", "ask", "answer", "cancel"),
    *("subscribe", "subscribe", "unsubscribe", "listen", "listen"),
    *("begin_task", "answer_task", "cancel_task", "leave", "wait"),
)
histories = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from(["alice", "bob"]), st.integers(0, 2)),
    max_size=40,
)


async def run_history(history: list[tuple[str, str, int]]) -> None:
    clock = ManualClock()
    server = make_server(clock)
    app = server.asgi_app()
    await app.start()
    runtime = server.runtime
    sessions = app._service.endpoint.sessions  # type: ignore[union-attr]
    manager = runtime.dispatcher.parts[Tasks].manager()
    quotas = {
        "sessions": sessions._quota,
        "subscriptions": subscriptions_of(runtime.dispatcher).quota,
        "server requests": runtime.engine.part(ClientInput).open_requests,
        "tasks": manager.store.record_quota,  # type: ignore[attr-defined]
        "results": manager.store.outcome_bytes,  # type: ignore[attr-defined]
    }
    peers = {name: SharePeer(app, key) for name, key in KEYS.items()}
    for step, name, which in history:
        if step == "wait":
            clock.advance(31)
            sessions.expire()
        else:
            await getattr(peers[name], step)(which)
        await asyncio.sleep(0)
        for noun, quota in quotas.items():
            if noun != "results":
                assert all(0 < count <= 2 for count in quota.used().values()), noun
        assert all(0 < count <= 2 for count in runtime.resources.shares_used().values())
    # Everybody goes.
    for peer in peers.values():
        for task_id in list(peer.tasks):
            await peer.stateless("tasks/cancel", WITH_TASKS, taskId=task_id).finish()
        while peer.sessions:
            await peer.delete(0)
        for one in peer.visits:
            one.leave()
            await one.finish()
    sessions.end_all("replaced")  # those that the test has lost the ids of
    for call in manager.calls():
        runtime.engine.abort(call, "cancelled")
    runtime.stop_features("gone")
    await until(lambda: not runtime.engine.running, "no call runs")
    clock.advance(3)
    manager.find("unknown", None)  # what has expired is dropped
    try:
        assert {noun: quota.used() for noun, quota in quotas.items()} == {
            noun: {} for noun in quotas
        }
        assert runtime.resources.shares_used() == {}
        assert runtime.resources.concurrent_executions == 0
        assert {noun: quota._used for noun, quota in quotas.items()} == dict.fromkeys(quotas, 0)
    finally:
        app.begin_stop()
        await app.stop(10)
        runtime.close_logs(1)


@pytest.mark.rule("RES-14", "RES-22", "RES-16", "RES-17", "RES-18")
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_what_a_principal_uses_is_given_back_whatever_it_does(
    history: list[tuple[str, str, int]],
) -> None:
    asyncio.run(run_history(history))
