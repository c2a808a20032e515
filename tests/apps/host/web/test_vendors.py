"""A host in a process of its own, and a vendor that refuses what the strict ones refuse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.host.process import HostProcess, host_process
from tests.lab.host.server import PATIENCE, Frame
from tests.lab.models.fake_models import KEY, FakeModels
from tests.lab.servers.process import command, run
from tests.lab.sizes import cases

ODD = """
import asyncio
from foundation_rt import Server, ToolContext, ToolDefinition

server = Server("odd")
WORDY = "Words. " * 500

def register(name, properties, description="Do it."):
    schema = {"type": "object", "properties": properties}

    async def handler(arguments: dict, context: ToolContext) -> str:
        if name == "wait":
            await asyncio.sleep(3600)
        return "got " + ",".join(sorted(arguments))

    server.register(ToolDefinition(name, description, schema), handler)

register("list", {"$filter": {"type": "string"}, "ids": {"type": "array"}})
register("wordy", {}, WORDY)
register("wait", {})
for number in range(MANY):
    register(f"tool_{number}", {})
"""


def write_servers(folder: Path, many: int = 0) -> None:
    (folder / "app.py").write_text(ODD.replace("MANY", str(many)))
    program, *args = command("serve", str(folder / "app.py"))
    entry = {"command": program, "args": args}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"2nd": entry}}))


def variables(fake: FakeModels, provider: str) -> dict[str, str]:
    key = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}[provider]
    return {"LLM_BASE_URL": str(fake.config(provider).base_url), key: KEY}


def _is_ready(frame: Frame) -> bool:
    return [each["state"] for each in frame["payload"].get("servers", ())] == ["ready"]


async def status(host: HostProcess) -> dict[str, Any]:
    """Return what `/api/status` says."""
    import httpx2

    async with httpx2.AsyncClient(headers={"X-API-Key": host.token}, timeout=PATIENCE) as client:
        answer = await client.get(f"http://127.0.0.1:{host.port}/api/status")
        return dict(answer.json())


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments, "id": "c1"}


@pytest.mark.rule("LLM-111", "LLM-112", "LLM-114", "LLM-115", "TURN-07")
@pytest.mark.parametrize("provider", cases(["anthropic"], ["openai", "anthropic"]))
async def test_odd_tools_and_a_stop_cost_a_chat_nothing(provider: str, tmp_path: Path) -> None:
    write_servers(tmp_path)
    async with FakeModels(is_strict=True) as fake:
        words = ("--servers", "servers.json", "--yes", "--model", f"{provider}:fake-1")
        with host_process(tmp_path, *words, env=variables(fake, provider)) as host:
            async with host.page() as page:
                await page.until(_is_ready)
                fake.play(["hello"])
                await page.turn("hi")
                sent = json.dumps(fake.requests[-1].body["tools"])
                names = {
                    each: _sent_name(fake.requests[-1].body, each) for each in ("list", "wait")
                }
                wire = "filter" if provider == "anthropic" else "$filter"
                fake.play([call(names["list"], **{wire: "a"})], ["done"])
                await page.turn("list them")
                shown = json.dumps(page.frames)
                assert "got $filter" in shown
                fake.play([call(names["wait"])])
                await page.say("wait")
                await page.until("status", state="processing")
                await page.send("stop")
                await page.until("turn", state="stopped")
                fake.play(["we go on"])
                await page.turn("and now?")
                assert page.text.endswith("we go on")
            noted = await status(host)
    assert "Words. " in sent and names["list"].startswith("t_2nd__list_")
    assert len(fake.refusals) == 1 and "string too long" in fake.refusals[0]
    [server] = noted["servers"]
    notes = {each["name"]: " ".join(each.get("forModel", ())) for each in server["tools"]}
    assert "its description is cut at 1024 characters" in notes["wordy"]
    assert ("the parameter $filter is called filter" in notes["list"]) is (provider == "anthropic")


def _sent_name(body: Any, tool: str) -> str:
    """Return the name under which a tool was sent."""
    found = [each.get("function", each)["name"] for each in body["tools"]]
    return next(name for name in found if f"__{tool}_" in name)


@pytest.mark.rule("TURN-85", "LLM-112", "LLM-114")
async def test_ask_and_a_page_say_that_not_all_tools_are_sent(tmp_path: Path) -> None:
    write_servers(tmp_path, many=130)
    async with FakeModels([["hello"]], is_strict=True) as fake:
        words = ("--servers", "servers.json", "--model", "openai:fake-1")
        given = variables(fake, "openai").items()
        (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in given))
        question = "tool 77, wordy please"
        done = await asyncio.to_thread(run, "ask", question, *words, "--trust", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "hello\n"), done
        assert "There are 134 tools, and the model's provider takes 128" in done.stderr
        assert "2nd:wordy, for the model:" in done.stderr
        names = [each["function"]["name"] for each in fake.requests[-1].body["tools"]]
        assert (len(names), names[-1]) == (128, "find_tools")
        assert any("tool_77" in each for each in names)
        with host_process(tmp_path, *words, env=variables(fake, "openai")) as host:
            async with host.page() as page:
                await page.until(_is_ready)
            assert "There are 134 tools" in (await status(host))["hint"]
