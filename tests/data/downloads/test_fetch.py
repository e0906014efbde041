import hashlib
import logging
import random
import resource
import time
from pathlib import Path

import pytest
from data.downloads.downloading import BODY, GOOD, MD5, SHA256, names, quick, refusal, remote
from data.downloads.http_server import Answer, serve

from plmcl.data.downloads import Remote
from plmcl.errors import PlmclError


def test_a_file_comes_with_its_name_and_nothing_else(tmp_path):
    seen = []
    with serve(GOOD) as server:
        wanted = remote(server.url + "/a", sha256=SHA256)
        path = quick(wanted, tmp_path / "new", progress=lambda *done: seen.append(done))
    assert path == tmp_path / "new" / "images.zip"
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["images.zip"]
    assert seen[-1] == (300_000, 300_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert server.requests[0][1]["accept-encoding"] == "identity"


def test_a_file_that_is_there_is_checked_and_not_downloaded_again(tmp_path):
    with serve(GOOD) as server:
        path = quick(remote(server.url), tmp_path)
        assert quick(remote(server.url), tmp_path) == path
        assert len(server.requests) == 1
        path.write_bytes(BODY[:-1] + b"x")
        message = refusal(remote(server.url), tmp_path)
        found = hashlib.md5(path.read_bytes()).hexdigest()
        assert (
            message == f"{path}: md5 is {found}, expected {MD5}; move it away to have it downloaded"
        )
        assert len(server.requests) == 1
    assert path.exists()


def test_an_attempt_that_brought_a_mebibyte_is_no_failure(tmp_path):
    body = random.Random(1).randbytes(5 * 2**20)
    md5 = hashlib.md5(body).hexdigest()
    with serve(Answer(body, send=2**20)) as server:
        path = quick(remote(server.url, size=None, md5=md5), tmp_path, retries=1)
    assert path.read_bytes() == body
    assert len(server.requests) == 5


def test_starting_over_again_and_again_ends(tmp_path):
    body = bytes(3 * 2**20)
    with serve(Answer(body, send=2**20 + 1, ranges=False)) as server:
        message = refusal(remote(server.url, size=len(body)), tmp_path, retries=2)
    assert len(server.requests) == 3  # the first brings a mebibyte, the others nothing new
    assert "(asked 3 times)" in message


def test_wrong_bytes_then_a_good_mirror(tmp_path):
    with serve(bad=[Answer(b"x" * len(BODY))], good=[GOOD]) as server:
        path = quick(remote(server.url + "/bad", server.url + "/good"), tmp_path)
    assert path.read_bytes() == BODY
    assert [path for path, _ in server.requests] == ["/bad", "/good"]
    assert server.ranges() == [None, None]


def test_wrong_bytes_everywhere_are_one_error_that_names_all(tmp_path):
    wrong = b"x" * len(BODY)
    with serve(a=[Answer(wrong)], b=[Answer(status=404)]) as server:
        message = refusal(remote(server.url + "/a", server.url + "/b"), tmp_path)
    assert message == (
        f"images.zip: could not be downloaded; {server.url}/a: md5 is "
        f"{hashlib.md5(wrong).hexdigest()}, expected {MD5}; {server.url}/b: HTTP 404"
    )
    assert names(tmp_path) == []


def test_the_second_checksum_is_looked_at_too(tmp_path):
    with serve(GOOD) as server:
        message = refusal(remote(server.url, sha256="0" * 64), tmp_path)
    assert f"sha256 is {SHA256}, expected {'0' * 64}" in message


def test_a_mirror_goes_on_where_the_first_address_ended(tmp_path):
    first = [Answer(BODY, send=50_000), Answer(status=404)]
    with serve(first=first, mirror=[GOOD]) as server:
        path = quick(remote(server.url + "/first", server.url + "/mirror"), tmp_path)
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, "bytes=50000-", "bytes=50000-"]
    assert "if-range" not in server.requests[2][1]  # the first address's version says nothing here


def test_a_good_mirror_does_not_suffer_from_the_wrong_bytes_of_the_first(tmp_path):
    first = [Answer(b"x" * len(BODY), send=50_000), Answer(status=404)]
    with serve(first=first, mirror=[GOOD]) as server:
        path = quick(remote(server.url + "/first", server.url + "/mirror"), tmp_path)
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, "bytes=50000-", "bytes=50000-", None]


def test_without_a_checksum_two_addresses_are_never_joined(tmp_path):
    first = [Answer(BODY, send=50_000), Answer(status=404)]
    with serve(first=first, mirror=[GOOD]) as server:
        urls = server.url + "/first", server.url + "/mirror"
        path = quick(remote(*urls, md5=None), tmp_path)
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, "bytes=50000-", None]


@pytest.mark.parametrize("status", [403, 404, 410, 204, 300])
def test_an_address_without_the_file_is_asked_once(tmp_path, status):
    with serve(gone=[Answer(status=status)], mirror=[GOOD]) as server:
        path = quick(remote(server.url + "/gone", server.url + "/mirror"), tmp_path)
    assert path.read_bytes() == BODY
    assert [path for path, _ in server.requests] == ["/gone", "/mirror"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(tmp_path, status):
    with serve(Answer(status=status), Answer(BODY)) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert len(server.requests) == 2


def test_retry_after_is_waited_for(tmp_path):
    with serve(Answer(status=503, head={"Retry-After": "1"}), GOOD) as server:
        start = time.monotonic()
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
        assert time.monotonic() - start >= 1.0


def test_a_server_that_asks_to_wait_for_years_is_not_obeyed(tmp_path, monkeypatch):
    monkeypatch.setattr("plmcl.data.downloads.LONGEST_WAIT_S", 0.1)
    with serve(Answer(status=503, head={"Retry-After": "99999999"}), GOOD) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY


def test_nobody_listens(tmp_path):
    with serve(GOOD) as server:
        pass
    message = refusal(remote(server.url), tmp_path, retries=1)
    assert message.startswith(f"images.zip: could not be downloaded; {server.url}/: ConnectError")
    assert message.endswith("(asked 2 times)")


def test_the_checksum_that_was_found_is_said_where_none_is_known(tmp_path, caplog):
    with serve(GOOD) as server, caplog.at_level(logging.WARNING, logger="plmcl"):
        path = quick(remote(server.url, size=None, md5=None), tmp_path)
    assert caplog.messages == [f"{path}: no checksum to check it; its sha256: {SHA256}"]


def test_an_empty_answer_is_no_file(tmp_path):
    with serve(empty=[Answer()], good=[GOOD]) as server:
        empty = remote(server.url + "/empty", size=None, md5=None)
        assert refusal(empty, tmp_path).endswith("/empty: is empty")
        assert names(tmp_path) == []
        both = remote(server.url + "/empty", server.url + "/good", size=None, md5=None)
        assert quick(both, tmp_path).read_bytes() == BODY


def test_a_part_with_all_bytes_is_not_asked_for(tmp_path):
    (tmp_path / "images.zip.part").write_bytes(BODY)
    with serve(Answer(status=500)) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert server.requests == []


def test_a_full_disk_keeps_what_has_arrived(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serve(GOOD) as server:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            message = refusal(remote(server.url), tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert message == (
            f"{tmp_path / 'images.zip'}: File too large; what has arrived is kept, "
            "and the next call goes on there"
        )
        assert (tmp_path / "images.zip.part").read_bytes() == BODY[:100_000]
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, "bytes=100000-"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_no_space_left_is_said(tmp_path):
    with serve(GOOD) as server:
        (tmp_path / "images.zip.part").symlink_to("/dev/full")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("plmcl.data.downloads.resuming.Part.start_over", lambda *_: None)
            message = refusal(remote(server.url), tmp_path)
    assert "images.zip: No space left on device; what has arrived is kept" in message


def test_a_password_is_used_and_never_said(tmp_path):
    with serve(Answer(status=401)) as server:
        url = server.url.replace("http://", "http://anna:s3cret@") + "/x?token=t0ken"
        message = refusal(remote(url), tmp_path)
    assert server.requests[0][0] == "/x?token=t0ken"
    assert server.requests[0][1]["authorization"] == "Basic YW5uYTpzM2NyZXQ="
    assert message == f"images.zip: could not be downloaded; {server.url}/x: HTTP 401"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": ""}, "name must be a file name, found ''"),
        ({"name": "../x"}, "name must be a file name, found '../x'"),
        ({"name": ".."}, "name must be a file name, found '..'"),
        ({"urls": ()}, "download of a: there is no URL"),
        ({"urls": ("http://x/a", "ftp://u:secret@x/a")}, "URL 2 is not an http or https address"),
        ({"urls": ("http://u:secret@/a",)}, "URL 1 is not an http or https address"),
        ({"urls": ("http://u:secret@x:99999/a",)}, "URL 1 is not an http or https address"),
        ({"urls": ("http://u:secret@" + "x" * 64,)}, "URL 1 is not an http or https address"),
        ({"urls": ("http://u:secret@x\n",)}, "URL 1 is not an http or https address"),
        ({"size": 0}, "size must be at least 1 byte, found 0"),
        ({"md5": "A" * 32}, "md5 must be 32 hexadecimal digits in small letters, found 'AAAA"),
        ({"sha256": "a" * 63}, "sha256 must be 64 hexadecimal digits"),
    ],
)
def test_a_remote_that_cannot_be_fetched_is_refused(values, words):
    with pytest.raises(PlmclError) as caught:
        Remote(**({"name": "a", "urls": ("http://x/a",)} | values))
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
