"""The resources of a server, and the templates of those that have no fixed URI (MRES-01).

A URI is looked for among the resources first, then among the templates, the most literal one first
(MRES-08).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ..protocol.content import Annotations, Icon
from ..protocol.uri_template import InvalidUri, UriTemplate, check_uri, parse_template
from .catalog import Catalog, ChangeNotifier
from .checks import DefinitionChecks
from .handling import HandlerSpec, make_handler_spec

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from .catalog import Observer
    from .completions import Completer
    from .tools import ExecutionMode, Handler

MAX_SIZE = 2**53 - 1
"""Bytes of a resource: beyond, not every client reads the number as it was written."""

MAX_CACHE_TTL_MS = 2**53 - 1

URI = "uri"
"""The argument under which every handler gets the URI that is read."""


@frozen(kw_only=True)
class _Definition:
    """What resources and templates say alike.

    Args:
        name: for programs, and as a title of last resort.
        title: for people.
        description: for the model that chooses what to read.
        mime_type: of its contents, where they do not say another one.
    """

    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None

    def members(self, revision: Revision) -> dict[str, Any]:
        """What a list shows of it, whatever it is."""
        wire: dict[str, Any] = {"name": self.name}
        optional = {
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "_meta": self.meta,
        }
        wire.update((key, value) for key, value in optional.items() if value is not None)
        if self.annotations is not None:
            wire["annotations"] = self.annotations.to_wire(revision)
        if self.icons:
            wire["icons"] = [icon.to_wire() for icon in self.icons]
        return wire


@frozen(kw_only=True)
class ResourceDefinition(_Definition):
    """What a server says of a resource.

    Args:
        uri: absolute, unique within a server.
        size: in bytes, before any encoding, if it is known.
    """

    uri: str
    size: int | None = None

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """The resource as `resources/list` shows it."""
        wire = {"uri": self.uri, **self.members(revision)}
        if self.size is not None:
            wire["size"] = self.size
        return revision.keep("resource", wire)


@frozen(kw_only=True)
class ResourceTemplateDefinition(_Definition):
    """What a server says of all resources whose URIs a template makes.

    Args:
        uri_template: of RFC 6570, level 1 (MRES-06).
    """

    uri_template: str

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """The template as `resources/templates/list` shows it."""
        wire = {"uriTemplate": self.uri_template, **self.members(revision)}
        return revision.keep("resource", wire)


@define(eq=False, repr=False)
class RegisteredResource:
    """A resource, ready to be read.

    Attributes:
        cache_ttl_ms: how long what was read may be kept, in ms; None means `server.cache_ttl_ms`.
    """

    definition: ResourceDefinition
    handler_spec: HandlerSpec
    cache_ttl_ms: int | None

    @property
    def scopes(self) -> frozenset[str]:
        """What a principal must have been granted to use it, all of it."""
        return self.handler_spec.scopes

    def wire(self, revision: Revision) -> dict[str, Any]:
        """How `resources/list` shows it."""
        return self.definition.to_wire(revision)


@define(eq=False, repr=False)
class RegisteredTemplate:
    """All resources of a template, ready to be read.

    Attributes:
        cache_ttl_ms: as that of a resource.
        completers: by variable, what completes it.
    """

    definition: ResourceTemplateDefinition
    handler_spec: HandlerSpec
    cache_ttl_ms: int | None
    template: UriTemplate
    completers: dict[str, Completer]

    @property
    def arguments(self) -> tuple[str, ...]:
        """What can be completed."""
        return self.template.variables

    @property
    def scopes(self) -> frozenset[str]:
        """What a principal must have been granted to use it, all of it."""
        return self.handler_spec.scopes

    def wire(self, revision: Revision) -> dict[str, Any]:
        """How `resources/templates/list` shows it."""
        return self.definition.to_wire(revision)


@define(eq=False, repr=False)
class ResourceRegistry:
    """Keeps resources by URI, and templates."""

    _notifier: ChangeNotifier = field(factory=lambda: ChangeNotifier("resources"), init=False)
    resources: Catalog[RegisteredResource] = field(init=False)
    templates: Catalog[RegisteredTemplate] = field(init=False)
    _by_literals: dict[tuple[str, ...], str] = field(factory=dict, init=False)
    _ranked: tuple[RegisteredTemplate, ...] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.resources = Catalog(self._notifier)
        self.templates = Catalog(self._notifier)

    @property
    def is_offered(self) -> bool:
        """Whether clients have been told, or are told, that there are resources (MRES-13)."""
        return self.resources.was_used or self.templates.was_used

    def observe(self, observer: Observer) -> None:
        """Tell `observer` of every change from now on, as long as somebody else holds it."""
        self._notifier.observe(observer)

    def register(
        self,
        definition: ResourceDefinition,
        handler: Handler,
        *,
        execution: ExecutionMode | None = None,
        timeout_ms: int | None = None,
        cache_ttl_ms: int | None = None,
        scopes: Iterable[str] = (),
    ) -> RegisteredResource:
        """Add a resource (MRES-01).

        Args:
            handler: called with ``{"uri": ...}`` and a `ToolContext`.
            execution: where it runs; by default a task for `async def`, else a worker thread.
            timeout_ms: deadline in ms; by default `tools.default_timeout_ms`.
            cache_ttl_ms: see `RegisteredResource`.
            scopes: see `HandlerSpec`.

        Raises:
            RegistrationError: the definition is not valid, or the URI is taken.
        """
        checks = DefinitionChecks(f"resource {definition.uri!r}")
        checks.instance("uri", definition.uri, str)
        try:
            check_uri(definition.uri)
        except InvalidUri as error:
            raise checks.refusal(f"uri {error}") from None
        checks.number("size", definition.size, 0, MAX_SIZE)
        definition = evolve(definition, meta=_check_definition(checks, definition))
        checks.number("cache_ttl_ms", cache_ttl_ms, 0, MAX_CACHE_TTL_MS)
        handling = make_handler_spec(checks, handler, execution, timeout_ms, scopes)
        entry = RegisteredResource(definition, handling, cache_ttl_ms)
        if not self.resources.add(definition.uri, entry):
            raise checks.refusal("the URI is taken: choose another one, or unregister it first")
        self._notifier.notify()
        return entry

    def register_template(
        self,
        definition: ResourceTemplateDefinition,
        handler: Handler,
        *,
        execution: ExecutionMode | None = None,
        timeout_ms: int | None = None,
        cache_ttl_ms: int | None = None,
        scopes: Iterable[str] = (),
        completers: Mapping[str, Completer] | None = None,
    ) -> RegisteredTemplate:
        """Add all resources of a template (MRES-06).

        Args:
            handler: called with the values of the variables, the URI as ``uri`` beside them, and
                a `ToolContext`.
            execution, timeout_ms, cache_ttl_ms, scopes: as of `register`.
            completers: by variable, what completes it.

        Raises:
            RegistrationError: the definition is not valid, or another template makes the same
                URIs.
        """
        checks = DefinitionChecks(f"resource template {definition.uri_template!r}")
        checks.instance("uri_template", definition.uri_template, str)
        try:
            template = parse_template(definition.uri_template)
        except InvalidUri as error:
            raise checks.refusal(f"uri_template {error}") from None
        if URI in template.variables:
            raise checks.refusal("no variable may be called 'uri': handlers get the whole URI so")
        definition = evolve(definition, meta=_check_definition(checks, definition))
        checks.number("cache_ttl_ms", cache_ttl_ms, 0, MAX_CACHE_TTL_MS)
        handling = make_handler_spec(checks, handler, execution, timeout_ms, scopes)
        known = dict(completers or {})
        entry = RegisteredTemplate(definition, handling, cache_ttl_ms, template, known)
        with self._notifier.lock:
            same = self._by_literals.setdefault(template.literals, template.text)
            if not self.templates.add(same, entry):
                raise checks.refusal(
                    f"{same!r} makes the same URIs: choose another one, or unregister it first"
                )
            self._ranked = None
        self._notifier.notify()
        return entry

    def unregister(self, uri: str) -> bool:
        """Remove the resource of that URI, or the template so written; tell if there was one."""
        with self._notifier.lock:
            template = self.templates.get(uri)
            if template is not None:
                self.templates.remove(uri)
                del self._by_literals[template.template.literals]
                self._ranked = None
            elif not self.resources.remove(uri):
                return False
        self._notifier.notify()
        return True

    def find(self, uri: str) -> tuple[RegisteredResource | RegisteredTemplate, dict[str, str]]:
        """What has the URI, and the values of its variables (MRES-08).

        Raises:
            LookupError: nothing has it.
        """
        resource = self.resources.get(uri)
        if resource is not None:
            return resource, {}
        for entry in self._templates_by_rank():
            values = entry.template.match(uri)
            if values is not None:
                return entry, values
        raise LookupError(uri)

    def _templates_by_rank(self) -> tuple[RegisteredTemplate, ...]:
        # Replaced, never changed: looking for a URI takes the lock only after a change.
        ranked = self._ranked
        if ranked is None:
            with self._notifier.lock:
                ranked = tuple(
                    sorted(self.templates.entries(), key=lambda each: each.template.rank)
                )
                self._ranked = ranked
        return ranked


def _check_definition(checks: DefinitionChecks, definition: _Definition) -> dict[str, Any] | None:
    """Check what resources and templates say alike; return a private copy of `meta`."""
    checks.name("name", definition.name)
    checks.text("title", definition.title)
    checks.text("description", definition.description)
    checks.text("mime_type", definition.mime_type)
    if definition.annotations is not None:
        checks.instance("annotations", definition.annotations, Annotations)
    checks.icons(definition.icons)
    return checks.meta(definition.meta)
