import asyncio

import pytest

from plmcl.errors import PlmclError
from plmcl.serving.limits import Limits
from plmcl.serving.refusal import Refusal
from plmcl.serving.uploads import Memory, Upload, read_uploads

LIMITS = Limits(request_bytes=1000, image_bytes=600, images=3, queue=3)
FORM = {"content-type": "multipart/form-data; boundary=b"}
PART = b'--b\r\nContent-Disposition: form-data; name="images"; filename="%b"\r\n\r\n%b\r\n'


def read(headers, chunks, memory=None):
    """The uploads or the refusal's status, and how many chunks were taken."""
    taken = 0

    async def body():
        nonlocal taken
        for chunk in chunks:
            taken += 1
            yield chunk

    async def run():
        with (memory or Memory(LIMITS)).claim() as claim:
            return await read_uploads(headers, body(), claim, LIMITS)

    try:
        return asyncio.run(run()), taken
    except Refusal as refusal:
        return refusal.status, taken


def test_files_come_out_as_they_were_however_the_body_is_cut():
    contents = [b"", b"\r\n--", b"\r\n--a\r\n\r\n" + bytes(range(256))]
    names = [b"a.png", "\u00e9 b.png".encode(), b"\xff.png"]
    expected = [
        Upload("a.png", contents[0]),
        Upload("\u00e9 b.png", contents[1]),
        Upload("\\xff.png", contents[2]),
    ]
    body = b"".join(PART % part for part in zip(names, contents, strict=True)) + b"--b--\r\n"
    for size in (1, 2, 7, 64, 10_000):
        found, _ = read(FORM, [body[i : i + size] for i in range(0, len(body), size)])
        assert found == expected


@pytest.mark.parametrize("declared", [{}, {"content-length": "5"}, {"content-length": "x"}])
def test_no_more_is_taken_than_the_limit_whatever_the_head_says(declared):
    raw = {"content-type": "image/png"} | declared
    assert read(raw, [b"x" * 300] * 2) == ([Upload("", b"x" * 600)], 2)
    assert read(raw, [b"x" * 300] * 99) == (413, 3)
    preamble = PART % (b"a", b"x" * 400)
    assert read(FORM | declared, [preamble] * 99) == (413, 3)
    assert read(FORM | declared, [PART % (b"a", b"")] * 99) == (413, 4)


def test_what_is_declared_too_large_is_not_begun():
    assert read({"content-length": "1001"}, [b"x"]) == (413, 0)
    assert read({"content-encoding": "gzip"}, [b"x"]) == (415, 0)


def test_bytes_of_all_requests_together_are_limited_and_given_back():
    memory = Memory(LIMITS)
    raw = {"content-type": "image/png"}
    with memory.claim() as other:
        other.grow(3900)
        assert read(raw, [b"x" * 100], memory) == ([Upload("", b"x" * 100)], 1)
        assert read(raw, [b"x" * 101], memory) == (429, 1)
    assert read(raw, [b"x" * 101], memory) == ([Upload("", b"x" * 101)], 1)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"images": 0}, "images: expected 1 or more, found 0"),
        ({"request_seconds": 0}, "request_seconds: expected more than 0, found 0"),
        ({"decode_seconds": float("nan")}, "decode_seconds: expected more than 0, found nan"),
        ({"wait_ms": -1}, "wait_ms: expected 0 or more, found -1"),
        ({"images": 9, "queue": 8}, "queue: 8 images, but one request may have 9"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(values, rule):
    with pytest.raises(PlmclError, match=rule):
        Limits(**values)
