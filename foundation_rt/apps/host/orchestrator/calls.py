"""The calls of one answer: checked, approved, run, with their outcomes stored (TURN-18 to -36)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson
from attrs import define, evolve, field

from ....base.exact_json import dumps
from ...coordinator import CoordinatorError, ToolNotFoundError, failure_of
from ..chat import ChatMessage, Role, ToolPhase
from ..events import Decision, TurnState
from ..llm.service import ModelTool
from ..tool_apps import tools_for_model, ui_of
from .approvals import REFUSING, Subject
from .questions import CallQuestions, pages_of
from .results import ToolOutcome, failure, outcome_of, shown
from .scope import OpenCall, TurnScope, session_key
from .skills import READ_SKILL, SkillError, SkillText
from .tool_choice import FIND_TOOLS

MAX_UNKNOWN = 3
"""The call of an unknown tool, within a turn, that takes the tools away."""

NO_MORE_TOOLS = "No tool can be called any more in this turn: answer with what you have."

_REFUSALS = {
    "deny": ("The user refused this call.", "Do not repeat it unless the user asks for it."),
    "unattended": (
        "Nobody is there who could approve this call.",
        "It did not run. The user can allow it with --yes, or in mcp.json: alwaysAllow, or trust.",
    ),
    "expired": ("Nobody approved this call in time.", "It did not run."),
}

_SKILL_REFUSALS = {
    "deny": ("The user refused this skill.", "Do not ask for it unless the user does."),
    "unattended": (
        "Nobody is there who could approve this skill.",
        "It was not read. The user can allow it with --yes.",
    ),
    "expired": ("Nobody approved this skill in time.", "It was not read."),
}

_CHANGED = ("CHANGED", "The tool has changed meanwhile.", "Call it again.")


@define(eq=False)
class TurnCalls:
    """The calls of one turn.

    Attributes:
        are_over: whether the tools were taken away for the rest of the turn.
        last_error: of the latest round: the tool and its error; None if none failed.
    """

    _scope: TurnScope
    are_over: bool = field(default=False, init=False)
    last_error: tuple[str, str] | None = field(default=None, init=False)
    _open: dict[str, OpenCall] = field(factory=dict, init=False)
    _questions: CallQuestions = field(init=False)
    _is_last: bool = field(default=False, init=False)
    _unknown: int = field(default=0, init=False)
    _repeated: dict[bytes, tuple[bytes, int]] = field(factory=dict, init=False)
    # One decision may be about the next call too, so people are asked one thing after the other.
    _asking: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._questions = CallQuestions(self._scope, self.decide)

    async def run(self, messages: Sequence[ChatMessage], *, is_last: bool) -> None:
        """Run the calls of one answer; return when each has its outcome.

        Args:
            messages: the calls, as the model made them.
            is_last: whether the tools are taken away after this round.
        """
        self.last_error = None
        self._is_last = is_last
        calls = [await self._opened(message) for message in messages]
        if all(call.entry is None or call.entry.definition.is_read_only for call in calls):
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(self._run(call))
        else:
            for call in calls:
                await self._run(call)
        self.are_over = self.are_over or is_last

    def abort(self, call_id: str) -> bool:
        """End one running call; return whether there was one."""
        return self._scope.services.coordinator.abort(self._request_id(call_id))

    async def settle(self, state: TurnState) -> None:
        """End what waits for people, and give an outcome to each call that has none.

        Args:
            state: in which the turn ends.
        """
        await self._questions.close()
        code, how = "STOPPED", "stopped"
        if state == "interrupted":
            code, how = "INTERRUPTED", "interrupted"
        for call in [*self._open.values()]:
            ran = "It may have run." if call.is_sent else "It did not run."
            await self._close(call, failure(code, f"This call was {how}.", ran))

    # -- one call

    async def _opened(self, message: ChatMessage) -> OpenCall:
        """Store a call that the model has asked for."""
        scope = self._scope
        arguments = message.arguments
        wanted = message.tool_name or ""
        is_own = wanted == READ_SKILL or self._finds_tools(wanted)
        entry = None if is_own else scope.services.coordinator.entry(wanted)
        if entry is not None and not ui_of(entry).for_model:
            entry = None
        name = wanted if entry is None else entry.qualified_name
        app = None if entry is None else ui_of(entry).resource_uri
        message = evolve(
            message,
            id=scope.own_id(message.id),
            call_id=scope.own_id(message.call_id),
            tool_name=name,
            data={"arguments": arguments},
        )
        more = {} if app is None else {"app": app}
        call = OpenCall(scope, scope.stamped(message, **more), name, arguments, entry, app)
        await scope.store(call.message)
        self._open[call.call_id] = call
        return call

    async def _run(self, call: OpenCall) -> None:
        call.began, services = asyncio.get_running_loop().time(), self._scope.services
        if self._finds_tools(call.name) and not self.are_over:
            tools = [ModelTool.of(each) for each in tools_for_model(services.coordinator)]
            await self._close(call, services.choice.find(tools, call.arguments))
            return
        if call.name == READ_SKILL and not self.are_over:
            await self._close(call, await self._read_skill(call))
            return
        outcome = self._refusal(call)
        if outcome is None:
            outcome = await self._approved(call)
        if outcome is None:
            outcome = await self._call(call)
        await self._close(call, outcome)

    def _finds_tools(self, name: str) -> bool:
        """Tell whether a call is for the host itself, which finds tools (TURN-86)."""
        services = self._scope.services
        most = services.most_tools
        if name != FIND_TOOLS or most is None:
            return False
        return len(tools_for_model(services.coordinator)) > most

    async def _read_skill(self, call: OpenCall) -> ToolOutcome:
        """Read a file of a skill, and show it to people before the model gets it (TURN-93)."""
        scope, services = self._scope, self._scope.services
        await scope.emit("status", call.processing("Reading a skill"))
        try:
            read = await services.skills.read(call.arguments, session_key(scope.session_id))
        except SkillError as error:
            return failure(error.code, str(error))
        most, count = services.settings.max_result_tokens, services.llm.estimate_token_count
        return await self._skill_refused(call, read) or read.outcome(most, count)

    async def _skill_refused(self, call: OpenCall, read: SkillText) -> ToolOutcome | None:
        """Ask for an approval of a text, if it needs one; return None if the model may read it."""
        session, approvals = self._scope.session_id, self._scope.services.approvals
        if approvals.approve_all:
            return None
        about = {
            "kind": "skill",
            "annotations": {},
            "description": read.skill.description,
            "skill": read.to_json(),
        }
        server, subject = read.server_id, approvals.skill(read.server_id, read.skill)
        async with self._asking:
            decision = await self._decided(call, server, subject, about)
            if decision is None:
                return None
            await approvals.remember(session, server, subject, decision)
        return _refused(decision, _SKILL_REFUSALS)

    def _refusal(self, call: OpenCall) -> ToolOutcome | None:
        """Return the outcome of a call that people are not even asked about; None if it may run."""
        if self.are_over:
            return failure("NO_MORE_TOOLS", "The call did not run.")
        coordinator = self._scope.services.coordinator
        try:
            issues = coordinator.validate(call.name, call.arguments)
        except ToolNotFoundError as error:
            self._unknown += 1
            self.are_over = self._unknown >= MAX_UNKNOWN
            return failure("NOT_FOUND", failure_of(error).message)
        if not issues:
            return None
        listed = "; ".join(f"{issue.path or 'they'} {issue.message}" for issue in issues)
        return failure("INVALID_ARGUMENT", f"Invalid arguments for tool: {call.name}: {listed}")

    async def _approved(self, call: OpenCall) -> ToolOutcome | None:
        """Ask for an approval if the call needs one; return None if it may run (TURN-20)."""
        scope, approvals = self._scope, self._scope.services.approvals
        if call.entry is None:  # it has appeared since: its definition was shown to nobody
            return failure("NOT_FOUND", f"Tool not found: {call.name}")
        if approvals.needs_none(call.entry):
            return None
        async with self._asking:
            # As it is now: other calls of this answer may have taken minutes.
            entry = scope.services.coordinator.entry(call.name)
            if entry is None:
                return failure(*_CHANGED)
            about = {
                "kind": "tool",
                "annotations": dict(entry.definition.annotations),
                "description": entry.description or "",
            }
            server = entry.server_id
            call.allowed = subject = approvals.tool(entry)
            decision = await self._decided(call, server, subject, about)
            if decision is None:
                return None
            if decision not in REFUSING and self._has_changed(call):
                return failure(*_CHANGED)
            await approvals.remember(scope.session_id, server, subject, decision)
        return _refused(decision, _REFUSALS)

    async def _decided(
        self, call: OpenCall, server: str, subject: Subject, about: Mapping[str, Any]
    ) -> Decision | None:
        """Ask people about a call; return None if they have allowed its subject before."""
        scope, approvals = self._scope, self._scope.services.approvals
        if await approvals.may_run(scope.session_id, server, subject):
            return None
        waiting = f"Waiting for approval of {call.name}"
        await scope.emit("status", call.processing(waiting, awaiting="approval"))
        call.decision = await self.decide(
            {
                "callId": call.call_id,
                "tool": call.name,
                "server": server,
                "arguments": dict(call.arguments),
                "decisions": await approvals.offered(scope.session_id, server, subject),
                **about,
            }
        )
        return call.decision

    def _has_changed(self, call: OpenCall) -> bool:
        """Return whether the tool is another one than that which people, or their word, allowed."""
        if call.allowed is None:
            return False
        services = self._scope.services
        entry = services.coordinator.entry(call.name)
        return entry is None or services.approvals.tool(entry) != call.allowed

    async def decide(self, asked: dict[str, Any]) -> Decision:
        """Show people an approval; return what they decided, or that nobody did (TURN-22)."""
        scope = self._scope
        wait_ms = scope.services.settings.approval_timeout_ms
        call_id, tool = asked["callId"], asked["tool"]
        pending = scope.services.approvals.pending
        decision: Decision | None = None
        answers = (*asked["decisions"], *REFUSING)
        with scope.clock.held(), pending.opened(scope.session_id, call_id, answers) as answer:
            try:
                expires = scope.services.now_ms() + wait_ms
                await scope.emit("approval", {**asked, "expiresAt": expires})
                decision = await answer.within(wait_ms / 1000) or "expired"
                return decision
            finally:
                ended = decision or "stopped"
                scope.events.push("approval", {"callId": call_id, "decision": ended})
                scope.observation.approval(tool, call_id, ended)

    async def _call(self, call: OpenCall, *, has_visited: bool = False) -> ToolOutcome:
        """Call the tool; once more after a visit that it needs (TURN-66). Return its outcome."""
        scope, services = self._scope, self._scope.services
        await scope.emit("status", call.processing(f"Calling {call.name}"))
        if self._has_changed(call):
            return failure(*_CHANGED)
        scope.observation.call_began(call.name, call.call_id)
        call.is_sent = True
        try:
            result = await services.coordinator.call(
                call.name,
                call.arguments,
                request_id=self._request_id(call.call_id),
                session=session_key(scope.session_id),
                correlation_id=scope.turn_id[:128],
                on_progress=call.report_progress,
                on_log=call.report_log,
                handlers=self._questions.handlers_of(call),
            )
        except CoordinatorError as error:
            pages = [] if has_visited else pages_of(error)
            if pages and await self._questions.visit_all(call, pages):
                return await self._call(call, has_visited=True)
            failed = failure_of(error)
            ran = "It may have run." if failed.may_have_run else ""
            code = f" ({failed.app_code})" if failed.app_code else ""
            return failure(str(failed.tool_code), f"{failed.message}{code}", ran)
        return outcome_of(
            result,
            takes_pictures=services.llm.takes_pictures,
            tokens=services.settings.max_result_tokens,
            count=services.llm.estimate_token_count,
        )

    async def _close(self, call: OpenCall, outcome: ToolOutcome) -> None:
        """Store the outcome of a call, then show it."""
        scope = self._scope
        call.end_reports()
        notes = [outcome.content, self._count_repeats(call, outcome)]
        if self.are_over or self._is_last:
            notes.append(NO_MORE_TOOLS)
        loop = asyncio.get_running_loop()
        ms = round((loop.time() - call.began) * 1000) if call.began else 0
        metadata: dict[str, Any] = {"isError": outcome.is_error, "durationMs": ms}
        if outcome.pictures:
            metadata["pictures"] = [*outcome.pictures]
        if call.decision is not None:
            metadata["decision"] = call.decision
        message = ChatMessage(
            id=scope.own_id(None),
            role=Role.TOOL,
            content="\n".join(filter(None, notes)),
            data=outcome.data,
            tool_name=call.name,
            call_id=call.call_id,
            kind=ToolPhase.COMPLETE,
        )
        await scope.store(scope.stamped(message, **metadata))
        self._open.pop(call.call_id, None)
        if outcome.is_error:
            self.last_error = (call.name, outcome.message)
        ended = f"failed: {outcome.message}" if outcome.is_error else "is done"
        scope.events.push(
            "status",
            {
                "state": "complete",
                "tool": call.name,
                "message": f"{call.name} {ended}"[:500],
                "callId": call.call_id,
                "data": shown(outcome.data, scope.services.settings.max_event_bytes),
                "isError": outcome.is_error,
                "durationMs": ms,
            },
        )
        code = outcome.data["error"]["code"] if "error" in outcome.data else ""
        scope.observation.call_ended(call.name, call.call_id, ms, outcome.is_error, code)

    def _count_repeats(self, call: OpenCall, outcome: ToolOutcome) -> str:
        """Take the tools away if one call had one result too often; return what to say."""
        if not call.is_sent:
            return ""
        most = self._scope.services.settings.max_repeats
        key = _digest([call.name, call.arguments])
        result = _digest([outcome.content, outcome.is_error])
        before, times = self._repeated.get(key, (b"", 0))
        times = times + 1 if before == result else 1
        self._repeated[key] = result, times
        self.are_over = self.are_over or times >= most
        if times != most // 2 or self.are_over:
            return ""
        return (
            f"This call has had this result {times} times. At {most} times no tool can be called"
            " any more in this turn: wait longer between calls, or do something else."
        )

    def _request_id(self, call_id: str) -> str:
        """Return the name of a call within the coordinator, which many sessions share."""
        return f"{self._scope.turn_id}/{call_id}"


def _refused(decision: Decision, refusals: Mapping[str, tuple[str, str]]) -> ToolOutcome | None:
    """Return the outcome of a call that people have refused; None if they have allowed it."""
    return failure(decision.upper(), *refusals[decision]) if decision in refusals else None


def _digest(value: Any) -> bytes:
    return sha256(dumps(value, option=orjson.OPT_SORT_KEYS)).digest()
