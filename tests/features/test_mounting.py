"""A server as a part of another one, as a client of the outer one sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest

from foundation_rt import (
    Depends,
    ErrorCode,
    RegistrationError,
    Server,
    TextContents,
    ToolContext,
    ToolError,
    UsageError,
)
from foundation_rt.protocol.revisions import REVISIONS
from foundation_rt.testing import ProtocolError, TestClient


def opened() -> str:
    return "real"


def notes(state: str = "mine") -> Server:
    server = Server("notes")

    @server.lifespan
    async def state_of(_: Server) -> AsyncIterator[str]:
        yield state

    @server.tool(tags={"x"})
    async def read(ctx: ToolContext, db: Annotated[str, Depends(opened)]) -> list[str]:
        [contents] = await ctx.read_resource("note://all")
        assert isinstance(contents, TextContents)
        return [contents.text, ctx.state, db]

    @server.tool(name="admin/drop")
    def drop(uri: str) -> str:
        return uri

    @server.resource("note://all")
    def everything(uri: str, ctx: ToolContext) -> str:
        return f"{uri} {ctx.state}"

    @server.resource("note://{id}")
    def one(id: str, uri: str) -> str:
        return f"{id} {uri}"

    @server.completion("note://{id}", "id")
    def ids(value: str, known: dict[str, str], ctx: ToolContext) -> list[str]:
        return [f"{value}-{ctx.state}"]

    @server.prompt
    def review(ctx: ToolContext) -> str:
        return f"Review {ctx.state}."

    return server


def names(listed: list[dict[str, Any]], member: str = "name") -> list[str]:
    return [each[member] for each in listed if each[member] != "health"]


@pytest.mark.rule("MOUNT-01", "MOUNT-03", "MOUNT-04")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_mounted_server_is_a_part_of_the_outer_one(revision: str) -> None:
    outer, inner = Server("outer"), notes()
    inner.dependency_overrides[opened] = lambda: "fake"
    outer.tool(name="plan")(lambda: "planned")
    outer.mount(inner, prefix="n")
    async with TestClient(outer, revision=revision) as client:
        assert names(await client.list_tools()) == ["n_admin/drop", "n_read", "plan"]
        assert names(await client.list_resources(), "uri") == ["note://n/all"]
        templates = await client.list_resource_templates()
        assert names(templates, "uriTemplate") == ["note://n/{id}"]
        assert names(await client.list_prompts()) == ["n_review"]
        assert await client.call("n_read") == ["note://all mine", "mine", "fake"]
        assert await client.call("n_admin/drop", uri="a:n/b") == "a:n/b"
        assert await client.read_resource("note://n/all") == "note://all mine"
        assert await client.read_resource("note://n/7") == "7 note://7"
        assert await client.complete("note://n/{id}", "id", "a") == ["a-mine"]
        outer.register_completion("note://n/{id}", "id", lambda arguments, context: ["outer"])
        assert await client.complete("note://n/{id}", "id", "a") == ["outer"]
        [message] = await client.get_prompt("n_review")
        assert message["content"]["text"] == "Review mine."
        with pytest.raises(ProtocolError, match="not found"):
            await client.read_resource("note://all")


@pytest.mark.rule("MOUNT-03")
async def test_server_that_is_mounted_without_a_prefix_keeps_its_uris() -> None:
    outer = Server("outer")
    outer.mount(notes())
    async with TestClient(outer) as client:
        assert await client.call("read") == ["note://all mine", "mine", "real"]
        assert await client.read_resource("note://7") == "7 note://7"


@pytest.mark.rule("MOUNT-02")
async def test_changes_of_the_mounted_server_are_changes_of_the_outer_one() -> None:
    outer, inner = Server("outer"), notes()
    outer.mount(inner, prefix="n")
    async with TestClient(outer) as client:
        await client.request("resources/subscribe", {"uri": "note://n/all"})
        inner.tool(name="late", inline=True)(lambda: "late")
        assert inner.unregister("admin/drop")
        assert inner.unregister_resource("note://all")
        assert inner.unregister_prompt("review")
        inner.disable(tags={"x"})
        inner.resource_updated("note://all")
        inner.list_changed("tools")
        assert names(await client.list_tools()) == ["n_late"]
        assert await client.list_resources() == await client.list_prompts() == []
        inner.enable(tags={"x"})
        outer.disable("n_late")
        assert names(await client.list_tools()) == ["n_read"]
        methods = {each["method"] for each in client.notifications}
        assert methods >= {
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/updated",
        }
        updated = [each for each in client.notifications if "uri" in each.get("params", {})]
        assert [each["params"]["uri"] for each in updated] == ["note://n/all"]


@pytest.mark.rule("MOUNT-02")
def test_taken_name_is_refused_and_nothing_is_mounted() -> None:
    outer = Server("outer")
    outer.prompt(name="review")(lambda: "x")
    with pytest.raises(RegistrationError, match="prompt 'review' is refused: the name is taken"):
        outer.mount(notes())
    assert [each.name for each in outer.list()] == ["health"]
    inner = notes()
    outer.mount(inner, prefix="n")
    outer.tool(name="n_late")(lambda: 1)
    with pytest.raises(RegistrationError, match="'n_late' is already registered"):
        inner.tool(name="late")(lambda: 1)
    inner.tool(name="later")(lambda: 1)  # one that was refused bars no other one
    assert outer.get("n_later") is not None
    assert inner.unregister("late")
    assert outer.get("n_late") is not None


@pytest.mark.rule("MOUNT-05", "MOUNT-01")
async def test_mounts_nest_with_their_lifespans() -> None:
    order: list[str] = []

    def served(name: str) -> Server:
        server = Server(name)

        @server.lifespan
        async def hook(_: Server) -> AsyncIterator[str]:
            order.append(f"+{name}")
            yield name
            order.append(f"-{name}")

        @server.tool
        def state(ctx: ToolContext) -> str:
            return str(ctx.state)

        @server.resource("a:b")
        async def read(uri: str, ctx: ToolContext) -> str:
            return f"{uri} {ctx.state}"

        @server.tool
        async def own(ctx: ToolContext) -> str:
            [contents] = await ctx.read_resource("a:b")
            assert isinstance(contents, TextContents)
            return contents.text

        return server

    outer, middle, inner = map(served, ("outer", "middle", "inner"))
    outer.mount(middle, prefix="m")
    middle.mount(inner, prefix="i")
    async with TestClient(outer) as client:
        assert order == ["+outer", "+middle", "+inner"]
        for prefix, name in {"": "outer", "m_": "middle", "m_i_": "inner"}.items():
            assert await client.call(f"{prefix}state") == name
            assert await client.call(f"{prefix}own") == f"a:b {name}"
        assert await client.read_resource("a:m/i/b") == "a:b inner"
    assert order[3:] == ["-inner", "-middle", "-outer"]


async def _pass(call: Any, proceed: Callable[[], Any]) -> Any:
    return await proceed()


@pytest.mark.rule("MOUNT-06")
def test_server_that_cannot_be_mounted_is_refused() -> None:
    outer, inner = Server("outer"), Server("inner")
    for prefix in ("a/b", "a__b", "a_", "ä", "a b"):
        with pytest.raises(UsageError, match="a prefix is"):
            outer.mount(inner, prefix=prefix)
    guarded = Server("guarded")
    guarded.middleware(_pass)
    with pytest.raises(UsageError, match="no middleware of its own"):
        outer.mount(guarded, prefix="g")
    outer.mount(inner, prefix="i")
    with pytest.raises(UsageError, match="mounted in another one: register middleware there"):
        inner.middleware(_pass)
    with pytest.raises(UsageError, match="mounted or served already"):
        Server("third").mount(inner)
    for each in (outer, inner):
        with pytest.raises(UsageError, match="mounted in itself"):
            inner.mount(outer if each is inner else inner)
    assert inner.runtime is inner.stdio_runtime is outer.runtime
    with pytest.raises(UsageError, match="before the server is started"):
        outer.mount(Server("late"))
    with pytest.raises(UsageError, match="before the server is started"):
        inner.mount(Server("late"))


@pytest.mark.rule("MOUNT-04")
async def test_errors_of_a_mounted_handler_are_as_its_own() -> None:
    outer, inner = Server("outer"), Server("inner")

    @inner.tool
    def fail() -> str:
        inner.audit("FAILED", "ERROR")
        raise ToolError(ErrorCode.NOT_FOUND, "nothing")

    outer.mount(inner, prefix="i")
    async with TestClient(outer) as client:
        with pytest.raises(ToolError, match="nothing"):
            await client.call("i_fail")
