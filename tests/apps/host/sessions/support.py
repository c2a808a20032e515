"""What tests of sessions share: a page that folds what it sees, and sessions that are running."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define, field

from foundation_rt.apps.host.events import ServerMessage
from foundation_rt.apps.host.sessions.connection import SessionConnection
from foundation_rt.apps.host.sessions.memory import MemoryChatStore
from foundation_rt.apps.host.sessions.session import ChatSession
from foundation_rt.apps.host.sessions.sessions import ChatSessions
from foundation_rt.apps.host.sessions.sqlite import SqliteChatStore
from foundation_rt.apps.host.sessions.store import ChatStore, SessionSettings
from tests.apps.host.sessions.fake_orchestrator import FakeOrchestrator
from tests.lab.places.services import postgres_schema

OWNER = "ada"


@define
class Page:
    """A chat as a page has it that was shown these messages.

    Attributes:
        seq: of the newest event.
        texts: by the id of their message.
        calls: by id: their state, and whether they failed.
        turns: by id: their newest state.
        histories: how often the whole chat came.
        seen: types of the events, or their states.
    """

    seq: int | None = None
    texts: dict[str, str] = field(factory=dict)
    calls: dict[str, tuple[str, bool]] = field(factory=dict)
    turns: dict[str, str] = field(factory=dict)
    approvals: set[str] = field(factory=set)
    questions: set[str] = field(factory=set)
    histories: int = 0
    seen: list[str] = field(factory=list)

    def show(self, message: ServerMessage) -> None:
        payload: Any = message.payload
        self.seen.append(payload["state"] if message.type == "turn" else message.type)
        if message.type == "history":
            self._show_history(payload)
            return
        assert self.seq is None or message.seq == self.seq + 1, (message.seq, self.seq)
        self.seq = message.seq
        match message.type:
            case "user":
                self.texts[payload["messageId"]] = payload["text"]
            case "text":
                name = payload["messageId"]
                self.texts[name] = self.texts.get(name, "") + payload["content"]
            case "status":
                self.calls[payload["callId"]] = (payload["state"], payload.get("isError", False))
            case "approval":
                change = set.discard if "decision" in payload else set.add
                change(self.approvals, payload["callId"])
            case "question":
                change = set.discard if "action" in payload else set.add
                change(self.questions, payload["questionId"])
            case "turn":
                assert message.turn_id is not None
                self.turns[message.turn_id] = payload["state"]

    def _show_history(self, payload: Any) -> None:
        self.histories += 1
        self.seq = payload["seq"]
        self.texts.clear()
        self.calls.clear()
        for each in payload["messages"]:
            if each["role"] == "tool":
                self.calls[each["callId"]] = ("complete", "error" in each["data"])
            elif "callId" in each:
                self.calls[each["callId"]] = ("processing", False)
            else:
                self.texts[each["id"]] = each["content"]
        self.approvals = {each["callId"] for each in payload["approvals"]}
        self.questions = {each["questionId"] for each in payload["questions"]}

    def chat(self) -> tuple[dict[str, str], dict[str, tuple[str, bool]]]:
        """Return what people see in the end, whichever way they came to see it."""
        return self.texts, self.calls


async def read_until(connection: SessionConnection, page: Page, *ends: str) -> ServerMessage:
    """Show a page what comes, up to an event of such a type or turn state."""
    async for message in connection:
        page.show(message)
        if page.seen[-1] in ends:
            return message
    raise AssertionError("the connection was closed")


async def read_to(connection: SessionConnection, page: Page, seq: int) -> None:
    """Show a page what comes up to a number."""
    while page.seq is None or page.seq < seq:
        page.show(await anext(connection))


async def tab(session: ChatSession) -> tuple[SessionConnection, Page]:
    """Open the chat, and read what there is."""
    connection, page = session.connect(None), Page()
    page.show(await anext(connection))
    return connection, page


async def whole_page(session: ChatSession) -> Page:
    """Return the page of somebody who opens the chat now."""
    connection, page = await tab(session)
    connection.close()
    return page


@define
class Running:
    """Sessions with their orchestrator."""

    sessions: ChatSessions
    orchestrator: FakeOrchestrator


NewStore = Callable[[SessionSettings], ChatStore]


def in_sqlite(stack: ExitStack) -> NewStore:
    """Return what makes a store in a new file."""
    path = Path(stack.enter_context(TemporaryDirectory())) / "chats.db"
    return lambda limits: SqliteChatStore(path, limits)


def in_postgresql(stack: ExitStack) -> NewStore:
    """Return what makes a store in a new schema."""
    from foundation_rt.apps.host.sessions.postgres import PostgresChatStore

    url, schema = stack.enter_context(postgres_schema())
    return lambda limits: PostgresChatStore(url, limits, schema=schema)


@asynccontextmanager
async def running(
    new_store: NewStore = MemoryChatStore, settings: SessionSettings | None = None
) -> AsyncIterator[Running]:
    """Run sessions on a store, of memory by default; end them at once."""
    settings = settings or SessionSettings()
    sessions = ChatSessions(new_store(settings), settings)
    orchestrator = FakeOrchestrator(sessions)
    sessions.run_turns_with(orchestrator)
    await sessions.start()
    try:
        yield Running(sessions, orchestrator)
    finally:
        await sessions.close(0)


@define
class Talk:
    """A chat that is open on a page."""

    host: Running
    session: ChatSession
    connection: SessionConnection
    page: Page = field(factory=Page)

    async def until(self, *ends: str) -> ServerMessage:
        """Show the page what comes, up to an event of such a type or turn state."""
        return await read_until(self.connection, self.page, *ends)

    async def say(self, text: str, *ends: str) -> ServerMessage:
        """Submit a message; show the page what comes, up to the end of its turn by default."""
        await self.session.submit(text, None)
        return await self.until(*ends or ("finished",))


@asynccontextmanager
async def talking(
    new_store: NewStore = MemoryChatStore, settings: SessionSettings | None = None
) -> AsyncIterator[Talk]:
    """Open a chat of the owner on sessions that are running."""
    async with running(new_store, settings) as host:
        session = await host.sessions.create(OWNER)
        yield Talk(host, session, *await tab(session))
