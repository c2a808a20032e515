"""The requirements of a bundle: each package at one version (PKG-03)."""

from __future__ import annotations

import re
from pathlib import Path

from ...errors import UsageError
from ...version import __version__

_MAX_BYTES = 64 << 10
_PIN = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?) *(?:\[[A-Za-z0-9._, -]*\])?"
    r" *== *[A-Za-z0-9][A-Za-z0-9.+!_-]* *(?:;[ -~]+)?"
)


def read_requirements(path: Path) -> list[str]:
    """Return the requirements in a file, without comments.

    Raises:
        UsageError: there is no such file, or a line names no single version of a package.
    """
    own = f"foundation-rt=={__version__}"
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(
            f"a bundle needs its requirements: write {path}, with a line NAME==VERSION for each"
            f" package, such as {own}; `uv pip compile` makes it of those that you import"
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than {_MAX_BYTES >> 10} KiB")
    found = []
    names = set()
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        requirement = re.sub(r"(^|\s)#.*", "", line).strip()
        pin = _PIN.fullmatch(requirement)
        if requirement and pin is None:
            raise UsageError(
                f"{path}, line {number}: write NAME==VERSION, one package a line, without options;"
                " `uv pip compile` writes them so"
            )
        if pin is not None:
            found.append(requirement)
            names.add(re.sub(r"[-_.]+", "-", pin[1]).lower())
    if "foundation-rt" not in names:
        raise UsageError(f"{path} lacks what serves the program: add a line {own}")
    return found
