"""A gateway whose servers die, hang, change and come back; real processes throughout."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.client import Client, MCPError, connect
from tests.apps.gateway.test_through import NEW, OLD, Answers, speaking, status_of
from tests.lab.apps import gateway_app
from tests.lab.servers.http_server import serve_gateway
from tests.lab.servers.process import command, environment
from tests.lab.waiting import until

APP = str(gateway_app.__file__)


def entry(name: str, **members: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [APP, name], **members}


def write(path: Path, **servers: Any) -> str:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"mcpServers": servers}))
    new.replace(path)
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


async def names_of(client: Client) -> set[str]:
    """Return what the client knows: a call looks there, and the news of a change may be late."""
    return {each.name for each in await client.list_tools()} - {"health"}


async def until_listed(
    client: Client, changes: asyncio.Queue[str], are_there: Callable[[set[str]], bool]
) -> None:
    """Wait for news of a list until the names of the tools are as wanted."""
    while not are_there(await names_of(client)):
        await changes.get()


def error_in(result: dict[str, Any]) -> dict[str, Any]:
    """Return the details of the gateway's error that a model reads in a result."""
    assert result["isError"]
    text = result["content"][0]["text"]
    error = orjson.loads(text[text.index("{") :])
    return dict(error.get("details", error))


LIES = "import sys\nfor line in sys.stdin: print('no JSON', flush=True)"
HANGS = "import sys\nsys.stdin.read()"


@pytest.mark.rule("GATE-12", "GATE-44")
async def test_dead_hanging_and_lying_servers_take_nothing_from_the_others(file: Path) -> None:
    python = {"command": sys.executable}
    write(
        file,
        dead={**python, "args": ["-c", "raise SystemExit(1)"]},
        missing={"command": "no-such-program"},
        hanging={**python, "args": ["-c", HANGS], "connectTimeoutMs": 60_000},
        lying={**python, "args": ["-c", LIES], "connectTimeoutMs": 500},
        bad=entry("bad", timeoutMs=0),
        unset=entry("unset", env={"A": "${NOT_SET_ANYWHERE}"}),
        notes=entry("notes"),
    )
    env = {"FOUNDATION_RT_GATEWAY__START_WAIT_MS": "1500"}
    with serve_gateway(str(file), env=env) as gateway:
        changes = asyncio.Queue[str]()
        async with connect(gateway.url, revision=OLD, on_list_changed=changes.put_nowait) as client:
            await until_listed(client, changes, {"notes__echo"}.issubset)
            assert (await client.call("notes__echo", {"text": "x"})).text == "notes: x"
            assert all(name.startswith("notes__") for name in await names_of(client))
            states = {name: await status_of(client, name) for name in ("dead", "bad", "unset")}
            assert {each["state"] for each in states.values()} == {"failed"}
            assert "timeoutMs" in states["bad"]["reason"]
            assert "NOT_SET_ANYWHERE" in states["unset"]["reason"]
            assert (await status_of(client, "hanging"))["state"] == "starting"
            unknown = await client.request("tools/call", {"name": "notes__ecko", "arguments": {}})
            assert unknown["isError"]
            assert "notes__echo" in unknown["content"][0]["text"]
            wrong = await client.request("tools/call", {"name": "notes__echo", "arguments": {}})
            assert wrong["isError"]
            assert "INVALID_ARGUMENT" in wrong["content"][0]["text"]
        async with connect(gateway.url, revision=OLD) as late:
            await late.initialize()
            assert late.server is not None
            assert late.server.instructions is not None
            assert "Advice of notes." in late.server.instructions
        record = gateway.process.record(level="info", message="server 'notes' is ready")
        assert record["logger"] == "foundation_rt.coordinator"
        assert gateway.process.records_with(level="error", logger="foundation_rt.coordinator")


@pytest.mark.rule("GATE-56")
async def test_call_waits_for_a_server_that_is_starting(file: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = "import os, runpy, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    code += f"sys.argv = ['app', 'slow']\nrunpy.run_path({APP!r}, run_name='__main__')"
    write(
        file,
        slow={"command": sys.executable, "args": ["-c", code, str(gate)]},
        other=entry("other"),
    )
    env = {"FOUNDATION_RT_GATEWAY__START_WAIT_MS": "100"}
    with serve_gateway(str(file), env=env) as gateway:
        changes = asyncio.Queue[str]()
        async with connect(gateway.url, revision=OLD, on_list_changed=changes.put_nowait) as client:
            called = {"name": "slow__echo", "arguments": {"text": "x"}}
            calling = asyncio.create_task(client.request("tools/call", called))
            reads = {"uri": "note://slow"}
            reading = asyncio.create_task(client.request("resources/read", reads))
            await until_listed(client, changes, {"other__echo"}.issubset)
            assert (await status_of(client, "slow"))["state"] == "starting"
            assert not calling.done() and not reading.done()
            gate.touch()
            assert (await calling)["content"][0]["text"] == "slow: x"
            assert (await reading)["contents"][0]["uri"] == "note://slow"


@pytest.mark.rule("GATE-05")
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_killed_child_costs_its_call_and_nothing_else(file: Path, revision: str) -> None:
    write(file, one=entry("one"), two=entry("two"))
    changes: list[str] = []
    with serve_gateway(str(file), env=speaking(revision)) as gateway:
        async with connect(gateway.url, revision=OLD, on_list_changed=changes.append) as client:
            before = await names_of(client)
            other = (await client.call("two__pid")).value()
            failed = await client.request("tools/call", {"name": "one__die", "arguments": {}})
            details = error_in(failed)
            assert details["server"] == "one"
            assert details["appCode"] == "E201"
            assert details["mayHaveRun"] is True
            assert (await client.call("one__echo", {"text": "on"})).text == "one: on"
            assert (await client.call("two__pid")).value() == other
            assert await names_of(client) == before
            assert changes == []


@pytest.mark.rule("COORD-51", "COORD-53")
async def test_sessions_of_two_clients_are_never_mixed(file: Path) -> None:
    write(file, one=entry("one"))
    with serve_gateway(str(file), env=speaking(OLD)) as gateway:
        async with (
            connect(gateway.url, revision=OLD) as ann,
            connect(gateway.url, revision=OLD) as bob,
        ):

            async def calls(client: Client, mine: str) -> tuple[set[Any], list[int]]:
                found = await asyncio.gather(
                    *(client.call("one__count", {"mine": f"{mine}{n}"}) for n in range(150))
                )
                values: list[Any] = [each.value() for each in found]
                assert [value[0] for value in values] == [f"{mine}{n}" for n in range(150)]
                return {value[1] for value in values}, sorted(value[2] for value in values)

            (anns, counted), (bobs, also) = await asyncio.gather(calls(ann, "a"), calls(bob, "b"))
            assert len(anns) == len(bobs) == 1
            assert anns != bobs
            assert counted == also == [*range(1, 151)]
            assert (await status_of(ann, "one"))["sessions"] == 2


@pytest.mark.rule("COORD-57", "GATE-42")
async def test_file_that_changes_is_read_again_under_load(file: Path) -> None:
    write(file, one=entry("one"))
    with serve_gateway(str(file)) as gateway:
        changes = asyncio.Queue[str]()
        async with connect(gateway.url, revision=OLD, on_list_changed=changes.put_nowait) as client:
            pid = (await client.call("one__pid")).value()
            done = asyncio.Event()

            async def load() -> set[Any]:
                seen = set()
                while not done.is_set():
                    seen.add((await client.call("one__pid")).value())
                return seen

            loads = [asyncio.create_task(load()) for _ in range(4)]
            write(file, one=entry("one"), two=entry("two"))
            await until_listed(client, changes, {"two__echo"}.issubset)
            gateway.process.record(message="the servers were read again")
            file.write_text("{")
            broken = gateway.process.record(level="error", logger="foundation_rt.coordinator")
            assert "not read again" in broken["message"]
            write(file, one=entry("one"))
            await until_listed(client, changes, {"two__echo"}.isdisjoint)
            done.set()
            assert set().union(*await asyncio.gather(*loads)) == {pid}


@pytest.mark.rule("GATE-31", "GATE-32", "GATE-40", "GATE-53")
async def test_changed_definition_is_withheld_until_it_is_accepted(
    file: Path, tmp_path: Path
) -> None:
    app, lock = tmp_path / "app.py", tmp_path / "mcp.lock"

    def describe(text: str) -> None:
        app.write_text(
            "from foundation_rt import Server\n"
            "server = Server('one')\n"
            f"@server.tool(description={text!r})\n"
            "def add() -> int:\n    return 1\n"
            "if __name__ == '__main__':\n    server.run()\n"
        )

    describe("first")
    write(file, one={"command": sys.executable, "args": [str(app)]})
    with serve_gateway(str(file), "--lock", str(lock)) as gateway:
        async with connect(gateway.url) as client:
            assert "one__add" in await names_of(client)
    describe("second")
    with serve_gateway(str(file), "--lock", str(lock)) as gateway:
        changes = asyncio.Queue[str]()
        async with connect(gateway.url, on_list_changed=changes.put_nowait) as client:
            assert "one__add" not in await names_of(client)
            [withheld] = [
                each
                for each in (await status_of(client, "one"))["withheld"]
                if each["kind"] == "tools" and each["identifier"] == "add"
            ]
            assert withheld["reason"] == "changed"
            refused = await client.request("tools/call", {"name": "one__add", "arguments": {}})
            assert refused["isError"]
            said = refused["content"][0]["text"]
            assert "has changed since the operator of the gateway has accepted it" in said
            assert "foundation-rt gateway accept --lock FILE --server one" in said
            words = command("gateway", "accept", str(file), "--lock", str(lock))
            accepting = await asyncio.create_subprocess_exec(
                *words, env=environment(), stdout=asyncio.subprocess.PIPE
            )
            out, _ = await accepting.communicate()
            assert accepting.returncode == 0
            assert b"one: " in out
            await until_listed(client, changes, {"one__add"}.issubset)
            assert (await client.call("one__add")).value() == 1
            assert (await status_of(client, "one"))["withheld"] == []


DECLARING = """
from foundation_rt import Server

server = Server("one", instructions={text!r})


@server.tool(description={text!r})
def add() -> int:
    return 1


@server.resource("memo://{{id}}", description={text!r})
def memo(id: str) -> str:
    return id


@server.prompt(description={text!r})
def greet(name: str) -> str:
    return name


@server.completion("greet", "name")
@server.completion("memo://{{id}}", "id")
def complete(value: str) -> list[str]:
    return [value]


server.run()
"""


@pytest.mark.rule("GATE-31", "GATE-53", "GATE-55")
async def test_lock_has_no_door(file: Path, tmp_path: Path) -> None:
    """Instructions, URIs below a template in any spelling, completions, subscriptions."""
    app, lock = tmp_path / "app.py", tmp_path / "mcp.lock"
    write(file, one={"command": sys.executable, "args": [str(app)]})

    def ref(**given: str) -> dict[str, Any]:
        return {"ref": given, "argument": {"name": "name", "value": "x"}}

    requests: list[tuple[str, dict[str, Any]]] = [
        *(
            ("resources/read", {"uri": uri})
            for uri in ("memo://5", "one+memo://5", "MEMO:///./5", "memo://x/../%35?q#f")
        ),
        ("prompts/get", {"name": "one__greet", "arguments": {"name": "x"}}),
        ("completion/complete", ref(type="ref/prompt", name="one__greet")),
        *(
            ("completion/complete", ref(type="ref/resource", uri=uri))
            for uri in ("memo://{id}", "one+memo://{id}", "memo://5")
        ),
        ("resources/subscribe", {"uri": "memo://5"}),
    ]

    async def instructions(url: str) -> str:
        async with connect(url, revision=OLD) as client:
            await client.initialize()
            assert client.server is not None
            return client.server.instructions or ""

    async def refused(client: Client) -> list[bool]:
        found = []
        for method, params in requests:
            try:
                await client.request(method, params)
                found.append(False)
            except MCPError as error:
                found.append("gateway accept" in error.message)
        return found

    app.write_text(DECLARING.format(text="first"))
    with serve_gateway(str(file), "--lock", str(lock)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            assert not any(await refused(client))
        assert "first" in await instructions(gateway.url)
    content = orjson.loads(lock.read_bytes())
    del content["servers"]["one"]["instructions"]  # as a file of before had none
    lock.write_bytes(orjson.dumps(content))
    with serve_gateway(str(file), "--lock", str(lock)) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            assert "one__add" in await names_of(client)
            assert await instructions(gateway.url) == ""
            withheld = (await status_of(client, "one"))["withheld"]
            assert [(each["kind"], each["reason"]) for each in withheld] == [
                ("instructions", "new")
            ]
    app.write_text(DECLARING.format(text="second"))
    with serve_gateway(str(file), "--lock", str(lock)) as gateway:
        changes = asyncio.Queue[str]()
        async with connect(gateway.url, revision=OLD, on_list_changed=changes.put_nowait) as client:
            assert all(await refused(client)), await refused(client)
            said = "instructions of server 'one' is withheld, since it is new: 'instructions'"
            gateway.process.record(message=said)
            words = command("gateway", "accept", str(file), "--lock", str(lock))
            accepting = await asyncio.create_subprocess_exec(*words, env=environment())
            assert await accepting.wait() == 0
            await until_listed(client, changes, {"one__add"}.issubset)
            assert not any(await refused(client))
        assert "second" in await instructions(gateway.url)


@pytest.mark.rule("GATE-13")
@pytest.mark.parametrize("theirs", [OLD, NEW])
async def test_subscription_begins_with_the_first_and_ends_with_the_last(
    file: Path, theirs: str
) -> None:
    write(file, one=entry("one", isolation="shared"))
    uri = "note://one"
    with serve_gateway(str(file), env=speaking(theirs)) as gateway:
        async with (
            connect(gateway.url, revision=NEW) as ann,
            connect(gateway.url, revision=NEW) as bob,
        ):
            async with ann.subscribe(uri) as anns:
                async with bob.subscribe(uri) as bobs:
                    assert (await ann.call("one__subscribed")).value() == [uri]
                    await ann.call("one__touch", {"uri": uri})
                    assert await anext(aiter(anns)) == uri
                    assert await anext(aiter(bobs)) == uri
                assert (await ann.call("one__subscribed")).value() == [uri]
                pid = (await ann.call("one__pid")).value()
                assert isinstance(pid, int)
                os.kill(pid, signal.SIGKILL)  # a lost connection

                async def touched() -> None:
                    while True:
                        await ann.call("one__touch", {"uri": uri}, idempotent=True)
                        await asyncio.sleep(0.1)

                touching = asyncio.create_task(touched())
                assert await anext(aiter(anns)) == uri
                touching.cancel()
                await asyncio.wait([touching])
            await until(
                lambda: ann.call("one__subscribed"),
                "the subscription ends",
                lambda found: not found.value(),
            )


@pytest.mark.rule("GATE-20")
async def test_client_that_cannot_be_asked_is_not_asked(file: Path) -> None:
    write(file, one=entry("one"))
    able, mute = Answers(), Answers(sampling={})
    with serve_gateway(str(file), env=speaking(OLD)) as gateway:
        async with (
            connect(gateway.url, revision=OLD, handlers=able) as ann,
            connect(gateway.url, revision=OLD, handlers=mute) as bob,
        ):
            asked = await asyncio.gather(ann.call("one__ask"), bob.call("one__ask"))
            assert [each.is_error for each in asked] == [False, True]
            assert len(able.asked) == 1
            assert mute.asked == []
