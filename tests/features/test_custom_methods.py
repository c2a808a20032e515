"""Methods that an author adds to a server, and the extensions that a server declares."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import attrs
import pytest

from foundation_rt import (
    CompletedCall,
    Constraints,
    Depends,
    ErrorCode,
    Invocation,
    JsonRpcErrorCode,
    Principal,
    RegistrationError,
    Server,
    Text,
    ToolContext,
    UsageError,
)
from foundation_rt.client import connect
from foundation_rt.client.errors import MCPError
from foundation_rt.protocol.methods import METHODS
from foundation_rt.protocol.revisions import REVISIONS, STATELESS_REVISIONS
from foundation_rt.testing import ManualClock, ProtocolError, SequentialIds, TestClient
from tests.lab.waiting import until

STATELESS = STATELESS_REVISIONS[-1]
REPORTS = {"com.example/reports": {"formats": ["text"]}}


@attrs.frozen
class Report:
    city: str
    days: list[int]


class Filter(TypedDict):
    least: int


def database() -> str:
    return "real"


def make_server(**options: Any) -> Server:
    server = Server("methods", **options)

    @server.method("acme/report")
    async def report(
        city: str,
        days: Annotated[int, Constraints(minimum=1)] = 2,
        only: Filter | None = None,
        *,
        ctx: ToolContext,
        db: Annotated[str, Depends(database)],
    ) -> Report:
        await ctx.report_progress(1, 2)
        least = 0 if only is None else only["least"]
        return Report(f"{city} {db}", list(range(least, days)))

    @server.method("acme/sync")
    def sync(ctx: ToolContext) -> dict[str, str]:
        return {"thread": threading.current_thread().name, "session": ctx.session_key or ""}

    @server.method("acme/inline", inline=True)
    def inline() -> None: ...

    return server


async def error_of(client: TestClient, method: str, params: Any = None) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        await client.request(method, params)
    return caught.value


# -- methods


@pytest.mark.rule("EXT-01", "EXT-03", "EXT-06")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_request_gets_the_result_of_the_function(revision: str) -> None:
    async with TestClient(make_server(), revision=revision) as client:
        params = {"city": "Oslo", "days": 3, "only": {"least": 1}, "_meta": {"progressToken": 7}}
        result = await client.request("acme/report", params)
        assert (result["city"], result["days"]) == ("Oslo real", [1, 2])
        assert ("resultType" in result) is (revision == STATELESS)
        [progress] = client.notifications
        assert progress["params"] == {"progressToken": 7, "progress": 1, "total": 2}
        assert (await client.request("acme/sync"))["thread"] != threading.current_thread().name
        assert "thread" not in await client.request("acme/inline")


@pytest.mark.rule("EXT-01")
async def test_registered_handler_gets_the_params_as_sent() -> None:
    server = Server("raw")
    server.register_method("acme/raw", lambda params, ctx: {"got": params, "meta": ctx.call.meta})
    async with TestClient(server) as client:
        sent = {"a": [1, {"b": None}], "_meta": {"x": 1}}
        assert await client.request("acme/raw", sent) == {
            "got": {"a": [1, {"b": None}]},
            "meta": {"x": 1},
        }


NAMES_OF_OTHERS = [*METHODS, "notifications/report", "tools/report", "rpc.discover", "rpc.acme/x"]


@pytest.mark.rule("EXT-02")
@pytest.mark.parametrize("name", NAMES_OF_OTHERS)
def test_name_of_mcp_or_of_json_rpc_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match=r"own: put a prefix of yours before it"):
        Server("x").method(name)(lambda: None)


BAD_NAMES = ["", "report", "acme/", "/report", "acme//report", "acme/re port", "acme/r\n", "acme/é"]
BAD_NAMES += ["acme/" + "x" * 124, " acme/report", "acme/report?", "-acme/report", "acme/\ud800"]


@pytest.mark.rule("EXT-02")
@pytest.mark.parametrize("name", BAD_NAMES)
def test_malformed_name_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="name it by a prefix of yours and a name"):
        Server("x").register_method(name, lambda params, ctx: None)


@pytest.mark.rule("EXT-02")
async def test_name_that_is_taken_and_a_late_method_are_refused() -> None:
    server = make_server()
    with pytest.raises(RegistrationError, match="'acme/report' is refused: the name is taken"):
        server.method("acme/report")(lambda: None)
    wrong: Any = server.method
    with pytest.raises(RegistrationError, match=r'a method has a name: @server\.method\("acme/'):
        wrong(make_server)
    with pytest.raises(
        TypeError, match=r"Server\.method\(\) got an unexpected keyword argument 'bo"
    ):
        wrong("acme/other", bogus=1)
    async with TestClient(server):
        with pytest.raises(UsageError, match="register a method before the server is started"):
            server.method("acme/late")(lambda: None)


def text() -> str: ...


def content() -> Text: ...


def maybe() -> Report | None: ...


def meta(_meta: dict[str, int]) -> None: ...


def by_position(*cities: str) -> None: ...


def untyped(city) -> None: ...  # type: ignore[no-untyped-def]


async def slow() -> None: ...


@pytest.mark.rule("EXT-01", "EXT-06")
@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (text, {}, "method 'text', result: a method returns an object"),
        (content, {}, "method 'content', result: Text is content"),
        (maybe, {}, "method 'maybe', result: a method returns an object"),
        (meta, {}, r"parameter '_meta': it is no param: `ctx\.call\.meta` has it"),
        (by_position, {}, "parameter 'cities': it is passed by position"),
        (untyped, {}, "parameter 'city': it has no annotation"),
        (slow, {"inline": True}, "inline=True is for def"),
        (slow, {"timeout_ms": 0}, "timeout_ms must be a whole number"),
        (slow, {"scopes": ["a b"]}, "scope"),
    ],
)
def test_function_that_is_no_method_is_refused(
    function: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Server("x").method("acme/x", **options)(function)


@pytest.mark.rule("EXT-01")
def test_handler_that_cannot_take_two_arguments_is_refused() -> None:
    handler: Any
    for handler in (lambda: None, lambda params: None, lambda *, ctx: None):
        with pytest.raises(RegistrationError, match="'acme/x' is refused: the handler takes two a"):
            Server("x").register_method("acme/x", handler)


@pytest.mark.rule("EXT-03")
async def test_server_answers_for_its_own_methods_alone() -> None:
    one, other = make_server(), Server("other")
    other.register_method("acme/other", lambda params, ctx: {"here": 1})
    async with TestClient(one) as client, TestClient(other) as outside:
        assert await outside.request("acme/other") == {"here": 1}
        for asked, method in ((client, "acme/other"), (outside, "acme/sync")):
            error = await error_of(asked, method)
            assert error.code == JsonRpcErrorCode.METHOD_NOT_FOUND


@pytest.mark.rule("EXT-03")
async def test_request_is_a_call_for_all_that_is_around_calls() -> None:
    config = {
        "audit": {"enabled": True},
        "telemetry": {"metrics": True},
        "rate_limit": {"per_key": 2},
    }
    server = make_server(config=config)
    seen: list[str] = []
    ended: list[CompletedCall] = []

    @server.middleware
    async def note(call: Invocation, proceed: Any) -> Any:
        seen.append(f"{call.method} {call.arguments}")
        return await proceed()

    server.call_observer(ended.append)
    async with TestClient(server, clock=ManualClock(), ids=SequentialIds()) as client:
        await client.request("acme/inline")
        await error_of(client, "acme/report", {"city": 5})
        limited = await error_of(client, "acme/inline")
        records = client.logs or []
    assert seen == ["acme/inline {}"]
    assert [(each.method, each.name, each.label, each.outcome) for each in ended] == [
        ("acme/inline", "", "", "success"),
        ("acme/report", "", "", "tool_error"),
        ("acme/inline", "", "", "tool_error"),
    ]
    assert limited.data["details"]["reason"] == "rate_limit"
    events = [each["eventType"] for each in records if each["message"] == "audit"]
    assert events == [
        "SESSION_OPENED",
        "REQUEST_START",
        "REQUEST_COMPLETED",
        "REQUEST_REFUSED",
        "RATE_LIMIT_EXCEEDED",
        "REQUEST_REFUSED",
    ]


@pytest.mark.rule("EXT-03", "FEAT-03", "TIME-05")
async def test_deadline_and_cancellation_end_a_handler() -> None:
    server, ended = Server("slow", config={"tools": {"cancel_grace_ms": 1}}), asyncio.Queue[str]()

    @server.method("acme/slow", timeout_ms=30)
    @server.method("acme/cancelled")
    async def hang(ctx: ToolContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.put_nowait(str(ctx.abort_signal.reason))

    async with TestClient(server) as client:
        error = await error_of(client, "acme/slow")
        assert error.data["code"] == ErrorCode.TIMEOUT
        assert await ended.get() == "deadline"
        task = asyncio.ensure_future(client.request("acme/cancelled"))
        await until(lambda: server.runtime.engine.running, "the handler runs")
        task.cancel()
        assert await ended.get() == "cancelled"


@pytest.mark.rule("EXT-04")
async def test_params_that_do_not_fit_run_no_handler_and_take_no_slot() -> None:
    server = make_server(config={"resources": {"max_concurrent_executions": 1}})
    async with TestClient(server) as client:
        for _ in range(3):
            error = await error_of(client, "acme/report", {"days": 0, "more": 1})
            assert error.code == JsonRpcErrorCode.INVALID_PARAMS
            assert error.data["code"] == ErrorCode.INVALID_ARGUMENT
            assert {each["path"] for each in error.data["details"]["errors"]} == {"", "/days"}
        assert server.runtime.resources.concurrent_executions == 0
        await client.request("acme/sync")


@pytest.mark.rule("EXT-04")
@pytest.mark.parametrize("revision", [each for each in REVISIONS if each != STATELESS])
async def test_params_that_are_no_object_are_refused(revision: str) -> None:
    params: Any = [1]
    async with TestClient(make_server(), revision=revision) as client:
        error = await error_of(client, "acme/report", params)
        assert error.code == JsonRpcErrorCode.INVALID_PARAMS


@pytest.mark.rule("EXT-05")
async def test_scopes_are_those_of_the_principal() -> None:
    server = Server("scoped")
    server.register_method("acme/scoped", lambda params, ctx: None, scopes=["reports"])
    async with TestClient(server) as client:
        client.connection.session.principal = Principal("ann", scopes=frozenset({"other"}))
        error = await error_of(client, "acme/scoped")
        assert error.data["code"] == ErrorCode.UNAUTHORIZED
        assert error.data["details"]["scopes"] == ["reports"]
        client.connection.session.principal = Principal("ann", scopes=frozenset({"reports"}))
        assert await client.request("acme/scoped") == {}


class Changing:
    """An object whose class says what no JSON can."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError


RESULTS = {
    "result_not_an_object": [[1], "text", 5, {"_meta": 7}],
    "result_not_serializable": [{"x": Changing()}, {"x": float("nan")}, {"x": "\ud800"}],
    "result_too_large": [{"x": "y" * 100_000}],
}


@pytest.mark.rule("EXT-06", "FEAT-06")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_result_that_is_none_is_an_error(revision: str) -> None:
    server = Server("results", config={"tools": {"max_response_bytes": 50_000}})
    results = [(reason, value) for reason, values in RESULTS.items() for value in values]
    server.register_method("acme/result", lambda params, ctx: results[params["which"]][1])

    @server.method("acme/typed")
    def typed() -> Report:
        return Report("Oslo", ["no number"])  # type: ignore[list-item]

    @server.method("acme/nothing")
    def nothing() -> None:
        return {"no number": 1}  # type: ignore[return-value]

    async with TestClient(server, revision=revision) as client:
        for which, (reason, _) in enumerate(results):
            error = await error_of(client, "acme/result", {"which": which})
            assert error.code == JsonRpcErrorCode.INTERNAL_ERROR
            assert error.data["details"]["reason"] == reason, results[which]
        for method in ("acme/typed", "acme/nothing"):
            error = await error_of(client, method)
            assert error.data["details"]["reason"] == "output_schema_violation"
            assert "no number" not in str(error.data)


@pytest.mark.rule("EXT-17", "REV-06")
async def test_result_may_have_a_type_of_its_own() -> None:
    server = Server("typed")
    value = {"resultType": "acme", "_meta": {"a.b/c": 1}}
    server.register_method("acme/typed", lambda params, ctx: value)
    async with TestClient(server, revision=STATELESS) as client:
        result = await client.request("acme/typed")
        assert result["resultType"] == "acme"
        assert result["_meta"].keys() == {"a.b/c", "io.modelcontextprotocol/serverInfo"}


@pytest.mark.rule("EXT-06", "ERR-05")
@pytest.mark.parametrize("error", [RuntimeError("secret"), SystemExit(3), KeyboardInterrupt()])
async def test_exception_of_a_handler_is_an_error_without_its_text(error: BaseException) -> None:
    server = Server("failing")

    def fail(params: Any, ctx: Any) -> None:
        raise error

    server.register_method("acme/fail", fail, inline=True)
    async with TestClient(server) as client:
        found = await error_of(client, "acme/fail")
        assert (found.data["code"], "secret" in str(found)) == ("INTERNAL", False)


@pytest.mark.rule("EXT-07")
async def test_handler_has_its_session_and_cannot_ask_the_client() -> None:
    server = Server("asking")

    @server.method("acme/count")
    async def count(ctx: ToolContext) -> dict[str, int]:
        ctx.session_state["count"] = ctx.session_state.get("count", 0) + 1
        with pytest.raises(UsageError, match="a handler of acme/count cannot ask the client"):
            await ctx.roots()
        return {"count": ctx.session_state["count"]}

    async with TestClient(server, answers=lambda method, params: {"roots": []}) as client:
        counts = [await client.request("acme/count") for _ in range(3)]
        assert counts == [{"count": 1}, {"count": 2}, {"count": 3}]


@pytest.mark.rule("EXT-01", "CREQ-01")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_client_requests_a_method(revision: str) -> None:
    async with connect(make_server(), revision=revision) as client:
        result = await client.request("acme/report", {"city": "Oslo"})
        assert result["days"] == [0, 1]
        with pytest.raises(MCPError) as missing:
            await client.request("acme/none")
        assert missing.value.original_code == JsonRpcErrorCode.METHOD_NOT_FOUND


# -- mounting


@pytest.mark.rule("MOUNT-07", "MOUNT-04")
async def test_mount_carries_methods_and_extensions_under_their_own_names() -> None:
    inner, middle = Server("inner", extensions={"a.b/c": {"of": "inner"}}), Server("middle")

    @inner.lifespan
    async def state(_: Server) -> Any:
        yield "inner"

    @inner.method("acme/state")
    def read(ctx: ToolContext) -> dict[str, Any]:
        return {"state": ctx.state}

    outer = Server("outer", extensions={"a.b/c": {"of": "outer"}, **REPORTS})
    outer.mount(middle, prefix="m")
    middle.mount(inner, prefix="x")
    inner.method("acme/later")(read)
    async with TestClient(outer, revision=STATELESS) as client:
        for method in ("acme/state", "acme/later"):
            assert (await client.request(method))["state"] == "inner"
        capabilities = (await client.request("server/discover"))["capabilities"]
        assert capabilities["extensions"] == {"a.b/c": {"of": "outer"}, **REPORTS}


@pytest.mark.rule("MOUNT-07")
def test_mount_refuses_a_method_that_the_outer_server_has() -> None:
    outer, middle = make_server(), Server("middle")
    outer.mount(middle)
    with pytest.raises(RegistrationError, match="is refused: the outer server has it"):
        middle.mount(make_server(), prefix="x")
    inner = Server("inner")
    middle.mount(inner, prefix="y")
    with pytest.raises(RegistrationError, match="'acme/sync' is refused: the name is taken"):
        inner.register_method("acme/sync", lambda params, ctx: None)
    inner.register_method("acme/own", lambda params, ctx: None)


# -- extensions


@pytest.mark.rule("EXT-08")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_extensions_are_declared_where_the_revision_has_them(revision: str) -> None:
    given = {name: dict(value) for name, value in REPORTS.items()}
    server = Server("x", extensions=given)
    given["com.example/reports"]["formats"] = ["later"]  # a copy was made

    @server.tool(task="optional")
    async def work() -> None: ...

    async with TestClient(server, revision=revision, handshake=False) as client:
        if revision == STATELESS:
            capabilities = (await client.request("server/discover"))["capabilities"]
            assert capabilities["extensions"].pop("io.modelcontextprotocol/tasks") == {}
            assert capabilities["extensions"] == REPORTS
        else:
            params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {}}
            result = await client.request("initialize", params)
            assert "extensions" not in result["capabilities"]


@pytest.mark.rule("EXT-09")
@pytest.mark.parametrize(
    ("extensions", "problem"),
    [
        ({"reports": {}}, "'reports' needs the reversed name of a domain"),
        ({"com.example/": {}}, "needs the reversed name of a domain"),
        ({"com..example/x": {}}, "needs the reversed name of a domain"),
        ({"1com/x": {}}, "needs the reversed name of a domain"),
        ({"com.example/x y": {}}, "needs the reversed name of a domain"),
        ({"com.example/x": True}, "extensions is a mapping of mappings"),
        (["com.example/x"], "extensions is a mapping of mappings"),
        ({"com.example/x": {"of": {1}}}, "extensions cannot be written as JSON"),
        ({"com.example/x": {"of": float("nan")}}, "cannot be written as JSON: .*NaN"),
    ],
)
def test_extension_that_is_none_is_refused(extensions: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Server("x", extensions=extensions)
    for client in (connect, TestClient):
        with pytest.raises(UsageError, match=problem):
            client(Server("x"), extensions=extensions)


@pytest.mark.rule("EXT-09")
def test_extension_of_tasks_is_the_runtimes_own() -> None:
    with pytest.raises(UsageError, match=r"declares io\.modelcontextprotocol/tasks by itself"):
        Server("x", extensions={"io.modelcontextprotocol/tasks": {}})


@pytest.mark.rule("EXT-10", "EXT-11")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_handler_sees_the_extensions_of_its_client(revision: str) -> None:
    server = Server("x")

    @server.method("acme/extensions")
    def extensions(ctx: ToolContext) -> dict[str, list[str]]:
        return {"names": sorted(ctx.client.extensions)}

    async def asked(client: Any, **options: Any) -> list[str]:
        names: list[str] = (await client.request("acme/extensions", **options))["names"]
        return names

    class Handlers:
        def capabilities(self, revision: object) -> dict[str, Any]:
            return {"extensions": {"a.b/own": {}}, "roots": {}}

        async def handle(self, method: str, params: Any, revision: object) -> dict[str, Any]:
            raise AssertionError

    async with connect(server, revision=revision, extensions=REPORTS) as client:
        assert await asked(client) == [*REPORTS]
        of_call = ["a.b/own", *REPORTS] if revision == STATELESS else [*REPORTS]
        assert await asked(client, handlers=Handlers()) == of_call
    async with TestClient(server, revision=revision, extensions={"a.b/c": {}}) as direct:
        assert await asked(direct) == ["a.b/c"]
    async with TestClient(server, revision=revision) as direct:
        assert await asked(direct) == []
