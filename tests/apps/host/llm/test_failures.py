"""What failed requests to a model are, and what people read of them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.llm.failures import (
    FAILURES,
    MAX_READ,
    MAX_RETRY_AFTER_S,
    OF_WORDS,
    AskedModel,
    ReportedError,
    causes,
    kind_of,
    reason_in,
    retry_after,
    without_page,
)
from foundation_rt.apps.host.llm.providers import make_service
from foundation_rt.apps.host.llm.service import LLMConfig, LLMFailure, LLMServiceError
from foundation_rt.base.http_client.values import readable_url
from tests.lab.models.chats import Chat
from tests.lab.models.fake_models import KEY, FakeModels

F = LLMFailure

SEEN = [
    # What OpenAI, Anthropic, Google, DeepSeek, OpenRouter, Ollama, vLLM and others answer.
    (401, "Incorrect API key provided", F.BAD_KEY),
    (400, "API key not valid. Please pass a valid API key.", F.BAD_KEY),
    (403, "Your API key was reported as leaked.", F.BAD_KEY),
    (403, "Country, region, or territory not supported", F.FORBIDDEN),
    (402, "Insufficient Balance", F.NO_CREDIT),
    (429, "You exceeded your current quota, please check your plan", F.NO_CREDIT),
    (400, "Your credit balance is too low to access the API", F.NO_CREDIT),
    (403, "insufficient_quota", F.NO_CREDIT),
    (429, "Rate limit reached for requests", F.RATE_LIMIT),
    (404, "The model `x` does not exist or you do not have access to it.", F.UNKNOWN_MODEL),
    (404, "model: claude-x", F.UNKNOWN_MODEL),
    (404, 'model "x" not found, try pulling it first', F.UNKNOWN_MODEL),
    (404, "models/x is not found for API version v1beta", F.UNKNOWN_MODEL),
    (400, "x is not a valid model ID", F.UNKNOWN_MODEL),
    (404, "Model Not Exist", F.UNKNOWN_MODEL),
    (404, "Model grok-9 does not exist or your team has no access to it.", F.UNKNOWN_MODEL),
    (400, "The provided model identifier is invalid.", F.UNKNOWN_MODEL),
    (400, "The requested model 'x' is not supported by any provider", F.UNKNOWN_MODEL),
    (400, "The model produced invalid content. Consider modifying your prompt.", F.BAD_REQUEST),
    (400, "max_tokens is too large: model supports at most 4096; invalid", F.BAD_REQUEST),
    (404, "404 page not found", F.WRONG_ADDRESS),
    (404, "Not Found", F.WRONG_ADDRESS),
    (405, "Method Not Allowed", F.WRONG_ADDRESS),
    (0, "Unexpected endpoint or method. (POST /chat/completions)", F.WRONG_ADDRESS),
    (400, "This model's maximum context length is 8192 tokens.", F.TOO_LONG),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", F.TOO_LONG),
    (400, "the request exceeds the available context size", F.TOO_LONG),
    (400, "The input token count (9) exceeds the maximum number of tokens", F.TOO_LONG),
    (400, "Input tokens exceed the configured limit of 272000 tokens.", F.TOO_LONG),
    (400, "This model's maximum prompt length is 131072.", F.TOO_LONG),
    (400, "Request payload size exceeds the limit: 20971520 bytes.", F.TOO_LONG),
    (413, "Request exceeds the maximum size", F.TOO_LONG),
    (400, "'messages' is wrong", F.BAD_REQUEST),
    (422, "Unprocessable", F.BAD_REQUEST),
    (503, "Loading model", F.SERVER_ERROR),
    (502, "", F.SERVER_ERROR),
    (0, "Overloaded", F.SERVER_ERROR),
]


@pytest.mark.rule("LLM-30", "LLM-31")
@pytest.mark.parametrize(("status", "message", "kind"), SEEN)
def test_refusal_is_known_by_status_and_words(status: int, message: str, kind: F) -> None:
    assert kind_of(ReportedError(status, message)) is kind


@pytest.mark.rule("LLM-118")
def test_words_are_read_in_bounded_work() -> None:
    said = "x does not support tools"
    assert kind_of(ReportedError(400, "-" * (MAX_READ - len(said)) + said)) is F.TOOLS_UNSUPPORTED
    assert kind_of(ReportedError(400, "-" * MAX_READ + said)) is F.BAD_REQUEST
    for _, words, _ in OF_WORDS:
        assert not re.search(r"(?<!\\)[*+]|,\}", words.pattern)


@pytest.mark.rule("LLM-30")
def test_quota_that_is_there_again_in_a_moment_is_a_limit() -> None:
    said = ReportedError(429, "You exceeded your current quota, please retry in 34 s")
    assert kind_of(said, 34.0) is F.RATE_LIMIT


@pytest.mark.rule("LLM-31")
@pytest.mark.parametrize("kind", F)
def test_kind_has_a_sentence_and_says_what_to_change(kind: F) -> None:
    asked = AskedModel(provider="openai", model="m", address="http://x/v1", variable="A_KEY")
    failed = asked.failure(kind, said="so it is", status=418, seconds=3, retry_after=1.2)
    assert failed.failure is kind
    assert str(failed).endswith("It says: so it is. It asks to wait 2 s.")
    assert "{" not in failed.for_people
    assert failed.advice or FAILURES[kind].is_tried_again
    own = AskedModel(provider="openai", model="m", address="http://x/v1", server="x")
    assert ("the server at x" in str(own.failure(kind)).lower()) is (
        "{who}" in FAILURES[kind].sentence
    )


@pytest.mark.rule("LLM-30")
def test_wait_that_is_asked_for_is_read_in_each_form() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert retry_after({"retry-after-ms": "soon", "retry-after": "7"}) == 7
    assert retry_after({"retry-after": "99999"}) == MAX_RETRY_AFTER_S
    later = format_datetime(datetime.now(UTC) + timedelta(hours=5), usegmt=True)
    assert retry_after({"retry-after": later}) == MAX_RETRY_AFTER_S
    assert retry_after({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0
    assert retry_after({}) is None


@pytest.mark.rule("LLM-30")
@given(st.one_of(st.text(max_size=40), st.floats().map(str), st.integers().map(str)))
def test_wait_is_bounded_whatever_is_asked_for(value: str) -> None:
    for name in ("retry-after", "retry-after-ms"):
        found = retry_after({name: value})
        assert found is None or 0 <= found <= MAX_RETRY_AFTER_S


@pytest.mark.rule("LLM-33")
def test_address_is_shown_without_what_may_be_a_secret() -> None:
    shown = readable_url("https://user:pass@x.example:8/v1/chat?key=s#t")
    assert shown == "https://x.example:8/v1/chat"
    assert readable_url("http://[") == ""


@pytest.mark.rule("LLM-33")
async def test_words_that_repeat_a_secret_are_shown_without_it() -> None:
    async with FakeModels([[{"status": 500, "message": "api_key=abcdefgh Bearer xyzxyz"}]]) as fake:
        with pytest.raises(LLMServiceError) as failed:
            await Chat(fake.service("openai")).say("x")
    for secret in (KEY, "abcdefgh", "xyzxyz"):
        assert secret not in failed.value.for_people


@pytest.mark.rule("LLM-34")
def test_web_page_is_its_title() -> None:
    page = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title>"
    assert without_page(page) == "502 Bad Gateway"
    assert without_page("<html>x") == ""
    assert without_page("a < b") == "a < b"


def written(status: int, kind: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body.encode()


@asynccontextmanager
async def answering(by_path: Mapping[str, bytes], other: bytes = b"") -> AsyncIterator[str]:
    """Yield the base URL of a server that answers each request by the beginning of its path."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.read(65_536)).split()[1:2]  # a request is one packet here
        found = [
            each for start, each in by_path.items() if path and path[0].startswith(start.encode())
        ]
        writer.write(found[0] if found else other)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


PAGE = written(200, "text/html; charset=utf-8", "<html><title>Sign in</title></html>")
BROKEN = written(502, "text/html", "<html><title>502 Bad Gateway</title></html>")
ANSWERED = [
    (PAGE, F.WEB_PAGE, "There is a web page at http://127.0.0.1:"),
    (BROKEN, F.SERVER_ERROR, "(502). It says: 502 Bad Gateway."),
    (written(200, "text/event-stream", ""), F.EMPTY, "answered with nothing."),
    (written(500, "text/plain", ""), F.SERVER_ERROR, "has an error of its own (500)."),
    (b"", F.TRANSIENT, "broke off"),
]


async def failure_at(url: str, provider: str) -> LLMServiceError:
    """Return the error of a question to the model of a server."""
    config = LLMConfig(provider=provider, model="m", api_key=KEY, base_url=url)
    service = make_service(config)
    try:
        with pytest.raises(LLMServiceError) as failed:
            await Chat(service).say("x")
    finally:
        await service.close()
    return failed.value


@pytest.mark.rule("LLM-34")
@pytest.mark.parametrize("provider", ["openai", "gemini", "anthropic"])
async def test_what_is_no_answer_of_a_model_has_its_sentence(provider: str) -> None:
    for answer, kind, said in ANSWERED:
        async with answering({}, answer) as url:
            error = await failure_at(url, provider)
        assert error.failure is kind
        assert said in error.for_people
        assert "<" not in error.for_people


@pytest.mark.rule("LLM-121")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("words", "words"),
        ({"error": "words"}, "words"),
        ({"message": {"detail": [{"loc": ["body", "n"], "msg": "words"}]}}, "body.n: words"),
        ({"detail": [{"msg": "a"}, {"msg": "b"}]}, "a; b"),
        ([{"error": {"message": "words"}}], "words"),
        (
            {"message": "refused", "metadata": {"raw": '{"error": {"message": "words"}}'}},
            "refused: words",
        ),
        ({"message": "refused", "metadata": {"raw": "{words"}}, "refused: {words"),
        ({"error": {"code": 7}}, ""),
        (None, ""),
        (json.loads('{"error":' * 300 + '"deep"' + "}" * 300), ""),
    ],
)
def test_reason_is_found_where_servers_have_it(body: Any, said: str) -> None:
    assert reason_in(body) == said


@pytest.mark.rule("LLM-121")
async def test_reason_of_a_server_behind_a_gateway_decides_what_a_refusal_is() -> None:
    raw = json.dumps({"error": {"message": "prompt is too long"}})
    error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}
    body = json.dumps({"error": error})
    stream = f"data: {body}\n\n"
    for answer in (
        written(400, "application/json", body),
        written(200, "text/event-stream", stream),
    ):
        async with answering({}, answer) as url:
            failed = await failure_at(url, "openai")
        assert (failed.failure, "prompt is too long" in str(failed)) == (F.TOO_LONG, True)


@pytest.mark.rule("LLM-122")
@pytest.mark.parametrize("provider", ["openai", "gemini", "anthropic"])
async def test_redirect_to_another_origin_gets_neither_key_nor_chat(provider: str) -> None:
    async with FakeModels([["no"]]) as other:
        place = str(other.config("openai").base_url).removesuffix("/v1")
        for target, said in ((f"{place}/x?key=1", f"has moved to {place}/x."), ("http://[", "no")):
            head = f"HTTP/1.1 307 X\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"
            async with answering({}, head.encode()) as url:
                error = await failure_at(url, provider)
            assert (error.failure, said in str(error)) == (F.WRONG_ADDRESS, True)
    assert other.requests == []


@pytest.mark.rule("LLM-122")
async def test_redirect_within_an_origin_is_followed() -> None:
    moved = b"HTTP/1.1 307 X\r\nlocation: /new/v1/chat\r\ncontent-length: 0\r\n\r\n"
    async with answering({"/v1/": moved, "/new/": EVENTS}) as url:
        config = LLMConfig(provider="openai", model="m", api_key=KEY, base_url=f"{url}/v1")
        service = make_service(config)
        (message,) = await Chat(service).say("x")
        await service.close()
    assert message.content == "Here."


@pytest.mark.rule("LLM-30")
async def test_error_of_an_sdk_without_a_status_is_told_and_a_bug_is_none() -> None:
    async with answering({}) as url:
        service = make_service(LLMConfig(provider="openai", model="m", api_key=KEY, base_url=url))
        await service.initialize()
        failed = service._provider.failure_of(openai.OpenAIError("odd answer"), "m")
        assert "It says: odd answer." in str(failed)
        assert service._provider.failure_of(ZeroDivisionError(), "m") is None
        await service.close()


def test_causes_of_an_error_are_read_to_a_bound() -> None:
    error = ValueError("0")
    for number in range(1, 20):
        outer = ValueError(str(number))
        outer.__cause__, error = error, outer
    assert [str(each) for each in causes(error)] == [str(number) for number in range(19, 9, -1)]


@pytest.mark.rule("LLM-34")
@pytest.mark.parametrize("provider", ["openai", "gemini", "anthropic"])
async def test_connection_that_cannot_be_made_has_its_sentence(provider: str) -> None:
    async with answering({}, written(400, "text/plain", "TLS?")) as url:
        tls = await failure_at(url.replace("http:", "https:"), provider)
    assert tls.failure is F.NO_TLS
    assert "begins with http://" in tls.advice
    name = await failure_at("http://no-such-host.invalid", provider)
    assert (name.failure, "(DNS) for http://no-such-host.invalid" in str(name)) == (
        F.UNKNOWN_HOST,
        True,
    )


NOT_FOUND = written(404, "text/plain", "404 page not found")
EVENTS = written(
    200,
    "text/event-stream",
    'data: {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": '
    '[{"index": 0, "delta": {"content": "Here."}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n',
)


@pytest.mark.rule("LLM-35")
@pytest.mark.parametrize("nothing", [NOT_FOUND, PAGE])
async def test_base_url_without_its_version_is_completed_once(
    nothing: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with answering({"/v1/": EVENTS}, nothing) as url:
        service = make_service(LLMConfig(provider="openai", model="m", api_key=KEY, base_url=url))
        chat = Chat(service)
        for _ in range(2):
            (message,) = await chat.say("x")
            assert message.content == "Here."
            service.set_api_key("another-key")
        await service.close()
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "add /v1 to the base URL" in record.getMessage()
    assert service.notes == (record.getMessage(),)


@pytest.mark.rule("LLM-35")
async def test_refusal_of_the_model_at_v1_is_said_as_it_is() -> None:
    refused = written(401, "application/json", '{"error": {"message": "no key"}}')
    async with answering({"/v1/": refused}, NOT_FOUND) as url:
        assert (await failure_at(url, "openai")).failure is F.BAD_KEY


@pytest.mark.rule("LLM-35")
async def test_both_addresses_are_said_where_there_is_no_model_at_either() -> None:
    async with answering({}, NOT_FOUND) as url:
        error = await failure_at(url, "openai")
        assert f"at {url}/chat/completions, nor at {url}/v1/chat/completions (404)" in str(error)
        assert "ends with /v1" in error.advice
        (named,) = [await failure_at(f"{url}/v1", "openai")]
        assert "nor at" not in str(named)
