"""The check of a schema of arguments that the author of a tool has given by hand (TYPED-22)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import RegistrationError

if TYPE_CHECKING:
    from ..signatures.function_signature import FunctionSignature
    from ..signatures.parameters import ParameterCollector


def check_given_schema(
    schema: Mapping[str, Any], collector: ParameterCollector, signature: FunctionSignature
) -> None:
    """Refuse a schema given by hand that plainly does not fit the parameters."""
    known = {binding.name for binding in collector.bindings}
    properties = schema.get("properties")
    advertised = properties.keys() if isinstance(properties, Mapping) else set[str]()
    unknown = sorted(advertised - known)
    if unknown and (not collector.takes_rest or collector.context_name in unknown):
        raise RegistrationError(
            f"tool {signature.name!r}: its schema has a property {unknown[0]!r} and the "
            "function no parameter that takes it"
        )
    if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
        for name in collector.required():
            if name not in advertised:
                raise signature.refusal(
                    name, "it has no default, and the schema given by hand never lets it through"
                )
