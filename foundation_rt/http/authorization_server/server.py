"""The endpoints of the authorization server (spec/authorization-server.md).

What a login needs until its code is there lies with the browser, sealed: in the form, and in a
cookie. So nobody fills a table before a provider has said who they are.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson
from attrs import astuple, define, evolve, field, frozen

from ...base.config.http_sections import AuthorizationSection, OauthSection
from ...client.auth.exchanges import MAX_METADATA_BYTES, AuthExchanges
from ...client.auth.urls import host_of
from ...errors import UsageError
from ...features.provider_tokens import ProviderTokens
from ...protocol.principal import Principal
from ..asgi import HttpRefusal, RawHeader, Receive, Scope, Send, send_body, send_json
from ..auth.introspection import IntrospectionUnavailable
from ..auth.oauth import ResourceServer, TokenRefused
from ..request import read_body
from ..seal import Seal
from .clients import ClientError, Clients, LoginClient, is_allowed, public_network
from .identity import IdentityProvider, ProviderError
from .keys import ALGORITHM, SigningKey
from .logins import GrantRefused, Login, Logins
from .pages import HEADERS, HTML, consent_page, problem_page
from .providers import check_allowed
from .store import LoginStore, StoreUnavailable, make_store

if TYPE_CHECKING:
    from ...features.composition import ServerRuntime
    from ..headers import RequestHead

AUTHORIZE = "/oauth/authorize"
CONSENT = "/oauth/consent"
CALLBACK = "/oauth/callback"
TOKEN = "/oauth/token"
REGISTER = "/oauth/register"
REVOKE = "/oauth/revoke"
KEYS = "/oauth/keys"
METADATA = "/.well-known/oauth-authorization-server"

MAX_BODY_BYTES = 16 * 1024
MAX_STATE = 1024
MAX_SCOPES = 50
_MAX_COOKIE = 3800  # characters; browsers keep 4,096 bytes with name and attributes
_MAX_ADDED = 200  # characters that nonce and verifier take in it, once there is consent
_TRANSACTION_SECONDS = 600
_EXCHANGE_SECONDS = 5.0
_RANDOM = re.compile("[A-Za-z0-9_-]{43}")  # 256 bits
_MAX_VERIFIER = 128
_REFUSALS = {
    "invalid_grant": "it is over, or another client's: log in",
    "invalid_scope": "the person has not agreed to this scope",
}
_READABLE_BY_ALL = ((b"access-control-allow-origin", b"*"),)


class Denied(Exception):
    """A request that ends with a page: nobody may be sent anywhere.

    Attributes:
        title: of the page.
    """

    def __init__(self, text: str, title: str = "This login cannot go on") -> None:
        super().__init__(text)
        self.title = title


@frozen
class AskedLogin:
    """The request of a client, until its code is there.

    Attributes:
        asked_at: in seconds since 1970.
        nonce: of the provider's ID token.
        verifier: with which the provider is asked for its token (PKCE).
    """

    client_id: str
    redirect_uri: str
    state: str
    challenge: str
    scopes: tuple[str, ...]
    asked_at: float
    nonce: str = ""
    verifier: str = ""

    def dump(self) -> bytes:
        """Return it as JSON."""
        return orjson.dumps(astuple(self, recurse=False))


@define(eq=False, repr=False)
class OwnResourceServer(ResourceServer):
    """Verifies the tokens of this server: their login has to be there (AUTHZ-33)."""

    is_alive: Callable[[str], Awaitable[bool]] = field(kw_only=True)

    async def verify(self, token: str) -> Principal:
        """See `ResourceServer`."""
        principal = await ResourceServer.verify(self, token)
        if not await self.is_alive(str(principal.claims.get("sid"))):
            raise TokenRefused("the login has ended")
        return principal


@define(eq=False, repr=False)
class AuthorizationServer:
    """The authorization server of one server, which is its only resource.

    Args:
        runtime: of the server.
        path: of its endpoint.

    Attributes:
        paths: the paths that it answers at, all of them without a token.
        resource_server: verifies its tokens.

    Raises:
        UsageError: a setting is missing, or does not go with another one.
    """

    _runtime: ServerRuntime
    _path: str
    _settings: AuthorizationSection = field(init=False)
    _url: str = field(init=False)
    _base: str = field(init=False)
    _cookie: str = field(init=False)
    _transactions: Seal = field(init=False)
    _clients: Clients = field(init=False)
    _provider: IdentityProvider = field(init=False)
    _key: SigningKey = field(init=False)
    _store: LoginStore = field(init=False)
    _logins: Logins = field(init=False)
    _answers: dict[str, Callable[[_Exchange], Awaitable[None]]] = field(init=False)
    resource_server: OwnResourceServer = field(init=False)
    paths: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        config = self._runtime.config
        self._settings = settings = config.authorization
        state_key = check_settings(self._runtime)
        self._url = settings.url or ""
        self._base = self._url.rstrip("/")
        metadata = f"{METADATA}{urlsplit(self._base).path}"
        self._answers = {
            AUTHORIZE: self._authorize,
            CONSENT: self._consent,
            CALLBACK: self._come_back,
            TOKEN: self._give_token,
            REGISTER: self._register,
            REVOKE: self._revoke,
        }
        self.paths = frozenset((*self._answers, KEYS, METADATA, metadata))
        is_secure = self._url.startswith("https:")
        self._cookie = "__Host-login" if is_secure else "login"
        clock, logger = self._runtime.clock, self._runtime.logger
        self._transactions = Seal(state_key, b"foundation-rt authorization 1\n")
        timed = (_EXCHANGE_SECONDS, _EXCHANGE_SECONDS, MAX_METADATA_BYTES)
        self._clients = Clients(
            Seal(state_key, b"foundation-rt clients 1\n"),
            settings.redirect_uris,
            AuthExchanges(*timed, public_network()),
            clock.monotonic,
        )
        callback = f"{self._base}{CALLBACK}"
        self._provider = IdentityProvider(settings, callback, AuthExchanges(*timed), clock, logger)
        check_allowed(settings, self._provider.row)
        self._key = SigningKey(state_key)
        self._store = make_store(settings.store)
        # Another server with this key and this store has other people, and another audience.
        sealed = Seal(state_key, f"foundation-rt logins 1\n{self._url}".encode())
        self._logins = Logins(
            settings, self._store, sealed, clock, self._access_token, self._provider.renew
        )
        audience = config.oauth.audience or f"{self._base}{self._path}"
        oauth = OauthSection(self._url, audience, None, config.oauth.scopes, (ALGORITHM,))
        self.resource_server = OwnResourceServer(oauth, self._key, clock, is_alive=self._is_alive)
        if settings.keep_provider_tokens:
            self._runtime.engine.part(ProviderTokens).find = self._provider_token

    async def start(self, is_one_of_several: bool) -> None:
        """Open the store, on the event loop of all requests.

        Raises:
            UsageError: it is in memory, and there are several workers; or it cannot be opened.
        """
        if is_one_of_several and self._settings.store == "memory":
            raise UsageError(
                "authorization.store is memory, which workers do not share: set it to sqlite:PATH,"
                " or with several hosts to redis://..."
            )
        await self._store.start()

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, path: str, head: RequestHead
    ) -> HttpRefusal | None:
        """Answer a request at one of the paths, or return why it is refused."""
        method = str(scope["method"])
        if path.startswith(METADATA):
            await send_json(send, 200, self._metadata(), _READABLE_BY_ALL)
            return None
        if path == KEYS:
            await send_json(send, 200, orjson.dumps(self._key.public), _READABLE_BY_ALL)
            return None
        reads = path in (AUTHORIZE, CALLBACK)
        if method not in (("GET", "HEAD") if reads else ("POST",)):
            allow = b"GET" if reads else b"POST"
            return HttpRefusal(
                405,
                f"Method not allowed: use {allow.decode()}",
                reason="method_not_allowed",
                headers=((b"allow", allow),),
            )
        query: bytes = scope["query_string"]
        body = query if reads else await read_body(head, receive, self._runtime.config.http)
        if isinstance(body, HttpRefusal):
            return body
        exchange = _Exchange(scope, send, body)
        try:
            await self._answer(exchange, path)
        except StoreUnavailable as error:
            self._log_failure(error)
            await self._unavailable(exchange, path)
        except (ProviderError, IntrospectionUnavailable):
            await self._unavailable(exchange, path)
        return None

    async def _answer(self, exchange: _Exchange, path: str) -> None:
        try:
            await self._answers[path](exchange)
        except Denied as denied:
            self._audit("AUTHORIZATION_REFUSED", False, reason=str(denied))
            await exchange.page(400, problem_page(denied.title, str(denied)))

    async def _unavailable(self, exchange: _Exchange, path: str) -> None:
        text = "It cannot be asked at the moment who you are. Try again in a minute."
        if path in (AUTHORIZE, CONSENT, CALLBACK):
            await exchange.page(503, problem_page("Try again", text))
        else:
            await exchange.error(503, "temporarily_unavailable", "try again in a minute")

    # -- who it is

    def _metadata(self) -> bytes:
        """Return the metadata of RFC 8414."""
        scopes = self._runtime.config.oauth.scopes
        document = {
            "issuer": self._url,
            "authorization_endpoint": f"{self._base}{AUTHORIZE}",
            "token_endpoint": f"{self._base}{TOKEN}",
            "registration_endpoint": f"{self._base}{REGISTER}",
            "revocation_endpoint": f"{self._base}{REVOKE}",
            "jwks_uri": f"{self._base}{KEYS}",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
            **({"scopes_supported": [*scopes]} if scopes else {}),
        }
        return orjson.dumps(document)

    async def _register(self, exchange: _Exchange) -> None:
        """Register a client, of which nothing is kept (RFC 7591)."""
        try:
            document = orjson.loads(exchange.body) if exchange.is_short else None
            client = self._clients.register(document)
        except (ClientError, ValueError) as error:
            code = error.code if isinstance(error, ClientError) else "invalid_client_metadata"
            text = str(error) if isinstance(error, ClientError) else "the body is no JSON"
            self._audit("CLIENT_REFUSED", False, reason=text)
            await exchange.error(400, code, text)
            return
        self._audit("CLIENT_REGISTERED", True, client=client.client_id)
        answer = {
            "client_id": client.client_id,
            "client_id_issued_at": int(self._now()),
            "redirect_uris": list(client.redirect_uris),
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            **({"client_name": client.name} if client.name else {}),
        }
        await exchange.json(201, answer)

    # -- a person, and their agreement

    async def _authorize(self, exchange: _Exchange) -> None:
        """Show the page that asks for consent."""
        said = exchange.parameters()
        uri = said.get("redirect_uri", "")
        client = await self._client_at(said.get("client_id", ""), uri)
        state = said.get("state", "")
        if len(state) > MAX_STATE:
            raise Denied(f"state has at most {MAX_STATE} characters")
        scopes = _scopes_of(said) or self._runtime.config.oauth.scopes
        challenge = said.get("code_challenge", "")
        problem = self._problem_of(said, challenge, scopes)
        asked = AskedLogin(client.client_id, uri, state, challenge, scopes, self._now())
        if problem is not None:
            self._audit("AUTHORIZATION_REFUSED", False, client=client.client_id, reason=problem[0])
            answer = {"error": problem[0], "error_description": problem[1]}
            await self._send_back(exchange, asked, answer)
            return
        self._audit("AUTHORIZATION_REQUESTED", True, client=client.client_id)
        browser = exchange.cookies().get(self._cookie, "")
        if not _RANDOM.fullmatch(browser):
            browser = token_urlsafe(32)
        sealed = self._transactions.seal(asked.dump(), _of_browser(b"form", browser))
        if len(sealed) > _MAX_COOKIE - _MAX_ADDED:
            raise Denied("the request is too long")
        page = consent_page(
            f"{urlsplit(self._base).path}{CONSENT}",
            sealed,
            self._runtime.config.server.name,
            client.name,
            client.client_id,
            host_of(uri),
            scopes,
            self._provider.row.title,
        )
        await exchange.page(200, page, [self._set_cookie(self._cookie, browser)])

    def _problem_of(
        self, said: Mapping[str, str], challenge: str, scopes: tuple[str, ...]
    ) -> tuple[str, str] | None:
        """Return the error of a request whose client may be told, with a text."""
        if said.get("response_type") != "code":
            return "unsupported_response_type", "response_type is code"
        if said.get("code_challenge_method") != "S256" or not _RANDOM.fullmatch(challenge):
            return "invalid_request", "code_challenge has to be there, of the method S256"
        if not self._is_ours(said.get("resource")):
            return "invalid_target", "resource is another server"
        if len(scopes) > MAX_SCOPES or any(not "!" <= c <= "~" for each in scopes for c in each):
            return "invalid_scope", "a scope is none"
        if said.get("prompt") == "none":
            return "interaction_required", "a person has to agree, each time"
        return None

    def _is_ours(self, resource: str | None) -> bool:
        """Return whether a token may be for this resource (RFC 8707)."""
        return resource is None or resource.rstrip("/") == self.resource_server.resource

    async def _client_at(self, client_id: str, uri: str) -> LoginClient:
        """Return a client that may be at a redirect URI.

        Raises:
            Denied: there is none.
        """
        try:
            client = await self._clients.find(client_id)
        except ClientError as error:
            raise Denied(str(error)) from None
        if not client.allows(uri) or not is_allowed(uri, self._settings.redirect_uris):
            raise Denied("the program has not registered the address that it wants to be sent to")
        return client

    async def _consent(self, exchange: _Exchange) -> None:
        """Take the answer of a person; send the browser to the provider, or back."""
        said, browser = exchange.parameters(), exchange.cookies().get(self._cookie, "")
        asked = self._open(said.get("transaction", ""), _of_browser(b"form", browser))
        if asked is None or not browser:
            raise Denied("Begin the login again, in the program. Cookies have to be allowed.")
        if said.get("answer") != "yes":
            self._audit("CONSENT_DENIED", False, client=asked.client_id)
            await self._send_back(exchange, asked, {"error": "access_denied"})
            return
        self._audit("CONSENT_GIVEN", True, client=asked.client_id)
        state, nonce, verifier = token_urlsafe(16), token_urlsafe(16), token_urlsafe(32)
        asked = evolve(asked, nonce=nonce, verifier=verifier)
        sealed = self._transactions.seal(asked.dump(), _of_browser(state.encode(), browser))
        page = await self._provider.page(state, nonce, verifier)
        await exchange.redirect(page, [self._set_cookie(self._of_state(state), sealed)])

    async def _come_back(self, exchange: _Exchange) -> None:
        """Take the answer of the provider; send the browser to the client, with a code."""
        said, cookies = exchange.parameters(), exchange.cookies()
        state, browser = said.get("state", ""), cookies.get(self._cookie, "")
        sealed = cookies.get(self._of_state(state), "")
        asked = self._open(sealed, _of_browser(state.encode(), browser))
        if asked is None or not asked.verifier or not browser:
            raise Denied("This browser has not begun this login, or it took too long. Begin again.")
        over = [self._set_cookie(self._of_state(state), "", 0)]
        try:
            person, tokens = await self._provider.enter(said, asked.nonce, asked.verifier)
        except ProviderError as error:
            self._audit("LOGIN_FAILED", False, client=asked.client_id, reason=str(error))
            await self._send_back(exchange, asked, {"error": error.code}, over)
            return
        if not person.is_among(self._settings.allow):
            self._audit("LOGIN_REFUSED", False, client=asked.client_id, subject=person.subject)
            text = f"{person.shown} may not use this server."
            page = problem_page("Not allowed", text)
            await exchange.page(403, page, over)
            return
        login = Login(
            asked.client_id, asked.redirect_uri, asked.challenge, asked.scopes, person, tokens, ""
        )
        code = await self._logins.begin(login)
        self._audit("LOGIN_COMPLETED", True, client=asked.client_id, subject=person.subject)
        await self._send_back(exchange, asked, {"code": code}, over)

    def _open(self, sealed: str, bound: bytes) -> AskedLogin | None:
        """Return a transaction that this browser has brought back; None if it is over, or none."""
        content = self._transactions.open(sealed, bound)
        if content is None:
            return None
        client_id, uri, state, challenge, scopes, asked_at, *rest = orjson.loads(content)
        if self._now() > asked_at + _TRANSACTION_SECONDS:
            return None
        return AskedLogin(client_id, uri, state, challenge, tuple(scopes), asked_at, *rest)

    async def _send_back(
        self,
        exchange: _Exchange,
        asked: AskedLogin,
        answer: Mapping[str, str],
        headers: Sequence[RawHeader] = (),
    ) -> None:
        """Send the browser to the client, whose address is checked once more (AUTHZ-12)."""
        await self._client_at(asked.client_id, asked.redirect_uri)
        said = {**answer, "iss": self._url}
        if asked.state:
            said["state"] = asked.state
        separator = "&" if "?" in asked.redirect_uri else "?"
        await exchange.redirect(f"{asked.redirect_uri}{separator}{urlencode(said)}", headers)

    def _of_state(self, state: str) -> str:
        return f"{self._cookie}-{state[:32]}"

    def _set_cookie(self, name: str, value: str, age: int = _TRANSACTION_SECONDS) -> RawHeader:
        secure = "; Secure" if self._url.startswith("https:") else ""
        text = f"{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}"
        return b"set-cookie", text.encode("ascii")

    # -- tokens

    async def _give_token(self, exchange: _Exchange) -> None:
        """Answer a client with tokens."""
        said = exchange.form()
        if said is None or not self._is_ours(said.get("resource")):
            code = "invalid_request" if said is None else "invalid_target"
            await exchange.error(400, code, "the request cannot be used")
            return
        client_id = said.get("client_id", "")
        if not client_id.startswith("https://") and self._clients.registered(client_id) is None:
            self._audit("TOKEN_REFUSED", False, reason="invalid_client")
            await exchange.error(401, "invalid_client", "this server does not know the client")
            return
        kind = said.get("grant_type")
        if kind not in ("authorization_code", "refresh_token"):
            await exchange.error(400, "unsupported_grant_type", "code or refresh token")
            return
        try:
            if kind == "refresh_token":
                token, scopes = said.get("refresh_token", ""), _scopes_of(said)
                login, answer = await self._logins.refresh(token, client_id, scopes)
            else:
                verifier = said.get("code_verifier", "")[:_MAX_VERIFIER]
                login, answer = await self._logins.redeem(
                    said.get("code", ""), client_id, said.get("redirect_uri"), verifier
                )
        except GrantRefused as refused:
            subject = None if refused.login is None else refused.login.person.subject
            self._audit(refused.event, False, client_id, subject, refused.code)
            await exchange.error(400, refused.code, _REFUSALS[refused.code])
            return
        event = "TOKEN_ISSUED" if kind == "authorization_code" else "TOKEN_REFRESHED"
        self._audit(event, True, client=client_id, subject=login.person.subject)
        await exchange.json(200, answer)

    async def _revoke(self, exchange: _Exchange) -> None:
        """End the login of a token (RFC 7009); a token that is none is no error."""
        said = exchange.form() or {}
        token, client_id = said.get("token", ""), said.get("client_id", "")
        login = None
        if token.count(".") == 2:
            try:
                principal = await self.resource_server.verify(token)
            except TokenRefused:
                principal = None
            if principal is not None and principal.client_id == client_id:
                await self._logins.revoke(str(principal.claims["sid"]))
                self._audit("TOKEN_REVOKED", True, client=client_id, subject=principal.subject)
        else:
            login = await self._logins.revoke_token(token, client_id)
        if login is not None:
            subject = login.person.subject
            self._audit("TOKEN_REVOKED", True, client=client_id, subject=subject)
        await exchange.json(200, {})

    def _access_token(self, login: Login, key: str) -> str:
        now, person = int(self._now()), login.person
        claims = {
            "iss": self._url,
            "aud": self.resource_server.resource,
            "sub": person.subject,
            "client_id": login.client_id,
            "scope": " ".join(login.scopes),
            "iat": now,
            "exp": now + self._settings.access_ttl_ms // 1000,
            "jti": token_urlsafe(16),
            "sid": key,
            "email": person.email,
            "name": person.name,
        }
        return self._key.sign({name: each for name, each in claims.items() if each is not None})

    async def _provider_token(self, principal: Principal) -> str | None:
        """Return the token of `ctx.provider_token()`; None if there is none (AUTHZ-34)."""
        key = principal.claims.get("sid")
        if key is None:
            return None
        try:
            return await self._logins.provider_token(str(key))
        except GrantRefused as refused:
            if refused.login is not None:
                self._audit(refused.event, False, principal.client_id, principal.subject)
        except StoreUnavailable as error:
            self._log_failure(error)
        except ProviderError:  # it is in the log
            pass
        return None

    async def _is_alive(self, key: str) -> bool:
        try:
            return await self._logins.is_alive(key)
        except StoreUnavailable as error:
            self._log_failure(error)
            raise IntrospectionUnavailable from None

    # -- small things

    def _log_failure(self, error: StoreUnavailable) -> None:
        fields = {"error": {"type": str(error)}}
        self._runtime.logger.error("the store of logins does not answer", fields)

    def _now(self) -> float:
        return self._runtime.clock.now().timestamp()

    def _audit(
        self,
        event: str,
        success: bool,
        client: str | None = None,
        subject: str | None = None,
        reason: str | None = None,
    ) -> None:
        if self._runtime.audit is None:
            return
        shown = None if client is None else client[:64]
        metadata = None if reason is None else {"reason": reason}
        self._runtime.audit.write(
            event, "SECURITY", success, clientId=shown, subject=subject, metadata=metadata
        )


@define(eq=False, repr=False)
class _Exchange:
    """One request, and its answer.

    Attributes:
        body: its body, or its query.
    """

    _scope: Scope
    _send: Send
    body: bytes

    @property
    def is_short(self) -> bool:
        """Return whether the body is of a size that is looked at."""
        return len(self.body) <= MAX_BODY_BYTES

    def form(self) -> dict[str, str] | None:
        """Return the parameters, each of which is there once; None if they cannot be read."""
        if not self.is_short:
            return None
        try:
            pairs = parse_qsl(self.body.decode(), keep_blank_values=True, max_num_fields=50)
        except ValueError:
            return None
        found = dict(pairs)
        return found if len(found) == len(pairs) else None

    def parameters(self) -> dict[str, str]:
        """Return them for a page.

        Raises:
            Denied: they cannot be read.
        """
        found = self.form()
        if found is None:
            raise Denied("the request cannot be read")
        return found

    def cookies(self) -> dict[str, str]:
        """Return the cookies of the browser."""
        text = b"; ".join(value for name, value in self._scope["headers"] if name == b"cookie")
        pairs = (each.partition("=") for each in text.decode("latin-1").split(";"))
        return {name.strip(): value.strip() for name, _, value in pairs}

    async def page(self, status: int, page: bytes, headers: Sequence[RawHeader] = ()) -> None:
        """Send a page."""
        await send_body(self._send, status, HTML, page, [*HEADERS, *headers])

    async def redirect(self, url: str, headers: Sequence[RawHeader] = ()) -> None:
        """Send the browser elsewhere, by GET."""
        named = [(b"location", url.encode("ascii")), *HEADERS, *headers]
        await send_body(self._send, 303, HTML, b"", named)

    async def json(self, status: int, answer: Mapping[str, Any]) -> None:
        """Send an answer to a client."""
        await send_json(self._send, status, orjson.dumps(answer), ((b"pragma", b"no-cache"),))

    async def error(self, status: int, code: str, text: str) -> None:
        """Send an error to a client (RFC 6749, 5.2)."""
        await self.json(status, {"error": code, "error_description": text})


def _scopes_of(said: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(said.get("scope", "").split()))


def _of_browser(purpose: bytes, browser: str) -> bytes:
    return purpose + b"\n" + browser.encode()


def check_settings(runtime: ServerRuntime) -> str:
    """Return `security.state_key`, once the settings go together.

    Raises:
        UsageError: one is missing, or does not go with another one.
    """
    config, settings = runtime.config, runtime.config.authorization
    if config.oauth.issuer is not None or config.oauth.introspection_uri is not None:
        raise UsageError(
            "authorization.url makes this server the issuer: take away oauth.issuer and"
            " oauth.introspection_uri, or authorization.url"
        )
    for name in ("provider", "client_id"):
        if getattr(settings, name) is None:
            raise UsageError(f"authorization.{name} is missing")
    if (settings.client_secret is None) == (settings.client_key_file is None):
        raise UsageError(
            "authorization.client_secret or authorization.client_key_file: one of them is needed,"
            " from the provider"
        )
    if config.security.state_key is None:
        raise UsageError(
            "security.state_key is missing: it seals clients and logins, and signs tokens; make"
            " one with `openssl rand -hex 32`, the same for all workers"
        )
    return config.security.state_key
