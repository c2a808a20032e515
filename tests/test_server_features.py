"""Resources, prompts and completions as an author registers them and a client uses them."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any, Literal

import pytest

from foundation_rt import (
    Completion,
    CompletionRequest,
    ErrorCode,
    PromptArgument,
    PromptDefinition,
    PromptMessage,
    RegistrationError,
    ResourceDefinition,
    ResourceTemplateDefinition,
    Server,
    ToolContext,
    ToolDefinition,
    ToolError,
    UsageError,
)
from foundation_rt.errors import JsonRpcErrorCode
from foundation_rt.protocol.content import Annotations, Icon, Image
from foundation_rt.protocol.revisions import REVISIONS
from foundation_rt.testing import ManualClock, ProtocolError, TestClient
from tests.lab.clock.virtual_loop import run_bounded
from tests.lab.waiting import until

ICON = Icon("https://example.com/i.png")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


def tasks() -> Server:
    server = Server("tasks")
    done = {1: False, 2: True}

    @server.resource("task://all", mime_type="text/csv", size=7)
    def all_tasks() -> str:
        """Every task."""
        return "1,2"

    @server.resource("task://{id}", title="A task", annotations=Annotations(priority=1))
    async def task(id: int, uri: str, ctx: ToolContext) -> dict[str, Any]:
        await asyncio.sleep(0)
        if id not in done:
            raise ToolError(ErrorCode.NOT_FOUND, f"there is no task {id}")
        return {"uri": uri, "done": done[id], "correlated": bool(ctx.correlation_id)}

    @server.resource("logo://{color}", inline=True, cache_ttl_ms=60_000, icons=[ICON])
    def logo(color: Color) -> bytes:
        return color.value.encode()

    @server.prompt
    def review(code: str, language: Literal["py", "js"] = "py", depth: int = 1) -> str:
        """Review some code."""
        return f"Review {code} ({language}, {depth})."

    @server.prompt(name="draw", title="Draw", icons=[ICON], meta={"k": 1})
    async def draw_something(color: Color) -> list[Any]:
        return [PromptMessage("assistant", "Ready."), Image(b"x", "image/png"), color.value]

    @server.completion("review", "code")
    def code(value: str, known: dict[str, str]) -> list[str]:
        return [f"{value}.{known.get('language', '?')}"]

    @server.completion("task://{id}", "id")
    async def ids(value: str) -> Completion:
        return Completion([str(number) for number in done if str(number).startswith(value)], 9)

    return server


@pytest.mark.rule("MRES-02", "MRES-03", "MRES-04", "MRES-05", "MRES-10", "PROMPT-03", "COMP-05")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_feature_works_in_every_revision(revision: str) -> None:
    async with TestClient(tasks(), revision=revision) as client:
        [every] = await client.list_resources()
        assert every == {
            "uri": "task://all",
            "name": "all_tasks",
            "description": "Every task.",
            "mimeType": "text/csv",
            "size": 7,
        }
        templates = await client.list_resource_templates()
        assert [each["uriTemplate"] for each in templates] == ["logo://{color}", "task://{id}"]
        assert await client.read_resource("task://all") == "1,2"
        text = await client.read_resource("task://2")
        assert text == '{"uri":"task://2","done":true,"correlated":true}'
        assert await client.read_resource("logo://green") == b"green"
        prompts = await client.list_prompts()
        assert [each["name"] for each in prompts] == ["draw", "review"]
        [message] = await client.get_prompt("review", code="x", depth="3")
        assert message["content"] == {"type": "text", "text": "Review x (py, 3)."}
        roles = [each["role"] for each in await client.get_prompt("draw", color="red")]
        assert roles == ["assistant", "user", "user"]
        known = REVISIONS[revision].has("completion", "context")
        completed = await client.complete("review", "code", "a", language="js")
        assert completed == ["a.js" if known else "a.?"]
        assert await client.complete("review", "language") == ["py", "js"]
        assert await client.complete("review", "depth", "1") == []
        assert await client.complete("draw", "color", "g") == ["green"]
        assert await client.complete("logo://{color}", "color", "r") == ["red"]
        assert await client.complete("task://{id}", "id", "2") == ["2"]


@pytest.mark.rule("MRES-06", "MRES-21", "MRES-24", "COMP-05")
async def test_template_has_folders_and_a_query_with_defaults() -> None:
    server = Server("files")

    @server.resource("file:///{+path}{?line,order}")
    def read(path: str, line: int = 1, order: Literal["up", "down"] = "up") -> list[Any]:
        return [path, line, order]

    @server.completion("file:///{+path}{?line,order}", "path")
    def paths(value: str, known: dict[str, str]) -> list[str]:
        return [f"{value}/{known['order']}"]

    async with TestClient(server) as client:
        assert await client.read_resource("file:///a/b%20c") == '["a/b c",1,"up"]'
        found = await client.read_resource("file:///a?order=down&line=7")
        assert found == '["a",7,"down"]'
        for wrong in ("file:///a?lines=7", "file:///a/%2e%2e/b", "file:///%252e%252e/b"):
            with pytest.raises(ProtocolError, match="Resource not found"):
                await client.read_resource(wrong)
        [template] = await client.list_resource_templates()
        subject = template["uriTemplate"]
        assert await client.complete(subject, "order", "d") == ["down"]
        assert await client.complete(subject, "path", "a/b", order="up") == ["a/b/up"]


@pytest.mark.rule("MRES-16", "MRES-22", "PROMPT-09")
async def test_refusals_of_handlers_and_types_are_sent() -> None:
    async with TestClient(tasks()) as client:
        with pytest.raises(ProtocolError, match="there is no task 7") as raised:
            await client.read_resource("task://7")
        assert raised.value.code is JsonRpcErrorCode.RESOURCE_NOT_FOUND
        assert raised.value.data["uri"] == "task://7"
        with pytest.raises(ProtocolError, match="/id must be integer") as raised:
            await client.read_resource("task://seven")
        assert raised.value.code is JsonRpcErrorCode.INVALID_PARAMS
        with pytest.raises(ProtocolError, match="/depth must be integer") as raised:
            await client.get_prompt("review", code="x", depth="deep")
        assert raised.value.code is JsonRpcErrorCode.INVALID_PARAMS
        assert raised.value.data["details"]["errors"][0]["path"] == "/depth"


@pytest.mark.rule("MRES-11", "PROMPT-07", "COMP-05")
def test_registered_handlers_get_text() -> None:
    server = Server("plain")
    given: list[Any] = []

    def handler(arguments: dict[str, Any], context: ToolContext) -> Any:
        given.append(arguments)
        return []

    async def later(arguments: dict[str, Any], context: ToolContext) -> Any:
        return handler(arguments, context)

    resource = ResourceDefinition(uri="a:b", name="b")
    server.register_resource(resource, handler, inline=True, cache_ttl_ms=5)
    template = ResourceTemplateDefinition(uri_template="a:{x}/{y}", name="xy")
    server.register_resource_template(template, later, timeout_ms=5000)
    definition = PromptDefinition("p", arguments=[PromptArgument("a", required=True)])
    server.register_prompt(definition, handler)
    server.register_completion("p", "a", handler, inline=True)

    async def main() -> None:
        async with TestClient(server) as client:
            assert await client.read_resource("a:b") == "[]"
            assert await client.read_resource("a:1/%32") == "[]"
            assert await client.get_prompt("p", a="5") == []
            assert await client.complete("p", "a", "b", c="d") == []

    run_bounded(main)
    assert given == [
        {"uri": "a:b"},
        {"x": "1", "y": "2", "uri": "a:1/%32"},
        {"a": "5"},
        {"value": "b", "arguments": {"c": "d"}},
    ]


@pytest.mark.rule("MRES-12", "PROMPT-07", "MRES-13")
async def test_clients_are_notified_of_changes_while_the_server_runs() -> None:
    server = Server("late")

    async with TestClient(server, clock=ManualClock()) as client:
        with pytest.raises(ProtocolError, match="Method not found"):
            await client.list_resources()

        @server.resource("a:b")
        def b() -> str:
            return "b"

        @server.prompt
        def p() -> str:
            return "p"

        assert await client.read_resource("a:b") == "b"
        assert len(await client.get_prompt("p")) == 1
        async with TestClient(server, clock=ManualClock()) as later:
            assert server.unregister_resource("a:b")
            assert not server.unregister_resource("a:b")
            assert server.unregister_prompt("p")
            assert not server.unregister_prompt("p")
            assert await client.list_prompts() == await client.list_resources() == []
            await until(lambda: len(later.notifications) >= 2, "both notifications come")
            assert [each["method"] for each in later.notifications] == [
                "notifications/resources/list_changed",
                "notifications/prompts/list_changed",
            ]
        assert client.notifications == []  # its handshake advertised neither


@pytest.mark.rule("MRES-10", "PROMPT-03", "MRES-06", "COMP-01")
def test_invalid_registration_is_refused() -> None:
    server = Server("refusals")

    async def later() -> str:
        return ""

    def read(id: str) -> str:
        return id

    with pytest.raises(
        RegistrationError, match="resource 'a:b' is refused: inline=True is for def"
    ):
        server.resource("a:b", inline=True)(later)
    with pytest.raises(
        RegistrationError, match="prompt 'later' is refused: inline=True is for def"
    ):
        server.prompt(inline=True)(later)
    with pytest.raises(RegistrationError, match=r"resource 'a:\{#id\}' is refused: it has"):
        server.resource("a:{#id}")(read)
    with pytest.raises(RegistrationError, match="parameter of its query out: give it a default"):
        server.resource("a:b{?id}")(read)
    with pytest.raises(RegistrationError, match="a resource has a URI"):
        server.resource(read)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="a template has no size"):
        server.resource("a:{id}", size=5)(read)
    with pytest.raises(RegistrationError, match="no such prompt"):
        server.completion("review", "code")(read)
    with pytest.raises(RegistrationError, match="the handler takes two arguments"):
        server.register_prompt(PromptDefinition("p"), later, inline=True)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="name is taken"):
        server.prompt(read)
        server.prompt(read)


@pytest.mark.rule("COMP-08", "COMP-06")
async def test_one_completion_answers_for_all_arguments_without_their_own() -> None:
    server = Server("shop")

    @server.prompt
    def review(language: str, topic: str, tone: Literal["dry", "kind"] = "dry") -> str:
        return language

    @server.resource("repo://{owner}/{name}")
    def repository(owner: str, name: str) -> str:
        return name

    @server.completion("review", "topic")
    def topics(value: str) -> list[str]:
        return ["tests"]

    @server.completion
    async def everything(request: CompletionRequest, ctx: ToolContext) -> list[str] | None:
        assert ctx.run_id
        if request.prompt is not None:
            return [f"{request.prompt}.{request.argument}", request.value]
        if request.argument == "owner":
            return None
        return [request.template or "", request.arguments["owner"]]

    async with TestClient(server) as client:
        assert await client.complete("review", "topic", "t") == ["tests"]
        assert await client.complete("review", "tone", "k") == ["kind"]
        assert await client.complete("review", "language", "p") == ["review.language", "p"]
        assert await client.complete("repo://{owner}/{name}", "owner", "a") == []
        assert await client.complete("repo://{owner}/{name}", "name", "", owner="ann") == [
            "repo://{owner}/{name}",
            "ann",
        ]
    with pytest.raises(RegistrationError, match="there is a completion of all arguments already"):
        server.completion()(everything)
    with pytest.raises(RegistrationError, match="a completion takes request"):
        server.completion(lambda request, other: [])

    def list_nothing() -> list[str]:
        return []

    with pytest.raises(RegistrationError, match="request: CompletionRequest"):
        server.completion(list_nothing)
    with pytest.raises(UsageError, match="or neither"):
        server.completion("review")  # type: ignore[call-overload]
    inner = Server("inner")
    inner.completion(everything)
    with pytest.raises(UsageError, match="completion of all arguments"):
        Server("outer").mount(inner)


@pytest.mark.rule("TYPED-01", "MRES-10", "PROMPT-03", "COMP-05")
@pytest.mark.parametrize("option", ["timout_ms", "execution", "reserved", "is_dynamic", "handler"])
def test_unknown_option_is_a_type_error(option: str) -> None:
    server = Server("typo")

    def handler(arguments: str = "", context: str = "") -> str:
        return ""

    server.register_prompt(PromptDefinition("p", None, [PromptArgument("a")]), handler)  # type: ignore[arg-type]
    uri, template = "a:b", "a:{id}"
    wrong: dict[str, Any] = {option: None}
    registrations: list[Callable[[], object]] = [
        lambda: server.tool(**wrong)(handler),
        lambda: server.resource(uri, **wrong)(lambda: ""),
        lambda: server.prompt(**wrong)(handler),
        lambda: server.completion("p", "a", **wrong)(handler),
        lambda: server.register_resource(ResourceDefinition(uri=uri, name="r"), handler, **wrong),
        lambda: server.register_resource_template(
            ResourceTemplateDefinition(uri_template=template, name="t"), handler, **wrong
        ),
        lambda: server.register_prompt(PromptDefinition("q"), handler, **wrong),
        lambda: server.register_completion("p", "a", handler, **wrong),
    ]
    if option != "is_dynamic":
        definition = ToolDefinition("t", "", {"type": "object"})
        registrations.append(lambda: server.register(definition, handler, **wrong))
    for register in registrations:
        with pytest.raises(TypeError, match=option):
            register()
    assert [each.name for each in server.list()] == ["health"]


@pytest.mark.rule("MRES-10", "PROMPT-03")
def test_decorators_return_the_function_itself() -> None:
    server = Server("as it was")

    def read() -> str:
        return "x"

    assert server.resource("a:b")(read) is read
    assert server.prompt(read) is read
    assert server.prompt(name="other")(read) is read


@pytest.mark.rule("FEAT-08")
def test_server_lists_the_definitions_of_its_features() -> None:
    server, other = Server("outer"), tasks()
    assert (server.list_prompts(), server.list_resources()) == ((), ())
    assert server.list_resource_templates() == ()
    other.register_prompt(PromptDefinition("answer"), lambda *_: "Answer.")
    other.resource("task://none")(lambda: "")
    other.disable("task://none")
    server.mount(other)
    assert [each.name for each in server.list_prompts()] == ["answer", "draw", "review"]
    assert [each.uri for each in server.list_resources()] == ["task://all"]
    templates = [each.uri_template for each in server.list_resource_templates()]
    assert templates == ["logo://{color}", "task://{id}"]
