"""The public names of the client: which there are, what they cost, what a type checker sees."""

from __future__ import annotations

import importlib

import attrs
import pytest

import foundation_rt.client
from foundation_rt.client.handlers.client_handlers import ClientHandlers
from foundation_rt.client.options import ClientOptions, ConnectOptions
from tests.lab.programs.program import run_source

PUBLIC = {
    "AuthorizationError",
    "ClientCredentials",
    "EnterpriseManaged",
    "FileTokenStore",
    "LoginRequest",
    "MemoryTokenStore",
    "OAuth",
    "StoreKey",
    "TokenStore",
    "WorkloadIdentity",
    "browser_login",
    "device_login",
    "log_in",
    "paste_login",
    "BreakerSettings",
    "CATALOGUE",
    "CallResult",
    "CallTimeoutError",
    "CircuitBreaker",
    "CircuitOpenError",
    "CircuitState",
    "Client",
    "ClientHandlers",
    "ClientOptions",
    "CompletionResult",
    "ConnectOptions",
    "ConnectionLostError",
    "DOCUMENT_ROUTES",
    "ElicitResult",
    "ElicitationRequest",
    "ElicitationUrlRequest",
    "ExportRoute",
    "FileRoute",
    "HttpServer",
    "InvalidResponseError",
    "InvalidArgumentsError",
    "MCPError",
    "NotOfferedError",
    "Prompt",
    "ListedPromptArgument",
    "Permits",
    "GetPromptResult",
    "ServerRequestHandlers",
    "ServerRequestRefused",
    "ReadResult",
    "Resource",
    "ResourceTemplate",
    "RetryPolicy",
    "Revision",
    "Root",
    "Router",
    "SampleResult",
    "SamplingRequest",
    "ServerDescription",
    "SessionExpiredError",
    "SizeTimeout",
    "Skill",
    "SkillFile",
    "APPS",
    "App",
    "AppCsp",
    "ToolUi",
    "StdioServer",
    "Subscription",
    "ToolCallError",
    "ToolSchema",
    "UrlRoute",
    "ValidationIssue",
    "connect",
    "is_failure",
    "map_mcp_error",
}
DATA = {"APPS", "CATALOGUE", "DOCUMENT_ROUTES"}


@pytest.mark.rule("EMBED-01")
def test_these_names_are_public_and_no_others() -> None:
    assert set(foundation_rt.client.__all__) == PUBLIC
    assert set(dir(foundation_rt.client)) == PUBLIC
    namespace: dict[str, object] = {}
    exec("from foundation_rt.client import *", namespace)
    assert namespace.keys() - {"__builtins__"} == PUBLIC


@pytest.mark.rule("EMBED-01")
@pytest.mark.parametrize("name", sorted(PUBLIC - DATA))
def test_public_name_is_the_object_of_its_module(name: str) -> None:
    value = getattr(foundation_rt.client, name)
    home = importlib.import_module(value.__module__)
    assert getattr(home, name) is value
    assert value.__module__.startswith("foundation_rt.")
    assert value.__doc__


@pytest.mark.rule("EMBED-01")
def test_a_name_that_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match=r"'foundation_rt\.client' has no attribute 'conect'"):
        _ = foundation_rt.client.conect
    with pytest.raises(ImportError):
        exec("from foundation_rt.client import conect")


def loaded_by(code: str) -> set[str]:
    """Return what another interpreter has imported by a program."""
    whole = f"import sys\nbefore = {{*sys.modules}}\n{code}\nprint(*({{*sys.modules}} - before))"
    done = run_source(whole)
    return {*done.stdout.split()}


@pytest.mark.rule("EMBED-01", "PROC-08")
def test_importing_the_client_imports_next_to_nothing() -> None:
    ours = {each for each in loaded_by("import foundation_rt.client") if "foundation_rt" in each}
    names = {"", ".base", ".base.lazy_names", ".client", ".version"}
    assert ours == {f"foundation_rt{name}" for name in names}
    loaded = loaded_by("from foundation_rt.client import MCPError, ToolCallError, map_mcp_error")
    assert not loaded & {"asyncio", "httpx2", "foundation_rt.client.client"}


# What a call may never need: another transport, schemas that nobody asked for, a server.
LATE = {
    "fastjsonschema",
    "foundation_rt.kernel.runtime",
    "foundation_rt.server",
    "httpx2",
    "jsonschema_rs",
    "rich",
    "subprocess",
    "tomllib",
    "uvicorn",
}


@pytest.mark.rule("EMBED-01", "PROC-08")
def test_importing_connect_loads_only_modules_of_every_call() -> None:
    loaded = loaded_by("from foundation_rt.client import connect, StdioServer, HttpServer")
    assert "asyncio" in loaded
    # asyncio brings subprocess by itself.
    assert not loaded & LATE - loaded_by("import asyncio")


@pytest.mark.rule("EMBED-01")
def test_a_command_needs_neither_the_server_nor_httpx() -> None:
    code = "from foundation_rt.client import connect; connect('some-server')"
    assert not loaded_by(code) & {"httpx2", "uvicorn", "rich", "foundation_rt.kernel.runtime"}


@pytest.mark.rule("EMBED-01")
def test_connect_options_have_the_types_of_their_targets() -> None:
    attempts = (attrs.fields(ClientOptions), attrs.fields(ClientHandlers))
    taken = {each.name: each.type for fields in attempts for each in fields if each.init}
    taken["require"] = "Collection[str] | None"  # of which a frozenset is made
    typed = ConnectOptions.__annotations__
    assert {name: kind.__forward_arg__ for name, kind in typed.items()} == taken
