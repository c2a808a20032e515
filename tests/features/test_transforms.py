"""Tools of another server, shaped where they join (spec/transforms.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from foundation_rt import (
    Header,
    RegistrationError,
    Server,
    ToolContext,
    ToolDefinition,
    ToolError,
    Transform,
)
from foundation_rt.apps.gateway.transforms import ShapedTools
from foundation_rt.errors import ErrorCode
from foundation_rt.testing import TestClient

QUIET = {"logging": {"level": "error"}}
ARGUMENTS = ("a", "b", "c")
SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "integer", "maximum": 100} for name in ARGUMENTS},
    "required": ["a"],
}


@frozen
class Nobody:
    principal: None = None
    session_key: None = None
    headers: Mapping[str, str] = {}


NOBODY = Nobody()


def inner() -> Server:
    server = Server("inner", config=QUIET)

    @server.tool
    async def find(query: str, tenant: str = "none", limit: int = 10) -> list[Any]:
        """Find."""
        return [query, tenant, limit]

    @server.tool
    def look(query: Annotated[str, Header("Query")] = "") -> str:
        return query

    return server


def outer(tools: Any, of: Server | None = None, **options: Any) -> Server:
    server = Server("outer", config=QUIET, **options)
    server.mount(of or inner(), transform=Transform(tools))
    return server


# -- what a call becomes --------------------------------------------------------------------------

shapes = st.dictionaries(
    st.sampled_from(ARGUMENTS),
    st.fixed_dictionaries({"as": st.sampled_from([*ARGUMENTS, "x", "y"])})
    | st.fixed_dictionaries({"hide": st.integers(0, 100)}),
)
values = st.dictionaries(st.sampled_from([*ARGUMENTS, "x", "y"]), st.integers(0, 110))


def expected(shape: dict[str, Any], sent: dict[str, int]) -> dict[str, int] | None:
    """Return what the tool gets; None if the client is refused."""
    outside = {shape.get(name, {}).get("as", name): name for name in ARGUMENTS}
    outside = {out: name for out, name in outside.items() if "hide" not in shape.get(name, {})}
    gone = shape.keys() - outside.keys()
    if any(name in gone for name in sent):
        return None
    got = {outside.get(name, name): value for name, value in sent.items()}
    known = {name: value for name, value in got.items() if name in ARGUMENTS}
    got |= {name: each["hide"] for name, each in shape.items() if "hide" in each}
    return got if "a" in got and all(value <= 100 for value in known.values()) else None


def clashes(shape: dict[str, Any]) -> bool:
    outside = [shape.get(name, {}).get("as", name) for name in ARGUMENTS]
    shown = [
        out
        for out, name in zip(outside, ARGUMENTS, strict=True)
        if "hide" not in shape.get(name, {})
    ]
    return len(set(shown)) < len(shown)


async def through_mount(transform: Transform, sent: dict[str, int]) -> Any:
    of = Server("inner", config=QUIET)

    async def echo(arguments: dict[str, Any], _: ToolContext) -> dict[str, Any]:
        return arguments

    of.register(ToolDefinition("echo", "Echo.", SCHEMA), echo)
    server = Server("outer", config=QUIET)
    server.mount(of, prefix="m", transform=transform)
    async with TestClient(server) as client:
        return await client.call_tool("m_shaped", sent)


async def through_openapi(transform: Transform, sent: dict[str, int]) -> Any:
    async def echo(request: Request) -> JSONResponse:
        return JSONResponse({name: int(value) for name, value in request.query_params.items()})

    parameters = [
        {"name": name, "in": "query", "required": name == "a", "schema": schema}
        for name, schema in SCHEMA["properties"].items()  # type: ignore[attr-defined]
    ]
    document = {
        "openapi": "3.1.0",
        "info": {"title": "echo", "version": "1"},
        "paths": {"/echo": {"get": {"operationId": "echo", "parameters": parameters}}},
    }
    app = Starlette(routes=[Route("/echo", echo)])
    server = Server.from_asgi(app, document=document, transform=transform, config=QUIET)
    async with TestClient(server) as client:
        return await client.call_tool("shaped", sent)


async def through_forwarding(transform: Transform, sent: dict[str, int]) -> Any:
    """As the gateway does it, whose way to a server the test below shows."""
    definition = {"name": "echo", "inputSchema": SCHEMA}
    shaped = ShapedTools(lambda _: transform).shape("one", definition)
    assert shaped is not None
    shown, arguments = shaped
    assert shown["name"] == "shaped"
    assert arguments is not None
    return arguments.inside(sent, NOBODY)


@pytest.mark.rule("TRANS-01", "TRANS-03", "TRANS-06", "GATE-64")
@pytest.mark.parametrize("way", [through_mount, through_openapi, through_forwarding])
@given(shape=shapes, sent=values)
def test_tool_gets_what_it_would_have_got(
    way: Callable[[Transform, dict[str, int]], Any], shape: dict[str, Any], sent: dict[str, int]
) -> None:
    transform = Transform({"echo": {"as": "shaped", "arguments": shape}})
    if clashes(shape):
        if way is not through_forwarding:
            with pytest.raises(RegistrationError, match="two arguments would be"):
                asyncio.run(way(transform, sent))
        return
    wanted = expected(shape, sent)
    if way is through_openapi and wanted is not None:
        wanted = {name: value for name, value in wanted.items() if name in ARGUMENTS}
    try:
        got = asyncio.run(way(transform, sent))
    except ToolError as error:
        assert error.code == ErrorCode.INVALID_ARGUMENT
        is_closed = way is through_openapi and sent.keys() - {*ARGUMENTS, *_outside(shape)}
        assert wanted is None or is_closed
    else:
        assert got == wanted


def _outside(shape: dict[str, Any]) -> set[str]:
    return {each["as"] for each in shape.values() if "as" in each}


# -- what is known of the caller, and what is called instead ---------------------------------------


@pytest.mark.rule("TRANS-02")
async def test_hidden_argument_has_what_is_known_of_the_caller() -> None:
    shape = {"tenant": {"from": "header:X-Tenant"}, "limit": {"from": lambda ctx: len(ctx.headers)}}
    server = outer({"find": {"arguments": shape}}, request_headers=["x-tenant"])
    async with TestClient(server, headers={"X-Tenant": "acme"}) as client:
        [tool] = [each for each in await client.list_tools() if each["name"] == "find"]
        assert tool["inputSchema"]["properties"].keys() == {"query"}
        assert await client.call("find", query="a") == ["a", "acme", 1]
    async with TestClient(server) as client:
        with pytest.raises(ToolError, match="needs the header x-tenant") as refused:
            await client.call("find", query="a")
    assert refused.value.code == ErrorCode.UNAUTHORIZED
    for source, needs in (("principal", "a login"), ("session", None)):
        server = outer({"find": {"arguments": {"tenant": {"from": source}}}})
        async with TestClient(server) as client:
            if needs is None:
                assert (await client.call("find", query="a"))[1]
                continue
            with pytest.raises(ToolError, match=needs):
                await client.call("find", query="a")


@pytest.mark.rule("TRANS-02")
async def test_value_that_the_schema_refuses_reaches_no_tool() -> None:
    server = outer({"find": {"arguments": {"limit": {"from": lambda ctx: "many"}}}})
    async with TestClient(server) as client:
        with pytest.raises(ToolError) as refused:
            await client.call("find", query="a")
    assert refused.value.code == ErrorCode.UNAUTHORIZED


@pytest.mark.rule("TRANS-04")
async def test_call_goes_around_the_tool() -> None:
    async def twice(call: Any, arguments: dict[str, Any], ctx: ToolContext) -> list[Any]:
        await asyncio.sleep(0)
        return [await call(arguments), await call({**arguments, "limit": 2})]

    def loud(call: Any, arguments: dict[str, Any], _: ToolContext) -> str:
        return str(call(arguments)).upper()

    tools = {
        "find": {"call": twice, "arguments": {"query": {"as": "q"}}},
        "look": {"as": "see", "title": "See", "call": loud},
    }
    async with TestClient(outer(tools)) as client:
        assert await client.call("find", q="a") == [["a", "none", 10], ["a", "none", 2]]
        assert await client.call("see", query="b") == "B"
    for tool, call, wanted in (("find", loud, "with async def"), ("look", twice, "without async")):
        with pytest.raises(RegistrationError, match=f"write `call` {wanted}"):
            outer({tool: {"call": call}})


@pytest.mark.rule("TRANS-01")
async def test_header_that_mirrors_an_argument_keeps_its_name() -> None:
    server = outer({"look": {"arguments": {"query": {"as": "q", "description": "What."}}}})
    async with TestClient(server) as client:
        [tool] = [each for each in await client.list_tools() if each["name"] == "look"]
    assert tool["inputSchema"]["properties"] == {
        "q": {"type": "string", "default": "", "x-mcp-header": "Query", "description": "What."}
    }


# -- what does not fit ----------------------------------------------------------------------------


@pytest.mark.rule("TRANS-05")
@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"fnd": {}}, "there is no tool 'fnd': did you mean 'find'"),
        ({"fi": {}}, "there is no tool 'fi': did you mean 'find'"),
        ({"find": {"as": "look"}}, "'find' and 'look' would both be 'look'"),
        ({"find": {"as": "a b"}}, "its name must have ASCII letters"),
        ({"find": {"description": "\ud800"}}, "its description must be a string of valid Unicode"),
        ({"find": {"name": "x"}}, "there is no member 'name'"),
        ({"find": {"as": 5}}, "`as` is a text"),
        ({"find": {"title": ""}}, "`title` is a text"),
        ({"find": []}, "is a mapping"),
        ([], "a transform is a mapping"),
        ({"find": {"call": "x"}}, "`call` is a function"),
        ({"find": {"arguments": {"qury": {}}}}, "no argument 'qury': did you mean 'query'"),
        ({"find": {"arguments": {"query": {"as": "limit"}}}}, "two arguments would be 'limit'"),
        ({"find": {"arguments": {"query": {"hide": 5}}}}, "the constant at /query"),
        ({"find": {"arguments": {"query": {"hide": "a", "as": "b"}}}}, "`hide` hides it"),
        ({"find": {"arguments": {"query": {"from": "user"}}}}, "`from` is principal, session"),
        ({"find": {"arguments": {"query": {"from": asyncio.sleep}}}}, "a function without async"),
    ],
)
def test_what_does_not_fit_is_named(tools: Any, said: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        outer(tools)
    assert said in str(refused.value)


@pytest.mark.rule("TRANS-07")
@pytest.mark.parametrize(
    "more",
    [
        {"dependentRequired": {"a": ["b"]}},
        {"minProperties": 2},
        {"allOf": [{"required": ["a"]}]},
        {"$defs": {"x": {"$ref": "#/properties/a"}}},
        {"$defs": {"x": {"$ref": "#"}}},
    ],
)
def test_schema_that_names_arguments_elsewhere_is_not_shaped(more: dict[str, Any]) -> None:
    of = Server("inner", config=QUIET)
    of.register(ToolDefinition("echo", "Echo.", {**SCHEMA, **more}), lambda given, _: given)
    with pytest.raises(RegistrationError, match="write a tool around it"):
        outer({"echo": {"arguments": {"b": {"hide": 1}}}}, of)
    outer({"echo": {"as": "other"}}, of)
