"""The analysis of a schema: one walk that collects everything needed to compile it.

Is every keyword part of the dialect, and its value of the right shape? Which references, patterns
and formats are used? If `$schema` is absent: do draft-07 and 2020-12 agree about the schema, or
does it need 2020-12 (SCHEMA-04)? A keyword that cannot be enforced is refused here, with its place
and a remedy, so later steps can rely on the schema.

The walk follows the keywords, so a property that is *named* `$ref` is just a property.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field

from ...errors import RegistrationError
from .dialects import (
    DRAFT_04,
    DRAFT_07,
    DRAFT_2019_09,
    DRAFT_2020_12,
    ENFORCING,
    HEADER_KEYWORD,
    SHAPES_IN,
    URIS,
    Schema,
    declared_dialect,
    dialects_with,
    has_shape,
    shape_name,
    subschemas,
)
from .issues import place, step

_REMEDY: Final = (
    f"set `$schema` to {URIS[DRAFT_2020_12]} (which needs the extra foundation-rt[jsonschema]),"
    " or remove it"
)


@define(eq=False, repr=False)
class SchemaAnalysis:
    """The facts about one schema.

    Attributes:
        root: the schema. Read as draft-07, it has `prefixItems` as that has them: as `items`.
        dialect: the dialect of the schema.
        declared: whether `$schema` names that dialect.
        reason: the place and the keyword that need 2020-12, if no dialect is declared.
        warnings: the parts that are not enforced, each with its place (SCHEMA-06, SCHEMA-13).
        references: each `$ref` as written, with the schema it refers to; up to draft-07 only.
        patterns: each pattern as written, with its Python form; up to draft-07 only.
        pattern_count: how many places have a pattern, in any dialect.
        check_formats: whether formats are enforced; otherwise they are annotations.
        formats: in how many places each enforced format is used.
        header_params: the places of schemas with an `x-mcp-header` (SCHEMA-23).
    """

    root: dict[str, Any]
    dialect: str = DRAFT_2020_12
    declared: bool = False
    check_formats: bool = True
    reason: str | None = None
    warnings: list[str] = field(factory=list)
    references: dict[str, Schema] = field(factory=dict)
    patterns: dict[str, str] = field(factory=dict)
    pattern_count: int = 0
    formats: Counter[str] = field(factory=Counter)
    header_params: list[str] = field(factory=list)
    _walked: set[int] = field(factory=set)
    _unresolved: list[tuple[str, str]] = field(factory=list)
    _tuples: list[dict[str, Any]] = field(factory=list)

    @property
    def size(self) -> int:
        """Return the number of schemas within the schema, the root included."""
        return len(self._walked)

    @property
    def is_modern(self) -> bool:
        """Return whether only the optional engine supports the dialect (SCHEMA-05)."""
        return self.dialect in (DRAFT_2019_09, DRAFT_2020_12)

    def referred(self, schema: dict[str, Any]) -> tuple[Schema, ...]:
        """Return the target of the `$ref` of a schema of draft-04, draft-06 or draft-07."""
        return (self.references[schema["$ref"]],) if "$ref" in schema else ()

    def walk(self, schema: Any, path: str) -> None:
        """Analyze `schema`, which is at `path`, and every schema in it.

        Raises:
            RegistrationError: it is not a schema of the dialect, or cannot be enforced.
        """
        if isinstance(schema, bool) and self.dialect != DRAFT_04:
            return
        if not isinstance(schema, dict):
            allowed = "an object" if self.dialect == DRAFT_04 else "an object, true or false"
            raise RegistrationError(f"{place(path)} must be a schema, that is {allowed}")
        self._walked.add(id(schema))
        for keyword, value in schema.items():
            at = step(path, keyword)
            shape = self._shape(keyword, value, at)
            if shape is None:
                continue
            note = _NOTES.get(keyword)
            if note is not None:
                note(self, value, at)
            for subschema, its_path in subschemas(shape, value, at):
                self.walk(subschema, its_path)
        if "$ref" in schema:
            self._note_siblings(schema, path)
        if "prefixItems" in schema:
            self._tuples.append(schema)
        if "contentEncoding" in schema and "pattern" not in schema:
            self._note_content(schema, step(path, "contentEncoding"))
        partners = _PARTNERS_IN_04 if self.dialect == DRAFT_04 else _PARTNERS
        for keyword, partner in partners.items():
            if keyword in schema and partner not in schema:
                self.warnings.append(f"{place(step(path, keyword))}: idle without `{partner}`")

    def resolve_references(self) -> None:
        """Find the target of each `$ref`, and analyze the targets that the walk did not reach.

        Raises:
            RegistrationError: a reference has no target, leaves the schema, or is circular.
        """
        if not self._unresolved:
            return
        from .references import is_circle, target_of

        own_id = self.root.get("id" if self.dialect == DRAFT_04 else "$id", "")
        while self._unresolved:
            reference, at = self._unresolved.pop()
            if reference not in self.references:
                target = self.references[reference] = target_of(self.root, own_id, reference, at)
                if id(target) not in self._walked:
                    self.walk(target, reference.partition("#")[2])
        done: set[int] = set()
        for reference, target in self.references.items():
            if is_circle(target, self.references, set(), done):
                raise RegistrationError(
                    f"`$ref` {reference!r} leads round in a circle without going into the value:"
                    " put `properties` or `items` between the references"
                )

    def read_as_draft_07(self) -> None:
        """Take the schema, which declares no dialect, as one of draft-07 (SCHEMA-04)."""
        self.dialect = DRAFT_07
        for schema in self._tuples:
            items = {"items": schema.pop("prefixItems")}
            if "items" in schema:
                items["additionalItems"] = schema.pop("items")
            schema.update(items)

    def _shape(self, keyword: str, value: Any, at: str) -> str | None:
        """Return the shape of `keyword` in this dialect, checked; None for an unknown keyword."""
        shape = SHAPES_IN[self.dialect].get(keyword)
        if shape is None and keyword not in ENFORCING:
            self.warnings.append(f"{place(at)}: unknown keyword, not enforced")
            return None
        if shape is None or not has_shape(value, shape):
            raise RegistrationError(self._refusal(keyword, value, at))
        if not self.declared and keyword not in SHAPES_IN[DRAFT_07] | _RENAMED:
            self._require_modern(at, f"`{keyword}` is new in 2020-12 or 2019-09")
        return shape

    def _refusal(self, keyword: str, value: Any, at: str) -> str:
        shape = SHAPES_IN[self.dialect].get(keyword)
        elsewhere = dialects_with(keyword, value)
        if shape is not None and not elsewhere:
            return f"{place(at)} must be {shape_name(shape)}"
        read_as = self.dialect if self.declared else f"{self.dialect}, as `$schema` is absent"
        return (
            f"{place(at)}: `{keyword}` in this form belongs to {', '.join(elsewhere)}, but the"
            f" schema is read as {read_as}: set `$schema` to the dialect that is meant, or"
            f" replace the keyword"
        )

    def _require_modern(self, at: str, why: str) -> None:
        """Note that only the optional engine enforces the keyword at `at`."""
        if self.declared:
            raise RegistrationError(f"{place(at)}: {why}; {_REMEDY}")
        self.reason = self.reason or f"{place(at)}: {why}"

    def _note_siblings(self, schema: dict[str, Any], path: str) -> None:
        if self.declared and self.is_modern:
            return
        for keyword in schema:
            if keyword in ENFORCING and keyword != "$ref":
                at = step(path, keyword)
                if self.declared:
                    self.warnings.append(f"{place(at)}: {self.dialect} ignores it beside `$ref`")
                else:
                    self._require_modern(at, f"`{keyword}` stands beside `$ref`")

    def _note_schema(self, value: str, at: str) -> None:
        if at != "/$schema" and value != self.root.get("$schema"):
            raise RegistrationError(f"{place(at)}: only the root may choose a dialect")

    def _note_id(self, value: str, at: str) -> None:
        if at not in ("/$id", "/id") and not (self.declared and self.is_modern):
            self._require_modern(at, "an identifier inside of the schema changes what `$ref` means")

    def _note_reference(self, value: str, at: str) -> None:
        self._unresolved.append((value, at))

    def _note_recursive_reference(self, value: str, at: str) -> None:
        if value != "#":
            raise RegistrationError(
                f"{place(at)} must be '#', the only value that 2019-09 defines: use `$ref` for"
                f" {value!r}"
            )

    def _note_pattern(self, value: str, at: str) -> None:
        from .patterns import PatternError, UnsupportedPatternError, translate

        self.pattern_count += 1
        if value in self.patterns or (self.declared and self.is_modern):
            return
        try:
            self.patterns[value] = translate(value)
        except UnsupportedPatternError as error:
            self._require_modern(at, f"the pattern uses {error}")
        except PatternError as error:
            raise RegistrationError(f"{place(at)}: the pattern is not valid: {error}") from None

    def _note_patterns(self, value: Mapping[str, Schema], at: str) -> None:
        for pattern in value:
            self._note_pattern(pattern, step(at, pattern))

    def _note_format(self, value: str, at: str) -> None:
        from .formats import ENFORCED  # few schemas have formats

        if value not in ENFORCED:
            self.warnings.append(f"{place(at)}: format {value!r} is not enforced")
        elif self.check_formats:
            self.formats[value] += 1

    def _note_header(self, value: str, at: str) -> None:
        self.header_params.append(at.removesuffix(f"/{HEADER_KEYWORD}"))

    def _note_content(self, value: object, at: str) -> None:
        self.warnings.append(f"{place(at)}: describes the content of a string, not enforced")


_NOTES: Final[dict[str, Callable[[SchemaAnalysis, Any, str], None]]] = {
    "$id": SchemaAnalysis._note_id,
    "$recursiveRef": SchemaAnalysis._note_recursive_reference,
    "$ref": SchemaAnalysis._note_reference,
    "$schema": SchemaAnalysis._note_schema,
    "contentMediaType": SchemaAnalysis._note_content,
    "contentSchema": SchemaAnalysis._note_content,
    "format": SchemaAnalysis._note_format,
    HEADER_KEYWORD: SchemaAnalysis._note_header,
    "id": SchemaAnalysis._note_id,
    "pattern": SchemaAnalysis._note_pattern,
    "patternProperties": SchemaAnalysis._note_patterns,
}
_RENAMED: Final = {"prefixItems": "items"}
"""The keywords of 2020-12 that draft-07 has under other names."""
_PARTNERS: Final = {
    "additionalItems": "items",
    "else": "if",
    "maxContains": "contains",
    "minContains": "contains",
    "then": "if",
}
_PARTNERS_IN_04: Final = {
    "additionalItems": "items",
    "exclusiveMaximum": "maximum",
    "exclusiveMinimum": "minimum",
}
"""Keywords that have no effect without another one."""


def analyze(root: dict[str, Any], *, check_formats: bool = True) -> SchemaAnalysis:
    """Return the analysis of the schema `root`.

    Args:
        root: the schema; the analysis may rewrite it.
        check_formats: whether `format` is enforced; otherwise it is an annotation.

    Raises:
        RegistrationError: it is not a schema, or cannot be enforced (SCHEMA-03).
    """
    declared = "$schema" in root
    dialect = declared_dialect(root["$schema"]) if declared else DRAFT_2020_12
    found = SchemaAnalysis(root, dialect, declared, check_formats)
    found.walk(root, "")
    if declared and found.is_modern:
        return found
    if found.reason is None:
        found.resolve_references()
    if not declared and found.reason is None:
        found.read_as_draft_07()
    return found
