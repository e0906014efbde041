"""Images are decoded once for the same files and recipe, into one array that nobody can change."""

import threading

import numpy as np
import pytest
from PIL import Image

from plmcl.data.images import Recipe, load
from plmcl.data.loading import ImageRows
from plmcl.data.pixels import cached_pixels
from plmcl.errors import PlmclError


@pytest.fixture
def images(tmp_path):
    generator = np.random.default_rng(0)
    for i in range(5):
        pixels = generator.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    return ImageRows(tmp_path, [f"{i}.png" for i in range(5)], Recipe(32, (255, 255, 255), 10**6))


def decode(images, cache, content="abcde"):
    """The pixels, and how many images were decoded for them."""
    told = [0]
    pixels = cached_pixels(
        images,
        content=list(content),
        cache=cache,
        progress=lambda done, total: told.append(done if total == len(images) else -1),
    )
    return pixels, told[-1]


def test_pixels_are_those_of_the_recipe(images, tmp_path):
    pixels, decoded = decode(images, tmp_path / "cache")
    assert decoded == 5
    assert pixels.shape == (5, 32, 32, 3)
    assert pixels.dtype == np.uint8
    for path, one in zip(images.paths, pixels, strict=True):
        np.testing.assert_array_equal(one, load(images.root / path, images.recipe))


def test_the_array_is_mapped_and_cannot_be_written_to(images, tmp_path):
    pixels, _ = decode(images, tmp_path / "cache")
    assert isinstance(pixels, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        pixels[0] = 0


def test_the_second_time_nothing_is_decoded(images, tmp_path):
    first, _ = decode(images, tmp_path / "cache")
    for path in images.paths:
        (images.root / path).unlink()
    second, decoded = decode(images, tmp_path / "cache")
    assert decoded == 0
    np.testing.assert_array_equal(first, second)


def test_another_recipe_and_another_list_are_decoded_anew(images, tmp_path):
    decode(images, tmp_path / "cache")
    smaller = ImageRows(images.root, images.paths, Recipe(16, (255, 255, 255), 10**6))
    assert decode(smaller, tmp_path / "cache")[0].shape == (5, 16, 16, 3)
    turned = ImageRows(images.root, images.paths[::-1], images.recipe)
    pixels, decoded = decode(turned, tmp_path / "cache", "edcba")
    assert decoded == 5
    np.testing.assert_array_equal(pixels[0], load(images.root / "4.png", images.recipe))


@pytest.mark.parametrize("length", [0, 10, 200, -1])
def test_a_part_of_a_file_is_decoded_anew(images, tmp_path, length):
    first, _ = decode(images, tmp_path / "cache")
    expected = np.array(first)
    del first
    (path,) = (tmp_path / "cache").glob("*.npy")
    path.write_bytes(path.read_bytes()[:length])
    again, decoded = decode(images, tmp_path / "cache")
    assert decoded == 5
    np.testing.assert_array_equal(again, expected)


def test_an_image_that_vanished_leaves_no_file_that_looks_finished(images, tmp_path):
    (images.root / "3.png").unlink()
    with pytest.raises(PlmclError, match=r"3\.png: .*readable at ingest"):
        decode(images, tmp_path / "cache")
    assert list((tmp_path / "cache").glob("*.npy")) == []


def test_of_several_that_ask_at_once_one_decodes(images, tmp_path):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(decode(images, tmp_path / "cache")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(decoded for _, decoded in results) == [0, 0, 0, 5]
    for pixels, _ in results:
        np.testing.assert_array_equal(pixels, results[0][0])
