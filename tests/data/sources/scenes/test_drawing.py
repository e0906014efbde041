import numpy as np
import pytest
from PIL import Image

from plmcl.data.sources.scenes.drawing import VISIBLE, draw_picture, place_glyphs
from plmcl.data.sources.scenes.glyphs import choose_glyphs


def masks(count):
    return [glyph.mask for glyph in choose_glyphs(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 6, 20])
def test_no_glyph_is_hidden_and_all_lie_inside(count):
    for seed in range(15):
        placed = place_glyphs(masks(count), size=128, rng=np.random.default_rng(seed))
        assert sorted(index for index, *_ in placed) == list(range(count))
        # the slow, obvious way: paint in order, then count what is left of each
        owner = np.full((128, 128), -1)
        drawn = {}
        for index, ink, left, top in placed:
            assert 0 <= left <= 128 - ink.width
            assert 0 <= top <= 128 - ink.height
            for y, x in np.argwhere(np.asarray(ink) > 64):
                owner[top + y, left + x] = index
            drawn[index] = int((np.asarray(ink) > 64).sum())
        for index, pixels in drawn.items():
            assert pixels > 0
            assert (owner == index).sum() >= VISIBLE * pixels


def test_sizes_go_from_small_to_half_the_picture():
    sizes = []
    for seed in range(200):
        ((_, ink, _, _),) = place_glyphs(masks(1), size=128, rng=np.random.default_rng(seed))
        left, top, right, bottom = ink.getbbox()
        sizes.append(max(right - left, bottom - top))
    assert 20 < min(sizes) < 40
    assert 60 < max(sizes) < 84  # 64 pixels, turned by up to 20 degrees


def test_a_picture_depends_on_its_generator_alone():
    def draw(seed, **options):
        options = {"size": 64, "clutter": 4} | options
        rng = np.random.default_rng(seed)
        return np.asarray(draw_picture(masks(3), [0.0, 0.3, 0.6], rng=rng, **options))

    np.testing.assert_array_equal(draw(5), draw(5))
    assert (draw(5) != draw(6)).any()
    assert draw(5).shape == (64, 64, 3)
    assert draw(5, size=100, clutter=0).shape == (100, 100, 3)


def test_a_glyph_can_be_told_from_its_background():
    # The same random numbers with ink and without: the two pictures differ where the glyph is.
    def draw(level, seed):
        mask = Image.new("L", (40, 40), level)
        rng = np.random.default_rng(seed)
        return np.asarray(draw_picture([mask], [0.5], size=96, clutter=4, rng=rng)).astype(int)

    for seed in range(30):
        difference = draw(255, seed) - draw(0, seed)
        there = np.abs(difference).sum(axis=2) > 20
        assert there.sum() > 100
        assert np.linalg.norm(difference[there].mean(axis=0)) > 50
