"""Pixels: one recipe from a file's bytes to a model's input, for training, evaluation and serving.

Only numpy and Pillow are imported: the serving side imports this module too.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from plmcl.errors import PlmclError

Status = Literal["empty", "not_an_image", "truncated", "too_large", "unsupported", "unreadable"]

# Pillow knows 40 more formats, some of which start programs (EPS); a photo is one of these.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF")

_CUT = "cut off or damaged"
_BEGINS_LIKE: tuple[tuple[bytes, Status, str], ...] = (
    (rb"\s*(<!doctype|<html|<\?xml|<svg|<head|<body)", "not_an_image", "looks like HTML or XML"),
    (rb"\x1f\x8b", "not_an_image", "a gzip archive, not an image"),
    (rb"PK\x03\x04", "not_an_image", "a zip archive, not an image"),
    (rb"%PDF|%!PS", "not_an_image", "a PDF or PostScript document"),
    (rb"version https://git-lfs", "not_an_image", "a Git LFS pointer: the file was not fetched"),
    (rb"....ftyp(hei|hev|mif|msf)", "unsupported", "HEIC; convert it to JPEG"),
    (rb"....ftypavi", "truncated", _CUT),
    (rb"\xff\xd8|\x89PNG|RIFF....WEBP|GIF8|BM|II\*\x00|MM\x00\*", "truncated", _CUT),
)

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION_TAG = 0x0112


@dataclass(frozen=True)
class Recipe:
    """How an image file becomes a model's input; it travels inside an exported model.

    Attributes:
        size: Height and width in pixels; the aspect ratio is not kept.
        background: RGB that shows through transparent pixels.
        max_pixels: Larger images (width x height in the header) are refused undecoded.
        version: Of the rules in this module; any change of a pixel raises it.
    """

    size: int
    background: tuple[int, int, int]
    max_pixels: int
    version: int = 1

    def __post_init__(self) -> None:
        """Refuse values that no image can be made with; a model file may be from anywhere."""
        if not (_is_integer(self.version) and self.version == 1):
            raise PlmclError(f"image recipe: version {self.version!r} is not known, only 1 is")
        for name in ("size", "max_pixels"):
            if not (_is_integer(getattr(self, name)) and getattr(self, name) >= 1):
                raise PlmclError(
                    f"image recipe: {name} must be a whole number of at least 1, "
                    f"found {getattr(self, name)!r}"
                )
        levels = self.background
        if not (
            isinstance(levels, tuple)
            and len(levels) == 3
            and all(_is_integer(level) and 0 <= level <= 255 for level in levels)
        ):
            raise PlmclError(
                f"image recipe: background must be three whole numbers in 0..255, found {levels!r}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON keeps."""
        return asdict(self) | {"background": list(self.background)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Undo `to_dict`, refusing a version, a key or a value that this code does not know."""
        known = {field.name for field in fields(cls)}
        wrong = sorted(known ^ set(values))
        if wrong:
            raise PlmclError(f"image recipe: unknown or missing key: {', '.join(wrong)}")
        background = values["background"]
        return cls(
            size=values["size"],
            background=tuple(background) if isinstance(background, list) else background,
            max_pixels=values["max_pixels"],
            version=values["version"],
        )


class ImageProblem(PlmclError):  # noqa: N818 (a finding, not a failure)
    """A file that cannot be used as an image; `str()` is the reason.

    Attributes:
        status: The kind of reason.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status


def load(source: Path | bytes, recipe: Recipe) -> np.ndarray:
    """Decode and stretch to the model's size: uint8 (size, size, 3) RGB.

    Raises:
        ImageProblem: It cannot be used.
    """
    image = _open_rgb(source, recipe)
    # Pillow's bilinear filter covers all source pixels when it shrinks (antialias).
    return np.array(image.resize((recipe.size, recipe.size), Image.Resampling.BILINEAR))


def decode(source: Path | bytes, recipe: Recipe) -> np.ndarray:
    """Decode all of an image, turned as its EXIF says: uint8 (H, W, 3) RGB.

    Args:
        source: A file, or a file's content.
        recipe: Its background and pixel limit apply, its size does not.

    Raises:
        ImageProblem: It cannot be used.
    """
    return np.array(_open_rgb(source, recipe))


def _open_rgb(source: Path | bytes, recipe: Recipe) -> Image.Image:
    head = b""
    try:
        if isinstance(source, Path) and source.exists() and not source.is_file():
            raise ImageProblem("unreadable", "not a regular file")
        with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as file:
            head = file.read(64)
            if not head:
                raise ImageProblem("empty", "empty file (0 bytes)")
            # Image.open goes back to the start by itself.
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > recipe.max_pixels:
                    raise ImageProblem(
                        "too_large",
                        f"{image.width}x{image.height} pixels; the limit (image.max_pixels) is "
                        f"{recipe.max_pixels}",
                    )
                image.load()
                return _to_rgb(_oriented(image), recipe.background)
    except ImageProblem:
        raise
    except Exception as error:  # broken bytes make Pillow raise almost anything
        raise _problem(error, head, recipe) from error


def _oriented(image: Image.Image) -> Image.Image:
    try:
        turn = _TURNS.get(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # an unreadable EXIF block says nothing about the pixels
        turn = None
    return image if turn is None else image.transpose(turn)


def _to_rgb(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    if image.mode.startswith("I;16"):
        # Pillow's own conversion clips at 255: nearly everything would be white.
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ImageProblem(
            "unsupported", f"32-bit grey (mode {image.mode}); save it with 8 or 16 bits"
        )
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        canvas = Image.new("RGB", rgba.size, background)
        canvas.paste(rgba, mask=rgba.getchannel("A"))
        return canvas
    return image.convert("RGB")


def _problem(error: Exception, head: bytes, recipe: Recipe) -> ImageProblem:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        return ImageProblem("unreadable", error.strerror or text)
    if isinstance(error, UnidentifiedImageError):
        for pattern, status, reason in _BEGINS_LIKE:
            if re.match(pattern, head, re.DOTALL | re.IGNORECASE):
                return ImageProblem(status, reason)
        return ImageProblem("not_an_image", "no image format that is known")
    # The second stands for the first where warnings are errors.
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        size = text.split(", could be")[0]
        return ImageProblem("too_large", f"{size}; image.max_pixels is {recipe.max_pixels}")
    if isinstance(error, MemoryError):
        return ImageProblem("too_large", "not enough memory to decode it")
    if isinstance(error, EOFError) or re.search("truncated|end of file|premature", text, re.I):
        return ImageProblem("truncated", text)
    if "could not create decoder" in text:  # all that WebP's decoder says of a file cut short
        return ImageProblem("truncated", _CUT)
    if re.search("unsupported|not supported|not available|unknown|conversion", text, re.I):
        return ImageProblem("unsupported", text)
    return ImageProblem("unreadable", f"damaged: {text}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
