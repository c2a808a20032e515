"""Methods of the author: requests that MCP does not have (spec/custom-methods.md).

A call of one takes the steps of every call of a handler (`handler_calls`). A server without such
methods does not import this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from ..base.exact_json import loads
from ..base.jsonschema.compilation import compile_schema
from ..base.jsonschema.issues import TOO_COMPLEX, refusal
from ..base.shown import Shown
from ..errors import RegistrationError
from ..kernel.feature import RuntimeFeature
from ..kernel.registry.tools import ExecutionMode
from ..protocol.methods import METHODS
from ..protocol.plain_values import write_json
from .definitions import DefinitionChecks
from .handler_calls import HandlerSpec, begin_handler_call, result_refused
from .scopes import require_scopes
from .typed.method_signature import derive_method

if TYPE_CHECKING:
    from ..base.jsonschema.compilation import Validator
    from ..kernel.dispatcher import Dispatcher
    from ..kernel.effects import Effect
    from ..kernel.invocation import Invocation
    from ..kernel.registry.tools import Handler
    from ..kernel.session import Session
    from ..protocol.jsonrpc import Request
    from ..protocol.peer import Peer

MAX_NAME_LENGTH: Final = 128

_PART = "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAME = re.compile(f"{_PART}(/{_PART})+")
_OF_MCP = frozenset(name.partition("/")[0] for name in METHODS) | {"notifications"}


@define(eq=False, repr=False)
class CustomMethod(Shown):
    """A method of the author, with its handler.

    Attributes:
        name: as requests have it.
        handler_spec: how the handler runs; it is called with the params, less `_meta`.
        validate: returns the problems of params.
        validate_result: returns the problems of a result; None: any object is one.
    """

    name: str
    handler_spec: HandlerSpec
    validate: Validator | None
    validate_result: Validator | None

    def begin(
        self, dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
    ) -> list[Effect]:
        """Begin the call of a request (EXT-03)."""
        params = request.members
        return begin_handler_call(
            dispatcher.calls,
            session,
            peer,
            request,
            name="",
            handler=self.handler_spec,
            arguments={name: value for name, value in params.items() if name != "_meta"},
            to_result=self._to_result,
            check=partial(self._check, dispatcher),
        )

    def _check(self, dispatcher: Dispatcher, call: Invocation) -> None:
        """Refuse a call that lacks scopes, or whose params are not valid (EXT-04, EXT-05)."""
        require_scopes(call, self.handler_spec.scopes)
        dispatcher.calls.check_payload_size(call)
        issues = () if self.validate is None else self.validate(call.arguments)
        if issues:
            raise refusal(issues)

    def _to_result(self, value: Any, call: Invocation) -> dict[str, Any]:
        """Return the result of a call whose handler returned `value` (EXT-06).

        Raises:
            ToolError: INTERNAL: it is no object, or not of the type that the function says.
        """
        result: Any = {} if value is None else loads(write_json(value))
        if type(result) is not dict or type(result.get("_meta", {})) is not dict:
            subject = "_meta of the result" if type(result) is dict else "The result"
            raise result_refused(f"{subject} is not an object.", "result_not_an_object")
        issues = () if self.validate_result is None else self.validate_result(result)
        if issues is TOO_COMPLEX:
            raise result_refused("The result is too complex to be checked.", "too_complex")
        if issues:
            found = "; ".join(f"{each.path or 'the result'} {each.message}" for each in issues)
            problem = "The result is not what the method says."
            raise result_refused(problem, "output_schema_violation") from ValueError(found)
        return result


class CustomMethods(RuntimeFeature):
    """The methods of the author of a server.

    Attributes:
        methods: by name.
    """

    def __init__(self, methods: Mapping[str, CustomMethod]) -> None:
        self.methods = methods
        self.requests = {name: method.begin for name, method in methods.items()}

    @property
    def needs_event_loop(self) -> bool:
        """Return whether any handler is a coroutine function."""
        specs = (each.handler_spec for each in self.methods.values())
        return any(each.execution is ExecutionMode.ASYNC for each in specs)

    def decide(self, dispatcher: Dispatcher) -> None:
        """Be found by the check of scopes over HTTP."""
        dispatcher.parts[CustomMethods] = self


def typed_method(
    name: str,
    function: Callable[..., Any],
    context_type: type,
    *,
    inline: bool,
    timeout_ms: int | None,
    scopes: Iterable[str],
) -> CustomMethod:
    """Return a method whose params are the parameters of `function` (EXT-01).

    Raises:
        RegistrationError: names the method, the parameter or the option, and what to change.
    """
    checks = check_name(name)
    typed = derive_method(function, context_type, inline=inline)
    spec = checks.handler_spec(
        typed.handler, typed.execution, inline=inline, timeout_ms=timeout_ms, scopes=scopes
    )
    result = None if typed.result_schema is None else compile_schema(typed.result_schema).validate
    return CustomMethod(name, spec, compile_schema(typed.schema).validate, result)


def raw_method(
    name: str, handler: Handler, *, inline: bool, timeout_ms: int | None, scopes: Iterable[str]
) -> CustomMethod:
    """Return a method whose handler gets the params as sent, less `_meta`.

    Raises:
        RegistrationError: names the method or the option, and what to change.
    """
    checks = check_name(name)
    spec = checks.handler_spec(handler, None, inline=inline, timeout_ms=timeout_ms, scopes=scopes)
    return CustomMethod(name, spec, None, None)


def check_name(name: object) -> DefinitionChecks:
    """Check the name of a method (EXT-02); return the checks of the rest of its definition.

    Raises:
        RegistrationError: says how to name it.
    """
    checks = DefinitionChecks(f"method {name!r}")
    if not isinstance(name, str):
        raise RegistrationError('a method has a name: @server.method("acme/report")')
    first = name.partition("/")[0]
    if name in METHODS or first in _OF_MCP or first.startswith("rpc."):
        owner = "JSON-RPC" if first.startswith("rpc.") else "MCP"
        raise checks.refusal(
            f"names with {first!r} are {owner}'s own: put a prefix of yours before it, as in"
            " acme/report"
        )
    if len(name) > MAX_NAME_LENGTH or _NAME.fullmatch(name) is None:
        raise checks.refusal(
            "name it by a prefix of yours and a name, as in acme/report: letters, digits and"
            f" . _ - between slashes, at most {MAX_NAME_LENGTH} characters"
        )
    return checks
