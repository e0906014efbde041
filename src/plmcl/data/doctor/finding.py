"""What one file is: its status, its bytes' hash, its size, and a hash of what it looks like.

Only Pillow is imported: the doctor's workers, which have to start fast, import this module.
"""

import hashlib
from operator import lt
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from plmcl.data.decoding import Limits, open_rgb, read_bytes
from plmcl.data.decoding.problems import ImageProblem

# Of the rules here and in `decoding`: raise it where a file may get another finding than before.
RULES = 1
# Grey levels between a thumbnail's darkest and lightest cell below which it shows next to nothing.
MIN_CONTRAST = 8

_SAMPLES = 512
_DIGITS = bytes.maketrans(b"\0\1", b"01")


class Finding(NamedTuple):
    """What is known of one file.

    Attributes:
        status: "ok", "converted", or why it cannot be used: an `images.Status`.
        reason: The status in words; "" where it is "ok".
        sha256: Of the file's bytes; "" where they were not read.
        dhash: `difference_hash` of the picture; "" where it cannot be used.
        width: In pixels, turned as EXIF says; 0 where it cannot be used.
        height: As `width`.
        bytes: Size of the file; 0 where even that is not known.
    """

    status: str
    reason: str
    sha256: str
    dhash: str
    width: int
    height: int
    bytes: int


def examine(path: Path, recipe: Limits) -> Finding:
    """Read and decode one file completely: a header that looks fine proves nothing."""
    try:
        content = read_bytes(path)
    except ImageProblem as problem:
        return Finding(problem.status, str(problem), "", "", 0, 0, _size(path))
    sha256, size = hashlib.sha256(content).hexdigest(), len(content)
    try:
        image, conversions = open_rgb(content, recipe)
        dhash = difference_hash(image)
    except ImageProblem as problem:
        return Finding(problem.status, str(problem), sha256, "", 0, 0, size)
    status = "converted" if conversions else "ok"
    return Finding(status, ", ".join(conversions), sha256, dhash, *image.size, size)


def difference_hash(image: Image.Image) -> str:
    """What a picture looks like, in 32 hex digits; few bits differ between copies of a picture.

    Of a grey thumbnail of 9 x 9 cells, a bit says of each cell of the upper left 8 x 8 whether the
    one to its right is lighter; 64 more bits say it of the one below.

    Args:
        image: RGB, any size.

    Returns:
        "" where the picture has next to no contrast: it looks like all the others that have none.
    """
    if max(image.size) > _SAMPLES:
        # Thousands of pixels give a cell its mean: a fifth of a large photo's time is saved.
        image = image.resize([min(side, _SAMPLES) for side in image.size], Image.Resampling.NEAREST)
    # Cells overlap (bilinear), so that a small crop changes few bits. The gap makes it four times
    # as fast: cells are averaged out of a smaller picture that is at least 4 x 9 wide and high.
    small = image.resize((9, 9), Image.Resampling.BILINEAR, reducing_gap=4).convert("L")
    cells = small.tobytes()
    if max(cells) - min(cells) < MIN_CONTRAST:
        return ""
    right, below = bytearray(map(lt, cells[:71], cells[1:])), bytearray(map(lt, cells, cells[9:]))
    # Comparisons of the ninth column: with the next row's first cell, or of no further use.
    del right[8::9], below[8::9]
    return f"{int((right + below).translate(_DIGITS), 2):032x}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
