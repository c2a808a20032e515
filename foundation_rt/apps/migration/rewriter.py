"""The rewriting of one file: names, calls, decorators and signatures (MIGR-02 to MIGR-04)."""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import Any

import libcst as cst
from libcst import metadata

from . import arguments as args_of
from . import middleware_classes
from .context_calls import ContextCalls
from .names import (
    APIS,
    CALLS,
    DECORATORS,
    ELICITED,
    ERROR_CODES,
    LOW_LEVEL,
    NAMES,
    PROTOCOL_ERRORS,
    REVISIONS,
    SERVER,
    TOOL_ERRORS,
    canonical,
)
from .server_calls import ServerCalls, manager_attribute, manager_construction
from .signatures import complete, take_request
from .source import (
    CONTEXTS,
    INNER_SERVER,
    PROVIDER,
    SERVERS,
    SESSION_MANAGER_CLASS,
    Finding,
    NameResolver,
    SourceFacts,
    code,
    is_of_library,
)
from .transforms import FROM_TOOL, ToolTransforms

_OLD_IMAGES = ("Image", "Audio")
_ATTRIBUTES = {
    "middleware": SERVER.decides["middleware"],
    "settings": "settings are in the configuration: Server(config={...})",
}
"""Attributes of a server that have no counterpart, and what to write."""


class Rewriter(cst.CSTTransformer):
    """Rewrites a file; afterwards has what a person looks at, and what to import.

    Attributes:
        findings: in no order.
        needed: full names that the file now uses: `foundation_rt.Server`.
        kinds: of the functions around the node that is visited: what each handles, or None.
        functions: around the node that is visited, their names.
        unmapped: references to names without a counterpart: full name, text, line.
        is_in_line: the node that is visited is part of a simple statement.
    """

    METADATA_DEPENDENCIES = (metadata.QualifiedNameProvider, metadata.PositionProvider)

    def __init__(self, source: SourceFacts, by_hand: Set[cst.FunctionDef]) -> None:
        super().__init__()
        self.source = source
        self._by_hand = by_hand
        self.names = NameResolver(self)
        self.findings: set[Finding] = set()
        self.servers: dict[str, Finding] = {}
        self.needed: set[str] = set()
        self.unmapped: list[tuple[str, str, int]] = []
        self.kinds: list[str | None] = []
        self.functions: list[str] = []
        self._coroutines: list[bool] = []
        self._annotations = 0
        self._is_setting = False
        self._types: set[cst.BaseExpression] = set()
        self.is_in_line = False
        self.middleware: set[str] = set()
        self._classes = middleware_classes.MiddlewareClasses()
        self.transforms = ToolTransforms(self)
        self._server_calls = ServerCalls(self)
        self._context_calls = ContextCalls(self)

    # -- what the parts use ----------------------------------------------------------------------

    def report(self, node: cst.CSTNode, text: str, is_open: bool) -> None:
        """Add a finding at the line of `node`, which is a node of the file as it was."""
        self.findings.add(Finding(self.line(node), text, is_open))

    def _report_server(self, node: cst.FunctionDef) -> None:
        """Add the finding that a function is no coroutine any more, which nothing calls here."""
        name = node.name.value
        text = f"{name} is no coroutine any more: call it without asyncio.run, or await"
        self.servers[name] = Finding(self.line(node), text, True)
        self.findings.add(self.servers[name])

    def settle(self, node: cst.CSTNode, argument: str) -> None:
        """Take back the findings about an argument at the line of `node`."""
        line = self.line(node)
        self.findings = {f for f in self.findings if f.line != line or argument not in f.text}

    def line(self, node: cst.CSTNode) -> int:
        """Return the line of a node of the file as it was."""
        place: Any = self.get_metadata(metadata.PositionProvider, node)
        return int(place.start.line)

    def options_of_tool(self, decorator: cst.Call) -> list[cst.Arg]:
        """Return the options of a tool, as ours, that a decorator gives."""
        return self._server_calls.options_of_tool(decorator)

    def need(self, full: str) -> str:
        """Return the name by which the file imports an object of ours."""
        self.needed.add(full)
        return local_name(full, self.source)

    # -- names -----------------------------------------------------------------------------------

    def visit_Module(self, node: cst.Module) -> None:
        self._classes = middleware_classes.read(node, self.names)
        self.middleware = self._classes.names
        for place, text in self._classes.reasons:
            self.report(place, text, True)
        node.visit(self.transforms)
        self.transforms.finish_reading()

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Report what has found no place."""
        self._server_calls.finish()
        return updated_node

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if isinstance(node.names, cst.ImportStar) and is_of_library(node):
            self.report(node, f"{code(node)}: import what is used by name, and migrate again", True)
        return False

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self._is_setting = self._server_calls.setting(node) is not None
        self.is_in_line = True

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._reference(original_node, updated_node)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        updated_node = updated_node.with_changes(attr=original_node.attr)
        name, owner = original_node.attr.value, code(original_node.value)
        if name == PROVIDER and owner in self.source.servers:
            return updated_node.value
        advice = _ATTRIBUTES.get(name) if owner in self.source.servers else None
        if owner.endswith(f".{INNER_SERVER}"):
            advice = LOW_LEVEL.get(name)
        if advice is not None and not (name == "settings" and self._is_setting):
            self.report(original_node, f"{code(original_node)}: {advice}", True)
        for part in (self._context_calls.attribute, partial(manager_attribute, self)):
            changed = part(original_node, updated_node)
            if changed is not None:
                return changed
        return self._reference(original_node, updated_node)

    def _reference(self, original: cst.Name | cst.Attribute, updated: Any) -> cst.BaseExpression:
        full = self.names.full(original)
        if full is None:
            return updated  # type: ignore[no-any-return]
        key = canonical(full)
        if key in ERROR_CODES:
            error_code = self.need("foundation_rt.ErrorCode")
            return cst.parse_expression(f"{error_code}.{ERROR_CODES[key]}")
        if key in REVISIONS:
            return cst.parse_expression(REVISIONS[key])
        if key is None or key not in NAMES:
            is_typed = self.kinds[-1:] and self.kinds[-1] in DECORATORS
            if self._annotations and ((key or "").startswith("types.") or not is_typed):
                return self._anything(full, original)
            self.unmapped.append((full, code(original), self.line(original)))
            return updated  # type: ignore[no-any-return]
        return updated_name(updated, self.need(NAMES[key]))

    def _anything(self, full: str, original: cst.Name | cst.Attribute) -> cst.BaseExpression:
        """Return `Any` for a type of the wire in an annotation."""
        kind = self.kinds[-1] if self.kinds else None
        if kind is None or kind in DECORATORS:  # others have other types here
            text = f"{full}: Any was written, which anything is"
            self.report(original, text, kind is not None)
        return cst.Name(self.need("typing.Any"))

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._annotations += 1

    def leave_Annotation(
        self, original_node: cst.Annotation, updated_node: cst.Annotation
    ) -> cst.Annotation:
        self._annotations -= 1
        return updated_node

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        return updated_node.with_changes(name=original_node.name)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Keep of the parameters of a context the type of its state."""
        key = self.names.key(original_node.value)
        became_any = key is not None and code(updated_node.value) == "Any"
        if key in SERVERS or became_any:
            return updated_node.value
        if key not in CONTEXTS:
            return updated_node
        texts = [code(each.slice) for each in updated_node.slice]
        first = 1 if len(texts) > 1 else 0
        self.settle(original_node, "ServerSession: Any was written")
        if texts[first] in ("None", "Any", "object") or "ServerSession" in texts[first]:
            return updated_node.value
        kept = updated_node.slice[first].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(slice=[kept])

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if code(node.target) in self.source.server_aliases and node.value is not None:
            self._types.add(node.value)

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        """Name the class of servers in a type that is written as a text."""
        if original_node not in self._types:
            return updated_node
        server = self.need("foundation_rt.Server")
        parts = self.source.alternatives(original_node)
        named = [server if each in self.source.server_classes else each for each in parts]
        return updated_node.with_changes(value=f'"{" | ".join(dict.fromkeys(named))}"')

    # -- calls -----------------------------------------------------------------------------------

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        key = self.names.key(original_node.func)
        if key is None:
            for part in (self._server_calls, self._context_calls):
                changed = part.call(original_node, updated_node)
                if changed is not None:
                    return changed
            return updated_node
        if key in SERVERS:
            return self._server_calls.construction(original_node, updated_node)
        if key in APIS:
            return self._server_calls.api(original_node, updated_node, key)
        if key == SESSION_MANAGER_CLASS:
            return manager_construction(self, original_node, updated_node)
        if key == FROM_TOOL:
            return self._server_calls.made_tool(original_node, updated_node)
        if key in PROTOCOL_ERRORS:
            return self._protocol_error(original_node, updated_node)
        if key == "File":
            return self._embedded_file(original_node, updated_node)
        if key in TOOL_ERRORS:
            return self._tool_error(key, updated_node)
        return self._class(key, original_node, updated_node)

    def _class(self, key: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return a call of a class with the arguments that ours takes."""
        if key in _OLD_IMAGES:
            return self._media(key, original, updated)
        if key == "UrlElicitationRequiredError" and updated.args:
            pages = updated.args[0].value
            if isinstance(pages, cst.List):
                spread = [cst.Arg(each.value) for each in pages.elements]
            else:
                spread = [cst.Arg(pages, star="*")]
            return updated.with_changes(args=spread)
        if key in ("UserMessage", "AssistantMessage", "Message"):
            return self._message(key, original, updated)
        rule = CALLS.get(key)
        if rule is None or key not in NAMES:
            return updated
        args = args_of.rewrite(updated, rule, key.removeprefix("types."), self.report, original)
        for name in ("uri", "uri_template"):
            args = args_of.changed(args, name, args_of.unwrapped_uri)
        for name in ("data", "blob"):
            if args_of.argument(args, name) is not None and key.startswith("types."):
                self.needed.add("base64.b64decode")
                args = args_of.changed(args, name, args_of.decoded)
        if key == "ReadResourceContents" and args_of.argument(args, "uri") is None:
            self.report(original, f"{code(original.func)}: give it uri=", True)
        if key == "types.Tool" and args_of.argument(args, "description") is None:
            args = [*args, args_of.keyword("description", cst.SimpleString('""'))]
        return updated.with_changes(args=args)

    def _embedded_file(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return an embedded resource of bytes, or of a file."""
        named = {a.keyword.value: code(a.value) for a in updated.args if a.keyword is not None}
        if any(a.keyword is None for a in updated.args):
            named.setdefault("path", code(updated.args[0].value))
        embedded = self.need("foundation_rt.EmbeddedResource")
        blob = self.need("foundation_rt.BlobContents")
        self.report(original, "a file is sent as bytes, whatever its type is", False)
        if "path" in named:
            self.needed |= {"pathlib.Path", "mimetypes.guess_type"}
            path = named["path"]
            usual = "application/octet-stream"
            return cst.parse_expression(
                f"{embedded}({blob}(Path({path}).resolve().as_uri(), Path({path}).read_bytes(), "
                f'guess_type({path})[0] or "{usual}"))'
            )
        kind = named.get("format", '"octet-stream"')
        uri = args_of.joined('"file:///"', named.get("name", '"resource"'), '"."', kind)
        mime = args_of.joined('"application/"', kind)
        return cst.parse_expression(
            f"{embedded}({blob}({uri}, {named.get('data', 'b' + repr(''))}, {mime}))"
        )

    def _media(self, key: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return an image or sound, of bytes or of a file."""
        path = args_of.first_or_named(updated.args, "path")
        if path is not None:
            return self._file(key, path.value)
        kind = args_of.argument(updated.args, "format")
        family, usual = ("image", "png") if key == "Image" else ("audio", "wav")
        if kind is None:
            mime: cst.BaseExpression = cst.SimpleString(f'"{family}/{usual}"')
        elif isinstance(kind.value, cst.SimpleString):
            mime = cst.SimpleString(f'"{family}/{kind.value.raw_value}"')
        else:
            mime = cst.parse_expression(f'f"{family}/{{{code(kind.value)}}}"')
        args = args_of.without(updated.args, "format")
        return updated.with_changes(args=[*args, args_of.keyword("mime_type", mime)])

    def _file(self, key: str, path: cst.BaseExpression) -> cst.BaseExpression:
        """Return an image or sound that is read from a file."""
        self.needed |= {"pathlib.Path", "mimetypes.guess_type"}
        usual = "image/png" if key == "Image" else "audio/wav"
        name = self.need(f"foundation_rt.{key}")
        text = code(path)
        return cst.parse_expression(
            f'{name}(Path({text}).read_bytes(), guess_type({text})[0] or "{usual}")'
        )

    def _message(self, key: str, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return a message of a prompt; its role comes first here."""
        content = args_of.first_or_named(updated.args, "content")
        if content is None:
            self.report(original, f"{code(original.func)}: give it a role and a content", True)
            return updated
        role: cst.BaseExpression = cst.SimpleString(
            '"assistant"' if key == "AssistantMessage" else '"user"'
        )
        given = args_of.argument(updated.args, "role")
        if key == "Message" and given is not None:
            role = given.value
        elif key == "Message" and len(updated.args) > 1 and updated.args[1].keyword is None:
            role = updated.args[1].value
        return updated.with_changes(args=[cst.Arg(role), cst.Arg(content.value)])

    def _protocol_error(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        """Return the error of a tool that says the same as an error of JSON-RPC."""
        args = list(updated.args)
        inner = args[0].value if args else None
        if isinstance(inner, cst.Call) and code(inner.func).endswith("ErrorData"):
            args = list(inner.args)
        names = ("code", "message", "data")
        given = {
            names[place] if arg.keyword is None else arg.keyword.value: arg.value
            for place, arg in enumerate(args[:3])
        }
        if "code" not in given or "message" not in given:
            self.report(original, "an error has a code and a message: give it both", True)
            return updated
        error_code = given["code"]
        if not code(error_code).startswith(local_name("foundation_rt.ErrorCode", self.source)):
            text = f"{code(error_code)} became INTERNAL: choose a code"
            self.report(original, f"{code(original.func)}: {text}", True)
            error_code = cst.parse_expression(f"{self.need('foundation_rt.ErrorCode')}.INTERNAL")
        self.report(original, "of a tool, this error is a result, which its model reads", False)
        texts = [error_code, given["message"], *([given["data"]] if "data" in given else [])]
        return updated.with_changes(args=[cst.Arg(each) for each in texts])

    def _tool_error(self, key: str, updated: cst.Call) -> cst.BaseExpression:
        error_code = f"{self.need('foundation_rt.ErrorCode')}.{TOOL_ERRORS[key]}"
        text = (
            [cst.Arg(updated.args[0].value)] if updated.args else [cst.Arg(cst.SimpleString('""'))]
        )
        return updated.with_changes(args=[cst.Arg(cst.parse_expression(error_code)), *text])

    def leave_Await(self, original_node: cst.Await, updated_node: cst.Await) -> cst.BaseExpression:
        """Call in place what is no coroutine here."""
        if self._server_calls.serves(original_node) and self._coroutines[-1:] == [True]:
            text = "run() is no coroutine: call it where no event loop runs"
            self.report(original_node, text, True)
        if self._context_calls.in_place(original_node) or self._server_calls.in_place(
            original_node
        ):
            return updated_node.expression
        return updated_node

    def leave_MatchClass(
        self, original_node: cst.MatchClass, updated_node: cst.MatchClass
    ) -> cst.MatchClass:
        """Match an answer of a user by its action."""
        key = self.names.key(original_node.cls)
        if key not in ELICITED:
            return updated_node
        action = cst.MatchValue(cst.SimpleString(f'"{ELICITED[key]}"'))
        pattern = cst.MatchKeywordElement(cst.Name("action"), action)
        if updated_node.kwds:
            pattern = pattern.with_changes(
                comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            )
        return updated_node.with_changes(kwds=[pattern, *updated_node.kwds])

    def leave_Comparison(
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        return self._context_calls.comparison(original_node, updated_node)

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        """Rewrite middleware. Leave an event store, which needs no library, without its base."""
        if original_node in self._classes.rewritten:
            return middleware_classes.rewrite(self, original_node, updated_node)
        bases = [
            now
            for was, now in zip(original_node.bases, updated_node.bases, strict=True)
            if self.names.key(was.value) != "EventStore"
        ]
        if len(bases) == len(original_node.bases):
            return updated_node
        name = original_node.name.value
        self.report(original_node, f"{name}: {SERVER.drops['event_store']}: remove it", False)
        none = cst.MaybeSentinel.DEFAULT
        pars = {} if bases or original_node.keywords else {"lpar": none, "rpar": none}
        return updated_node.with_changes(bases=args_of.tidy(bases, updated_node.bases), **pars)

    # -- statements ------------------------------------------------------------------------------

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> Any:
        return self._server_calls.stdio(original_node, updated_node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        self.is_in_line = False
        if self._server_calls.setting(original_node) is not None:
            changed = self._server_calls.set_later(original_node)
            return cst.RemoveFromParent() if changed is None else changed
        if self._server_calls.is_extension(original_node):
            self.settle(original_node, "add_extension")
            text = 'tasks need only task="optional", and are in the section `tasks`'
            self.report(original_node, text, False)
            return cst.RemoveFromParent()
        if self._context_calls.is_repeated(updated_node) or self.transforms.is_moved(original_node):
            return cst.RemoveFromParent()
        return cst.FlattenSentinel(self._server_calls.after(original_node, updated_node))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        if node in self._by_hand:
            return False
        kind = self._decorated_as(node)
        if node in self._classes.hooks:
            kind = middleware_classes.KIND
        elif node.name.value in self.source.completers:
            kind = "completion"
        self.kinds.append(kind)
        self.functions.append(node.name.value)
        runs = node.name.value in self.source.runners
        self._coroutines.append(node.asynchronous is not None and not runs)
        return True

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> Any:
        if original_node in self._by_hand:
            return updated_node
        self._coroutines.pop()
        self.kinds.pop()
        self.functions.pop()
        updated_node = updated_node.with_changes(name=original_node.name)
        if original_node.name.value in self.source.runners:
            updated_node = updated_node.with_changes(asynchronous=None)
            if original_node.name.value not in self.source.started:
                self._report_server(original_node)
        if original_node.name.value in self.source.completers:
            return take_request(self, original_node, updated_node)
        kind = self._decorated_as(original_node)
        return complete(self, kind, original_node, updated_node)

    def _decorated_as(self, node: cst.FunctionDef) -> str | None:
        for decorator in node.decorators:
            call = decorator.decorator
            found = self.source.server_method(call.func if isinstance(call, cst.Call) else call)
            if found is not None and found[1] in DECORATORS:
                return found[1]
        return None


def updated_name(updated: cst.Name | cst.Attribute, name: str) -> cst.BaseExpression:
    """Return a name with the parentheses of the expression that it replaces."""
    return cst.Name(name, lpar=updated.lpar, rpar=updated.rpar)


def local_name(full: str, source: SourceFacts) -> str:
    """Return the name under which an object of ours is imported, another than those taken."""
    name = full.rpartition(".")[2]
    return f"Mcp{name}" if name in source.taken and full.startswith("foundation_rt.") else name
