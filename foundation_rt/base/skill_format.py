"""The format of skills, for servers and clients (SEP-2640; spec/skills.md).

A skill is a folder with a file `SKILL.md`, which begins with front matter in YAML. It has a URI,
and each of its files a URI below it.

Applications may import this module.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final, TypeGuard

from ..errors import MissingExtraError

EXTENSION: Final = "io.modelcontextprotocol/skills"
SKILLS_LIST: Final = "skills/list"
SKILLS_GET: Final = "skills/get"
DIRECTORY_READ: Final = "resources/directory/read"

MANIFEST: Final = "SKILL.md"
"""The file that says what a skill is for."""

DYNAMIC: Final = "dynamic"
"""Stands for the files of a skill that has no digests, as its content is made when it is read."""

MAX_FILES: Final = 512
MAX_BYTES: Final = 16 << 20
"""Of all files of a skill together."""

_MAX_FRONT_MATTER: Final = 64 << 10
_MAX_VALUES: Final = 2_000
_MAX_DEPTH: Final = 16
_MAX_DESCRIPTION: Final = 1024
_NAME: Final = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DELIMITER: Final = re.compile(rb"^---[ \t]*\r?$", re.MULTILINE)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def read_front_matter(text: bytes) -> dict[str, Any]:
    """Return the front matter of a `SKILL.md`, as values of JSON (SKILL-03).

    Args:
        text: of the whole file.

    Raises:
        ValueError: it has none that can be read, or no valid name or description; says why.
        MissingExtraError: the extra `skills` is not installed.
    """
    first = _DELIMITER.match(text)
    last = first and _DELIMITER.search(text, first.end(), first.end() + _MAX_FRONT_MATTER)
    if first is None or last is None:
        raise ValueError(
            "it has no front matter: begin it with a line ---, name: and description:, and another"
            f" line ---, in at most {_MAX_FRONT_MATTER >> 10} KiB"
        )
    try:
        from .yaml_text import parse_yaml
    except ImportError:
        raise MissingExtraError("the front matter of a skill", "skills") from None
    written = text[first.end() : last.start()]
    try:
        found = parse_yaml(written, max_values=_MAX_VALUES, max_depth=_MAX_DEPTH)
    except ValueError as error:
        raise ValueError(f"its front matter cannot be read: {error}") from None
    return check_front_matter(found)


def check_front_matter(found: object) -> dict[str, Any]:
    """Return front matter that is an object with a name and a description.

    Raises:
        ValueError: it is not; says why.
    """
    if not isinstance(found, dict):
        raise ValueError("its front matter is no mapping: write name: and description: there")
    name, description = found.get("name"), found.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"its name is {name!r:.80}: write 1 to 64 lower-case letters, digits and single -"
        )
    if not isinstance(description, str) or not 0 < len(description) <= _MAX_DESCRIPTION:
        raise ValueError(f"its description is no text of 1 to {_MAX_DESCRIPTION} characters")
    return found


def root_of(uri: str) -> str:
    """Return the URI of the folder of a skill.

    Args:
        uri: of its `SKILL.md`.

    Raises:
        ValueError: it is the URI of no `SKILL.md`.
    """
    root, slash, last = uri.rpartition("/")
    if not slash or last != MANIFEST:
        raise ValueError(f"the URI of a skill ends with /{MANIFEST}")
    return root


def digest_of(content: bytes) -> str:
    """Return the digest of a file, as an entry has it: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{sha256(content).hexdigest()}"


def is_digest(text: object) -> TypeGuard[str]:
    """Return whether a value is a digest as `digest_of` writes it."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None
