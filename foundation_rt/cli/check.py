"""The command `foundation-rt check`; not on the start path of `serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from ..config.loading import to_mapping
from ..protocol.revisions import REVISIONS

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from ..server import Server


def check(server: Server) -> bytes:
    """Return the server's lists and effective configuration as JSON, secrets redacted."""
    runtime = server.runtime
    newest = [*REVISIONS.values()][-1]
    report: dict[str, Any] = {
        "server": {"name": runtime.config.server.name, "version": runtime.config.server.version},
        "tools": [definition.to_wire(newest) for definition in server.list()],
        **_other_features(server, newest),
        "configuration": to_mapping(runtime.config),
    }
    runtime.close_logs(1.0)
    return orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _other_features(server: Server, revision: Revision) -> dict[str, Any]:
    """Return the lists besides that of tools, without empty ones."""
    resources, prompts = server.features.resources, server.features.prompts.prompts
    lists = {
        "resources": [each.wire(revision) for each in resources.resources.entries()],
        "resourceTemplates": [each.wire(revision) for each in resources.templates.entries()],
        "prompts": [each.wire(revision) for each in prompts.entries()],
    }
    return {name: listed for name, listed in lists.items() if listed}
