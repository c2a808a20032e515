"""Clients that log in: tokens of an authorization server, scopes, and the principal.

::

    export FOUNDATION_RT_OAUTH__ISSUER=https://login.example.com
    export FOUNDATION_RT_OAUTH__AUDIENCE=https://tools.example.com/mcp
    foundation-rt serve foundation_rt.examples.login --http 127.0.0.1:8000

The server checks the tokens (spec/auth.md) and tells clients where to get one. A tool sees who
calls; one with `scopes` is refused to everyone whose token lacks them.
"""

from __future__ import annotations

from foundation_rt import ErrorCode, Server, ToolContext, ToolError

server = Server("vault", version="1.0.0")

secrets: dict[str, dict[str, str]] = {}


def owner(context: ToolContext) -> str:
    """Return the identity of the caller; refuse a caller without one."""
    if context.principal is None:
        raise ToolError(ErrorCode.UNAUTHORIZED, "Log in first.")
    return context.principal.identity


@server.tool
def who_am_i(context: ToolContext) -> dict[str, object]:
    """Return what the server knows about the caller."""
    principal = context.principal
    if principal is None:
        return {"subject": None, "scopes": []}
    return {"subject": principal.subject, "scopes": sorted(principal.scopes)}


@server.tool(scopes=["vault:read"])
def read_secret(name: str, context: ToolContext) -> str:
    """Read a secret of the caller's own."""
    found = secrets.get(owner(context), {}).get(name)
    if found is None:
        raise ToolError(ErrorCode.NOT_FOUND, f"You have no secret {name!r}.")
    return found


@server.tool(scopes=["vault:read", "vault:write"])
def keep_secret(name: str, value: str, context: ToolContext) -> str:
    """Keep a secret for the caller; other callers never see it."""
    secrets.setdefault(owner(context), {})[name] = value
    server.audit("SECRET_KEPT", "DATA", context=context, metadata={"name": name})
    return "kept"


if __name__ == "__main__":
    server.run_http()
