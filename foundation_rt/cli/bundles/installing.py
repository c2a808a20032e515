"""The bundle of `install --bundle`: what is asked, where it is unpacked (PKG-09, PKG-15)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ...base.files import user_folder
from ...client.safe_text import printable_line
from ...client.targets import StdioServer
from ...errors import UsageError
from ..args import CommandLine, CommandLineError
from ..command_table import no_such
from ..person import ask_value
from ..run import clean_name
from .archive import Bundle, BundleError
from .entry import ValueRefused, Values, checked, defaults_of, server_of_bundle

_FORMS = {"--set": "NAME=VALUE", "--set-env": "NAME=VARIABLE"}


@frozen
class InstalledBundle:
    """A bundle, and how a client starts it once it is unpacked.

    Attributes:
        bundle: as it was read.
        folder: that it will be unpacked to.
        server: that runs from there.
        open_env: the variables of its environment as the author of the bundle wrote them.
    """

    bundle: Bundle
    folder: Path
    server: StdioServer
    open_env: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the name of the bundle."""
        name: str = self.bundle.manifest["name"]
        return name

    def summary(self) -> str:
        """Return what the bundle says of itself, and where it goes, in a line for people."""
        text = f"{self.name} {self.bundle.manifest['version']}"
        return printable_line(f"{text}: {self.bundle.count} files, to {self.folder}")

    def unpack(self) -> None:
        """Write its files.

        Raises:
            UsageError: it cannot be done.
        """
        try:
            self.bundle.unpack(self.folder)
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be written: {error.strerror}") from None


def read_bundle(line: CommandLine) -> InstalledBundle:
    """Return the bundle of a command line; ask for the values that are needed and not given.

    Raises:
        CommandLineError: a value is not one of the bundle, or does not fit.
        UsageError: it is no bundle, or cannot run here.
    """
    path = line.option("--bundle")
    assert path is not None
    bundle = Bundle.read(Path(path))
    name = clean_name(bundle.manifest["name"]) or "server"
    folder = user_folder("data") / "foundation-rt" / "bundles" / name / bundle.digest[:16]
    try:
        options = bundle.manifest.get("user_config", {})
        given = _given(options, line)
        server = server_of_bundle(bundle.manifest, folder, _values(options, given))
        authored = {
            name: texts
            for name, option in options.items()
            if not (name in given or option.get("sensitive")) and (texts := defaults_of(option))
        }
        open_env = server_of_bundle(bundle.manifest, folder, authored).env or {}
        return InstalledBundle(bundle, folder, server, open_env)
    except BundleError as error:
        raise BundleError(f"{path} cannot be run: {error}") from None


def _values(options: Mapping[str, Mapping[str, Any]], given: Values) -> Values:
    found = {}
    for name, option in options.items():
        texts = given.get(name) or defaults_of(option) or _asked(name, option)
        if texts is None:
            continue
        try:
            found[name] = checked(option, texts)
        except ValueRefused as error:
            raise CommandLineError(f"{name} takes {error}: --set {name}=VALUE") from None
    return found


def _given(options: Mapping[str, Mapping[str, Any]], line: CommandLine) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for form in ("--set", "--set-env"):
        for text in line.options.get(form, ()):
            name, equals, value = text.partition("=")
            if not equals:  # not in the message: it may be a value without its name
                raise CommandLineError(f"{form} is {_FORMS[form]}")
            if name not in options:
                raise CommandLineError(no_such("value", name, options))
            if form == "--set-env":
                value = _variable(name, value)
            elif options[name].get("sensitive"):
                raise CommandLineError(
                    f"{name} is a secret, which others can read on a command line: put it into an"
                    f" environment variable, --set-env {name}=VARIABLE"
                )
            found.setdefault(name, []).append(value)
    return found


def _variable(name: str, variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise CommandLineError(f"--set-env {name}: there is no such variable, or it is empty")
    return value


def _asked(name: str, option: Mapping[str, Any]) -> Sequence[str] | None:
    if not option.get("required"):
        return None
    is_secret = bool(option.get("sensitive"))
    text = option.get("description") or option.get("title") or ""
    answer = ask_value(printable_line(f"{name} ({text[:200]}): "), hidden=is_secret)
    if not answer:
        form = f"--set-env {name}=VARIABLE" if is_secret else f"--set {name}=VALUE"
        raise CommandLineError(f"the bundle needs {name}: {form}")
    return [answer]
