"""Logins at servers that a page begins, and their state as it shows it (HPAGE-80).

page ─► begin ─► login of the server ─► authorization page, in a tab of its own
 ▲                       ▲                            │
 └── state of the server └── the port it comes back to, or the address that is pasted
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ...client import AuthorizationError, LoginRequest, MCPError, browser_login
from .requests import PageRequest, PageRequestError, invalid

if TYPE_CHECKING:
    from ..coordinator import Coordinator, ServerConnections

log = logging.getLogger("foundation_rt.coordinator")

_MAX_BODY: Final = 16 * 1024
"""The most bytes of a request: an address that the browser came back to is long."""

_EXPECTED = "expected a JSON object with server, and perhaps address"
NOBODY = "this server waits for no login"


@define(eq=False)
class PageLogin:
    """One login that is under way, or has failed.

    Attributes:
        identity: of the server, as it was at the beginning.
        task: ends with it.
        problem: why it has failed; None if it has not.
    """

    _server: ServerConnections
    _page: asyncio.Future[str] = field(init=False)
    _pasted: asyncio.Future[str] = field(init=False)
    identity: str = field(init=False)
    task: asyncio.Task[None] = field(init=False)
    problem: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._page, self._pasted = loop.create_future(), loop.create_future()
        self.identity = self._server.identity
        self.task = loop.create_task(self._run())

    @property
    def page(self) -> str | None:
        """The page that the person is to open; None if there is none yet."""
        return self._page.result() if self._page.done() else None

    async def has_begun(self) -> None:
        """Wait until there is a page, or the login has failed."""
        await asyncio.wait((self._page, self.task), return_when=asyncio.FIRST_COMPLETED)

    def paste(self, address: str) -> None:
        """Take the address that the browser came back to, where it reaches no port of ours."""
        if not self._pasted.done():
            self._pasted.set_result(address)

    async def _run(self) -> None:
        try:
            await self._server.log_in(self._show)
        except AuthorizationError as error:
            self.problem = ". ".join(filter(None, (error.message, error.suggested_action)))
        except MCPError as error:
            self.problem = error.message
        except Exception:
            log.exception("the login at server %r failed", self._server.server_id)
            self.problem = "The login failed; the log says why."

    async def _show(self, request: LoginRequest) -> str:
        """Wait until the browser has come back, or somebody has pasted where it ended."""
        came = asyncio.create_task(_come_back(request))
        self._page.set_result(request.url)
        try:
            await asyncio.wait((came, self._pasted), return_when=asyncio.FIRST_COMPLETED)
            return self._pasted.result() if self._pasted.done() else came.result()
        finally:
            came.cancel()
            await asyncio.wait([came])


async def _come_back(request: LoginRequest) -> str:
    return await browser_login(lambda _: None)(request)


@define(eq=False)
class PageLogins:
    """The logins of one page's servers, one at a time of each; belongs to one event loop.

    Args:
        coordinator: of the servers.
        is_allowed: whether users may log in here: not where they would act as one another.
    """

    _coordinator: Coordinator
    _is_allowed: bool = True
    _logins: dict[str, PageLogin] = field(factory=dict, init=False)

    def state(self, server_id: str) -> dict[str, Any] | None:
        """Return what a page shows of the login of a server; None if there is nothing to do."""
        login = self._login(server_id)
        if login is not None and not login.task.done():
            return {"page": login.page, "problem": None}
        if self._waiting(server_id) is None:
            self._logins.pop(server_id, None)
            return None
        return {"page": None, "problem": None if login is None else login.problem}

    async def respond(self, request: PageRequest) -> dict[str, Any]:
        """Answer a request of the page."""
        return await self.answer(await request.read(_MAX_BODY))

    async def answer(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a login, of `server` alone, or go on with it: the browser came to `address`.

        Returns:
            The `login` of `state`.

        Raises:
            PageRequestError: nobody can.
        """
        server_id, address = named.get("server"), named.get("address", "")
        if not (isinstance(server_id, str) and isinstance(address, str)):
            raise invalid(_EXPECTED)
        login = self._login(server_id)
        if login is not None and not login.task.done():
            if address:
                login.paste(address)
        elif not address and (server := self._waiting(server_id)) is not None:
            login = self._logins[server_id] = PageLogin(server)
        else:
            raise PageRequestError(404, "no_login", NOBODY)
        await login.has_begun()
        return {"login": self.state(server_id)}

    async def close(self) -> None:
        """End the logins that are under way."""
        tasks = [each.task for each in self._logins.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _login(self, server_id: str) -> PageLogin | None:
        """Return the login at a server; end one at what had this id before (HOST-68)."""
        login, server = self._logins.get(server_id), self._coordinator.server(server_id)
        if login is not None and (server is None or server.identity != login.identity):
            del self._logins[server_id]
            login.task.cancel()
            return None
        return login

    def _waiting(self, server_id: str) -> ServerConnections | None:
        """Return a server that waits for a login; None if it does not."""
        server = self._coordinator.server(server_id) if self._is_allowed else None
        return server if server is not None and server.wants_login else None
