"""Draws a made-up picture: glyphs somewhere on a cluttered background."""

import colorsys
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageStat

Colour = tuple[int, int, int]

_SMALLEST, _LARGEST = 0.30, 0.55  # of a glyph's longest side, as a share of the picture's
_TURN = 20.0  # degrees; more would make one arrow of another
VISIBLE = 0.7  # share of a glyph's ink that later glyphs leave alone
_INK = 64  # level from which on a pixel of a mask counts as ink
_TRIES = 60  # to find a place, at a size that shrinks a little each time
_SHRINK = 0.97
_NO_SMALLER = 8.0  # pixels
_CONTRAST = 140.0  # of a glyph's colour and the mean below it: distance in RGB, 0..442
_OWN_HUE = 0.85  # how often a glyph has the hue of its kind
_FINE = 2  # shapes are drawn this many times larger, so that their edges are smooth


def draw_picture(
    masks: Sequence[Image.Image],
    hues: Sequence[float],
    *,
    size: int,
    clutter: int,
    rng: np.random.Generator,
) -> Image.Image:
    """Draw glyphs, each once, at random sizes, angles, colours and places.

    They may overlap in part; none hides another.

    Args:
        masks: Their ink (mode L).
        hues: The hue, in [0, 1), that each has more often than not.
        size: Height and width of the picture, in pixels.
        clutter: Number of strokes, shapes and blobs that mean nothing; a quarter of them are
            strokes over the glyphs.
        rng: All randomness comes from it.
    """
    picture = _background(size, rng)
    in_front = clutter // 4
    for _ in range(clutter - in_front):
        _add_shape(picture, rng)
    for index, ink, left, top in place_glyphs(masks, size=size, rng=rng):
        box = (left, top, left + ink.width, top + ink.height)
        colour = _contrasting(picture.crop(box), hues[index], rng)
        picture.paste(colour, box, _faded(ink, rng.uniform(0.85, 1.0)))
    for _ in range(in_front):
        _add_stroke(picture, rng, thickest=0.012)
    grain = rng.standard_normal((size, size, 1), dtype=np.float32) * np.float32(rng.uniform(1, 4))
    return Image.fromarray((np.asarray(picture) + grain).clip(0, 255).astype(np.uint8))


def place_glyphs(
    masks: Sequence[Image.Image], *, size: int, rng: np.random.Generator
) -> list[tuple[int, Image.Image, int, int]]:
    """Give each glyph a size, an angle and a place inside the picture.

    Returns:
        (index of the mask, its ink as drawn, left, top), in the order of drawing: what comes
        later leaves `VISIBLE` of the ink of everything before it, unless there is no room at all.
    """
    owner = np.full((size, size), -1)  # the glyph that is on top there
    visible, drawn = np.zeros((2, len(masks)), dtype=np.int64)  # pixels of ink
    crowd = min(1.0, math.sqrt(4 / max(1, len(masks))))
    placed = []
    for index in map(int, rng.permutation(len(masks))):
        longest = size * crowd * _SMALLEST * (_LARGEST / _SMALLEST) ** rng.uniform()
        squeeze, angle = rng.uniform(0.8, 1.25), rng.uniform(-_TURN, _TURN)
        for _ in range(_TRIES):
            ink = _turned(masks[index], longest, squeeze, angle)
            left = int(rng.integers(0, size - ink.width + 1))
            top = int(rng.integers(0, size - ink.height + 1))
            there = owner[top : top + ink.height, left : left + ink.width]
            covered = np.asarray(ink) > _INK
            rest = visible - np.bincount(there[covered] + 1, minlength=len(masks) + 1)[1:]
            if (rest >= VISIBLE * drawn).all():
                break
            longest = max(longest * _SHRINK, _NO_SMALLER)
        there[covered] = index
        visible = rest
        visible[index] = drawn[index] = covered.sum()
        placed.append((index, ink, left, top))
    return placed


def _turned(mask: Image.Image, longest: float, squeeze: float, angle: float) -> Image.Image:
    scale = longest / max(mask.size)
    width = max(3, round(mask.width * scale * min(squeeze, 1.0)))
    height = max(3, round(mask.height * scale / max(squeeze, 1.0)))
    small = mask.resize((width, height), Image.Resampling.BILINEAR)
    return small.rotate(angle, Image.Resampling.BICUBIC, expand=True)


def _background(size: int, rng: np.random.Generator) -> Image.Image:
    first, second = (np.array(_colour(rng, (0.0, 0.5)), dtype=np.float32) for _ in range(2))
    angle = rng.uniform(0, 2 * np.pi)
    along = np.linspace(-0.5, 0.5, size, dtype=np.float32)
    ramp = math.cos(angle) * along[None, :] + math.sin(angle) * along[:, None] + np.float32(0.5)
    levels = first + (second - first) * ramp.clip(0, 1)[:, :, None]
    for cells in (3, 9):
        coarse = rng.standard_normal((cells, cells), dtype=np.float32)
        coarse *= np.float32(rng.uniform(5.0, 30.0))
        smooth = Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)
        levels += np.asarray(smooth)[:, :, None]
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def _add_shape(picture: Image.Image, rng: np.random.Generator) -> None:
    kind = rng.integers(0, 3)
    if kind == 0:
        _add_stroke(picture, rng, thickest=0.05)
        return
    size = picture.width
    radius = size * rng.uniform(0.04, 0.28)
    corners = int(rng.integers(3, 8)) if kind == 1 else 24
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False) + rng.uniform(0, 2 * np.pi)
    reach = np.full(corners, radius)
    if kind == 2:  # a blob: a circle with a few waves on it
        for waves in (2, 3, 5):
            reach *= 1 + rng.uniform(0, 0.25) * np.cos(waves * angles + rng.uniform(0, 2 * np.pi))
    centre = rng.uniform(0, size, 2)
    stretch = rng.uniform(0.5, 1.0)
    xs = centre[0] + reach * np.cos(angles)
    ys = centre[1] + stretch * reach * np.sin(angles)
    points = [(float(x) * _FINE, float(y) * _FINE) for x, y in zip(xs, ys, strict=True)]
    mask = Image.new("L", (size * _FINE, size * _FINE))
    draw = ImageDraw.Draw(mask)
    if rng.uniform() < 0.6:
        draw.polygon(points, fill=255)
    else:
        draw.line([*points, points[0]], fill=255, width=max(2, round(0.03 * size * _FINE)))
    _paste(picture, mask, rng)


def _add_stroke(picture: Image.Image, rng: np.random.Generator, *, thickest: float) -> None:
    # a quadratic curve; `thickest` is a share of the picture's width
    size = picture.width
    start, bend, end = rng.uniform(-0.1 * size, 1.1 * size, (3, 2))
    t = np.linspace(0, 1, 16)[:, None]
    curve = (1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * end
    width = max(1.0, size * rng.uniform(0.3, 1.0) * thickest)
    mask = Image.new("L", (size * _FINE, size * _FINE))
    points = [(float(x) * _FINE, float(y) * _FINE) for x, y in curve]
    ImageDraw.Draw(mask).line(points, fill=255, width=round(width * _FINE), joint="curve")
    _paste(picture, mask, rng)


def _paste(picture: Image.Image, mask: Image.Image, rng: np.random.Generator) -> None:
    small = _faded(mask.reduce(_FINE), rng.uniform(0.35, 0.95))
    colour = _colour(rng, (0.0, 0.7))
    box = small.getbbox()
    if box is not None:  # else it lies outside the picture
        picture.paste(colour, box, small.crop(box))


def _faded(ink: Image.Image, opacity: float) -> Image.Image:
    return Image.blend(Image.new("L", ink.size), ink, opacity)


def _colour(
    rng: np.random.Generator, saturation: tuple[float, float], hue: float | None = None
) -> Colour:
    turn = rng.uniform() if hue is None else hue
    red, green, blue = colorsys.hsv_to_rgb(turn, rng.uniform(*saturation), rng.uniform(0.15, 1.0))
    return round(255 * red), round(255 * green), round(255 * blue)


def _contrasting(under: Image.Image, hue: float, rng: np.random.Generator) -> Colour:
    # a colour, often of the given hue, that can be told from what lies under it
    mean = ImageStat.Stat(under).mean
    best: Colour = (0, 0, 0)
    distance = -1.0
    for _ in range(8):
        own = rng.uniform() < _OWN_HUE
        colour = _colour(rng, (0.5, 1.0), hue + rng.normal(0, 0.04) if own else None)
        away = math.dist(colour, mean)
        if away > distance:
            best, distance = colour, away
        if distance >= _CONTRAST:
            break
    return best
