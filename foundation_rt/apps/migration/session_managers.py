"""Managers of HTTP sessions, for which an application of ours stands (MIGR-11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from . import arguments as args_of
from .names import SESSION_MANAGER
from .source import SESSION_MANAGER_CLASS, code

if TYPE_CHECKING:
    from .rewriter import Rewriter

_OF_SERVER = "session_manager"


def construction(to: Rewriter, original: cst.Call, updated: cst.Call) -> cst.Call:
    """Return ``app.asgi_app("/")`` for ``StreamableHTTPSessionManager(app=app, ...)``.

    It answers at the path where it is mounted, as the manager does.
    """
    app = args_of.argument(updated.args, "app")
    if app is None and updated.args and updated.args[0].keyword is None:
        app = updated.args[0]
    if app is None:
        to.report(
            original, f"{SESSION_MANAGER_CLASS}: make it of a server: server.asgi_app()", True
        )
        return updated
    rest = updated.with_changes(args=[each for each in updated.args if each is not app])
    kept = args_of.rewrite(rest, SESSION_MANAGER, SESSION_MANAGER_CLASS, to.report, original)
    path = cst.Arg(cst.SimpleString('"/"'))
    return cst.Call(cst.Attribute(app.value, cst.Name("asgi_app")), [path, *kept])


def attribute(
    to: Rewriter, original: cst.Attribute, updated: cst.Attribute
) -> cst.BaseExpression | None:
    """Return what stands for a method of a manager, called or not; None for any other attribute."""
    owner, name = original.value, original.attr.value
    if code(owner) in to.source.session_managers:
        if name == "handle_request":
            return updated.value
        return updated.with_changes(attr=cst.Name("lifespan")) if name == "run" else None
    found = to.source.server_method(owner)
    if found is None or found[1] != _OF_SERVER:
        return None
    if name == "run":
        assert isinstance(updated.value, cst.Attribute)
        return cst.Attribute(updated.value.value, cst.Name("lifetime"))
    text = "use server.asgi_app(), which takes requests, and its lifespan()"
    to.report(original, f"{code(original)}: {text}", True)
    return updated
