"""The identity providers: what differs between them, as rows of one table. Pure (AUTHZ-05).

A person who is known by a name that people can choose themselves could choose another one's: only
the provider's own id, verified addresses, and organisations that the provider names are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ...client.safe_text import readable
from ...errors import UsageError
from ..auth.authentication import KEY_SUBJECT

if TYPE_CHECKING:
    from ...base.config.http_sections import AuthorizationSection

_NONE: Mapping[str, str] = MappingProxyType({})
_PROFILE = ("openid", "email", "profile")


@frozen
class ProviderKind:
    """A kind of identity provider.

    Attributes:
        title: for people.
        scopes: those that a login needs.
        url: its issuer; `{tenant}` stands for the setting. None: the operator names it.
        parameters: of its page.
        verified: the claim that says whether the address is the person's.
        organization: the claim that names the organisation; None: it has none.
        is_openid: whether it gives an ID token; else it is asked who the person is.
        is_github: whether it has GitHub's endpoints instead of metadata.
    """

    title: str
    scopes: tuple[str, ...] = _PROFILE
    url: str | None = None
    parameters: Mapping[str, str] = _NONE
    verified: str = "email_verified"
    organization: str | None = None
    is_openid: bool = True
    is_github: bool = False


PROVIDERS: Mapping[str, ProviderKind] = {
    "github": ProviderKind(
        "GitHub",
        ("read:user", "user:email"),
        "https://github.com",
        organization="organizations",
        is_openid=False,
        is_github=True,
    ),
    "google": ProviderKind(
        "Google",
        url="https://accounts.google.com",
        parameters={"access_type": "offline", "prompt": "consent"},
        organization="hd",
    ),
    # Its addresses can be anybody's (`email` is what an administrator has entered), unless the
    # owner of the domain has proved it.
    "entra": ProviderKind(
        "Microsoft Entra",
        (*_PROFILE, "offline_access"),
        "https://login.microsoftonline.com/{tenant}/v2.0",
        verified="xms_edov",
        organization="tid",
    ),
    "oidc": ProviderKind("your identity provider"),
    "oauth": ProviderKind("your identity provider", (), is_openid=False),
}


@frozen
class Identity:
    """Somebody who has logged in.

    Attributes:
        subject: the provider's id.
        email: a verified address; None if there is none.
        name: for people.
        organizations: those that the provider names.
    """

    subject: str
    email: str | None = None
    name: str | None = None
    organizations: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The person, for people."""
        return readable(self.email or self.name or self.subject)

    def is_among(self, allowed: Iterable[str]) -> bool:
        """Return whether one item of `authorization.allow` stands for the person (AUTHZ-06)."""
        address = _folded(self.email or "")
        organizations = set(map(_folded, self.organizations))
        return any(self._fits(each, address, organizations) for each in allowed)

    def _fits(self, item: str, address: str, organizations: set[str]) -> bool:
        kind, colon, rest = item.partition(":")
        if item == "*":
            return True
        if colon and kind == "sub":
            return rest == self.subject
        if colon and kind == "org":
            return _folded(rest) in organizations
        if item.startswith("@"):
            return address.endswith(_folded(item))
        return address == _folded(item)


def _folded(name: str) -> str:
    """Return a name in lower case; beyond ASCII as it is, since other domains fold to one text."""
    return name.lower() if name.isascii() else name


def read_person(claims: Mapping[str, Any], row: ProviderKind) -> Identity | None:
    """Return the person of an ID token, or of the answer of a userinfo endpoint.

    Args:
        claims: as the provider gave them.
        row: of the provider.

    Returns:
        None if nothing says who it is.
    """
    subject = claims.get("sub", None if row.is_openid else claims.get("id"))
    if type(subject) is int:
        subject = str(subject)
    if type(subject) is not str or not 0 < len(subject) <= 256 or subject.startswith(KEY_SUBJECT):
        return None
    email, name = claims.get("email"), claims.get("name")
    is_verified = claims.get(row.verified) in (True, "true", "1", 1)
    named = claims.get(row.organization) if row.organization else None
    listed = named if isinstance(named, list) else [named]
    return Identity(
        subject,
        email if isinstance(email, str) and is_verified and email.count("@") == 1 else None,
        name[:256] if isinstance(name, str) else None,
        tuple(each for each in listed if isinstance(each, str)),
    )


def issuer_of(settings: AuthorizationSection, row: ProviderKind) -> str:
    """Return the URL of the provider.

    Raises:
        UsageError: a setting is missing.
    """
    if settings.provider_url is not None:
        return settings.provider_url
    if row.url is None:
        raise UsageError(f"authorization.provider_url is missing: {settings.provider} needs it")
    if "{tenant}" in row.url and settings.tenant is None:
        raise UsageError("authorization.tenant is missing: entra needs the id of your directory")
    return row.url.replace("{tenant}", settings.tenant or "")


def check_allowed(settings: AuthorizationSection, row: ProviderKind) -> None:
    """Raise unless the provider can say who is in `authorization.allow`.

    Raises:
        UsageError: it is empty, or has what this provider does not know.
    """
    if not settings.allow:
        raise UsageError(
            "authorization.allow is empty: name who may use the server, as sub:ID, an email"
            " address, @DOMAIN or org:NAME; or * for everybody whom the provider knows"
        )
    if row.organization is None and any(each.startswith("org:") for each in settings.allow):
        raise UsageError(
            f"authorization.allow: {settings.provider} names no organisations, so no org:NAME"
        )
