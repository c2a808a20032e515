"""Servers: how they are made, decorated, run and put together (MIGR-03, MIGR-11)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import libcst as cst

from ...base.tool_versions import version_problem
from . import arguments as args_of
from .middleware_classes import KIND as MIDDLEWARE
from .names import (
    APIS,
    ASGI_APP,
    DECORATORS,
    OPTIONS,
    RUN,
    RUNS,
    SERVER,
    SESSION_MANAGER,
    SWITCH,
)
from .source import ASGI, SESSION_MANAGER_CLASS, code, is_stdio
from .transforms import ADDS

if TYPE_CHECKING:
    from .rewriter import Rewriter

_HTTP = {
    "host": "host",
    "port": "port",
    "path": "path",
    "streamable_http_path": "path",
}
_APPS = ("AppConfig", "ResourceCSP", "ResourcePermissions")
_FILTERS = {
    "include_tags": "{{server}}.enable(tags={}, only=True)",
    "exclude_tags": "{{server}}.disable(tags={})",
}
"""Arguments that select entries by tags, and the call that does; the one that excludes wins."""

_RESOURCES = {"TextResource": "text", "BinaryResource": "data", "FunctionResource": "fn"}
"""Classes of resources, and the parameter of what they hold."""

_DESCRIBED = ("uri", "name", "title", "description", "mime_type", "icons", "annotations", "meta")
_SWITCHES = ("enable", "disable")
_REMOVALS = {"remove_tool": "unregister", "remove_prompt": "unregister_prompt"}
_LISTS = ("list_prompts", "list_resource_templates", "list_resources")
_TEXTS = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
_ADVICE = {
    "custom_route": "use server.http_app(app), or @server.http_get(path)",
    "add_middleware": "use server.middleware(x), if the class of x was migrated; else write"
    " `@server.middleware async def f(call, proceed)`",
    "add_provider": "register what the provider has, or mount a server",
    "add_extension": 'register what the extension adds; tasks need only task="optional"',
    "import_server": "use server.mount(other, prefix=...)",
    "sse_app": "the HTTP+SSE transport of 2024 is not served: use server.asgi_app()",
    "get_context": "take a ToolContext parameter",
    "as_proxy": "use `foundation-rt gateway` (spec/gateway.md)",
    "call_tool": "use foundation_rt.testing.TestClient",
    "get_tools": "use server.list(), which is no dict",
    "add_resource": "use @server.resource, or server.register_resource",
    "add_prompt": "use @server.prompt, or server.register_prompt",
    "session_manager": "use server.lifetime(), or mount server.asgi_app()",
    "settings": "settings are in the configuration",
    "add_request_handler": "use server.forward(forwarder)",
    "add_template": "use @server.resource, or server.register_resource_template",
}


def _is_plain_list(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.List) and not any(
        isinstance(each, cst.StarredElement) for each in value.elements
    )


class ServerCalls:
    """Rewrites what is done with a server."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._to = rewriter
        self._after: dict[cst.Call, list[str]] = {}
        self._before: list[str] = []

    def construction(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Return `Server(...)`; what follows it as statements is kept for `after`."""
        args = list(updated.args)
        later: list[str] = []
        lifespan = args_of.argument(args, "lifespan")
        if lifespan is not None:
            later.append(f"{{server}}.lifespan({code(lifespan.value)})")
        tools = args_of.argument(args, "tools")
        if tools is not None and isinstance(tools.value, cst.List):
            later.extend(f"{{server}}.tool({code(e.value)})" for e in tools.value.elements)
            args = args_of.without(args, "tools")
        for name, text in _FILTERS.items():
            tags = args_of.argument(args, name)
            if tags is not None and code(tags.value) != "None":
                later.append(text.format(code(tags.value)))
        args = args_of.without(args, "lifespan", *_FILTERS)
        around = args_of.argument(args, MIDDLEWARE)
        if around is not None and _is_plain_list(around.value):
            given = args_of.argument(list(original.args), MIDDLEWARE)
            assert given is not None and isinstance(around.value, cst.List)
            assert isinstance(given.value, cst.List)
            left = []
            for was, now in zip(given.value.elements, around.value.elements, strict=True):
                if self._is_rewritten(was.value):
                    later.append(f"{{server}}.middleware({code(now.value)})")
                else:
                    left.append(cst.Element(now.value))
            args = args_of.without(args, MIDDLEWARE)
            if left:
                args.append(args_of.keyword(MIDDLEWARE, around.value.with_changes(elements=left)))
        if later:
            self._after[original] = later
        security = args_of.argument(args, "transport_security")
        args = args_of.without(args, "transport_security")
        http = [a for a in args if a.keyword is not None and a.keyword.value in _HTTP]
        args = args_of.without(args, *_HTTP)
        call = updated.with_changes(args=args)
        rewritten = args_of.rewrite(call, SERVER, "the server", self._to.report, original)
        if self._to.source.is_mounted and not self._to.source.is_protected:
            self._open(original, cst.Call(cst.Name("run_http")))
            http.append(args_of.keyword("no_auth", cst.Name("True")))
        hosts = [] if security is None else [f"**{code(security.value)}"]
        hosts = [each for each in hosts if each != "**None"]
        if http or hosts:
            pairs = [(a.keyword.value, code(a.value)) for a in http if a.keyword is not None]
            parts = [f'"{_HTTP.get(key, key)}": {value}' for key, value in pairs]
            settings = ", ".join([*parts, *hosts])
            config = cst.parse_expression(f'{{"http": {{{settings}}}}}')
            rewritten = [*rewritten, args_of.keyword("config", config)]
        return args_of.with_args(updated, rewritten)

    def api(self, original: cst.Call, updated: cst.Call, method: str) -> cst.Call:
        """Return `Server.from_openapi(...)` or `Server.from_asgi(...)` (MIGR-20)."""
        args = args_of.rewrite(updated, APIS[method], method, self._to.report, original)
        transforms = self._to.transforms
        joined = transforms.joining(
            original, updated.with_changes(args=args), transforms.assigned_to(original)
        )
        args = list(joined.args)
        if method == "from_openapi":
            text = "secrets go to base_url= alone, or that of the client; no variable is read"
            self._to.report(original, f"from_openapi: {text}: give auth=", False)
            return args_of.with_args(updated, args)
        func = cst.Attribute(_owner(updated), cst.Name("from_asgi"))
        return args_of.with_args(updated.with_changes(func=func), args)

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
            hooks = [_statement(text, "server") for text in texts]
            return [updated.with_changes(body=[assign]), *hooks, cst.SimpleStatementLine([back])]
        before = [_statement(text, "") for text in self._before]
        self._before.clear()
        if before:
            before[0] = before[0].with_changes(leading_lines=updated.leading_lines)
            updated = updated.with_changes(leading_lines=())
        if not isinstance(only, cst.Assign | cst.AnnAssign) or not isinstance(only.value, cst.Call):
            return [*before, updated]
        texts = self._after.pop(only.value, [])
        target = only.targets[0].target if isinstance(only, cst.Assign) else only.target
        name = code(target)
        return [*before, updated, *(_statement(text, name) for text in texts)]

    def setting(self, statement: cst.SimpleStatementLine) -> tuple[str, str, cst.Assign] | None:
        """Return the server and the setting that a statement assigns to, or None."""
        only = statement.body[0]
        if len(statement.body) != 1 or not isinstance(only, cst.Assign):
            return None
        target = only.targets[0].target
        if isinstance(target, cst.Attribute) and isinstance(target.value, cst.Attribute):
            owner = code(target.value.value)
            if target.value.attr.value == "settings" and owner in self._to.source.servers:
                return owner, target.attr.value, only
        return None

    def set_later(self, original: cst.SimpleStatementLine) -> cst.SimpleStatementLine | None:
        """Return what stands for ``server.settings.port = 9``; None for nothing."""
        found = self.setting(original)
        assert found is not None
        owner, name, assign = found
        if name in _HTTP:
            text = f'{owner}.set_defaults("http", {_HTTP[name]}={code(assign.value)})'
            return cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine)
        if name in SERVER.drops:
            text = f"{owner}.settings.{name} was removed: {SERVER.drops[name]}"
            self._to.report(original, text, False)
            return None
        text = "settings are in the configuration: Server(config={...})"
        self._to.report(original, f"{owner}.settings.{name}: {text}", True)
        return original

    def finish(self) -> None:
        for call, texts in self._after.items():
            for text in texts:
                added = text.replace("{server}", "server")
                self._to.report(call, f"add after the server was made: {added}", True)

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
            updated = self._hosts(original, updated)
            args = args_of.rewrite(updated, ASGI_APP, method, self._to.report, original)
            return args_of.with_args(updated.with_changes(func=func), args)
        if method in _REMOVALS:
            updated = self._of_version(updated)
            name = cst.Name(_REMOVALS[method])
            return updated.with_changes(func=cst.Attribute(_owner(updated), name))
        if method == "add_prompt":
            added = self._add_prompt(original, updated)
            if added is not None:
                return added
        if method == "add_resource":
            added = self._add_resource(original, updated)
            if added is not None:
                return added
        if method == "mount":
            return self._mount(original, updated)
        if method in ADDS:
            return self._to.transforms.added(original, updated)
        if method == "add_tool":
            return self._add_tool(original, updated)
        if method in _SWITCHES:
            return self._switched(original, updated)
        if method in _LISTS:
            return updated
        if method == "list_tools":
            return cst.Call(cst.Attribute(_owner(updated), cst.Name("list")))
        if method == OPTIONS:
            where = self._to.line(original)
            self._to.unmapped.append((f"Server.{method}", code(original.func), where))
        if method == "add_middleware" and len(original.args) == 1:
            middleware = original.args[0].value
            if self._is_rewritten(middleware):
                func = cst.Attribute(_owner(updated), cst.Name(MIDDLEWARE))
                return updated.with_changes(func=func, args=[cst.Arg(updated.args[0].value)])
            if self._is_ready_made(middleware):
                return updated
        if method in _ADVICE:
            self._to.report(original, f"{code(original.func)}(): {_ADVICE[method]}", True)
        return None

    def made_tool(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Return the server of a tool that is made of another (MIGR-25)."""
        made, later = self._to.transforms.made(original, updated)
        if later:
            self._after[original] = later
        return made

    def options_of_tool(self, decorator: cst.Call) -> list[cst.Arg]:
        """Return the options of a tool, as ours, that a decorator gives."""
        return list(self._decorator("tool", decorator, decorator).args)

    @staticmethod
    def _of_version(call: cst.Call) -> cst.Call:
        """Return the call that removes ``NAME@VERSION``, for one that has `version`."""
        version = args_of.argument(call.args, "version")
        name = args_of.first_or_named(call.args, "name")
        if version is None or name is None or code(version.value) == "None":
            return call.with_changes(args=args_of.without(call.args, "version"))
        both = args_of.joined(code(name.value), '"@"', code(version.value))
        return call.with_changes(args=[cst.Arg(cst.parse_expression(both))])

    def _is_ready_made(self, made: cst.BaseExpression) -> bool:
        """Return whether middleware comes with FastMCP: its name has advice of its own."""
        full = self._to.names.full(made.func) if isinstance(made, cst.Call) else None
        return full is not None and full.startswith("fastmcp.server.middleware.")

    def _is_rewritten(self, value: cst.BaseExpression) -> bool:
        """Return whether middleware is an instance of a class that is rewritten."""
        made = value.func if isinstance(value, cst.Call) else value
        return code(made) in self._to.middleware

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
        args = args_of.changed(args, "timeout_ms", args_of.milliseconds)
        args = args_of.changed(args, "output_schema", _off)
        args = args_of.changed(args, "version", partial(self._version, original))
        args = self._interface(method, original, args)
        if method == "tool":
            hints = partial(args_of.hints, need=self._to.need)
            args = args_of.changed(args, "annotations", hints)
        found = args_of.argument(args, "annotations")
        is_dict = found is not None and isinstance(found.value, cst.Dict)
        if is_dict and method == "tool":
            self._to.report(original, f"{what}: annotations=: give ToolAnnotations", True)
        elif is_dict:
            args = args_of.without(args, "annotations")
            self._to.report(original, f"{what}: annotations= was removed: give Annotations", False)
        task = args_of.argument(args, "task")
        mode = None if task is None else self._task(task.value)
        if mode is not None:
            args = args_of.without(args, "task")
            if mode in ("optional", "required"):
                args.append(args_of.keyword("task", cst.SimpleString(f'"{mode}"')))
            self._to.settle(original, "task=")
        return updated.with_changes(args=args)

    def _version(self, original: cst.Call, value: cst.BaseExpression) -> cst.BaseExpression:
        """Return a version as ours: a text that begins with a digit."""
        if isinstance(value, cst.Integer | cst.Float):
            return cst.SimpleString(f'"{code(value)}"')
        if not isinstance(value, cst.SimpleString):
            return value
        version = str(value.evaluated_value)
        if version_problem(version) is None:
            return value
        if version_problem(plain := version.removeprefix("v")) is None:
            text = f'version="{version}" became "{plain}", and clients have to call this one'
            self._to.report(original, text, False)
            return cst.SimpleString(f'"{plain}"')
        self._to.report(original, f"version={code(value)}: it begins with a digit here", True)
        return value

    def _task(self, value: cst.BaseExpression) -> str | None:
        """Return whether a call may be, has to be or cannot be a task; None if unknown."""
        simple = {"True": "optional", "False": "forbidden"}.get(code(value))
        is_config = isinstance(value, cst.Call) and code(value.func).endswith("TaskConfig")
        if simple is not None or not is_config:
            return simple
        mode = args_of.argument(cst.ensure_type(value, cst.Call).args, "mode")
        if mode is None:
            return "optional"
        return mode.value.raw_value if isinstance(mode.value, cst.SimpleString) else None

    def is_extension(self, statement: cst.SimpleStatementLine) -> bool:
        """Return whether a statement adds tasks to a server, which has them here."""
        only = statement.body[0]
        call = only.value if isinstance(only, cst.Expr) else None
        if not isinstance(call, cst.Call) or len(call.args) != 1:
            return False
        found, added = self._to.source.server_method(call.func), call.args[0].value
        if found is None or found[1] != "add_extension" or not isinstance(added, cst.Call):
            return False
        return self._to.names.key(added.func) == "TasksExtension"

    def _interface(self, method: str, original: cst.Call, args: list[cst.Arg]) -> list[cst.Arg]:
        """Return the arguments with ``meta={"ui": {...}}`` for ``app=AppConfig(...)``."""
        found = args_of.argument(args, "app")
        if found is None or args_of.argument(args, "meta") is not None:
            return args
        members = self._members(found.value)
        if members is None:
            return args
        self._to.settle(original, "app=")
        args = args_of.without(args, "app")
        args = [*args, args_of.keyword("meta", cst.parse_expression(f'{{"ui": {members}}}'))]
        if method == "resource" and args_of.argument(args, "mime_type") is None:
            page = cst.SimpleString('"text/html;profile=mcp-app"')
            args.append(args_of.keyword("mime_type", page))
        return args

    def _members(self, value: cst.BaseExpression) -> str | None:
        """Return the dict of JSON for a call of a class of FastMCP's apps; None if unknown."""
        if not isinstance(value, cst.Call) or code(value.func).rpartition(".")[2] not in _APPS:
            return None
        texts = []
        for arg in value.args:
            if arg.keyword is None or arg.star:
                return None
            inner = self._members(arg.value)
            first, *rest = arg.keyword.value.split("_")
            name = first + "".join(part.title() for part in rest)
            texts.append(f'"{name}": {code(arg.value) if inner is None else inner}')
        return "{" + ", ".join(texts) + "}"

    def _mount(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        args: list[cst.Arg] = []
        for arg in _server_first(updated.args):
            name = None if arg.keyword is None else arg.keyword.value
            if arg.star:
                self._to.report(original, f"mount: look at what {code(arg.value)} passes", True)
            elif name == "namespace":
                arg = arg.with_changes(keyword=cst.Name("prefix"))
            elif name == "server":
                arg = arg.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
            elif name == "as_proxy":
                self._to.report(original, f"mount: {name}= was removed: there is none", False)
                continue
            elif name is None and len(args) == 1:
                arg = args_of.keyword("prefix", arg.value)
            args.append(arg)
        mounted = updated.with_changes(args=args_of.tidy(args, updated.args))
        given = args_of.first_or_named(_server_first(original.args), "server")
        owner = "" if given is None else code(given.value)
        return self._to.transforms.joining(original, mounted, owner)

    def _switched(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Return the call of `enable` or `disable`, which take names by position here."""
        given = args_of.argument(updated.args, "names")
        names: list[cst.Arg] = []
        if given is not None and isinstance(given.value, cst.Set | cst.List | cst.Tuple):
            names = [cst.Arg(each.value) for each in given.value.elements]
        elif given is not None:
            names = [cst.Arg(given.value, star="*")]
        rest = updated.with_changes(args=args_of.without(updated.args, "names"))
        kept = args_of.rewrite(rest, SWITCH, _method(original), self._to.report, original)
        return args_of.with_args(updated, args_of.tidy([*names, *kept], updated.args))

    def _add_tool(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        mounted = self._to.transforms.mounted(original, updated) if original.args else None
        if mounted is not None:
            self._before += mounted[1]
            return mounted[0]
        tool = cst.Attribute(_owner(updated), cst.Name("tool"))
        if len(updated.args) <= 1:
            return updated.with_changes(func=tool)
        options = self._decorator("tool", original, updated.with_changes(args=updated.args[1:]))
        return cst.Call(options.with_changes(func=tool), [cst.Arg(updated.args[0].value)])

    def _add_prompt(self, original: cst.Call, updated: cst.Call) -> cst.Call | None:
        """Return the registration of a prompt that is made of a function."""
        was, now = original.args[0].value, updated.args[0].value
        if len(original.args) != 1 or not isinstance(was, cst.Call) or not was.args:
            return None
        full = self._to.names.full(was.func) or ""
        first = was.args[0].keyword
        if not full.endswith(".Prompt.from_function") or (first and first.value != "fn"):
            return None
        function, *options = cst.ensure_type(now, cst.Call).args
        prompt = cst.Attribute(_owner(updated), cst.Name("prompt"))
        decorator = self._decorator("prompt", was, updated.with_changes(func=prompt, args=options))
        return cst.Call(decorator, [cst.Arg(function.value)])

    def _add_resource(self, original: cst.Call, updated: cst.Call) -> cst.Call | None:
        """Return the registration of a resource of a text, of bytes or of a function."""
        was, now = original.args[0].value, updated.args[0].value
        if len(original.args) != 1 or not isinstance(was, cst.Call):
            return None
        assert isinstance(now, cst.Call)
        member = _RESOURCES.get(self._to.names.key(was.func) or "")
        given = {a.keyword.value: a.value for a in now.args if a.keyword is not None and not a.star}
        is_known = len(given) == len(now.args) and given.keys() <= {*_DESCRIBED, member}
        if member is None or not is_known or not {"uri", member} <= given.keys():
            return None
        content = given.pop(member)
        given["uri"] = args_of.unwrapped_uri(given["uri"])
        if member == "fn":
            options = [args_of.keyword(name, each) for name, each in given.items() if name != "uri"]
            decorator = cst.Call(
                cst.Attribute(_owner(updated), cst.Name("resource")),
                [cst.Arg(given["uri"]), *options],
            )
            return cst.Call(decorator, [cst.Arg(content)])
        if "name" not in given:
            given["name"] = given["uri"]
        text = ", ".join(f"{name}={code(each)}" for name, each in given.items())
        definition = f"{self._to.need('foundation_rt.ResourceDefinition')}({text})"
        handler = f"lambda *_, content={code(content)}: content"
        return cst.ensure_type(
            cst.parse_expression(
                f"{code(_owner(updated))}.register_resource({definition}, {handler})"
            ),
            cst.Call,
        )

    def _hosts(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        """Return a call without the hosts it allows, which a statement before it sets."""
        found = args_of.argument(updated.args, "transport_security")
        if found is None or not self._to.is_in_line:
            return updated
        owner, hosts = code(_owner(updated)), code(found.value)
        if hosts != "None":
            self._before.append(f'{owner}.set_defaults("http", **{hosts})')
        return updated.with_changes(args=args_of.without(updated.args, "transport_security"))

    # -- running ---------------------------------------------------------------------------------

    def _run(self, method: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return `run()` or `run_http()`, by the transport that is named."""
        updated = self._hosts(original, updated)
        owner = _owner(updated)
        args = list(updated.args)
        if method == "run" and len(args) > 1 and _are_streams(args):
            return cst.Call(cst.Attribute(owner, cst.Name("run")))
        transport = args_of.first_or_named(args, "transport")
        kept = [
            args_of.keyword(_HTTP[a.keyword.value], a.value)
            for a in args
            if a.keyword is not None and a.keyword.value in _HTTP
        ]
        stdio = cst.Call(cst.Attribute(owner, cst.Name("run")))
        no_auth = [args_of.keyword("no_auth", cst.Name("True"))]
        open_to_all = [] if self._to.source.is_protected else no_auth
        rest = [a for a in args if a is not transport and a.keyword is not None]
        rest = [a for a in rest if a.keyword is not None and a.keyword.value not in _HTTP]
        asked = [a for a in args if a.star]
        left = args_of.rewrite(
            updated.with_changes(args=[*rest, *asked]), RUN, method, self._to.report, original
        )
        left = [a for a in left if a.keyword is None or a.keyword.value != "transport"]
        http = cst.Call(cst.Attribute(owner, cst.Name("run_http")), [*kept, *left, *open_to_all])
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
        if self._to.source.is_protected:
            return http
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

    def serves(self, node: cst.Await) -> bool:
        """Return whether what is awaited serves, which is no coroutine here."""
        return self._awaited(node) in RUNS

    def in_place(self, node: cst.Await) -> bool:
        """Return whether what is awaited is no coroutine here."""
        return self._awaited(node) in (*RUNS, *_LISTS, "list_tools")

    def _awaited(self, node: cst.Await) -> str:
        """Return the method of a server that is awaited; "" if it is none."""
        call = node.expression
        found = self._to.source.server_method(call.func) if isinstance(call, cst.Call) else None
        return "" if found is None else found[1]

    def stdio(
        self, original: cst.With, updated: cst.With
    ) -> cst.With | cst.FlattenSentinel[cst.BaseStatement]:
        """Take the body out of ``async with stdio_server()``."""
        if not is_stdio(original, self._to.names):
            return updated
        body: Any = updated.body
        is_block = isinstance(body, cst.IndentedBlock)
        first, *rest = body.body if is_block else [cst.SimpleStatementLine(body.body)]
        lines = [*updated.leading_lines, *first.leading_lines]
        return cst.FlattenSentinel([first.with_changes(leading_lines=lines), *rest])


def _server_first(args: Sequence[cst.Arg]) -> Sequence[cst.Arg]:
    """Return the arguments of a mount in the order of FastMCP 3: the prefix came first in 2."""
    is_old = len(args) > 1 and args[1].keyword is None and isinstance(args[0].value, _TEXTS)
    return [args[1], args[0], *args[2:]] if is_old else args


def _are_streams(args: Sequence[cst.Arg]) -> bool:
    """Return whether `run` of a low-level server is given the streams that it serves."""
    is_text = isinstance(args[0].value, cst.SimpleString)
    return all(each.keyword is None and not each.star for each in args[:2]) and not is_text


def _statement(text: str, server: str) -> cst.BaseStatement:
    """Return a statement about a server."""
    return cst.parse_statement(text.replace("{server}", server))


def _owner(call: cst.Call) -> cst.BaseExpression:
    assert isinstance(call.func, cst.Attribute)
    return call.func.value


def _method(call: cst.Call) -> str:
    assert isinstance(call.func, cst.Attribute)
    return call.func.attr.value


def _off(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return False for None, which turns structured output off in FastMCP."""
    return cst.Name("False") if code(value) == "None" else value


# -- managers of HTTP sessions, for which an application of ours stands (MIGR-11) ----------------


def manager_construction(to: Rewriter, original: cst.Call, updated: cst.Call) -> cst.Call:
    """Return ``app.asgi_app("/")`` for ``StreamableHTTPSessionManager(app=app, ...)``.

    It answers at the path where it is mounted, as the manager does.
    """
    app = args_of.first_or_named(updated.args, "app")
    if app is None:
        to.report(
            original, f"{SESSION_MANAGER_CLASS}: make it of a server: server.asgi_app()", True
        )
        return updated
    rest = updated.with_changes(args=[each for each in updated.args if each is not app])
    kept = args_of.rewrite(rest, SESSION_MANAGER, SESSION_MANAGER_CLASS, to.report, original)
    path = cst.Arg(cst.SimpleString('"/"'))
    return cst.Call(cst.Attribute(app.value, cst.Name("asgi_app")), [path, *kept])


def manager_attribute(
    to: Rewriter, original: cst.Attribute, updated: cst.Attribute
) -> cst.BaseExpression | None:
    """Return what stands for a method of a manager, called or not; None for any other attribute."""
    owner, name = original.value, original.attr.value
    if code(owner) in to.source.session_managers:
        if name == "handle_request":
            return updated.value
        return updated.with_changes(attr=cst.Name("lifespan")) if name == "run" else None
    found = to.source.server_method(owner)
    if found is None or found[1] != "session_manager":
        return None
    if name == "run":
        assert isinstance(updated.value, cst.Attribute)
        return cst.Attribute(updated.value.value, cst.Name("lifetime"))
    text = "use server.asgi_app(), which takes requests, and its lifespan()"
    to.report(original, f"{code(original)}: {text}", True)
    return updated
