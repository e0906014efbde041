"""Files that break other tools, or look as if they would: what each is, and what must come of it.

`HOSTILE` is the table; docs/inputs.md shows it.
"""

import base64
import gzip
import os
import re
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from data import image_bytes as made
from data.image_bytes import Content, as_, encoded, frames, half, jpeg, png, turned
from PIL import Image

Put = Callable[[Path, Image.Image], None]


class Hostile(NamedTuple):
    """One file.

    Attributes:
        kind: A heading.
        path: Below the folder.
        what: In plain words.
        put: Makes it, given its path and a picture of its own.
        status: That it must get.
        reason: All of the reason; `...` stands for any text.
    """

    kind: str
    path: str
    what: str
    put: Put
    status: str
    reason: str

    @property
    def listed(self) -> str:
        """The path as it is shown: bytes that are not UTF-8 as \\xNN."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    @property
    def pattern(self) -> str:
        """A regular expression for the reason."""
        return ".*".join(map(re.escape, self.reason.split("...")))


def build(folder: Path) -> None:
    """Make all that can be made in a new folder; a picture that one links to lies beside it."""
    folder.mkdir()
    (folder.parent / "outside.jpg").write_bytes(jpeg(made.drawn(1)))
    for row in POSSIBLE:
        path = folder / row.path
        path.parent.mkdir(parents=True, exist_ok=True)
        row.put(path, made.drawn(zlib.crc32(os.fsencode(row.path))))


def link_to(target: str) -> Put:
    """A symbolic link."""
    return lambda path, picture: path.symlink_to(target)


def locked(path: Path, picture: Image.Image) -> None:
    """A good image that nobody may read."""
    path.write_bytes(jpeg(picture))
    path.chmod(0)


def pipe(path: Path, picture: Image.Image) -> None:
    """Whoever opens it waits for ever."""
    os.mkfifo(path)


def plug(path: Path, picture: Image.Image) -> None:
    """A socket."""
    folder = os.open(path.parent, os.O_RDONLY)  # its path may be too long for an address
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def sparse(path: Path, picture: Image.Image) -> None:
    """2 GB that take no room on the disk, behind a good image."""
    path.write_bytes(jpeg(picture))
    os.truncate(path, 2_000_000_000)


def _written(content: bytes | Content) -> Put:
    def put(path: Path, picture: Image.Image) -> None:
        path.write_bytes(content if isinstance(content, bytes) else content(picture))

    return put


# Kind -> (path, what it is, its content, status, reason)
_CONTENTS: dict[str, list[tuple[str, str, bytes | Content, str, str]]] = {
    "Called an image, and none": [
        ("empty.jpg", "0 bytes", b"", "empty", "empty file (0 bytes)"),
        ("page.jpg", "the page of an error 404, saved as a photo", b"<html>404 Not Found</html>",
         "not_an_image", "looks like HTML or XML"),
        ("comment.png", "such a page behind blank lines and a comment",
         b"\r\n\r\n <!-- moved --><!DOCTYPE html>", "not_an_image", "looks like HTML or XML"),
        ("drawing.png", "an SVG whose entity is a file of this machine",
         b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
         b'<svg>&x;</svg>',
         "not_an_image", "looks like HTML or XML"),
        ("answer.jpg", "a service's answer in place of a photo", b'{"error": "no such key"}',
         "not_an_image", "no image format that is known"),
        ("base64.jpg", "a JPEG as base64 text",
         lambda picture: b"data:image/jpeg;base64," + base64.b64encode(jpeg(picture)),
         "not_an_image", "no image format that is known"),
        ("packed.jpg", "a JPEG, compressed with gzip", lambda picture: gzip.compress(jpeg(picture)),
         "not_an_image", "a gzip archive, not an image"),
        ("archive.jpg", "a zip with a JPEG in it", made.zipped,
         "not_an_image", "a zip archive, not an image"),
        ("paper.jpg", "a PDF", as_("PDF"), "not_an_image", "a PDF or PostScript document"),
        ("print.jpg", "an EPS that would have Ghostscript start a program",
         b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%touch ran) (w) file\n",
         "not_an_image", "a PDF or PostScript document"),
        ("pointer.jpg", "a Git LFS pointer whose file was not fetched",
         b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n",
         "not_an_image", "a Git LFS pointer: the file was not fetched"),
        ("zeros.jpg", "4,096 zero bytes, as a broken download leaves them", bytes(4096),
         "not_an_image", "begins with zeros only: it was never written, or not fetched"),
        ("fork.jpg", "a Mac's resource fork under a plain name",
         b"\0\x05\x16\x07\0\x02\0\0Mac OS X        ",
         "not_an_image", "no image format that is known"),
        ("film.jpg", "an MP4 video", b"\0\0\0\x18ftypisom\0\0\2\0isomiso2",
         "not_an_image", "a video"),
        ("program.png", "a Windows program", b"MZ\x90\0\3\0\0\0\4\0\0\0\xff\xff",
         "not_an_image", "no image format that is known"),
        ("phone.jpg", "HEIC called .jpg", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",
         "unsupported", "HEIC; convert it to JPEG"),
        ("waves.jpg", "JPEG 2000 called .jpg", as_("JPEG2000"),
         "unsupported", "JPEG 2000; convert it to JPEG"),
        ("xl.jpg", "JPEG XL called .jpg", b"\xff\x0a\xfa\x7f\x01\x90\x08",
         "unsupported", "JPEG XL; convert it to JPEG"),
        ("layers.png", "a Photoshop document", b"8BPS\0\1\0\0\0\0\0\0\0\3",
         "unsupported", "a Photoshop document; convert it to JPEG"),
        ("icon.png", "an .ico, a format that is Pillow's and not ours", as_("ICO"),
         "not_an_image", "no image format that is known"),
        ("plain.bmp", "a PPM, likewise", as_("PPM"),
         "not_an_image", "no image format that is known"),
    ],
    "Cut off or damaged": [
        ("half.jpg", "half a JPEG, which Pillow's verify passes", half(jpeg),
         "truncated", "Truncated File Read"),
        ("half.png", "half a PNG", half(png), "truncated", "cut off or damaged"),
        ("half.webp", "half a WebP", half(as_("WEBP")), "truncated", "cut off or damaged"),
        ("half.gif", "half a GIF", half(as_("GIF")), "truncated", "image file is truncated..."),
        ("half.tif", "half a TIFF", half(as_("TIFF")), "truncated", "image file is truncated..."),
        ("half.bmp", "half a BMP", half(as_("BMP")), "truncated", "image file is truncated..."),
        ("half.avif", "half an AVIF", half(as_("AVIF")),
         "truncated", "Failed to decode image: Truncated data"),
        ("end.jpg", "a JPEG without its last two bytes", lambda picture: jpeg(picture)[:-2],
         "truncated", "image file is truncated..."),
        ("finest.jpg", "a progressive JPEG without the end of its finest scan",
         lambda picture: encoded(picture, "JPEG", progressive=True)[:-40],
         "truncated", "image file is truncated..."),
        ("begin.jpg", "a JPEG's first two bytes", b"\xff\xd8", "truncated", "cut off or damaged"),
        ("begin.png", "a PNG's first eight bytes", made.PNG_BEGIN,
         "truncated", "cut off or damaged"),
        ("begin.gif", "a GIF's first six bytes", b"GIF89a", "truncated", "cut off or damaged"),
        ("header.webp", "a WebP of a header alone", made.webp_header(48, 32),
         "truncated", "cut off or damaged"),
        ("header.jpg", "a JPEG of a header alone",
         lambda picture: jpeg(picture).partition(b"\xff\xda")[0],
         "truncated", "cut off or damaged"),
        ("rows.tif", "a TIFF that says it has ten times its rows",
         made.grey_tiff(48, 320, bytes(48 * 32)), "truncated", "image file is truncated..."),
        ("columns.png", "a PNG that says it is ten times as wide", made.png_saying(480, 32),
         "unreadable", "damaged: unrecognized data stream..."),
        ("checksum.png", "a PNG whose header has a wrong checksum", made.png_flipped(29),
         "unreadable", "damaged: ...bad header checksum..."),
        ("bit.png", "a PNG with one other bit among its pixels", made.png_flipped(-60),
         "unreadable", "damaged: broken data stream..."),
        ("tables.jpg", "a JPEG without its quantisation tables",
         lambda picture: made.without_segments(jpeg(picture), 0xDB),
         "unreadable", "damaged: broken data stream..."),
        ("nothing.png", "a PNG 0 pixels wide", made.raw_png(0, 5, b""),
         "unreadable", "damaged: its header names no pixels..."),
        ("nothing.gif", "a GIF without a frame", b"GIF89a" + bytes(7) + b";",
         "truncated", "cut off or damaged"),
        ("lost.tif", "a TIFF whose directory lies behind its end", b"II*\0\xff\xff\0\0",
         "truncated", "cut off or damaged"),
        ("coding.jpg", "a JPEG that says it is of the kind without loss", made.jpeg_frame(1, 0xC3),
         "unreadable", "damaged: broken data stream..."),
        ("twelve.jpg", "a JPEG that says it has 12 bits", made.jpeg_frame(4, 12),
         "unsupported", "cannot handle 12-bit layers"),
    ],
    "Small files that would become large": [
        ("bomb.png", "a PNG of 60 bytes that says 20,000 x 20,000",
         made.raw_png(20_000, 20_000, b""),
         "too_large", "Image size (400000000 pixels)...image.max_pixels is 50000000"),
        ("large.png", "a PNG that says 8,000 x 8,000, which Pillow would take",
         made.raw_png(8000, 8000, b""),
         "too_large", "8000x8000 pixels; the limit (image.max_pixels) is 50000000"),
        ("bomb.jpg", "a JPEG that says 65,500 x 65,500", made.jpeg_frame(5, 255, 220, 255, 220),
         "too_large", "Image size (4290250000 pixels)...image.max_pixels is 50000000"),
        ("bomb.gif", "a GIF of one pixel on a screen of 65,535 x 65,535",
         made.gif_screen(65_535, 65_535), "too_large", "Image size...image.max_pixels is 50000000"),
        ("bomb.bmp", "a BMP that says -5 pixels wide", made.bmp_header(-5, 5),
         "too_large", "Image size...image.max_pixels is 50000000"),
        ("bomb.tif", "a TIFF that says 100,000 x 100,000",
         made.grey_tiff(100_000, 100_000, bytes(9)),
         "too_large", "Image size (10000000000 pixels)...image.max_pixels is 50000000"),
        ("bomb.webp", "a WebP that says 16,000 x 16,000", made.webp_header(16_000, 16_000),
         "too_large", "Image size (256000000 pixels)...image.max_pixels is 50000000"),
        ("text.png", "a good PNG with 1 GB of packed text",
         made.png_with((b"zTXt", b"x\0\0" + made.with_zeros(b"", 1024))),
         "too_large", "Decompressed data too large..."),
        ("profile.png", "a good PNG with 1 GB of packed colour profile",
         made.png_with((b"iCCP", b"x\0\0" + made.with_zeros(b"", 1024))),
         "too_large", "Decompressed data too large..."),
        ("scans.jpg", "a JPEG of 44 kB with 2,000 scans, each over all its pixels",
         made.many_scans(2000), "too_large", "2005 scans of 2000x2000 pixels"),
        ("behind.png", "a good PNG with 1 GB packed behind its last row", made.png_bomb, "ok", ""),
        ("texts.png", "a good PNG with 5,000 texts",
         made.png_with(*[(b"tEXt", b"x\0" + b"y" * 100)] * 5000), "ok", ""),
    ],
    "Odd, and well-formed": [
        ("line.jpg", "65,500 x 1 pixels", lambda picture: jpeg(picture.resize((65_500, 1))),
         "ok", ""),
        ("dot.png", "one pixel", lambda picture: png(picture.crop((0, 0, 1, 1))), "ok", ""),
        ("black.png", "all black", png(Image.new("RGB", (40, 30))), "ok", ""),
        ("short.png", "a PNG that says it has half its rows", made.png_saying(48, 16), "ok", ""),
        ("tall.png", "a PNG that says it has twice its rows: the others are black",
         made.png_saying(48, 64), "ok", ""),
        ("tall.jpg", "a JPEG that says so: the others are grey", made.jpeg_frame(5, 0, 64),
         "ok", ""),
        ("tail.png", "a PNG without its end mark", lambda picture: png(picture)[:-12], "ok", ""),
        ("loop.tif", "a TIFF whose next page is its first",
         made.grey_tiff(48, 32, bytes(range(256)) * 6, following=8 + 48 * 32),
         "converted", "grey to RGB"),
        ("turned-1.jpg", "EXIF says: leave it", turned(1), "ok", ""),
        *[(f"turned-{number}.jpg", f"EXIF says: {how}", turned(number),
           "converted", f"turned as EXIF says ({number})")
          for number, how in [
              (2, "mirror it"), (3, "turn it upside down"), (4, "mirror it upside down"),
              (5, "mirror it and turn it left"), (6, "turn it right"),
              (7, "mirror it and turn it right"), (8, "turn it left"),
          ]],
        ("turned-9.jpg", "EXIF says 9, which means nothing", turned(9), "ok", ""),
        ("exif.jpg", "an EXIF block of noise", as_("JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff"),
         "ok", ""),
        ("profile.jpg", "a colour profile of noise", as_("JPEG", icc_profile=b"no profile" * 99),
         "ok", ""),
        ("ink.jpg", "CMYK", lambda picture: made.without_segments(made.four_inks(picture), 0xEE),
         "converted", "CMYK to RGB"),
        ("adobe.jpg", "CMYK with Adobe's mark: the ink inverted", made.four_inks,
         "converted", "CMYK to RGB"),
        ("ycck.jpg", "CMYK stored as YCCK", made.ycck, "converted", "YCCK to RGB"),
        ("ink.tif", "CMYK in a TIFF", as_("TIFF", "CMYK"), "converted", "CMYK to RGB"),
        ("lab.tif", "CIE L*a*b*", as_("TIFF", "LAB"), "converted", "LAB to RGB"),
        ("deep-grey.png", "grey with 16 bits", lambda picture: png(made.deep_grey(picture)),
         "converted", "16-bit grey to 8 bits"),
        ("deep.png", "16 bits a channel", made.deep_png, "converted", "16 bits a channel to 8"),
        ("grey.jpg", "grey", as_("JPEG", "L"), "converted", "grey to RGB"),
        ("fax.tif", "black and white, one bit a pixel", as_("TIFF", "1"),
         "converted", "bilevel to RGB"),
        ("palette.png", "a palette", as_("PNG", "P"), "converted", "palette to RGB"),
        ("hole.png", "a palette with one transparent colour", as_("PNG", "P", transparency=0),
         "converted", "palette to RGB, alpha laid over the background"),
        ("glass.png", "alpha", as_("PNG", "RGBA"), "converted", "alpha laid over the background"),
        ("glass-grey.png", "grey with alpha", as_("PNG", "LA"),
         "converted", "grey to RGB, alpha laid over the background"),
        ("glass.tif", "a palette with alpha", as_("TIFF", "PA"),
         "converted", "palette to RGB, alpha laid over the background"),
        ("integers.tif", "grey in 32-bit whole numbers", as_("TIFF", "I"),
         "unsupported", "32-bit grey (mode I); save it with 8 or 16 bits"),
        ("floats.tif", "grey in floating-point numbers", as_("TIFF", "F"),
         "unsupported", "32-bit grey (mode F); save it with 8 or 16 bits"),
        ("moving.gif", "three frames", frames("GIF"), "animated", "3 frames..."),
        ("moving.png", "three frames (APNG)", frames("PNG"), "animated", "3 frames..."),
        ("moving.webp", "three frames", frames("WEBP"), "animated", "3 frames..."),
        ("moving.avif", "three frames", frames("AVIF"), "animated", "3 frames..."),
        ("pages.tif", "three pages", frames("TIFF"), "animated", "several frames..."),
        ("previews.jpg", "a camera's JPEG with previews behind it (MPO)", frames("MPO"), "ok", ""),
        ("two.jpg", "a JPEG with a zip behind it",
         lambda picture: jpeg(picture) + made.zipped(picture), "ok", ""),
        ("script.gif", "a GIF that is JavaScript, too", made.gif_named(b"*/=1;alert(1)//"),
         "converted", "palette to RGB"),
        ("script.jpg", "a JPEG with PHP in its comment",
         made.jpeg_with(0xFE, b"<?php phpinfo(); ?>"),
         "ok", ""),
        ("wrong.jpg", "a PNG called .jpg", png, "ok", ""),
        ("wrong.tif", "a WebP called .tif", as_("WEBP"), "ok", ""),
        ("SHOUT.JPEG", "a suffix in capitals", jpeg, "ok", ""),
    ],
    "Names": [
        ("line\nbreak.jpg", "a line break in its name", jpeg, "ok", ""),
        ("a \"b\", 'c'; d.jpg", "quotes, a comma and a semicolon in its name", jpeg, "ok", ""),
        ("\N{water wave} été.jpg", "an emoji and accents in its name", jpeg, "ok", ""),
        ("n" * 251 + ".jpg", "a name of 255 bytes", jpeg, "ok", ""),
        ("-rf.jpg", "a name that a command takes for an option", jpeg, "ok", ""),
        ("$(touch ran).jpg", "a name that a shell would run", jpeg, "ok", ""),
        ("<script>alert(1)<script>.jpg", "a name that a page would run", jpeg, "ok", ""),
        ("%2e%2e%2fup.jpg", "a name that leads upwards where it is decoded", jpeg, "ok", ""),
        ("\x1b[31mred.jpg", "a name that colours a terminal", jpeg, "ok", ""),
        ("\u202egpj.exe.jpg", "a name that is shown backwards", jpeg, "ok", ""),
        ("con.jpg", "a name that Windows keeps for itself", jpeg, "ok", ""),
        ("blank .jpg", "a blank before the suffix", jpeg, "ok", ""),
        ("blank.jpg ", "a blank behind the suffix", jpeg, "other_file", "suffix .jpg "),
        ("\N{latin small letter e with acute}.png", "an accent in one character (NFC)", png,
         "ok", ""),
        ("e\N{combining acute accent}.png", "the same name in two characters (NFD)", png, "ok", ""),
        (os.fsdecode(b"caf\xe9.jpg"), "a name that is not UTF-8", jpeg,
         "unreadable_name", "the name is not UTF-8; rename it"),
        ("folder.jpg/inside.png", "a picture in a folder called .jpg", png, "ok", ""),
        ("/".join("d" * 200) + "/low.png", "a picture 200 folders down", png, "ok", ""),
    ],
    "Twice, and alike": [
        ("cat/same.jpg", "a picture under one tag", jpeg(made.clouds(2)), "ok", ""),
        ("dog/same.jpg", "its bytes under another tag", jpeg(made.clouds(2)),
         "duplicate", "same bytes as cat/same.jpg"),
        ("cat/alike.jpg", "the same picture, stored with more loss",
         encoded(made.clouds(2), "JPEG", quality=60), "ok", ""),
    ],
    "No image by its name": [
        (".hidden.jpg", "a hidden picture", jpeg, "hidden", "hidden"),
        ("._page.jpg", "a Mac's resource fork", b"\0\x05\x16\x07", "hidden", "hidden"),
        (".ipynb_checkpoints/a.png", "a picture in a hidden folder", png, "hidden", "hidden"),
        ("__MACOSX/a.jpg", "what a Mac puts into archives", b"\0\x05\x16\x07",
         "hidden", "__MACOSX"),
        ("Thumbs.db", "what Windows leaves behind", b"\xd0\xcf\x11\xe0", "other_file", "Thumbs.db"),
        ("runs/events.0", "what a training leaves in a folder that is no tag", b"\0",
         "other_file", "suffix .0"),
        ("notes.txt", "a text", b"of no use", "other_file", "suffix .txt"),
        ("README", "a file without a suffix", b"of no use", "other_file", "no suffix"),
        ("photo.jpg.exe", "a program that calls itself a photo", b"MZ",
         "other_file", "suffix .exe"),
        ("photo.heic", "a HEIC photo", b"\0\0\0\x18ftypheic",
         "other_file", "suffix .heic (needs another package, pillow-heif: convert to JPEG)"),
    ],
}  # fmt: skip

# (path, what it is, what makes it, status, reason)
_OTHERS: list[tuple[str, str, Put, str, str]] = [
    ("inside.jpg", "a link to a picture in the folder", link_to("SHOUT.JPEG"),
     "duplicate", "same bytes as SHOUT.JPEG"),
    ("out.jpg", "a link out of the folder", link_to("../outside.jpg"),
     "outside_root", "a link that leads out of the folder"),
    ("passwd.jpg", "a link to a file of the system", link_to("/etc/passwd"),
     "outside_root", "a link that leads out of the folder"),
    ("up", "a link to the folder above", link_to(".."),
     "outside_root", "a link that leads out of the folder"),
    ("around", "a link to the folder itself", link_to("."), "link", "a link to a folder"),
    ("tag.jpg", "a link to a folder in it", link_to("cat"), "link", "a link to a folder"),
    ("loop.jpg", "a link to itself", link_to("loop.jpg"), "link", "a link to nothing"),
    ("lost.jpg", "a link to nothing", link_to("gone.jpg"), "link", "a link to nothing"),
    ("pipe.jpg", "a pipe, which never ends", pipe, "not_a_file", "not a regular file"),
    ("socket.jpg", "a socket", plug, "not_a_file", "not a regular file"),
    ("sparse.jpg", "a good JPEG and 2 GB of nothing behind it", sparse,
     "too_large", "2000000000 bytes; the limit is 1000000000"),
    ("locked.jpg", "a picture that may not be read", locked, "unreadable", "Permission denied"),
]  # fmt: skip

HOSTILE = [
    *(Hostile(kind, path, what, _written(content), status, reason)
      for kind, rows in _CONTENTS.items() for path, what, content, status, reason in rows),
    *(Hostile("Links, and what is no file of bytes", *row) for row in _OTHERS),
]  # fmt: skip
# Root may read every file: none is locked for it.
POSSIBLE = [row for row in HOSTILE if row.put is not locked or os.geteuid()]
