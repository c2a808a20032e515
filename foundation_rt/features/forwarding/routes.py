"""The methods that a forwarder answers, and what of them the server answers itself (FWD-01)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define

from ...base.shown import Shown
from ...base.skill_format import EXTENSION as SKILLS
from ...base.skill_format import SKILLS_GET, SKILLS_LIST
from ...kernel.replies import invalid_params
from ...protocol.methods import (
    COMPLETION_COMPLETE,
    PROMPTS_GET,
    PROMPTS_LIST,
    RESOURCES_LIST,
    RESOURCES_READ,
    RESOURCES_SUBSCRIBE,
    RESOURCES_TEMPLATES_LIST,
    RESOURCES_UNSUBSCRIBE,
    SUBSCRIPTIONS_LISTEN,
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_UPDATE,
    TOOLS_LIST,
)
from ..prompts.feature import Prompts
from ..resources.feature import Resources
from ..resources.methods import read_uri
from ..skills.feature import Skills
from ..tasks.feature import Tasks
from ..tasks.support import EXTENSION

if TYPE_CHECKING:
    from ...kernel.dispatcher import Dispatcher
    from ...kernel.session import Session
    from ...protocol.jsonrpc import Request
    from .forwarder import ListKind

    Owns = Callable[[Dispatcher, Session, Request], bool]


_SUBSCRIBE = "resources.subscribe"


@define(eq=False, repr=False)
class Route(Shown):
    """One method that may go to a forwarder.

    Attributes:
        capability: the capability without which the forwarder is not given the method; None for
            methods that it is always given.
        name_of: returns the name or the URI in a request; raises `JsonRpcError` if it is malformed.
        owns: returns whether the server itself has what a request names.
        list_kind: the list that the method returns, if it returns one.
    """

    capability: str | None
    name_of: Callable[[Request], str]
    owns: Owns
    list_kind: ListKind | None = None

    def is_offered(self, capabilities: Mapping[str, Any]) -> bool:
        """Return whether a forwarder of these capabilities is given the method."""
        if self.capability is None:
            return True
        if self.capability in (EXTENSION, SKILLS):
            return self.capability in capabilities.get("extensions", ())
        if self.capability == _SUBSCRIBE:
            resources = capabilities.get("resources")
            return isinstance(resources, Mapping) and bool(resources.get("subscribe"))
        return self.capability in capabilities


def _no_name(request: Request) -> str:
    return ""


def _prompt_name(request: Request) -> str:
    name = request.members.get("name")
    if type(name) is not str:
        raise invalid_params("name must be a string")
    return name


def _reference(request: Request) -> str:
    """Return the prompt or the URI whose argument is to be completed."""
    ref = request.members.get("ref")
    name = ref.get("name", ref.get("uri")) if type(ref) is dict else None
    if type(name) is not str:
        raise invalid_params("ref must be an object with a name or a uri, a string")
    return name


def _task_id(request: Request) -> str:
    """Return "": the id of a task is written to no log (TASK-10)."""
    if type(request.members.get("taskId")) is not str:
        raise invalid_params("taskId must be a string")
    return ""


def _nothing(dispatcher: Dispatcher, session: Session, request: Request) -> bool:
    return False


def has_resource(dispatcher: Dispatcher, session: Session, uri: str) -> bool:
    """Return whether the server itself has a resource of this URI that the client sees."""
    try:
        dispatcher.parts[Resources].look_up(uri, session.principal)
    except LookupError:
        return False
    return True


def _has_resource(dispatcher: Dispatcher, session: Session, request: Request) -> bool:
    return has_resource(dispatcher, session, read_uri(request))


def has_prompt(dispatcher: Dispatcher, session: Session, name: str) -> bool:
    """Return whether the server itself has a prompt of this name that the client sees."""
    prompts: Prompts = dispatcher.parts[Prompts]
    return prompts.look_up(name, session.principal) is not None


def _has_prompt(dispatcher: Dispatcher, session: Session, request: Request) -> bool:
    return has_prompt(dispatcher, session, _prompt_name(request))


def _has_reference(dispatcher: Dispatcher, session: Session, request: Request) -> bool:
    name = _reference(request)
    if "name" in request.members["ref"]:
        return has_prompt(dispatcher, session, name)
    if dispatcher.parts[Resources].template(name, session.principal) is not None:
        return True
    return has_resource(dispatcher, session, name)


def _has_task(dispatcher: Dispatcher, session: Session, request: Request) -> bool:
    task_id, tasks = request.members.get("taskId"), dispatcher.parts[Tasks]
    return type(task_id) is str and tasks.record_of(task_id, session.principal) is not None


def _has_skill(dispatcher: Dispatcher, session: Session, request: Request) -> bool:
    """Return whether the server itself has the skill, whose `SKILL.md` is a resource (SKILL-08)."""
    return Skills in dispatcher.parts and has_resource(dispatcher, session, read_uri(request))


_task = Route(EXTENSION, _task_id, _has_task)

ROUTES: Mapping[str, Route] = {
    TOOLS_LIST: Route(None, _no_name, _nothing, "tools"),
    RESOURCES_LIST: Route("resources", _no_name, _nothing, "resources"),
    RESOURCES_TEMPLATES_LIST: Route("resources", _no_name, _nothing, "resourceTemplates"),
    RESOURCES_READ: Route("resources", read_uri, _has_resource),
    RESOURCES_SUBSCRIBE: Route(_SUBSCRIBE, read_uri, _has_resource),
    RESOURCES_UNSUBSCRIBE: Route(_SUBSCRIBE, read_uri, _has_resource),
    SUBSCRIPTIONS_LISTEN: Route(None, _no_name, _nothing),
    PROMPTS_LIST: Route("prompts", _no_name, _nothing, "prompts"),
    PROMPTS_GET: Route("prompts", _prompt_name, _has_prompt),
    COMPLETION_COMPLETE: Route("completions", _reference, _has_reference),
    SKILLS_LIST: Route(SKILLS, _no_name, _nothing, "skills"),
    SKILLS_GET: Route(SKILLS, read_uri, _has_skill),
    TASKS_GET: _task,
    TASKS_UPDATE: _task,
    TASKS_CANCEL: _task,
}
"""The methods besides `tools/call` that may go to a forwarder."""
