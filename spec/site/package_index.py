"""What a package index shows: the URLs of the project, and the README with links that work there.

The project has no address of its own: it is where this checkout came from, its remote `origin`.
A source distribution has no remote, but what was written into its metadata. Where neither names a
web address, no URL is written, and a link is its text and the path in the source distribution.
"""

from __future__ import annotations

import email.parser
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

_SOURCE = "Source"
_SSH = re.compile(r"(?:ssh://)?[\w.-]+@(?P<host>[\w.-]+)(?::\d+/|[:/])(?P<path>[^:]+)")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<path>[^)#\s]+)[^)]*\)\n?")
_PICTURE = re.compile(r"<picture>.*?</picture>\n?", re.DOTALL)
_ADDRESS = re.compile(r'(?P<name> src(?:set)?=")(?!https?:)')


class PackageIndexMetadata(MetadataHookInterface):
    """Sets `readme` and `urls` when the package is built."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata of the project."""
        root = Path(self.root)
        home = home_page(root)
        text = linked((root / "README.md").read_text("utf-8"), home)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {} if home is None else urls(home)


def home_page(root: Path) -> str | None:
    """Return the address of the project; None if nothing names one."""
    recorded = root / "PKG-INFO"
    if recorded.is_file():
        found = email.parser.Parser().parsestr(recorded.read_text("utf-8"), headersonly=True)
        named = (each.partition(", ") for each in found.get_all("Project-URL", ()))
        return next((url for name, _, url in named if name == _SOURCE), None)
    return web_address(_origin(root)) if (root / ".git").exists() else None


def _origin(root: Path) -> str:
    asked = ("git", "-C", str(root), "config", "--get", "remote.origin.url")
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def web_address(remote: str) -> str | None:
    """Return the web address of a remote, without user and password; None if it has none."""
    shell = _SSH.fullmatch(remote)
    if shell is not None:
        host, path = shell["host"], shell["path"]
    else:
        parts = urlsplit(remote)
        if parts.scheme != "https" or not parts.hostname:
            return None
        host, path = parts.netloc.rpartition("@")[2], parts.path
    path = path.strip("/").removesuffix(".git")
    return f"https://{host}/{path}" if path and "." in host else None


def urls(home: str) -> dict[str, str]:
    """Return the URLs of a project by their names."""
    return {
        _SOURCE: home,
        "Documentation": f"{home}/blob/HEAD/spec/guide/tutorial.md",
        "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


def linked(text: str, home: str | None) -> str:
    """Return a document whose links to files of the repository hold anywhere.

    Args:
        text: in Markdown.
        home: the address of the project. Without one no image is left, and of a link its text and
            its path.
    """
    if home is None:
        return _LINK.sub(_without_home, _PICTURE.sub("", text))
    return _LINK.sub(_with_home(home), _ADDRESS.sub(rf"\g<name>{home}/raw/HEAD/", text))


def _without_home(link: re.Match[str]) -> str:
    return "" if link["image"] else f"{link['text']} (`{link['path']}`){_end(link)}"


def _with_home(home: str) -> Callable[[re.Match[str]], str]:
    def replaced(link: re.Match[str]) -> str:
        what = "raw" if link["image"] else "blob"
        target = f"{home}/{what}/HEAD/{link['path']}"
        return f"{link['image']}[{link['text']}]({target}){_end(link)}"

    return replaced


def _end(link: re.Match[str]) -> str:
    return "\n" if link[0].endswith("\n") else ""
