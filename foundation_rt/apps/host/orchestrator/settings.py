"""The settings of turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen
from attrs.validators import ge, optional

from ....base.app_format import APPS

if TYPE_CHECKING:
    from ....client import ConnectOptions

_GRACE = 30.0
"""Seconds by which a connection waits longer for people than an approval is open."""


def _paths(given: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(given)


@frozen(kw_only=True)
class HistoryManagementOptions:
    """The part of a history that is sent to a model (TURN-50 to TURN-58).

    Attributes:
        max_token_count: of a request: system prompt, tools and messages, as far as it can be
            estimated.
        summarization_threshold: tokens of a history from which on its older part is summarised by
            the model; None: never.
        retain_newest_messages: the newest messages that no summary replaces.
    """

    max_token_count: int = field(default=32_768, validator=ge(256))
    summarization_threshold: int | None = field(default=None, validator=optional(ge(1)))
    retain_newest_messages: int = field(default=10, validator=ge(1))


@frozen(kw_only=True)
class OrchestratorSettings:
    """The settings of turns.

    Attributes:
        max_rounds: the most answers of a turn whose calls run.
        max_calls: the most calls of one answer that run.
        max_repeats: the number of equal calls with one result that takes the tools away.
        turn_timeout_ms: for a turn; waiting for people does not count.
        approval_timeout_ms: for which an approval, or a question to people, stays open.
        retry_attempts: the most retries of a request to the model that failed.
        retry_delay_ms: before the first retry; doubled with each.
        max_result_tokens: the most of one result that the model reads.
        max_event_bytes: the most of one result, as JSON, that an event has; the history has all.
        max_samplings: the most requests of servers to the model, in a turn.
        approve_all: whether calls run without an approval.
        roots: places that servers are told of.
        system_prompt: the base prompt of the model, which counts among the tokens of a request.
        history: what of a history is sent to the model.
    """

    max_rounds: int = field(default=10, validator=ge(1))
    max_calls: int = field(default=16, validator=ge(1))
    max_repeats: int = field(default=10, validator=ge(2))
    turn_timeout_ms: int = field(default=600_000, validator=ge(1))
    approval_timeout_ms: int = field(default=300_000, validator=ge(1))
    retry_attempts: int = field(default=3, validator=ge(0))
    retry_delay_ms: int = field(default=1000, validator=ge(0))
    max_result_tokens: int = field(default=8000, validator=ge(64))
    max_event_bytes: int = field(default=256 * 1024, validator=ge(1024))
    max_samplings: int = field(default=16, validator=ge(0))
    approve_all: bool = False
    roots: tuple[Path, ...] = field(default=(), converter=_paths)
    system_prompt: str = ""
    history: HistoryManagementOptions = field(factory=HistoryManagementOptions)


async def _decline(_: object) -> None:
    """Decline what belongs to no call."""


def connection_options(
    roots: Sequence[Path] = (), approval_timeout_ms: int = 300_000
) -> ConnectOptions:
    """Return the options of `CoordinatorOptions` that a host needs (TURN-60).

    Its servers may then ask during a call. What belongs to no call is declined.

    Args:
        roots: places that servers are told of.
        approval_timeout_ms: see `OrchestratorSettings`.
    """
    options: ConnectOptions = {
        "sampling": _decline,
        "elicitation": _decline,
        "elicitation_url": _decline,
        "handler_timeout": approval_timeout_ms / 1000 + _GRACE,
        "extensions": APPS,
    }
    return {**options, "roots": roots} if roots else options
