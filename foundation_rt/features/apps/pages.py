"""The pages of apps: HTML as its author has it, as a resource that hosts take for an app."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import evolve

from ...base.app_format import (
    CSP_MEMBERS,
    MAX_DOMAINS,
    MAX_HTML_BYTES,
    MIME_TYPE,
    PERMISSIONS,
    SCHEME,
    UI,
    AppCsp,
    Permission,
    is_app_uri,
    is_domain,
)
from ...base.exact_json import dumps
from ...kernel.registry.tools import ExecutionMode
from ...protocol.content import TextContents
from ..definitions import DefinitionChecks
from ..resources.registry import ResourceDefinition, ResourceRegistry
from ..resources.results import as_asked
from ..signatures.outputs import writing
from ..typed.feature_signatures import derive_resource

if TYPE_CHECKING:
    from typing import Unpack

    from ...kernel.registry.tools import Handler
    from ...protocol.content import Icon, ResourceContents
    from ..context import ToolContext
    from ..options import AppOptions, ResourceHandlerOptions
    from .feature import Apps

_Page = TypeVar("_Page")

_MIB: Final = MAX_HTML_BYTES >> 20


def app_of(
    apps: Apps,
    uri: str,
    html: str | os.PathLike[str] | None,
    context_type: type,
    options: AppOptions,
) -> Callable[[_Page], _Page] | None:
    """Add an app; or, without `html`, return a decorator that does; see `Server.app`.

    Args:
        apps: of the server.
        uri: of the app.
        html: as text, or a file with it.
        context_type: a parameter of this type of a function is given the context of the call.
        options: see `AppOptions`.

    Raises:
        RegistrationError: names the app and what to change.
    """

    def register(page: _Page) -> _Page:
        _add(apps.resources, uri, page, context_type, **options)
        return page

    if html is None:
        return register
    register(html)
    return None


def _add(
    resources: ResourceRegistry,
    uri: str,
    page: object,
    context_type: type,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon] = (),
    meta: Mapping[str, Any] | None = None,
    csp: AppCsp | None = None,
    permissions: Iterable[Permission] = (),
    domain: str | None = None,
    prefers_border: bool | None = None,
    **options: Unpack[ResourceHandlerOptions],
) -> None:
    """Add an app to the resources of a server."""
    checks = DefinitionChecks(f"app {uri!r}")
    if not is_app_uri(uri):
        raise checks.refusal(f"its URI begins with {SCHEME} and a name: {SCHEME}orders/table")
    ui = _metadata(checks, csp, permissions, domain, prefers_border)
    own = checks.meta(meta) or {}
    whole = {**own, UI: ui} if ui else own or None
    contents = TextContents(uri, "", MIME_TYPE, meta=whole)
    definition = ResourceDefinition(
        uri=uri,
        name=uri.removeprefix(SCHEME) if name is None else name,
        title=title,
        description=description,
        mime_type=MIME_TYPE,
        icons=icons,
        meta=whole,
    )
    handler: Handler
    if callable(page):
        typed = derive_resource(page, None, context_type, inline=options.get("inline", False))
        execution = typed.execution
        handler = _serving(checks, typed.handler, contents)
        if description is None:
            definition = evolve(definition, description=typed.description)
    else:
        html = _static(checks, page)
        execution = ExecutionMode.INLINE
        handler = partial(as_asked, evolve(contents, text=html))
        definition = evolve(definition, size=len(html.encode()))
    resources.add(definition, handler, execution, **options)


def _metadata(
    checks: DefinitionChecks,
    csp: AppCsp | None,
    permissions: Iterable[Permission],
    domain: str | None,
    prefers_border: bool | None,
) -> dict[str, Any]:
    """Return what an app asks a host for, as its `_meta.ui` has it (APP-05)."""
    found: dict[str, Any] = {}
    if csp is not None:
        checks.instance("csp", csp, AppCsp)
        for name in CSP_MEMBERS:
            domains = getattr(csp, name)
            wrong = [each for each in domains if not is_domain(each)]
            if wrong or len(domains) > MAX_DOMAINS:
                raise checks.refusal(
                    f"csp: {name} has at most {MAX_DOMAINS} origins, written as"
                    f" ('https://api.example.com',), not {wrong or len(domains)!r:.200}"
                )
        found["csp"] = csp.wire()
    asked = [*permissions]
    if unknown := [each for each in asked if each not in PERMISSIONS]:
        raise checks.refusal(f"permissions are of {', '.join(PERMISSIONS)}, not {unknown[0]!r}")
    if asked:
        found["permissions"] = {each: {} for each in asked}
    if domain is not None:
        checks.name("domain", domain)
        found["domain"] = domain
    if prefers_border is not None:
        checks.instance("prefers_border", prefers_border, bool)
        found["prefersBorder"] = prefers_border
    return found


def _static(checks: DefinitionChecks, page: object) -> str:
    """Return the HTML of a text or a file.

    Raises:
        RegistrationError: it cannot be read, is none, or is too large.
    """
    if isinstance(page, str):
        return _checked(checks, page)
    if not isinstance(page, os.PathLike):
        raise checks.refusal("its page is HTML as text, a Path, or a function that returns it")
    path = Path(page)
    try:
        with path.open("rb") as file:
            html = file.read(MAX_HTML_BYTES + 1).decode()
    except OSError as error:
        raise checks.refusal(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise checks.refusal(f"{path} is no HTML in UTF-8, of at most {_MIB} MiB") from None
    return _checked(checks, html)


def _checked(checks: DefinitionChecks, html: object) -> str:
    """Return HTML; raise `RegistrationError` for what is none, or is too large."""
    checks.instance("its page", html, str)
    checks.text("its page", html)
    assert isinstance(html, str)
    if "<" not in html:
        raise checks.refusal(f"{html!r:.80} is no HTML; for a file write Path(...)")
    if len(html) > MAX_HTML_BYTES or len(dumps(html)) > MAX_HTML_BYTES:
        raise checks.refusal(f"its page has more than {_MIB} MiB as JSON: load large data by tools")
    return html


def _serving(checks: DefinitionChecks, handler: Handler, contents: TextContents) -> Handler:
    """Return a handler whose result, which is HTML, is the contents of an app."""

    def serve(arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        def shown(html: object) -> ResourceContents:
            page = evolve(contents, text=_checked(checks, html))
            return as_asked(page, arguments, context)

        return writing(handler, shown)(arguments, context)

    return serve
