"""`skills/list`, `skills/get` and `resources/directory/read` (spec/skills.md).

Each is a call, as the methods of an author are (FEAT-01): it has a record, and limits count it. The
handler runs in place: all that it needs was read when the skill was added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from ...base.cursors import InvalidCursor, page_of
from ...base.skill_format import DIRECTORY_READ, EXTENSION, SKILLS_GET, SKILLS_LIST
from ...errors import ErrorCode, ToolError
from ...kernel.feature import RuntimeFeature
from ...kernel.registry.catalog import is_visible
from ...kernel.registry.tools import ExecutionMode
from ..handler_calls import HandlerSpec, begin_handler_call
from ..scopes import require_scopes
from .registry import SkillRegistry

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.effects import Effect
    from ...kernel.invocation import Invocation
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..context import ToolContext
    from ..resources.feature import Resources
    from .registry import RegisteredSkill

_Answer = Callable[["Dispatcher", dict[str, Any], "Invocation"], dict[str, Any]]

_PAGE_SHARE = 2
"""A page takes at most this part of `tools.max_response_bytes`, or has one entry."""


class Skills(RuntimeFeature):
    """The skills of a server.

    Attributes:
        registry: has them.
    """

    def __init__(self, resources: Resources) -> None:
        registry = resources.registry
        self.registry = SkillRegistry(resources.notifier, registry)
        self.requests = {
            SKILLS_LIST: partial(_begin, self._list),
            SKILLS_GET: partial(_begin, self._get),
            DIRECTORY_READ: partial(_begin, self._read_directory),
        }

    def decide(self, dispatcher: Dispatcher) -> None:
        """Be found by what lists the skills of others beside these."""
        dispatcher.parts[Skills] = self

    def advertise(self, capabilities: dict[str, Any]) -> None:
        """Add the extension to the capabilities of the server (SKILL-02)."""
        if self.registry.was_used:
            declared = {**capabilities.get("extensions", {}), EXTENSION: {"directoryRead": True}}
            capabilities["extensions"] = declared

    def _list(
        self, dispatcher: Dispatcher, params: dict[str, Any], call: Invocation
    ) -> dict[str, Any]:
        """Return a page of the entries that the principal sees (SKILL-05)."""
        most = dispatcher.calls.limits.max_response_bytes // _PAGE_SHARE
        size, peer, who = dispatcher.page_size, call.peer, call.principal
        while True:
            read = partial(self.registry.page, size=size, revision=peer.revision, principal=who)
            entries, following = _page(read, params)
            if len(entries) <= 1 or len(orjson.dumps(entries)) <= most:
                break
            size = max(1, len(entries) // 2)
        hints = dispatcher.results.cache_hints(peer, differs=self.registry.differs)
        return {"skills": entries, **_cursor(following), **hints}

    def _get(
        self, dispatcher: Dispatcher, params: dict[str, Any], call: Invocation
    ) -> dict[str, Any]:
        """Return the entry of one skill (SKILL-06)."""
        skill = self._seen(_uri(params), call)
        if skill is None:
            raise _not_found("there is no skill with this URI")
        differs = bool(skill.scopes) or skill.visible is not None
        hints = dispatcher.results.cache_hints(call.peer, differs=differs)
        return {"skill": skill.wire(), **hints}

    def _read_directory(
        self, dispatcher: Dispatcher, params: dict[str, Any], call: Invocation
    ) -> dict[str, Any]:
        """Return a page of the children of a folder of a skill (SKILL-07)."""
        uri = _uri(params)
        children = None
        for skill in self.registry.entries():
            if uri in skill.directories and self._seen(skill.uri, call) is not None:
                children = skill.directories[uri]
        if children is None:
            raise _not_found("this is no folder of a skill")
        read = partial(page_of, sorted(children), size=dispatcher.page_size)
        names, following = _page(lambda cursor: read(cursor=cursor), params)
        return {"resources": [children[name] for name in names], **_cursor(following)}

    def _seen(self, uri: str, call: Invocation) -> RegisteredSkill | None:
        """Return a skill that the principal sees and may use; None if it sees none.

        Raises:
            ToolError: UNAUTHORIZED: it lacks a scope.
        """
        skill = self.registry.look_up(uri)
        if skill is None or not is_visible(skill, call.principal):
            return None
        require_scopes(call, skill.scopes)
        return skill


def _begin(
    answer: _Answer, dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Begin the call of a request."""
    params = request.members
    uri = params.get("uri")

    def handle(arguments: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        assert context.call is not None
        return answer(dispatcher, arguments, context.call)

    return begin_handler_call(
        dispatcher.calls,
        session,
        peer,
        request,
        name=uri if type(uri) is str else "",
        handler=HandlerSpec(handle, ExecutionMode.INLINE, None, frozenset()),
        arguments=params,
        to_result=lambda value, call: value,
        check=dispatcher.calls.check_payload_size,
    )


def _page(
    read: Callable[[str | None], tuple[Sequence[Any], str | None]], params: dict[str, Any]
) -> tuple[Sequence[Any], str | None]:
    """Return a page, and the cursor of the next one; raise `ToolError` for no cursor."""
    try:
        return read(params.get("cursor"))
    except InvalidCursor:
        raise ToolError(
            ErrorCode.INVALID_ARGUMENT, "there is no such cursor", {"reason": "invalid_cursor"}
        ) from None


def _cursor(following: str | None) -> dict[str, str]:
    return {} if following is None else {"nextCursor": following}


def _uri(params: dict[str, Any]) -> str:
    uri = params.get("uri")
    if type(uri) is not str:
        raise ToolError(ErrorCode.INVALID_ARGUMENT, "uri must be a string")
    return uri


def _not_found(problem: str) -> ToolError:
    return ToolError(ErrorCode.NOT_FOUND, problem, {"reason": "resource_not_found"})
