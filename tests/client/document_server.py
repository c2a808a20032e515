"""A server that offers the tools of the document-conversion table, and converts just enough.

A program to run as well: `python -m foundation_rt serve tests/client/document_server.py`.
"""

from __future__ import annotations

from html import escape
from pathlib import PurePath
from typing import Any

import orjson

from foundation_rt import ErrorCode, Server, ToolError

KIND = "DoclingDocument"


def make_server() -> Server:
    """Register the eight tools: four for files, one for web pages, three for their results."""
    server = Server("documents", version="1.0.0")
    for extension in ("pdf", "docx", "xlsx", "pptx"):
        _offer_conversion(server, extension)

    @server.tool
    def convert_url(url: str) -> dict[str, Any]:
        """Convert a web page."""
        return _document(url.partition("://")[2])

    @server.tool
    def export_markdown(document: dict[str, Any]) -> str:
        """Write a document as Markdown."""
        return f"# {_name(document)}\n"

    @server.tool
    def export_html(document: dict[str, Any]) -> str:
        """Write a document as HTML."""
        return f"<h1>{escape(_name(document))}</h1>"

    @server.tool
    def export_json(document: dict[str, Any]) -> str:
        """Write a document as JSON."""
        _name(document)
        return orjson.dumps(document).decode()

    return server


def _offer_conversion(server: Server, extension: str) -> None:
    @server.tool(name=f"convert_{extension}")
    def convert(path: str) -> dict[str, Any]:
        """Convert a file."""
        name = PurePath(path).name
        if not name.lower().endswith(f".{extension}"):
            raise ToolError(ErrorCode.INVALID_ARGUMENT, f"the file is no {extension}")
        return _document(name)


def _document(name: str) -> dict[str, Any]:
    return {"schema_name": KIND, "name": name}


def _name(document: dict[str, Any]) -> str:
    if document.get("schema_name") != KIND:
        raise ToolError(ErrorCode.INVALID_ARGUMENT, f"the document is no {KIND}")
    return str(document.get("name"))


server = make_server()
