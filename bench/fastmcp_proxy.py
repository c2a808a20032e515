"""The proxy of PyPI's `fastmcp`, over HTTP: it runs where that is installed, not here.

python -m bench.fastmcp_proxy PORT (URL | COMMAND ARGUMENT ...)
"""

from __future__ import annotations

import os
import sys
from typing import Any


def entry(where: list[str]) -> dict[str, Any]:
    """Return the entry of a server in a file of servers."""
    if where[0].startswith("http"):
        return {"url": where[0], "transport": "http"}
    command, *args = where
    return {"command": command, "args": args, "env": dict(os.environ), "transport": "stdio"}


def main(port: int, where: list[str]) -> None:
    """Serve until the process ends."""
    from fastmcp.server import create_proxy

    proxy = create_proxy({"mcpServers": {"bench": entry(where)}}, name="bench")
    proxy.run(transport="http", host="127.0.0.1", port=port, log_level="error", show_banner=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
