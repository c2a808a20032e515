"""The contestants as two tables: the servers of one tool over stdio, and those over HTTP."""

from __future__ import annotations

import re
from importlib.metadata import metadata

from attrs import frozen

RUNTIME = "foundation-rt"
PYTHON, NODE = "python", "node"


@frozen
class Contestant:
    """A server of the tool `echo`.

    Attributes:
        name: in the tables.
        server: its program, in the folder `servers`.
        requirements: what is installed for it, from PyPI or npm; that of the runtime is installed
            from this checkout. The first one is the package that is measured.
        language: `python` or `node`.
        is_floor: it does the least that can be done, and checks nothing.
    """

    name: str
    server: str
    requirements: tuple[str, ...] = ()
    language: str = PYTHON
    is_floor: bool = False

    @property
    def folder(self) -> str:
        """The name of its environment: the same for the same requirements."""
        return re.sub(r"[^\w.-]+", "-", "+".join((self.language, *self.requirements)))


# What uvicorn takes if it is there: the floor and the runtime have it, so the peers get it too.
_FAST_UVICORN = ("httptools", "uvloop")

STDIO = (
    Contestant("bare loop", "echo_floor.py", is_floor=True),
    Contestant(RUNTIME, "echo_runtime.py", (RUNTIME,)),
    Contestant("mcp", "echo_mcp.py", ("mcp",)),
    Contestant("fastmcp", "echo_fastmcp.py", ("fastmcp",)),
    Contestant("anodize-mcp", "echo_anodize.py", ("anodize-mcp",)),
    Contestant("@modelcontextprotocol/sdk", "echo_sdk.mjs", ("@modelcontextprotocol/sdk",), NODE),
    Contestant(
        "@modelcontextprotocol/server", "echo_server.mjs", ("@modelcontextprotocol/server",), NODE
    ),
)

HTTP = (
    Contestant("bare ASGI", "echo_asgi.py", ("uvicorn", *_FAST_UVICORN), is_floor=True),
    Contestant(RUNTIME, "echo_runtime.py", (f"{RUNTIME}[http]",)),
    Contestant("mcp", "echo_mcp.py", ("mcp", *_FAST_UVICORN)),
    Contestant("fastmcp", "echo_fastmcp.py", ("fastmcp", *_FAST_UVICORN)),
    Contestant("anodize-mcp", "echo_anodize.py", ("anodize-mcp", *_FAST_UVICORN)),
    Contestant("@modelcontextprotocol/sdk", "echo_sdk.mjs", ("@modelcontextprotocol/sdk",), NODE),
    Contestant(
        "@modelcontextprotocol/server",
        "echo_server.mjs",
        ("@modelcontextprotocol/server", "@modelcontextprotocol/node"),
        NODE,
    ),
)


def with_each_extra() -> tuple[Contestant, ...]:
    """Return the runtime with each of its extras alone, which are installed and not measured."""
    extras = metadata(RUNTIME).get_all("Provides-Extra") or ()
    names = (f"{RUNTIME}[{extra}]" for extra in sorted(extras))
    return tuple(Contestant(name, "echo_runtime.py", (name,)) for name in names)
