import json
import random
import signal
import subprocess
import sys
import time
from email.utils import formatdate

import pytest
from data.downloads.downloading import BODY, GOOD, names, quick, refusal, remote
from data.downloads.http_server import Answer, serve

from plmcl.data.downloads import Remote


def test_a_connection_dropped_at_several_offsets_is_resumed_bit_by_bit(tmp_path):
    cuts = [Answer(BODY, send=send) for send in (1, 70_000, 99_999)]
    with serve(*cuts, GOOD) as server:
        path = quick(remote(server.url), tmp_path)
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, "bytes=1-", "bytes=70001-", "bytes=170000-"]
    assert [head.get("if-range") for _, head in server.requests] == [None, '"v1"', '"v1"', '"v1"']


def test_a_connection_dropped_before_any_byte_is_asked_again(tmp_path):
    with serve(Answer(BODY, send=0), GOOD) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, None]


@pytest.mark.parametrize("stall", [False, True])
def test_a_length_that_is_too_long_ends_in_the_right_file_or_an_error(tmp_path, stall):
    lie = Answer(BODY, head={"Content-Length": "300100"}, stall=stall)
    with serve(lie) as server:
        # the announced length is the wrong one: another file, as far as anyone can tell
        assert refusal(remote(server.url), tmp_path / "a") == (
            f"images.zip: could not be downloaded; {server.url}/: "
            "has 300100 bytes or more, expected 300000 at most"
        )
        # the length is not known, the checksum is
        path = quick(remote(server.url, size=None), tmp_path / "b", timeout_s=0.3)
        assert path.read_bytes() == BODY


def test_a_length_that_is_too_short_is_made_up_for(tmp_path):
    lie = Answer(BODY, head={"Content-Length": "100000"})
    with serve(lie, lie, GOOD) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, "bytes=100000-", "bytes=200000-"]


def test_a_file_that_is_too_short_is_one_clear_error(tmp_path):
    with serve(Answer(BODY[:1000])) as server:
        message = refusal(remote(server.url), tmp_path, retries=1)
    assert message == (
        f"images.zip: could not be downloaded; {server.url}/: "
        "size is 1000 bytes, expected 300000 (asked 2 times)"
    )


def test_without_a_checksum_and_a_version_nothing_is_resumed(tmp_path):
    nameless = {"ETag": 'W/"weak"'}
    with serve(Answer(BODY, send=9, head=nameless), Answer(BODY, head=nameless)) as server:
        assert quick(remote(server.url, md5=None), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, None]


def test_a_date_is_a_version_where_there_is_no_strong_tag(tmp_path):
    dated = {"ETag": None, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    with serve(Answer(BODY, send=9, head=dated), Answer(BODY, head=dated)) as server:
        quick(remote(server.url, md5=None), tmp_path)
    assert server.requests[1][1]["if-range"] == "Mon, 01 Jan 2024 00:00:00 GMT"


def test_a_file_that_changed_on_the_server_starts_over(tmp_path):
    new = random.Random(2).randbytes(len(BODY))
    changed = Answer(new, head={"ETag": '"v2"'})  # honours If-Range: 200 with the whole file
    with serve(Answer(BODY, send=50_000), changed) as server:
        assert quick(remote(server.url, md5=None), tmp_path).read_bytes() == new
    assert server.ranges() == [None, "bytes=50000-"]


def test_a_changed_file_is_noticed_although_the_server_passes_over_if_range(tmp_path):
    new = random.Random(2).randbytes(len(BODY))
    head = {"ETag": '"v2"', "Content-Range": "bytes 50000-299999/300000"}
    joined = Answer(new[50_000:], status=206, head=head)
    with serve(Answer(BODY, send=50_000), joined, Answer(new, head={"ETag": '"v2"'})) as server:
        assert quick(remote(server.url, md5=None), tmp_path).read_bytes() == new
    assert server.ranges() == [None, "bytes=50000-", None]


def test_a_server_without_ranges_starts_over(tmp_path):
    with serve(Answer(BODY, send=50_000), Answer(BODY, ranges=False)) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, "bytes=50000-"]


@pytest.mark.parametrize(
    "content_range", ["bytes 0-299999/300000", "bytes 60000-299999/300000", "pages 1-2/3", None]
)
def test_a_wrong_content_range_starts_over(tmp_path, content_range):
    wrong = Answer(BODY[50_000:], status=206, head={"Content-Range": content_range})
    with serve(Answer(BODY, send=50_000), wrong, GOOD) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, "bytes=50000-", None]


def test_no_such_range_starts_over(tmp_path):
    with serve(Answer(BODY, send=50_000), Answer(status=416), GOOD) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None, "bytes=50000-", None]


def test_a_range_that_nobody_asked_for_is_refused(tmp_path):
    with serve(Answer(BODY, status=206)) as server:
        assert refusal(remote(server.url), tmp_path).endswith("/: HTTP 206")


def test_retry_after_may_be_a_date(tmp_path):
    past = {"Retry-After": formatdate(time.time() - 100, usegmt=True)}
    nonsense = {"Retry-After": "soon"}
    answers = Answer(status=503, head=past), Answer(status=503, head=nonsense), GOOD
    with serve(*answers) as server:
        assert quick(remote(server.url), tmp_path).read_bytes() == BODY


def test_a_stalled_body_is_resumed(tmp_path):
    with serve(Answer(BODY, send=50_000, stall=True), GOOD) as server:
        assert quick(remote(server.url), tmp_path, timeout_s=2.0).read_bytes() == BODY
    assert server.ranges() == [None, "bytes=50000-"]


@pytest.mark.parametrize(
    "slow",
    [Answer(BODY, drip=0.05), Answer(BODY, drip_head=0.05), Answer(BODY, send=0, stall=True)],
)
def test_a_server_that_drips_has_stalled(tmp_path, slow):
    start = time.monotonic()
    with serve(slow) as server:
        message = refusal(remote(server.url), tmp_path, retries=1, timeout_s=0.3)
    assert message.endswith("/: stalled: below 1000 bytes a second for 0.3 s (asked 2 times)")
    assert time.monotonic() - start < 10.0  # the whole file would take hours


def test_a_body_larger_than_the_known_size_is_stopped(tmp_path):
    endless = Answer(BODY + b"x" * 10_000_000, chunked=True)
    done = []
    with serve(endless) as server:
        message = refusal(remote(server.url), tmp_path, progress=lambda here, _: done.append(here))
    assert "bytes or more, expected 300000 at most" in message
    assert max(done) <= 300_000
    assert names(tmp_path) == []


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_unknown_size_has_a_limit(tmp_path, chunked):
    with serve(Answer(BODY, chunked=chunked)) as server:
        wanted = remote(server.url, size=None, md5=None)
        message = refusal(wanted, tmp_path, max_bytes=200_000)
        assert "bytes or more, expected 200000 at most" in message
        assert quick(wanted, tmp_path, max_bytes=300_000).read_bytes() == BODY


def test_a_cut_chunked_body_is_not_taken_for_the_whole(tmp_path):
    with serve(Answer(BODY, chunked=True, send=1000), Answer(BODY, chunked=True)) as server:
        assert quick(remote(server.url, size=None, md5=None), tmp_path).read_bytes() == BODY
    assert len(server.requests) == 2


def test_a_compressed_answer_is_refused(tmp_path):
    gzipped = Answer(BODY, head={"Content-Encoding": "gzip"})
    with serve(gzipped) as server:
        assert refusal(remote(server.url), tmp_path).endswith(
            "/: sent with Content-Encoding 'gzip', asked for as it is"
        )
        # here it says what the file itself is
        path = quick(remote(server.url, name="images.tgz"), tmp_path)
        assert path.read_bytes() == BODY


def test_a_killed_process_is_gone_on_with(tmp_path):
    slow = Answer(BODY, send=200_000, stall=True)
    with serve(slow, GOOD) as server:
        code = (
            "from pathlib import Path; from plmcl.data.downloads import Remote, fetch\n"
            f"fetch(Remote('images.zip', ({server.url!r},)), Path({str(tmp_path)!r}))"
        )
        child = subprocess.Popen([sys.executable, "-c", code])
        part = tmp_path / "images.zip.part"
        until = time.monotonic() + 30
        while not (part.exists() and part.stat().st_size > 100_000) and time.monotonic() < until:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        here = part.stat().st_size
        assert 100_000 < here <= 200_000
        # no checksum: the version that the killed process noted is enough
        path = quick(Remote("images.zip", (server.url,)), tmp_path)
    assert path.read_bytes() == BODY
    assert server.ranges() == [None, f"bytes={here}-"]
    assert names(tmp_path) == ["images.zip"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"address": 1, "validator": 2}'])
def test_a_damaged_record_starts_over(tmp_path, text):
    (tmp_path / "images.zip.part").write_bytes(b"x" * 100)
    (tmp_path / "images.zip.part.json").write_text(text)
    with serve(GOOD) as server:
        assert quick(remote(server.url, md5=None), tmp_path).read_bytes() == BODY
    assert server.ranges() == [None]


def test_a_password_is_not_written_down(tmp_path):
    with serve(Answer(BODY, send=9), Answer(status=404)) as server:
        url = server.url.replace("http://", "http://anna:s3cret@") + "/x?token=t0ken"
        refusal(remote(url), tmp_path)
    record = json.loads((tmp_path / "images.zip.part.json").read_text())
    assert record == {"address": f"{server.url}/x", "validator": '"v1"'}
