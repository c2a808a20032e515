"""The example servers: each runs as it is, and does what its docstring says."""

from __future__ import annotations

import ast
import sqlite3
import sys
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt import ErrorCode, Principal, Server, ToolError
from foundation_rt.testing import ProtocolError, TestClient
from tests.lab.peers.echo_api import echo_api
from tests.lab.servers import fork_server
from tests.lab.servers.core import INITIALIZE, INITIALIZED, request
from tests.lab.servers.process import ServerProcess, command, environment
from tests.trace import ROOT

FOLDER = ROOT / "foundation_rt" / "apps" / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
REVISIONS = ("2024-11-05", "2025-11-25", "2026-07-28")
LONGEST = 120


def server_of(name: str) -> Server:
    """Return the server of an example, as if it had just been imported."""
    sys.modules.pop(f"foundation_rt.examples.{name}", None)
    server: Server = import_module(f"foundation_rt.examples.{name}").server
    return server


@pytest.mark.rule("EXAMPLE-01")
@pytest.mark.parametrize("name", NAMES)
def test_example_uses_public_names_alone_and_fits_two_screens(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert 30 <= len(text.splitlines()) <= LONGEST
    tree = ast.parse(text)
    assert f"foundation_rt.examples.{name}" in (ast.get_docstring(tree) or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            assert node.module == "foundation_rt" or not node.module.startswith("foundation_rt.")


@pytest.mark.rule("EXAMPLE-02")
@pytest.mark.parametrize("name", NAMES)
def test_example_is_served_by_its_name(name: str) -> None:
    lines = [INITIALIZE, INITIALIZED, request("tools/list", {}, "list")]
    command = [
        sys.executable,
        "-m",
        "foundation_rt",
        "serve",
        f"foundation_rt.examples.{name}",
    ]
    done = fork_server.run(
        command, input=b"\n".join(lines) + b"\n", capture_output=True, timeout=60, check=True
    )
    answers = {each.get("id"): each for each in map(orjson.loads, done.stdout.splitlines())}
    listed = [each["name"] for each in answers["list"]["result"]["tools"]]
    assert len(listed) > 1


async def test_notes_are_kept_found_and_deleted() -> None:
    async with TestClient(server_of("notes")) as client:
        note = await client.call("add_note", text="Buy milk.")
        assert note == {"id": 1, "text": "Buy milk."}
        assert await client.call("find_notes", word="MILK") == [note]
        assert await client.read_resource("notes://all") == "- Buy milk. (note 1)"
        assert await client.read_resource("notes://1") == "Buy milk."
        [message] = await client.get_prompt("sum_up", words="9")
        assert "at most 9 words" in message["content"]["text"]
        await client.call("delete_note", note_id=1)
        with pytest.raises(ToolError, match="no note 1"):
            await client.call("delete_note", note_id=1)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE items (name TEXT, price REAL, picture BLOB)")
        rows = [(f"item {number}", number / 2, b"..") for number in range(300)]
        database.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)
    monkeypatch.setenv("SHOP_DATABASE", str(path))
    return path


async def test_sql_reads_with_parameters_and_bounds_rows(shop: Path) -> None:
    async with TestClient(server_of("sql")) as client:
        assert "items" in await client.call("list_tables")
        found = await client.call(
            "query", sql="SELECT name, picture FROM items WHERE price > ?", parameters=[149]
        )
        assert found == {
            "columns": ["name", "picture"],
            "rows": [["item 299", "<2 bytes>"]],
            "is_cut": False,
        }
        every = await client.call("query", sql="SELECT name FROM items")
        assert (len(every["rows"]), every["is_cut"]) == (200, True)


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM items", "SELECT 1; DROP TABLE items", "ATTACH '/tmp/x.db' AS x", "PRAGMA x("],
)
async def test_sql_changes_nothing(shop: Path, sql: str) -> None:
    before = shop.read_bytes()
    async with TestClient(server_of("sql")) as client:
        with pytest.raises(ToolError):
            await client.call("query", sql=sql)
            await client.call("query", sql="SELECT * FROM x.sqlite_master")
    assert shop.read_bytes() == before


async def test_job_reports_progress() -> None:
    async with TestClient(server_of("long_jobs")) as client:
        params = {"name": "index_pages", "arguments": {"pages": 2}, "_meta": {"progressToken": 7}}
        result = await client.request("tools/call", params)
        assert "words" in str(result["content"])
        sent = [each["params"] for each in client.notifications if "progress" in each["method"]]
        assert [(each["progress"], each["total"]) for each in sent] == [(1, 2), (2, 2)]
        assert await client.call("count_primes", below=100) == 25


Answers = Callable[[str, dict[str, Any]], Any]


def user(**content: Any) -> Answers:
    """Return a user who accepts, with this form."""

    def answers(method: str, params: dict[str, Any]) -> Any:
        return {"action": "accept", **({"content": content} if content else {})}

    return answers


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_people_are_asked(revision: str) -> None:
    server = server_of("ask_people")
    guest = user(name="Ann", people=2, day="2030-01-02")
    async with TestClient(server, revision=revision, answers=guest) as client:
        booked = await client.call("book_table")
        assert booked == "Booked for 2 on 2030-01-02, in the name of Ann."
    async with TestClient(server, revision=revision, answers=user(value="cheese")) as client:
        assert await client.call("order_dessert") == "One cheese."
    async with TestClient(server, revision=revision, answers=user()) as client:
        assert await client.call("pay", amount=9.5) == "The page was opened."


@pytest.mark.parametrize("revision", REVISIONS)
async def test_model_is_asked(revision: str) -> None:
    def model(method: str, params: dict[str, Any]) -> Any:
        content = params["messages"][0]["content"]
        text = content["text"] if isinstance(content, dict) else content[0]["text"]
        said = {"type": "text", "text": text.partition(":")[0]}
        return {"role": "assistant", "model": "m", "content": said}

    async with TestClient(server_of("ask_model"), revision=revision, answers=model) as client:
        assert await client.call("sum_up", text="...") == "Sum up in at most 50 words"
        words = await client.call("translate", text="tea", languages=["French", "Thai"])
        assert words == {"French": "Translate into French", "Thai": "Translate into Thai"}


async def test_office_files_a_form() -> None:
    async with TestClient(server_of("office")) as client:
        assert await client.call("hand_in", name="Ann", signed=True) == {"checked": 1, "number": 1}
        assert (await client.call("look_up", number=1))["form"]["name"] == "Ann"
        with pytest.raises(ToolError, match="not signed"):
            await client.call("hand_in", name="Bob", signed=False)
        with pytest.raises(ToolError, match="no file 9"):
            await client.call("look_up", number=9)


async def test_subscriber_is_notified() -> None:
    async with TestClient(server_of("streams")) as client:
        await client.request("resources/subscribe", {"uri": "weather://oslo"})
        await client.call("calibrate", station="oslo", degrees=-3.0)
        await client.call("calibrate", station="bergen", degrees=9.0)
        updated = [
            each["params"]["uri"] for each in client.notifications if "updated" in each["method"]
        ]
        assert set(updated) == {"weather://oslo"}
        assert orjson.loads(await client.read_resource("weather://oslo"))["degrees"][-1] == -3.0


async def test_vault_is_closed_to_callers_without_a_login() -> None:
    async with TestClient(server_of("login")) as client:
        assert await client.call("who_am_i") == {"subject": None, "scopes": []}
        with pytest.raises(ToolError) as refused:
            await client.call("keep_secret", name="a", value="b")
        assert refused.value.code == ErrorCode.UNAUTHORIZED


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pictures"
    (folder / "summer").mkdir(parents=True)
    (folder / "summer" / "sea.png").write_bytes(b"png")
    (folder / "list.txt").write_text("sea")
    (tmp_path / "secret.txt").write_text("secret")
    with suppress(OSError):  # Windows asks for a right
        (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setenv("FILES_ROOT", str(folder))
    return folder


async def test_files_are_shown_and_read(pictures: Path) -> None:
    async with TestClient(server_of("files")) as client:
        listed = (await client.call("list_files"))["content"]
        assert [each["uri"] for each in listed] == ["files:///list.txt"]
        [below] = (await client.call("list_files", folder="summer"))["content"]
        assert below["uri"] == "files:///summer/sea.png"
        shown = (await client.call("show", path="summer/sea.png"))["content"]
        assert [each["type"] for each in shown] == ["text", "image"]
        assert await client.read_resource("files:///summer/sea.png") == b"png"
        assert await client.read_resource("files:///list.txt") == "sea"


@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "/etc/passwd", "a\0b", "summer"])
async def test_folder_cannot_be_left(pictures: Path, path: str) -> None:
    async with TestClient(server_of("files")) as client:
        with pytest.raises(ToolError):
            await client.call("show", path=path)
        with pytest.raises(ProtocolError):
            await client.read_resource(f"files:///{path}")


async def test_order_is_placed_and_found() -> None:
    line = {"article": "tea", "price": 2.5}
    async with TestClient(server_of("models")) as client:
        order = {"customer": " Ann ", "lines": [{**line, "quantity": 3}]}
        assert await client.call("place_order", order=order) == {"number": 1, "total": 7.5}
        found = await client.call("find_order", number=1)
        assert found["customer"] == "Ann"
        with pytest.raises(ToolError) as refused:
            await client.call("place_order", order={"customer": " ", "lines": [line]})
        assert refused.value.code == ErrorCode.INVALID_ARGUMENT
        with pytest.raises(ToolError):
            await client.call("place_order", order={"customer": "Bob", "lines": []})


async def test_api_has_the_tools_of_its_document() -> None:
    async with TestClient(server_of("rest_api")) as client:
        names = {each["name"] for each in await client.list_tools()}
        assert {"addPet", "getPet", "name_a_pet"} <= names and "deletePet" not in names
        assert await client.call("name_a_pet", letter="m") == "Milo"


def test_api_is_called_over_http_as_the_document_says() -> None:
    example = ["serve", "foundation_rt.examples.rest_api"]
    pet = {"id": 7, "name": "Milo"}
    answer = (200, {"content-type": "application/json"}, orjson.dumps(pet))
    with echo_api() as api:
        api.answers["/v1/pets/7"] = answer
        api.answers["/v1/pets/8"] = (404, {"content-type": "text/plain"}, b"no pet 8")
        env = {**environment(), "PETS_URL": f"{api.url}/v1"}
        with ServerProcess(command(*example), env) as server:
            server.handshake()
            assert server.call("getPet", id=7) == pet
            sent = server.call("addPet", name="Milo")
            assert (sent["method"], sent["path"]) == ("POST", "/v1/pets")
            assert orjson.loads(b64decode(sent["body"])) == {"name": "Milo"}
            missing = server.call("getPet", id=8)
            assert (missing["code"], missing["details"]["status"]) == ("NOT_FOUND", 404)
            refused = server.call("getPet", id="../8")
            assert refused["code"] == "INVALID_ARGUMENT"


async def test_mounted_servers_are_one_for_clients() -> None:
    async with TestClient(server_of("many")) as client:
        await client.request("resources/subscribe", {"uri": "stock://shop/all"})
        assert await client.call("shop_order", item="tea", count=4) == "4 of tea ordered"
        assert await client.call("weather_forecast", city="Oslo") == "It rains in Oslo."
        assert orjson.loads(await client.read_resource("stock://shop/all"))["tea"] == 6
        updated = [each for each in client.notifications if each["method"].endswith("updated")]
        assert [each["params"]["uri"] for each in updated] == ["stock://shop/all"]
        with pytest.raises(ToolError, match="There are 6"):
            await client.call("shop_order", item="tea", count=7)


async def test_customers_see_their_own_documents() -> None:
    server = server_of("tenants")
    async with TestClient(server) as ann, TestClient(server) as boss:
        for client, name in ((ann, "key:ann"), (boss, "key:boss")):
            client.connection.session.principal = Principal(name)
        assert await ann.call("last") == "none yet"
        assert await ann.call("save", name="plan", text="secret") == 1
        assert await ann.call("load", name="plan") == "secret"
        assert (await ann.call("last"), await boss.call("last")) == ("plan", "none yet")
        with pytest.raises(ToolError, match="no document 'plan'"):
            await boss.call("load", name="plan")
        assert await boss.call("customers") == ["key:ann", "key:boss"]
        with pytest.raises(ToolError, match="There is no tool"):
            await ann.call("customers")


async def test_orders_are_text_for_a_model_and_a_table_for_a_person() -> None:
    extensions = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    async with TestClient(server_of("orders"), extensions=extensions) as client:
        tools = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
        assert tools["refund_order"]["_meta"] == {"ui": {"visibility": ["app"]}}
        page = await client.read_resource(tools["list_orders"]["_meta"]["ui"]["resourceUri"])
        assert "https:" not in page and "http:" not in page
        assert not any(each["refunded"] for each in (await client.call("list_orders"))["orders"])
        after = await client.call("refund_order", order_id=2)
        assert [each["id"] for each in after["orders"] if each["refunded"]] == [2]
        with pytest.raises(ToolError, match="no order 9"):
            await client.call("refund_order", order_id=9)
