"""Puts tokens on requests, and gets new ones where a server refuses them (CAUTH-30 to CAUTH-38).

    request ─► headers ─► server ─┬─► its answer
                  ▲               └─► 401, 403 ─► refused ─► refresh, else login ─┐
                  └───────────────────────────────────────────────────────────────┘

One authorizer serves all sessions of a client, and one refresh or login all requests that wait for
it. A stored token that is good needs none of the modules that discover, register and log in.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, SupportsBytes

from attrs import define, field

from ..errors import AuthorizationError, ConnectionLostError
from ..session.shared_task import join, shared
from .descriptions import Authorization, OAuth, StoreKey, TokenStore, key_of
from .grants import Challenge, Grant, choose_challenge
from .stores import MemoryTokenStore
from .urls import host_of, without_secrets

if TYPE_CHECKING:
    from ...base.http_client.connection import RawHeaders
    from .flows import Flows
    from .proofs import DpopKey

MAX_ATTEMPTS: Final = 2
"""Most refreshes and logins for one request (CAUTH-28)."""

_PAUSE_SECONDS = 10.0  # s; after a refresh that got no answer, while the old token is still good
_KEPT_SECRETS = 16  # texts of former tokens that errors may not repeat
_REFUSALS = (401, 403)
_NONCE = "use_dpop_nonce"


@define(eq=False)
class AuthorizedRequest:
    """One request, as often as it is sent.

    Args:
        may_login: whether a person may be asked for it.

    Attributes:
        attempts: refreshes and logins so far.
        grant: that it was sent with; None for none.
        has_nonce: whether it was sent again for a nonce.
    """

    may_login: bool
    attempts: int = field(default=0, init=False)
    grant: Grant | None = field(default=None, init=False)
    has_nonce: bool = field(default=False, init=False)


@define(eq=False, repr=False)
class Authorizer:
    """The authorization of one client at one server; belongs to one event loop.

    Args:
        url: the server's.
        now: returns seconds since 1970.

    Attributes:
        flows: gets tokens; made when it is needed.
        pause: called when a person is asked; `resume` when that is over (CAUTH-36).
    """

    url: str
    description: Authorization
    now: Callable[[], float] = time.time
    flows: Flows | None = field(default=None, init=False)
    pause: Callable[[], None] = field(default=lambda: None, init=False)
    resume: Callable[[], None] = field(default=lambda: None, init=False)
    _store: TokenStore = field(init=False)
    _key: StoreKey = field(init=False)
    _grant: Grant | None = field(default=None, init=False)
    _header: bytes = field(default=b"", init=False)
    _dpop: DpopKey | None = field(default=None, init=False)
    _is_loaded: bool = field(default=False, init=False)
    _renewing: asyncio.Task[Grant | None] | None = field(default=None, init=False)
    _waiting: int = field(default=0, init=False)
    _may_login: bool = field(default=False, init=False)  # the task under way may ask a person
    _is_sent: bool = field(default=False, init=False)  # it has used up a code or a refresh token
    _next_refresh: float = field(default=0.0, init=False)
    _secrets: deque[str] = field(factory=lambda: deque(maxlen=_KEPT_SECRETS), init=False)

    def __attrs_post_init__(self) -> None:
        described = self.description
        self._store = described.store if isinstance(described, OAuth) else MemoryTokenStore()
        self._key = key_of(described, without_secrets(self.url))

    def secrets(self) -> tuple[str, ...]:
        """Return the texts of tokens that no error may repeat (CAUTH-38)."""
        return tuple(self._secrets)

    # -- around a request

    def turn(self, may_login: bool) -> AuthorizedRequest:
        """Return the state of one request, for which a person may be asked or not."""
        return AuthorizedRequest(may_login)

    async def headers(self, turn: AuthorizedRequest, method: str, url: SupportsBytes) -> RawHeaders:
        """Return the headers that authorize a request; none if there is no token.

        Raises:
            MCPError: the token has ended, and the authorization server does not answer.
        """
        grant = self._grant
        if not self._is_loaded:
            grant = await self._load()
        if grant is not None and grant.is_due(self.now()):
            grant = await self._refresh_early(grant)
        turn.grant = grant
        if grant is None:
            return []
        if self._dpop is not None:
            named = bytes(url).decode("ascii")
            proof = self._dpop.proof(method, named, self.now(), grant.access_token)
            return [(b"authorization", self._header), (b"dpop", proof.encode("ascii"))]
        return [(b"authorization", self._header)]

    async def refused(
        self, turn: AuthorizedRequest, status: int, headers: Mapping[str, str]
    ) -> bool:
        """Get another token, if that helps; return whether to send the request again.

        Args:
            turn: the request.
            status: of its response.
            headers: of its response, by name in lower case.

        Raises:
            AuthorizationError: there is no token to be had.
            ConnectionLostError: the authorization server does not answer.
        """
        is_refused = status in _REFUSALS
        if not is_refused and self._dpop is None:
            return False
        nonce = headers.get("dpop-nonce")
        if self._dpop is not None and nonce is not None:
            self._dpop.note_nonce(self.url, nonce)
        if not is_refused:
            return False
        challenge = choose_challenge(headers.get("www-authenticate", ""))
        if challenge.parameters.get("error") == _NONCE and nonce is not None:
            is_first, turn.has_nonce = not turn.has_nonce, True
            return is_first and self._dpop is not None
        if status == 403 and not challenge.lacks_scope:
            return False
        if turn.attempts == MAX_ATTEMPTS or self._is_for_others(turn, challenge):
            return False
        turn.attempts += 1
        if self._grant is None or self._grant is turn.grant:  # else another request has got one
            is_again = turn.attempts > 1
            await self._share(
                lambda: self._renew(challenge, turn.grant, turn.may_login, is_again),
                turn.may_login,
            )
        return True

    def _is_for_others(self, turn: AuthorizedRequest, challenge: Challenge) -> bool:
        """Return whether a server that was sent no token may want something else, such as a key."""
        described = self.description
        is_told = turn.grant is not None or "resource_metadata" in challenge.parameters
        return isinstance(described, OAuth) and described.login is None and not is_told

    async def settled(self) -> None:
        """Wait until a refresh that was sent has been stored; what nobody waits for is ended."""
        self._end_unneeded()
        if self._renewing is not None and not self._waiting:
            await asyncio.wait([self._renewing])

    # -- for the command line

    async def login(self, challenge: Challenge | None = None) -> Grant:
        """Get a token, whether or not there is one; return it.

        Raises:
            AuthorizationError: there is none to be had.
        """
        asked = challenge or Challenge("bearer", {})
        grant = await self._share(lambda: self._obtain(asked, None, may_login=True), True)
        assert grant is not None
        return grant

    async def challenged(self) -> Challenge:
        """Return the challenge of the server to a request without a token.

        Raises:
            AuthorizationError: it asks for no login.
            ConnectionLostError: it does not answer.
        """
        return await self._its_flows().challenge()

    async def logout(self) -> tuple[bool, bool]:
        """Revoke the stored token, then delete it; return whether it was there, and revoked."""
        async with self._store.lock(self._key):
            grant = await self._load()
            if grant is None:
                return False, False
            is_revoked = await self._its_flows().revoke(grant)
            await self._store.delete(self._key)
        self._take(None)
        return True, is_revoked

    async def stored(self) -> Grant | None:
        """Return the stored token; None if there is none."""
        return await self._load()

    # -- tokens

    async def _load(self) -> Grant | None:
        self._take(Grant.of_entry(await self._store.load(self._key)))
        self._is_loaded = True
        return self._grant

    def _take(self, grant: Grant | None) -> None:
        """Use a token from now on."""
        self._grant, self._dpop, self._header = grant, None, b""
        if grant is None:
            return
        self._secrets.extend(each for each in grant.secrets if each not in self._secrets)
        self._header = f"{grant.token_type} {grant.access_token}".encode("ascii")
        if grant.token_type == "DPoP" and grant.dpop_key is not None:
            from .proofs import DpopKey

            self._dpop = DpopKey.of(grant.dpop_key)

    async def _refresh_early(self, grant: Grant) -> Grant | None:
        """Return a token for a request that is about to be sent (CAUTH-30)."""
        is_over = grant.is_over(self.now())
        if is_over or self.now() >= self._next_refresh:
            try:
                return await self._share(lambda: self._renew_due(grant))
            except ConnectionLostError:
                self._next_refresh = self.now() + _PAUSE_SECONDS
                if is_over:
                    raise
        return grant

    async def _renew_due(self, grant: Grant) -> Grant | None:
        if isinstance(self.description, OAuth):
            found = await self._refresh(grant)
        else:
            found = await self._obtain(Challenge("bearer", {}), None, may_login=False)
        if found is None and not grant.is_over(self.now()):
            return grant
        self._take(found)
        return found

    async def _renew(
        self, challenge: Challenge, used: Grant | None, may_login: bool, is_again: bool
    ) -> Grant | None:
        """Get a token that the server takes: a newer one, a refreshed one, or by a login."""
        if used is not None and not challenge.lacks_scope:
            found = await self._refresh(used, may_ask=not (is_again and self._has_login(may_login)))
            if found is not None:
                self._take(found)
                return found
        if used is None:
            stored = await self._load()  # somebody may have logged in since
            if stored is not None and not stored.is_over(self.now()):
                return stored
        return await self._obtain(challenge, used, may_login)

    def _has_login(self, may_login: bool) -> bool:
        described = self.description
        return not isinstance(described, OAuth) or (may_login and described.login is not None)

    async def _refresh(self, used: Grant, *, may_ask: bool = True) -> Grant | None:
        """Return a newer token than `used`; None if only a login brings one.

        Args:
            may_ask: whether to ask the authorization server, if the store has none.
        """
        if not isinstance(self.description, OAuth):
            return None
        async with self._store.lock(self._key):
            stored = Grant.of_entry(await self._store.load(self._key))
            if stored is None:
                return None
            if stored.access_token != used.access_token and not stored.is_due(self.now()):
                return stored
            if stored.refresh_token is None or not may_ask:
                return None
            self._is_sent = True
            outcome = await self._its_flows().refresh(stored)
            if outcome is not None:
                await self._store.save(self._key, outcome.to_entry())
                return outcome
            again = Grant.of_entry(await self._store.load(self._key))
            if again is not None and again.refresh_token == stored.refresh_token:
                await self._store.delete(self._key)
            return None

    async def _obtain(self, challenge: Challenge, used: Grant | None, may_login: bool) -> Grant:
        """Return a new token, by a login or as the description says."""
        if not self._has_login(may_login):
            raise not_logged_in(self.url)
        before = used.requested if used is not None and challenge.lacks_scope else ()
        grant = await self._its_flows().obtain(challenge, before)
        async with self._store.lock(self._key):
            await self._store.save(self._key, grant.to_entry())
        self._take(grant)
        self._is_loaded = True
        return grant

    async def _share(
        self, work: Callable[[], Coroutine[Any, Any, Grant | None]], may_login: bool = False
    ) -> Grant | None:
        """Do it once for all requests that wait for it; it ends with the last of them."""
        while (task := self._renewing) is not None and (
            task.cancelling() or (may_login and not self._may_login)
        ):
            await asyncio.wait([task])
        if self._renewing is None:
            self._may_login, self._is_sent = may_login, False
            self._renewing = shared(work())
            self._renewing.add_done_callback(self._renewed)
        self._waiting += 1
        try:
            return await join(self._renewing)
        finally:
            self._waiting -= 1
            self._end_unneeded()

    def _end_unneeded(self) -> None:
        """End a refresh or login that nobody waits for, unless it would lose a token (CAUTH-34)."""
        if self._renewing is not None and not self._waiting and not self._is_sent:
            self._renewing.cancel()

    def _renewed(self, task: asyncio.Task[Grant | None]) -> None:
        self._renewing = None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask a person: the deadlines of calls stand still (CAUTH-36)."""
        self.pause()
        try:
            yield
        finally:
            self.resume()
        self._is_sent = True

    def _its_flows(self) -> Flows:
        if self.flows is None:
            from .exchanges import AuthExchanges
            from .flows import Flows

            self.flows = Flows(
                self.url, self.description, self._store, AuthExchanges(), self.now, self._asking
            )
        return self.flows


def not_logged_in(url: str) -> AuthorizationError:
    """Return the error for a server that wants a person who is not asked."""
    return AuthorizationError(
        f"Not logged in to {host_of(url)}", f"Run: foundation-rt login {without_secrets(url)}"
    )
