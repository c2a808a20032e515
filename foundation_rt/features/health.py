"""The `health` tool: identity, limits, load and readiness of the server (HEALTH-01)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kernel.registry.tool_definition import ToolDefinition

if TYPE_CHECKING:
    from ..base.config.settings import ServerConfig
    from ..kernel.execution_limits import ResourceManager
    from .readiness import ReadinessChecks

HEALTH = ToolDefinition(
    name="health",
    description="Report the server's identity, limits, load and health status.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
)


def health_report(config: ServerConfig, resources: ResourceManager) -> dict[str, Any]:
    """Return the report, in camelCase as on the wire; sizes in bytes, times in ms."""
    return {
        "server": {"name": config.server.name, "version": config.server.version},
        "config": {
            "toolTimeoutMs": config.tools.default_timeout_ms,
            "maxConcurrentExecutions": config.resources.max_concurrent_executions,
            "maxPayloadBytes": config.tools.max_payload_bytes,
            "maxStateBytes": config.tools.max_state_bytes,
        },
        "resources": resources.get_telemetry().to_wire(),
        "status": resources.get_health_status(),
    }


async def checked_report(
    config: ServerConfig, resources: ResourceManager, checks: ReadinessChecks
) -> dict[str, Any]:
    """Return the report with the results of the readiness checks (HEALTH-03)."""
    from .readiness import OK

    results = await checks.results()
    report = health_report(config, resources) | {"checks": results}
    if any(result != OK for result in results.values()):
        report["status"] = "unhealthy"
    return report
