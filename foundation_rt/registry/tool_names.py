"""Names of tools: what the specification recommends, and what a client calls a tool.

MCP 2025-11-25 and SEP-986 have ASCII letters, digits and `_ - . /`. The runtime takes no others:
two names that look alike are two tools for a program, and one for a person or a model (REG-10).
Some clients refuse `/`, though SEP-986 allows it. For them another separator can stand in its
place (REG-11).
"""

from __future__ import annotations

import re
from typing import Final

MAX_TOOL_NAME_LENGTH: Final = 256
RECOMMENDED_LENGTH: Final = 128

SEPARATOR: Final = "/"
"""What separates the parts of a name where its tool is registered."""

_NAME: Final = re.compile(r"[A-Za-z0-9_./-]+")


def advertised_name(name: str, separator: str) -> str:
    """What clients call the tool that is registered as `name` (REG-11)."""
    return name if separator == SEPARATOR else name.replace(SEPARATOR, separator)


def name_problem(name: object) -> str | None:
    """Why `name` can be no tool's; None if it can (REG-01, REG-10)."""
    if not isinstance(name, str) or not name or len(name) > MAX_TOOL_NAME_LENGTH:
        return f"must be a string of 1 to {MAX_TOOL_NAME_LENGTH} characters"
    if _NAME.fullmatch(name) is None:
        strange = sorted({each for each in name if _NAME.fullmatch(each) is None})
        listed = ", ".join(map(ascii, strange[:5]))
        return f"must have ASCII letters, digits and _ - . / only; this one has {listed}"
    return None


def name_warning(name: str) -> str | None:
    """What clients may find wrong with a name that is taken (REG-10)."""
    if len(name) > RECOMMENDED_LENGTH:
        return f"the name has {len(name)} characters; the specification has {RECOMMENDED_LENGTH}"
    return None
