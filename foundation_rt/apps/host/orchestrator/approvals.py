"""Approvals: the calls that need one, and what people have decided before (TURN-20 to TURN-29).

A person decides on a subject: a tool, a skill, or a server's use of the model, by its name. What
is kept of a decision is one word for each subject, the newest: what the subject was when it was
allowed (its server's command or URL, and its whole definition), or a mark, with which it is asked
about each time. So neither a new definition, nor another server of that name, nor annotations undo
a refusal.

`PendingAnswers` are the approvals and questions that wait for a person; the first answer counts
(TURN-24).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson
from attrs import define, field, frozen

from ....base.exact_json import dumps
from ...coordinator import ToolRegistryEntry
from ..chat import MAX_DECISIONS
from ..events import Approval, Decision

if TYPE_CHECKING:
    from ....client import Skill
    from ...coordinator import Coordinator
    from .histories import ConversationHistories


Answer = TypeVar("Answer")


@define(eq=False)
class PendingAnswer(Generic[Answer]):
    """One thing that waits for a person."""

    _future: asyncio.Future[Answer]

    async def within(self, seconds: float) -> Answer | None:
        """Return the answer of a person; None if there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._future
        except TimeoutError:
            return None


@define(eq=False)
class PendingAnswers(Generic[Answer]):
    """The answers that are waited for, by session and id."""

    _waiting: dict[tuple[str, str], tuple[asyncio.Future[Answer], Collection[Answer]]] = field(
        factory=dict, init=False
    )

    @contextmanager
    def opened(
        self, session_id: str, wanted: str, answers: Collection[Answer] = ()
    ) -> Iterator[PendingAnswer[Answer]]:
        """Take answers to one thing within the block: any, or one of `answers`."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[session_id, wanted] = future, answers
        try:
            yield PendingAnswer(future)
        finally:
            del self._waiting[session_id, wanted]

    def settle(self, session_id: str, wanted: str, answer: Answer) -> bool:
        """Give an answer; return whether it counts: something waits for it, and it is the first."""
        future, answers = self._waiting.get((session_id, wanted), (None, ()))
        if future is None or future.done() or (answers and answer not in answers):
            return False
        future.set_result(answer)
        return True


OFFERED: tuple[Approval, ...] = ("once", "session", "always", "deny")
"""The decisions of every approval; `trust` is offered besides where it would help."""

REFUSING = ("deny", "unattended", "expired")
"""The decisions after which a call does not run."""

_MAX_ALLOWED = 1000
"""The most subjects that a session allows; further ones are asked about each time."""


@frozen
class Subject:
    """The tool, skill or server that people decide on, in hashes.

    Attributes:
        name: of its kind, its server's id and its own name.
        meaning: of its server's command or URL, and its definition.
        claims: whether its server says that it only reads, and has never said otherwise.
    """

    name: str
    meaning: str
    claims: bool = False


@frozen
class _Allowed:
    """A subject that a session allows, as long as nobody has decided on it since.

    Attributes:
        meaning: see `Subject`.
        since: the word that was kept for all sessions then.
    """

    meaning: str
    since: str | None


@define(eq=False)
class Approvals:
    """The approvals of all sessions.

    Args:
        coordinator: has the tools, and the settings of their servers.
        histories: keep what is decided for more than a session.
        approve_all: whether nothing is asked for.

    Attributes:
        pending: those that wait for a person.
    """

    _coordinator: Coordinator
    _histories: ConversationHistories
    approve_all: bool
    pending: PendingAnswers[Decision] = field(factory=PendingAnswers, init=False)
    _of_sessions: dict[str, dict[str, _Allowed]] = field(factory=dict, init=False)

    def needs_none(self, entry: ToolRegistryEntry) -> bool:
        """Return whether the settings of the host let a tool run without asking (TURN-21)."""
        if self.approve_all:
            return True
        server = self._coordinator.server(entry.server_id)
        patterns = () if server is None else server.settings.always_allow
        return any(fnmatchcase(entry.definition.name, pattern) for pattern in patterns)

    def tool(self, entry: ToolRegistryEntry) -> Subject:
        """Return the subject of a tool."""
        definition = entry.definition
        return Subject(
            _digest("tool", entry.server_id, definition.name),
            _digest("tool", self._identity(entry.server_id), definition.wire),
            definition.is_read_only and not entry.was_writing,
        )

    def skill(self, server_id: str, skill: Skill) -> Subject:
        """Return the subject of a skill: its front matter, and what each of its files is."""
        return Subject(
            _digest("skill", server_id, skill.uri),
            _digest("skill", self._identity(server_id), skill.wire),
        )

    def sampling(self, server_id: str) -> Subject:
        """Return the subject of a server's use of the model."""
        return self._of_server("sampling", server_id)

    async def is_allowed(self, session_id: str, subject: Subject) -> bool:
        """Return whether people have allowed a subject in this session (TURN-25)."""
        return self._word(session_id, subject, await self._known(session_id)) == subject.meaning

    async def may_run(self, session_id: str, server_id: str, subject: Subject) -> bool:
        """Return whether a tool may be called without asking (TURN-20, TURN-28)."""
        words = await self._known(session_id)
        word = self._word(session_id, subject, words)
        if word is not None or words is None:
            return word == subject.meaning
        # Of more decisions the oldest are forgotten, and one of them may be a refusal.
        is_complete = len(words) < MAX_DECISIONS
        return is_complete and subject.claims and self._trusts(words, server_id)

    async def offered(
        self, session_id: str, server_id: str, subject: Subject
    ) -> tuple[Approval, ...]:
        """Return what people can decide on a tool (TURN-29)."""
        if not subject.claims or self._trusts(await self._known(session_id) or {}, server_id):
            return OFFERED
        return (*OFFERED[:-1], "trust", OFFERED[-1])

    async def remember(
        self, session_id: str, server_id: str, subject: Subject, decision: Decision
    ) -> None:
        """Keep a decision of people for the calls to come."""
        if decision in ("unattended", "expired"):
            return
        known = (await self._known(session_id) or {}).get(subject.name)
        word = known
        if decision == "always" or (decision == "trust" and known is not None):
            word = subject.meaning
        elif decision == "deny" or (known is None and not subject.claims):
            word = secrets.token_hex(8)
        if word is not None and word != known:
            await self._histories.decide(session_id, subject.name, word)
        if decision == "trust":
            server = self._of_server("server", server_id)
            await self._histories.decide(session_id, server.name, server.meaning)
        allowed = self._of_sessions.setdefault(session_id, {})
        allowed.pop(subject.name, None)
        if decision == "session" and len(allowed) < _MAX_ALLOWED:
            allowed[subject.name] = _Allowed(subject.meaning, word)

    def forget(self, session_id: str) -> None:
        """Forget what was allowed in a session that has ended."""
        self._of_sessions.pop(session_id, None)

    async def _known(self, session_id: str) -> Mapping[str, str] | None:
        return await self._histories.decisions(session_id)

    def _word(
        self, session_id: str, subject: Subject, words: Mapping[str, str] | None
    ) -> str | None:
        """Return the word about a subject that counts in a session; None if there is none."""
        allowed = self._of_sessions.get(session_id, {}).get(subject.name)
        kept = None if words is None else words.get(subject.name)
        if allowed is not None and (words is None or kept == allowed.since):
            return allowed.meaning
        return kept

    def _trusts(self, words: Mapping[str, str], server_id: str) -> bool:
        """Return whether the annotations of a server are believed."""
        server = self._coordinator.server(server_id)
        if server is None or server.settings.trust:
            return server is not None
        subject = self._of_server("server", server_id)
        return words.get(subject.name) == subject.meaning

    def _of_server(self, kind: str, server_id: str) -> Subject:
        identity = self._identity(server_id)
        return Subject(_digest(kind, server_id), _digest(kind, identity), claims=True)

    def _identity(self, server_id: str) -> str:
        server = self._coordinator.server(server_id)
        return "" if server is None else server.identity


def _digest(*parts: Any) -> str:
    return sha256(dumps([*parts], option=orjson.OPT_SORT_KEYS)).hexdigest()
