"""What an image becomes follows from the kind and the key alone, and is what is documented."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from plmcl.data.augmentation import augment

KINDS = ["none", "flip", "crop", "randaugment"]
CHANGING = ["crop", "randaugment"]


@pytest.fixture(scope="module")
def photo():
    """A wide image of noise: no two of its views look the same."""
    return np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)


def gradient(height, width):
    """Columns from 60 at the left to 180 at the right, all rows and channels alike."""
    levels = np.linspace(60, 180, width).round().astype(np.uint8)
    return np.broadcast_to(levels[None, :, None], (height, width, 3)).copy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1])
def test_the_same_key_gives_the_same_image_of_the_same_shape(photo, kind, key):
    before = photo.copy()
    first = augment(photo, kind, key)
    torch.manual_seed(key % 1000)
    assert first.shape == (24, 40, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(augment(photo, kind, key), first)
    np.testing.assert_array_equal(photo, before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_global_generator_and_the_threads_are_left_as_they_were(photo, kind):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        for key in range(5):
            augment(photo, kind, key)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("kind", CHANGING)
def test_other_keys_give_other_images(photo, kind):
    views = {augment(photo, kind, key).tobytes() for key in range(100)}
    # Two draws of RandAugment may coincide; a crop's numbers are continuous.
    assert len(views) >= {"crop": 100, "randaugment": 75}[kind]


def test_none_returns_the_same_pixels(photo):
    for key in (0, 1):
        np.testing.assert_array_equal(augment(photo, "none", key), photo)


def test_flip_mirrors_where_the_key_is_odd(photo):
    np.testing.assert_array_equal(augment(photo, "flip", 6), photo)
    np.testing.assert_array_equal(augment(photo, "flip", 7), photo[:, ::-1])


def test_crop_keeps_the_order_of_columns_or_mirrors_it():
    for key in range(60):
        levels = augment(gradient(32, 48), "crop", key).astype(int)
        steps = np.diff(levels[16, :, 0])
        assert (steps <= 0).all() if key % 2 else (steps >= 0).all()
        # Rows and channels were alike, and nothing that is done tells them apart.
        assert np.ptp(levels, axis=(0, 2)).max() <= 1


def test_crop_keeps_what_its_bounds_allow():
    widths = []
    for key in range(200):
        levels = augment(gradient(48, 48), "crop", key).astype(int)
        # Levels times .8 to 1.2, then up to 1.2 times as far from their mean, which is among them.
        low, high = 0.8 * 60, 1.2 * 180
        assert 1.2 * low - 0.2 * high <= levels.min() <= levels.max() <= 1.2 * high - 0.2 * low
        widths.append(np.ptp(levels))
    # The narrowest: .4 of the area at 3:4 is sqrt(.3) of the width; .8 * .8 of its contrast.
    assert min(widths) >= 120 * 0.3**0.5 * 0.64 - 4
    assert max(widths) <= 120 * 1.44 + 4
    # Neither the whole width nor one width each time.
    assert np.std(widths) > 5


def test_crop_scales_a_plain_colour_by_no_more_than_a_fifth():
    grays = {
        int(augment(np.full((8, 8, 3), 100, np.uint8), "crop", key).max()) for key in range(99)
    }
    assert min(grays) in range(79, 85)
    assert max(grays) in range(116, 121)


def test_randaugment_does_two_operations_of_fourteen():
    plain = np.full((32, 32, 3), 100, np.uint8)
    views = [augment(plain, "randaugment", key) for key in range(800)]
    # Only the five that move pixels (two shears, two shifts, rotation) bring in black edges:
    # 1 - (9/14)^2 = .587 of the pairs hold one. Four standard deviations are .07.
    moved = [np.ptp(view) > 0 for view in views]
    assert abs(np.mean(moved) - 0.587) < 0.07


def test_randaugment_works_at_magnitude_9_of_30():
    plain = np.full((32, 32, 3), 100, np.uint8)
    views = [augment(plain, "randaugment", key) for key in range(800)]
    levels = {int(view[0, 0, 0]) for view in views if np.ptp(view) == 0}
    # Brightness is times 1 -+ .9 * 9/30 = .73 or 1.27, once or twice; posterize keeps 7 bits.
    allowed = [100 * a * b for a in (1, 0.73, 1.27) for b in (1, 0.73, 1.27)]
    assert all(any(-2 <= level - exact <= 1 for exact in allowed) for level in levels)
    assert {72, 73} & levels
    assert {126, 127} & levels


def test_what_augments_nothing_does_not_wait_for_torchvision():
    """Its import takes two seconds, and every stage and command would pay them."""
    code = "import sys, plmcl.data.loading; sys.exit('torchvision' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
