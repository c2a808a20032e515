"""Getting a prompt, and why a server may have failed to render it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..failing.attempt import Attempt
from ..failing.errors import MCPError
from ..sessions.session import Session
from .paging import list_all


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
