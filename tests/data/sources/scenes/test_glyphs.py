import itertools
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from PIL import Image

from plmcl.data.sources.scenes.glyphs import MASK_SIZE, choose_glyphs
from plmcl.errors import PlmclError


def test_the_first_glyphs_have_names_that_people_use():
    names = [glyph.name for glyph in choose_glyphs(12)]
    assert names[:5] == ["umbrella", "airplane", "black chess knight", "snowflake", "anchor"]
    assert len(set(names)) == 12


def test_five_hundred_glyphs_exist_in_the_font_and_no_two_draw_alike():
    glyphs = choose_glyphs(500)
    assert len({glyph.name for glyph in glyphs}) == 500
    assert len({glyph.mask.tobytes() for glyph in glyphs}) == 500
    import matplotlib

    path = Path(matplotlib.__file__).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    has = TTFont(path).getBestCmap()
    assert all(ord(unicodedata.lookup(glyph.name)) in has for glyph in glyphs)


def test_glyphs_differ_even_when_they_are_small():
    # the slow, obvious way: every pair, at 16 pixels, must differ in a fair share of the ink
    pictures = []
    for glyph in choose_glyphs(60):
        square = Image.new("L", (MASK_SIZE, MASK_SIZE))
        square.paste(
            glyph.mask, ((MASK_SIZE - glyph.mask.width) // 2, (MASK_SIZE - glyph.mask.height) // 2)
        )
        pictures.append(np.asarray(square.resize((16, 16))).astype(float) / 255)
    for a, b in itertools.combinations(pictures, 2):
        assert np.abs(a - b).sum() > 0.2 * max(a.sum(), b.sum())


def test_masks_are_cropped_to_their_ink():
    for glyph in choose_glyphs(20):
        assert max(glyph.mask.size) == MASK_SIZE
        assert np.asarray(glyph.mask).max() > 200


def test_more_labels_only_add_to_the_list():
    few, many = choose_glyphs(7), choose_glyphs(40)
    assert [glyph.name for glyph in many[:7]] == [glyph.name for glyph in few]


@pytest.mark.slow
def test_too_many_labels_are_refused_with_the_maximum():
    with pytest.raises(
        PlmclError, match=r"labels: the font has (\d+) glyphs .* found 100000"
    ) as caught:
        choose_glyphs(100_000)
    most = int(str(caught.value).split("has ")[1].split()[0])
    assert most >= 500


def test_matplotlib_is_not_imported():
    code = (
        "import sys; from plmcl.data.sources.scenes.glyphs import choose_glyphs; choose_glyphs(3); "
        "print('matplotlib' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert output.stdout.strip() == "False"
