"""What servers may ask a client, and what becomes of the handlers that answer."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import pickle
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Server, ToolContext
from foundation_rt.client import connect
from foundation_rt.client.errors import InvalidResponseError, MCPError
from foundation_rt.client.handlers.client_handlers import MAX_HANDLERS, ClientHandlers
from foundation_rt.client.handlers.params import ServerRequestRefused
from foundation_rt.errors import UsageError
from foundation_rt.features.server_requests.elicitation import Elicit, ElicitResult
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.server_requests.roots import Root, Roots
from foundation_rt.features.server_requests.sampling import Sample, SampleResult
from foundation_rt.protocol.content import Text
from foundation_rt.protocol.jsonrpc import ABSENT
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.peers.client_vectors import cases
from tests.lab.peers.clients import peer
from tests.lab.values.json_values import json_values
from tests.lab.waiting import PATIENCE, until

NEWEST = REVISIONS["2026-07-28"]
SESSION = REVISIONS["2025-11-25"]
FORM = {
    "message": "?",
    "requestedSchema": {"type": "object", "properties": {"f": {"type": "string"}}},
}
PAGE = {"mode": "url", "message": "?", "url": "https://a.example/", "elicitationId": "e"}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 1}
ELICIT, CREATE, LIST = "elicitation/create", "sampling/createMessage", "roots/list"


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def ask(handlers: ClientHandlers, method: str, params: Any, revision: str = "2025-11-25") -> Any:
    return run(handlers.handle(method, params, REVISIONS[revision]))


def refusal(
    handlers: ClientHandlers, method: str, params: Any, revision: str = "2025-11-25"
) -> Any:
    with pytest.raises(ServerRequestRefused) as caught:
        ask(handlers, method, params, revision)
    return caught.value


def fill_in(request: Any) -> Any:
    return {"f": "x"}


def never(*arguments: Any) -> Any:
    raise AssertionError("nobody was to be asked")


# -- what may be asked ---------------------------------------------------------------------------


def handlers_of(vector: dict[str, Any]) -> ClientHandlers:
    """Return the handlers of a vector."""
    handlers = vector["handlers"].items()
    return ClientHandlers(**{name: never if it == "function" else it for name, it in handlers})


@pytest.mark.rule("QUEST-16")
@pytest.mark.parametrize("vector", cases("capabilities", "capabilities"))
def test_capabilities_follow_from_given_handlers(vector: dict[str, Any]) -> None:
    revision = REVISIONS[vector["revision"]]
    assert handlers_of(vector).capabilities(revision) == vector["capabilities"]


@pytest.mark.rule("QUEST-02")
@pytest.mark.parametrize("vector", cases("capabilities", "refused"))
def test_undeclared_request_is_refused(vector: dict[str, Any]) -> None:
    code = vector["refused"]
    refused = refusal(handlers_of(vector), vector["method"], vector["params"], vector["revision"])
    assert refused.original_code == code
    assert (refused.data["reason"] == "not_declared") is (code == -32601)
    assert refused.to_wire() == {"code": code, "message": refused.message, "data": refused.data}


@pytest.mark.rule("QUEST-03")
@pytest.mark.parametrize("params", [ABSENT, None, [], "x", 1, {}, {"mode": "form"}])
def test_params_that_are_none_are_refused(params: Any) -> None:
    handlers = ClientHandlers(elicitation=never, sampling=never)
    for method in (ELICIT, CREATE):
        refused = refusal(handlers, method, params)
        assert refused.original_code == -32602
        assert refused.data["reason"] == "invalid_params"


@pytest.mark.rule("QUEST-01")
@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"sampling": "model"}, "sampling must be a function"),
        ({"elicitation": 1}, "elicitation must be a function"),
        ({"elicitation_url": {}}, "elicitation_url must be a function"),
        ({"sampling_tools": True}, "give that too"),
    ],
)
def test_handler_that_is_not_callable_is_refused_at_once(given: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ClientHandlers(**given)


# -- answers -------------------------------------------------------------------------------------


async def fill_in_later(request: Any) -> Any:
    await asyncio.sleep(0)
    return {"f": "x"}


class Filler:
    async def __call__(self, request: Any) -> Any:
        return await fill_in_later(request)


async def fill_in_for(who: str, request: Any) -> Any:
    return await fill_in_later(request)


@pytest.mark.rule("QUEST-04", "QUEST-11", "QUEST-20", "QUEST-21")
@pytest.mark.parametrize(
    "handler",
    [
        fill_in,
        fill_in_later,
        Filler(),
        functools.partial(fill_in_for, "me"),
        lambda request: fill_in_later(request),
        lambda request: {"f": "x"},
    ],
)
def test_handlers_of_every_kind(handler: Any) -> None:
    sent = {"action": "accept", "content": {"f": "x"}}
    assert ask(ClientHandlers(elicitation=handler), ELICIT, FORM) == sent
    assert (
        ask(ClientHandlers(elicitation=handler), ELICIT, {**FORM, "mode": "form"}, "2026-07-28")
        == sent
    )


@pytest.mark.rule("QUEST-07", "QUEST-09")
def test_each_request_goes_to_its_handler() -> None:
    hello = SampleResult("assistant", (Text("Hello"),), "m")
    handlers = ClientHandlers(
        elicitation=lambda request: ElicitResult("cancel"),
        elicitation_url=lambda request: request.url == PAGE["url"],
        sampling=lambda request: hello,
    )
    assert ask(handlers, ELICIT, FORM) == {"action": "cancel"}
    assert ask(handlers, ELICIT, PAGE) == {"action": "accept"}
    assert ask(handlers, CREATE, SAMPLE)["content"] == {"type": "text", "text": "Hello"}
    assert (
        refusal(ClientHandlers(sampling=lambda request: None), CREATE, SAMPLE).original_code == -1
    )


# -- roots ---------------------------------------------------------------------------------------


@pytest.mark.rule("QUEST-10")
def test_roots_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    places = [tmp_path / "link" / ".." / "a b", "file:///srv/x", Root("file:///y", "Y")]
    sent = {
        "roots": [
            {"uri": (tmp_path / "a b").resolve().as_uri()},
            {"uri": "file:///srv/x"},
            {"uri": "file:///y", "name": "Y"},
        ]
    }
    for params in (ABSENT, None, {}, [], 1):
        assert ask(ClientHandlers(roots=places), LIST, params) == sent
    assert ask(ClientHandlers(roots=iter(places)), LIST, {}) == sent
    assert ask(ClientHandlers(roots=()), LIST, {}, "2024-11-05") == {"roots": []}
    assert Roots().prepare(peer(), Forms(), "").read(sent)[2] == Root("file:///y", "Y")


@pytest.mark.rule("QUEST-10")
def test_function_of_roots_is_called_for_each_request() -> None:
    places = ["file:///a"]

    async def later() -> list[str]:
        return places

    for handler in (lambda: places, later):
        handlers = ClientHandlers(roots=handler)
        places[:] = ["file:///a"]
        assert ask(handlers, LIST, {}) == {"roots": [{"uri": "file:///a"}]}
        places[:] = ["file:///b"]
        assert ask(handlers, LIST, {}) == {"roots": [{"uri": "file:///b"}]}


@pytest.mark.rule("QUEST-10", "QUEST-22")
@pytest.mark.parametrize(
    ("places", "what"),
    [
        ("file:///a", "/roots is not several roots"),
        (Path("/a"), "/roots is not several roots"),
        (7, "/roots is not several roots"),
        ([7], "/roots/0 is neither"),
        (["/a"], "/roots/0/uri is not a file: URI"),
        (["file:///a", "https://a.example/"], "/roots/1/uri is not a file: URI"),
        (["file:a"], "/roots/0/uri"),
        (["file:"], "/roots/0/uri"),
        (["file:///a/../b"], "/roots/0/uri"),
        (["file:///a/%2e%2E/b"], "/roots/0/uri"),
        (["file:///a\n"], "/roots/0/uri"),
        (["file://[/a"], "/roots/0/uri"),
        ([Root(7)], "/roots/0/uri"),  # type: ignore[arg-type]
        ([Root("file:///a", 7)], "/roots/0/name"),  # type: ignore[arg-type]
        ([Path("a\0b")], "/roots/0 is not a path"),
    ],
)
def test_places_that_are_none(places: Any, what: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UsageError, match=what):
        ClientHandlers(roots=places)
    refused = refusal(ClientHandlers(roots=lambda: places), LIST, {})
    assert refused.to_wire()["data"] == {"reason": "invalid_answer"}
    assert what in caplog.text


# -- handlers that fail --------------------------------------------------------------------------


def raising(error: BaseException) -> list[Callable[..., Any]]:
    def fail(request: Any) -> Any:
        raise error

    async def fail_later(request: Any) -> Any:
        raise error

    return [fail, fail_later]


async def other_arguments(too: int, many: int) -> list[str]:
    return []


@pytest.mark.rule("QUEST-12")
@pytest.mark.parametrize(
    "handler",
    [
        *raising(ValueError("secret")),
        *raising(StopIteration()),
        *raising(MCPError("E201", "secret")),
        *raising(asyncio.CancelledError()),
        raising(SystemExit(1))[0],
        raising(KeyboardInterrupt())[0],
        other_arguments,
    ],
)
def test_a_handler_that_fails(handler: Any, caplog: pytest.LogCaptureFixture) -> None:
    refused = refusal(ClientHandlers(elicitation=handler), ELICIT, FORM)
    assert refused.to_wire() == {
        "code": -32603,
        "message": "The client failed to answer",
        "data": {"reason": "handler_failed"},
    }
    assert refused.__cause__ is not None
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("foundation_rt.client", logging.WARNING)
    assert record.exc_info is not None


class Hostile(Mapping[str, Any]):
    """Something that answers with code of its own."""

    def __getitem__(self, key: str) -> Any:
        raise ValueError("no value")

    def __iter__(self) -> Iterator[str]:
        return iter(["f"])

    def __len__(self) -> int:
        return 1


@pytest.mark.rule("QUEST-22")
def test_an_answer_that_fails_when_it_is_looked_at() -> None:
    handlers = ClientHandlers(elicitation=lambda request: Hostile())
    assert refusal(handlers, ELICIT, FORM).data["reason"] == "handler_failed"


@pytest.mark.rule("QUEST-22")
def test_invalid_value_is_named_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    refused = refusal(ClientHandlers(elicitation=lambda request: {"f": ["secret"]}), ELICIT, FORM)
    assert refused.to_wire() == {
        "code": -32603,
        "message": "The client has no usable answer",
        "data": {"reason": "invalid_answer"},
    }
    assert (
        "the response to elicitation/create cannot be sent: /content/f must be string"
        in caplog.text
    )
    assert "secret" not in caplog.text


@pytest.mark.rule("QUEST-15")
def test_handler_chooses_the_error_of_the_server() -> None:
    for handler in raising(ServerRequestRefused(-5, "Not today", {"again": "tomorrow"})):
        refused = refusal(ClientHandlers(elicitation=handler), ELICIT, FORM)
        told = {"code": -5, "message": "Not today", "data": {"again": "tomorrow"}}
        assert refused.to_wire() == told
        assert (refused.code, refused.retryable, refused.may_have_run) == ("E210", False, True)
        assert pickle.loads(pickle.dumps(refused)).to_wire() == told
    for unusable in (ServerRequestRefused(-5, "\ud800"), ServerRequestRefused(-5, "x", {1, 2})):
        handler, _ = raising(unusable)
        refused = refusal(ClientHandlers(elicitation=handler), ELICIT, FORM)
        assert refused.data == {"reason": "invalid_answer"}


# -- threads -------------------------------------------------------------------------------------

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.mark.rule("QUEST-20")
def test_handler_in_a_thread_leaves_the_loop_free_and_sees_the_context() -> None:
    go = threading.Event()
    seen: list[Any] = []

    def wait(request: Any) -> Any:
        seen.append((variable.get(), threading.current_thread().daemon))
        go.wait(PATIENCE)
        return {"f": "x"}

    async def scenario() -> Any:
        variable.set("set")
        waiting = asyncio.create_task(
            ClientHandlers(elicitation=wait).handle(ELICIT, FORM, SESSION)
        )
        await until(lambda: seen, "the handler is asked")
        go.set()
        return await waiting

    assert run(scenario())["action"] == "accept"
    assert seen == [("set", True)]


@pytest.mark.rule("QUEST-20", "QUEST-13")
def test_cancelled_caller_does_not_wait_for_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    started, go, ended = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)

    def wait(request: Any) -> Any:
        started.release()
        go.wait(PATIENCE)
        ended.release()
        return {"f": "x"}

    handlers = ClientHandlers(elicitation=wait)

    async def cancel_all(count: int) -> None:
        waiting = [
            asyncio.create_task(handlers.handle(ELICIT, FORM, SESSION)) for _ in range(count)
        ]
        for _ in waiting:
            await asyncio.to_thread(started.acquire)
        for task in waiting:
            task.cancel()
        assert all(
            isinstance(outcome, asyncio.CancelledError)
            for outcome in await asyncio.gather(*waiting, return_exceptions=True)
        )

    run(cancel_all(MAX_HANDLERS))
    refused = refusal(handlers, ELICIT, FORM)
    assert refused.original_code == -32603
    assert refused.data == {"reason": "too_many_server_requests"}
    go.set()
    for _ in range(MAX_HANDLERS):
        assert ended.acquire(timeout=PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "foundation-rt-handler":
            thread.join(PATIENCE)
    assert ask(handlers, ELICIT, FORM)["action"] == "accept"
    assert not caplog.records


@pytest.mark.rule("QUEST-11", "QUEST-12")
def test_async_handler_is_cancelled_with_its_caller() -> None:
    ended: list[str] = []

    async def scenario() -> None:
        asked = asyncio.Event()

        async def wait(request: Any) -> Any:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        handlers = ClientHandlers(elicitation=wait)
        for _ in range(MAX_HANDLERS + 1):  # none of them stays open
            waiting = asyncio.create_task(handlers.handle(ELICIT, FORM, SESSION))
            await asked.wait()
            asked.clear()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    run(scenario())
    assert len(ended) == MAX_HANDLERS + 1


@pytest.mark.rule("QUEST-12", "QUEST-13")
def test_request_fails_if_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    handlers = ClientHandlers(elicitation=fill_in)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(MAX_HANDLERS + 1):
            assert refusal(handlers, ELICIT, FORM).data["reason"] == "handler_failed"
    assert ask(handlers, ELICIT, FORM)["action"] == "accept"


# -- the stateless mode ---------------------------------------------------------------------------


def ask_all(handlers: ClientHandlers, requests: Any) -> Any:
    return run(handlers.handle_all(requests, NEWEST))


@pytest.mark.rule("QUEST-14")
def test_input_requests_are_handled_at_once() -> None:
    async def scenario() -> Any:
        together = asyncio.Barrier(2)

        async def fill_in_together(request: Any) -> Any:
            await together.wait()
            return {"f": request.message}

        handlers = ClientHandlers(elicitation=fill_in_together, roots=["file:///a"])
        requests = {
            "1": {"method": ELICIT, "params": {**FORM, "message": "one"}},
            "two": {"method": ELICIT, "params": {**FORM, "message": "two"}},
            "": {"method": LIST},
        }
        return await handlers.handle_all(requests, NEWEST)

    assert run(scenario()) == {
        "1": {"action": "accept", "content": {"f": "one"}},
        "two": {"action": "accept", "content": {"f": "two"}},
        "": {"roots": [{"uri": "file:///a"}]},
    }
    assert ask_all(ClientHandlers(), {}) == {}


@pytest.mark.rule("QUEST-14")
@pytest.mark.parametrize(
    "requests",
    [
        None,
        [],
        "x",
        {"1": None},
        {"1": {}},
        {"1": {"method": 1}},
        {"1": {"method": ELICIT}},
        {"1": {"method": ELICIT, "params": FORM}, "2": {"method": CREATE, "params": SAMPLE}},
        {"1": {"method": ELICIT, "params": FORM}, "2": {"method": ELICIT, "params": PAGE}},
        {"1": {"method": ELICIT, "params": FORM}, "2": {"method": "ping", "params": {}}},
        {str(number): {"method": ELICIT, "params": FORM} for number in range(MAX_HANDLERS + 1)},
    ],
)
def test_no_handler_runs_if_one_input_request_is_not_allowed(requests: Any) -> None:
    with pytest.raises(InvalidResponseError) as caught:
        ask_all(ClientHandlers(elicitation=never), requests)
    assert caught.value.may_have_run


@pytest.mark.rule("QUEST-14", "QUEST-15")
def test_one_that_fails_ends_the_others() -> None:
    ended: list[str] = []
    error = ValueError("the reason")

    async def scenario() -> None:
        others = asyncio.Event()

        async def answer(request: Any) -> Any:
            if request.message == "fail":
                await others.wait()
                raise error
            others.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(request.message)

        requests = {
            name: {"method": ELICIT, "params": {**FORM, "message": name}} for name in ("a", "fail")
        }
        await ClientHandlers(elicitation=answer).handle_all(requests, NEWEST)

    with pytest.raises(ServerRequestRefused) as caught:
        run(scenario())
    assert ended == ["a"]
    assert caught.value.__cause__ is error


JSON = json_values(
    st.integers(0, 9),
    st.text(max_size=3),
    keys=st.sampled_from(["mode", "message", "url", "messages"]),
)


@pytest.mark.rule("QUEST-03", "QUEST-22", "QUEST-14")
@given(
    st.sampled_from([ELICIT, CREATE, LIST, "ping", ""]),
    JSON | st.sampled_from([FORM, PAGE, SAMPLE]),
    JSON,
    st.sampled_from([*REVISIONS]),
)
def test_any_request_and_value_give_a_result_or_a_refusal(
    method: str, params: Any, answer: Any, revision: str
) -> None:
    async def reply(*arguments: Any) -> Any:
        return answer

    handlers = ClientHandlers(elicitation=reply, elicitation_url=reply, sampling=reply, roots=reply)

    async def scenario() -> None:
        row = REVISIONS[revision]
        try:
            sent = await handlers.handle(method, params, row)
            assert orjson.loads(orjson.dumps(sent)) == sent
        except ServerRequestRefused as refused:
            orjson.dumps(refused.to_wire())
        requests = {"1": {"method": method, "params": params}, "2": answer}
        with contextlib.suppress(MCPError):
            await handlers.handle_all(requests, row)

    run(scenario())


# -- with a server -------------------------------------------------------------------------------


def asking_server() -> Server:
    server = Server("asking", config={"logging": {"level": "error"}})

    @server.tool
    async def everything(context: ToolContext) -> list[Any]:
        schema = {
            "type": "object",
            "properties": {"f": {"type": "string"}, "n": {"type": "integer", "default": 7}},
        }
        answers = await context.ask(
            {"form": Elicit("?", schema), "model": Sample("?", 9), "places": Roots()}
        )
        root, *_ = answers["places"]
        return [answers["form"].content, answers["model"].text, root.uri]

    return server


@pytest.mark.rule("QUEST-16", "QUEST-06", "QUEST-14")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_server_gets_the_results_it_asks_for(revision: str) -> None:
    async def scenario() -> Any:
        options = {
            "elicitation": fill_in,
            "sampling": lambda request: SampleResult("assistant", (Text("Hello"),), "m"),
            "roots": ["file:///a"],
        }
        async with connect(asking_server(), revision=revision, **options) as client:
            return (await client.call("everything")).value()

    # In revision 2025-06-18 only booleans have a default.
    filled_in = {"f": "x"} if revision == "2025-06-18" else {"f": "x", "n": 7}
    assert run(scenario()) == [filled_in, "Hello", "file:///a"]
