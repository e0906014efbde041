import contextlib
import io
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from plmcl.data.images import ImageProblem, Recipe, decode, load
from plmcl.errors import PlmclError

RECIPE = Recipe(size=32, background=(255, 255, 255), max_pixels=50_000_000)


def noise(height=40, width=60, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encode(image, suffix, **options):
    buffer = io.BytesIO()
    image.save(buffer, suffix, **options)
    return buffer.getvalue()


def png(width, height, *, bits=8, colour=0, pixels=b"\0" * 10, extra=b""):
    # written by hand: the independent side of the 16-bit and bomb tests
    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(pixels))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + data + chunk(b"IEND", b"")


def status_of(source, recipe=RECIPE):
    with pytest.raises(ImageProblem) as caught:
        decode(source, recipe)
    return caught.value.status, str(caught.value)


def test_plain_jpeg_equals_pillow_open_resize(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(noise()).save(path, quality=90)
    expected = np.asarray(Image.open(path).resize((32, 32), Image.Resampling.BILINEAR))
    for source in (path, path.read_bytes()):
        result = load(source, RECIPE)
        assert result.dtype == np.uint8
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(decode(source, RECIPE), np.asarray(Image.open(path)))


def test_shrinking_averages_over_all_source_pixels():
    # A checkerboard of single pixels is grey when it is shrunk; picking pixels would alias.
    board = np.indices((320, 320)).sum(axis=0) % 2 * 255
    source = encode(Image.fromarray(board.astype(np.uint8)), "PNG")
    assert np.abs(load(source, RECIPE).astype(int) - 127.5).max() < 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied_case_8(orientation, suffix):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = Image.fromarray(np.kron(noise(2, 4), np.ones((10, 10, 1), np.uint8)))  # 40 x 20
    options = {"exif": exif} | ({"lossless": True} if suffix == "WEBP" else {})
    source = encode(pixels, suffix, **options)
    # Where each corner of the file's pixels belongs, from the EXIF standard's table.
    array = decode(encode(pixels, suffix, **(options | {"exif": Image.Exif()})), RECIPE)
    expected = {
        1: array,
        2: array[:, ::-1],
        3: array[::-1, ::-1],
        4: array[::-1],
        5: array.transpose(1, 0, 2),
        6: array.transpose(1, 0, 2)[:, ::-1],
        7: array[::-1, ::-1].transpose(1, 0, 2),
        8: array.transpose(1, 0, 2)[::-1],
    }[orientation]
    result = decode(source, RECIPE)
    assert result.shape[:2] == ((20, 40) if orientation < 5 else (40, 20))
    np.testing.assert_array_equal(result, expected)
    other_way = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(source))))
    np.testing.assert_array_equal(result, other_way)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_unreadable_exif_says_nothing_about_the_pixels():
    source = encode(Image.fromarray(noise()), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert decode(source, RECIPE).shape == (40, 60, 3)


def cmyk_jpeg(values):
    return encode(Image.new("CMYK", (16, 16), values), "JPEG", quality=100, subsampling=0)


def adobe_transform(source):
    return source[source.index(b"Adobe") + 11]


def test_cmyk_jpeg_becomes_rgb_case_5():
    source = cmyk_jpeg((0, 255, 255, 0))
    assert Image.open(io.BytesIO(source)).mode == "CMYK"
    np.testing.assert_allclose(decode(source, RECIPE)[8, 8], (255, 0, 0), atol=2)


def test_adobe_jpeg_stores_inverted_ink_case_5():
    # Adobe's marker, transform 0: the stored bytes are 255 - ink. Stored 255 = no ink = white.
    source = cmyk_jpeg((0, 0, 0, 0))
    assert adobe_transform(source) == 0
    assert tuple(decode(source, RECIPE)[0, 0]) == (255, 255, 255)
    # without the marker the same bytes mean the same, as in browsers, OpenCV and torchvision
    start = source.index(b"\xff\xee")
    length = struct.unpack(">H", source[start + 2 : start + 4])[0]
    bare = source[:start] + source[start + 2 + length :]
    assert tuple(decode(bare, RECIPE)[0, 0]) == (255, 255, 255)


def test_ycck_jpeg_becomes_rgb_case_5():
    # Transform 2 says that (C, M, Y) were turned into (Y, Cb, Cr): stored mid grey without any
    # colour difference and no black ink is R = G = B = 128.
    source = bytearray(cmyk_jpeg((255 - 128, 255 - 128, 255 - 128, 0)))
    source[source.index(b"Adobe") + 11] = 2
    np.testing.assert_allclose(decode(bytes(source), RECIPE)[8, 8], (128, 128, 128), atol=2)


def test_cmyk_tiff_is_not_inverted():
    source = encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF")
    np.testing.assert_array_equal(decode(source, RECIPE)[0, 0], (255, 0, 0))


def test_16_bit_grey_keeps_256_levels_case_6():
    ramp = np.arange(0, 65536, 257, dtype=">u2")
    source = png(256, 1, bits=16, pixels=b"\0" + ramp.tobytes())
    result = decode(source, RECIPE)
    np.testing.assert_array_equal(result[0], np.repeat(np.arange(256)[:, None], 3, axis=1))
    tiff = encode(Image.fromarray(ramp.astype("<u2")[None]), "TIFF")
    np.testing.assert_array_equal(decode(tiff, RECIPE), result)


def test_16_bit_values_lose_their_low_byte_case_6():
    values = np.array([0, 255, 256, 0x12FF, 0x8000, 0xFFFF], dtype=">u2")
    source = png(6, 1, bits=16, pixels=b"\0" + values.tobytes())
    assert decode(source, RECIPE)[0, :, 0].tolist() == [0, 0, 1, 0x12, 0x80, 0xFF]


def test_palette_with_transparency_shows_the_background():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    recipe = Recipe(size=8, background=(1, 2, 3), max_pixels=100)
    assert decode(encode(image, "PNG", transparency=0), recipe).tolist() == [
        [[1, 2, 3], [200, 100, 50]]
    ]
    assert decode(encode(image, "PNG"), recipe)[0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_laid_over_the_background(mode):
    channels = len(mode)
    pixels = noise(30, 30, channels, seed=3)
    background = (200, 10, 90)
    result = decode(
        encode(Image.fromarray(pixels, mode), "PNG"), Recipe(32, background, max_pixels=10_000)
    )
    colour = np.broadcast_to(pixels[:, :, : channels - 1], (30, 30, 3)).astype(float)
    alpha = pixels[:, :, -1:] / 255
    np.testing.assert_allclose(
        result, colour * alpha + np.array(background) * (1 - alpha), atol=0.51
    )


def test_grey_and_bilevel_become_three_equal_channels():
    grey = noise(20, 20, 1)
    result = decode(encode(Image.fromarray(grey), "PNG"), RECIPE)
    np.testing.assert_array_equal(result, np.repeat(grey[:, :, None], 3, axis=2))
    bilevel = Image.fromarray(grey > 127)
    assert bilevel.mode == "1"
    np.testing.assert_array_equal(
        decode(encode(bilevel, "PNG"), RECIPE)[:, :, 1], (grey > 127) * 255
    )


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_there_are_always_three_channels_case_32(mode):
    image = Image.new(mode, (9, 7))
    assert load(encode(image, "TIFF"), RECIPE).shape == (32, 32, 3)


@pytest.mark.parametrize("suffix", ["WEBP", "AVIF", "BMP"])
def test_formats_built_into_pillow_are_read_case_11(suffix):
    assert decode(encode(Image.fromarray(noise()), suffix), RECIPE).shape == (40, 60, 3)


@pytest.mark.parametrize("suffix", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_half_a_file_is_truncated_case_1(suffix):
    source = encode(Image.fromarray(noise()), suffix)
    status, _ = status_of(source[: len(source) // 2])
    assert status == "truncated"


def test_half_a_jpeg_passes_pillows_verify_but_not_ours_case_1(tmp_path):
    source = encode(Image.fromarray(noise(400, 400)), "JPEG")
    half = tmp_path / "half.jpg"
    half.write_bytes(source[: len(source) // 2])
    Image.open(half).verify()
    assert status_of(half)[0] == "truncated"


def test_no_global_switch_is_touched_case_2():
    before = (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS)
    source = encode(Image.fromarray(noise()), "JPEG")
    decode(source, RECIPE)
    status_of(source[:500])
    after = (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS)
    assert after == before
    assert after[0] is False


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [20_000, 10_000, 8_000])
def test_giant_header_is_too_large_case_9(side):
    # Pillow itself refuses the first, only warns at the second and accepts the third.
    status, reason = status_of(png(side, side))
    assert status == "too_large"
    assert "50000000" in reason
    assert str(side) in reason or str(side**2) in reason


@pytest.mark.filterwarnings("error")
def test_a_warning_turned_into_an_error_is_too_large_case_9():
    assert status_of(png(10_000, 10_000))[0] == "too_large"


def test_the_pixel_limit_is_inclusive():
    source = encode(Image.fromarray(noise(10, 10)), "PNG")
    assert decode(source, Recipe(8, (0, 0, 0), max_pixels=100)).shape == (10, 10, 3)
    status, reason = status_of(source, Recipe(8, (0, 0, 0), max_pixels=99))
    assert (status, "10x10" in reason, "99" in reason) == ("too_large", True, True)


@pytest.mark.parametrize(
    ("content", "status", "word"),
    [
        (b"", "empty", "0 bytes"),
        (b"<html>404", "not_an_image", "HTML"),
        (b"\n <!DOCTYPE html>", "not_an_image", "HTML"),
        (b"\x1f\x8b\x08\0\0\0", "not_an_image", "gzip"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not_an_image", "LFS"),
        (b"just words", "not_an_image", "no image format"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "unsupported", "HEIC"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not_an_image", "PostScript"),
    ],
)
def test_what_is_no_image_has_a_distinct_reason_case_13(tmp_path, content, status, word):
    path = tmp_path / "n.jpg"
    path.write_bytes(content)
    found, reason = status_of(path)
    assert found == status
    assert word in reason
    assert "\n" not in reason


def test_32_bit_grey_is_unsupported():
    status, reason = status_of(encode(Image.new("F", (4, 4)), "TIFF"))
    assert (status, "mode F" in reason) == ("unsupported", True)


def test_missing_file_and_folder_are_unreadable(tmp_path):
    assert status_of(tmp_path / "gone.jpg") == ("unreadable", "No such file or directory")
    assert status_of(tmp_path) == ("unreadable", "not a regular file")
    assert status_of(tmp_path / "zero\0.jpg") == ("unreadable", "embedded null byte")


@pytest.mark.parametrize("suffix", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF"])
def test_broken_bytes_raise_nothing_but_a_problem(suffix):
    source = encode(Image.fromarray(noise()), suffix)
    rng = np.random.default_rng(1)
    for _ in range(60):
        broken = np.frombuffer(source, np.uint8).copy()
        broken[rng.integers(0, len(broken), 12)] = rng.integers(0, 256, 12)
        with contextlib.suppress(ImageProblem):  # nothing else gets out
            assert decode(broken.tobytes(), RECIPE).ndim == 3


def test_recipe_survives_json():
    recipe = Recipe(size=96, background=(1, 2, 3), max_pixels=1000)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"version": 2}, "version 2"),
        ({"filter": "cubic"}, "filter"),
        ({"size": None}, "size"),
        ({"size": True}, "size"),
        ({"max_pixels": 0}, "max_pixels"),
        ({"max_pixels": 178_956_971}, "max_pixels must be at most 178956970, found 178956971"),
        ({"background": [0, 0]}, "background"),
        ({"background": [0, 0, 256]}, "background"),
        ({"background": "red"}, "background"),
    ],
)
def test_recipe_refuses_what_it_does_not_know(change, word):
    with pytest.raises(PlmclError, match=word):
        Recipe.from_dict(RECIPE.to_dict() | change)


def test_recipe_refuses_a_missing_key():
    values = RECIPE.to_dict()
    del values["background"]
    with pytest.raises(PlmclError, match="background"):
        Recipe.from_dict(values)


def test_serving_imports_no_training_package():
    code = (
        "import sys, plmcl.data.images; print({'torch', 'pandas', 'pydantic'} & set(sys.modules))"
    )
    source = Path(__file__).parents[2] / "src"
    output = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(source)},
    )
    assert output.stdout.strip() == "set()"
