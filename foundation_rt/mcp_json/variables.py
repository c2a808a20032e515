"""Variables in the strings of an entry: `${NAME}` (CLI-26)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class VariableError(ValueError):
    """A variable has no value; the message follows the name of the member."""


def expand(text: str, variables: Mapping[str, str], path: Path) -> str:
    """Return a text with the values of its variables; a value is not expanded again.

    Args:
        text: of a member.
        variables: the environment.
        path: of the file, for `${workspaceFolder}`.

    Raises:
        VariableError: a variable is not set, or the expression is none.
    """
    return _VARIABLE.sub(lambda found: _value(found[1], variables, path), text)


def _value(expression: str, variables: Mapping[str, str], path: Path) -> str:
    """Return the value of `${expression}`; a default also replaces an empty value."""
    if expression == "workspaceFolder":
        return str(_project_folder(path))
    read = _VARIABLE_NAME.fullmatch(expression)
    if read is None:
        raise VariableError(f"has ${{{expression}}}, which stands for nothing here")
    name, default = read.groups()
    value = variables.get(name)
    if default is not None:
        return value or default
    if value is None:
        raise VariableError(f"needs the environment variable {name}; it is not set")
    return value


def _project_folder(path: Path) -> Path:
    """Return the project folder of a file: editors keep theirs in a folder below it."""
    parent = path.absolute().parent
    return parent.parent if parent.name in (".vscode", ".cursor") else parent
