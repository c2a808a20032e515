"""Our client against npm's servers: `server-everything`, `server-filesystem`, `server-memory`.

They are of the handshake mode. What each offers is used once, over every transport it has.
"""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from attrs import define, field

from foundation_rt import BlobContents, EmbeddedResource, Image, ResourceLink, Text, TextContents
from foundation_rt.client import (
    CallTimeoutError,
    Client,
    ElicitationRequest,
    ElicitationUrlRequest,
    InvalidArgumentsError,
    MCPError,
    SampleResult,
    SamplingRequest,
    StdioServer,
    ToolCallError,
    connect,
)
from tests.interop import servers
from tests.lab.servers.process import PATIENCE

pytestmark = pytest.mark.usefixtures("nothing_left")

DYNAMIC = "demo://resource/dynamic"
PAGE = "https://example.com/pay"
PNG = b"\x89PNG\r\n\x1a\n"


@define
class User:
    """Who answers the server, and what came unasked."""

    logged: asyncio.Queue[tuple[str, Any]] = field(factory=asyncio.Queue)
    changed: asyncio.Queue[str] = field(factory=asyncio.Queue)
    forms: list[ElicitationRequest] = field(factory=list)
    pages: list[ElicitationUrlRequest] = field(factory=list)

    def sample(self, request: SamplingRequest) -> SampleResult:
        [text] = request.messages[0].content
        assert isinstance(text, Text)
        return SampleResult("assistant", (Text(f"to {text.text}: yes"),), "test")

    def fill_in(self, request: ElicitationRequest) -> dict[str, Any]:
        self.forms.append(request)
        return {"name": "Ada", "check": True}

    def visit(self, request: ElicitationUrlRequest) -> bool:
        self.pages.append(request)
        return True

    def log(self, level: str, logger: str | None, data: Any) -> None:
        self.logged.put_nowait((level, data))

    def change(self, kind: str) -> None:
        self.changed.put_nowait(kind)


def _command(*words: str, **options: Any) -> StdioServer:
    return StdioServer(words[0], words[1:], **options)


@asynccontextmanager
async def connected(target: Any, **options: Any) -> AsyncIterator[tuple[Client, User]]:
    """Yield a client for `target`, and its user."""
    user = User()
    async with connect(
        target,
        sampling=user.sample,
        elicitation=user.fill_in,
        elicitation_url=user.visit,
        on_log=user.log,
        on_list_changed=user.change,
        **options,
    ) as client:
        yield client, user


@pytest.fixture(params=["stdio", "http", "sse"])
def everything(request: pytest.FixtureRequest) -> Iterator[Any]:
    """`server-everything`, over each of its transports."""
    if request.param == "stdio":
        # It does not mind the end of its input as long as a timer of its own runs.
        yield _command(*servers.npm("everything"), shutdown_grace=0.2)
    elif request.param == "http":
        with servers.everything_over("streamableHttp", "/mcp") as server:
            yield server.url
    else:
        with servers.everything_over("sse", "/sse") as server:
            yield server.url


@pytest.mark.rule("CLIENT-24", "CLIENT-25")
async def test_tools(everything: Any) -> None:
    async with connected(everything) as (client, _):
        server = await client.initialize()
        assert server.name == "mcp-servers/everything"
        assert server.instructions
        assert (await client.call("echo", {"message": "hei"})).text == "Echo: hei"
        assert "is 5." in (await client.call("get-sum", {"a": 2, "b": 3})).text
        weather = await client.call("get-structured-content", {"location": "New York"})
        expected = {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
        assert weather.structured == weather.value() == expected
        assert orjson.loads(weather.text) == expected
        with pytest.raises(InvalidArgumentsError) as refused:
            await client.call("get-structured-content", {"location": "Oslo"})
        assert refused.value.code == "E203"
        with pytest.raises(MCPError) as unknown:
            await client.call("get-rich")
        assert unknown.value.code == "E204"


async def test_content(everything: Any) -> None:
    async with connected(everything) as (client, _):
        annotated = {"messageType": "error", "includeImage": True}
        text, image = (await client.call("get-annotated-message", annotated)).content
        assert isinstance(text, Text)
        assert text.annotations is not None
        assert (text.annotations.priority, text.annotations.audience) == (1, ("user", "assistant"))
        assert isinstance(image, Image)
        assert image.data.startswith(PNG)
        _, *links = (await client.call("get-resource-links", {"count": 2})).content
        assert [type(link) for link in links] == [ResourceLink, ResourceLink]
        blob = {"resourceType": "Blob", "resourceId": 7}
        _, embedded, _ = (await client.call("get-resource-reference", blob)).content
        assert isinstance(embedded, EmbeddedResource)
        assert isinstance(embedded.contents, BlobContents)
        assert embedded.contents.blob.startswith(b"Resource 7:")


async def test_resources(everything: Any) -> None:
    async with connected(everything, require=("resources", "completions")) as (client, _):
        listed = {each.name: each.uri for each in await client.list_resources()}
        document = (await client.read_resource(listed["architecture.md"])).contents[0]
        assert isinstance(document, TextContents)
        assert document.text.startswith("# Everything Server")
        templates = {each.uri_template for each in await client.list_resource_templates()}
        assert templates == {f"{DYNAMIC}/{kind}/{{resourceId}}" for kind in ("text", "blob")}
        [text] = (await client.read_resource(f"{DYNAMIC}/text/1")).contents
        assert isinstance(text, TextContents)
        [blob] = (await client.read_resource(f"{DYNAMIC}/blob/2")).contents
        assert isinstance(blob, BlobContents)
        assert blob.blob.startswith(b"Resource 2:")
        with pytest.raises(MCPError):
            await client.read_resource("demo://nothing")
        completed = await client.complete(f"{DYNAMIC}/text/{{resourceId}}", "resourceId", "12")
        assert completed.values == ("12",)


async def test_a_resource_that_a_tool_makes(everything: Any) -> None:
    async with connected(everything) as (client, user):
        await client.initialize()
        name, data = "hei.gz", "data:text/plain;base64,aGVp"
        made = await client.call("gzip-file-as-resource", {"name": name, "data": data})
        [link] = made.raise_for_error().content
        assert isinstance(link, ResourceLink)
        while await user.changed.get() != "resources":
            pass
        [contents] = (await client.read_resource(link.uri)).contents
        assert isinstance(contents, BlobContents)
        assert gzip.decompress(contents.blob) == b"hei"


async def test_prompts(everything: Any) -> None:
    async with connected(everything, require=("prompts",)) as (client, _):
        names = {each.name for each in await client.list_prompts()}
        assert names == {"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"}
        simple = await client.get_prompt("simple-prompt")
        assert simple.messages[0].role == "user"
        asked = await client.get_prompt("args-prompt", {"city": "Oslo", "state": "Oslo"})
        assert asked.messages[0].content == Text("What's weather in Oslo, Oslo?")
        resource = {"resourceType": "Text", "resourceId": "3"}
        _, embedded = (await client.get_prompt("resource-prompt", resource)).messages
        assert isinstance(embedded.content, EmbeddedResource)
        with pytest.raises(MCPError):
            await client.get_prompt("args-prompt")
        first = await client.complete("completable-prompt", "department", "S")
        assert first.values == ("Sales", "Support")
        known = {"department": "Sales"}
        then = await client.complete("completable-prompt", "name", "", known=known)
        assert then.values == ("David", "Eve", "Frank")


async def test_server_requests(everything: Any) -> None:
    async with connected(everything, roots=[Path("/home/ada")]) as (client, _):
        sampled = await client.call("trigger-sampling-request", {"prompt": "Really?"})
        assert "Really?: yes" in sampled.text
        filled_in = (await client.call("trigger-elicitation-request")).text
        _, _, raw = filled_in.partition("Raw result: ")
        answer = orjson.loads(raw)
        assert answer["action"] == "accept"
        assert answer["content"] == {
            "name": "Ada",
            "check": True,
            "firstLine": "It was a dark and stormy night.",
            "integer": 42,
            "number": 3.14,
            "untitledSingleSelectEnum": "Monica",
            "untitledMultipleSelectEnum": ["Guitar"],
            "titledSingleSelectEnum": "hero-1",
            "titledMultipleSelectEnum": ["fish-1"],
            "legacyTitledEnum": "pet-1",
        }
        assert "/home/ada" in (await client.call("get-roots-list")).text


async def test_a_page_to_visit(everything: Any) -> None:
    async with connected(everything) as (client, user):
        here = {"url": PAGE, "elicitationId": "payment"}
        await client.call("trigger-url-elicitation", here)
        assert [page.url for page in user.pages] == [PAGE]
        # The other way: it refuses until the user has been to a page that the error names.
        elsewhere = {"url": f"{PAGE}/again", "errorPath": True}
        with pytest.raises(MCPError) as refused:
            await client.call("trigger-url-elicitation", elsewhere)
        assert refused.value.original_code == -32042
        assert refused.value.data["elicitations"][0]["mode"] == "url"
        await client.call("trigger-url-elicitation", elsewhere)
        assert [page.url for page in user.pages] == [PAGE, f"{PAGE}/again"]


@pytest.mark.rule("CLIENT-31")
async def test_what_comes_unasked(everything: Any) -> None:
    async with connected(everything, log_level="debug") as (client, user):
        async with client.subscribe(f"{DYNAMIC}/text/1", f"{DYNAMIC}/text/2") as changes:
            await client.call("toggle-subscriber-updates")
            assert {await anext(changes), await anext(changes)} == {
                f"{DYNAMIC}/text/1",
                f"{DYNAMIC}/text/2",
            }
            await client.call("toggle-subscriber-updates")
        await client.call("toggle-simulated-logging")
        while "message" not in str((await user.logged.get())[1]):
            pass
        await client.call("toggle-simulated-logging")


@pytest.mark.rule("CLIENT-15", "CLIENT-16", "CLIENT-21")
async def test_progress_cancellation_and_deadline(everything: Any) -> None:
    async with connected(everything) as (client, _):
        steps: asyncio.Queue[float] = asyncio.Queue()

        def advance(done: float, total: float | None, message: str | None) -> None:
            steps.put_nowait(done)

        slow, quick = {"duration": 600, "steps": 60_000}, {"duration": 0.03, "steps": 3}
        done = await client.call("trigger-long-running-operation", quick, on_progress=advance)
        assert "completed" in done.text
        assert [steps.get_nowait() for _ in range(steps.qsize())] == [1, 2, 3]
        running = asyncio.create_task(
            client.call("trigger-long-running-operation", slow, on_progress=advance)
        )
        await steps.get()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(CallTimeoutError) as late:
            await client.call("trigger-long-running-operation", slow, timeout=0.05)
        assert late.value.may_have_run
        assert (await client.call("echo", {"message": "still here"})).text == "Echo: still here"


@pytest.mark.rule("CTOOL-18")
async def test_a_tool_that_is_a_task_is_refused_not_awaited(everything: Any) -> None:
    async with connected(everything) as (client, _):
        with pytest.raises(MCPError, match=r"E205.*task"):
            await client.call("simulate-research-query", {"topic": "tasks"})


@pytest.mark.rule("CHILD-02")
async def test_a_child_sees_of_our_environment_what_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PASSWORD_OF_OURS", "secret")

    async with connected(_command(*servers.npm("everything"), env={"GIVEN": "this"})) as (
        client,
        _,
    ):
        environment = orjson.loads((await client.call("get-env")).text)
        assert environment["GIVEN"] == "this"
        assert "PASSWORD_OF_OURS" not in environment


# -- files -------------------------------------------------------------------------------------


async def test_files(tmp_path: Path) -> None:
    async with connected(_command(*servers.npm("filesystem", str(tmp_path)))) as (client, _):
        note = str(tmp_path / "note.txt")
        await client.call("write_file", {"path": note, "content": "one\ntwo\nthree\n"})
        read = await client.call("read_text_file", {"path": note, "head": 1})
        assert read.structured == {"content": "one"}
        edits = {"path": note, "edits": [{"oldText": "two", "newText": "2"}], "dryRun": False}
        await client.call("edit_file", edits)
        (tmp_path / "pixel.png").write_bytes(PNG)
        media = await client.call("read_media_file", {"path": str(tmp_path / "pixel.png")})
        [image] = media.content
        assert isinstance(image, Image)
        assert image.data == PNG
        await client.call("create_directory", {"path": str(tmp_path / "below")})
        moved = str(tmp_path / "below" / "note.txt")
        await client.call("move_file", {"source": note, "destination": moved})
        tree = (await client.call("directory_tree", {"path": str(tmp_path)})).value()
        assert "note.txt" in str(tree)
        assert Path(moved).read_text() == "one\n2\nthree\n"
        outside = await client.call("read_text_file", {"path": "/etc/passwd"})
        with pytest.raises(ToolCallError, match="Access denied"):
            outside.raise_for_error()
        with pytest.raises(InvalidArgumentsError):
            await client.call("read_text_file", {"path": 5})


async def test_files_where_our_roots_are(tmp_path: Path) -> None:
    known = threading.Event()

    def listen(line: str) -> None:
        if "Updated allowed directories from MCP roots" in line:
            known.set()

    async with connected(
        _command(*servers.npm("filesystem")), roots=[tmp_path], on_stderr=listen
    ) as (client, _):
        await client.initialize()
        assert await asyncio.to_thread(known.wait, PATIENCE)
        allowed = await client.call("list_allowed_directories")
        assert str(tmp_path) in allowed.text


# -- memory ------------------------------------------------------------------------------------


async def test_memory(tmp_path: Path) -> None:
    graph = "memory://knowledge-graph"
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    engine = {"name": "Engine", "entityType": "machine", "observations": []}
    invented = {"from": "Ada", "to": "Engine", "relationType": "programs"}

    file = str(tmp_path / "memory.jsonl")
    async with connected(_command(*servers.npm("memory"), env={"MEMORY_FILE_PATH": file})) as (
        client,
        _,
    ):
        async with client.subscribe(graph) as changes:
            made = await client.call("create_entities", {"entities": [ada, engine]})
            assert made.structured == {"entities": [ada, engine]}
            assert await anext(changes) == graph
        await client.call("create_relations", {"relations": [invented]})
        found = (await client.call("search_nodes", {"query": "programs"})).structured
        assert [each["name"] for each in found["entities"]] == ["Ada"]
        whole = {"entities": [ada, engine], "relations": [invented]}
        assert (await client.call("read_graph")).value() == whole
        [contents] = (await client.read_resource(graph)).contents
        assert isinstance(contents, TextContents)
        assert orjson.loads(contents.text) == whole
        with pytest.raises(InvalidArgumentsError):
            await client.call("create_entities", {"entities": [{"name": "Ada"}]})
        await client.call("delete_entities", {"entityNames": ["Ada", "Engine"]})
        assert (await client.call("read_graph")).value() == {"entities": [], "relations": []}
