"""Validators compiled by the optional jsonschema-rs.

It compiles schemas of 2019-09 and 2020-12 (SCHEMA-05), and schemas of peers that have patterns, in
any dialect (CTOOL-05). It is configured to behave as the other engine: formats are enforced by the
same predicates, references that leave the schema are refused, and issues have the same messages,
without the value.

The engine checks a shared subschema again on each path, holds the interpreter lock and cannot be
stopped. So values are bounded before the check (SCHEMA-27): the steps are counted, in time linear
in value and schema, because counts are remembered. All alternatives count, as if each failed. If a
schema has no shared subschemas, the largest weight of a state (see `reachability`), times the
number of values within the value, is a bound that needs no counting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from math import frexp
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson
from attrs import define, field

from ...errors import MissingExtraError, RegistrationError
from .analysis import SchemaAnalysis
from .budget import CHARACTER, MAX_STEPS, TooComplex, counted_formats
from .dialects import DRAFT_04, DRAFT_06, DRAFT_07, DRAFT_2019_09, DRAFT_2020_12
from .equality import extent, size
from .formats import ENFORCED, predicate
from .issues import TOO_COMPLEX, TOO_DEEP, ValidationIssue, place, step
from .messages import MESSAGES, Selection
from .reachability import (
    named_members,
    on_any_item,
    on_any_member,
    on_leading_items,
    on_same_value,
    walk_states,
)
from .references import target_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError


_ENGINES: Final = {
    DRAFT_04: "Draft4Validator",
    DRAFT_06: "Draft6Validator",
    DRAFT_07: "Draft7Validator",
    DRAFT_2019_09: "Draft201909Validator",
    DRAFT_2020_12: "Draft202012Validator",
}
_NOT_ENFORCED: Final = ("idn-email", "idn-hostname", "iri", "iri-reference", "uri-template")
"""The formats that jsonschema-rs would check by its own rules."""

FOREIGN_PATTERN_BYTES: Final = 2 * 1024 * 1024
"""The most bytes that the compiled patterns of a peer's schema take: 10 to 50 ns a byte."""

_MAX_PARTS_FOR_ALL: Final = 5_000
"""The most values within a value whose issues are all found: the engine collects every error before
it yields the first, 12 us each; the first alone takes 50 us (SCHEMA-40)."""

_MAX_BYTES_FOR_ALL: Final = 65_536
"""The longest such value (bytes of JSON): each error holds a copy of the part that has it."""

_INDEX: Final = re.compile(r"\+?[0-9]+")
"""The names of members that the engine has as integers in its paths."""


def build_rust_validator(
    analysis: SchemaAnalysis, *, linear: bool = False, max_steps: int = MAX_STEPS
) -> Callable[[Any], tuple[ValidationIssue, ...]]:
    """Return the validator for a schema.

    Args:
        analysis: the analysis of the schema.
        linear: whether to refuse patterns that cannot be matched in linear time (look-arounds and
            back-references).
        max_steps: the most steps of a check, as far as they can be known before (SCHEMA-27).

    Raises:
        RegistrationError: the extra is missing, or the engine refuses the schema.
    """
    validator = _compile(analysis, linear)
    from jsonschema_rs import ValidationError

    limit = step_limit(analysis, max_steps, linear=linear)

    def validate(arguments: Any) -> tuple[ValidationIssue, ...]:
        try:
            if limit is not None:
                limit(arguments)
            validator.validate(arguments)
        except ValidationError as first:
            selection = Selection()
            for error in validator.iter_errors(arguments) if _is_small(arguments) else [first]:
                _add(error, arguments, selection)
                if selection.is_complete:
                    break
            return selection.issues()
        except (ValueError, RecursionError):  # a ValueError is its recursion limit
            return TOO_DEEP
        except TooComplex:
            return TOO_COMPLEX
        return ()

    return validate


def _compile(analysis: SchemaAnalysis, linear: bool) -> Any:
    """Return the engine's validator for a schema; see `build_rust_validator`."""
    try:
        import jsonschema_rs
    except ImportError:
        need = f"dialect {analysis.dialect} ({analysis.reason or '#/$schema: declared'})"
        if not analysis.is_modern:
            need = "running a pattern of a peer"
        raise RegistrationError(str(MissingExtraError(need, "jsonschema"))) from None
    engine = getattr(jsonschema_rs, _ENGINES[analysis.dialect])
    options = None
    if linear:
        each = FOREIGN_PATTERN_BYTES // max(1, analysis.pattern_count)
        options = jsonschema_rs.RegexOptions(size_limit=each, dfa_size_limit=2 * each)
    formats = {name: predicate(name) for name in ENFORCED}
    formats.update((name, _accept) for name in _NOT_ENFORCED)
    try:
        return engine(
            analysis.root,
            formats=formats,
            validate_formats=analysis.check_formats,
            retriever=_refuse_to_fetch,
            mask="the value",  # each error would hold a text of the part as well
            pattern_options=options,
        )
    except jsonschema_rs.ValidationError as error:
        at = "".join(f"/{one}" for one in error.instance_path)
        raise RegistrationError(
            f"{place(at)} is refused by jsonschema-rs: {error.message}"
        ) from None


def _is_small(value: Any) -> bool:
    try:
        if len(orjson.dumps(value)) > _MAX_BYTES_FOR_ALL:
            return False
        return size(value) <= _MAX_PARTS_FOR_ALL
    except TypeError:  # deeper than orjson writes, which is not as deep as the engine goes
        return False


def _accept(text: str) -> bool:
    return True


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError("nothing is ever fetched: copy what it means into `$defs`")


def _keys(value: Any, path: Sequence[str | int]) -> Iterator[str | int]:
    """Yield the keys of a path of the engine, which has names such as "007" as integers."""
    for one in path:
        key: str | int = one
        if isinstance(value, list):
            value = value[int(one)]
        elif isinstance(value, dict):
            key = str(one)
            if key not in value:
                alike = (each for each in value if _INDEX.fullmatch(each) and int(each) == one)
                key = next(alike, key)
            value = value.get(key)
        yield key


def _add(error: ValidationError, value: Any, selection: Selection) -> None:
    """Add the issue of an error of `value`."""
    path, item = "", None
    for key in _keys(value, error.instance_path):
        path = step(path, key)
        if item is None and isinstance(key, int):
            item = path
    keyword, about = error.kind.name, error.kind.value
    if keyword == "required":
        about = [about]
    elif keyword == "falseSchema" and error.schema_path[-1] == "additionalProperties":
        keyword, about = "maxProperties", 0  # where it stands alone, the engine names none
    say = MESSAGES.get(keyword)
    message = say(about) if say else f"must satisfy `{keyword}`"
    selection.add(ValidationIssue(path, message), item)


MAX_COUNTED: Final = 100_000
"""The most pairs of a schema and a value that are counted one by one: about 0.2 s."""

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_UNEVALUATED: Final = ("unevaluatedItems", "unevaluatedProperties")
_FORMAT: Final = 40
"""The steps to check a format of SCHEMA-13, which is a Python function."""
_DIVISION: Final = 25
"""The steps to divide an integer by one."""
_DIVISION_OF_FLOATS: Final = 50
"""The steps to divide where one is a float, besides its digits and exponents."""
_DIGIT: Final = 12
"""The steps for each digit of such a number."""
_SMALLEST: Final = 2.2250738585072014e-308
"""A number that takes as long to divide as any: 17 digits, and the largest exponent."""
_PATTERN_CHARACTER: Final = 1
"""The steps for each character that a peer's pattern reads."""


def step_limit(
    analysis: SchemaAnalysis, max_steps: int, *, linear: bool
) -> Callable[[Any], None] | None:
    """Return a function that raises for values for which the engine may exceed `max_steps`.

    The function raises `TooComplex`, and `RecursionError` for a value nested too deeply.

    Args:
        analysis: the analysis of the schema.
        max_steps: the most steps.
        linear: whether patterns are a peer's, and counted.

    Returns:
        The function; None if the steps do not depend on the size of the value.
    """
    references = _References(analysis.root).targets if analysis.is_modern else analysis.referred
    schemas = list(_all_schemas(analysis.root))
    reach = walk_states(analysis.root, references, _own_steps)
    counts = reach is None or bool(reach.shared)
    counts = counts or any(keyword in one for one in schemas for keyword in _UNEVALUATED)
    formats = analysis.formats
    patterns = analysis.pattern_count if linear else 0
    reads_texts = bool(counted_formats(formats)) or patterns * _PATTERN_CHARACTER > 1
    if not counts and not reads_texts and not any(map(_loops, schemas)):
        return None
    widest = 0 if reach is None else reach.widest
    once = sum(map(_own_steps, schemas))
    character = sum(CHARACTER.get(name, 0) * places for name, places in formats.items())
    character += patterns * _PATTERN_CHARACTER
    costs = _Costs(references, frozenset(formats), linear)

    def limit(value: Any) -> None:
        if not counts:
            values, characters = extent(value)
            if once + widest * values + character * characters <= max_steps:
                return
        if _StepCount(costs).count(analysis.root, value)[1] > max_steps:
            raise TooComplex

    return limit


def _loops(schema: dict[str, Any]) -> bool:
    """Return whether the steps of a schema depend on the size of the value."""
    found = (*on_any_item(schema), *on_any_member(schema), schema.get("propertyNames"))
    return "$ref" in schema or any(map(_is_schema, found))


@define
class _References:
    """The possible targets of references of 2019-09 and 2020-12."""

    root: dict[str, Any]
    _resources: dict[str, dict[str, Any]] = field(factory=dict)
    _named: dict[str, list[Any]] = field(factory=dict)
    _recursive: list[Any] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        for schema in _all_schemas(self.root):
            if isinstance(schema.get("$id"), str):
                self._resources[schema["$id"].rpartition("/")[2].partition("#")[0]] = schema
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(keyword), str):
                    self._named.setdefault(schema[keyword], []).append(schema)
            if schema.get("$recursiveAnchor") is True:
                self._recursive.append(schema)

    def targets(self, schema: dict[str, Any]) -> Iterator[Any]:
        """Yield the schemas to which `schema` may refer."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(keyword), str):
                yield from self._find(schema[keyword])
        if "$recursiveRef" in schema:
            yield self.root
            yield from (one for one in self._recursive if one is not self.root)

    def _find(self, reference: str) -> Iterator[Any]:
        document, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._named.get(fragment, ())
            return
        named = self._resources.get(document.rpartition("/")[2])
        if document and named is None:  # the engine brings the schemas of the dialects themselves
            raise RegistrationError(
                f"{reference!r} is outside of this schema, and nothing is ever fetched: copy what"
                " it means into `$defs` and refer to that"
            )
        places = [self.root, *self._resources.values()] if named is None else [named]
        for root in {id(one): one for one in places}.values():
            try:
                yield target_of(root, "", f"#{fragment}", "")
            except RegistrationError:
                continue
            return


def _all_schemas(root: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema, since each may be a schema."""
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _own_steps(schema: dict[str, Any]) -> int:
    """Return the steps of a schema for one value, without its subschemas.

    Those that depend on the value are counted at their most, but for its characters.
    """
    steps = _fixed_steps(schema)
    divisor = schema.get("multipleOf")
    return steps + (0 if divisor is None else _division(divisor, _SMALLEST))


def _fixed_steps(schema: dict[str, Any]) -> int:
    """Return the steps of a schema that do not depend on the value."""
    steps = 1 + len(schema) // 4 + len(named_members(schema)) // 4
    for keyword in ("enum", "required", "patternProperties"):
        if isinstance(schema.get(keyword), list | dict):
            steps += len(schema[keyword]) // 2
    dependent = schema.get("dependentRequired", schema.get("dependencies"))
    if isinstance(dependent, dict):
        steps += sum(len(one) for one in dependent.values() if isinstance(one, list)) // 2
    if isinstance(schema.get("format"), str):
        steps += _FORMAT
    return steps


def _division(divisor: Any, value: Any) -> int:
    """Return the steps to divide a number: the engine writes out digits and exponents."""
    if not isinstance(value, int | float) or not isinstance(divisor, int | float):
        return 0
    if isinstance(value, int) and isinstance(divisor, int):
        return _DIVISION
    digits = value.bit_length() // 3 if isinstance(value, int) else len(repr(value))
    exponents = sum(abs(frexp(one)[1]) for one in (value, divisor))
    return _DIVISION_OF_FLOATS + _DIGIT * digits + exponents


@define(eq=False)
class _Cost:
    """The steps of a schema, as far as they are known without a value.

    Attributes:
        fixed: the steps of `_fixed_steps`.
        character: the steps for each character of a string.
        patterns: the number of patterns of names of members.
        divisor: that of `multipleOf`.
        evaluates: whether it evaluates again what the schemas beside it have evaluated.
        same: the schemas that apply to the same value.
        alternatives: those of them that are validated first, then explained.
    """

    fixed: int
    character: float
    patterns: int
    divisor: Any
    evaluates: bool
    same: tuple[Any, ...]
    alternatives: tuple[Any, ...]


@define(eq=False)
class _Costs:
    """The costs of the schemas within a schema."""

    references: Callable[[dict[str, Any]], Any]
    formats: frozenset[str]
    linear: bool
    _known: dict[int, _Cost] = field(factory=dict)

    def of(self, schema: dict[str, Any]) -> _Cost:
        """Return the cost of a schema."""
        known = self._known.get(id(schema))
        if known is None:
            known = self._known[id(schema)] = self._make(schema)
        return known

    def _make(self, schema: dict[str, Any]) -> _Cost:
        name = schema.get("format")
        character: float = CHARACTER.get(name, 0) if name in self.formats else 0
        patterns = schema.get("patternProperties")
        if self.linear and ("pattern" in schema or patterns):
            character += _PATTERN_CHARACTER
        return _Cost(
            _fixed_steps(schema),
            character,
            len(patterns) if isinstance(patterns, dict) else 0,
            schema.get("multipleOf"),
            any(keyword in schema for keyword in _UNEVALUATED),
            (*self.references(schema), *filter(_is_schema, on_same_value(schema))),
            tuple(one for keyword in _ALTERNATIVES for one in schema.get(keyword, ())),
        )


@define(eq=False)
class _StepCount:
    """Counts steps for one value: those to validate it, and those to find its errors."""

    costs: _Costs
    left: int = MAX_COUNTED
    _known: dict[tuple[int, int], tuple[float, float]] = field(factory=dict)

    def count(self, schema: Any, value: Any) -> tuple[float, float]:
        """Return the steps to validate `value` under `schema`, and to find its errors.

        Raises:
            TooComplex: there are too many pairs of schemas and values to count.
        """
        if not isinstance(schema, dict):
            return 0, 0
        self.left -= 1
        if self.left < 0:
            raise TooComplex
        memo_key = id(schema), id(value)  # both outlive the counting
        known = self._known.get(memo_key)
        if known is not None:
            return known
        cost = self.costs.of(schema)
        steps: float = cost.fixed
        if isinstance(value, str):
            steps += cost.character * len(value)
        elif isinstance(value, dict):
            if cost.patterns:
                steps += cost.patterns * (len(value) + cost.character * sum(map(len, value)))
        elif cost.divisor is not None:
            steps += _division(cost.divisor, value)
        errors = steps
        if cost.same:
            again = 1
            if cost.evaluates and isinstance(value, list | dict):
                again = 2 + len(value)  # evaluated again for each item or member
            for one in cost.same:
                decide, explain = self.count(one, value)
                steps += decide * again
                errors += explain * again
            for one in cost.alternatives:
                errors += self.count(one, value)[0]
        if isinstance(value, list | dict):
            for one, parts in _on_parts(schema, value):
                if len(parts) > self.left:
                    raise TooComplex
                for part in parts:
                    decide, explain = self.count(one, part)
                    steps += decide
                    errors += explain
        self._known[memo_key] = steps, errors
        return steps, errors


def _on_parts(schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Collection[Any]]]:
    """Yield the subschemas for the parts of `value`, each with its parts."""
    if isinstance(value, list):
        for one, part in zip(on_leading_items(schema), value, strict=False):
            yield one, (part,)
        for one in filter(_is_schema, on_any_item(schema)):
            yield one, value
    else:
        named = named_members(schema)
        for name in named.keys() & value.keys():
            yield named[name], (value[name],)
        if "propertyNames" in schema:
            yield schema["propertyNames"], value.keys()
        for one in filter(_is_schema, on_any_member(schema)):
            yield one, value.values()


def _is_schema(one: Any) -> bool:
    return isinstance(one, dict)
