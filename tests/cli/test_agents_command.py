"""`foundation-rt agents` as a process, on real ledgers that other processes have open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents import (
    AgentCoordinatorV2,
    AgentMessage,
    ExecutionRetries,
    Outcome,
    RequestFailedError,
)
from foundation_rt.agents.ledger.setup import make_store
from foundation_rt.base.clock import SystemClock
from foundation_rt.base.config.feature_sections import AacpSection
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.cli.main import main
from tests.lab.places.services import need_postgres, unique_name
from tests.lab.programs.terminal import Terminal
from tests.lab.servers.process import run
from tests.lab.waiting import PATIENCE, until

Captured = pytest.CaptureFixture[str]


@contextmanager
def postgres_database() -> Iterator[str]:
    """Yield the URL of a database that is dropped in the end."""
    url = need_postgres()
    import psycopg

    name = unique_name()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield url.rpartition("/")[0] + f"/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", "postgresql"])
def dsn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'office.db'}"
    else:
        with postgres_database() as url:
            yield url


class Clerk:
    """Fails until it is mended, and then says so of each message."""

    def __init__(self) -> None:
        self.is_mended = False

    async def __call__(self, message: AgentMessage, context: Any) -> Any:
        if not self.is_mended:
            raise ValueError("out of paper")
        return "printed"


def coordinator(dsn: str) -> AgentCoordinatorV2:
    logger = StructuredLogger(MemorySink(), SystemClock())
    settings = AacpSection(store=dsn)
    return AgentCoordinatorV2(store=make_store(settings, logger, None), aacp=settings)


async def fail(agents: AgentCoordinatorV2, request_id: str) -> None:
    with pytest.raises(RequestFailedError):
        await agents.send_request("clerk", request_id, request_id=request_id)


async def agents_command(*words: str, code: int = 0) -> tuple[Any, str]:
    """Run the command beside this process; return its JSON and its stderr."""
    done = await asyncio.to_thread(run, "agents", *words, "--json", check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.mark.rule("CLI-59", "AACP-120")
async def test_request_that_waits_for_its_time_is_shown_and_cancelled(tmp_path: Path) -> None:
    dsn = f"sqlite:{tmp_path / 'office.db'}"
    agents = coordinator(dsn)
    agents.register_agent("clerk", Clerk())
    async with agents, asyncio.timeout(PATIENCE):
        retry = ExecutionRetries(attempts=3)
        later = {"delay_ms": 3_600_000, "priority": 5, "retry": retry}
        await agents.submit_request("clerk", 1, request_id="r1", **later)
        listed, _ = await agents_command("list", "--store", dsn, "--state", "DELAYED")
        assert [each["requestId"] for each in listed["requests"]] == ["r1"]
        shown, _ = await agents_command("show", "r1", "--store", dsn)
        assert (shown["state"], shown["priority"]) == ("DELAYED", 5)
        assert shown["notBefore"] > shown["createdAt"]
        assert shown["retry"]["attempts"] == 3
        for words in (["show", "none"], ["list", "--after", "none"]):
            _, said = await agents_command(*words, "--store", dsn, code=1)
            assert "the ledger has no request of this id, or not any more" in said
        many = [f"r{number}" for number in range(1001)]
        _, said = await agents_command("cancel", *many, "--yes", "--store", dsn, code=2)
        assert "at most 1,000 are changed at once" in said
        await agents_command("cancel", "r1", "--yes", "--store", dsn)
        status = await agents.status("r1")
        assert status is not None
        assert status.outcome is Outcome.FAILED


@pytest.mark.rule("CLI-58", "CLI-59", "CLI-60", "AACP-112", "AACP-117")
async def test_operator_works_beside_the_process_that_serves(dsn: str) -> None:
    clerk, store = Clerk(), ("--store", dsn)
    agents = coordinator(dsn)
    agents.register_agent("clerk", clerk)
    async with agents, asyncio.timeout(PATIENCE):
        await fail(agents, "r1")
        await fail(agents, "r2")
        listed, _ = await agents_command("list", *store)
        assert [each["requestId"] for each in listed["requests"]] == ["r1", "r2"]
        assert [(each["agentId"], each["failed"]) for each in listed["agents"]] == [("clerk", 2)]
        page, _ = await agents_command("list", *store, "--limit", "1", "--state", "FAILED")
        assert page["next"] == "r1"
        page, _ = await agents_command("list", *store, "--after", "r1", "--agent", "clerk")
        assert [each["requestId"] for each in page["requests"]] == ["r2"]
        shown, _ = await agents_command("show", "r1", *store)
        assert shown["payload"]["payload"] == "r1"
        assert shown["state"] == "FAILED"

        clerk.is_mended = True
        requeue = ("requeue", "r1", "strange", "--reason", "it has paper", "--yes", *store)
        changed, logged = await agents_command(*requeue, code=1)
        assert [each["verdict"] for each in changed["requests"]] == ["done", "unknown_id"]
        audit = [json.loads(line) for line in logged.splitlines()]
        assert [(each["message"], each["requestId"], each["success"]) for each in audit] == [
            ("audit", "r1", True),
            ("audit", "strange", False),
        ]
        assert audit[0]["metadata"] == {"reason": "it has paper"}
        assert await agents.send_request("clerk", "r1", request_id="r1") == "printed"

        changed, _ = await agents_command("cancel", "r1", "--yes", *store, code=1)
        assert changed["requests"][0]["verdict"] == "finished"
        purged, _ = await agents_command("purge", "--yes", *store)
        assert purged == {"purged": 0}


@pytest.mark.rule("CLI-59", "AACP-114")
async def test_handler_of_a_cancelled_request_is_aborted(tmp_path: Path) -> None:
    dsn = f"sqlite:{tmp_path / 'office.db'}"
    began, aborted = asyncio.Event(), asyncio.Event()

    async def slow(message: AgentMessage, context: Any) -> None:
        context.abort_signal.add_callback(aborted.set)
        began.set()
        await aborted.wait()

    settings = AacpSection(store=dsn, lease_ms=300)
    agents = AgentCoordinatorV2(aacp=settings)
    agents.register_agent("clerk", slow)
    async with agents, asyncio.timeout(PATIENCE):
        sent = asyncio.ensure_future(agents.send_request("clerk", 1, request_id="r1"))
        await began.wait()
        await agents_command("cancel", "r1", "--reason", "it hangs", "--yes", "--store", dsn)
        with pytest.raises(RequestFailedError, match="cancelled"):
            await sent
        await aborted.wait()


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """Return the file of a ledger with one request that FAILED."""
    path = tmp_path / "office.db"

    async def work() -> None:
        agents = coordinator(f"sqlite:{path}")
        agents.register_agent("clerk", Clerk())
        async with agents:
            await fail(agents, "r1")

    asyncio.run(work())
    return path


@pytest.mark.rule("CLI-59")
async def test_nothing_is_changed_that_nobody_agreed_to(office: Path) -> None:
    store = ("--store", f"sqlite:{office}")
    for words in (("requeue", "r1", "--reason", "x"), ("cancel", "r1"), ("purge",)):
        _, error = await agents_command(*words, *store, code=1)
        assert json.loads(error)["code"] == "NOT_CONFIRMED"
    shown, _ = await agents_command("show", "r1", *store)
    assert shown["state"] == "FAILED"


@pytest.mark.rule("CLI-58", "CLI-59")
async def test_person_at_the_terminal_is_asked(office: Path) -> None:
    words = ("agents", "requeue", "r1", "--reason", "x", "--store", f"sqlite:{office}")
    for answer, state in (("n", "FAILED"), ("y", "RECEIVED")):
        with Terminal(*words, cwd=office.parent) as terminal:
            terminal.wait_for("executed again? [y/N]")
            terminal.type(f"{answer}\n")
            assert terminal.exit_code() == (answer == "n")
        shown, _ = await agents_command("show", "r1", "--store", f"sqlite:{office}")
        assert shown["state"] == state


@pytest.mark.rule("CLI-58")
async def test_ledger_of_the_configuration_is_the_default(office: Path) -> None:
    config = office.parent / "office.toml"
    config.write_text(f'[aacp]\nstore = "sqlite:{office}"\n')
    listed, _ = await agents_command("list", "--config", str(config))
    assert [each["requestId"] for each in listed["requests"]] == ["r1"]
    done = await asyncio.to_thread(run, "agents", "list", "--config", str(config), check=False)
    assert "AGENTS" in done.stdout and "out of paper" not in done.stdout
    assert "clerk" in done.stdout and "FAILED" in done.stdout


WRONG = {
    (): "name what to do",
    ("lst",): "did you mean",
    ("show",): "agents show needs ID",
    ("cancel",): "agents cancel needs ID",
    ("requeue", "r1"): "--reason",
    ("requeue", "r1", "--reason", " "): "1 to 500",
    ("list", "--limit", "0"): "--limit is a number",
    ("list", "--state", "BROKEN"): "--state is SENT",
    ("list", "--older-than", "-1"): "--older-than is a number",
    ("list", "--store", "mysql://root:secret@host"): "--store is sqlite:PATH",
}


@pytest.mark.rule("CLI-58", "CLI-06")
@pytest.mark.parametrize("words", WRONG)
def test_wrong_command_line_is_refused(words: tuple[str, ...], capsys: Captured) -> None:
    assert main(["agents", *words]) == 2
    error = capsys.readouterr().err
    assert WRONG[words] in error
    assert "secret" not in error


@pytest.mark.rule("CLI-58")
def test_ledger_that_is_not_there_is_not_made(tmp_path: Path, capsys: Captured) -> None:
    missing = tmp_path / "mistyped.db"
    assert main(["agents", "list", "--store", f"sqlite:{missing}"]) == 1
    assert "there is no ledger" in capsys.readouterr().err
    assert not missing.exists()
    assert main(["agents", "list"]) == 1
    assert "in its process only" in capsys.readouterr().err
    assert main(["agents", "list", "--store", "postgresql://127.0.0.1:1/x", "--json"]) == 3
    assert json.loads(capsys.readouterr().err)["code"] == "LEDGER"


@pytest.mark.rule("AACP-117", "AACP-147", "CLI-77", "CLI-78")
async def test_operator_lists_and_removes_schedules(dsn: str) -> None:
    agents, store = coordinator(dsn), ("--store", dsn)
    agents.every("0 6 * * *", "clerk", {"a": 1}, timezone="Europe/Berlin", name="daily")
    agents.every("30 6 1 * *", "clerk", 2, ttl_ms=5000, missed="all", name="monthly")
    async with agents, asyncio.timeout(PATIENCE):
        await until(agents.list_schedules, "both are entered", lambda found: len(found) == 2)
        listed, _ = await agents_command("schedules", *store)
        daily, monthly = listed["schedules"]
        assert (daily["name"], daily["expression"]) == ("daily", "0 6 * * *")
        assert (daily["timezone"], daily["targetAgentId"]) == ("Europe/Berlin", "clerk")
        assert daily["payload"] == {"payload": {"a": 1}, "type": "message"}
        assert daily["nextRunAt"][11:] in ("04:00:00.000Z", "05:00:00.000Z")
        assert daily["lastRunAt"] is None
        assert (monthly["missed"], monthly["ttlMs"]) == ("all", 5000)
        page, _ = await agents_command("schedules", *store, "--limit", "1")
        assert page["next"] == "daily"
        page, _ = await agents_command("schedules", *store, "--after", "daily")
        assert [each["name"] for each in page["schedules"]] == ["monthly"]

        await agents_command("unschedule", "daily", *store, code=1)  # nobody agrees
        removal = ("unschedule", "daily", "strange", "--reason", "nobody reads it", "--yes", *store)
        removed, logged = await agents_command(*removal, code=1)
        assert [each["removed"] for each in removed["schedules"]] == [True, False]
        audit = [json.loads(line) for line in logged.splitlines()]
        assert [(each["eventType"], each["success"]) for each in audit] == [
            ("AGENT_SCHEDULE_REMOVED", True),
            ("AGENT_SCHEDULE_REMOVED", False),
        ]
        assert audit[0]["metadata"] == {"schedule": "daily", "reason": "nobody reads it"}
        assert [each.name for each in await agents.list_schedules()] == ["monthly"]
