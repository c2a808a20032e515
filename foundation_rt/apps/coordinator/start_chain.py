"""The chain of programs that have started one another as servers (COORD-70).

A program that starts the servers of a file marks the environment of its children. If it finds its
own mark there, it was started by itself, directly or through others, and would do so for ever.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from attrs import evolve

from ...base.mcp_json import ServerEntry
from .servers import ServerPlan

CHAIN_VARIABLE = "FOUNDATION_RT_GATEWAYS"
"""The marks of the programs that started this process, separated by commas."""


def chain_mark(identity: str) -> str:
    """Return the mark of a program.

    Args:
        identity: the same for programs that start the same servers.
    """
    return sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def file_identity(path: Path) -> str:
    """Return the identity of the programs that start the servers of a file."""
    return f"file {os.path.realpath(path)}"


def is_own_child(mark: str, environment: Mapping[str, str]) -> bool:
    """Return whether the program of a mark has started this process, directly or through others."""
    return mark in _marks(environment)


def mark_children(
    plans: Mapping[str, ServerPlan], mark: str, environment: Mapping[str, str]
) -> dict[str, ServerPlan]:
    """Return plans whose children get the chain, with a mark more, in their environment.

    Args:
        plans: by the id of the server.
        mark: of this program.
        environment: of this process.
    """
    chain = ",".join([*_marks(environment), mark])
    return {server: _marked(plan, chain) for server, plan in plans.items()}


def _marks(environment: Mapping[str, str]) -> list[str]:
    return [each for each in environment.get(CHAIN_VARIABLE, "").split(",") if each]


def _marked(plan: ServerPlan, chain: str) -> ServerPlan:
    target = plan.target
    if not isinstance(target, ServerEntry) or target.command is None:
        return plan
    return evolve(plan, target=evolve(target, env={**target.env, CHAIN_VARIABLE: chain}))
