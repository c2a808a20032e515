"""The request of one call, from the arguments of its tool; no I/O.

APIs read integers in arguments exactly: `5` where a model wrote `5.0` (OAPI-53).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from attrs import field, frozen

from ..signatures.converters import ConversionError, convert_integer
from .arguments import ArgumentPlan
from .encoding import encode_body, header_value, leads_away, path_value, query_pairs, refused
from .operations import VARIABLE, ApiOperation, ApiParameter
from .security import CallCredentials

ACCEPT = "application/json, */*;q=0.5"


@frozen
class ApiRequest:
    """A request to an API.

    Attributes:
        method: in capitals.
        url: of the operation, encoded.
        headers: their values by name.
        content: the body; None if there is none.
        secrets: what must not stand in any message.
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    content: bytes | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def build_request(
    operation: ApiOperation,
    plan: ArgumentPlan,
    base_url: str,
    arguments: Mapping[str, Any],
    credentials: CallCredentials,
) -> ApiRequest:
    """Return the request of a call (OAPI-19). An argument that is not given is not sent.

    Raises:
        ToolError: INVALID_ARGUMENT; a value cannot be carried exactly.
    """
    arguments = with_integers(arguments, plan.schema)
    path_values: dict[str, str] = {}
    query: list[str] = []
    headers = {"Accept": ACCEPT}
    cookies: list[str] = []
    owned = credentials.places()
    for argument, parameter in plan.parameters.items():
        value = arguments.get(argument)
        if value is None or _place(parameter) in owned:
            continue
        if isinstance(value, dict):
            _check_members(parameter, value, plan.parameters.values(), owned)
        if parameter.location == "path":
            path_values[parameter.name] = path_value(parameter, value)
        elif parameter.location == "query":
            query += query_pairs(parameter, value)
        elif parameter.location == "cookie":
            cookies += query_pairs(parameter, value)
        else:
            headers[parameter.name] = header_value(parameter, value)
    query += [f"{quote(name, '')}={quote(each, '')}" for name, each in credentials.query.items()]
    cookies += [f"{name}={each}" for name, each in credentials.cookies.items()]
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    has_body, value = plan.body_value(arguments)
    content = None
    if has_body and plan.body is not None:
        content, headers["Content-Type"] = encode_body(plan.body, value)
    url = _url(base_url, operation.path, path_values, query)
    headers.update(credentials.headers)
    return ApiRequest(operation.method, url, headers, content, tuple(credentials.secrets))


def _place(parameter: ApiParameter) -> tuple[str, str]:
    is_header = parameter.location == "header"
    return parameter.location, parameter.name.lower() if is_header else parameter.name


def _check_members(
    parameter: ApiParameter,
    value: Mapping[str, Any],
    others: Iterable[ApiParameter],
    owned: Collection[tuple[str, str]],
) -> None:
    """Raise unless the members of an object are names of its own where they are names (OAPI-22)."""
    is_spread = parameter.style == "form" and parameter.explode and parameter.media_type is None
    if not is_spread:
        return
    taken = {_place(each) for each in others if each is not parameter} | {*owned}
    found = next((name for name in value if (parameter.location, name) in taken), None)
    if found is not None:
        raise refused(parameter.name, f"must have no member {found!r}: another argument has it")


def _url(base_url: str, path: str, values: Mapping[str, str], query: list[str]) -> str:
    """Return the URL of a path below `base_url`, which no value can leave (OAPI-22)."""
    literal, question, fixed = path.partition("#")[0].partition("?")
    written = VARIABLE.sub(lambda match: values.get(match[1], ""), literal)
    if leads_away(written):
        raise refused("path", "must have no part `.` or `..`: it would lead to another path")
    root, _, base_query = base_url.partition("?")
    parts = [each for each in (base_query, fixed if question else "", *query) if each]
    url = root.rstrip("/") + quote(written, safe="/%:@!$&'()*+,;=~")
    return f"{url}?{'&'.join(parts)}" if parts else url


def with_integers(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with an integer for each whole number that the schema calls one.

    Args:
        arguments: that fit the schema.
        schema: of a tool.

    Raises:
        ToolError: INVALID_ARGUMENT, `integer_out_of_range`; a number may have been rounded.
    """
    try:
        converted: dict[str, Any] = _converted(arguments, [schema], schema.get("$defs", {}))
    except ConversionError as error:
        raise error.to_tool_error() from None
    return converted


def _converted(value: Any, schemas: Iterable[Any], definitions: Mapping[str, Any]) -> Any:
    """Return a value whose integers are those of any of the schemas that it may have to fit."""
    if isinstance(value, float):
        kinds = [each.get("type") for each in _flat(schemas, definitions)]
        return convert_integer(value) if "integer" in kinds and value.is_integer() else value
    steps: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    else:
        return value
    flat = _flat(schemas, definitions)
    found = {}
    for step, each in steps:
        try:
            found[step] = _converted(each, [_at(one, step) for one in flat], definitions)
        except ConversionError as error:
            error.path.append(step)
            raise
    return found if isinstance(value, dict) else [*found.values()]


def _at(schema: Mapping[str, Any], step: str | int) -> Any:
    """Return what a schema says of a member or an item."""
    if isinstance(step, int):
        first = schema.get("prefixItems", ())
        return first[step] if step < len(first) else schema.get("items")
    return schema.get("properties", {}).get(step, schema.get("additionalProperties"))


def _flat(schemas: Iterable[Any], definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas with those that they refer to or consist of, each once."""
    found: dict[int, dict[str, Any]] = {}
    waiting = [*schemas]
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or id(schema) in found:
            continue
        found[id(schema)] = schema
        waiting += [*schema.get("allOf", ()), *schema.get("anyOf", ())]
        waiting += [schema.get("then"), schema.get("else")]
        if "$ref" in schema:
            waiting.append(definitions.get(schema["$ref"].rpartition("/")[2]))
    return [*found.values()]
