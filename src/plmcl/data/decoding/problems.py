"""Why a file cannot be used as an image: one status and one reason, in words for its owner."""

import re
import struct
from typing import Literal

from PIL import Image, UnidentifiedImageError

from plmcl.errors import PlmclError

Status = Literal[
    "empty", "not_an_image", "truncated", "too_large", "animated", "unsupported", "unreadable"
]
NO_MEMORY = "not enough memory to decode it"

_CUT = "cut off or damaged"
_BEGINS_LIKE: tuple[tuple[bytes, Status, str], ...] = (
    (
        rb"(\xef\xbb\xbf)?\s*(<!doctype|<!--|<html|<\?xml|<svg|<head|<body)",
        "not_an_image",
        "looks like HTML or XML",
    ),
    (rb"\x1f\x8b", "not_an_image", "a gzip archive, not an image"),
    (rb"PK\x03\x04", "not_an_image", "a zip archive, not an image"),
    (rb"Rar!|7z\xbc\xaf|\xfd7zXZ|BZh", "not_an_image", "an archive, not an image"),
    (rb"%PDF|%!PS|\xc5\xd0\xd3\xc6", "not_an_image", "a PDF or PostScript document"),
    (rb"version https://git-lfs", "not_an_image", "a Git LFS pointer: the file was not fetched"),
    (rb"\0{32}", "not_an_image", "begins with zeros only: it was never written, or not fetched"),
    (rb"....ftyp(hei|hev|mif|msf)", "unsupported", "HEIC; convert it to JPEG"),
    (rb"....ftyp(isom|iso2|mp4|M4V|qt)|\x1aE\xdf\xa3", "not_an_image", "a video"),
    (rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51", "unsupported", "JPEG 2000; convert it to JPEG"),
    (rb"\0\0\0\x0cJXL |\xff\x0a", "unsupported", "JPEG XL; convert it to JPEG"),
    (rb"8BPS", "unsupported", "a Photoshop document; convert it to JPEG"),
)
_BEGINS_LIKE_OURS = rb"....ftypavi|\xff\xd8|\x89PNG|RIFF....WEBP|GIF8|BM|II\*\x00|MM\x00\*"

# All that the readers of WebP, TIFF, AVIF, PNG and JPEG say of most files that are cut short.
_SAYS_CUT = re.compile(
    r"could not create decoder|missing dimensions|bmff parsing failed|broken PNG file \(chunk"
    r"|cannot load this image",
    re.I,
).search
_UNSUPPORTED = (
    "unsupported|not (yet )?supported|not available|cannot handle|conversion|"
    "unknown (pixel|compression)"
)


class ImageProblem(PlmclError):  # noqa: N818 (a finding, not a failure)
    """A file that cannot be used as an image; `str()` is the reason.

    Attributes:
        status: The kind of reason.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status


def diagnose(error: Exception, head: bytes, max_pixels: int) -> ImageProblem:
    """What an exception of Pillow's says of the file.

    Args:
        error: Raised while a file's content was decoded.
        head: Its first bytes.
        max_pixels: The limit, for the reason.
    """
    if isinstance(error, UnidentifiedImageError | SyntaxError):
        for pattern, status, reason in _BEGINS_LIKE:
            if re.match(pattern, head, re.DOTALL | re.IGNORECASE):
                return ImageProblem(status, reason)
    if isinstance(error, UnidentifiedImageError):
        if re.match(_BEGINS_LIKE_OURS, head, re.DOTALL):
            return ImageProblem("truncated", _CUT)
        return ImageProblem("not_an_image", "no image format that is known")
    text = " ".join(str(error).split())[:200] or type(error).__name__
    # The second stands for the first where warnings are errors.
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        size = text.split(", could be")[0]
        return ImageProblem("too_large", f"{size}; image.max_pixels is {max_pixels}")
    if isinstance(error, MemoryError) or "out of memory" in text:
        return ImageProblem("too_large", NO_MEMORY)
    if re.search("data too large|too much memory", text, re.I):  # text and profiles in a PNG
        return ImageProblem("too_large", text)
    # A reader that runs out of header raises one of these, and Pillow wraps it.
    ran_out = (EOFError, IndexError, struct.error)
    if isinstance(error, ran_out) or isinstance(error.__cause__, ran_out) or _SAYS_CUT(text):
        return ImageProblem("truncated", _CUT)
    if re.search("truncated|end of file|premature|incomplete", text, re.I):
        return ImageProblem("truncated", text)
    if re.search(_UNSUPPORTED, text, re.I):
        return ImageProblem("unsupported", text)
    if isinstance(error.__cause__, KeyError):
        return ImageProblem("unsupported", f"damaged, or of a kind that is not read: {text}")
    if text == "not identified by this driver":
        text = "its header names no pixels, or a kind of pixel that does not exist"
    return ImageProblem("unreadable", f"damaged: {text}")
