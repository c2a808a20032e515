"""The environment variables of the seed, as settings (TASKS-100)."""

from __future__ import annotations

from collections.abc import MutableMapping

from ...errors import UsageError

_SENSITIVE_DATA = "FOUNDATION_RT_AUDIT__SENSITIVE_DATA"

VARIABLES = {
    "MCP_CORS_ORIGINS": "FOUNDATION_RT_HTTP__CORS_ORIGINS",
    "MCP_TRANSPORT_HTTP_SECURITY_API_KEYS": "FOUNDATION_RT_HTTP__API_KEYS",
    "MCP_RESOURCE_MAX_TASKS": "FOUNDATION_RT_TASK_SERVER__RESOURCE_MAX_TASKS",
    "AUDIT_ENABLED": "FOUNDATION_RT_AUDIT__ENABLED",
    "AUDIT_ENABLED_CATEGORIES": "FOUNDATION_RT_AUDIT__CATEGORIES",
    "AUDIT_SENSITIVE_DATA_STRATEGY": _SENSITIVE_DATA,
}
"""The seed's variables, and the variable of the same setting, which wins."""

OPTIONS = {
    "MCP_TRANSPORT_MODE": "--transport stdio, http or both",
    "SECURITY_API_KEY_ENABLED": "--no-auth, or FOUNDATION_RT_HTTP__NO_AUTH=true",
}
"""Variables that are refused, and what to write instead."""


def take_seed_variables(variables: MutableMapping[str, str]) -> None:
    """Set the variables of settings that the seed's variables give; an empty one is none.

    Underscores in the seed's names do not count: its framework leaves out those of a dash.

    Raises:
        UsageError: lists those for which there is an option, and names it.
    """
    given = {name.replace("_", ""): value for name, value in variables.items() if value}
    problems = [
        f"{name} is not read: use {instead}"
        for name, instead in OPTIONS.items()
        if name.replace("_", "") in given
    ]
    if problems:
        raise UsageError("\n".join(problems))
    for name, own in VARIABLES.items():
        value = given.get(name.replace("_", ""))
        if value and not variables.get(own):
            variables[own] = value.lower() if own == _SENSITIVE_DATA else value
