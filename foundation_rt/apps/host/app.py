"""`Host`: a chat in which a model uses the tools of many servers (spec/host.md).

page, programs ─► runtime ─► web ─► sessions ─► orchestrator ─► model
                  (checks)          (store)          └────────► coordinator ─► servers
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ... import PageAccess, Server, UsageError
from ...base.config.sections import POSTGRES_SCHEMES
from ...base.database.errors import DatabaseError
from ...base.file_changes import FileWatch
from ...base.logs.python_records import records_written_to
from .llm.providers import RULES
from .orchestrator import (
    ConversationOrchestrator,
    HistoryManagementOptions,
    OrchestratorSettings,
    TurnMetrics,
)
from .sessions.memory import MemoryChatStore
from .sessions.sessions import ChatSessions
from .sessions.store import ChatStore, SessionSettings
from .settings import DEFAULT_PORT, MEMORY, SECTION, HostSettings
from .web.application import ChatApplication
from .web.status import HostStatus

if TYPE_CHECKING:
    from ...base.config.sections import Settings
    from ..coordinator import Coordinator
    from .llm.service import LLMService


log = logging.getLogger("foundation_rt.host")

NAME = "foundation-rt-host"
TITLE = "Chat host"

_DAY_MS = 24 * 3600 * 1000
_LOGGERS = ("foundation_rt.client", "foundation_rt.coordinator", "foundation_rt.host")
_TURNS_AFTER_S = 0.3
"""Seconds after the start in which the page is served, before the modules of turns are loaded."""
_TURN_SHARE = 0.4
"""The share of the shutdown budget in which turns without a connection may end."""


def make_server(
    config: Mapping[str, Mapping[str, Any]] | None = None,
    sections: Mapping[str, type[Settings]] | None = None,
) -> Server:
    """Return a server for a host, with the section `host`.

    Args:
        config: settings in code, by section; they win over the defaults of a host.
        sections: further sections of configuration, by name.
    """
    given = dict(config or {})
    given["http"] = {"port": DEFAULT_PORT, **given.get("http", {})}
    own: dict[str, type[Settings]] = {SECTION: HostSettings, **(sections or {})}
    return Server(NAME, title=TITLE, config=given, sections=own)


def is_for_many(server: Server) -> bool:
    """Return whether users come besides the person at the page: by a key or an issuer (HOST-67)."""
    config = server.load_config()
    return bool(config.http.api_keys) or config.has_issuer()


@define(eq=False, repr=False, init=False)
class Host:
    """A chat host: a model, servers, chats, and the page, behind one `Server`.

    ::

        app = Host(Coordinator.from_file("mcp.json"), make_service(config)).asgi_app()

    It starts coordinator and model with the server's lifespan, and closes them with it. No client
    waits for either.

    Attributes:
        server: serves it.
        page_access: with which people open the page; None without authentication.
        keys: a file of keys, and what is done when it has changed (HOST-06).
    """

    server: Server
    page_access: PageAccess | None
    keys: tuple[FileWatch, Callable[[], object]] | None
    _coordinator: Coordinator
    _llm: LLMService
    _sessions: ChatSessions
    _status: HostStatus
    _application: ChatApplication
    _settings: HostSettings
    _draining_since: float | None
    _initializing: asyncio.Task[None] | None = field(default=None)
    _loading: asyncio.Task[None] | None = field(default=None)
    _watching: asyncio.Task[None] | None = field(default=None)

    def __init__(
        self,
        coordinator: Coordinator,
        llm: LLMService,
        store: ChatStore | str = MEMORY,
        *,
        server: Server | None = None,
        hint: str | None = None,
        is_demo: bool = False,
        endpoint: bool = False,
    ) -> None:
        """Make a host; nothing is started.

        Args:
            coordinator: of the servers; its `connections` have `connection_options`, and its
                `lists` have `skills` where the model may read them.
            llm: the model.
            store: of the chats: `memory`, `sqlite:FILE`, `postgresql://...`, or an object.
            server: with the section `host`, not started yet; by default that of `make_server`.
            hint: Markdown that the page shows: what is missing, and how to add it.
            is_demo: whether the servers are an example.
            endpoint: whether `server` has something to serve over MCP, as a gateway has (HOST-37).

        Raises:
            ConfigError: lists every problem of the configuration.
            UsageError: there can be no such store, or the key of the page cannot be kept.
        """
        self.server = server or make_server()
        config = self.server.load_config()
        self._settings = settings = config.section(HostSettings)
        self._coordinator, self._llm = coordinator, llm
        limits = SessionSettings(keep_ms=settings.keep_chats_days * _DAY_MS)
        opened = open_store(store, limits) if isinstance(store, str) else store
        self._sessions = ChatSessions(opened, limits)
        self._sessions.run_turns_with(
            ConversationOrchestrator(
                llm,
                coordinator,
                self._sessions,
                orchestrator_settings(settings),
                metrics=TurnMetrics(self.server),
            )
        )
        self._status = HostStatus(coordinator, llm, hint, is_demo, is_for_many(self.server))
        self._draining_since = self._initializing = self._loading = self._watching = None
        self.keys = None
        self.page_access = (
            None
            if config.http.no_auth
            else PageAccess.of_user(NAME, config.http.port, config.security.state_key)
        )
        self._application = application = ChatApplication(
            self._sessions, self._status, settings.silence_ms / 1000, self._begin_drain
        )
        self.server.http_app(
            application,
            public=application.page_paths,
            page_access=self.page_access,
            endpoint=endpoint,
        )
        self.server.lifespan(self._live)
        self.server.readiness_check("store")(self._store_is_there)

    def asgi_app(self) -> Any:
        """Return the host as an ASGI application, to be served or mounted (HOST-02).

        Raises:
            UsageError: see `Server.asgi_app`.
        """
        return self.server.asgi_app()

    def page_url(self, base: str) -> str:
        """Return the URL with which a person opens the page (HOST-08).

        Args:
            base: of the server, with a slash at its end.
        """
        return base if self.page_access is None else self.page_access.url(base)

    @property
    def connections(self) -> int:
        """The number of WebSockets that are connected."""
        return self._status.listeners

    # -- life -------------------------------------------------------------------------------------

    async def _live(self, server: Server) -> AsyncIterator[None]:
        with records_written_to(server.runtime.logger, _LOGGERS):
            try:
                await self._start()
                yield
            finally:
                await self._close()

    async def _start(self) -> None:
        fields = {
            "component": "Host",
            "action": "configuration_loaded",
            "model": self._llm.label,
            "toolMode": self._settings.tool_mode,
            "maxSize": self._settings.max_token_count,
            "store": self._settings.store.partition(":")[0],
        }
        log.info("configuration_loaded", extra={"fields": fields})
        self._coordinator.start()
        try:
            await self._sessions.start()
        except DatabaseError as error:
            raise UsageError(
                f"the store of chats cannot be used: {error}; start the database, or correct"
                " --store (host.store)"
            ) from None
        provider, _, model = self._llm.label.partition(":")
        if not model and provider != RULES:
            await self._llm.initialize()  # it may list several models: then the start is refused
        else:
            self._initializing = asyncio.create_task(self._initialize())
        self._loading = asyncio.create_task(_load_turns())
        if self.keys is not None:
            self._watching = asyncio.create_task(self._keep_reading(*self.keys))

    async def _initialize(self) -> None:
        """Get the model ready, which nobody waits for; turns try again themselves."""
        try:
            await self._llm.initialize()
        except UsageError as error:
            self._status.model_problem = f"The model cannot be used: {error}"
            log.error("the model cannot be used: %s", error)
        except Exception:
            log.exception("the model cannot be used")
        else:
            self._status.model_problem = None

    async def _close(self) -> None:
        budget = self.server.load_config().server.shutdown_timeout_ms / 1000 * _TURN_SHARE
        if self._draining_since is not None:
            budget -= time.monotonic() - self._draining_since
        for task in (self._initializing, self._loading, self._watching):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        await self._application.close()
        await self._status.close()
        await self._sessions.close(max(0.0, budget))
        await self._llm.close()
        await self._coordinator.close()

    def _begin_drain(self) -> None:
        """Begin no turn any more: the server stops (HOST-28)."""
        if self._draining_since is None:
            self._draining_since = time.monotonic()
            self._sessions.is_closing = True

    async def _keep_reading(self, watch: FileWatch, read: Callable[[], object]) -> None:
        while True:
            await watch.changed()
            read()
            self._try_model_again()

    def _try_model_again(self) -> None:
        initializing = self._initializing
        if self._status.model_problem and initializing is not None and initializing.done():
            self._initializing = asyncio.create_task(self._initialize())

    async def _store_is_there(self) -> bool:
        """Return True for a readiness check.

        Raises:
            LookupError: the store cannot be used.
        """
        if not self._sessions.is_available:
            raise LookupError("the store of chats cannot be used")
        return True


async def _load_turns() -> None:
    """Load the modules of turns in a thread, so that no first message waits (HOST-39)."""
    await asyncio.sleep(_TURNS_AFTER_S)
    await asyncio.to_thread(import_module, "foundation_rt.apps.host.orchestrator.turn")
    log.debug("what turns need is loaded")


def orchestrator_settings(settings: HostSettings) -> OrchestratorSettings:
    """Return the settings of turns, of the section `host`."""
    return OrchestratorSettings(
        max_rounds=settings.max_rounds,
        max_repeats=settings.max_repeats,
        turn_timeout_ms=settings.turn_timeout_ms,
        approval_timeout_ms=settings.approval_timeout_ms,
        retry_attempts=settings.retry_attempts,
        retry_delay_ms=settings.retry_delay_ms,
        approve_all=settings.approve_all,
        roots=[Path(each) for each in settings.roots],
        system_prompt=settings.system_prompt or "",
        history=HistoryManagementOptions(
            max_token_count=settings.max_token_count,
            summarization_threshold=settings.summarization_threshold or None,
        ),
    )


_SQLITE = "sqlite:"


def open_store(dsn: str, settings: SessionSettings | None = None) -> ChatStore:
    """Return the store of a setting; `ChatSessions.start` opens it.

    Args:
        dsn: `memory`, `sqlite:FILE` or `postgresql://user:password@host:port/database`.
        settings: of sessions.

    Raises:
        UsageError: it is none of these; the message says what to write, and no password.
        MissingExtraError: PostgreSQL needs the extra `postgres`.
    """
    settings = settings or SessionSettings()
    if dsn == MEMORY:
        return MemoryChatStore(settings)
    if dsn.startswith(_SQLITE) and len(dsn) > len(_SQLITE):
        from .sessions.sqlite import SqliteChatStore

        return SqliteChatStore(dsn.removeprefix(_SQLITE), settings)
    if dsn.startswith(POSTGRES_SCHEMES):
        from .sessions.postgres import PostgresChatStore

        return PostgresChatStore(dsn, settings)
    raise UsageError(
        "the store of chats cannot be read: write memory, sqlite:FILE or"
        " postgresql://user:password@host:port/database"
    )
