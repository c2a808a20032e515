"""The context of a call: its attributes and methods (MIGR-04)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from . import arguments as args_of
from .middleware_classes import KIND as MIDDLEWARE
from .names import CONTEXT_ADVICE, CONTEXT_ATTRIBUTES, CONTEXT_KEPT, ELICITED, NOTIFICATIONS
from .source import code, is_roots_of_session

if TYPE_CHECKING:
    from .rewriter import Rewriter

_ABOUT = {
    "send_resource_updated": "resource_updated",
    "send_elicit_complete": "elicitation_completed",
}
"""Notifications about one thing, and the method of the server that sends them."""

_CHANGED = {
    "notify_tools_changed": "tools",
    "notify_resources_changed": "resources",
    "notify_prompts_changed": "prompts",
}
"""Methods of a context that say that a list has changed."""

_ELICIT = {"schema": "response_type", "requested_schema": "response_type"}
_LOGGER = {"logger_name": "logger"}
_WITH_SERVER = (*_CHANGED, "notify_resource_updated")
_IN_PLACE = ("get_state", "set_state", "delete_state", "log", "close_sse_stream", *_WITH_SERVER)

_META_METHODS = ("get", "items", "keys", "values")

_LEVELS = ("debug", "info", "warning", "error")
_SESSION = {
    "create_message": "sample",
    "elicit_form": "elicit",
    "elicit": "elicit",
    "elicit_url": "elicit_url",
    "list_roots": "roots",
    "report_progress": "report_progress",
}


class ContextCalls:
    """Rewrites what is done with the context of a call."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._to = rewriter

    def _is_context(self, node: cst.BaseExpression) -> bool:
        if self._to.kinds[-1:] == [MIDDLEWARE]:
            return False  # its context is a call here
        return code(node) in self._to.source.contexts

    def _are_roots(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is the result of `roots/list`, which is a list here."""
        asked = node.expression if isinstance(node, cst.Await) else node
        return code(node) in self._to.source.rooted or is_roots_of_session(asked)

    def _is_read(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is one of the contents of a resource that was read."""
        item = node.value if isinstance(node, cst.Subscript) else node
        if isinstance(item, cst.Attribute) and item.attr.value == "contents":
            item = item.value
        return code(item) in self._to.source.read

    def _is_in_meta(self, node: cst.Attribute) -> bool:
        """Return whether an expression is a member of the `_meta` of a request."""
        meta = node.value
        if not isinstance(meta, cst.Attribute) or meta.attr.value != "meta":
            return False
        owner = meta.value
        if isinstance(owner, cst.Attribute) and owner.attr.value == "request_context":
            owner = owner.value
        return self._is_context(owner) and node.attr.value not in _META_METHODS

    def attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression | None:
        """Return the attribute by its name here; None if it is no matter of a context."""
        source = self._to.source
        name = original.attr.value
        sampled = original.value
        if (
            name == "text"
            and isinstance(sampled, cst.Attribute)
            and code(sampled.value) in source.sampled
        ):
            return cst.Attribute(cst.Name(code(sampled.value)), cst.Name("text"))
        if name == "content" and self._is_read(original.value):
            text = "contents of a resource have .text, or .blob if they are bytes"
            self._to.report(original, f"{code(original)}: {text}", True)
        if name == "roots" and self._are_roots(original.value):
            return updated.value
        if self._is_in_meta(original):
            key = "progressToken" if name == "progress_token" else name
            if name in ("model_dump", "model_extra"):
                self._to.report(
                    original, f"{code(original)}: the meta of a call is a mapping", True
                )
                return updated
            return cst.parse_expression(f'{code(updated.value)}.get("{key}")')
        if name == "request_context" and self._is_context(original.value):
            return updated.value
        inner = original.value
        is_request = isinstance(inner, cst.Attribute) and inner.attr.value == "request_context"
        owner = inner.value if isinstance(inner, cst.Attribute) and is_request else inner
        if not self._is_context(owner):
            known = isinstance(inner, cst.Attribute) and self._is_context(inner.value)
            return updated if known else None
        if name == "protocol_version":
            return cst.parse_expression(f"{code(updated.value)}.client.revision.name")
        if name == "transport":
            text = "the transport is stdio or http here"
            self._to.report(original, text, False)
            return cst.parse_expression(f"{code(updated.value)}.call.session.transport_type")
        if name == "meta":
            return cst.parse_expression(f"{code(updated.value)}.call.meta")
        if name in CONTEXT_ATTRIBUTES:
            return updated.with_changes(attr=cst.Name(CONTEXT_ATTRIBUTES[name]))
        if name not in CONTEXT_KEPT:
            self._to.unmapped.append((f"Context.{name}", code(original), self._to.line(original)))
        return updated

    def call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression | None:
        """Return the rewritten call of a method of a context; None for any other call."""
        if code(original.func) == "isinstance" and len(original.args) == 2:
            return self._is_action(original, updated) or self._is_text(original)
        func = original.func
        if not isinstance(func, cst.Attribute):
            return None
        if self._is_context(func.value):
            return self._method(func.attr.value, original, updated)
        if self._is_session(func.value):
            return self._session(func.attr.value, original, updated)
        return None

    def _is_session(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is the session of a context."""
        if not isinstance(node, cst.Attribute) or node.attr.value != "session":
            return False
        owner = node.value
        if isinstance(owner, cst.Attribute) and owner.attr.value == "request_context":
            return self._is_context(owner.value)
        return self._is_context(owner)

    def _method(
        self, name: str, original: cst.Call, updated: cst.Call
    ) -> cst.BaseExpression | None:
        owner = updated.func.value if isinstance(updated.func, cst.Attribute) else updated.func
        texts = [code(a.value) for a in updated.args]
        if name == "get_state" and texts:
            return cst.parse_expression(f"{code(owner)}.session_state.get({', '.join(texts)})")
        if name == "set_state" and len(texts) >= 2:
            return cst.parse_expression(
                f"{code(owner)}.session_state.update({{{texts[0]}: {texts[1]}}})"
            )
        if name == "delete_state" and texts:
            return cst.parse_expression(f"{code(owner)}.session_state.pop({texts[0]}, None)")
        if name == "list_roots":
            return cst.parse_expression(f"{code(owner)}.roots()")
        if name in ("elicit", "elicit_url"):
            return updated.with_changes(args=args_of.renamed(updated.args, _ELICIT))
        if name in _LEVELS:
            return updated.with_changes(
                args=[_spread(a) for a in args_of.renamed(updated.args, _LOGGER)]
            )
        if name in _CHANGED and self._server() is not None:
            return cst.parse_expression(f'{self._server()}.list_changed("{_CHANGED[name]}")')
        if name == "notify_resource_updated" and self._server() is not None and texts:
            what = code(args_of.unwrapped_uri(updated.args[0].value))
            return cst.parse_expression(f"{self._server()}.resource_updated({what})")
        if name in _WITH_SERVER:
            self._to.report(original, f"{code(original.func)}(): {CONTEXT_ADVICE[name]}", True)
        if name == "close_sse_stream":
            return cst.parse_expression(f"{code(owner)}.close_stream()")
        if name == "log":
            return self._log(updated)
        return updated

    def _log(self, updated: cst.Call) -> cst.Call:
        args = args_of.renamed(updated.args, {"message": "data", "logger_name": "logger"})
        if args and args[0].keyword is None and args_of.argument(args, "level") is not None:
            args[0] = args_of.keyword("data", args[0].value)
        return updated.with_changes(args=args)

    def _session(self, name: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return what stands for a method of the session of the client."""
        func = cst.ensure_type(updated.func, cst.Attribute)
        owner = cst.ensure_type(func.value, cst.Attribute).value
        if name in _SESSION:
            args = args_of.without(updated.args, "related_request_id")
            args = args_of.renamed(args, {**_ELICIT, "requestedSchema": "response_type"})
            return cst.Call(cst.Attribute(owner, cst.Name(_SESSION[name])), args)
        if name == "send_log_message":
            args = args_of.without(updated.args, "related_request_id")
            return cst.Call(cst.Attribute(owner, cst.Name("log")), args)
        if name == "send_progress_notification":
            args = args_of.without(
                updated.args, "progress_token", "related_request_id", "progressToken"
            )
            args = args[1:] if args and args[0].keyword is None and len(args) > 1 else args
            return cst.Call(cst.Attribute(owner, cst.Name("report_progress")), args)
        server = self._server()
        if server is not None and name in NOTIFICATIONS:
            return cst.parse_expression(f'{server}.list_changed("{NOTIFICATIONS[name]}")')
        if server is not None and name in _ABOUT and updated.args:
            what = code(args_of.unwrapped_uri(updated.args[0].value))
            return cst.parse_expression(f"{server}.{_ABOUT[name]}({what})")
        self._to.report(original, f"{code(original.func)}(): {CONTEXT_ADVICE['session']}", True)
        return updated

    def _server(self) -> str | None:
        """Return the name of the only server of the file, if it is known where it is used."""
        servers = self._to.source.servers
        names = [each for each in servers if not each.endswith("()") and each != "_"]
        if len(names) != 1:
            return None
        scopes = self._to.source.scopes.get(names[0], {()})
        around = tuple(self._to.functions)
        is_known = any(around[: len(scope)] == scope for scope in scopes)
        return names[0] if is_known or "." in names[0] else None

    def in_place(self, node: cst.Await) -> bool:
        """Return whether what is awaited is no coroutine here."""
        call = node.expression
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return False
        name = call.func.attr.value
        if name in _IN_PLACE and self._is_context(call.func.value):
            return name not in _WITH_SERVER or self._server() is not None
        if name in (*NOTIFICATIONS, *_ABOUT, "send_log_message"):
            known = name == "send_log_message" or self._server() is not None
            return known and self._is_session(call.func.value)
        return False

    def _is_action(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression | None:
        """Return the check of the action of a user for the check of the class of an answer."""
        kinds = original.args[1].value
        parts = [e.value for e in kinds.elements] if isinstance(kinds, cst.Tuple) else [kinds]
        keys = [self._to.names.key(each) or "" for each in parts]
        if not all(each in ELICITED for each in keys):
            return None
        value = code(updated.args[0].value)
        if keys == ["AcceptedElicitation"]:
            return cst.parse_expression(f"{value}.accepted")
        actions = ", ".join(f'"{ELICITED[each]}"' for each in keys)
        test = f"in ({actions})" if len(keys) > 1 else f"== {actions}"
        return cst.parse_expression(f"({value}.action {test})")

    def _is_text(self, original: cst.Call) -> cst.BaseExpression | None:
        """Return the text of a model's answer for the question whether it is text."""
        value = original.args[0].value
        if not isinstance(value, cst.Attribute) or value.attr.value != "content":
            return None
        if code(value.value) in self._to.source.sampled:
            return cst.Attribute(value.value, cst.Name("text"))
        return None

    def comparison(self, original: cst.Comparison, updated: cst.Comparison) -> cst.BaseExpression:
        """Return the text of a model's answer for ``answer.content.type == "text"``."""
        left = original.left
        if isinstance(left, cst.Attribute) and left.attr.value == "type":
            inner = left.value
            if isinstance(inner, cst.Attribute) and code(inner.value) in self._to.source.sampled:
                return cst.Attribute(inner.value, cst.Name("text"))
        return updated

    def is_repeated(self, statement: cst.SimpleStatementLine) -> bool:
        """Return whether a statement says ``ctx = ctx``."""
        only = statement.body[0]
        if len(statement.body) != 1 or not isinstance(only, cst.Assign):
            return False
        return code(only.targets[0].target) == code(only.value) == "ctx"


def _spread(arg: cst.Arg) -> cst.Arg:
    """Return ``**data`` for ``extra=data``."""
    if arg.keyword is None or arg.keyword.value != "extra":
        return arg
    return arg.with_changes(keyword=None, star="**", equal=cst.MaybeSentinel.DEFAULT)
