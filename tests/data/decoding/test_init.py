import contextlib
import io
import struct
import time
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile

from plmcl.data import MAX_PIXELS, decoding
from plmcl.data.decoding import MAX_SCANS, open_rgb
from plmcl.data.decoding.problems import ImageProblem
from plmcl.data.images import Recipe

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow's, of broken tags and large headers

RECIPE = Recipe(size=32, background=(1, 2, 3), max_pixels=50_000_000)
GREY, ALPHA = "grey to RGB", "alpha laid over the background"


def noise(height=20, width=30, channels=3):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encode(image, suffix, **options):
    buffer = io.BytesIO()
    image.save(buffer, suffix, **options)
    return buffer.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width=4, height=4, *, bits=8, colour=0, pixels=None, extra=b""):
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    if pixels is None:
        pixels = (b"\0" + b"\x80" * ((width * samples * bits + 7) // 8)) * height
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(pixels))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def tiff(*, after=0, pixels=b"\0" * 600, **changed):
    """A grey TIFF of 16 x 16 by hand; a tag is (number, type 3 = short or 4 = long, value)."""
    tags = {
        "width": (256, 4, 16),
        "height": (257, 4, 16),
        "bits": (258, 3, 8),
        "compression": (259, 3, 1),
        "photometric": (262, 3, 1),
        "offset": (273, 4, 200),
        "samples": (277, 3, 1),
        "rows": (278, 4, 16),
        "count": (279, 4, 512),
    }
    entries = [(n, kind, changed.get(name, value)) for name, (n, kind, value) in tags.items()]
    directory = b"".join(struct.pack("<HHLL", n, kind, 1, value) for n, kind, value in entries)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", 9) + directory + struct.pack("<L", after) + pixels


def problem(content, recipe=RECIPE):
    with pytest.raises(ImageProblem) as caught:
        open_rgb(content, recipe)
    return caught.value.status, str(caught.value)


# --------------------------------------------------------------------------------- conversions


@pytest.mark.parametrize(
    ("content", "conversions"),
    [
        (encode(Image.fromarray(noise()), "JPEG"), ()),
        (encode(Image.fromarray(noise()), "PNG"), ()),
        (encode(Image.fromarray(noise()), "AVIF"), ()),
        (encode(Image.fromarray(noise()).convert("L"), "JPEG"), (GREY,)),
        (png(bits=1), ("bilevel to RGB",)),
        (png(bits=2), (GREY,)),
        (png(bits=16), ("16-bit grey to 8 bits",)),
        (png(bits=16, colour=2), ("16 bits a channel to 8",)),
        (png(bits=16, colour=6), ("16 bits a channel to 8", ALPHA)),
        (png(colour=4), (GREY, ALPHA)),
        (png(colour=6), (ALPHA,)),
        (encode(Image.new("P", (4, 4)), "GIF"), ("palette to RGB",)),
        (encode(Image.new("P", (4, 4)), "PNG", transparency=0), ("palette to RGB", ALPHA)),
        (encode(Image.new("PA", (4, 4)), "TIFF"), ("palette to RGB", ALPHA)),
        (encode(Image.new("CMYK", (8, 8)), "TIFF"), ("CMYK to RGB",)),
        (encode(Image.new("YCbCr", (8, 8)), "TIFF"), ("YCbCr to RGB",)),
        (encode(Image.new("LAB", (8, 8)), "TIFF"), ("LAB to RGB",)),
        (encode(Image.frombytes("I;16B", (1, 1), b"\x12\x34"), "TIFF"), ("16-bit grey to 8 bits",)),
    ],
)
def test_what_was_done_to_the_pixels_is_said(content, conversions):
    image, done = open_rgb(content, RECIPE)
    assert image.mode == "RGB"
    assert done == conversions


def test_ycck_is_told_from_cmyk():
    cmyk = encode(Image.new("CMYK", (16, 16)), "JPEG")
    ycck = bytearray(cmyk)
    ycck[cmyk.index(b"Adobe") + 11] = 2  # Adobe's transform
    assert open_rgb(cmyk, RECIPE).conversions == ("CMYK to RGB",)
    assert open_rgb(bytes(ycck), RECIPE).conversions == ("YCCK to RGB",)


@pytest.mark.parametrize("suffix", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_turn_is_said_whoever_turned_it(suffix):
    exif = Image.Exif()
    exif[0x0112] = 6
    image, done = open_rgb(encode(Image.fromarray(noise(20, 30)), suffix, exif=exif), RECIPE)
    assert image.size == (20, 30)
    assert done == ("turned as EXIF says (6)",)


def test_16_bit_big_endian_keeps_its_upper_byte():
    content = encode(Image.frombytes("I;16B", (2, 1), b"\x12\x34\xfe\x01"), "TIFF")
    image = open_rgb(content, RECIPE).image
    assert [image.getpixel((x, 0)) for x in (0, 1)] == [(0x12,) * 3, (0xFE,) * 3]


def test_16_bit_colour_keeps_its_upper_byte():
    content = png(1, 1, bits=16, colour=2, pixels=b"\0\x12\x34\x56\x78\x9a\xbc")
    assert open_rgb(content, RECIPE).image.getpixel((0, 0)) == (0x12, 0x56, 0x9A)


# ----------------------------------------------------------------------------------- animations

FRAMES = [Image.fromarray(noise() // 4 + 60 * i) for i in range(3)]


@pytest.mark.parametrize("suffix", ["GIF", "WEBP", "PNG", "AVIF"])
def test_an_animation_is_set_aside(suffix):
    content = encode(FRAMES[0], suffix, save_all=True, append_images=FRAMES[1:])
    reason = "3 frames; save the one that is meant as its own file"
    assert problem(content) == ("animated", reason)


def test_a_tiff_of_several_pages_is_set_aside():
    content = encode(FRAMES[0], "TIFF", save_all=True, append_images=FRAMES[1:])
    assert problem(content)[0] == "animated"


@pytest.mark.parametrize("suffix", ["GIF", "WEBP", "PNG", "AVIF", "TIFF"])
def test_an_animation_of_one_frame_is_a_picture(suffix):
    content = encode(FRAMES[0], suffix, save_all=True)
    assert open_rgb(content, RECIPE).image.size == (30, 20)


def test_a_phones_jpeg_with_more_pictures_behind_it_is_the_first():
    content = encode(FRAMES[0], "MPO", save_all=True, append_images=FRAMES[1:])
    assert Image.open(io.BytesIO(content)).n_frames == 3
    alone = open_rgb(encode(FRAMES[0], "JPEG"), RECIPE).image
    image, conversions = open_rgb(content, RECIPE)
    assert (image.tobytes(), conversions) == (alone.tobytes(), ())


@pytest.mark.parametrize("after", [2**31, 8, 150])  # outside, itself, in the midst of a tag
def test_a_tiff_that_announces_a_page_that_is_not_there_is_a_picture(after):
    assert open_rgb(tiff(after=after), RECIPE).image.size == (16, 16)


@pytest.mark.parametrize("garbage", [b"\0", b"!", b"!\xff", b"xx!", b"\xff" * 500])
def test_garbage_behind_a_gifs_only_frame_is_no_frame(garbage):
    content = encode(Image.new("P", (4, 4)), "GIF")
    assert content.endswith(b";")
    assert open_rgb(content[:-1] + garbage, RECIPE).image.size == (4, 4)
    assert open_rgb(content + garbage, RECIPE).image.size == (4, 4)


# ---------------------------------------------------------------------------------- cut files

CUT = {suffix: encode(FRAMES[0], suffix) for suffix in ("JPEG", "WEBP", "AVIF", "BMP", "TIFF")}
CUT |= {
    "progressive": encode(FRAMES[0], "JPEG", progressive=True),
    "CMYK": encode(FRAMES[0].convert("CMYK"), "JPEG"),
    "PNG": encode(FRAMES[0].quantize(16), "PNG"),
    "GIF": encode(FRAMES[0].quantize(16), "GIF"),
    "LZW": encode(FRAMES[0], "TIFF", compression="tiff_lzw"),
    "lossless": encode(FRAMES[0], "WEBP", lossless=True),
}


@pytest.mark.parametrize("name", CUT)
def test_a_file_cut_anywhere_is_never_another_picture_case_1(name):
    content = CUT[name]
    whole = open_rgb(content, RECIPE).image.tobytes()
    statuses = []
    for length in range(1, len(content), 7):
        try:
            assert open_rgb(content[:length], RECIPE).image.tobytes() == whole
        except ImageProblem as found:
            statuses.append(found.status)
    assert statuses.count("truncated") > 0.9 * len(statuses)
    assert set(statuses) <= {"truncated", "not_an_image", "unreadable"}


# -------------------------------------------------------------------------------- hostile files


def jpeg(**options):
    return encode(Image.new("RGB", (16, 16), (10, 200, 30)), "JPEG", **options)


def with_frame_header(at, value):
    content = bytearray(jpeg())
    start = content.index(b"\xff\xc0") + at
    content[start : start + len(value)] = value
    return bytes(content)


def segment(marker, data):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


# 5,000 tags that all point at the same 60,000 bytes
EXIF_BOMB = (
    b"II*\0\x08\0\0\0"
    + struct.pack("<H", 5000)
    + b"".join(struct.pack("<HHLL", tag, 7, 60_000, 8) for tag in range(5000))
)
BMP = struct.Struct("<2sIHHIIiiHHIIiiII")


def bmp(width, height, bits=24):
    header = BMP.pack(b"BM", 0, 0, 0, 54, 40, width, height, 1, bits, 0, 0, 0, 0, 0, 0)
    return header + b"\0" * 100


@pytest.mark.parametrize(
    ("content", "status", "word"),
    [
        (png(0, 4), "unreadable", "no pixels"),
        (png(bits=3, colour=2), "unreadable", "a kind of pixel that does not exist"),
        (png(2**31 - 1, 2**31 - 1, pixels=b"\0"), "too_large", "4611686014132420609"),
        (png(extra=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**8)))), "too_large", "data"),
        (png(extra=chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(10**8)))), "too_large", "data"),
        (
            png(extra=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**6))) * 100),
            "too_large",
            "memory",
        ),
        (png(colour=3), "unreadable", "damaged"),  # no palette
        (with_frame_header(4, b"\x0c"), "unsupported", "12-bit"),
        (with_frame_header(9, b"\x02"), "unsupported", "2-layer"),
        (with_frame_header(5, b"\0\0\0\0"), "unreadable", "no pixels"),
        (with_frame_header(5, b"\xff" * 4), "too_large", "4294836225"),
        (tiff(width=2**31, height=2**31), "too_large", "4611686018427387904"),
        (tiff(width=0), "unreadable", "no pixels"),
        (tiff(samples=65_535), "unreadable", "samples per pixel"),
        (tiff(compression=9999), "unsupported", "9999"),
        (tiff(offset=2**31), "truncated", "truncated"),
        (tiff(bits=12), "unsupported", "12-bit grey"),
        (tiff(bits=16, photometric=0), "unsupported", "0 is white"),
        (tiff(bits=32), "unsupported", "mode I"),
        (bmp(2**31 - 1, 2**31 - 1), "too_large", "4611686014132420609"),
        (bmp(0, 0), "unreadable", "no pixels"),
        (bmp(4, 4, bits=7), "unsupported", "depth"),
        (encode(FRAMES[0], "JPEG2000"), "unsupported", "JPEG 2000"),
        (b"\xff\x0a" + b"\0" * 50, "unsupported", "JPEG XL"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + b"\0" * 99, "unsupported", "HEIC"),
        (b"8BPS" + b"\0" * 50, "unsupported", "Photoshop"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not_an_image", "HTML or XML"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><svg/>", "not_an_image", "HTML or XML"),
        (encode(FRAMES[0], "EPS"), "not_an_image", "PostScript"),
        (encode(FRAMES[0], "PDF"), "not_an_image", "PDF"),
        (encode(FRAMES[0], "PPM"), "not_an_image", "no image format"),
        (b"\0\0\0\x18ftypisom" + b"\0" * 50, "not_an_image", "video"),
        (b"\0" * 5000, "not_an_image", "zeros"),
        (b"RIFF\0\0\0\0WAVEfmt ", "not_an_image", "no image format"),
    ],
)
def test_a_hostile_file_has_a_status_at_once(content, status, word):
    start = time.monotonic()
    found, reason = problem(content)
    assert time.monotonic() - start < 5
    assert found == status
    assert word in reason
    assert len(reason) < 300


@pytest.mark.parametrize(
    "content",
    [
        png(1, 1),
        png(65_535, 1),
        png(1, 65_535),
        png(extra=chunk(b"tEXt", b"k\0" + b"a" * 10**7)),
        png(extra=chunk(b"eXIf", EXIF_BOMB)),
        png(pixels=b"\0" * 10**8),  # far more than the header has room for
        jpeg() + b"garbage" * 1000,
        jpeg()[:2] + segment(0xE1, b"Exif\0\0" + EXIF_BOMB) + jpeg()[2:],
        jpeg()[:2] + segment(0xE1, b"Exif\0\0" + b"a" * 60_000) * 50 + jpeg()[2:],
        jpeg()[:2] + segment(0xE2, b"MPF\0junk") + jpeg()[2:],
        encode(FRAMES[0], "WEBP") + b"garbage",
        encode(FRAMES[0], "AVIF") + b"garbage",
        tiff(),
        bmp(4, -4),
    ],
)
def test_odd_but_usable(content):
    start = time.monotonic()
    assert open_rgb(content, RECIPE).image.mode == "RGB"
    assert time.monotonic() - start < 5


def test_a_gif_whose_frame_lies_outside_is_as_large_as_that(tmp_path):
    content = bytearray(encode(Image.new("P", (4, 4)), "GIF"))
    start = content.index(b",") + 1
    content[start : start + 2] = struct.pack("<H", 60_000)
    assert open_rgb(bytes(content), RECIPE).image.size == (60_004, 4)
    content[start + 2 : start + 4] = struct.pack("<H", 60_000)
    assert problem(bytes(content))[0] == "too_large"


def test_the_name_says_nothing_about_the_content(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(FRAMES[0], "PNG"))
    assert open_rgb(path, RECIPE).image.tobytes() == FRAMES[0].tobytes()


def repeat_last_scan(side, times):
    content = encode(Image.new("L", (side, side), 128), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * times + b"\xff\xd9", content.count(b"\xff\xda") + times


def test_a_jpeg_of_scans_without_end_is_too_large():
    content, scans = repeat_last_scan(1000, 40)
    assert open_rgb(content, Recipe(8, (0, 0, 0), max_pixels=10**6)).image.size == (1000, 1000)
    content, scans = repeat_last_scan(1000, 60)
    assert scans > MAX_SCANS
    found = problem(content, Recipe(8, (0, 0, 0), max_pixels=10**6))
    assert found == ("too_large", f"{scans} scans of 1000x1000 pixels")


def test_the_largest_limit_is_pillows_own():
    assert 2 * Image.MAX_IMAGE_PIXELS == MAX_PIXELS
    recipe = Recipe(8, (0, 0, 0), max_pixels=MAX_PIXELS)
    status, reason = problem(bmp(10, MAX_PIXELS // 10 + 1), recipe)
    assert status == "too_large"
    assert "(178956980 pixels) exceeds limit of 178956970 pixels" in reason


def test_a_file_of_too_many_bytes_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MAX_BYTES", 1000)
    path = tmp_path / "a.png"
    with path.open("wb") as file:
        file.truncate(1001)
    assert problem(path) == ("too_large", "1001 bytes; the limit is 1000")


def test_nothing_global_is_changed():
    before = (warnings.filters[:], ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS)
    for content in (jpeg(), jpeg()[:300], CUT["GIF"], tiff(after=2**31)):
        with contextlib.suppress(ImageProblem):
            open_rgb(content, RECIPE)
    after = (warnings.filters[:], ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS)
    assert after == before
