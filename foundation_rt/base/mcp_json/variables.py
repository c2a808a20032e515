"""Variables in the strings of an entry: `${NAME}` (CLI-26)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE_NAME = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class VariableError(ValueError):
    """A `${...}` has no value; the message follows the name of the member."""


class UnsetVariableError(VariableError):
    """It is a variable that is not set."""


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


def fill(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with the values of these variables alone; all else stays as it is written."""

    def filled(found: re.Match[str]) -> str:
        read = _VARIABLE_NAME.fullmatch(found[1])
        if read is None or read[1] not in variables:
            return found[0]
        return variables[read[1]] or read[2] or ""

    return _VARIABLE.sub(filled, text)


def variables_in(text: str) -> set[str]:
    """Return the names of all variables that `expand` may read."""
    read = (_VARIABLE_NAME.fullmatch(each) for each in _VARIABLE.findall(text))
    return {found[1] for found in read if found is not None}


def _value(expression: str, variables: Mapping[str, str], path: Path) -> str:
    """Return the value of `${expression}`; a default also replaces an empty value."""
    of_editors = {
        "workspaceFolder": lambda: str(_project_folder(path)),
        "workspaceFolderBasename": lambda: _project_folder(path).name,
        "userHome": lambda: str(Path.home()),
        "pathSeparator": lambda: os.sep,
        "/": lambda: os.sep,
    }
    if expression in of_editors:
        return of_editors[expression]()
    kind, colon, name = expression.partition(":")
    if kind == "workspaceFolder" and colon:
        return str(_folder_of_workspace(name, path))
    read = _VARIABLE_NAME.fullmatch(expression)
    if read is None:
        raise VariableError(f"has ${{{expression}}}, which stands for nothing here")
    name, default = read.groups()
    value = variables.get(name)
    if default is not None:
        return value or default
    if value is None:
        raise UnsetVariableError(f"needs the environment variable {name}; it is not set")
    return value


def _project_folder(path: Path) -> Path:
    """Return the project folder of a file: editors keep theirs in a folder below it."""
    parent = path.absolute().parent
    return parent.parent if parent.name in (".vscode", ".cursor") else parent


def _folder_of_workspace(name: str, path: Path) -> Path:
    """Return the folder of this name: the project folder, or one beside it.

    Raises:
        VariableError: there is none.
    """
    project = _project_folder(path)
    folder = project if project.name == name else project.parent / name
    if name in ("", "..") or Path(name).name != name or not folder.is_dir():
        raise VariableError(
            f"has ${{workspaceFolder:{name}}}, and neither {project} nor a folder beside it is"
            " called so"
        )
    return folder
