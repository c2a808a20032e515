"""The tools of a server (GEO-1.5a-004).

They are listed on first use, and again when the cached list is too old. One request serves all
calls that wait (CLIENT-23).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.close_names import did_you_mean
from ...protocol.methods import TOOLS_LIST
from ..errors import CallTimeoutError, InvalidArgumentsError, InvalidResponseError, MCPError
from ..resilience.retries import Attempt
from ..results.tool_schemas import ToolSchema
from ..session.session import ClientSession
from ..session.shared_task import join, shared
from .paging import list_all
from .tool_cache import ToolCache, tool_of

if TYPE_CHECKING:
    from ...base.jsonschema.issues import ValidationIssue

log = logging.getLogger("foundation_rt.client")

Listed = Mapping[str, ToolSchema]

_LONGEST_NAME = 128
_MOST_PROBLEMS = 100
"""Tools that are left out and named."""


@define(eq=False, repr=False)
class ServerTools:
    """Finds tools, and checks arguments against their schemas.

    Args:
        max_pages: the most pages of the list that are followed.
        timeout: seconds that listing them may take.

    Attributes:
        label: the name of the server in the log; "": what it calls itself.
        left_out: what was wrong with other tools of the latest list, a sentence each.
    """

    cache: ToolCache
    max_pages: int
    timeout: float
    label: str = field(default="", init=False)
    left_out: tuple[str, ...] = field(default=(), init=False)
    _listing: asyncio.Task[Listed] | None = field(default=None, init=False)
    _listings: set[asyncio.Task[Listed]] = field(factory=set, init=False)
    _called: set[str] = field(factory=set, init=False)

    async def find(self, session: ClientSession, name: str, attempt: Attempt) -> ToolSchema:
        """Return the tool of this name.

        A list without a lifetime (a hint of 0 ms) is used until it fails: the server checks every
        call itself. A list older than a second is read again before a tool counts as missing.

        Raises:
            MCPError: E204: there is none; or they cannot be listed.
        """
        now = asyncio.get_running_loop().time()
        found = None if self.cache.expires_by_time(now) else self.cache.get(name)
        if found is None and not self.cache.may_refuse(now):
            found = tool_of(await self.list(session, attempt), name)
        if found is None:
            raise no_such_tool(name, self.cache.tools)
        return found

    async def check(
        self, session: ClientSession, tool: ToolSchema, arguments: Any, attempt: Attempt
    ) -> ToolSchema:
        """Check arguments against the schema; read an old list again first (CLIENT-24).

        Returns:
            The tool as it is now.

        Raises:
            InvalidArgumentsError: they do not fit.
        """
        issues = _issues(tool, arguments)
        if issues and not self.cache.may_refuse(asyncio.get_running_loop().time()):
            now = tool_of(await self.list(session, attempt), tool.name)
            if now is None:
                raise no_such_tool(tool.name, self.cache.tools)
            tool, issues = now, _issues(now, arguments)
        if issues:
            raise InvalidArgumentsError(tool.name, issues)
        if tool.name not in self._called:
            self._called.add(tool.name)
            if tool.uncheckable is not None:
                log.warning("%r is called unchecked: %s", tool.name, tool.uncheckable)
        return tool

    async def definition(
        self, session: ClientSession, name: str, attempt: Attempt
    ) -> ToolSchema | None:
        """Return the tool of this name; None if the server lists none.

        It is looked for where headers repeat arguments; elsewhere it is None unless it is known.

        Raises:
            MCPError: the tools cannot be listed.
        """
        if not (repeats_headers(session) and session.server.can("tools")):
            return self.cache.get(name)
        try:
            return await self.find(session, name, attempt)
        except MCPError as error:
            if error.code != "E204":
                raise
            return None

    def known(self) -> tuple[ToolSchema, ...] | None:
        """Return all tools if the list is fresh, else None."""
        is_fresh = self.cache.is_fresh(asyncio.get_running_loop().time())
        return self.cache.tools if is_fresh else None

    async def fresh(self, session: ClientSession, attempt: Attempt) -> tuple[ToolSchema, ...]:
        """Return all tools; list them again unless the list is fresh."""
        known = self.known()  # the start of the session may have listed them
        if known is not None:
            return known
        return tuple((await self.list(session, attempt)).values())

    async def look_up(self, session: ClientSession, name: str, attempt: Attempt) -> ToolSchema:
        """Return the tool of this name from a list that is fresh.

        Raises:
            MCPError: E204: there is none; or they cannot be listed.
        """
        await self.fresh(session, attempt)
        return await self.find(session, name, attempt)

    async def list_apart(
        self, session: ClientSession, attempt: Attempt, meta: Mapping[str, Any]
    ) -> tuple[ToolSchema, ...]:
        """List the tools by a request of its own, with `meta`; keep nothing of it.

        Raises:
            MCPError: they cannot be listed; E205: the server has none.
        """
        session.server.check({"tools"})
        attempt.is_idempotent = True
        entries, _ = await list_all(session, TOOLS_LIST, attempt, self.max_pages, meta)
        found, _ = _usable(entries, needs_headers=repeats_headers(session))
        return tuple(found.values())

    async def list(self, session: ClientSession, attempt: Attempt) -> Listed:
        """List the tools, by name; join a listing that runs already (CLIENT-23).

        Args:
            session: the session to use.
            attempt: the attempt that needs them; holds the permits.

        Raises:
            MCPError: they cannot be listed; E205: the server has none.
        """
        session.server.check({"tools"})
        attempt.admit()
        if self._listing is None or self._listing.done():
            self._listing = shared(self._list(session))
            self._listings.add(self._listing)
            self._listing.add_done_callback(self._listings.discard)
        return await join(self._listing)

    def invalidate(self) -> None:
        """Drop the list; a listing that runs serves no later call."""
        self._listing = None
        self.cache.invalidate()

    async def close(self) -> None:
        """Stop listing."""
        for task in self._listings:
            task.cancel()
        if self._listings:
            await asyncio.wait(self._listings)

    async def _list(self, session: ClientSession) -> Listed:
        try:
            async with asyncio.timeout(self.timeout):
                entries, hint = await list_all(session, TOOLS_LIST, Attempt(), self.max_pages)
        except TimeoutError as error:
            if isinstance(error, MCPError):
                raise
            raise CallTimeoutError(
                f"the server did not list its tools in {self.timeout:g} s", may_have_run=True
            ) from None
        listed, self.left_out = _usable(entries, needs_headers=repeats_headers(session))
        for problem in self.left_out:
            log.warning("server %r: %s", self.label or session.server.name, problem)
        if self._listing is not asyncio.current_task():
            return listed  # they changed while they were being listed
        self._called.clear()
        self.cache.store(listed.values(), asyncio.get_running_loop().time(), hint)
        return {tool.name: tool for tool in self.cache.tools}


def _issues(tool: ToolSchema, arguments: Any) -> tuple[ValidationIssue, ...]:
    """Return the problems of arguments; none if they are too complex to check.

    The server checks them anyway (CTOOL-24).
    """
    from ...base.jsonschema.issues import TOO_COMPLEX

    issues = tool.check_arguments(arguments)
    if issues is TOO_COMPLEX:
        log.debug("arguments of %r are sent unchecked: they are too complex", tool.name)
        return ()
    return issues


def no_such_tool(name: str, known: Iterable[ToolSchema] = ()) -> MCPError:
    """Return E204: there is no such tool; it says which of those that are known are spelled so."""
    hint = did_you_mean(name, (tool.name for tool in known))
    return MCPError("E204", f"the server has no tool {name!r}{hint}", data={"tool": name})


def repeats_headers(session: ClientSession) -> bool:
    """Return whether headers repeat arguments: over HTTP, in the stateless mode (SEP-2243)."""
    return session.transport.has_exchanges and session.server.revision.is_stateless


def _usable(
    entries: list[Any], needs_headers: bool
) -> tuple[dict[str, ToolSchema], tuple[str, ...]]:
    """Return the valid tools, of two with one name the first; and what is wrong with others."""
    found: dict[str, ToolSchema] = {}
    problems: list[str] = []
    for entry in entries:
        try:
            tool = ToolSchema.read(entry)
        except InvalidResponseError as error:
            name = entry.get("name") if type(entry) is dict else None
            of_name = f" {name[:_LONGEST_NAME]!r}" if type(name) is str else ""
            problems.append(f"the tool{of_name} is left out: {error.message}")
            continue
        if needs_headers and tool.header_problem is not None:
            problems.append(f"the tool {tool.name!r} is left out: {tool.header_problem}")
        elif tool.name in found:
            problems.append(f"the tool {tool.name!r} is listed twice: the first one counts")
        else:
            found[tool.name] = tool
    return found, tuple(problems[:_MOST_PROBLEMS])
