"""A server that people log in to, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.servers.http_server import free_port
from tests.lab.servers.process import ServerProcess, command, environment

from .client import LoginClient
from .identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProviderFake

STATE_KEY = "5e" * 32
APP = """
from foundation_rt import Server, ToolContext

server = Server("guarded")


@server.tool
def who(ctx: ToolContext) -> dict:
    return {"subject": ctx.principal.subject, **ctx.principal.claims}


@server.tool
async def upstream(ctx: ToolContext) -> str:
    return str(await ctx.provider_token())


@server.tool(scopes=("write",))
def change() -> str:
    return "changed"
"""


def settings(at: IdentityProviderFake, port: int, /, **changes: Any) -> dict[str, Any]:
    found = {
        "authorization.url": f"http://127.0.0.1:{port}",
        "authorization.provider": "oidc",
        "authorization.provider_url": at.url,
        "authorization.client_id": CLIENT_ID,
        "authorization.client_secret": CLIENT_SECRET,
        "authorization.allow": "@x.org",
        "security.state_key": STATE_KEY,
        "audit.enabled": "true",
        "logging.level": "debug",
        **{f"authorization.{name}": value for name, value in changes.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


@contextmanager
def serving(
    folder: Path, at: IdentityProviderFake, /, *words: str, port: int = 0, **changes: Any
) -> Iterator[tuple[LoginClient, ServerProcess]]:
    """Serve at a port, by default a free one, and yield a client."""
    app, port = folder / "app.py", port or free_port()
    app.write_text(APP)
    given = settings(at, port, **changes)
    line = command("serve", str(app), "--http", f"127.0.0.1:{port}", *words)
    with ServerProcess(line, environment(given)) as process:
        process.record(message="serving over HTTP")
        yield LoginClient(f"http://127.0.0.1:{port}"), process
