"""The resources of a server, and the templates of resources without a fixed URI (MRES-01).

A URI is looked up among the resources first, then among the templates, the most literal one first
(MRES-08).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from ...kernel.registry.catalog import ChangeNotifier, Registry, is_visible
from ..definitions import DefinitionChecks, FeatureEntry
from ..handler_calls import HandlerSpec
from .uri_template import (
    InvalidUri,
    UriTemplate,
    check_uri,
    normalize_uri,
    parse_template,
)

if TYPE_CHECKING:
    from typing import Unpack

    from ...kernel.registry.catalog import IsOn, Listed, Observer
    from ...kernel.registry.tools import ExecutionMode, Handler
    from ...protocol.content import Annotations, Icon
    from ...protocol.principal import Principal
    from ...protocol.revisions import Revision
    from ..completions.registry import Completer
    from ..options import HandlerOptions, ResourceHandlerOptions

MAX_SIZE = 2**53 - 1
"""Most bytes of a resource: some clients read a larger number with an error."""

MAX_CACHE_TTL_MS = 2**53 - 1

URI = "uri"
"""The argument under which every handler gets the URI that is read."""


@frozen(kw_only=True)
class _Definition:
    """The members that resources and templates have in common.

    Args:
        name: for programs, and as a title of last resort.
        title: for people.
        description: for the model that chooses a resource.
        mime_type: of contents that have none of their own.
    """

    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None

    def members(self, revision: Revision) -> dict[str, Any]:
        """Return the common members as a list shows them; one that is None is left out."""
        annotations = self.annotations
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "_meta": self.meta,
            "annotations": None if annotations is None else annotations.to_wire(revision),
            "icons": [icon.to_wire() for icon in self.icons] or None,
        }


@frozen(kw_only=True)
class ResourceDefinition(_Definition):
    """A resource as a server describes it.

    Args:
        uri: absolute, unique within a server.
        size: in bytes, before any encoding, if it is known.
    """

    uri: str
    size: int | None = None

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the resource as `resources/list` shows it."""
        members = self.members(revision)
        return revision.write("resource", uri=self.uri, **members, size=self.size)


@frozen(kw_only=True)
class ResourceTemplateDefinition(_Definition):
    """All resources whose URIs come from one template, as a server describes them.

    Args:
        uri_template: of RFC 6570, as far as MRES-06 says.
    """

    uri_template: str

    def to_wire(self, revision: Revision) -> dict[str, Any]:
        """Return the template as `resources/templates/list` shows it."""
        members = self.members(revision)
        return revision.write("resource", uriTemplate=self.uri_template, **members)


@define(eq=False, repr=False)
class RegisteredResource(FeatureEntry):
    """A resource with its handler.

    Attributes:
        cache_ttl_ms: how long clients may keep the contents, in ms; None means
            `server.cache_ttl_ms`.
    """

    definition: ResourceDefinition
    handler_spec: HandlerSpec
    cache_ttl_ms: int | None

    @property
    def names(self) -> tuple[str]:
        """The name by which it can be switched off and on."""
        return (self.definition.uri,)

    def wire(self, revision: Revision) -> dict[str, Any]:
        """Return the resource as `resources/list` shows it."""
        return self.definition.to_wire(revision)


@define(eq=False, repr=False)
class RegisteredTemplate(FeatureEntry):
    """All resources of a template, with their handler.

    Attributes:
        cache_ttl_ms: as that of `RegisteredResource`.
        completers: by variable, the completer of its values.
    """

    definition: ResourceTemplateDefinition
    handler_spec: HandlerSpec
    cache_ttl_ms: int | None
    template: UriTemplate
    completers: dict[str, Completer]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the variables, which can be completed."""
        return self.template.variables

    @property
    def names(self) -> tuple[str]:
        """The name by which it can be switched off and on."""
        return (self.template.text,)

    def wire(self, revision: Revision) -> dict[str, Any]:
        """Return the template as `resources/templates/list` shows it."""
        return self.definition.to_wire(revision)


@define(eq=False, repr=False)
class ResourceRegistry:
    """The resources of a server, by URI, and its templates."""

    _notifier: ChangeNotifier = field(factory=lambda: ChangeNotifier("resources"))
    resources: Registry[RegisteredResource] = field(init=False)
    templates: Registry[RegisteredTemplate] = field(init=False)
    _by_shape: dict[tuple[object, ...], str] = field(factory=dict, init=False)
    _ranked: tuple[RegisteredTemplate, ...] | None = field(default=None, init=False)
    _by_normal_uri: dict[str, RegisteredResource] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.resources = Registry(self._notifier)
        self.templates = Registry(self._notifier)

    @property
    def is_offered(self) -> bool:
        """Return whether the server advertises resources: it has or has had one (MRES-13)."""
        return self.resources.was_used or self.templates.was_used

    def observe(self, observer: Observer) -> None:
        """Notify `observer` of every change from now on; the registry does not keep it alive."""
        self._notifier.observe(observer)

    def register(
        self,
        definition: ResourceDefinition,
        handler: Handler,
        **options: Unpack[ResourceHandlerOptions],
    ) -> RegisteredResource:
        """Add a resource from its definition (MRES-01).

        Args:
            definition: of the resource.
            handler: called with ``{"uri": ...}`` and a `ToolContext`.
            options: see `ResourceHandlerOptions`.

        Raises:
            RegistrationError: the definition is not valid, or the URI is taken.
        """
        return self.add(definition, handler, None, **options)

    def register_template(
        self,
        definition: ResourceTemplateDefinition,
        handler: Handler,
        **options: Unpack[ResourceHandlerOptions],
    ) -> RegisteredTemplate:
        """Add all resources of a template (MRES-06).

        Args:
            definition: of the template.
            handler: called with the values of the variables, with the URI as ``uri`` beside them,
                and a `ToolContext`.
            options: see `ResourceHandlerOptions`.

        Raises:
            RegistrationError: the definition is not valid, or another template has the same URIs.
        """
        return self.add_template(definition, handler, None, {}, **options)

    def add(
        self,
        definition: ResourceDefinition,
        handler: Handler,
        execution: ExecutionMode | None,
        *,
        cache_ttl_ms: int | None = None,
        **options: Unpack[HandlerOptions],
    ) -> RegisteredResource:
        """Add a resource whose handler runs as `execution` says; see `register`."""
        checks = DefinitionChecks(f"resource {definition.uri!r}")
        checks.instance("uri", definition.uri, str)
        try:
            check_uri(definition.uri)
        except InvalidUri as error:
            raise checks.refusal(f"uri {error}") from None
        checks.number("size", definition.size, 0, MAX_SIZE)
        definition = evolve(definition, meta=_check_definition(checks, definition))
        checks.number("cache_ttl_ms", cache_ttl_ms, 0, MAX_CACHE_TTL_MS)
        handler_spec = checks.handler_spec(handler, execution, **options)
        return self.adopt(RegisteredResource(definition, handler_spec, cache_ttl_ms))

    def adopt(self, entry: RegisteredResource) -> RegisteredResource:
        """Add a resource that was checked before; return it.

        Raises:
            RegistrationError: the URI is taken.
        """
        uri = entry.definition.uri
        with self._notifier.lock:
            if not self.resources.put(uri, entry):
                checks = DefinitionChecks(f"resource {uri!r}")
                raise checks.refusal("the URI is taken: choose another one, or unregister it first")
            self._by_normal_uri = None
        self._notifier.notify(entry)
        return entry

    def add_template(
        self,
        definition: ResourceTemplateDefinition,
        handler: Handler,
        execution: ExecutionMode | None,
        completers: Mapping[str, Completer],
        *,
        cache_ttl_ms: int | None = None,
        **options: Unpack[HandlerOptions],
    ) -> RegisteredTemplate:
        """Add a template with its completers; see `register_template`."""
        checks = DefinitionChecks(f"resource template {definition.uri_template!r}")
        checks.instance("uri_template", definition.uri_template, str)
        try:
            template = parse_template(definition.uri_template)
        except InvalidUri as error:
            raise checks.refusal(f"uri_template {error}") from None
        if URI in template.variables:
            raise checks.refusal(
                "no variable may be called 'uri': handlers get the URI by this name"
            )
        definition = evolve(definition, meta=_check_definition(checks, definition))
        checks.number("cache_ttl_ms", cache_ttl_ms, 0, MAX_CACHE_TTL_MS)
        handler_spec = checks.handler_spec(handler, execution, **options)
        return self.adopt_template(
            RegisteredTemplate(definition, handler_spec, cache_ttl_ms, template, dict(completers))
        )

    def adopt_template(self, entry: RegisteredTemplate) -> RegisteredTemplate:
        """Add a template that was checked before; return it.

        Raises:
            RegistrationError: another template has the same URIs.
        """
        template = entry.template
        with self._notifier.lock:
            same = self._by_shape.setdefault(template.shape, template.text)
            if not self.templates.put(same, entry):
                raise DefinitionChecks(f"resource template {template.text!r}").refusal(
                    f"{same!r} makes the same URIs: choose another one, or unregister it first"
                )
            self._ranked = None
        self._notifier.notify(entry)
        return entry

    def unregister(self, uri: str) -> bool:
        """Remove the resource or the template registered as `uri`; return whether there was one."""
        with self._notifier.lock:
            template = self.templates.registered(uri)
            entry = template or self.resources.registered(uri)
            if entry is None:
                return False
            if template is None:
                self.resources.drop(uri)
                self._by_normal_uri = None
            else:
                self.templates.drop(uri)
                del self._by_shape[template.template.shape]
                self._ranked = None
        self._notifier.notify(entry)
        return True

    def switch(self, is_on: IsOn) -> None:
        """Switch resources and templates off and on, also those that come later (VIS-04)."""
        with self._notifier.lock:
            resources, templates = self.resources, self.templates
            changed: list[Listed] = [*resources.apply(is_on), *templates.apply(is_on)]
            self._ranked = self._by_normal_uri = None
        if changed:
            self._notifier.notify(*changed)

    def find(
        self, uri: str, principal: Principal | None
    ) -> tuple[RegisteredResource | RegisteredTemplate, dict[str, str]]:
        """Return the resource or the template of a URI, and its variables (MRES-08).

        Raises:
            LookupError: there is neither that the principal sees (VIS-02).
        """
        resource = self.resources.get(uri) or self._equivalents().get(normalize_uri(uri))
        if resource is not None and is_visible(resource, principal):
            return resource, {}
        for entry in self._templates_by_rank():
            values = entry.template.match(uri)
            if values is not None and is_visible(entry, principal):
                return entry, values
        raise LookupError(uri)

    def _equivalents(self) -> dict[str, RegisteredResource]:
        """Return the resources by their normal URIs; of equivalent ones the first (MRES-26)."""
        found = self._by_normal_uri
        if found is None:
            with self._notifier.lock:
                entries = reversed(self.resources.entries())
                found = {normalize_uri(each.definition.uri): each for each in entries}
                self._by_normal_uri = found
        return found

    def _templates_by_rank(self) -> tuple[RegisteredTemplate, ...]:
        # Replaced, never changed: looking a URI up takes the lock only after a change.
        ranked = self._ranked
        if ranked is None:
            with self._notifier.lock:
                ranked = tuple(
                    sorted(self.templates.entries(), key=lambda each: each.template.rank)
                )
                self._ranked = ranked
        return ranked


def _check_definition(checks: DefinitionChecks, definition: _Definition) -> dict[str, Any] | None:
    """Check the common members; return a private copy of `meta`."""
    checks.name("name", definition.name)
    checks.text("title", definition.title)
    checks.text("description", definition.description)
    checks.text("mime_type", definition.mime_type)
    if definition.annotations is not None:
        from ...protocol.content import Annotations

        checks.instance("annotations", definition.annotations, Annotations)
    checks.icons(definition.icons)
    return checks.meta(definition.meta)
