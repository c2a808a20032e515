"""A server of skills in plain Python, over stdio: it says of them what a file says, true or not.

The file, a JSON object, is read for every message. Of `skills`, its entries, `skills/get` returns
the one of the URI. Of `texts`, by URI, one that is a number is so many characters. A method in
`hang` is never answered. It shares no code with the runtime.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

EXTENSION = "io.modelcontextprotocol/skills"


def entry_of(uri: str, texts: dict[str, str], **front_matter: Any) -> dict[str, Any]:
    """Return a true entry of a skill.

    Args:
        uri: of its `SKILL.md`.
        texts: of its files, by URI.
        front_matter: of it.
    """
    files = [
        {
            "uri": name,
            "digest": f"sha256:{sha256(text.encode()).hexdigest()}",
            "size": len(text.encode()),
        }
        for name, text in texts.items()
    ]
    return {"uri": uri, "frontmatter": front_matter, "resources": files}


def write_state(path: Path, **state: Any) -> None:
    """Write the file of a server, as a whole."""
    made = path.with_suffix(".new")
    made.write_text(json.dumps(state))
    made.replace(path)


def answer(state: dict[str, Any], message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response to a message; None for none."""
    method, params = message["method"], message.get("params") or {}
    if "id" not in message or method in state.get("hang", ()):
        return None
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    match method:
        case "initialize":
            response["result"] = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"resources": {}, "extensions": {EXTENSION: {}}},
                "serverInfo": {"name": "skills", "version": "1"},
            }
        case "skills/list":
            response["result"] = {"skills": state["skills"]}
        case "skills/get":
            found = [each for each in state["skills"] if each.get("uri") == params["uri"]]
            response["result"] = {"skill": found[0] if found else None}
        case "resources/read":
            text = state["texts"].get(params["uri"], "")
            text = text if isinstance(text, str) else "x" * text
            response["result"] = {"contents": [{"uri": params["uri"], "text": text}]}
        case _:
            response["error"] = {"code": -32601, "message": "Method not found"}
    return response


if __name__ == "__main__":
    for line in sys.stdin:
        said = answer(json.loads(Path(sys.argv[1]).read_text()), json.loads(line))
        if said is not None:
            sys.stdout.write(f"{json.dumps(said)}\n")
            sys.stdout.flush()
