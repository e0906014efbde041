"""GET over HTTP whose redirects lead to public addresses, or stay on the host that was named."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

MAX_REDIRECTS = 5

_PORTS = {"http": 80, "https": 443}
# IPv6 networks whose addresses end in the IPv4 address that is meant.
_HOLD_IPV4 = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "64:ff9b::/96")))


class Refused(Exception):  # noqa: N818 (an answer, not a defect)
    """An answer that asking the same address again will not mend; `str()` is the reason."""


async def get(
    client: httpx.AsyncClient, address: httpx.URL, headers: Mapping[str, str]
) -> httpx.Response:
    """Ask for `address`, of which the caller is sure, and follow what it redirects to.

    A redirect that stays on the caller's host and port is followed. Any other leads to http or
    https, never from https to http, and to a host of which all addresses are public.

    Args:
        client: Makes the connections, through a proxy if the environment names one.
        address: Its user name and password go to its own host and port, and nowhere else.
        headers: Sent with every request.

    Returns:
        An answer that is no redirect, its body not yet read; to be closed by the caller.

    Raises:
        Refused: A redirect breaks a rule, or there are more than `MAX_REDIRECTS`.
        httpx.TransportError: No answer came.
    """
    login = (address.username, address.password) if address.userinfo else None
    url = address.copy_with(userinfo=b"")
    home, stays = _place(url), True
    for _ in range(MAX_REDIRECTS + 1):
        extensions = {} if stays else {"trace": _peer_check(url)}
        request = client.build_request("GET", url, headers=headers, extensions=extensions)
        try:
            response = await client.send(
                request, stream=True, follow_redirects=False, auth=login if stays else None
            )
        except (httpx.InvalidURL, ValueError):
            raise Refused(f"{shown(url)} redirects to what is no URL") from None
        if response.next_request is None:
            return response
        await response.aclose()
        target = response.next_request.url
        stays = stays and _place(target) == home  # whoever is elsewhere cannot send us back
        await check_redirect(url, target, stays=stays)
        url = target
    raise Refused(f"more than {MAX_REDIRECTS} redirects, the last to {shown(url)}")


async def check_redirect(source: httpx.URL, target: httpx.URL, *, stays: bool) -> None:
    """Refuse a redirect that breaks a rule of `get`.

    Args:
        source: Where the redirect came from.
        target: Where it leads.
        stays: Whether both are on the host and port that the caller named.
    """
    refused = f"redirect to {shown(target)} refused"
    if not is_web_address(target):
        raise Refused(f"{refused}: not an http or https address")
    if source.scheme == "https" and target.scheme == "http":
        raise Refused(f"{refused}: it leads from https to http")
    if stays:
        return
    for address in await _addresses(target):
        if not is_public(address):
            raise Refused(f"{refused}: {address} is not a public address")


def is_web_address(url: httpx.URL) -> bool:
    """Whether a URL is http or https, with a host and a port that there can be."""
    try:
        url.raw_host.decode().encode("idna")
    except UnicodeError:
        return False
    return url.scheme in _PORTS and url.raw_host != b"" and (url.port or 1) <= 65535


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet's, and of one host."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        if any(ip in network for network in _HOLD_IPV4):
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        elif ip.sixtofour is not None:
            ip = ip.sixtofour
    return ip.is_global and not ip.is_multicast


def shown(url: httpx.URL) -> str:
    """A URL for a message: without user name, password and query, which may hold secrets."""
    path = url.raw_path.partition(b"?")[0]
    return f"{url.scheme}://{url.netloc.decode()}{path.decode()}"[:300]


def _place(url: httpx.URL) -> tuple[str, int | None]:
    return url.raw_host.decode(), url.port or _PORTS.get(url.scheme)


async def _addresses(url: httpx.URL) -> list[str]:
    # None of a name that is not known here: then nothing but a proxy can reach it.
    loop = asyncio.get_running_loop()
    host, port = _place(url)
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    return [str(address[0]) for *_, address in found]


def _peer_check(url: httpx.URL) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    # A name can lead elsewhere when it is looked up again to connect. So the address that was
    # connected to is checked, too, before anything is sent; not that of a proxy.
    direct = False

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        nonlocal direct
        if event == "connection.connect_tcp.started":
            direct = info["host"] == url.raw_host.decode()
        elif event == "connection.connect_tcp.complete" and direct:
            stream = info["return_value"]
            peer = stream.get_extra_info("server_addr")[0]
            if not is_public(peer):
                await stream.aclose()
                raise Refused(
                    f"redirect to {shown(url)} refused: {peer}, to which it was connected, "
                    "is not a public address"
                )

    return trace
