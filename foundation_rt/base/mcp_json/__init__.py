"""Files that list servers, as desktop clients and the seed's host write them (spec/mcp-json.md)."""

from __future__ import annotations

from .agreement import Agreement, WaitingEntry, agree, record_path
from .entries import OAuthEntry, ServerEntry, ServerSettings
from .files import (
    ServerFile,
    claude_desktop_file,
    is_at_home,
    is_of_folder,
    settings_folder,
    usual_places,
)
from .problems import ServerFileError

__all__ = [
    "Agreement",
    "OAuthEntry",
    "ServerEntry",
    "ServerFile",
    "ServerFileError",
    "ServerSettings",
    "WaitingEntry",
    "agree",
    "claude_desktop_file",
    "is_at_home",
    "is_of_folder",
    "record_path",
    "settings_folder",
    "usual_places",
]
