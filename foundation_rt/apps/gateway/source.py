"""The servers of a gateway: of a file, of the usual places, or one alone (GATE-06 to GATE-08).

A gateway marks the environment of its children. One that was started by itself, directly or
through others, would start itself for ever, so it lists nothing and says why.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from attrs import evolve

from ...base.mcp_json import (
    Agreement,
    ServerEntry,
    ServerFile,
    ServerFileError,
    WaitingEntry,
    is_of_folder,
)
from ...errors import UsageError
from ..coordinator import (
    ServerPlan,
    file_identity,
    mark_children,
    plans_of,
    plans_of_file,
)
from ..coordinator.servers import Source

log = logging.getLogger("foundation_rt.gateway")
log.addHandler(logging.NullHandler())

SELF = "this gateway itself"

_PROGRAMS = ("foundation-rt", "foundation_rt")


class NoServersError(UsageError):
    """There is no file of servers; the message says where it was looked for."""


def file_source(path: Path) -> Source:
    """Return the servers of a file; it is read when the gateway starts."""
    place = path.absolute()
    return Source(partial(plans_of_file, place), (place,), file_identity(place))


def places_source(places: Sequence[Path]) -> Source:
    """Return the servers of all files among these places; of equal ids the first counts.

    Raises:
        NoServersError: there is no file at any of them.
    """
    found = tuple(place.absolute() for place in places if place.is_file())
    if not found:
        looked = "".join(f"\n  {place}" for place in places)
        raise NoServersError(
            f"there is no file of servers; looked for:{looked}\n"
            'write ./mcp.json, such as {"mcpServers": {"time": {"command": "uvx", "args":'
            ' ["mcp-server-time"]}}}, or try: foundation-rt gateway --demo'
        )
    identity = "\n".join(os.path.realpath(place) for place in found)
    waiting = partial(_waiting, found)
    return Source(partial(_merged, found), found, f"places {identity}", waiting=waiting)


def single_source(server: str | None, target: Any) -> Source:
    """Return one server, whose names are kept if it has no id of its own.

    Args:
        server: its id; None for a bridge.
        target: as `connect` takes it.
    """
    listed = {server or "server": target}
    return Source(partial(plans_of, listed), (), f"target {target!r}", is_bridge=server is None)


def marked_plans(source: Source, environment: Mapping[str, str]) -> dict[str, ServerPlan]:
    """Return the plans of a source with the mark in the environment of every child (GATE-07).

    An entry whose command is this gateway has a problem instead.

    Args:
        source: of the gateway.
        environment: of this process.
    """
    plans = {server: _without_self(plan, source) for server, plan in source.read().items()}
    return mark_children(plans, source.mark, environment)


def client_headers(plans: Mapping[str, ServerPlan]) -> frozenset[str]:
    """Return the headers of clients that servers or tools get, in lower case (COORD-54)."""
    named = {
        name.lower() for plan in plans.values() for name in plan.settings.headers_from.values()
    }
    shaping = [plan.settings.tools for plan in plans.values()]
    return frozenset(named).union(*(each.headers for each in shaping if each is not None))


def _merged(files: Iterable[Path]) -> dict[str, ServerPlan]:
    """Return the plans of all files; one that cannot be used is reported and passed over."""
    plans: dict[str, ServerPlan] = {}
    for file in files:
        try:
            read = plans_of_file(file, Agreement() if is_of_folder(file) else None)
        except ServerFileError as error:
            log.error("passed over: %s", error)
            continue
        for server, plan in read.items():
            plans.setdefault(server, plan)
    return plans


def _waiting(files: Iterable[Path]) -> list[WaitingEntry]:
    """Return the entries of the folder's files that wait; not of one that cannot be used."""
    waiting: list[WaitingEntry] = []
    seen = set[str]()
    for file in filter(is_of_folder, files):  # they come before those of the home
        with suppress(ServerFileError):
            read = ServerFile.read(file)
            names = [each for each in read.entries if each not in seen]
            waiting += Agreement().waiting(read, names)
            seen.update(names)
    return waiting


def _without_self(plan: ServerPlan, source: Source) -> ServerPlan:
    target = plan.target
    if not isinstance(target, ServerEntry) or target.command is None:
        return plan
    is_self = _is_gateway(target.command, target.args, source)
    return evolve(plan, target=None, problem=SELF) if is_self else plan


def _is_gateway(command: str, args: Sequence[str], source: Source) -> bool:
    """Return whether a command line starts a gateway of the same file."""
    words = [Path(command).stem, *args]  # on Windows it is foundation-rt.exe
    if Path(command).name.startswith("python") or command == sys.executable:
        options = [*takewhile(lambda word: word.startswith("-"), args)]
        words = [*args[len(options) :]] if options[-1:] == ["-m"] else []
    if len(words) < 2 or words[0] not in _PROGRAMS or words[1] != "gateway":
        return False
    named = [word for word in words[2:] if word.endswith(".json")]
    same = {os.path.realpath(file) for file in source.files}
    return not named or any(os.path.realpath(word) in same for word in named)
