"""Asking the person before a folder's servers run (CLI-84)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..base.mcp_json import agree
from ..client.safe_text import printable_line
from ..errors import UsageError
from .person import confirm

if TYPE_CHECKING:
    from ..base.mcp_json import WaitingEntry

TRUST = "--trust"

_MAX_SHOWN = 4096
"""Characters of a question: of a longer one, the beginning has left the screen."""


def settle(waiting: Sequence[WaitingEntry], command: str, *, trusts: bool) -> None:
    """Let the person agree to these entries, and record it.

    Args:
        waiting: the entries; without any, nothing is asked.
        command: that agrees without a question, if `--trust` is added.
        trusts: `--trust` was given.

    Raises:
        UsageError: the person has not agreed, or nobody is there who could, or it is too much to
            be read in a question.
    """
    if not waiting:
        return
    question = "" if trusts else _shown(waiting)
    if len(question) > _MAX_SHOWN:
        files = ", ".join(sorted({str(each.path) for each in waiting}))
        raise UsageError(
            f"nothing was started: what {printable_line(files)} would run is too long to be asked"
            f" about; look at the file, then run: foundation-rt {command} {TRUST}"
        )
    if not trusts and not confirm(f"{question}Run them here from now on? [y/N] "):
        names = ", ".join(f"{each.name!r} of {each.path}" for each in waiting)
        raise UsageError(
            f"nothing was started: you have not agreed to {printable_line(names)}; look at the"
            f" file, then run it at a terminal, which asks, or: foundation-rt {command} {TRUST}"
        )
    agree(waiting)


def _shown(waiting: Sequence[WaitingEntry]) -> str:
    """Return what the person is asked to agree to: each entry whole, then what runs, at the end."""
    lines = ["This folder lists servers that you have not agreed to run:"]
    for entry in waiting:
        lines += ["", f"  {json.dumps(entry.name, ensure_ascii=False)} of {entry.path}"]
        lines += (f"    {name}  {value}" for name, value in _rows(entry))
    lines += ["", "Of these runs, or is reached:"]
    lines += (f"  {json.dumps(each.name, ensure_ascii=False)}: {each.target}" for each in waiting)
    return "\n".join(map(printable_line, lines)) + "\n\n"


def _rows(entry: WaitingEntry) -> Iterator[tuple[str, str]]:
    for name, value in entry.members.items():
        yield name, json.dumps(value, ensure_ascii=False)
    if entry.from_person:
        yield "takes from your environment", ", ".join(entry.from_person)
    for name, value in entry.from_folder.items():
        shown = "..." if name in entry.hidden else json.dumps(value, ensure_ascii=False)
        yield "takes from .env", f"{name}={shown}"
