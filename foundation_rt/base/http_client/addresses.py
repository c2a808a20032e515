"""The addresses of the public network, told from others. Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

_TRANSLATED = ip_network("64:ff9b::/96")  # IPv4 behind a gateway (RFC 6052)
_GLOBAL = ip_network("2000::/3")  # all that IPv6 has given out (RFC 4291)


def is_public(address: str) -> bool:
    """Return whether an address is one of the public network.

    Raises:
        ValueError: it is no address.
    """
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if found in _TRANSLATED:
            return is_public(str(ip_address(int(found) & 0xFFFFFFFF)))
        inner = found.ipv4_mapped or found.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if found not in _GLOBAL:
            return False
    return found.is_global and not found.is_multicast
