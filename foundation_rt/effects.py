"""What the dispatcher decides and somebody else performs.

A decision is a list of these values, to be performed in order:

* `Reply`: write a line;
* `invocation.Invocation`: start its handler and report how it ended;
* `Abort`: fire the abort signal of a running handler;
* `Emit`: write a log record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define

if TYPE_CHECKING:
    from .invocation import Invocation

    Effect: TypeAlias = "Reply | Invocation | Abort | Emit"


@define
class Reply:
    """Write `line`, a whole message without its newline, to the peer."""

    line: bytes


@define
class Abort:
    """Fire the abort signal of `invocation` with `reason`; its handler may still be running."""

    invocation: Invocation
    reason: str


@define
class Emit:
    """Write a log record."""

    level: str
    message: str
    fields: dict[str, Any]
