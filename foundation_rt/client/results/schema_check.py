"""A schema of a server, compiled on first use.

A schema that cannot be compiled is not checked, and `problem` says why; the server checks its
arguments anyway (CTOOL-04).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ...base.exact_json import dumps
from ...errors import RegistrationError

if TYPE_CHECKING:
    from ...base.jsonschema.compilation import Validator
    from ...base.jsonschema.issues import ValidationIssue

MAX_SCHEMA_BYTES: Final = 128 * 1024
"""Largest schema that is compiled, in bytes of JSON; most of a large one is descriptions."""

log = logging.getLogger("foundation_rt.client")


@define(eq=False, repr=False)
class SchemaCheck:
    """Checks values against a schema of a server.

    Attributes:
        schema: as it came.
        problem: why values are not checked; None until the schema is found unusable.
    """

    schema: Mapping[str, Any]
    problem: str | None = field(default=None, init=False)
    _validate: Validator | None = field(default=None, init=False)
    _validate_formats: Validator | None = field(default=None, init=False)

    def issues(self, value: Any) -> tuple[ValidationIssue, ...]:
        """Return what is wrong with `value`; nothing if the schema cannot be compiled.

        Formats are annotations: one that does not fit is a debug line (CTOOL-22). The result is
        `TOO_COMPLEX` for a value whose check takes too many steps (SCHEMA-27).
        """
        if self._validate is None:
            self._validate = self._compile(check_formats=False)
        issues = self._validate(value)
        if not issues and log.isEnabledFor(logging.DEBUG):
            self._log_formats(value)
        return issues

    def _log_formats(self, value: Any) -> None:
        if self._validate_formats is None:
            self._validate_formats = self._compile(check_formats=True)
        for issue in self._validate_formats(value):
            log.debug("a format does not fit: %s %s", issue.path or "it", issue.message)

    def _compile(self, check_formats: bool) -> Validator:
        from ...base.jsonschema.compilation import compile_schema
        from .schema_costs import cost_problem

        try:
            self.problem = _length_problem(self.schema) or cost_problem(self.schema)
            if self.problem is None:
                return compile_schema(
                    self.schema, any_root=True, linear=True, check_formats=check_formats
                ).validate
        except (RegistrationError, TypeError) as error:
            self.problem = str(error)
        except RecursionError:
            self.problem = "the schema is nested too deeply"
        return _accept


def _length_problem(schema: Mapping[str, Any]) -> str | None:
    if len(dumps(schema)) <= MAX_SCHEMA_BYTES:
        return None
    return f"the schema is longer than {MAX_SCHEMA_BYTES} bytes"


def _accept(value: Any) -> tuple[ValidationIssue, ...]:
    return ()
