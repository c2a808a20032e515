"""Many customers on one server: dependencies, who sees what, and a state for each session.

::

    export FOUNDATION_RT_HTTP__API_KEYS=ann:a-long-key-of-ann,boss:a-long-key-of-boss
    foundation-rt serve foundation_rt.examples.tenants --http 127.0.0.1:8000

`Depends` opens the folder of the caller for one call, and closes it afterwards. In tests,
``server.dependency_overrides[folder] = lambda: {"a": "b"}`` puts another one in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from foundation_rt import Depends, ErrorCode, Principal, Server, ToolContext, ToolError

server = Server("tenants", version="1.0.0")

folders: dict[str, dict[str, str]] = {}

Folder = dict[str, str]


def folder(ctx: ToolContext) -> Iterator[Folder]:
    """Yield the documents of the caller, by name."""
    yield folders.setdefault(customer(ctx.principal), {})


def customer(principal: Principal | None) -> str:
    """Return the name of the caller; over stdio there is one."""
    return "local" if principal is None else principal.subject


def is_boss(principal: Principal | None) -> bool:
    """Return whether the caller may see everything."""
    return customer(principal) == "key:boss"  # the holder of the key that is called boss


@server.tool
def save(name: str, text: str, documents: Annotated[Folder, Depends(folder)]) -> int:
    """Save a document of the caller; return how many there are."""
    documents[name] = text
    return len(documents)


@server.tool
def load(name: str, ctx: ToolContext, documents: Annotated[Folder, Depends(folder)]) -> str:
    """Return a document of the caller."""
    if name not in documents:
        raise ToolError(ErrorCode.NOT_FOUND, f"You have no document {name!r}.")
    ctx.session_state["last"] = name
    return documents[name]


@server.tool
def last(ctx: ToolContext) -> str:
    """Return the name of the document that was loaded last in this session."""
    return str(ctx.session_state.get("last", "none yet"))


@server.tool(visible=is_boss, tags={"office"})
def customers() -> list[str]:
    """Name all customers; only the boss sees this tool."""
    return sorted(folders)


if __name__ == "__main__":
    server.run_http()
