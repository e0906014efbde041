"""From a file's bytes to an upright RGB picture, the one way that all of plmcl goes.

Only Pillow is imported: serving and the doctor's workers, which have to start fast, import this.
"""

import io
import stat
from pathlib import Path
from typing import NamedTuple, Protocol

from PIL import Image, ImageFile, UnidentifiedImageError

from plmcl.data.decoding.problems import NO_MEMORY, ImageProblem, diagnose

# Pillow knows 40 more formats, some of which start programs (EPS); a photo is one of these.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF")
MAX_BYTES = 1_000_000_000
# Of a progressive JPEG with as many pixels as are allowed; cameras and editors make ten.
MAX_SCANS = 50

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
_PHOTOMETRIC_TAG = 0x0106
_START_OF_SCAN = b"\xff\xda"

_COLOURS = {
    "1": "bilevel to RGB",
    "L": "grey to RGB",
    "LA": "grey to RGB",
    "P": "palette to RGB",
    "PA": "palette to RGB",
    "CMYK": "CMYK to RGB",
    "YCbCr": "YCbCr to RGB",
    "LAB": "LAB to RGB",
}


class Limits(Protocol):
    """What of a recipe (`images.Recipe`) says how a file is decoded."""

    @property
    def background(self) -> tuple[int, int, int]:
        """RGB that shows through transparent pixels."""

    @property
    def max_pixels(self) -> int:
        """Larger images are refused undecoded."""


class Decoded(NamedTuple):
    """A picture, and what had to be done to it.

    Attributes:
        image: RGB, all pixels decoded, upright.
        conversions: In words, in order; empty where the file's own pixels are these.
    """

    image: Image.Image
    conversions: tuple[str, ...]


def open_rgb(source: Path | bytes, recipe: Limits) -> Decoded:
    """Decode all of an image, turned as its EXIF says.

    Args:
        source: A file, or a file's content.
        recipe: Its background and pixel limit.

    Raises:
        ImageProblem: It cannot be used.
    """
    content = source if isinstance(source, bytes) else read_bytes(source)
    if not content:
        raise ImageProblem("empty", "empty file (0 bytes)")
    try:
        with _identify(content) as image:
            _refuse_excess(image, content, recipe.max_pixels)
            return _decode(image, recipe)
    except ImageProblem:
        raise
    except Exception as error:  # broken bytes make Pillow raise almost anything
        raise diagnose(error, content[:64], recipe.max_pixels) from error


def read_bytes(path: Path) -> bytes:
    """All of a regular file of at most `MAX_BYTES`, read at once.

    Raises:
        ImageProblem: It is something else, or cannot be read.
    """
    try:
        status = path.stat()
        # A pipe would be waited for, for ever.
        if not stat.S_ISREG(status.st_mode):
            raise ImageProblem("unreadable", "not a regular file")
        if status.st_size > MAX_BYTES:
            raise ImageProblem("too_large", f"{status.st_size} bytes; the limit is {MAX_BYTES}")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise ImageProblem("unreadable", getattr(error, "strerror", None) or str(error)) from error
    except MemoryError as error:
        raise ImageProblem("too_large", NO_MEMORY) from error


def _identify(content: bytes) -> ImageFile.ImageFile:
    try:
        return Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        # Pillow keeps to itself what the one reader that knows the first bytes had to say.
        for reader, knows in (Image.OPEN[name] for name in FORMATS):
            if knows is not None and knows(content[:16]) is True:
                reader(io.BytesIO(content), "")
        raise


def _refuse_excess(image: ImageFile.ImageFile, content: bytes, max_pixels: int) -> None:
    pixels = image.width * image.height
    if pixels > max_pixels:
        raise ImageProblem(
            "too_large",
            f"{image.width}x{image.height} pixels; the limit (image.max_pixels) is {max_pixels}",
        )
    if image.info.get("progressive"):
        # Each scan goes over all pixels again, and may be 50 bytes of a hostile file.
        scans = content.count(_START_OF_SCAN)
        if scans * pixels > MAX_SCANS * max_pixels:
            raise ImageProblem("too_large", f"{scans} scans of {image.width}x{image.height} pixels")


def _decode(image: ImageFile.ImageFile, recipe: Limits) -> Decoded:
    if _has_more_frames(image):
        raise ImageProblem(
            "animated", f"{_frames(image)}; save the one that is meant as its own file"
        )
    stored = _stored_as(image)
    _refuse_grey_that_pillow_misreads(image, stored)
    # Pillow turns a TIFF while it loads it, and forgets that it did.
    turned = _orientation(image) if image.format == "TIFF" else 1
    image.load()
    orientation = _orientation(image)
    upright = image.transpose(_TURNS[orientation]) if orientation > 1 else image
    rgb, conversions = _to_rgb(upright, stored, recipe.background)
    if turned > 1 or orientation > 1:
        conversions.insert(0, f"turned as EXIF says ({max(turned, orientation)})")
    return Decoded(rgb, tuple(conversions))


def _has_more_frames(image: ImageFile.ImageFile) -> bool:
    if image.format == "MPO":  # a phone's JPEG: behind the picture are a preview, a depth map ...
        return False
    try:
        if not getattr(image, "is_animated", False):
            return False
        if image.format == "TIFF":
            image.seek(1)  # where the header says that another follows there may be none
    except Exception:  # what follows the picture is no picture
        image.seek(0)
        return False
    return True


def _frames(image: ImageFile.ImageFile) -> str:
    # The time that Pillow takes to count a TIFF's pages grows with their square.
    count = "several" if image.format == "TIFF" else getattr(image, "n_frames", "several")
    return f"{count} frames"


def _stored_as(image: ImageFile.ImageFile) -> str:
    """Pillow's name of how a pixel lies in the file, such as "RGB;16B"."""
    arguments = image.tile[0].args if image.tile else None
    return str(arguments[0] if isinstance(arguments, tuple) else arguments)


def _refuse_grey_that_pillow_misreads(image: ImageFile.ImageFile, stored: str) -> None:
    if image.mode in ("I", "F"):
        raise ImageProblem(
            "unsupported", f"32-bit grey (mode {image.mode}); save it with 8 or 16 bits"
        )
    if stored == "I;12":
        raise ImageProblem("unsupported", "12-bit grey; save it with 8 or 16 bits")
    tags = getattr(image, "tag_v2", {})
    if image.mode.startswith("I;16") and tags.get(_PHOTOMETRIC_TAG) == 0:
        raise ImageProblem("unsupported", "16-bit grey where 0 is white; save it inverted")


def _orientation(image: ImageFile.ImageFile) -> int:
    """1 (upright) to 8, as in EXIF's table."""
    try:
        value = image.getexif().get(_ORIENTATION_TAG)
        return value if value in _TURNS else 1
    except Exception:  # an unreadable EXIF block says nothing about the pixels
        return 1


def _to_rgb(
    image: Image.Image, stored: str, background: tuple[int, int, int]
) -> tuple[Image.Image, list[str]]:
    if image.mode.startswith("I;16"):
        # Pillow's own conversion clips at 255: nearly everything would be white.
        first = 0 if image.mode == "I;16B" else 1
        upper = Image.frombytes("L", image.size, image.tobytes()[first::2])
        return upper.convert("RGB"), ["16-bit grey to 8 bits"]
    conversions = ["16 bits a channel to 8"] if ";16" in stored else []
    if image.mode == "CMYK" and image.info.get("adobe_transform") == 2:
        conversions.append("YCCK to RGB")
    elif image.mode in _COLOURS:
        conversions.append(_COLOURS[image.mode])
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        canvas = Image.new("RGB", rgba.size, background)
        canvas.paste(rgba, mask=rgba.getchannel("A"))
        return canvas, [*conversions, "alpha laid over the background"]
    return image if image.mode == "RGB" else image.convert("RGB"), conversions
