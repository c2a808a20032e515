"""The files that `foundation-rt host --init` writes (HOST-15)."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ... import UsageError

_INITIAL = files(__package__).joinpath("initial")


def _compose() -> str:
    """Return the compose file, whose container installs what this process runs.

    That is the checkout or the wheel that it was installed from, or what a package index has.
    """
    try:
        recorded = distribution("foundation-rt").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    url = urlsplit(json.loads(recorded)["url"] if recorded else "")
    text = _INITIAL.joinpath("compose.yaml").read_text("utf-8")
    if url.scheme != "file":
        return text.replace("{source}", "foundation-rt").replace("{volume}", "")
    path = Path(url2pathname(url.path))
    source = "/source" if path.is_dir() else f"/source/{path.name}"
    shown = json.dumps(str(path)).replace("$", "$$")  # Compose would replace a variable
    volume = f"\n      - {{ type: bind, source: {shown}, target: {source}, read_only: true }}"
    return text.replace("{source}", source).replace("{volume}", volume)


def write_examples(folder: Path) -> str:
    """Write the files that are not there; return what was done, a line for each.

    Raises:
        UsageError: a file cannot be written.
    """
    lines = []
    texts = {
        "mcp.json": _INITIAL.joinpath("mcp.json").read_text("utf-8"),
        ".env.example": _INITIAL.joinpath("env.example").read_text("utf-8"),
        "compose.yaml": _compose(),
    }
    for name, text in texts.items():
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
