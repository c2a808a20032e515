"""Registering an API: its tools and resources in the registries of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import RegistrationError
from ...kernel.registry.resources import ResourceDefinition
from ...kernel.registry.tools import ExecutionMode
from .operations import SkippedOperation

if TYPE_CHECKING:
    from ...kernel.registry.resources import ResourceRegistry
    from ...kernel.registry.tools import ToolRegistry
    from .api import Api


def register_api(api: Api, tools: ToolRegistry, resources: Callable[[], ResourceRegistry]) -> None:
    """Register the tools and resources of an API.

    One that the registry refuses, for its schema for instance, is added to `Api.skipped`: a
    document of a thousand operations may have a bad one (OAPI-09).

    Args:
        api: to be registered.
        tools: of the server.
        resources: returns those of the server; called if there are any.
    """
    for tool in api.tools:
        try:
            tools.register(tool.definition, tool.call, execution=ExecutionMode.ASYNC)
        except RegistrationError as error:
            api.skipped.append(SkippedOperation(tool.operation.label, str(error)))
    for each in api.resources:
        try:
            if isinstance(each.definition, ResourceDefinition):
                resources().register(each.definition, each.read)
            else:
                resources().register_template(each.definition, each.read)
        except RegistrationError as error:
            api.skipped.append(SkippedOperation(each.operation.label, str(error)))
