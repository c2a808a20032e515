"""The public names of the coordinator, and what it is built on."""

from __future__ import annotations

import importlib
import pickle
from datetime import UTC, datetime

import pytest

import foundation_rt.coordinator
from foundation_rt.client import MCPError
from foundation_rt.coordinator import (
    ExecutionContext,
    ToolCircuitOpenError,
    ToolExecutionError,
    ToolNotFoundError,
    ToolValidationError,
)
from tests.lab.checks.public_imports import PACKAGE, private_imports
from tests.lab.programs.program import run_source

PUBLIC = {
    "ServerPlan",
    "chain_mark",
    "close_names",
    "failure_of",
    "file_identity",
    "for_many",
    "shared_logins",
    "with_logins",
    "is_own_child",
    "mark_children",
    "outside_name",
    "plans_of",
    "plans_of_file",
    "Coordinator",
    "CoordinatorError",
    "CircuitOptions",
    "CoordinatorOptions",
    "ExecutionContext",
    "Priority",
    "RetryOptions",
    "ServerConnections",
    "ServerState",
    "ServerStatus",
    "ToolCallFailure",
    "ToolCallRequest",
    "ToolCallResponse",
    "ToolCircuitOpenError",
    "ToolExecutionError",
    "ToolExecutionOptions",
    "ToolNotFoundError",
    "ToolRegistryEntry",
    "ToolValidationError",
}


@pytest.mark.rule("EMBED-01")
def test_these_names_are_public_and_no_others() -> None:
    assert set(foundation_rt.coordinator.__all__) == PUBLIC == set(dir(foundation_rt.coordinator))
    with pytest.raises(AttributeError, match="no attribute 'Cordinator'"):
        _ = foundation_rt.coordinator.Cordinator


@pytest.mark.rule("EMBED-01")
@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_name_is_the_object_of_its_module(name: str) -> None:
    value = getattr(foundation_rt.coordinator, name)
    assert getattr(importlib.import_module(value.__module__), name) is value
    assert value.__doc__


@pytest.mark.rule("COORD-45")
def test_coordinator_uses_only_what_is_public() -> None:
    public = (
        "base.backoff",
        "base.close_names",
        "client",
        "base.exact_json",
        "base.file_changes",
        "base.lazy_names",
        "base.mcp_json",
        "base.skill_format",
        "protocol.methods",
    )
    assert not private_imports("apps.coordinator", public)
    for path in (PACKAGE / "apps" / "coordinator").rglob("*.py"):
        assert "from ...client." not in path.read_text()


@pytest.mark.rule("COORD-45")
def test_serving_and_calling_import_nothing_of_it() -> None:
    code = (
        "import sys, foundation_rt.server, foundation_rt.client.connecting, foundation_rt.cli.main;"
        "print([name for name in sys.modules if 'coordinator' in name and 'agents' not in name])"
    )
    done = run_source(code)
    assert done.stdout == "[]\n"


@pytest.mark.rule("COORD-26")
def test_errors_survive_pickling() -> None:
    context = ExecutionContext("a:b", "a", "1", {})
    for error in (
        ToolNotFoundError("x", ("a:x", "b:x")),
        ToolValidationError("a:x", ()),
        ToolCircuitOpenError("a:x", 5, datetime.now(UTC), 3.0),
        ToolExecutionError("Failed to execute tool: a:b", MCPError("E201", "gone"), context),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
