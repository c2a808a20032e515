"""The result of a migration: the new text, and what a person looks at."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen(order=True)
class Finding:
    """A place in a file that a person looks at.

    Attributes:
        line: in the file as it was, from 1.
        text: what stands there, why it matters, and what to do.
        is_open: a person has to decide, else the program may not run or means something else; if
            not, the file was changed here in a way that is worth knowing.
    """

    line: int
    text: str
    is_open: bool


@frozen
class MigratedFile:
    """A file after its migration.

    Attributes:
        text: of the file, changed or not.
        libraries: the other libraries that the file imported: `fastmcp`, `mcp` or `mcp_types`.
        findings: ordered by line, without duplicates.
        servers: functions that serve and are no coroutines any more, though the file does not call
            them, by their names; with the findings that say so.
    """

    text: str
    libraries: tuple[str, ...]
    findings: tuple[Finding, ...]
    servers: Mapping[str, Finding] = field(factory=dict)

    @property
    def open_findings(self) -> tuple[Finding, ...]:
        """The findings that a person has to decide."""
        return tuple(each for each in self.findings if each.is_open)
