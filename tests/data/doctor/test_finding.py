import hashlib
import os

import numpy as np
import pytest
from PIL import Image

from plmcl.data import decoding
from plmcl.data.doctor.finding import Finding, difference_hash, examine
from plmcl.data.images import Recipe

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)


def save(path, size=(30, 20), **options):
    # 3 x 2 blocks of one colour each
    blocks = np.random.default_rng(0).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    Image.fromarray(blocks).resize(size, Image.Resampling.NEAREST).save(path, **options)
    return path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_good_file_has_its_hashes_and_sizes(tmp_path):
    path = save(tmp_path / "a.jpg")
    finding = examine(path, RECIPE)
    assert finding == Finding("ok", "", sha256(path), finding.dhash, 30, 20, len(path.read_bytes()))
    assert len(finding.dhash) == 32


def test_a_converted_file_says_what_was_done(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "a.jpg"
    Image.linear_gradient("L").resize((40, 20)).save(path, exif=exif)
    finding = examine(path, RECIPE)
    assert finding[:2] == ("converted", "turned as EXIF says (6), grey to RGB")
    assert (finding.width, finding.height) == (20, 40)  # case 8


def test_a_bad_file_keeps_its_hash_but_has_no_size_case_1(tmp_path):
    path = tmp_path / "half.png"
    content = save(tmp_path / "a.png").read_bytes()
    path.write_bytes(content[: len(content) // 2])
    finding = examine(path, RECIPE)
    assert finding.status == "truncated"
    assert finding[2:] == (sha256(path), "", 0, 0, len(content) // 2)


def test_too_many_pixels_is_a_finding_case_9(tmp_path):
    finding = examine(save(tmp_path / "a.png", (101, 100)), RECIPE)
    assert finding.status == "too_large"
    assert finding.reason == "101x100 pixels; the limit (image.max_pixels) is 10000"


def test_too_many_bytes_is_a_finding_without_a_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MAX_BYTES", 10)
    (tmp_path / "a.png").write_bytes(b"x" * 11)
    reason = "11 bytes; the limit is 10"
    assert examine(tmp_path / "a.png", RECIPE) == Finding("too_large", reason, "", "", 0, 0, 11)


def test_what_cannot_be_read_is_a_finding(tmp_path):
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")  # opening it would wait for ever
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    findings = {
        name: examine(tmp_path / name, RECIPE)
        for name in ("gone.jpg", "folder.jpg", "pipe.jpg", "loop.jpg")
    }
    assert {name: (f.status, f.reason, f.sha256) for name, f in findings.items()} == {
        "gone.jpg": ("unreadable", "No such file or directory", ""),
        "folder.jpg": ("unreadable", "not a regular file", ""),
        "pipe.jpg": ("unreadable", "not a regular file", ""),
        "loop.jpg": ("unreadable", "Too many levels of symbolic links", ""),
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_finding(tmp_path):
    path = save(tmp_path / "a.jpg")
    path.chmod(0)
    assert examine(path, RECIPE).reason == "Permission denied"


# ------------------------------------------------------------------------------ difference hash


def ramp(width, height, step_x, step_y):
    """Grey that grows by a step for each of 9 x 9 cells."""
    x, y = np.meshgrid(np.arange(width) * 9 // width, np.arange(height) * 9 // height)
    grey = (100 + step_x * x + step_y * y).astype(np.uint8)
    return Image.fromarray(np.repeat(grey[:, :, None], 3, axis=2))


@pytest.mark.parametrize("size", [(9, 9), (90, 180), (1800, 900)])
def test_the_bits_are_to_the_right_and_below(size):
    assert difference_hash(ramp(*size, 4, 0)) == "f" * 16 + "0" * 16
    assert difference_hash(ramp(*size, 0, 4)) == "0" * 16 + "f" * 16
    assert difference_hash(ramp(*size, 4, 4)) == "f" * 32
    assert difference_hash(ramp(*size, -4, -4)) == "0" * 32


def test_the_first_bit_is_the_upper_left_and_the_last_the_lower_right():
    cells = np.full((9, 9), 50, np.uint8)
    cells[:, 1:] -= 5  # no cell is lighter than its left one
    cells[0, 1] = 90  # but this one; and it is lighter than none above it
    expected = 1 << 127
    grey = Image.fromarray(np.repeat(cells[:, :, None], 3, axis=2))
    assert int(difference_hash(grey), 16) == expected
    assert int(difference_hash(grey.transpose(Image.Transpose.TRANSPOSE)), 16) == 1 << 63


def test_pictures_without_contrast_have_no_hash():
    flat = Image.new("RGB", (200, 100), (90, 20, 200))
    noise = np.random.default_rng(0).integers(120, 136, (100, 200, 3), dtype=np.uint8)
    assert difference_hash(flat) == ""
    assert difference_hash(Image.fromarray(noise)) == ""
    assert difference_hash(Image.new("RGB", (1, 1))) == ""
    assert difference_hash(ramp(90, 90, 1, 0)) == "f" * 16 + "0" * 16  # 8 levels


def test_the_hash_of_a_large_picture_is_that_of_a_small_one():
    blocks = np.random.default_rng(1).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    picture = Image.fromarray(blocks).resize((320, 240), Image.Resampling.BICUBIC)
    small = int(difference_hash(picture), 16)
    for side in (160, 700, 3000):
        other = picture.resize((side, side * 3 // 4), Image.Resampling.BICUBIC)
        assert (small ^ int(difference_hash(other), 16)).bit_count() <= 3
