"""Names of tools: what the specification recommends, and what a client calls a tool.

The runtime takes any printable name. MCP 2025-11-25 and SEP-986 recommend fewer characters, since
some clients refuse the rest; some refuse `/` as well, though SEP-986 allows it. For them another
separator can stand in its place (REG-11).
"""

from __future__ import annotations

from typing import Final

MAX_TOOL_NAME_LENGTH: Final = 256
RECOMMENDED_LENGTH: Final = 128

SEPARATOR: Final = "/"
"""What separates the parts of a name where its tool is registered."""

_BESIDE_LETTERS: Final = "_-." + SEPARATOR


def advertised_name(name: str, separator: str) -> str:
    """What clients call the tool that is registered as `name` (REG-11)."""
    return name if separator == SEPARATOR else name.replace(SEPARATOR, separator)


def name_problem(name: object) -> str | None:
    """Why `name` can be no tool's; None if it can (REG-01)."""
    if not isinstance(name, str) or not name or len(name) > MAX_TOOL_NAME_LENGTH:
        return f"must be a string of 1 to {MAX_TOOL_NAME_LENGTH} characters"
    if not name.isprintable() or name != name.strip():
        return "must be printable, without white space at its ends"
    return None


def name_warning(name: str) -> str | None:
    """What clients may find wrong with a name that is taken (REG-10)."""
    if len(name) > RECOMMENDED_LENGTH:
        return f"the name has {len(name)} characters; the specification has {RECOMMENDED_LENGTH}"
    strange = sorted({each for each in name if not _is_recommended(each)})
    if strange:
        listed = ", ".join(map(repr, strange[:5]))
        return f"the name has {listed}; the specification has letters, digits and _ - . only"
    return None


def _is_recommended(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in _BESIDE_LETTERS)
