"""`manifest.json` of a bundle and `server.json` of the MCP registry (PKG-08, PKG-11, PKG-13).

Sources: the manifest's version 0.4 as npm's `@anthropic-ai/mcpb` 2.1 checks it, and the registry's
schema 2025-12-11.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from ...base.exact_json import dumps
from ...base.jsonschema.compilation import compile_schema
from ...errors import UsageError
from .variables import Variable

MANIFEST = "manifest.json"
PROJECT = "pyproject.toml"
SERVER = "server"
"""The folder of the program in a bundle."""

_PYTHON = ">=3.11"
_REGISTRY = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_TEXT = {"type": "string", "maxLength": 32_768, "pattern": "^[^\\u0000]*$"}
_TEXTS = {"type": "array", "maxItems": 1_000, "items": _TEXT}
_COMMAND = {"command": _TEXT, "args": _TEXTS, "env": {"additionalProperties": _TEXT}}
_READ_SCHEMA = {
    "type": "object",
    "required": ["name", "version", "server"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 256},
        "version": {"type": "string", "minLength": 1, "maxLength": 256},
        "server": {
            "type": "object",
            "required": ["mcp_config"],
            "properties": {
                "mcp_config": {
                    "type": "object",
                    "required": ["command"],
                    "properties": {
                        **_COMMAND,
                        "platform_overrides": {
                            "type": "object",
                            "additionalProperties": {"type": "object", "properties": _COMMAND},
                        },
                    },
                }
            },
        },
        "user_config": {
            "type": "object",
            "maxProperties": 100,
            "additionalProperties": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "type": {"enum": ["string", "number", "boolean", "directory", "file"]},
                    "title": _TEXT,
                    "description": _TEXT,
                    "required": {"type": "boolean"},
                    "sensitive": {"type": "boolean"},
                    "multiple": {"type": "boolean"},
                    "default": {"anyOf": [{"type": ["string", "number", "boolean"]}, _TEXTS]},
                    "min": {"type": "number"},
                    "max": {"type": "number"},
                },
            },
        },
    },
}
"""The members of a manifest of any version that are used; others are passed over."""

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
)
_REGISTRY_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_MAX_REGISTRY_NAME = 200
_MAX_LINE = 100
_URL = re.compile(r"https://[^\s{}]+")


def check_manifest(found: Any) -> dict[str, Any]:
    """Return a manifest of anybody, as far as it is used.

    Raises:
        ValueError: a member is missing, or has another form.
    """
    result = compile_schema(_READ_SCHEMA).validate(found)
    if result:
        raise ValueError(f"in its {MANIFEST}, {result[0].path or 'all of it'} {result[0].message}")
    manifest: dict[str, Any] = found
    return manifest


@frozen
class Description:
    """The words of a server on itself, for a manifest and for `server.json`.

    Attributes:
        name: of letters, digits, `-` and `_`.
        title: for people.
        version: of the server.
        description: one line.
        author: whom the manifest names.
        website: a page about it, or None.
        tools: name and description of each.
        has_prompts: whether it has prompts, whose texts are made when they are asked for.
        variables: that it reads.
    """

    name: str
    title: str
    version: str
    description: str
    author: str
    website: str | None
    tools: Sequence[tuple[str, str | None]]
    has_prompts: bool
    variables: Sequence[Variable]

    def __attrs_post_init__(self) -> None:
        if not _SEMVER.fullmatch(self.version):
            raise UsageError(
                f"the version of the server is {self.version!r:.100}: write one of three numbers,"
                ' as in Server("weather", version="1.0.0")'
            )

    def manifest(self, program: str, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the manifest of a bundle.

        Args:
            program: its file, below the folder `SERVER`, with `:attribute` where one is needed.
            arguments: for the program.
        """
        words = ["run", "--directory", "${__dirname}", "python", "-P", "-m", "foundation_rt"]
        words += ["serve", f"{SERVER}/{program}", *(["--", *arguments] if arguments else [])]
        tools = [
            {"name": name, **({"description": text} if text else {})} for name, text in self.tools
        ]
        env = {each.name: f"${{user_config.{each.name}}}" for each in self.variables}
        return {
            "manifest_version": "0.4",
            "name": self.name,
            "display_name": self.title,
            "version": self.version,
            "description": self.description,
            "author": {"name": self.author},
            **({"homepage": self.website} if self.website else {}),
            "server": {
                "type": "uv",
                "entry_point": f"{SERVER}/{program.partition(':')[0]}",
                "mcp_config": {"command": "uv", "args": words, **({"env": env} if env else {})},
            },
            "tools": tools,
            **({"prompts_generated": True} if self.has_prompts else {}),
            "compatibility": {"runtimes": {"python": _PYTHON}},
            **({"user_config": self._user_config()} if self.variables else {}),
        }

    def _user_config(self) -> dict[str, Any]:
        return {each.name: each.user_config() for each in self.variables}

    def server_json(self, namespace: str, url: str, digest: str) -> dict[str, Any]:
        """Return the `server.json` of a bundle.

        Args:
            namespace: reversed, of whoever publishes it: `io.github.ada`.
            url: that the bundle will be downloaded from.
            digest: SHA-256 of the bundle, in hexadecimal digits.

        Raises:
            UsageError: the registry would refuse it; says what to change.
        """
        name = f"{namespace}/{self.name}"
        if not _REGISTRY_NAME.fullmatch(name) or len(name) > _MAX_REGISTRY_NAME:
            raise UsageError(
                f"the registry takes no name {name!r:.250}: --namespace is a domain that you own or"
                " your account, reversed, as in io.github.ada"
            )
        if len(self.description) > _MAX_LINE:
            raise UsageError(
                f"the registry takes descriptions of at most {_MAX_LINE} characters: this one has"
                f" {len(self.description)}; give a shorter one with --description"
            )
        if not _URL.fullmatch(url) or "mcp" not in url.lower():
            raise UsageError("--url is where the bundle can be downloaded, https://.../NAME.mcpb")
        package: dict[str, Any] = {
            "registryType": "mcpb",
            "identifier": url,
            "fileSha256": digest,
            "transport": {"type": "stdio"},
        }
        if self.variables:
            package["environmentVariables"] = [each.input() for each in self.variables]
        return {
            "$schema": _REGISTRY,
            "name": name,
            **({"title": self.title} if len(self.title) <= _MAX_LINE else {}),
            "description": self.description,
            "version": self.version,
            **({"websiteUrl": self.website} if self.website else {}),
            "packages": [package],
        }


def project_file(requirements: Sequence[str]) -> str:
    """Return the `pyproject.toml` from which `uv` installs what the program needs."""
    # Of printable ASCII, a string is written in TOML as in JSON.
    listed = "".join(f"    {dumps(each).decode()},\n" for each in requirements)
    return f"""\
[project]
name = "bundle"
version = "0"
requires-python = "{_PYTHON}"
dependencies = [
{listed}]

[tool.uv]
package = false
"""
