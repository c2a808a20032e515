"""Lists that come in pages, followed to their end (CLIENT-22)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from ...protocol.methods import PROMPTS_LIST, facts
from ..errors import InvalidResponseError, MCPError
from ..resilience.retries import Attempt
from ..session.session import ClientSession
from ..transports.transport import MAX_MESSAGE_BYTES
from .input_rounds import is_complete

Entry = TypeVar("Entry")

log = logging.getLogger("foundation_rt.client")

MAX_ENTRIES: Final = 100_000
"""Of one list, on all its pages."""

MAX_LIST_BYTES: Final = MAX_MESSAGE_BYTES
"""Of the messages that one list comes in: no more than if it came in one."""


async def list_all(
    session: ClientSession,
    method: str,
    attempt: Attempt,
    max_pages: int,
    meta: Mapping[str, Any] | None = None,
) -> tuple[list[Any], int | None]:
    """Return all entries of a list, and the server's cache hint in ms.

    Args:
        session: the session to use.
        method: that lists, such as `tools/list`; of an extension, `skills/list` has `skills`.
        attempt: the attempt that it belongs to.
        max_pages: most pages; a longer list is an error.
        meta: further members of `_meta`, of every request.

    Raises:
        MCPError: it cannot be listed; E209 if it is invalid or too long.
    """
    entries: list[Any] = []
    hints: list[int] = []
    cursors: set[str] = set()
    previous: list[Any] | None = None
    member = facts(method).entries or method.partition("/")[0]
    params: dict[str, Any] | None = None
    size = 0
    for _ in range(max_pages):
        page = await session.request(method, params, attempt, meta=meta)
        is_complete(session, method, page)
        listed = page.get(member)
        if type(listed) is not list:
            raise InvalidResponseError(f"the response to {method} has no list of {member}")
        entries += listed
        size += attempt.response_bytes
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
        if type(cursor) is not str:
            raise InvalidResponseError(f"{method}: nextCursor is not a string")
        if cursor in cursors:
            log.warning("%s: the list ends at a nextCursor that comes again: %.40r", method, cursor)
            if listed == previous:  # the same page, for want of another one
                del entries[len(entries) - len(listed) :]
            return entries, min(hints, default=None)
        previous = listed
        cursors.add(cursor)
        params = {"cursor": cursor}
    raise InvalidResponseError(f"{method} has more than {max_pages} pages")


def usable(read: Callable[[Any], Entry], entries: Iterable[Any], method: str) -> list[Entry]:
    """Return the valid entries; log one warning with the number and the reason of the others.

    Args:
        read: reads an entry; raises `InvalidResponseError` for an invalid one.
        entries: as they came.
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
    session: ClientSession,
    params: Mapping[str, Any],
    error: MCPError,
    attempt: Attempt,
    max_pages: int,
) -> MCPError:
    """Return the error of a failed `prompts/get`: E203 if arguments were missing (RETRY-11).

    Some servers report a missing argument as a failure of their own, without its name. Their list
    of prompts has it.

    Args:
        session: of the request.
        params: of the request.
        error: of the request; returned if no argument is missing.
        attempt: of the request.
        max_pages: most pages of the list.
    """
    if error.code != "E201" or not attempt.was_answered:
        return error
    try:
        prompts, _ = await list_all(session, PROMPTS_LIST, attempt, max_pages)
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
        wire=error.wire,
    )


def _required(prompt: Mapping[str, Any]) -> list[str]:
    """Return the names of the required arguments of a listed prompt."""
    arguments = prompt.get("arguments")
    if type(arguments) is not list:
        return []
    required = [each for each in arguments if type(each) is dict and each.get("required") is True]
    return [each["name"] for each in required if type(each.get("name")) is str]
