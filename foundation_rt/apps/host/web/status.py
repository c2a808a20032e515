"""The state of model and servers, and who is told when it changes (HOST-31, HOST-32).

`ModelList` has the models that people may choose from: those that the provider lists (HOST-61).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from .... import __version__
from ...web_page.logins import PageLogins
from ..events import ServerMessage
from ..llm.service import ModelTool
from ..orchestrator.skills import OfferedSkills
from ..texts import too_many_tools
from ..tool_apps import tools_for_model, ui_of

if TYPE_CHECKING:
    from ....client import Skill
    from ...coordinator import Coordinator
    from ..llm.service import LLMService


POLL_SECONDS = 0.5


@define(eq=False)
class HostStatus:
    """The state that the page shows beside the chat. It belongs to one event loop.

    Attributes:
        hint: Markdown for people: what is missing, and how to add it; None without any.
        is_demo: the servers are the built-in demo server alone.
        is_for_many: several users come, who would act as whoever logs in.
        logins: at the servers.
        model_problem: why the model cannot be used; None if it can, or nobody knows yet.
    """

    coordinator: Coordinator
    llm: LLMService
    hint: str | None = None
    is_demo: bool = False
    is_for_many: bool = False
    logins: PageLogins = field(init=False)
    _skills: OfferedSkills = field(init=False)
    model_problem: str | None = field(default=None, init=False)
    _listeners: set[Callable[[ServerMessage], object]] = field(factory=set, init=False)
    _watching: asyncio.Task[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.logins = PageLogins(self.coordinator, not self.is_for_many)
        self._skills = OfferedSkills(self.coordinator)

    def to_json(self) -> dict[str, Any]:
        """Return the whole state, with the tools and skills of the servers."""
        provider, _, model = self.llm.label.partition(":")
        hints = [self.model_problem, *self.llm.notes, self._tools_hint(), self.hint]
        return {
            "provider": provider,
            "model": model,
            "takesPictures": self.llm.takes_pictures,
            "servers": self._servers_in_full(),
            "demo": self.is_demo,
            "hint": "\n\n".join(filter(None, hints)) or None,
            "version": __version__,
        }

    def _tools_hint(self) -> str | None:
        most, total = self.llm.max_tools, len(tools_for_model(self.coordinator))
        return None if most is None or total <= most else too_many_tools(total, most)

    def message(self) -> ServerMessage:
        """Return the states of the servers for the page."""
        return ServerMessage("servers", {"servers": self._servers()})

    def listen(self, listener: Callable[[ServerMessage], object]) -> None:
        """Call a function with each change of the servers, from now on."""
        self._listeners.add(listener)
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def unlisten(self, listener: Callable[[ServerMessage], object]) -> None:
        """Call a function no longer."""
        self._listeners.discard(listener)

    @property
    def listeners(self) -> int:
        """The number of functions that are called."""
        return len(self._listeners)

    async def close(self) -> None:
        """Stop watching, and end the logins."""
        await self.logins.close()
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        """Compare the states twice a second, as long as anybody listens."""
        before = self.message()
        while self._listeners:
            await asyncio.sleep(POLL_SECONDS)
            now = self.message()
            if now != before:
                before = now
                for listener in tuple(self._listeners):
                    listener(now)
        self._watching = None

    def _servers_in_full(self) -> list[dict[str, Any]]:
        tools: dict[str, list[dict[str, Any]]] = {}
        for entry in self.coordinator.tools:
            notes = self.llm.tool_notes(ModelTool.of(entry))
            shown = _tool(entry.definition.wire) | ({"forModel": [*notes]} if notes else {})
            if not ui_of(entry).for_model:
                shown["forApps"] = True
            tools.setdefault(entry.server_id, []).append(shown)
        skills: dict[str, list[dict[str, Any]]] = {}
        for each in self._skills.all().values():
            skills.setdefault(each.server_id, []).append(_skill(each.skill))
        return [
            {**each, "tools": tools.get(each["id"], []), "skills": skills.get(each["id"], [])}
            for each in self._servers()
        ]

    def _servers(self) -> list[dict[str, Any]]:
        return [
            {
                "id": each.server_id,
                "state": each.state.value,
                "reason": each.reason,
                "circuit": each.circuit.value.lower(),
                "lastError": each.last_error,
                "login": self.logins.state(each.server_id),
                "tools": each.tools,
                "skills": self._listed_skills(each.server_id),
            }
            for each in self.coordinator.states.values()
        ]

    def _listed_skills(self, server_id: str) -> int:
        server = self.coordinator.server(server_id)
        return 0 if server is None else len(server.definitions("skills"))


def _skill(skill: Skill) -> dict[str, Any]:
    return {"name": skill.name, "description": skill.description, "uri": skill.uri}


def _tool(definition: Any) -> dict[str, Any]:
    members = ("name", "title", "description", "inputSchema", "annotations")
    return {name: definition[name] for name in members if definition.get(name) is not None}


log = logging.getLogger("foundation_rt.host.web")

MAX_MODELS = 500
_MAX_NAME = 256
_TIMEOUT_S = 10.0
_KEPT_S, _FAILURE_KEPT_S = 600.0, 30.0


@define(eq=False)
class ModelList:
    """The list of one provider. It is asked for when somebody wants it, and kept for 10 minutes."""

    _llm: LLMService
    _names: tuple[str, ...] = field(default=(), init=False)
    _good_until: float = field(default=0.0, init=False)
    _asking: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    @property
    def is_known(self) -> bool:
        """Return whether `names` returns at once."""
        return asyncio.get_running_loop().time() < self._good_until

    async def names(self) -> tuple[str, ...]:
        """Return the names, sorted, at most 500; () if the provider does not list them."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._good_until:
                kept = _KEPT_S
                try:
                    self._names = await self._ask()
                except Exception as error:
                    log.warning(
                        "the models cannot be listed: %s", str(error) or type(error).__name__
                    )
                    kept = _FAILURE_KEPT_S
                self._good_until = asyncio.get_running_loop().time() + kept
            return self._names

    async def _ask(self) -> tuple[str, ...]:
        async with asyncio.timeout(_TIMEOUT_S):
            listed: Sequence[Any] = await self._llm.list_models()  # None where an entry has no id
        names = {each for each in listed if isinstance(each, str) and 0 < len(each) <= _MAX_NAME}
        return tuple(sorted(each for each in names if each.isprintable())[:MAX_MODELS])
