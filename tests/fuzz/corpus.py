"""The inputs that are kept: a file for each target, with texts whose characters are bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "corpus"


def read(target: str) -> list[bytes]:
    """Return the inputs of a target."""
    file = FOLDER / f"{target}.json"
    if not file.exists():
        return []
    return [each.encode("latin-1") for each in json.loads(file.read_text("utf-8"))]


def write(target: str, inputs: Iterable[bytes]) -> None:
    """Keep these inputs of a target, and no others."""
    texts = sorted({each.decode("latin-1") for each in inputs}, key=lambda text: (len(text), text))
    text = json.dumps(texts, indent=0, ensure_ascii=True)
    (FOLDER / f"{target}.json").write_text(text + "\n", "utf-8")
