"""The settings of a gateway that differ from those of a server."""

from __future__ import annotations

import pytest

from foundation_rt import Server
from foundation_rt.apps.gateway.app import create_gateway
from foundation_rt.apps.gateway.source import single_source


@pytest.mark.rule("GATE-09")
def test_gateway_takes_larger_messages_and_more_calls() -> None:
    ours = create_gateway(single_source(None, Server("one"))).load_config()
    theirs = Server("two").load_config()
    assert ours.resources.max_concurrent_executions == 1_000
    assert ours.http.max_body_bytes > theirs.http.max_body_bytes
    assert ours.tools.max_response_bytes > theirs.tools.max_response_bytes
