"""The gateway as an application on the runtime."""

from __future__ import annotations

import pytest

from tests.lab.checks.public_imports import private_imports


@pytest.mark.rule("GATE-49")
def test_gateway_imports_only_what_is_documented_as_public() -> None:
    public = (
        "client",
        "base.config.sections",
        "apps.coordinator",
        "errors",
        "base.exact_json",
        "base.logs",
        "base.mcp_json",
    )
    shared = (
        "base.abort",
        "base.app_format",
        "base.bounded_dict",
        "base.files",
        "base.skill_format",
        "base.transforms",
        "base.tool_versions",
        "protocol.methods",
        "protocol.peer",
        "protocol.revisions",
        "features.resources.uri_template",
        "features.tool_search",
    )
    assert not private_imports("apps.gateway", (*public, *shared))
