"""The end of a gateway with calls under way: they may end, and no process of a server stays."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from foundation_rt.client import connect
from tests.apps.gateway.test_faults import entry, write
from tests.apps.gateway.test_through import OLD, speaking
from tests.lab.programs.processes import living
from tests.lab.servers.http_server import serve_gateway
from tests.lab.waiting import until


async def listens_no_more(url: str) -> None:
    """Wait until nothing listens at a URL."""
    parts = urlsplit(url)

    async def is_refused() -> bool:
        try:
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
        except ConnectionError:  # one that nobody has accepted by then is reset
            return True
        writer.close()
        return False

    await until(is_refused, "nothing listens")


@pytest.mark.rule("PROC-14", "CHILD-12")
async def test_calls_may_end_after_sigterm_and_no_process_stays(tmp_path: Path) -> None:
    released, noted = tmp_path / "released", tmp_path / "noted"
    file = write(tmp_path / "mcp.json", one=entry("one"), two=entry("two"))
    env = {"FOUNDATION_RT_SERVER__SHUTDOWN_TIMEOUT_MS": "2500", **speaking(OLD)}
    with serve_gateway(file, env=env) as gateway:
        async with connect(gateway.url, revision=OLD) as client:
            began = [asyncio.Event(), asyncio.Event()]

            def call(tool: str, path: Path, event: asyncio.Event) -> asyncio.Future[Any]:
                arguments = {"path": str(path)}
                return asyncio.ensure_future(
                    client.call(tool, arguments, on_progress=lambda *_: event.set())
                )

            groups = [(await client.call(f"{server}__pid")).value() for server in ("one", "two")]
            ending = call("one__hold", released, began[0])
            endless = call("two__wait", noted, began[1])
            await asyncio.gather(*(each.wait() for each in began))
            gateway.process.signal(signal.SIGTERM)
            await listens_no_more(gateway.url)
            released.touch()
            assert (await ending).value() == "released"
            assert await asyncio.to_thread(gateway.process.wait) == 128 + signal.SIGTERM
            endless.cancel()
            await asyncio.wait([endless])
        # Where its time was up, its servers end because it is gone.
        await until(
            lambda: [living(int(str(group))) for group in groups],
            "no process stays",
            lambda found: not any(found),
        )
