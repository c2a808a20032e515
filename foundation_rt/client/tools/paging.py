"""Lists that come in pages, followed to their end (CLIENT-22)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from ..errors import InvalidResponseError, MCPError
from ..resilience.attempt import Attempt
from ..session.session import Session
from ..transports.transport import MAX_MESSAGE_BYTES
from .input_rounds import is_complete

Entry = TypeVar("Entry")

log = logging.getLogger("foundation_rt.client")

MAX_ENTRIES: Final = 100_000
"""Of one list, on all its pages."""

MAX_LIST_BYTES: Final = MAX_MESSAGE_BYTES
"""Of the messages that one list comes in: no more than if it came in one."""


async def list_all(
    session: Session, method: str, member: str, attempt: Attempt, max_pages: int
) -> tuple[list[Any], int | None]:
    """All entries of a list, and for how many ms the server says they may be kept.

    Args:
        member: of the result, that holds a page's entries.
        max_pages: more of them are no list but a mistake.

    Raises:
        MCPError: the list cannot be had; E209 if it is none, is too long, or does not end.
    """
    entries: list[Any] = []
    hints: list[int] = []
    cursors: set[str] = set()
    params: dict[str, Any] | None = None
    size = 0
    for _ in range(max_pages):
        page = await session.request(method, params, attempt)
        is_complete(session, method, page)
        listed = page.get(member)
        if type(listed) is not list:
            raise InvalidResponseError(f"the answer to {method} has no list of {member}")
        entries += listed
        size += attempt.answer_bytes
        if len(entries) > MAX_ENTRIES or size > MAX_LIST_BYTES:
            raise InvalidResponseError(
                f"{method} has more than {MAX_ENTRIES:,} entries, or {MAX_LIST_BYTES:,} bytes"
            )
        hint = page.get("ttlMs")
        if type(hint) is int and hint >= 0:
            hints.append(hint)
        cursor = page.get("nextCursor")
        if cursor is None:
            return entries, min(hints, default=None)
        if type(cursor) is not str or cursor in cursors:
            raise InvalidResponseError(f"the pages of {method} do not end: a cursor comes again")
        cursors.add(cursor)
        params = {"cursor": cursor}
    raise InvalidResponseError(f"{method} has more than {max_pages} pages")


def usable(read: Callable[[Any], Entry], entries: Iterable[Any], method: str) -> list[Entry]:
    """Return the entries that `read` takes; one warning says how many are left out, and why.

    Args:
        read: raises `InvalidResponseError` for what is no entry.
        method: that listed them.
    """
    found: list[Entry] = []
    problems: list[str] = []
    for entry in entries:
        try:
            found.append(read(entry))
        except InvalidResponseError as error:
            problems.append(error.message)
    if problems:
        log.warning("%s: %d left out: %s", method, len(problems), problems[0])
    return found


async def missing_arguments(
    session: Session,
    params: Mapping[str, Any],
    error: MCPError,
    attempt: Attempt,
    max_pages: int,
) -> MCPError:
    """Return the error of a `prompts/get` that failed: E203 if arguments lacked (RETRY-11).

    Some servers answer a missing argument as they answer a failure of their own, without a word of
    the argument. Their list of prompts has it.

    Args:
        params: of the request.
        error: what it ended in; returned where nothing lacked.
    """
    if error.code != "E201" or not attempt.was_answered:
        return error
    try:
        prompts, _ = await list_all(session, "prompts/list", "prompts", attempt, max_pages)
    except MCPError:
        return error
    named = (each for each in prompts if type(each) is dict and each.get("name") == params["name"])
    lacking = [name for name in _required(next(named, {})) if name not in params["arguments"]]
    if not lacking:
        return error
    return MCPError(
        "E203",
        f"the prompt {params['name']!r} requires {', '.join(lacking)}: {error.message}",
        original_code=error.original_code,
        data=error.data,
        may_have_run=error.may_have_run,
    )


def _required(prompt: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that a prompt, as it is listed, cannot do without."""
    arguments = prompt.get("arguments")
    if type(arguments) is not list:
        return []
    required = [each for each in arguments if type(each) is dict and each.get("required") is True]
    return [each["name"] for each in required if type(each.get("name")) is str]
