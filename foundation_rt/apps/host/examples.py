"""The files that `foundation-rt host --init` writes (HOST-15)."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ... import UsageError

SERVERS = """\
{
  "mcpServers": {
    "files": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "."],
      "alwaysAllow": ["read_*", "list_*"]
    },
    "everything": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-everything"],
      "disabled": true
    },
    "remote": {
      "url": "https://example.com/mcp",
      "headers": { "Authorization": "Bearer ${REMOTE_TOKEN:-none}" },
      "disabled": true
    }
  }
}
"""

ENVIRONMENT = """\
# Copy this file to .env, which is read below the environment. Changed keys are read again.
# One key is enough. Without any, tools are called as commands.
GEMINI_API_KEY=
ANTHROPIC_API_KEY=
OPENAI_API_KEY=

# gemini, anthropic, openai or rules; by default that of the first key.
#LLM_PROVIDER=gemini
#LLM_MODEL=gemini-flash-latest
# A server that speaks the provider's protocol, such as a local one for openai.
#LLM_BASE_URL=http://127.0.0.1:11434/v1
# text, for models without function calls.
#LLM_TOOL_MODE=native

MCP_JSON_PATH=./mcp.json
LOG_LEVEL=info
PORT=3000
MAX_TOKEN_COUNT=32768
DEFAULT_TOOL_TIMEOUT_MS=60000
"""

_COMPOSE = """\
# The host with its chats in PostgreSQL, and an example server over HTTP. Needs Compose 2.23.1.
# The host reads .env in this folder (see .env.example). Start it with: docker compose up
# The URL of the page stands in the log: docker compose logs host
services:
  host:
    image: python:3.13-slim
    working_dir: /chat
    command: >
      sh -c "pip install -q '{source}[host,host-gemini,host-openai,host-anthropic,postgres]'
      && exec foundation-rt host --http 0.0.0.0:3000"
    environment:
      FOUNDATION_RT_HOST__STORE: postgresql://chat:chat@database/chat
      MCP_JSON_PATH: /servers.json
      XDG_DATA_HOME: /data
    configs: [{ source: servers, target: /servers.json }]
    volumes:
      - ./:/chat:ro
      - data:/data{volume}
    ports: ["127.0.0.1:3000:3000"]
    depends_on:
      database: { condition: service_healthy }
  everything:
    image: node:22-slim
    command: npx -y @modelcontextprotocol/server-everything streamableHttp
    environment: { PORT: "3001" }
  database:
    image: postgres:17
    environment: { POSTGRES_USER: chat, POSTGRES_PASSWORD: chat, POSTGRES_DB: chat }
    healthcheck: { test: ["CMD", "pg_isready", "-U", "chat"], interval: 2s }
    volumes: [chats:/var/lib/postgresql/data]
configs:
  servers:
    # The servers of this host; mcp.json is for a host outside of containers.
    content: |
      { "mcpServers": { "everything": { "url": "http://everything:3001/mcp" } } }
volumes: { chats: {}, data: {} }
"""


def _compose() -> str:
    """Return the compose file, whose container installs what this process runs.

    That is the checkout or the wheel that it was installed from, or what a package index has.
    """
    try:
        recorded = distribution("foundation-rt").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    url = urlsplit(json.loads(recorded)["url"] if recorded else "")
    if url.scheme != "file":
        return _COMPOSE.replace("{source}", "foundation-rt").replace("{volume}", "")
    path = Path(url2pathname(url.path))
    source = "/source" if path.is_dir() else f"/source/{path.name}"
    shown = json.dumps(str(path)).replace("$", "$$")  # Compose would replace a variable
    volume = f"\n      - {{ type: bind, source: {shown}, target: {source}, read_only: true }}"
    return _COMPOSE.replace("{source}", source).replace("{volume}", volume)


def write_examples(folder: Path) -> str:
    """Write the files that are not there; return what was done, a line for each.

    Raises:
        UsageError: a file cannot be written.
    """
    lines = []
    files = {"mcp.json": SERVERS, ".env.example": ENVIRONMENT, "compose.yaml": _compose()}
    for name, text in files.items():
        try:
            with (folder / name).open("x") as file:
                file.write(text)
        except FileExistsError:
            lines.append(f"{name} is there already, and is kept")
        except OSError as error:
            raise UsageError(f"{name} cannot be written: {error.strerror}") from None
        else:
            lines.append(f"{name} was written")
    return "\n".join([*lines, "Next: copy .env.example to .env, and run foundation-rt host", ""])
