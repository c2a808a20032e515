"""Apps as a server serves them: a page, and what it asks its host for (SEP-1865).

All of it is what the author of the server says. A host may allow less, and never more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ...base.app_format import MAX_HTML_BYTES, MIME_TYPE, PERMISSIONS, UI, AppCsp, Permission
from ...protocol.content import BlobContents, TextContents
from ..errors import InvalidResponseError

_MAX_DOMAIN = 256


@frozen
class App:
    """An app of a server.

    Attributes:
        uri: of the app.
        html: the page, which is untrusted.
        csp: the origins that it needs; what is no well-formed origin is left out.
        permissions: what it asks the browser for, as far as the extension knows it.
        domain: the origin that it wants for itself; None for any.
        prefers_border: whether it wants a border; None: as the host likes.
    """

    uri: str
    html: str = field(repr=False)
    csp: AppCsp
    permissions: tuple[Permission, ...]
    domain: str | None
    prefers_border: bool | None

    @classmethod
    def read(
        cls,
        uri: str,
        contents: tuple[TextContents | BlobContents, ...],
        listed: Mapping[str, Any],
    ) -> App:
        """Return the app in the contents of a resource (CAPP-02, CAPP-03).

        Args:
            uri: that was asked for.
            contents: of the resource.
            listed: the `_meta` of the resource in a list, for contents that have no `ui`.

        Raises:
            InvalidResponseError: it is no app, or larger than one may be.
        """
        if len(contents) != 1:
            raise InvalidResponseError(f"{uri} is no app: it has {len(contents)} contents")
        [page] = contents
        if "".join((page.mime_type or "").lower().split()) != MIME_TYPE:
            raise InvalidResponseError(f"{uri} is no app: its type is {page.mime_type!r:.80}")
        html = page.text.encode() if isinstance(page, TextContents) else page.blob
        if len(html) > MAX_HTML_BYTES:
            raise InvalidResponseError(
                f"{uri} is larger than an app may be, which is {MAX_HTML_BYTES >> 20} MiB"
            )
        try:
            text = html.decode()
        except UnicodeDecodeError:
            raise InvalidResponseError(f"{uri} is no app: it is not UTF-8") from None
        found = (page.meta or {}).get(UI, listed.get(UI))
        ui = found if isinstance(found, Mapping) else {}
        asked = ui.get("permissions")
        permissions = asked if isinstance(asked, Mapping) else {}
        domain, border = ui.get("domain"), ui.get("prefersBorder")
        return cls(
            uri,
            text,
            AppCsp.read(ui.get("csp")),
            tuple(each for each in PERMISSIONS if isinstance(permissions.get(each), Mapping)),
            domain if isinstance(domain, str) and 0 < len(domain) <= _MAX_DOMAIN else None,
            border if isinstance(border, bool) else None,
        )
