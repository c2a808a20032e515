"""Write what the code says into the documents: `python -m tests.docs`, that is `make tables`.

The tables of settings, of error codes and of the client's errors stand in spec/
between two marks, `<!-- settings -->` and `<!-- end -->` for example. The schemas of
the configuration file and of files of servers are written whole. So are the page and the chart of
the figures that `make bench-peers` has measured, which the README shows in brief.
tests/test_docs.py holds that nothing is left to write.
"""

from __future__ import annotations

import ast
import enum
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from bench.peers import reporting
from foundation_rt import errors
from foundation_rt.apps.gateway.settings import SECTION as GATEWAY_SECTION
from foundation_rt.apps.gateway.settings import GatewaySettings
from foundation_rt.apps.host.settings import SECTION as HOST_SECTION
from foundation_rt.apps.host.settings import HostSettings, LongText, Temperature
from foundation_rt.apps.task_server.settings import SECTION, TaskServerSettings
from foundation_rt.base.config.loading import variable_name
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.config.types import (
    Choice,
    Flag,
    Integer,
    Kind,
    Line,
    ListOf,
    Pattern,
    Section,
    StoreUrl,
    VariableName,
)
from foundation_rt.base.mcp_json.members import file_schema
from foundation_rt.client.errors import CATALOGUE
from foundation_rt.version import __version__

ROOT = Path(__file__).parent.parent
SCHEMA = ROOT / "spec" / "schemas" / "config.schema.json"
SERVERS_SCHEMA = SCHEMA.parent / "mcp-json.schema.json"
FIGURES = ROOT / "spec" / "guide" / "figures" / "peers.json"
CONTROL_CHARACTERS = "\\u0000-\\u001f\\u007f-\\u009f"


# -- settings


def _settings(cls: type = ServerConfig, prefix: str = "") -> Iterator[tuple[str, attrs.Attribute]]:
    for attribute in attrs.fields(cls):
        key = prefix + attribute.name
        if isinstance(attribute.validator, Section):
            yield from _settings(attribute.validator.cls, f"{key}.")
        else:
            yield key, attribute


def settings() -> str:
    """Return the table of settings, whole."""
    return _settings_table(_settings())


def task_server_settings() -> str:
    """Return the table of the settings of the task server."""
    return _settings_table(_settings(TaskServerSettings, f"{SECTION}."))


def gateway_settings() -> str:
    """Return the table of the settings of the gateway."""
    return _settings_table(_settings(GatewaySettings, f"{GATEWAY_SECTION}."))


def host_settings() -> str:
    """Return the table of the settings of the chat host."""
    return _settings_table(_settings(HostSettings, f"{HOST_SECTION}."))


def _settings_table(listed: Iterable[tuple[str, attrs.Attribute]]) -> str:
    return _table(
        ("key", "type", "range", "default", "environment variable", "meaning"),
        (
            (
                f"`{key}`",
                *type_and_range(setting.validator),
                shown_default(setting.default),
                f"`{variable_name(tuple(key.split('.')))}`",
                setting.metadata["meaning"],
            )
            for key, setting in listed
        ),
    )


def settings_in_brief() -> str:
    """Return the table of settings without types, ranges and variables."""
    return _table(
        ("key", "default", "meaning"),
        (
            (f"`{key}`", shown_default(setting.default), setting.metadata["meaning"])
            for key, setting in _settings()
        ),
    )


def type_and_range(kind: Kind) -> tuple[str, str]:
    """Return the cells for the type of a setting and for the values that it takes."""
    match kind:
        case Integer():
            return "integer", f"{kind.minimum} to {kind.maximum} {kind.unit}".strip()
        case Flag():
            return "boolean", ""
        case Line():
            return "string", f"1 to {kind.max_length} characters"
        case Choice():
            return "string", " ".join(f"`{word}`" for word in kind.words)
        case Pattern():
            return "string", kind.expected
        case ListOf():
            _, limits = type_and_range(kind.item)
            return "list of strings", limits
        case VariableName():
            return "variable name", ""
        case StoreUrl():
            urls = (f"`{scheme}:...`" for scheme in kind.schemes)
            return "address", " ".join((*(f"`{word}`" for word in kind.words), *urls))
        case LongText():
            return "string", kind.expected
        case Temperature():
            return "number", "0 to 2"
    raise AssertionError(kind)


def shown_default(default: Any) -> str:
    """Return the cell for a default."""
    if default is None:
        return "unset"
    if default == __version__:
        return "that of foundation-rt"
    if isinstance(default, str):
        return f"`{default}`"
    return f"`{json.dumps(default)}`"


# -- errors


def tool_errors() -> str:
    """Return the table of codes of tool errors."""
    meanings = _meanings(errors.ErrorCode)
    rows = ((f"`{code.value}`", meanings[code.name]) for code in errors.ErrorCode)
    return _table(("code", "meaning"), rows)


def json_rpc_errors() -> str:
    """Return the table of codes of JSON-RPC errors; one code may have several names."""
    meanings = _meanings(errors.JsonRpcErrorCode)
    rows = (
        (
            str(int(code)),
            ", ".join(f"`{name}`" for name, _ in named),
            ". ".join(meanings[name] for name, _ in named),
        )
        for code in errors.JsonRpcErrorCode
        if (named := [each for each in _named(errors.JsonRpcErrorCode) if each[1] is code])
    )
    return _table(("code", "name", "meaning"), rows)


def _named(codes: type[enum.Enum]) -> list[tuple[str, enum.Enum]]:
    return list(codes.__members__.items())


def _meanings(codes: type[enum.Enum]) -> dict[str, str]:
    """Return the docstring of each member, without its full stop."""
    module = ast.parse(Path(errors.__file__).read_text("utf-8"))
    (body,) = (
        node.body
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == codes.__name__
    )
    found = {}
    for member, documentation in itertools.pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(documentation, ast.Expr):
            words = ast.literal_eval(documentation.value).split()
            found[ast.unparse(member.targets[0])] = " ".join(words).rstrip(".")
    return found


def client_errors() -> str:
    """Return the catalogue of the client's errors."""
    return _table(
        ("code", "name", "what its user reads", "what to do", "retryable"),
        (
            (
                f"`{entry.code}`",
                f"`{entry.name}`",
                entry.user_message,
                entry.suggested_action,
                "yes" if entry.retryable else "no",
            )
            for entry in CATALOGUE.values()
        ),
    )


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    shown = [" | ".join(cell.replace("|", "\\|") for cell in cells) for cells in (head, *rows)]
    return f"| {shown[0]} |\n{'|---' * len(head)}|\n" + "".join(
        f"| {line} |\n" for line in shown[1:]
    )


# -- the schema of the configuration file


def schema_text() -> str:
    """Return the JSON Schema of the configuration file."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration file of foundation-rt",
        **_table_schema(ServerConfig),
    }
    return json.dumps(schema, indent=2) + "\n"


def servers_schema_text() -> str:
    """Return the JSON Schema of a file of servers."""
    return json.dumps(file_schema(), indent=2) + "\n"


def _table_schema(cls: type) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (cls.__doc__ or "").splitlines()[0],
        "properties": {
            attribute.name: _table_schema(attribute.validator.cls)
            if isinstance(attribute.validator, Section)
            else _setting_schema(attribute)
            for attribute in attrs.fields(cls)
        },
        "additionalProperties": False,
    }


def _setting_schema(attribute: attrs.Attribute) -> dict[str, Any]:
    schema = {"description": attribute.metadata["meaning"], **_kind_schema(attribute.validator)}
    if attribute.default != __version__:
        schema["default"] = attribute.default
    return schema


def _kind_schema(kind: Kind) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1, "pattern": f"^[^{CONTROL_CHARACTERS}]*$"}
    match kind:
        case Integer():
            return {"type": "integer", "minimum": kind.minimum, "maximum": kind.maximum}
        case Flag():
            return {"type": "boolean"}
        case Line():
            return {**text, "maxLength": kind.max_length}
        case Choice():
            return {"enum": list(kind.words)}
        case Pattern():
            types = ["string", "null"] if kind.optional else "string"
            return {"type": types, "pattern": f"^({kind.pattern})$"}
        case ListOf():
            return {"type": "array", "items": _kind_schema(kind.item)}
        case VariableName():
            return {"type": ["string", "null"], "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
        case StoreUrl():
            urls = f"({'|'.join(kind.schemes)}):.+"
            return {"type": "string", "pattern": f"^({'|'.join(kind.words)}|{urls})$"}
    raise AssertionError(kind)


# -- figures


def figures() -> str:
    """Return the figures beside other libraries in brief, and a link to all of them."""
    return (
        f"{reporting.summary(_measured())}\n"
        "[All figures, and how they are measured](spec/guide/figures/peers.md); **bold** is the"
        " best besides the floor.\n"
    )


def _measured() -> reporting.Report:
    measured: reporting.Report = json.loads(FIGURES.read_text("utf-8"))
    return measured


# -- writing

TABLES = {
    "figures": figures,
    "settings": settings,
    "settings in brief": settings_in_brief,
    "task server settings": task_server_settings,
    "gateway settings": gateway_settings,
    "host settings": host_settings,
    "tool errors": tool_errors,
    "JSON-RPC errors": json_rpc_errors,
    "client errors": client_errors,
}
PLACES = {
    "README.md": ("figures",),
    "spec/guide/configuration.md": ("settings in brief",),
    "spec/guide/errors.md": ("tool errors", "JSON-RPC errors", "client errors"),
    "spec/config.md": ("settings",),
    "spec/gateway.md": ("gateway settings",),
    "spec/host.md": ("host settings",),
    "spec/task-server.md": ("task server settings",),
    "spec/errors.md": ("tool errors", "JSON-RPC errors"),
}
"""Which tables a document has."""


def documents() -> dict[Path, str]:
    """Return the text that each file with generated parts has to have."""
    texts = {
        SCHEMA: schema_text(),
        SERVERS_SCHEMA: servers_schema_text(),
        FIGURES.with_suffix(".md"): reporting.page(_measured()),
        FIGURES.with_suffix(".svg"): reporting.chart(_measured()),
    }
    for name, tables in PLACES.items():
        text = (ROOT / name).read_text("utf-8")
        for table in tables:
            text = _replaced(text, table, name)
        texts[ROOT / name] = text
    return texts


def _replaced(text: str, table: str, name: str) -> str:
    begin, end = f"<!-- {table} -->\n", "<!-- end -->\n"
    pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
    made = f"{begin}\n{TABLES[table]()}\n{end}"
    replaced, count = re.subn(pattern, lambda _: made, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{name} has {count} places for the table {table!r}, not one")
    return replaced


def main() -> None:
    """Write every document whose generated parts have changed, and name it."""
    for path, text in documents().items():
        if path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
