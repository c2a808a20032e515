"""Files that list servers, as desktop clients and the seed's host write them (spec/mcp-json.md)."""

from __future__ import annotations

from .entries import ServerEntry, ServerSettings
from .files import ServerFile, usual_places
from .problems import ServerFileError

__all__ = ["ServerEntry", "ServerFile", "ServerFileError", "ServerSettings", "usual_places"]
