"""The log of a session through a real process: a thread goes on after the call was answered."""

from __future__ import annotations

import pytest

from tests.lab.servers.process import serve

APP = """
import threading
from foundation_rt import Server, ToolContext

server = Server("jobs")
go = threading.Event()

@server.tool
def start(ctx: ToolContext) -> str:
    log = ctx.session_log

    def work() -> None:
        go.wait()
        for done in range(0, 101, 25):
            log.log("info", {"done": done}, "jobs")

    threading.Thread(target=work, daemon=True).start()
    return "started"

@server.tool
def release() -> None:
    go.set()
"""


@pytest.mark.rule("NOTE-07")
def test_thread_of_a_call_logs_to_its_session_over_stdio() -> None:
    with serve(APP) as server:
        assert server.call("start") == "started"
        server.call("release")

        def logged() -> list[object]:
            return [
                each["params"]["data"]
                for each in server.messages
                if each.get("method") == "notifications/message"
            ]

        server.wait_until(lambda: len(logged()) == 5, "the messages of the job")
        assert logged() == [{"done": done} for done in range(0, 101, 25)]
