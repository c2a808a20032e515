"""The examples of the guides run."""

from __future__ import annotations

import asyncio
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import psycopg
import pytest

from foundation_rt import AgentMessage, Principal, Server
from foundation_rt.agents.ledger.types import RequestState
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter
from foundation_rt.cli.main import main
from foundation_rt.client import connect as client_connect
from foundation_rt.testing import ProtocolError, SequentialIds, TestClient
from tests.client.document_server import server as document_server
from tests.lab.login.oauth_world import log_in, running_world
from tests.lab.places.services import postgres_schema
from tests.lab.programs.guides import GUIDES, blocks_of
from tests.lab.programs.pytest_run import run_pytest
from tests.lab.servers.asgi import ask
from tests.trace import ROOT

BLOCKS = [each for page in sorted(GUIDES.glob("*.md")) for each in blocks_of(page)]


def block(text: str) -> str:
    """Return the one example in which `text` stands."""
    (found,) = [each.text for each in BLOCKS if text in each.text]
    return found


def run(defined: dict[str, Any], *texts: str) -> dict[str, Any]:
    """Run the examples in which these texts stand, one after the other."""
    for text in texts:
        exec(compile(block(text), text, "exec", dont_inherit=True), defined)
    return defined


def test_every_guide_opens_with_what_one_can_do_after_it() -> None:
    pages = [each for each in GUIDES.glob("*.md") if each.name != "glossary.md"]
    openings = {each.name: each.read_text("utf-8").split("\n\n")[1] for each in pages}
    wrong = [
        name for name, text in openings.items() if not text.startswith("After this page you can")
    ]
    assert wrong == []


def run_shell(commands: str, folder: Path) -> str:
    """Run the commands of an example as a reader does; return what they print."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.fixture
def names() -> dict[str, Any]:
    """Return the names that the first examples define, run one after the other."""
    defined: dict[str, Any] = {"__name__": "tools"}
    return run(defined, "def forecast", "async def station")


def module_of(names: dict[str, Any]) -> ModuleType:
    """Return the module `tools` that has these names."""
    tools = ModuleType("tools")
    vars(tools).update(names)
    return tools


def test_the_first_tool_works_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(block("def forecast"))
    command = [sys.executable, "-m", "foundation_rt", "call", "tools.py", "forecast"]
    done = subprocess.run(
        [*command, '{"city": "Oslo"}'], cwd=tmp_path, capture_output=True, timeout=20, check=True
    )
    assert orjson.loads(done.stdout) == {"city": "Oslo", "days": ["sunny"] * 3}


def test_the_commands_that_ask_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools.py").write_text(block("def forecast"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    section = block("foundation-rt ping")
    lines = section.partition("```")[0].splitlines()
    for line in lines:
        _, *words = shlex.split(line, comments=True)
        assert main(words) == 0
        assert capsys.readouterr().out
    assert len(lines) == 6


def test_the_packaged_program_asks_for_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools.py").write_text(block("def outlook"))
    (tmp_path / "requirements.txt").write_text("foundation-rt==1.0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    _, *words = shlex.split(block("--file prices.csv").partition(" --file")[0])
    assert main(words) == 0
    assert "it asks for: WEATHER_KEY (secret), WEATHER_UNITS" in capsys.readouterr().out


def test_the_test_of_the_first_tool_passes_as_pasted(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(block("def forecast"))
    (tmp_path / "test_tools.py").write_text(block("def test_forecast"))
    assert "1 passed" in run_pytest(tmp_path)


def test_the_test_with_the_fixture_passes_as_pasted(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(block("def forecast"))
    (tmp_path / "test_tools.py").write_text(block("def test_one_day"))
    assert "1 passed" in run_pytest(tmp_path)


def test_the_shop_keeps_its_stock(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(block("migrate_sqlite("))
    assert run_shell("python shop.py; python shop.py", tmp_path) == "3\n6\n"


def test_the_section_of_an_application_is_set_by_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FOUNDATION_RT_SHOP__MAX_ORDERS", "500")
    server = run({"__name__": "shop"}, "class ShopSettings")["server"]

    async def call() -> Any:
        async with TestClient(server) as client:
            return await client.call("limit")

    assert asyncio.run(call()) == 500


def test_the_tool_with_a_context_works(names: dict[str, Any]) -> None:
    async def call() -> Any:
        async with TestClient(names["server"]) as client:
            return await client.call("station", name="Blindern")

    with pytest.raises(names["ToolError"], match="no station Blindern"):
        asyncio.run(call())


async def test_the_tools_that_shape_their_results_work(names: dict[str, Any]) -> None:
    run(names, "def radar")

    async with TestClient(names["server"]) as client:
        assert await client.call("degrees", city="Oslo") == {"low": 3, "high": 8}
        kinds = [block["type"] for block in (await client.call("radar", city="Oslo"))["content"]]
        assert kinds == ["image", "text"]
        assert (await client.call("warning", city="Oslo"))["isError"] is True


async def test_the_versions_of_a_tool_are_side_by_side(names: dict[str, Any]) -> None:
    run(names, "def find_all")
    async with TestClient(names["server"]) as client:
        assert await client.call("find", query="a", limit=2) == ["a", "a"]
        assert await client.call("find@1", query="a") == ["a"]
        with pytest.raises(names["ToolError"], match="limit"):
            await client.call("find@1", query="a", limit=1)


async def test_the_resource_the_prompt_and_the_completion_work(names: dict[str, Any]) -> None:
    run(names, "@server.completion")

    async with TestClient(names["server"]) as client:
        text = await client.read_resource("station://Blindern")
        assert orjson.loads(text) == {"station": "Blindern", "degrees": [4, 7]}
        [message] = await client.get_prompt("report", station="Blindern", days="1")
        text = "Write a dry report on Blindern for 1 days."
        assert message["content"]["text"] == text
        assert await client.complete("report", "station", "By") == ["Bygdøy"]
        assert await client.complete("report", "tone", "c") == ["cheerful"]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_tool_that_asks_works(names: dict[str, Any], revision: str) -> None:
    run(names, "class Booking")

    def answers(method: str, params: dict[str, Any]) -> Any:
        if method == "elicitation/create":
            return {"action": "accept", "content": {"guest": "Ann", "nights": 2}}
        content = {"type": "text", "text": "Welcome, Ann!"}
        return {"role": "assistant", "model": "m", "content": content}

    async def book() -> Any:
        async with TestClient(names["server"], revision=revision, answers=answers) as client:
            return await client.call("book", room=5)

    assert asyncio.run(book()) == "Room 5, 2 nights. Welcome, Ann!"


def test_the_server_is_mounted_in_another_application(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOUNDATION_RT_HTTP__NO_AUTH", "true")
    monkeypatch.setitem(sys.modules, "tools", module_of(names))
    run(names, "Mount(")

    async def look() -> int:
        app = names["app"]
        async with app.router.lifespan_context(app):
            return (await ask(names["tools"], "tools/list").finish()).status

    assert asyncio.run(look()) == 200


def test_the_lifespan_and_the_middleware_work() -> None:
    defined = run({}, 'Server("library")')

    async def look_up() -> Any:
        async with TestClient(defined["server"]) as client:
            return await client.call("title", form="A38")

    assert asyncio.run(look_up()) == "Forms"


def test_the_dependency_is_replaced_in_a_test(tmp_path: Path) -> None:
    defined = run({"__name__": "lending"}, 'Server("lending")')
    database = defined["connect"](tmp_path / "books.db", check_same_thread=False)
    database.executescript("create table books (name, lent); insert into books values ('A38', 0)")

    async def lend() -> Any:
        overrides = {defined["open_database"]: lambda: database}
        async with TestClient(defined["server"], dependency_overrides=overrides) as client:
            return await client.call("lend", book="A38")

    assert asyncio.run(lend()) == 1
    assert database.execute("select lent from books").fetchone() == (1,)
    database.close()


def test_the_agent_counts_what_it_is_asked_for() -> None:
    defined = run({}, 'Server("office")')

    async def ask() -> Any:
        async with TestClient(defined["server"]) as client:
            message = {"type": "form", "payload": "A38"}
            return await client.call("agent/sendMessage", targetAgentId="clerk", message=message)

    assert [asyncio.run(ask()) for _ in range(2)] == [
        {"asked": 1, "for": "A38"},
        {"asked": 2, "for": "A38"},
    ]


def test_the_request_is_executed_once() -> None:
    defined = run({}, 'Server("office")', "async def order")

    async def order() -> Any:
        async with TestClient(defined["server"]):
            return [await defined["order"](form) for form in ("A38", "A38", "B1")]

    first = {"asked": 1, "for": "A38"}
    assert asyncio.run(order()) == [first, first, {"asked": 2, "for": "B1"}]


def test_commands_of_the_ledgers_guide_find_the_request(tmp_path: Path) -> None:
    (tmp_path / "office.py").write_text(block('Server("office")'))
    done = run_shell(block("foundation-rt call office.py"), tmp_path)
    assert "order-17  clerk  COMPLETED" in done
    assert '"asked": 1' in done


def test_commands_of_the_development_guide_simulate_agents() -> None:
    done = run_shell(block("tests.simulation"), ROOT)
    assert "10 seeds in" in done
    assert "replay it with: make simulate SEED=7" in done


def test_the_agent_that_sends_mail_executes_several_at_a_time() -> None:
    from foundation_rt import AgentContext, AgentMessage

    names = {"AgentContext": AgentContext, "AgentMessage": AgentMessage}
    defined = run(names, 'Server("office")', "async def send_mail")

    async def send() -> Any:
        async with TestClient(defined["server"]):
            agents = defined["server"].agents
            return await asyncio.gather(*(agents.send_request("mail", n) for n in range(10)))

    assert asyncio.run(send()) == [None] * 10


def test_the_reminder_of_the_agent_waits_for_its_time() -> None:
    defined = run({}, 'Server("office")', "async def remind")

    async def remind() -> Any:
        async with TestClient(defined["server"]):
            request_id = await defined["remind"]("A38")
            agents = defined["server"].agents
            [listed] = await agents.list_requests()
            assert await agents.cancel_request(request_id)
            return listed

    record = asyncio.run(remind())
    assert (record.state, record.priority) == (RequestState.DELAYED, 5)
    assert record.not_before_ms - record.created_at_ms == 86_400_000
    assert record.expires_at_ms - record.not_before_ms == 3_600_000


async def test_the_skills_of_a_folder_are_offered(tmp_path: Path) -> None:
    manifest = tmp_path / "skills" / "refunds" / "SKILL.md"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("---\nname: refunds\ndescription: Refund an order.\n---\nAsk.\n")
    server = Server("shop")
    run({"server": server, "__file__": str(tmp_path / "shop.py")}, "server.skills_from(")
    async with client_connect(server) as client:
        skill = await client.skill("refunds")
        assert await client.read_skill(skill) == manifest.read_bytes()


async def test_the_app_of_the_guide_is_offered(tmp_path: Path) -> None:
    (tmp_path / "orders.html").write_text("<title>Orders</title>")
    given = {"__name__": "shop", "__file__": str(tmp_path / "shop.py")}
    server = run(given, "def list_orders()", "ui://orders/map")["server"]
    async with TestClient(server) as client:
        assert await client.read_resource("ui://orders/table") == "<title>Orders</title>"
        assert await client.call("list_orders") == {"orders": [{"id": 1, "cents": 990}]}
        assert "geolocation" in str(await client.request("resources/list"))


def test_the_schedules_of_the_agent_are_in_its_ledger() -> None:
    defined = run({}, 'Server("office")', "server.agents.every(")

    async def names() -> list[str]:
        async with TestClient(defined["server"]):
            listed = await defined["server"].agents.list_schedules()
            assert await defined["server"].agents.remove_schedule("inbox")
            return [each.name for each in listed]

    assert asyncio.run(names()) == ["clerk:0_6_x_x_x", "inbox"]


def test_the_order_and_its_request_are_committed_together() -> None:
    with postgres_schema() as (url, schema):
        store = PostgresAACPPersistenceAdapter(url, schema=schema)
        defined = run({}, 'Server("office")', "async def place_order")
        defined["server"].agents.store = store

        async def place() -> Any:
            agents = defined["server"].agents
            async with (
                TestClient(defined["server"]),
                await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
            ):
                await agents.start()
                await connection.execute(f"SET search_path TO {schema}".encode())
                await connection.execute("CREATE TABLE orders (form text)")
                request_id = await defined["place_order"](connection, "A38")
                message = AgentMessage("form", "A38")
                return await agents.send_request("clerk", message, request_id=request_id)

        assert asyncio.run(place()) == {"asked": 1, "for": "A38"}


def test_the_embedding_examples_work(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tools", module_of(names))
    run({}, "connection.feed(")
    assert '"id":1,"result":{"protocolVersion":"2025-11-25"' in capsys.readouterr().out
    effect = run({}, "runtime.dispatcher.dispatch(")["effect"]
    assert b'"id":1' in effect.line


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_forwarder_hands_on_lists_calls_and_errors(
    names: dict[str, Any], revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(names, "@server.completion")
    upstream = client_connect(names["server"])
    monkeypatch.setattr("foundation_rt.client.connect", lambda command: upstream)
    front = run({}, "class Forwarder:")["server"]
    async with TestClient(front, revision=revision) as client:
        listed = await client.request("tools/list")
        assert {"forecast", "station"} < {each["name"] for each in listed["tools"]}
        assert await client.call("forecast", city="Oslo", days=1) == {
            "city": "Oslo",
            "days": ["sunny"],
        }
        text = await client.read_resource("station://Blindern")
        assert orjson.loads(text)["degrees"] == [4, 7]
        with pytest.raises(ProtocolError):
            await client.read_resource("station://Blindern/nothing")


def test_the_coordinator_calls_a_server_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files.py").write_text(
        "from foundation_rt import Server\nserver = Server('files')\n"
        "@server.tool\ndef read_file(path: str) -> str:\n    return 'text of ' + path\n"
    )
    entry = {"command": sys.executable, "args": ["-m", "foundation_rt", "serve", "files.py"]}
    (tmp_path / "mcp.json").write_bytes(orjson.dumps({"mcpServers": {"files": entry}}))
    monkeypatch.chdir(tmp_path)
    value, error, prompt = asyncio.run(run({}, "async def notes(")["notes"]())
    assert value == "text of notes.txt"
    assert error is not None
    assert "read_file" in prompt


def test_the_openapi_document_becomes_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETS_TOKEN", "s3")
    (tmp_path / "petstore.yaml").write_text(block("securitySchemes:"))
    monkeypatch.chdir(tmp_path)
    server = run({}, '"petstore.yaml",')["server"]

    async def listed() -> tuple[set[str], int]:
        async with TestClient(server) as client:
            tools = await client.request("tools/list")
            templates = await client.request("resources/templates/list")
            return {each["name"] for each in tools["tools"]}, len(templates["resourceTemplates"])

    assert asyncio.run(listed()) == ({"health", "add"}, 1)


async def test_the_metrics_of_an_application_are_counted() -> None:
    server = run({}, 'Server("tasks"')["server"]
    async with TestClient(server, ids=SequentialIds()) as client:
        assert await client.call("insert", titles=["a", "b"]) == 2
        audited = [each for each in client.logs if each["message"] == "audit"]
    page = server.runtime.metrics.render()[1].decode()
    assert "mcp_tasks_inserted_total 2.0" in page
    assert 'mcp_tool_execution_seconds_count{tool="insert"} 1.0' in page
    assert 'mcp_jobs{status="RUNNING"} 1.0' in page
    assert "TASKS_CREATED" in str(audited)


async def test_what_is_switched_off_is_not_listed(names: dict[str, Any]) -> None:
    run(names, 'visible={"admin"}')
    async with TestClient(names["server"]) as client:
        names["server"].disable("plan")
        before = await client.request("tools/list")
        names["server"].enable(tags={"beta"})
        after = await client.request("tools/list")
    assert "plan" not in {each["name"] for each in before["tools"]}
    assert "plan" in {each["name"] for each in after["tools"]}


def test_the_desktop_client_example_is_json() -> None:
    entry = orjson.loads(block('"FOUNDATION_RT_LOGGING__LEVEL": "warn"'))
    assert entry["mcpServers"]["weather"]["args"][0] == "serve"


def test_the_clients_first_example_calls_and_fails_well(names: dict[str, Any]) -> None:
    client_names = run({}, "async def weather(")

    async def use() -> tuple[Any, str]:
        async with client_names["connect"](names["server"]) as client:
            refused = await client_names["careful"](client)
        return await client_names["weather"](names["server"]), refused

    found, refused = asyncio.run(use())
    assert found == {"city": "Oslo", "days": ["sunny"] * 3}
    assert refused == "Invalid parameters: Correct the request."


def test_the_client_that_watches_reads_what_changed(names: dict[str, Any]) -> None:
    run(names, "@server.completion")
    watch = run({}, "async def watch(")["watch"]

    async def use() -> list[Any]:
        seen: list[Any] = []
        async with client_connect(names["server"]) as client:
            async with asyncio.timeout(20):
                watching = asyncio.create_task(watch(client, seen))
                while not seen:
                    names["server"].resource_updated("station://Blindern")
                    await asyncio.sleep(0)
                watching.cancel()
        return seen

    [first, *_] = asyncio.run(use())
    assert orjson.loads(first.contents[0].text) == {"station": "Blindern", "degrees": [4, 7]}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_client_that_is_asked_answers(
    names: dict[str, Any], revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(names, "class Booking")
    monkeypatch.setenv("MCP_PROTOCOL_VERSION", revision)
    client_names = run({}, "async def booked(")

    def fill_in(request: Any) -> dict[str, Any]:
        return {"guest": "Ann", "nights": 2}

    def model(request: Any) -> dict[str, Any]:
        content = {"type": "text", "text": "Welcome, Ann!"}
        return {"role": "assistant", "model": "m", "content": content}

    said = asyncio.run(client_names["booked"](names["server"], fill_in, model))
    assert said == "Room 5, 2 nights. Welcome, Ann!"


def test_the_client_routes_a_document_to_its_tool() -> None:
    convert = run({}, "async def convert(")["convert"]

    async def use() -> Any:
        async with client_connect(document_server) as client:
            return await convert(client, "report.PDF", 2_000_000)

    assert not asyncio.run(use()).is_error


@pytest.mark.rule("DB-12")
def test_the_database_of_an_application_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    defined = run({"__name__": "shop"}, "MIGRATIONS = ")

    async def main() -> list[int]:
        await defined["shop"].open()
        stock = [await defined["add"]("apple", n) for n in (3, -2)]
        with pytest.raises(sqlite3.IntegrityError):
            await defined["add"]("apple", -2)
        await defined["shop"].close()
        return stock

    assert asyncio.run(main()) == [3, 1]


async def test_the_counter_of_a_session_is_dropped_with_it() -> None:
    defined = run({}, "counters: dict")
    server = defined["server"]
    for _ in range(2):
        async with TestClient(server) as client:
            assert [await client.call("count") for _ in range(3)] == [1, 2, 3]
            assert len(defined["counters"]) == 1
    assert defined["counters"] == {}


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_program_of_the_fastmcp_guide_runs(revision: str) -> None:
    def user(method: str, params: dict[str, Any]) -> Any:
        return {"action": "accept", "content": {"value": "Ann"}}

    server = run({"__name__": "guide"}, 'mcp = Server("notes"')["mcp"]
    async with TestClient(server, revision=revision, answers=user) as client:
        assert await client.call("keep", text="milk") == "milk"
        assert await client.call("ask") == "Hello, Ann!"
        assert await client.read_resource("notes://milk") == "milk"


async def test_tests_of_the_testing_guide_pass(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tools", module_of(names))
    first = run({}, "async def test_days_are_a_number")
    second = run({}, "async def test_greets_by_name")
    for defined in (first, second):
        for name in [each for each in defined if each.startswith("test_")]:
            await defined[name]()


async def test_program_of_the_official_sdk_guide_runs() -> None:
    async with TestClient(run({"__name__": "guide"}, 'app = Server("shop")')["app"]) as client:
        result = await client.call("search", words="tea")
        assert result == "nothing is called tea"


def test_guide_logs_a_program_in() -> None:
    with running_world() as world:
        search = run({}, "async def search(url, query")["search"]
        found = asyncio.run(search(world.url, "x", login=log_in))
    assert found == "done"


async def test_guide_asks_for_the_token_of_the_provider() -> None:
    served = run({}, block("ctx.provider_token()"))["server"]
    async with TestClient(served) as client:
        assert await client.call("upstream") == "log in again"


async def test_the_method_and_its_client_work() -> None:
    names = run(
        {"__name__": "reports"}, '@server.method("example/report")', "async def ask() -> dict"
    )
    result = await names["ask"]()
    assert (result["city"], result["days"]) == ("Oslo", ["sunny"] * 3)


@pytest.mark.rule("EXT-12", "EXT-13")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_feature_of_the_guide_works(
    monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    monkeypatch.setenv("FOUNDATION_RT_NOTES__MOST", "2")
    monkeypatch.setenv("FOUNDATION_RT_NOTES__WRITERS", "ann")
    text = block("class NotesSettings")
    assert len([line for line in text.splitlines() if line.strip()]) <= 60
    server = run({"__name__": "notes"}, "class NotesSettings")["server"]

    async def add(client: TestClient, text: str) -> Any:
        try:
            return (await client.request("example/notes/add", {"text": text}))["notes"]
        except ProtocolError as error:
            return error.data["code"]

    async with TestClient(server, revision=revision) as client, TestClient(server) as other:
        assert await add(client, "nobody") == "UNAUTHORIZED"
        for each in (client, other):
            each.connection.session.principal = Principal("ann" if each is client else "bob")
        assert await add(other, "not a writer") == "UNAUTHORIZED"
        assert [await add(client, text) for text in "abc"] == [
            ["a"],
            ["a", "b"],
            "RESOURCE_EXHAUSTED",
        ]
        assert (await other.request("example/notes/read"))["notes"] == []


async def test_the_tool_of_the_deadlines_guide_counts(tmp_path: Path) -> None:
    server = run({"__name__": "archive"}, "def count_lines(")["server"]
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    async with TestClient(server) as client:
        files = [str(tmp_path / "a.txt")] * 2
        assert await client.call("count_lines", files=files) == 4


async def test_the_client_of_the_errors_guide_tells_failures_apart() -> None:
    lend = run({"__name__": "library"}, "async def try_to_lend(")["try_to_lend"]
    assert await lend("Form") == "NOT_FOUND: ['Forms']"
    assert await lend(5) == "E203, may have run: False"


async def test_the_reader_of_the_security_guide_does_not_see_what_writes() -> None:
    defined = run({"__name__": "notes"}, "def wipe(")
    app = defined["server"].asgi_app()
    for entry, tools in zip(defined["KEYS"], (["health", "wipe"], ["health"]), strict=True):
        visit = ask(app, "tools/list", headers={"x-api-key": entry.split(":")[1]})
        await visit.task
        listed = orjson.loads(visit.body)["result"]["tools"]
        assert sorted(each["name"] for each in listed) == tools


def test_the_client_of_the_task_server_guide_keeps_tasks(tmp_path: Path) -> None:
    keep = run({}, "async def keep(titles")["keep"]
    database = f"--database sqlite:{tmp_path / 'tasks.db'}"
    target = f"{sys.executable} -m foundation_rt task-server {database}"
    assert asyncio.run(keep(["Write docs"], target)) == "COMPLETED"
