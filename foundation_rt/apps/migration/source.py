"""A file of Python: what its rewriting has to know, gathered in one walk; and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import libcst as cst
from attrs import define, field, frozen
from libcst import metadata

from .names import APIS, LIBRARIES, RUNS, canonical

SERVERS = frozenset({"FastMCP", "MCPServer", "Server"})
CONTEXTS = frozenset({"Context", "ServerRequestContext", "RequestContext"})

INNER_SERVER = "_mcp_server"
"""The attribute of a server that has the low-level one inside of it."""

PROVIDER = "local_provider"
"""The attribute of a server that has what was registered there, and methods that are ours."""

SESSION_MANAGER_CLASS = "StreamableHTTPSessionManager"

ASGI = ("http_app", "streamable_http_app")
"""The methods of a server that return its application."""

LOGINS = frozenset({"auth", "token_verifier", "auth_server_provider"})
"""The arguments of a server that make its clients log in."""

_METADATA = (metadata.QualifiedNameProvider, metadata.PositionProvider)


def code(node: cst.CSTNode) -> str:
    """Return the text of a node."""
    return cst.Module([]).code_for_node(node)


@frozen(order=True)
class Finding:
    """A place in a file that a person looks at.

    Attributes:
        line: in the file as it was, from 1.
        text: what stands there, why it matters, and what to do.
        is_open: a person has to decide, else the program may not run or means something else; if
            not, the file was changed here in a way that is worth knowing.
    """

    line: int
    text: str
    is_open: bool


@frozen
class MigratedFile:
    """A file after its migration.

    Attributes:
        text: of the file, changed or not.
        libraries: the other libraries that the file imported: `fastmcp`, `mcp` or `mcp_types`.
        findings: ordered by line, without duplicates.
        servers: functions that serve and are no coroutines any more, though the file does not call
            them, by their names; with the findings that say so.
    """

    text: str
    libraries: tuple[str, ...]
    findings: tuple[Finding, ...]
    servers: Mapping[str, Finding] = field(factory=dict)

    @property
    def open_findings(self) -> tuple[Finding, ...]:
        """The findings that a person has to decide."""
        return tuple(each for each in self.findings if each.is_open)


@define
class SourceFacts:
    """The facts about one file.

    Attributes:
        libraries: the other libraries that it imports.
        servers: expressions that are servers: `mcp`, `self.app`.
        scopes: of each of them that is a name: the functions in which it is one.
        contexts: names of parameters and variables that are contexts.
        sampled: names of variables that hold the answer of a model.
        completers: names of functions that complete all arguments.
        runners: names of async functions that do nothing asynchronous but serve.
        server_classes: names by which it imports classes of servers.
        server_aliases: names of types that it makes of them: `AnyServer = MCPServer | Server`.
        taken: names that the file binds to something else.
        read: names of variables that hold contents of resources that were read.
        started: names of functions that the file calls.
        rooted: names of variables that hold the result of `roots/list`.
        session_managers: expressions that are managers of HTTP sessions.
        is_protected: a server of the file asks for a login.
        is_mounted: the file asks a server for its application for ASGI.
    """

    libraries: set[str] = field(factory=set)
    servers: set[str] = field(factory=set)
    scopes: dict[str, set[tuple[str, ...]]] = field(factory=dict)
    contexts: set[str] = field(factory=set)
    sampled: set[str] = field(factory=set)
    completers: set[str] = field(factory=set)
    runners: set[str] = field(factory=set)
    server_classes: set[str] = field(factory=set)
    server_aliases: set[str] = field(factory=set)
    taken: set[str] = field(factory=set)
    read: set[str] = field(factory=set)
    rooted: set[str] = field(factory=set)
    started: set[str] = field(factory=set)
    session_managers: set[str] = field(factory=set)
    is_protected: bool = False
    is_mounted: bool = False

    def server_method(self, node: cst.BaseExpression) -> tuple[str, str] | None:
        """Return the server and the method that an expression names, or None."""
        if isinstance(node, cst.Attribute):
            owner = code(node.value).removesuffix(f".{PROVIDER}")
            if isinstance(node.value, cst.Call):
                owner = f"{code(node.value.func)}()"
            if owner in self.servers:
                return owner, node.attr.value
        return None

    def alternatives(self, node: cst.BaseExpression | None) -> list[str]:
        """Return the parts of a union that is written as a text; classes of servers without theirs.

        The list is empty unless one of them is a class of servers.
        """
        if not isinstance(node, cst.SimpleString):
            return []
        try:
            union = cst.parse_expression(str(node.evaluated_value))
        except cst.ParserSyntaxError:
            return []
        parts = [self._alternative(each) for each in _alternatives(union)]
        return parts if self.server_classes & {*parts} else []

    def _alternative(self, node: cst.BaseExpression) -> str:
        if isinstance(node, cst.Subscript) and code(node.value) in self.server_classes:
            return code(node.value)
        return code(node)


def is_of_library(node: cst.ImportFrom) -> bool:
    """Return whether an import is of a module of another library."""
    if node.relative or node.module is None:
        return False
    return code(node.module).partition(".")[0] in LIBRARIES


def is_roots_of_session(node: cst.BaseExpression) -> bool:
    """Return whether a session is asked for its roots, of which the result has a list."""
    return isinstance(node, cst.Call) and code(node.func).endswith("session.list_roots")


def with_names(node: cst.Import | cst.ImportFrom, keeps: Callable[[cst.ImportAlias], bool]) -> Any:
    """Return an import of the names that `keeps` accepts; remove one without any."""
    assert not isinstance(node.names, cst.ImportStar)
    names = [each for each in node.names if keeps(each)]
    if not names:
        return cst.RemoveFromParent()
    if len(names) == len(node.names):
        return node
    names[-1] = names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return node.with_changes(names=names)


class NameResolver:
    """Names of nodes as their modules have them."""

    def __init__(self, node: cst.MetadataDependent) -> None:
        self._node = node

    def full(self, node: cst.CSTNode) -> str | None:
        """Return the full name of an imported object of the other libraries."""
        found: Collection[metadata.QualifiedName] = self._node.get_metadata(
            metadata.QualifiedNameProvider, node, ()
        )
        for each in found:
            imported = each.source is metadata.QualifiedNameSource.IMPORT
            if imported and each.name.partition(".")[0] in LIBRARIES:
                return each.name
        return None

    def key(self, node: cst.CSTNode) -> str | None:
        """Return the key of an imported object in the tables of names."""
        full = self.full(node)
        return None if full is None else canonical(full)

    def mentions(self, node: cst.CSTNode | None, keys: Collection[str]) -> bool:
        """Return whether an expression has a reference to one of `keys`."""
        if node is None:
            return False
        if isinstance(node, cst.Name | cst.Attribute) and self.key(node) in keys:
            return True
        return any(self.mentions(child, keys) for child in node.children)


def _alternatives(union: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(union, cst.BinaryOperation) and isinstance(union.operator, cst.BitOr):
        return [*_alternatives(union.left), *_alternatives(union.right)]
    return [union]


class SourceReader(cst.CSTVisitor):
    """Fills a `SourceFacts` while it visits a file."""

    METADATA_DEPENDENCIES = _METADATA

    def __init__(self) -> None:
        super().__init__()
        self.source = SourceFacts()
        self.names = NameResolver(self)
        self._functions: list[str] = []

    def _library(self, name: str) -> bool:
        root = name.partition(".")[0]
        if root in LIBRARIES:
            self.source.libraries.add(root)
        return root in LIBRARIES

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            if not self._library(code(alias.name)):
                self.source.taken.add(alias.evaluated_alias or code(alias.name))
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        module = "" if node.module is None else code(node.module)
        if isinstance(node.names, cst.ImportStar):
            if not node.relative:
                self._library(module)
            return False
        for each in node.names:
            if canonical(f"{module}.{each.evaluated_name}") in SERVERS and not node.relative:
                self.source.server_classes.add(each.evaluated_alias or each.evaluated_name)
        if node.relative or not self._library(module):
            self.source.taken.update(a.evaluated_alias or a.evaluated_name for a in node.names)
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.source.taken.add(node.name.value)

    def visit_Param(self, node: cst.Param) -> None:
        self.source.taken.add(node.name.value)
        if node.annotation is not None:
            if self._is_server(node.annotation):
                self._add_server(node.name.value)
            if self.names.mentions(node.annotation, CONTEXTS):
                self.source.contexts.add(node.name.value)

    def _is_server(self, annotation: cst.Annotation) -> bool:
        is_alias = code(annotation.annotation) in self.source.server_aliases
        return is_alias or self.names.mentions(annotation, SERVERS)

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assigned(target.target, node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._assigned(node.target, node.value)
            is_alias = code(node.annotation.annotation).rpartition(".")[2] == "TypeAlias"
            if is_alias and self.source.alternatives(node.value):
                self.source.server_aliases.add(code(node.target))

    def _assigned(self, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        name = code(target)
        if isinstance(target, cst.Name):
            self.source.taken.add(name)
            is_union = isinstance(value, cst.BinaryOperation)
            if is_union and self.names.mentions(value, SERVERS):
                self.source.server_aliases.add(name)
        if isinstance(value, cst.Call) and self.names.key(value.func) in {*SERVERS, *APIS}:
            self._add_server(name)
        if isinstance(value, cst.Call) and f"{code(value.func)}()" in self.source.servers:
            self._add_server(name)
        if isinstance(value, cst.Call) and self.names.key(value.func) == SESSION_MANAGER_CLASS:
            self.source.session_managers.add(name)
        if isinstance(value, cst.Attribute) and value.attr.value == "request_context":
            self.source.contexts.add(name)
        called = value.expression if isinstance(value, cst.Await) else value
        if isinstance(called, cst.Call) and isinstance(called.func, cst.Attribute):
            method = called.func.attr.value
            if method == "create_message":
                self.source.sampled.add(name)
            if method == "get_context":
                self.source.contexts.add(name)
            if method == "read_resource":
                self.source.read.update(_parts(target))
            if is_roots_of_session(called):
                self.source.rooted.add(name)

    def _add_server(self, name: str) -> None:
        self.source.servers.add(name)
        self.source.scopes.setdefault(name, set()).add((*self._functions,))

    def visit_For(self, node: cst.For) -> None:
        if code(node.iter) in self.source.read:
            self.source.read.add(code(node.target))

    def visit_Decorator(self, node: cst.Decorator) -> None:
        call = node.decorator
        func = call.func if isinstance(call, cst.Call) else call
        if isinstance(func, cst.Attribute) and func.attr.value in ("tool", "resource", "prompt"):
            self.source.servers.add(code(func.value))

    def visit_Return(self, node: cst.Return) -> None:
        value = node.value
        is_server = value is not None and code(value) in self.source.servers
        if is_server or (isinstance(value, cst.Call) and self.names.key(value.func) in SERVERS):
            self.source.servers.update(f"{name}()" for name in self._functions[-1:])

    def visit_Call(self, node: cst.Call) -> None:
        if isinstance(node.func, cst.Name):
            self.source.started.add(node.func.value)
        values = (arg.value for arg in node.args)
        self.source.started.update(each.value for each in values if isinstance(each, cst.Name))
        if isinstance(node.func, cst.Attribute) and node.func.attr.value in ASGI:
            self.source.is_mounted = True
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        key = self.names.key(node.func)
        self.source.is_mounted |= key == SESSION_MANAGER_CLASS
        if key in SERVERS or method in (*RUNS, *ASGI):
            given = {arg.keyword.value for arg in node.args if arg.keyword is not None}
            self.source.is_protected |= bool(given & LOGINS)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._functions.pop()
        is_plain = original_node.asynchronous is not None and not original_node.decorators
        if is_plain and self._only_serves(original_node):
            self.source.runners.add(original_node.name.value)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._functions.append(node.name.value)
        self.source.taken.add(node.name.value)
        if node.returns is not None and self._is_server(node.returns):
            self.source.servers.add(f"{node.name.value}()")
        for decorator in node.decorators:
            call = decorator.decorator
            named = self.source.server_method(call.func if isinstance(call, cst.Call) else call)
            is_general = not isinstance(call, cst.Call) or not call.args
            if named is not None and named[1] == "completion" and is_general:
                self.source.completers.add(node.name.value)

    def _only_serves(self, node: cst.FunctionDef) -> bool:
        waits = _Waits(self.names, self.source)
        node.body.visit(waits)
        return waits.serves and not waits.others


def _parts(target: cst.BaseExpression) -> list[str]:
    """Return the texts of what an assignment sets: several if it unpacks its value."""
    if isinstance(target, cst.List | cst.Tuple):
        return [code(each.value) for each in target.elements]
    return [code(target)]


class _Waits(cst.CSTVisitor):
    """Tells whether a function waits for a server, and for anything else."""

    def __init__(self, names: NameResolver, source: SourceFacts) -> None:
        super().__init__()
        self._names, self._source = names, source
        self.serves = self.others = False

    def visit_Await(self, node: cst.Await) -> bool:
        call = node.expression
        found = self._source.server_method(call.func) if isinstance(call, cst.Call) else None
        if found is not None and found[1] in RUNS:
            self.serves = True
        else:
            self.others = True
        return False

    def visit_With(self, node: cst.With) -> None:
        if node.asynchronous is not None and not is_stdio(node, self._names):
            self.others = True

    def visit_For(self, node: cst.For) -> None:
        self.others = self.others or node.asynchronous is not None

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False


def is_stdio(node: cst.With, names: NameResolver) -> bool:
    """Return whether a statement opens the transport of stdio."""
    call = node.items[0].item
    return isinstance(call, cst.Call) and names.key(call.func) == "stdio_server"
