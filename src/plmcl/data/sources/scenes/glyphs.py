"""Glyphs of the DejaVu Sans font that matplotlib ships, chosen to look different."""

import importlib.util
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from plmcl.errors import PlmclError

# What a few labels are drawn from: pictograms that nobody takes for one another.
_FIRST = "☂✈♞❄⚓☎♥⚙☠♫☘✂☕☀⚖♛✿☾★✉⚔☯♣☢⚑☁⚛♿☃⚗♨✎⌘♜☮☄⚜☣☸♻⚡✌⌨☝✇⌂☺♠⛀☙⚕⚒♿☤⛃"
# Then whole blocks of Unicode, pictures before letters.
_BLOCKS = (
    (0x2600, 0x2623),  # miscellaneous symbols, without those of faiths and parties
    (0x262E, 0x27BF),  # more of them, dingbats
    (0x1F600, 0x1F64F),  # faces
    (0x2300, 0x23FF),  # technical
    (0x25A0, 0x25FF),  # geometric shapes
    (0x2B00, 0x2BFF),  # more shapes
    (0x0030, 0x007A),  # digits, Latin
    (0x0391, 0x03FF),  # Greek
    (0x0400, 0x052F),  # Cyrillic
    (0x0531, 0x0587),  # Armenian
    (0x10A0, 0x10FF),  # Georgian
    (0x2190, 0x22FF),  # arrows, mathematics
    (0x0E81, 0x0EDF),  # Lao
    (0x2D00, 0x2D7F),  # Georgian, Tifinagh
    (0x1400, 0x167F),  # Canadian syllabics
    (0x1F030, 0x1F0FF),  # dominoes, playing cards
    (0x0600, 0x06FF),  # Arabic
    (0x00A1, 0x02AF),  # Latin with marks, phonetics
    (0xA4D0, 0xA4FF),  # Lisu
    (0x07C0, 0x07FF),  # N'Ko
    (0x4DC0, 0x4DFF),  # hexagrams
    (0x2800, 0x28FF),  # Braille
)
MASK_SIZE = 160  # longest side of a mask, in pixels
_SKETCH_SIZE = 24
# Cosine similarity of two sketches from which on two glyphs count as the same picture.
_SAME = 0.88


@dataclass(frozen=True)
class Glyph:
    """A character that a label is drawn as.

    Attributes:
        name: Its Unicode name in lower case.
        mask: Its ink, 0..255, cropped; the longest side is `MASK_SIZE` pixels.
    """

    name: str
    mask: Image.Image


@cache
def choose_glyphs(count: int) -> tuple[Glyph, ...]:
    """Choose the first `count` glyphs of a fixed order, no two of which look alike.

    Raises:
        PlmclError: The font does not hold that many.
    """
    chosen: list[Glyph] = []
    sketches = np.zeros((0, _SKETCH_SIZE**2), dtype=np.float32)
    for glyph in _candidates():
        if len(chosen) == count:
            break
        sketch = _sketch(glyph.mask)
        if (sketches @ sketch < _SAME).all():
            chosen.append(glyph)
            sketches = np.vstack([sketches, sketch])
    if len(chosen) < count:
        raise PlmclError(
            f"sources.scenes.labels: the font has {len(chosen)} glyphs that look different, "
            f"found {count}"
        )
    return tuple(chosen)


def _candidates() -> Iterator[Glyph]:
    font = ImageFont.truetype(_font_path(), MASK_SIZE, layout_engine=ImageFont.Layout.BASIC)
    missing = _mask(font, "\U0010ffff")
    assert missing is not None
    characters = [*_FIRST, *(chr(code) for a, b in _BLOCKS for code in range(a, b + 1))]
    for character in dict.fromkeys(characters):
        name = unicodedata.name(character, "").lower()
        # Marks, spaces and control characters draw nothing of their own.
        if not name or unicodedata.category(character)[0] in "MZC":
            continue
        mask = _mask(font, character)
        if mask is not None and mask.tobytes() != missing.tobytes():
            yield Glyph(name, mask)


def _mask(font: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    left, top, right, bottom = (round(edge) for edge in font.getbbox(character))
    canvas = Image.new("L", (max(right - left, 1), max(bottom - top, 1)))
    ImageDraw.Draw(canvas).text((-left, -top), character, fill=255, font=font)
    box = canvas.getbbox()
    if box is None:
        return None
    ink = canvas.crop(box)
    scale = MASK_SIZE / max(ink.size)
    size = (max(1, round(ink.width * scale)), max(1, round(ink.height * scale)))
    return ink.resize(size, Image.Resampling.BICUBIC)


def _sketch(mask: Image.Image) -> np.ndarray:
    # centred, small and of unit length: size does not tell labels apart, as pictures vary it
    square = Image.new("L", (MASK_SIZE, MASK_SIZE))
    square.paste(mask, ((MASK_SIZE - mask.width) // 2, (MASK_SIZE - mask.height) // 2))
    small = np.asarray(square.resize((_SKETCH_SIZE, _SKETCH_SIZE), Image.Resampling.BOX))
    sketch = small.astype(np.float32).ravel()
    return sketch / np.linalg.norm(sketch)


def _font_path() -> Path:
    # found without importing matplotlib, which takes longer than drawing does
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise PlmclError("sources.scenes: needs matplotlib, which ships the font")
    return Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
