"""Servers: how they are made, decorated, run and put together (MIGR-03)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from . import arguments as args_of
from .low_level import registration_of_v2
from .names import DECORATORS, LOW_LEVEL, RUNS, SERVER
from .source import ASGI, code, is_stdio

if TYPE_CHECKING:
    from .rewriter import Rewriter

_HTTP = {
    "host": "host",
    "port": "port",
    "path": "path",
    "streamable_http_path": "path",
}
_RUN_DROPS = (
    "show_banner",
    "log_level",
    "uvicorn_config",
    "mount_path",
    "stateless_http",
    "json_response",
    "stateless",
)
_TEXTS = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
_ANSWERS = frozenset(LOW_LEVEL.values())
_ADVICE = {
    "custom_route": "use server.http_app(app), or @server.http_get(path)",
    "completion": "write `@server.completion(subject, argument)` for each argument",
    "add_middleware": "write `@server.middleware async def f(call, proceed)`",
    "add_provider": "register what the provider has, or mount a server",
    "add_transform": "there are none: change the tools, or put a gateway in front",
    "add_extension": 'register what the extension adds; tasks need only task="optional"',
    "import_server": "use server.mount(other, prefix=...)",
    "sse_app": "the HTTP+SSE transport of 2024 is not served: use server.asgi_app()",
    "remove_tool": "use server.unregister(name)",
    "get_context": "take a ToolContext parameter",
    "as_proxy": "use `foundation-rt gateway` (spec/gateway.md)",
    "list_tools": "use server.list(): it is no coroutine",
    "list_resources": "use server.features.resources",
    "list_prompts": "use server.features.prompts",
    "call_tool": "use foundation_rt.testing.TestClient",
    "get_tools": "use server.list()",
    "add_resource": "use @server.resource, or server.register_resource",
    "add_prompt": "use @server.prompt, or server.register_prompt",
    "add_tool_transformation": "there is none: change the tool",
    "session_manager": "use server.lifetime(), or mount server.asgi_app()",
    "settings": "settings are in the configuration",
    "add_request_handler": "use server.forward(forwarder)",
    "add_template": "use @server.resource, or server.register_resource_template",
}


class ServerCalls:
    """Rewrites what is done with a server."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._to = rewriter
        self._after: dict[cst.Call, list[str]] = {}

    def construction(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Return `Server(...)`; what follows it as statements is kept for `after`."""
        args = list(updated.args)
        later: list[str] = []
        lifespan = args_of.argument(args, "lifespan")
        if lifespan is not None:
            later.append(f"{{server}}.lifespan({code(lifespan.value)})")
        handlers = {
            a.keyword.value[3:]: code(a.value)
            for a in args
            if a.keyword is not None
            and a.keyword.value.startswith("on_")
            and "duplicate" not in a.keyword.value
        }
        if handlers:
            later.extend(registration_of_v2(self._to, handlers, original))
            args = args_of.without(args, *(f"on_{each}" for each in handlers))
        tools = args_of.argument(args, "tools")
        if tools is not None and isinstance(tools.value, cst.List):
            later.extend(f"{{server}}.tool({code(e.value)})" for e in tools.value.elements)
            args = args_of.without(args, "tools")
        args = args_of.without(args, "lifespan")
        if later:
            self._after[original] = later
        http = [a for a in args if a.keyword is not None and a.keyword.value in _HTTP]
        args = args_of.without(args, *_HTTP)
        call = updated.with_changes(args=args)
        rewritten = args_of.rewrite(call, SERVER, "the server", self._to.report, original)
        if self._to.source.is_mounted:
            self._open(original, cst.Call(cst.Name("run_http")))
            http.append(args_of.keyword("no_auth", cst.Name("True")))
        if http:
            pairs = [(a.keyword.value, code(a.value)) for a in http if a.keyword is not None]
            settings = ", ".join(f'"{_HTTP.get(key, key)}": {value}' for key, value in pairs)
            config = cst.parse_expression(f'{{"http": {{{settings}}}}}')
            rewritten = [*rewritten, args_of.keyword("config", config)]
        return args_of.with_args(updated, rewritten)

    def after(
        self, statement: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> list[cst.BaseStatement]:
        """Return the statement in which a server is made, and those that follow it."""
        only, now = statement.body[0], updated.body[0]
        if isinstance(only, cst.Return) and only.value in self._after:
            assert isinstance(now, cst.Return) and now.value is not None
            assign = cst.Assign([cst.AssignTarget(cst.Name("server"))], now.value)
            back = cst.Return(cst.Name("server"))
            texts = self._after.pop(cst.ensure_type(only.value, cst.Call))
            hooks = [cst.parse_statement(text.replace("{server}", "server")) for text in texts]
            return [updated.with_changes(body=[assign]), *hooks, cst.SimpleStatementLine([back])]
        if not isinstance(only, cst.Assign | cst.AnnAssign) or not isinstance(only.value, cst.Call):
            return [updated]
        texts = self._after.pop(only.value, [])
        target = only.targets[0].target if isinstance(only, cst.Assign) else only.target
        name = code(target)
        return [updated, *(cst.parse_statement(t.replace("{server}", name)) for t in texts)]

    def finish(self) -> None:
        for call, texts in self._after.items():
            for text in texts:
                self._to.report(call, f"add after the server was made: {text}", True)

    # -- methods ---------------------------------------------------------------------------------

    def call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression | None:
        """Return the rewritten call of a method of a server; None for any other call."""
        source = self._to.source
        if code(original.func) in ("asyncio.run", "anyio.run") and original.args:
            return self._event_loop(original, updated)
        if isinstance(original.func, cst.Name) and original.func.value in source.runners:
            return None
        found = source.server_method(original.func)
        if found is None:
            return None
        method = found[1]
        if method in DECORATORS:
            return self._decorator(method, original, updated)
        if method in RUNS:
            return self._run(method, original, updated)
        if method in ASGI:
            func = cst.Attribute(_owner(updated), cst.Name("asgi_app"))
            path = args_of.argument(updated.args, "path")
            return updated.with_changes(func=func, args=[] if path is None else [path])
        if method == "mount":
            return self._mount(original, updated)
        if method == "add_tool":
            return self._add_tool(original, updated)
        is_handler = found[0] in source.low_level and (method in LOW_LEVEL or method in _ANSWERS)
        if method in _ADVICE and not is_handler:
            self._to.report(original, f"{code(original.func)}(): {_ADVICE[method]}", True)
        return None

    def _decorator(self, method: str, original: cst.Call, updated: cst.Call) -> cst.Call:
        what = f"@{method}"
        args = args_of.rewrite(updated, DECORATORS[method], what, self._to.report, original)
        if method == "resource":
            args = [
                a.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
                if a.keyword is not None and a.keyword.value == "uri"
                else a
                for a in args
            ]
        elif args and args[0].keyword is None and isinstance(args[0].value, _TEXTS):
            args = [args_of.keyword("name", args[0].value), *args[1:]]
        for name, change in (("timeout_ms", args_of.milliseconds), ("output_schema", _off)):
            found = args_of.argument(args, name)
            if found is not None:
                args = args_of.replace(args, name, change(found.value))
        found = args_of.argument(args, "annotations")
        if found is not None and method == "tool":
            args = args_of.replace(args, "annotations", args_of.hints(found.value, self._to.need))
        elif found is not None and isinstance(found.value, cst.Dict):
            args = args_of.without(args, "annotations")
            self._to.report(original, f"{what}: annotations= was removed: give Annotations", False)
        task = args_of.argument(args, "task")
        if task is not None and code(task.value) in ("True", "False"):
            args = args_of.without(args, "task")
            if code(task.value) == "True":
                args.append(args_of.keyword("task", cst.SimpleString('"optional"')))
            self._to.findings = {
                f
                for f in self._to.findings
                if not (f.line == self._to.line(original) and "task=" in f.text)
            }
        return updated.with_changes(args=args)

    def _mount(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        args: list[cst.Arg] = []
        for arg in updated.args:
            name = None if arg.keyword is None else arg.keyword.value
            if name == "namespace":
                arg = arg.with_changes(keyword=cst.Name("prefix"))
            elif name == "server":
                arg = arg.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
            elif name in ("as_proxy", "tool_names"):
                self._to.report(original, f"mount: {name}= was removed: there is none", False)
                continue
            elif name is None and len(args) == 1:
                arg = args_of.keyword("prefix", arg.value)
            args.append(arg)
        return updated.with_changes(args=args_of.tidy(args, updated.args))

    def _add_tool(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        tool = cst.Attribute(_owner(updated), cst.Name("tool"))
        if len(updated.args) <= 1:
            return updated.with_changes(func=tool)
        options = self._decorator("tool", original, updated.with_changes(args=updated.args[1:]))
        return cst.Call(options.with_changes(func=tool), [cst.Arg(updated.args[0].value)])

    # -- running ---------------------------------------------------------------------------------

    def _run(self, method: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return `run()` or `run_http()`, by the transport that is named."""
        owner = _owner(updated)
        args = list(updated.args)
        if method == "run" and len(args) > 1 and args[1].keyword is None:  # the streams
            return cst.Call(cst.Attribute(owner, cst.Name("run")))
        transport = args_of.argument(args, "transport") or (
            args[0] if args and args[0].keyword is None and not args[0].star else None
        )
        kept = [
            args_of.keyword(_HTTP[a.keyword.value], a.value)
            for a in args
            if a.keyword is not None and a.keyword.value in _HTTP
        ]
        stdio = cst.Call(cst.Attribute(owner, cst.Name("run")))
        open_to_all = args_of.keyword("no_auth", cst.Name("True"))
        http = cst.Call(cst.Attribute(owner, cst.Name("run_http")), [*kept, open_to_all])
        if transport is None:
            if method in ("run", "run_async", "run_stdio_async"):
                return stdio
            return self._open(original, http)
        text = (
            transport.value.evaluated_value
            if isinstance(transport.value, cst.SimpleString)
            else None
        )
        if text == "stdio":
            return stdio
        if text is not None:
            if text == "sse":
                self._to.report(
                    original,
                    "run: the HTTP+SSE transport of 2024 is not served; "
                    "Streamable HTTP is, which clients know since 2025",
                    False,
                )
            return self._open(original, http)
        test = cst.parse_expression(f'{code(transport.value)} == "stdio"')
        return cst.IfExp(test, stdio, self._open(original, http))

    def _open(self, original: cst.Call, http: cst.Call) -> cst.Call:
        self._to.report(
            original,
            "no_auth keeps the server open to everyone, as it was: look at "
            "http.api_keys and OAuth (spec/auth.md)",
            False,
        )
        return http

    def _event_loop(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression | None:
        """Return the call of a function that was a coroutine only to serve."""
        first = updated.args[0].value
        was = original.args[0].value
        if isinstance(was, cst.Name) and was.value in self._to.source.runners:
            rest = [a for a in updated.args[1:] if a.keyword is None]
            return cst.Call(first, args_of.tidy(rest, []))
        if isinstance(was, cst.Call):
            found = self._to.source.server_method(was.func)
            if (found is not None and found[1] in RUNS) or code(
                was.func
            ) in self._to.source.runners:
                return first
        return None

    def in_place(self, node: cst.Await) -> bool:
        """Return whether what is awaited serves, which is no coroutine here."""
        if not isinstance(node.expression, cst.Call):
            return False
        found = self._to.source.server_method(node.expression.func)
        return found is not None and found[1] in RUNS

    def stdio(
        self, original: cst.With, updated: cst.With
    ) -> cst.With | cst.FlattenSentinel[cst.BaseStatement]:
        """Take the body out of ``async with stdio_server()``."""
        if not is_stdio(original, self._to.names) or not isinstance(
            updated.body, cst.IndentedBlock
        ):
            return updated
        body = list(updated.body.body)
        if body and isinstance(body[0], cst.SimpleStatementLine):
            body[0] = body[0].with_changes(leading_lines=updated.leading_lines)
        return cst.FlattenSentinel(body)


def _owner(call: cst.Call) -> cst.BaseExpression:
    assert isinstance(call.func, cst.Attribute)
    return call.func.value


def _off(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return False for None, which turns structured output off in FastMCP."""
    return cst.Name("False") if code(value) == "None" else value
