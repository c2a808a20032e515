"""`ConversationOrchestrator`: the turns of all sessions (spec/host-orchestrator.md)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import define, field

from ....errors import UsageError
from ..chat import ChatMessage, Role
from ..events import Decision, ServerMessage
from .approvals import Approvals
from .pruning import prune
from .scope import TurnServices, session_key
from .settings import HistoryManagementOptions, OrchestratorSettings

if TYPE_CHECKING:
    from ...coordinator import Coordinator
    from ..llm.service import LLMService
    from .app_calls import AppCalls
    from .histories import ConversationHistories
    from .observation import TurnMetrics
    from .turn import ConversationTurn


@define(eq=False, init=False, repr=False)
class ConversationOrchestrator:
    """Runs the turns of sessions: one at a time in each, any number at once.

    It belongs to one event loop.
    """

    _services: TurnServices
    _turns: dict[str, ConversationTurn] = field(factory=dict)
    _apps: AppCalls | None = field(default=None)

    def __init__(
        self,
        llm: LLMService,
        coordinator: Coordinator,
        histories: ConversationHistories,
        settings: OrchestratorSettings | None = None,
        *,
        metrics: TurnMetrics | None = None,
        **more: Any,
    ) -> None:
        """Make an orchestrator; nothing is started.

        Args:
            llm: the model, initialized before the first turn.
            coordinator: has the tools, and the skills if its `lists` have them; started. Its
                `connections` have `connection_options`.
            histories: of the sessions.
            settings: of turns.
            metrics: count turns; None: nothing is counted.
            more: `new_id`, `now_ms` and `draw` of `TurnServices`, for tests.
        """
        chosen = settings or OrchestratorSettings()
        self._turns = {}
        self._apps = None
        self._services = TurnServices(
            llm=llm,
            coordinator=coordinator,
            histories=histories,
            settings=chosen,
            approvals=Approvals(coordinator, histories, chosen.approve_all),
            metrics=metrics,
            **more,
        )

    async def handle_input(
        self,
        session_id: str,
        text: str,
        *,
        turn_id: str | None = None,
        message_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[ServerMessage, None]:
        """Run one turn; yield its events: first `user`, last `turn` (TURN-01).

        To close the generator ends the turn at once; nothing of it runs on (TURN-08).

        Args:
            session_id: of the session.
            text: of the user.
            turn_id: names the turn; also the correlation id of its calls.
            message_id: of the user's message.
            metadata: of the user's message: `after` (CHAT-40), `model`, `files`, `pictures`.

        Raises:
            UsageError: a turn of this session is running.
        """
        from .turn import ConversationTurn  # with all that turns need: the page waits for none

        if session_id in self._turns:
            raise UsageError("a turn of this session is running: wait for its end, or stop it")
        message = ChatMessage(
            id=message_id or uuid4().hex, role=Role.USER, content=text, metadata=metadata or {}
        )
        turn = ConversationTurn(self._services, session_id, turn_id or uuid4().hex, message)
        self._turns[session_id] = turn
        try:
            turn.start()
            while (event := await turn.events.next()) is not None:
                yield event
        finally:
            try:
                await turn.close()
            finally:
                del self._turns[session_id]

    def stop(self, session_id: str) -> bool:
        """End the running turn of a session; return whether there was one (TURN-07)."""
        turn = self._turns.get(session_id)
        return turn is not None and turn.stop()

    def approve(self, session_id: str, call_id: str, decision: Decision) -> bool:
        """Decide on a call; return whether it counts: it waits, and this is the first (TURN-24)."""
        return self._services.approvals.pending.settle(session_id, call_id, decision)

    def answer(
        self,
        session_id: str,
        question_id: str,
        action: str,
        content: Mapping[str, Any] | None = None,
    ) -> bool:
        """Answer a question of a server; return whether it counts, as `approve` does (TURN-61).

        Args:
            session_id: of the session.
            question_id: as its event has it.
            action: `accept`, `decline` or `cancel`.
            content: of a form that is accepted.
        """
        return self._services.questions.settle(session_id, question_id, (action, content))

    @property
    def apps(self) -> AppCalls:
        """The apps of the tools that were called."""
        if self._apps is None:
            from .app_calls import AppCalls  # few chats have one

            self._apps = AppCalls(self._services)
        return self._apps

    def get_history(self, session_id: str) -> Sequence[ChatMessage]:
        """Return the messages of a session, from the oldest to the newest."""
        return self._services.histories.get_history(session_id)

    async def add_message_to_history(self, session_id: str, message: ChatMessage) -> None:
        """Add a message to a session, or replace the one of its id."""
        await self._services.histories.add_message(session_id, message)

    def prune_history(
        self, session_id: str, options: HistoryManagementOptions | None = None
    ) -> list[ChatMessage]:
        """Return what a model would read of a history (TURN-50)."""
        from .answers import fixed_tokens, guidance, model_tools

        services = self._services
        count, coordinator = services.llm.estimate_token_count, services.coordinator
        most = (options or services.settings.history).max_token_count
        base = services.settings.system_prompt
        tools = model_tools(services, session_id)
        fixed = fixed_tokens(base, tools, guidance(coordinator), count)
        return prune(self.get_history(session_id), max(most - fixed, most // 4), count)

    def create_system_message(
        self, content: str, metadata: Mapping[str, Any] | None = None
    ) -> ChatMessage:
        """Return a message of the role `system`."""
        services = self._services
        return ChatMessage(
            id=services.new_id(),
            role=Role.SYSTEM,
            content=content,
            created_at=services.now_ms(),
            metadata=metadata or {},
        )

    def abort_active_tool_execution(self, session_id: str, request_id: str) -> bool:
        """End one running call of a session; the model reads that it was ended (TURN-36).

        Args:
            session_id: of the session.
            request_id: the id of the call.

        Returns:
            Whether there was one.
        """
        turn = self._turns.get(session_id)
        return turn is not None and turn.calls.abort(request_id)

    async def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self.stop(session_id)
        self._services.approvals.forget(session_id)
        self._services.readers.forget(session_id)
        self._services.llm.forget_usage(session_id)
        coordinator = self._services.coordinator
        for server_id in coordinator.states:
            server = coordinator.server(server_id)
            if server is not None:
                server.end_session(session_key(session_id))
