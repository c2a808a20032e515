"""What a type checker sees of the public names; read by mypy --strict, never run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Annotated, Any, TypedDict, assert_type

from foundation_rt import (
    AbortSignal,
    AgentContext,
    AgentCoordinatorV2,
    AgentMessage,
    Annotations,
    BlobContents,
    Completion,
    Connection,
    Depends,
    Dispatcher,
    Elicit,
    ElicitResult,
    ErrorCode,
    Feature,
    ForwardedError,
    ForwardedRequest,
    ForwardTarget,
    Header,
    Icon,
    Image,
    Invocation,
    PromptArgument,
    PromptDefinition,
    PromptMessage,
    PromptResult,
    RequestForwarder,
    ResourceDefinition,
    ResourceTemplateDefinition,
    Root,
    Sample,
    SampleResult,
    Server,
    ServerOptions,
    Text,
    TextContents,
    ToolAnnotations,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolResult,
    create_server,
    start_server,
)
from foundation_rt.testing import TestClient

server = Server("weather", version="1.0.0", config={"tools": {"default_timeout_ms": 5}})


@server.tool
def plain(city: str, days: int = 3) -> dict[str, int]:
    return {city: days}


@server.method("acme/report", timeout_ms=2000, scopes=["reports"])
async def report(city: str, *, ctx: ToolContext) -> dict[str, int]:
    assert_type(ctx.client.extensions, frozenset[str])
    return {city: 1}


server.method("acme/other", tags={"a"})  # type: ignore[call-arg]


class Gate(Feature):
    def allow(self, call: Invocation) -> None:
        assert_type(call.method, str)

    def instructions(self) -> str:
        return "Mind the gate."


server.add_feature(Gate(), extensions={"com.example/gate": {}})
server.add_feature(object())  # type: ignore[arg-type]


@server.tool(timeout_ms=2000, name="other", inline=True)
def with_options(city: str) -> str:
    return city


@server.tool()
async def later(city: str, *, ctx: ToolContext) -> list[str]:
    ctx.abort_signal.raise_if_aborted()
    assert_type(ctx.abort_signal, AbortSignal)
    assert_type(await ctx.abort_signal.wait(), str)
    assert_type(ctx.abort_signal.reason, str | None)
    assert_type(ctx.abort_signal.add_callback(lambda: None), Callable[[], None])
    assert_type(ctx.run_id, str)
    ctx.logger.info("looking", {"city": city})
    raise ToolError(ErrorCode.NOT_FOUND, "no such city", {"city": city})


@server.tool(
    title="Show",
    annotations=ToolAnnotations(read_only=True),
    icons=[Icon("https://x.example/i.png", sizes=["any"])],
    meta={"k": 1},
    scopes=["show"],
    output_schema=True,
)
def shaped(region: Annotated[str, Header("Region")]) -> ToolResult:
    return ToolResult([Image(b"", "image/png"), "text"], structured={"a": 1})


ToolResult(Text("one", annotations=Annotations(audience=["user"], priority=1)))
ToolResult([5])  # type: ignore[list-item]
Image("text", "image/png")  # type: ignore[arg-type]
ToolAnnotations(harmless=True)  # type: ignore[call-arg]
assert_type(shaped("north"), ToolResult)

# The decorator changes nothing: what was wrong before is wrong after.
assert_type(plain("Oslo"), dict[str, int])
assert_type(with_options("Oslo"), str)
plain(5)  # type: ignore[arg-type]
with_options()  # type: ignore[call-arg]
server.tool(5)  # type: ignore[call-overload]
server.tool(plain, name="x")  # type: ignore[call-overload]


async def use() -> None:
    waiting: Coroutine[Any, Any, list[str]] = later("Oslo", ctx=_context())
    assert_type(await waiting, list[str])
    reporting: Coroutine[Any, Any, dict[str, int]] = report("Oslo", ctx=_context())
    assert_type(await reporting, dict[str, int])
    async with TestClient(server) as client:
        assert_type(client, TestClient)
        assert_type(await client.list_tools(), list[dict[str, Any]])
        assert_type(await client.call("forecast", city="Oslo"), Any)


class Guest(TypedDict):
    name: str


async def ask(ctx: ToolContext) -> None:
    assert_type(await ctx.elicit("Who?", Guest), ElicitResult[Guest])
    form = await ctx.elicit("Who?", {"type": "object", "properties": {}}, key="who")
    assert_type(form, ElicitResult[dict[str, Any]])
    assert_type(form.content, dict[str, Any] | None)
    assert_type((await ctx.elicit_url("Pay", "https://x.example/")).accepted, bool)
    assert_type(await ctx.sample("Hi", max_tokens=5, temperature=0.1), SampleResult)
    assert_type(await ctx.sample(["Hi"], max_tokens=5, tool_choice="none"), SampleResult)
    assert_type(await ctx.roots(), tuple[Root, ...])
    answers = await ctx.ask({"a": Elicit("Who?", Guest), "b": Sample("Hi", 5)})
    assert_type(answers, dict[str, Any])
    assert_type(await ctx.sample("Hi", model_preferences="small"), SampleResult)
    await ctx.sample("Hi", max_tokens=5, heat=1)  # type: ignore[call-arg]
    await ctx.ask({"a": "Who?"})  # type: ignore[dict-item]
    ctx.log("info", {"any": "thing"}, logger="name")
    ctx.report_progress(0.5, total=1, message="half")
    await ctx.report_progress(1)
    await ctx.warning("low", logger="name", left=3)
    assert_type(await ctx.elicit("How many?", response_type=int), ElicitResult[int])
    assert_type((await ctx.elicit("Sure?")).data, None)
    assert_type((await ctx.elicit("Which?", ["a", "b"])).data, str | None)
    assert_type((await ctx.elicit("Which?", [["a", "b"]])).data, list[str] | None)
    assert_type((await ctx.elicit("Which?", {"a": {"title": "A"}})).data, str | None)
    assert_type(await ctx.read_resource("a:b"), tuple[TextContents | BlobContents, ...])
    assert_type(await ctx.run_in_worker(len, "abc"), int)
    await ctx.run_in_worker(len, 5)  # type: ignore[arg-type]


class AppState:
    greeting = "Hello"


@server.tool
def greet(name: str, ctx: ToolContext[AppState]) -> str:
    assert_type(ctx.state, AppState)
    return ctx.state.greeting.title() + ctx.state.farewell  # type: ignore[attr-defined, no-any-return]


def open_state(ctx: ToolContext[AppState]) -> Iterator[AppState]:
    yield ctx.state


@server.tool
def depends(
    name: str, one: Annotated[AppState, Depends(open_state)], two: AppState = Depends(open_state)
) -> str:
    assert_type(one, AppState)
    return two.greeting + name


Depends(5)  # type: ignore[arg-type]
server.dependency_overrides[open_state] = AppState


def any_state(ctx: ToolContext) -> None:
    assert_type(ctx.state, Any)


def _context() -> ToolContext:
    raise NotImplementedError


connection = server.connect(send=lambda line: None, transport_type="http")
assert_type(connection, Connection)
connection.feed(b"")
server.connect(print, transport_type="carrier pigeon")  # type: ignore[arg-type]
definition = ToolDefinition("name", "description", {"type": "object"}, version="1")
server.register(definition, lambda arguments, context: None, is_dynamic=True)
assert_type(server.unregister("name"), bool)
assert_type(server.list(), tuple[ToolDefinition, ...])
assert_type(server.validate_definition(definition).valid, bool)
assert_type(create_server(ServerOptions(instructions="x")), Server)
assert_type(start_server(server), int)
assert_type(server.runtime.dispatcher, Dispatcher)


async def agent(message: AgentMessage, context: AgentContext) -> int:
    assert_type(message.source_agent_id, str | None)
    assert_type(context.abort_signal, AbortSignal)
    context.state["count"] = 1
    context.logger.info("handling", {"type": message.type})
    return len(context.state)


def no_agent(message: AgentMessage, context: AgentContext) -> int:
    return 0


async def use_agents() -> None:
    assert_type(server.agents, AgentCoordinatorV2)
    server.agents.register_agent("a", agent)
    server.agents.register_agent("b", no_agent)  # type: ignore[arg-type]
    server.agents.on_state_change = lambda agent_id, state: print(agent_id, len(state))
    await server.agents.send_message("a", AgentMessage("x", 1), abort_signal=AbortSignal())
    assert_type(server.agents.get_agent_state("a"), dict[str, Any] | None)
    assert_type(await server.agents.run_in_turn("a", lambda handle: agent(*_given())), int)


def _given() -> tuple[AgentMessage, AgentContext]:
    raise NotImplementedError


@server.resource("task://{id}", title="A task")
async def task(id: int, *, ctx: ToolContext) -> bytes:
    return b""


@server.prompt
def review(code: str) -> PromptResult:
    return PromptResult([PromptMessage("user", code), "Think.", PromptMessage("system", "no")])  # type: ignore[arg-type]


@server.prompt(title="Draw")
async def draw(what: str) -> list[PromptMessage]:
    return []


@server.completion("review", "code")
def code(value: str) -> Completion:
    return Completion([value], 1)


# As with tools, the decorators change nothing.
assert_type(review("x"), PromptResult)
assert_type(code("x"), Completion)
draw(5)  # type: ignore[arg-type, unused-coroutine]
server.resource(task)  # type: ignore[arg-type]
server.register_resource(ResourceDefinition(uri="a:b", name="b"), lambda arguments, context: "b")
template = ResourceTemplateDefinition(uri_template="a:{b}", name="b")
server.register_resource_template(template, lambda arguments, context: arguments["b"])
prompt = PromptDefinition("p", arguments=[PromptArgument("a", required=True)])
server.register_prompt(prompt, lambda arguments, context: arguments["a"])
server.register_completion("p", "a", lambda arguments, context: [])
assert_type(server.unregister_resource("a:b"), bool)
assert_type(server.unregister_prompt("p"), bool)


async def use_features() -> None:
    assert_type(await task(1, ctx=_context()), bytes)
    assert_type(await draw("x"), list[PromptMessage])
    async with TestClient(server, revision="2026-07-28") as client:
        assert_type(await client.read_resource("a:b"), str | bytes)
        assert_type(await client.get_prompt("p", a="b"), list[dict[str, Any]])
        assert_type(await client.complete("p", "a", "b", c="d"), list[str])
        assert_type(await client.list_prompts(), list[dict[str, Any]])


@server.on_session_end
def forget(key: str) -> None: ...


async def know_the_client(ctx: ToolContext) -> None:
    assert_type(ctx.headers["x-tenant"], str)
    assert_type(ctx.headers.get("x-tenant"), str | None)
    assert_type(ctx.session_key, str | None)
    ctx.session_state["visits"] = 1
    ctx.session_state[5] = 1  # type: ignore[index]
    assert_type(await ctx.request_client("roots/list"), dict[str, Any])
    ctx.notify("notifications/progress", {"progress": 1})
    server.list_changed("tools", session_key=ctx.session_key, principal=ctx.principal)
    assert_type(forget("key"), None)


class Plain:
    """A forwarder with plain attributes and lists."""

    capabilities: Mapping[str, Any] = {"resources": {"subscribe": True}}
    instructions: str | None = None

    def target(self, request: ForwardedRequest) -> ForwardTarget | None:
        return ForwardTarget(request.name, timeout_ms=5)

    def list_entries(self, kind: str, context: ToolContext) -> tuple[dict[str, Any], ...]:
        return ({"name": "a"},)

    async def forward(self, request: ForwardedRequest, context: ToolContext) -> dict[str, Any]:
        assert_type(server.seal_state({"a": 1}, context), str)
        assert_type(server.open_state(request.params["requestState"], context), Any)
        raise ForwardedError(-32602, "as it came", {"a": 1})

    def subscription_ended(self, request: ForwardedRequest) -> None: ...


class Waiting(Plain):
    """A forwarder that waits for its lists."""

    async def list_entries(  # type: ignore[override]
        self, kind: str, context: ToolContext
    ) -> list[dict[str, Any]]:
        return [{"name": "a"}]


plain_forwarder: RequestForwarder = Plain()
waiting_forwarder: RequestForwarder = Waiting()
server.forward(plain_forwarder)
server.resource_updated("a:b", session_key="k")
server.task_changed({"taskId": "t"})
