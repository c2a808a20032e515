"""The command that starts a bundle, with the values that a person gave (PKG-11, PKG-12)."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ...client.targets import StdioServer, path_of_program
from .archive import BundleError

Values: TypeAlias = "Mapping[str, Sequence[str]]"
"""The values of the user's configuration, each a text; several where it takes several."""

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_USER_VALUE = re.compile(r"\$\{user_config\.([^{}]*)\}")


class ValueRefused(ValueError):
    """A value does not fit; the message, which lacks it, says what would."""


def checked(option: Mapping[str, Any], given: Sequence[str]) -> Sequence[str]:
    """Return the values of one member of `user_config`, as the program gets them.

    Raises:
        ValueRefused: they are of another type, too many, or outside of its bounds.
    """
    if len(given) > 1 and not option.get("multiple"):
        raise ValueRefused("one value")
    return [_checked(option, each) for each in given]


def _checked(option: Mapping[str, Any], text: str) -> str:
    match option["type"]:
        case "boolean":
            if text not in ("true", "false"):
                raise ValueRefused("true or false")
        case "number":
            least, greatest = option.get("min", -math.inf), option.get("max", math.inf)
            if not _is_number(text) or not least <= float(text) <= greatest:
                raise ValueRefused(f"a number from {least} to {greatest}")
        case "directory" | "file":
            path = Path(text).absolute()
            if not (path.is_dir() if option["type"] == "directory" else path.is_file()):
                raise ValueRefused(f"a {option['type']} that is there")
            return str(path)
    return text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def defaults_of(option: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the default values of a member of `user_config`; None if it has none."""
    found = option.get("default")
    if found is None:
        return None
    listed = found if isinstance(found, list) else [found]
    texts = [str(each).lower() if isinstance(each, bool) else str(each) for each in listed]
    return [_expanded(each, _places("")) for each in texts]


def server_of_bundle(manifest: Mapping[str, Any], folder: Path, values: Values) -> StdioServer:
    """Return the server of an unpacked bundle.

    Args:
        manifest: as it was checked.
        folder: with its files.
        values: of each member of `user_config` that has any.

    Raises:
        BundleError: its command is not on this system, or names what is not in the manifest.
    """
    config = manifest["server"]["mcp_config"]
    config = {**config, **config.get("platform_overrides", {}).get(sys.platform, {})}
    places = _places(str(folder))
    known = manifest.get("user_config", {})

    def filled(text: str) -> Iterator[str]:
        """Yield the text with its values: of several one each, of none that is given nothing."""
        named = _USER_VALUE.findall(text)
        if unknown := [each for each in named if each not in known]:
            raise BundleError(f"its manifest has no user_config {unknown[0]!r:.100}")
        if len(named) == 1 and _USER_VALUE.fullmatch(text):
            yield from values.get(named[0], ())
        elif all(each in values for each in named):
            given = {f"user_config.{name}": ",".join(values[name]) for name in named}
            yield _expanded(text, {**places, **given})

    args = [word for text in config.get("args", ()) for word in filled(text)]
    found = {name: [*filled(text)] for name, text in config.get("env", {}).items()}
    # A value that is empty is none: the program has its own default then. One of the author stays.
    env = {
        name: ",".join(texts)
        for name, texts in found.items()
        if any(texts) or (texts and not config["env"][name])
    }
    return StdioServer(_program(config["command"], folder, places), args, env=env)


def _program(command: str, folder: Path, places: Mapping[str, str]) -> str:
    name = _expanded(command, places)
    if "/" in name or os.sep in name:
        return str(folder / name)  # an absolute one stays as it is
    found = path_of_program(name)
    if found is None:
        raise BundleError(f"it is run by {name!r:.100}, which is not on the PATH: install that")
    return found


def _places(folder: str) -> dict[str, str]:
    home = Path.home()
    return {
        "__dirname": folder,
        "HOME": str(home),
        **{name.upper(): str(home / name) for name in ("Desktop", "Documents", "Downloads")},
        "pathSeparator": os.sep,
        "/": os.sep,
    }


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of its variables; a value is not expanded again."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise BundleError(f"${{{found[1]:.100}}} in its manifest stands for nothing")
        return values[found[1]]

    return _VARIABLE.sub(value, text)
