"""A configuration file as plain data, or the reason why it holds none (CONF-12 to CONF-16).

This module reads the content of a TOML or JSON file; it does not check that the content is a valid
configuration. The result is a mapping, or an `UnusableFileError` that tells an operator how to mend
the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn


class UnusableFileError(Exception):
    """A file that holds no settings; the message completes "expected ..."."""


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a ``.toml`` or ``.json`` file, a table in either case.

    Raises:
        UnusableFileError: the name ends otherwise; the file can't be read, is not in UTF-8, breaks
            the rules of its format, names one key twice, or is no table at the top.
    """
    ending = path.suffix.lower()
    if ending not in (".toml", ".json"):
        raise UnusableFileError("a file whose name ends in .toml or .json")
    text = _read_text(path)
    try:
        content = _parse_toml(text) if ending == ".toml" else _parse_json(text)
    except (ValueError, RecursionError) as error:
        raise UnusableFileError(f"valid {ending[1:].upper()}: {error}") from None
    if not isinstance(content, dict):
        raise UnusableFileError("an object that has the sections as its members")
    return content


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # editors on Windows put a BOM first
    except FileNotFoundError:
        raise UnusableFileError("an existing file; there is none by that name") from None
    except IsADirectoryError:
        raise UnusableFileError("a file; this is a directory") from None
    except UnicodeDecodeError as error:
        reason = f"text in UTF-8; byte {error.start} is not valid"
        raise UnusableFileError(reason) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UnusableFileError(f"a file that can be read: {error}") from None


def _parse_toml(text: str) -> dict[str, Any]:
    import tomli  # a start with environment variables alone does not pay for it

    return tomli.loads(text)


def _parse_json(text: str) -> Any:
    # Not orjson: of two equal keys it keeps the last without a word.
    return json.loads(text, object_pairs_hook=_without_twins, parse_constant=_refuse_constant)


def _without_twins(members: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in members:
        if name in table:
            raise ValueError(f"the key {name!r} stands twice in one object")
        table[name] = value
    return table


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
