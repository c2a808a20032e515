"""The servers of a gateway: of a file, of the usual places, or one alone (GATE-06 to GATE-08).

A gateway marks the environment of its children. One that was started by itself, directly or
through others, would start itself for ever, so it lists nothing and says why.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from ..coordinator import (
    ServerPlan,
    chain_mark,
    file_identity,
    mark_children,
    plans_of,
    plans_of_file,
)
from ..errors import UsageError
from ..mcp_json import ServerEntry, ServerFileError

log = logging.getLogger("foundation_rt.gateway")
log.addHandler(logging.NullHandler())

SELF = "this gateway itself"

_PROGRAMS = ("foundation-rt", "foundation_rt")


class NoServersError(UsageError):
    """There is no file of servers; the message says where it was looked for."""


@frozen(eq=False)
class Source:
    """The origin of the servers.

    Attributes:
        read: returns the plans of the servers, at the start and for each reload.
        files: those that are watched for changes.
        identity: the same for gateways that serve the same servers.
        is_bridge: it is one server, whose names are kept.
    """

    read: Callable[[], dict[str, ServerPlan]]
    files: tuple[Path, ...]
    identity: str
    is_bridge: bool = False

    @property
    def mark(self) -> str:
        """The mark of this gateway in the environment of its children (COORD-70)."""
        return chain_mark(self.identity)


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
    return Source(partial(_merged, found), found, f"places {identity}")


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
    """Return the headers of clients that servers get, in lower case (COORD-54)."""
    sources = (plan.settings.headers_from.values() for plan in plans.values())
    return frozenset(name.lower() for names in sources for name in names)


def _merged(files: Iterable[Path]) -> dict[str, ServerPlan]:
    """Return the plans of all files; one that cannot be used is reported and passed over."""
    plans: dict[str, ServerPlan] = {}
    for file in files:
        try:
            read = plans_of_file(file)
        except ServerFileError as error:
            log.error("passed over: %s", error)
            continue
        plans = {**read, **plans} if not plans else {**plans, **_new(read, plans)}
    return plans


def _new(read: dict[str, ServerPlan], known: dict[str, ServerPlan]) -> dict[str, ServerPlan]:
    return {server: plan for server, plan in read.items() if server not in known}


def _without_self(plan: ServerPlan, source: Source) -> ServerPlan:
    target = plan.target
    if not isinstance(target, ServerEntry) or target.command is None:
        return plan
    is_self = _is_gateway(target.command, target.args, source)
    return evolve(plan, target=None, problem=SELF) if is_self else plan


def _is_gateway(command: str, args: Sequence[str], source: Source) -> bool:
    """Return whether a command line starts a gateway of the same file."""
    words = [Path(command).name, *args]
    if Path(command).name.startswith("python") or command == sys.executable:
        words = [*args[1:]] if args[:1] == ("-m",) else []
    if len(words) < 2 or words[0] not in _PROGRAMS or words[1] != "gateway":
        return False
    named = [word for word in words[2:] if word.endswith(".json")]
    same = {os.path.realpath(file) for file in source.files}
    return not named or any(os.path.realpath(word) in same for word in named)
