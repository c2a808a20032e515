"""What a client does with the server in `app.py`, and what it should have seen at the end.

Every client makes the same tour, in the mode and over the transport it is told, and reports what it
saw in the same form, so that one comparison says whether it works with the server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

APP = Path(__file__).parent / "app.py"

TOOLS = [
    "add",
    "ask_elsewhere",
    "ask_model",
    "ask_roots",
    "ask_user",
    "clean_up",
    "count",
    "drop",
    "ended_with",
    "enough",
    "gallery",
    "health",
    "learn",
    "picture",
    "touch",
    "wait",
    "waiting",
]


def expected(*, modern: bool, over_http: bool) -> dict[str, Any]:
    """Return the report of a client that found everything as it should be.

    Args:
        modern: it spoke revision 2026-07-28, else 2025-11-25.
        over_http: it could lose a stream and come back, which only 2025-11-25 has.
    """
    report = {
        "revision": "2026-07-28" if modern else "2025-11-25",
        "server": "interop 1.0.0",
        "instructions": "Be kind.",
        "tools": TOOLS,
        "add": {"total": 5},
        "refused": True,
        "picture": ["text", "image"],
        "resources": ["note://photo", "note://today"],
        "templates": ["note://by-name/{name}"],
        "read": "water the plants",
        "read_template": '{"name":"rent"}',
        "prompts": ["greet"],
        "prompt": "Greet Ada.",
        "completion": ["Ada", "Alan"],
        "user": "accept: Ada",
        "model": "I am a model",
        "roots": "file:///home/ada",
        "progress": [1, 2, 3],
        "logged": ["counted 1", "counted 2", "counted 3"],
        "updated": ["note://today"],
        "list_changed": True,
        "aborted": "disconnected" if modern and over_http else "cancelled",
    }
    if over_http and not modern:
        report["reconnected"] = "found again"
    return report
