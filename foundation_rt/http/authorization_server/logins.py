"""Logins: codes, refresh tokens, and what they have of the provider (AUTHZ-25 to AUTHZ-33).

    code ──redeem──► live ──refresh──► live ...        one value of the store, one key
      └── used again ──► gone ◄── repeated later, revoked, gone at the provider

A code or a refresh token is the id of its login, a dot and a secret. The store has a login under
the hash of its id; sealed in it are hashes of its secrets, and what it needs besides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from attrs import asdict, define, evolve, field, frozen

from ...base.bounded_dict import BoundedDict
from ...client.auth.grants import challenge_of
from ..seal import Seal
from .identity import IdentityTokens, ProviderError
from .providers import Identity
from .store import LoginStore

if TYPE_CHECKING:
    from ...base.clock import Clock
    from ...base.config.http_sections import AuthorizationSection

_T = TypeVar("_T")

CODE_SECONDS = 60
REPEAT_SECONDS = 30
"""The time for which a used refresh token gets the same answer: the first may have been lost."""

_ALIVE_SECONDS = 10.0
_MAX_ALIVE = 10_000
_CLAIM_SECONDS = 60.0
_RENEW_SECONDS = 45.0
_DUE_SECONDS = 60.0
_POLL_SECONDS = 0.05


class GrantRefused(Exception):
    """A code or refresh token is not good, or not for what was asked.

    Attributes:
        event: for the audit log.
        login: the one that was revoked; None if none was.
        code: of RFC 6749.
    """

    def __init__(self, event: str, login: Login | None = None, code: str = "invalid_grant") -> None:
        super().__init__(event)
        self.event = event
        self.login = login
        self.code = code


@frozen
class Login:
    """One person's agreement to one client.

    Attributes:
        client_id: the client.
        redirect_uri: where its code was sent.
        challenge: of PKCE.
        scopes: those that were agreed to.
        person: who has agreed.
        provider: their tokens at the provider; None if there is nothing to refresh or to keep.
        code: the hash of the secret of the code.
        is_code: whether the code has not been used.
        refresh: the hash of the secret of the refresh token; empty before the first.
        previous: that of the one before.
        rotated_at: when it was replaced, in seconds since 1970.
        answer: what the client was given then.
        claimed_until: until when somebody asks the provider, in seconds since 1970.
    """

    client_id: str
    redirect_uri: str
    challenge: str
    scopes: tuple[str, ...]
    person: Identity
    provider: IdentityTokens | None
    code: str
    is_code: bool = True
    refresh: str = ""
    previous: str = ""
    rotated_at: float = 0.0
    answer: dict[str, Any] | None = None
    claimed_until: float = 0.0


@define(eq=False, repr=False)
class Logins:
    """All logins of a server.

    Args:
        settings: the section `authorization`.
        store: keeps them.
        seal: seals what is kept.
        clock: of the server.
        issue: makes the access token of a login: takes it and its key.
        renew: asks the provider for new tokens of a person.
    """

    _settings: AuthorizationSection
    _store: LoginStore
    _seal: Seal
    _clock: Clock
    _issue: Callable[[Login, str], str]
    _renew: Callable[[Identity, IdentityTokens], Awaitable[tuple[Identity, IdentityTokens]]]
    _alive: dict[str, float] = field(factory=lambda: BoundedDict(_MAX_ALIVE), init=False)
    _tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)

    # -- codes

    async def begin(self, login: Login) -> str:
        """Keep a new login, and return the code for its client.

        Raises:
            StoreUnavailable: the store did not answer. So do all others.
        """
        login_id, secret = token_urlsafe(16), token_urlsafe(32)
        login = evolve(login, code=_hash(secret), provider=self._kept(login.provider))
        await self._swap(_hash(login_id), None, login, CODE_SECONDS * 1000)
        return f"{login_id}.{secret}"

    async def redeem(
        self, code: str, client_id: str, redirect_uri: str | None, verifier: str
    ) -> tuple[Login, dict[str, Any]]:
        """Return the login of a code, and the answer for its client.

        Raises:
            GrantRefused: the code is not good. If it was used before, all that came of it is gone.
        """
        login_id, secret = _parts(code)
        key = _hash(login_id)
        while True:
            raw, login = await self._load(key)
            if login is None or not compare_digest(_hash(secret), login.code):
                raise GrantRefused("CODE_REFUSED")
            if not login.is_code:
                await self.revoke(key)
                raise GrantRefused("CODE_REUSED", login)
            if (
                client_id != login.client_id
                or redirect_uri not in (None, login.redirect_uri)
                or not compare_digest(challenge_of(verifier), login.challenge)
            ):
                raise GrantRefused("CODE_REFUSED")
            used, answer = self._answered(evolve(login, is_code=False), login_id, key)
            if await self._swap(key, raw, used, self._ttl_ms):
                return used, answer

    # -- refresh tokens

    async def refresh(
        self, token: str, client_id: str, scopes: tuple[str, ...] = ()
    ) -> tuple[Login, dict[str, Any]]:
        """Return the login of a refresh token, and the answer for its client (AUTHZ-28).

        Args:
            token: the refresh token.
            client_id: of the client.
            scopes: those that it asks for; without any, all of the login.

        Raises:
            GrantRefused: the token is not good, or was not granted a scope. If the token was used
                before, the login is gone.
            ProviderError: the provider does not answer.
        """
        return await self._to_its_end(self._refresh(token, client_id, scopes))

    async def _refresh(
        self, token: str, client_id: str, scopes: tuple[str, ...]
    ) -> tuple[Login, dict[str, Any]]:
        login_id, secret = _parts(token)
        key, digest = _hash(login_id), _hash(secret)
        while True:
            raw, login = await self._load(key)
            if login is None or login.is_code or login.client_id != client_id:
                raise GrantRefused("REFRESH_TOKEN_REFUSED")
            repeats = compare_digest(digest, login.previous)
            repeats &= self._now() < login.rotated_at + REPEAT_SECONDS
            answer = login.answer if repeats else None
            if answer is None and not compare_digest(digest, login.refresh):
                await self.revoke(key)
                raise GrantRefused("REFRESH_TOKEN_REUSED", login)
            if not set(scopes) <= set(login.scopes):
                raise GrantRefused("TOKEN_REFUSED", code="invalid_scope")
            if answer is not None:
                return login, answer
            raw, login = await self._renewed(key, raw, login)
            if login is None:
                continue
            if not login.person.is_among(self._settings.allow):
                await self.revoke(key)
                raise GrantRefused("LOGIN_REFUSED", login)
            rotated, answer = self._answered(login, login_id, key, scopes)
            if await self._swap(key, raw, rotated, self._ttl_ms):
                return rotated, answer

    async def provider_token(self, key: str) -> str | None:
        """Return an access token of the provider for a login; None if none is kept.

        Raises:
            GrantRefused: the login is gone, here or at the provider.
            ProviderError: the provider does not answer.
        """
        return await self._to_its_end(self._provider_token(key))

    async def _provider_token(self, key: str) -> str | None:
        while True:
            raw, login = await self._load(key)
            if login is None:
                raise GrantRefused("LOGIN_GONE")
            tokens = login.provider
            if tokens is None or not tokens.access_token:
                return None
            ends = tokens.expires_at
            if ends is None or self._now() < ends - _DUE_SECONDS or not tokens.refresh_token:
                return tokens.access_token
            raw, login = await self._renewed(key, raw, login)
            if login is not None and await self._swap(key, raw, login, self._ttl_ms):
                assert login.provider is not None
                return login.provider.access_token

    async def _to_its_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what `work` returns; it goes on if its caller is cancelled.

        The provider may have replaced its own token, and the new one has to be kept.
        """
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _renewed(
        self, key: str, raw: str | None, login: Login
    ) -> tuple[str | None, Login | None]:
        """Return a login with new tokens of the provider, and what the store has of it now.

        One asks the provider at a time, since its refresh token may count once. Without a refresh
        token the login stays as it is. None as a login: somebody else was faster.
        """
        if login.provider is None or login.provider.refresh_token is None:
            return raw, login
        if self._now() < login.claimed_until:
            await asyncio.sleep(_POLL_SECONDS)
            return raw, None
        claimed = evolve(login, claimed_until=self._now() + _CLAIM_SECONDS)
        sealed = self._sealed(key, claimed)
        if not await self._store.swap(key, raw, sealed, self._ttl_ms):
            return raw, None
        try:
            async with asyncio.timeout(_RENEW_SECONDS):
                person, tokens = await self._renew(login.person, login.provider)
        except TimeoutError:
            await self._swap(key, sealed, login, self._ttl_ms)
            what = "the provider does not answer"
            raise ProviderError(what, "temporarily_unavailable") from None
        except ProviderError as error:
            if error.is_over:
                await self.revoke(key)
                raise GrantRefused("PROVIDER_LOGIN_OVER", login) from None
            if error.tokens is not None:
                login = evolve(login, provider=self._kept(error.tokens))
            await self._swap(key, sealed, login, self._ttl_ms)
            raise
        return sealed, evolve(login, person=person, provider=self._kept(tokens))

    # -- the end

    async def revoke(self, key: str) -> None:
        """Delete a login: no token of it is good any more."""
        await self._store.delete(key)
        self._alive.pop(key, None)

    async def revoke_token(self, token: str, client_id: str) -> Login | None:
        """Delete the login of a refresh token, and return it; None if there is none (RFC 7009)."""
        key = _hash(_parts(token)[0])
        _, login = await self._load(key)
        if login is None or login.client_id != client_id:
            return None
        await self.revoke(key)
        return login

    async def is_alive(self, key: str) -> bool:
        """Return whether a login is there; known for 10 s (AUTHZ-33)."""
        now = self._clock.monotonic()
        if now < self._alive.get(key, 0.0):
            return True
        if await self._store.get(key) is None:
            return False
        self._alive[key] = now + _ALIVE_SECONDS
        return True

    # -- values

    @property
    def _ttl_ms(self) -> int:
        return max(self._settings.refresh_ttl_ms, self._settings.access_ttl_ms)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _kept(self, tokens: IdentityTokens | None) -> IdentityTokens | None:
        """Return what is kept of the provider's tokens: no access token unless handlers get it."""
        if tokens is None or self._settings.keep_provider_tokens:
            return tokens
        if tokens.refresh_token is None:
            return None
        return IdentityTokens("", None, tokens.refresh_token)

    def _answered(
        self, login: Login, login_id: str, key: str, scopes: tuple[str, ...] = ()
    ) -> tuple[Login, dict[str, Any]]:
        """Return a login with a new refresh token, and the answer that has it.

        The login keeps its scopes if the access token gets fewer (RFC 6749, 6).
        """
        secret, scopes = token_urlsafe(32), scopes or login.scopes
        answer = {
            "access_token": self._issue(evolve(login, scopes=scopes), key),
            "token_type": "Bearer",
            "expires_in": self._settings.access_ttl_ms // 1000,
            "refresh_token": f"{login_id}.{secret}",
            "scope": " ".join(scopes),
        }
        now = self._now()
        rotated = evolve(
            login,
            refresh=_hash(secret),
            previous=login.refresh,
            rotated_at=now,
            answer=answer,
            claimed_until=0.0,
        )
        return rotated, answer

    async def _load(self, key: str) -> tuple[str | None, Login | None]:
        raw = await self._store.get(key)
        content = None if raw is None else self._seal.open(raw, key.encode())
        return raw, None if content is None else _read_login(orjson.loads(content))

    async def _swap(self, key: str, old: str | None, login: Login, ttl_ms: int) -> bool:
        return await self._store.swap(key, old, self._sealed(key, login), ttl_ms)

    def _sealed(self, key: str, login: Login) -> str:
        return self._seal.seal(orjson.dumps(asdict(login)), key.encode())


def _read_login(found: dict[str, Any]) -> Login:
    person, provider = found["person"], found["provider"]
    person["organizations"] = tuple(person["organizations"])
    found["person"] = Identity(**person)
    found["provider"] = None if provider is None else IdentityTokens(**provider)
    found["scopes"] = tuple(found["scopes"])
    return Login(**found)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _parts(token: str) -> tuple[str, str]:
    login_id, _, secret = token.partition(".")
    return login_id, secret
