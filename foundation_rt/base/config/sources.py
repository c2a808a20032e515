"""The sources of one server's configuration, until the server is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import evolve, fields

from ...errors import ConfigError, RegistrationError, UsageError
from .settings import ServerConfig, ServerSection, needs_loading

if TYPE_CHECKING:
    from os import PathLike

    from .types import Settings


class ConfigSources:
    """The code of a server, a file, and a command line; the environment comes in `load`.

    Args:
        code: one mapping for each section, as `Server` takes them.
        name: of the server; wins over that in `code`.
        version: of the server; wins over that in `code`.
        request_headers: those that handlers get; win over those in `code`.
        sections: the sections of the application, by name (CONF-24).

    Attributes:
        file: a configuration file, .toml or .json; None if there is none.

    Raises:
        RegistrationError: a section is refused.
        UsageError: `code` or `sections` is not a mapping.
    """

    def __init__(
        self,
        code: object,
        name: str | None,
        version: str | None,
        sections: Mapping[str, type[Settings]] | None = None,
        request_headers: Sequence[str] | None = None,
    ) -> None:
        self._cls: type[ServerConfig] = ServerConfig
        self._sections: Mapping[str, type[Settings]] = {}
        if sections is not None:
            self.add_sections(sections)
        self.file: str | PathLike[str] | None = None
        self._code = _with_identity(code, name, version)
        if request_headers is not None:
            self.set_defaults("http", {"request_headers": request_headers})
        self._overrides: dict[str, dict[str, Any]] = {}

    def add_sections(self, sections: Mapping[str, type[Settings]]) -> None:
        """Add sections of the application (CONF-24).

        Raises:
            RegistrationError: a section is refused, or there is one of its name.
            UsageError: `sections` is not a mapping.
        """
        from .sections import config_with

        if isinstance(sections, Mapping):  # `config_with` refuses all else
            for name in sections.keys() & self._sections.keys():
                raise RegistrationError(f"section {name!r}: there is one of this name")
            sections = {**self._sections, **sections}
        self._cls = config_with(sections)
        self._sections = sections

    def override(self, section: str, settings: Mapping[str, Any]) -> None:
        """Give settings that win over every other source."""
        self._overrides.setdefault(section, {}).update(settings)

    def set_defaults(self, section: str, settings: Mapping[str, Any]) -> None:
        """Give settings in code; they replace those given before."""
        table = self._code.setdefault(section, {})
        if isinstance(table, dict):  # the loader refuses anything else
            table.update(settings)

    def load(self, environ: Mapping[str, str], given: ServerConfig | None) -> ServerConfig:
        """Return the configuration that all sources make together.

        Args:
            environ: the environment variables.
            given: a complete configuration; nothing but `override` changes it.

        Raises:
            ConfigError: lists every problem of it.
        """
        config = self._read(environ) if given is None else self._extended(given)
        for section, settings in self._overrides.items():
            try:
                changed = evolve(getattr(config, section), **settings)
            except (AttributeError, TypeError, ValueError) as error:
                raise ConfigError(f"{section}: {error}") from error
            config = evolve(config, **{section: changed})
        return config

    def _extended(self, given: ServerConfig) -> ServerConfig:
        """Return `given` with the defaults of the sections of the application that it lacks."""
        if isinstance(given, self._cls):
            return given
        ours = {each.name: getattr(given, each.name) for each in fields(ServerConfig)}
        return self._cls(**ours)

    def _read(self, environ: Mapping[str, str]) -> ServerConfig:
        if self.file is None and not needs_loading(environ):
            # Most servers set a name and a version only: that does not need the loader.
            with suppress(TypeError, ValueError):
                if self._code.keys() <= {"server"}:
                    return self._cls(server=ServerSection(**self._code.get("server", {})))
        from .loading import load_config

        return load_config(file=self.file, environ=environ, code=self._code, cls=self._cls)


def _with_identity(code: object, name: str | None, version: str | None) -> dict[str, Any]:
    """Return a copy of `code` with name and version; the loader refuses sections of other types."""
    if not isinstance(code, Mapping | None):
        raise UsageError('config is a mapping of sections, as in {"tools": {...}}')
    merged: dict[str, Any] = {
        section: dict(values) if isinstance(values, Mapping) else values
        for section, values in (code or {}).items()
    }
    identity = {
        key: value for key, value in (("name", name), ("version", version)) if value is not None
    }
    server = merged.get("server", {})
    if identity and isinstance(server, dict):
        merged["server"] = identity | server
    return merged
