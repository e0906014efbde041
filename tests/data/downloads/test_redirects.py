import asyncio
import re

import httpx
import pytest
from data.downloads.downloading import BODY, GOOD, quick, refusal, remote
from data.downloads.http_server import Answer, serve

from plmcl.data.downloads.redirects import Refused, check_redirect, is_public, shown

ONCE = {"retries": 1, "timeout_s": 0.5}


def to(location, status=302):
    return Answer(status=status, head={"Location": location})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_on_the_named_host_and_port_is_followed(tmp_path, status):
    with serve(a=[to("b", status)], b=[to("/c")], c=[GOOD]) as server:
        path = quick(remote(server.url.replace("http://", "http://anna:pass@") + "/a"), tmp_path)
    assert path.read_bytes() == BODY
    assert [path for path, _ in server.requests] == ["/a", "/b", "/c"]
    assert {head["authorization"] for _, head in server.requests} == {"Basic YW5uYTpwYXNz"}


def test_a_redirect_is_resumed(tmp_path):
    with serve(a=[to("/b")], b=[Answer(BODY, send=100), GOOD]) as server:
        assert quick(remote(server.url + "/a"), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, None, "bytes=100-", "bytes=100-"]


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("http://127.0.0.1:1/secret", "127.0.0.1"),
        ("http://localhost:1/secret", "(127.0.0.1|::1)"),
        ("http://169.254.169.254/latest/meta-data", "169.254.169.254"),
        ("http://10.0.0.1/", "10.0.0.1"),
        ("http://192.168.1.1/", "192.168.1.1"),
        ("http://[::1]/", "::1"),
        ("http://[::ffff:127.0.0.1]:1/", "::ffff:127.0.0.1"),
        ("http://2130706433:1/", "127.0.0.1"),
        ("http://0:1/", "0.0.0.0"),
        ("//10.0.0.1/x", "10.0.0.1"),
    ],
)
def test_a_redirect_to_a_private_address_is_refused(tmp_path, location, address):
    with serve(to(location)) as server:
        message = refusal(remote(server.url), tmp_path, **ONCE)
    assert len(server.requests) == 1  # and it is not asked again
    pattern = rf"redirect to http://\S+ refused: {address} is not a public address$"
    assert re.search(pattern, message), message


def test_another_port_of_the_named_host_is_refused(tmp_path):
    with serve(GOOD) as other, serve(to(other.url)) as server:
        message = refusal(remote(server.url), tmp_path, **ONCE)
    assert message == (
        f"images.zip: could not be downloaded; {server.url}/: redirect to {other.url}/ refused: "
        "127.0.0.1 is not a public address"
    )
    assert other.requests == []


def test_a_name_that_leads_elsewhere_when_it_is_connected_to_is_refused(tmp_path, monkeypatch):
    async def public(url):
        return ["93.184.215.14"]

    monkeypatch.setattr("plmcl.data.downloads.redirects._addresses", public)
    with (
        serve(GOOD) as other,
        serve(to(other.url.replace("127.0.0.1", "localhost") + "/x?key=k")) as server,
    ):
        message = refusal(remote(server.url), tmp_path, **ONCE)
    assert "refused: 127.0.0.1, to which it was connected, is not a public address" in message
    assert "key" not in message
    assert other.requests == []  # nothing was sent there


@pytest.mark.parametrize(
    "location", ["ftp://example.com/x", "file://example.com/x", "http://a..b/", "http://a:99999/"]
)
def test_a_redirect_that_is_no_web_address_is_refused(tmp_path, location):
    with serve(to(location)) as server:
        message = refusal(remote(server.url), tmp_path, **ONCE)
    assert message.endswith(f"redirect to {location} refused: not an http or https address")
    assert len(server.requests) == 1


@pytest.mark.parametrize("location", ["mailto:x", "http://xn--/", "http://[::1", "http://\x80/"])
def test_a_redirect_to_nonsense_is_one_message(tmp_path, location):
    with serve(to(location)) as server:
        message = refusal(remote(server.url), tmp_path, **ONCE)
    assert "redirects to what is no URL" in message or "Invalid URL in location" in message


def test_whoever_is_elsewhere_cannot_send_us_back_to_a_private_address(tmp_path, monkeypatch):
    # elsewhere.invalid is behind the proxy, the server that was named is not
    with (
        serve(to("http://elsewhere.invalid/")) as server,
        serve(to(server.url + "/secret")) as proxy,
    ):
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        message = refusal(remote(server.url), tmp_path, **ONCE)
    assert message.endswith(
        f"redirect to {server.url}/secret refused: 127.0.0.1 is not a public address"
    )
    assert [path for path, _ in server.requests] == ["/"]


def test_redirects_in_a_circle_end(tmp_path):
    with serve(a=[to("/b")], b=[to("/a")]) as server:
        message = refusal(remote(server.url + "/a"), tmp_path, **ONCE)
    assert message.endswith(f"/a: more than 5 redirects, the last to {server.url}/a")
    assert len(server.requests) == 6


def test_no_redirect_from_https_to_http():
    with pytest.raises(Refused, match="it leads from https to http"):
        asyncio.run(
            check_redirect(
                httpx.URL("https://example.com/a"), httpx.URL("http://example.com/a"), stays=True
            )
        )


def test_a_proxy_is_used_and_may_be_private(tmp_path, monkeypatch):
    # Names that end in .invalid are known nowhere: only the proxy can mean something by them.
    with serve(
        **{
            "http://data.invalid/a": [to("http://mirror.invalid/b")],
            "http://mirror.invalid/b": [to("http://data.invalid/back")],
            "http://data.invalid/back": [GOOD],
            "http://data.invalid/c": [to("http://127.0.0.1:1/")],
        }
    ) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        path = quick(remote("http://anna:pass@data.invalid/a"), tmp_path)
        assert path.read_bytes() == BODY
        asked = [(path, "authorization" in head) for path, head in proxy.requests]
        assert asked == [
            ("http://data.invalid/a", True),
            ("http://mirror.invalid/b", False),
            ("http://data.invalid/back", False),
        ]
        path.unlink()
        assert "127.0.0.1 is not a public" in refusal(
            remote("http://data.invalid/c"), tmp_path, **ONCE
        )


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("64:ff9b::808:808", True),  # 8.8.8.8 for a network without IPv4
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("100.64.0.1", False),
        ("169.254.1.1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("0.0.0.0", False),
        ("::", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("::7f00:1", False),
    ],
)
def test_public_addresses(address, public):
    assert is_public(address) is public


def test_a_url_is_shown_without_what_may_be_secret():
    url = httpx.URL("https://anna:pass@example.com:8443/a%0Ab?token=x#y")
    assert shown(url) == "https://example.com:8443/a%0Ab"
