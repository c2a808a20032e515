"""The public names: their list, the cost of their import, and their types."""

from __future__ import annotations

import importlib

import pytest

import foundation_rt
from tests.lab.programs.program import run_source

PUBLIC = {
    "JsonRpcErrorCode",
    "Peer",
    "Principal",
    "AbortError",
    "AbortSignal",
    "AgentContext",
    "AgentCoordinator",
    "AgentCoordinatorV2",
    "AgentCycleError",
    "AgentMessage",
    "AgentNotFoundError",
    "AgentQueueFullError",
    "AgentStateTooLargeError",
    "AgentUnregisteredError",
    "Annotations",
    "AppCsp",
    "ToolUi",
    "AnswerTimeoutError",
    "ServerRequestError",
    "Audio",
    "BlobContents",
    "ByName",
    "ClientCapabilityError",
    "ClientGoneError",
    "ClientErrorResponse",
    "CompletedCall",
    "Completion",
    "CompletionRequest",
    "ConfigError",
    "Connection",
    "Constraints",
    "Counter",
    "Depends",
    "Dispatcher",
    "Elicit",
    "ElicitResult",
    "ElicitUrl",
    "EmbeddedResource",
    "ErrorCode",
    "Feature",
    "ForwardTarget",
    "ForwardedError",
    "ForwardedRequest",
    "Gauge",
    "Header",
    "Histogram",
    "Icon",
    "Image",
    "Invocation",
    "InvalidClientResult",
    "ModelPreferences",
    "OutcomeUnknownError",
    "PageAccess",
    "PromptArgument",
    "PromptDefinition",
    "PromptMessage",
    "PromptResult",
    "RegistrationError",
    "RequestConflictError",
    "RequestForwarder",
    "RequestFailedError",
    "ResourceDefinition",
    "ResourceLink",
    "ResourceTemplateDefinition",
    "Root",
    "Roots",
    "Sample",
    "SampleResult",
    "SamplingMessage",
    "Server",
    "ServerOptions",
    "SessionLog",
    "Text",
    "TextContents",
    "ToolAnnotations",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "ToolUseResult",
    "Transform",
    "UrlElicitationRequired",
    "UsageError",
    "__version__",
    "create_server",
    "start_server",
}


@pytest.mark.rule("EMBED-01", "EMBED-05", "EMBED-06")
def test_public_names_are_exactly_these() -> None:
    assert set(foundation_rt.__all__) == PUBLIC
    assert set(dir(foundation_rt)) == PUBLIC
    namespace: dict[str, object] = {}
    exec("from foundation_rt import *", namespace)
    assert namespace.keys() - {"__builtins__"} == PUBLIC


@pytest.mark.rule("EMBED-01")
@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_public_name_is_defined_by_its_module(name: str) -> None:
    value = getattr(foundation_rt, name)
    assert value is getattr(foundation_rt, name)
    home = importlib.import_module(value.__module__)
    assert getattr(home, name) is value
    assert value.__module__.startswith("foundation_rt.")
    assert value.__doc__


@pytest.mark.rule("EMBED-01")
def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'foundation_rt' has no attribute 'Sever'"):
        _ = foundation_rt.Sever
    with pytest.raises(ImportError):
        exec("from foundation_rt import Sever")


IMPORTED = """
import sys
import foundation_rt
before = {name for name in sys.modules if name.startswith("foundation_rt.")}
heavy = {"attrs", "fastjsonschema", "orjson", "asyncio", "logging"} & set(sys.modules)
names = {name.removeprefix("foundation_rt.") for name in before}
assert names == {"base", "base.lazy_names", "version"}, names
assert not heavy, heavy
foundation_rt.ErrorCode
assert "foundation_rt.errors" in sys.modules
assert "foundation_rt.server" not in sys.modules
server = foundation_rt.Server("x")
late = {"tomli", "asyncio", "logging", "argparse"} & set(sys.modules)
assert not late, late
"""


@pytest.mark.rule("EMBED-01", "PROC-08", "CONF-21")
def test_importing_the_package_imports_next_to_nothing() -> None:
    run_source(IMPORTED)


@pytest.mark.rule("EMBED-10")
@pytest.mark.parametrize(
    ("path", "home", "name"),
    [
        ("backoff", "base.backoff", "exponential_delay"),
        ("config.sections", "base.config.sections", "setting"),
        ("coordinator", "apps.coordinator", "Coordinator"),
        ("database.migrations", "base.database.migrations", "Migration"),
        ("database.postgres", "base.database.postgres", "PostgresConnections"),
        ("database.sqlite", "base.database.sqlite", "SqliteDatabase"),
        ("database.errors", "base.database.errors", "DatabaseFullError"),
        ("exact_json", "base.exact_json", "loads"),
        ("files", "base.files", "replacing"),
        ("host", "apps.host", "ConversationOrchestrator"),
        ("host.orchestrator", "apps.host.orchestrator", "ConversationOrchestrator"),
        ("mcp_json", "base.mcp_json", "ServerFile"),
    ],
)
def test_public_path_has_the_names_of_its_home(path: str, home: str, name: str) -> None:
    public, real = (importlib.import_module(f"foundation_rt.{each}") for each in (path, home))
    assert getattr(public, name) is getattr(real, name)
    assert name in dir(public)
    assert name in public.__all__
