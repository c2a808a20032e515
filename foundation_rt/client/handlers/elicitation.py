"""Elicitation: a form that the user fills in, or a page that the user visits in a browser.

A form is checked for types, lengths, limits, choices and formats. Patterns are not evaluated: a
server could block the event loop with one (QUEST-05).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ...base.exact_json import dumps
from ...base.jsonschema.compilation import Validator, compile_schema
from ...base.jsonschema.issues import step
from ...errors import RegistrationError
from ...features.server_requests.elicitation import ACTIONS, ElicitResult, is_web_page
from ...features.server_requests.errors import InvalidClientResult
from ...protocol.revisions import Revision
from .params import as_json, malformed, optional, required

MAX_FIELDS = 100
"""Most fields of a form; compiling more would keep the event loop for more than 25 ms."""

MAX_CHOICES = 2000
"""Most choices of all fields of a form together: 0.1 ms and 12 kB each, compiled."""

MAX_FORM_BYTES = 128 * 1024
"""Largest schema of a form, as far as it is checked, in bytes of JSON."""

Write = Callable[[Any], dict[str, Any]]
"""Makes the result that is sent of what a handler returned; raises `InvalidClientResult`."""

_LENGTH = ("minLength", "maxLength", "format")
_LIMITS = ("minimum", "maximum")
_CHECKED: dict[str, tuple[str, ...]] = {
    "string": _LENGTH,
    "integer": _LIMITS,
    "number": _LIMITS,
    "boolean": (),
    "array": ("minItems", "maxItems"),
}
_TEXTS = {"type": "string"}
# What any field of any form may hold, for one whose schema says it in another way.
_ANY = {"type": ["string", "number", "boolean", "array"], "items": _TEXTS}


@frozen(eq=False)
class ElicitationRequest:
    """A form that a server wants filled in.

    Attributes:
        message: the reason; show it to the user.
        schema: as it came; the `properties` of the object are the fields.
    """

    message: str
    schema: Mapping[str, Any]

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of fields that the user leaves alone; the result may omit them (QUEST-06)."""
        fields = self.schema["properties"].items()
        return {name: one["default"] for name, one in fields if one.get("default") is not None}

    def issues(self, name: str, value: Any) -> list[str]:
        """Return what is wrong with the value of one field, before the form is sent (QUEST-06).

        Args:
            name: of the field.
            value: as it would be sent.

        Raises:
            KeyError: the form has no such field.
        """
        validate = _compile({}, {name: self.schema["properties"][name]})
        return [issue.message for issue in validate({name: value})]


@frozen(eq=False)
class ElicitationUrlRequest:
    """A page that a server wants the user to visit.

    It must not be fetched. Open it only in a browser, after the user has seen the whole URL and has
    agreed.

    Attributes:
        message: the reason; show it to the user.
        url: http or https.
        elicitation_id: the id by which the server notifies of the visit; None if it does not.
    """

    message: str
    url: str
    elicitation_id: str | None = None

    @property
    def host(self) -> str:
        """The host of the page: show it beside the URL, which may imitate another one."""
        from urllib.parse import urlsplit

        return urlsplit(self.url).hostname or ""


# -- forms ---------------------------------------------------------------------------------------


def read_form(params: Mapping[str, Any]) -> tuple[ElicitationRequest, Write]:
    """Read a form; return it, and the function that writes the result.

    Raises:
        ServerRequestRefused: it is not a valid form (QUEST-03, QUEST-05).
    """
    schema = required(params, "requestedSchema", dict)
    properties = required(schema, "properties", dict, "/requestedSchema")
    if schema.get("type") != "object":
        raise malformed("/requestedSchema/type", "is not object")
    if len(properties) > MAX_FIELDS:
        raise malformed("/requestedSchema/properties", f"has more than {MAX_FIELDS} fields")
    request = ElicitationRequest(required(params, "message", str), schema)
    validate = _compile(schema, properties)
    return request, lambda returned: _write_form(request, validate, returned)


def _compile(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> Validator:
    at = "/requestedSchema/properties"
    checked: dict[str, Any] = {"type": "object", "additionalProperties": False}
    checked["properties"] = {name: _field(one, step(at, name)) for name, one in properties.items()}
    names = optional(schema, "required", list, "/requestedSchema")
    if names is not None:
        if len(names) > MAX_FIELDS:
            raise malformed("/requestedSchema/required", f"has more than {MAX_FIELDS} names")
        checked["required"] = names
    if sum(map(_count_choices, checked["properties"].values())) > MAX_CHOICES:
        raise malformed(at, f"has more than {MAX_CHOICES} choices")
    try:
        if len(dumps(checked)) > MAX_FORM_BYTES:
            raise malformed("/requestedSchema", f"is longer than {MAX_FORM_BYTES} bytes")
        return compile_schema(checked).validate
    except (RegistrationError, TypeError) as error:
        raise malformed("/requestedSchema", f"cannot be used: {str(error)[:500]}") from None


def _field(field: Any, path: str) -> dict[str, Any]:
    """Return the part of a field's schema that is checked."""
    if type(field) is not dict:
        raise malformed(path, "is not an object")
    kind = field.get("type")
    if type(kind) is not str or kind not in _CHECKED:
        return _ANY
    checked = {"type": kind, **{name: field[name] for name in _CHECKED[kind] if name in field}}
    if kind == "array":
        items = optional(field, "items", dict, path) or {}
        return {**checked, "items": {**_TEXTS, **_choices(items, "anyOf", path)}}
    return {**checked, **_choices(field, "oneOf", path)} if kind == "string" else checked


def _choices(members: Mapping[str, Any], titled: str, path: str) -> dict[str, Any]:
    if "enum" in members:
        return {"enum": required(members, "enum", list, path)}
    options = optional(members, titled, list, path)
    if options is None:
        return {}
    if len(options) > MAX_CHOICES:
        raise malformed(f"{path}/{titled}", f"has more than {MAX_CHOICES} choices")
    if not all(type(option) is dict and "const" in option for option in options):
        raise malformed(f"{path}/{titled}", "is not a list of choices")
    return {"enum": [option["const"] for option in options]}


def _count_choices(checked: Mapping[str, Any]) -> int:
    return len(checked.get("enum", ())) + len(checked.get("items", {}).get("enum", ()))


def _write_form(request: ElicitationRequest, validate: Validator, returned: Any) -> dict[str, Any]:
    if isinstance(returned, Mapping):
        returned = ElicitResult("accept", returned)
    action = _action(returned)
    if action != "accept":
        return {"action": action}
    given = returned.content or {}
    content = as_json(dict(given) if isinstance(given, Mapping) else given, "/content")
    if type(content) is not dict:
        raise InvalidClientResult(("/content", "is not an object"))
    content = {**request.defaults, **content}
    issues = validate(content)
    if issues:
        raise InvalidClientResult(*((f"/content{issue.path}", issue.message) for issue in issues))
    return {"action": action, "content": content}


# -- pages ---------------------------------------------------------------------------------------


def read_page(params: Mapping[str, Any], revision: Revision) -> tuple[ElicitationUrlRequest, Write]:
    """Read a page to visit; return it, and the function that writes the result.

    Raises:
        ServerRequestRefused: it is not a valid page (QUEST-03, QUEST-07).
    """
    url = required(params, "url", str)
    if not is_web_page(url):
        raise malformed("/url", "is not an http or https URL")
    name = required(params, "elicitationId", str) if revision.names_elicitations else None
    return ElicitationUrlRequest(required(params, "message", str), url, name), _write_visit


def _write_visit(returned: Any) -> dict[str, Any]:
    if type(returned) is bool:
        return {"action": "accept" if returned else "decline"}
    return {"action": _action(returned)}


def _action(returned: Any) -> str:
    """None declines."""
    if returned is None:
        return "decline"
    if not isinstance(returned, ElicitResult):
        raise InvalidClientResult(("", "is not an ElicitResult, nor what stands for one"))
    if returned.action not in ACTIONS:
        raise InvalidClientResult(("/action", f"is not one of {', '.join(ACTIONS)}"))
    return returned.action
