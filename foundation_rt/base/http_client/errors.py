"""The failures of an exchange of HTTP. Pure."""

from __future__ import annotations


class HttpError(OSError):
    """An exchange failed. No message repeats what was sent, nor what a peer or a proxy said.

    Attributes:
        may_have_arrived: whether the server may have got the request.
    """

    may_have_arrived = True


class ConnectError(HttpError):
    """There is no connection."""

    may_have_arrived = False


class ConnectTimeout(ConnectError):
    """There was no connection in time."""


class ProxyError(ConnectError):
    """The proxy makes no connection."""


class EnvironmentRefused(ConnectError):
    """The proxy or the certificates that the environment names cannot be used."""


class UnsendableError(HttpError):
    """The request cannot be written as one of HTTP."""

    may_have_arrived = False


class BrokenOffError(HttpError):
    """The connection ended before the response, or brought what is no HTTP."""


class PackedError(HttpError):
    """A response is compressed, though no request allows it."""
