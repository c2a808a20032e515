"""The gateway as an application on the runtime."""

from __future__ import annotations

import pytest

from tests.support.public_imports import private_imports


@pytest.mark.rule("GATE-49")
def test_gateway_imports_only_what_is_documented_as_public() -> None:
    public = ("client", "config.sections", "coordinator", "errors", "logs", "mcp_json")
    shared = ("engine.user_signal", "protocol.peer", "protocol.revisions")
    assert not private_imports("gateway", (*public, *shared))
