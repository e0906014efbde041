"""Pixels: one recipe from a file's bytes to a model's input, for training, evaluation and serving.

Only numpy and Pillow are imported: the serving side imports this module too.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from plmcl.data import MAX_PIXELS
from plmcl.data.decoding import Decoded as Decoded
from plmcl.data.decoding import open_rgb as open_rgb
from plmcl.data.decoding.problems import ImageProblem as ImageProblem
from plmcl.data.decoding.problems import Status as Status
from plmcl.errors import PlmclError


@dataclass(frozen=True)
class Recipe:
    """How an image file becomes a model's input; it travels inside an exported model.

    Attributes:
        size: Height and width in pixels; the aspect ratio is not kept.
        background: RGB that shows through transparent pixels.
        max_pixels: Larger images (width x height in the header) are refused undecoded; at most
            `MAX_PIXELS`.
        version: Of the rules in `decoding` and `images`; any change of a pixel raises it.
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
        if self.max_pixels > MAX_PIXELS:
            raise PlmclError(
                f"image recipe: max_pixels must be at most {MAX_PIXELS}, found {self.max_pixels}"
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


def load(source: Path | bytes, recipe: Recipe) -> np.ndarray:
    """Decode and stretch to the model's size: uint8 (size, size, 3) RGB.

    Raises:
        ImageProblem: It cannot be used.
    """
    image = open_rgb(source, recipe).image
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
    return np.array(open_rgb(source, recipe).image)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
