"""Image files as bytes: whole ones by Pillow, and by hand what its writers would not write."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

Content = Callable[[Image.Image], bytes]

PNG_BEGIN = b"\x89PNG\r\n\x1a\n"


def drawn(seed: int, width: int = 48, height: int = 32) -> Image.Image:
    """A picture of a few shapes, another for each seed."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (width, height), tuple(rng.integers(0, 256, 3).tolist()))
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        x, y = rng.integers(0, (width, height)).tolist()
        size = int(rng.integers(4, 20))
        colour = tuple(rng.integers(0, 256, 3).tolist())
        shape = (draw.ellipse, draw.rectangle)[int(rng.integers(2))]
        shape((x, y, x + size, y + size), fill=colour)
    return image


def clouds(seed: int) -> Image.Image:
    """A picture without flat parts, as photographs are."""
    noise = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((96, 72), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    """What Pillow writes."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def jpeg(picture: Image.Image) -> bytes:
    """A good JPEG."""
    return encoded(picture, "JPEG")


def png(picture: Image.Image) -> bytes:
    """A good PNG."""
    return encoded(picture, "PNG")


def as_(format: str, mode: str = "RGB", **options: object) -> Content:
    """A whole image in one of Pillow's modes, with a gradient for alpha."""

    def content(picture: Image.Image) -> bytes:
        if mode in ("RGBA", "LA", "PA"):
            picture.putalpha(Image.linear_gradient("L").resize(picture.size))
        return encoded(picture.convert(mode), format, **options)

    return content


def frames(format: str) -> Content:
    """Three frames."""

    def content(picture: Image.Image) -> bytes:
        others = [picture.rotate(90), picture.rotate(180)]
        return encoded(picture, format, save_all=True, append_images=others)

    return content


def half(content: Content) -> Content:
    """The first half of another file."""

    def cut(picture: Image.Image) -> bytes:
        whole = content(picture)
        return whole[: len(whole) // 2]

    return cut


def turned(orientation: int) -> Content:
    """A JPEG that says how it was held."""
    block = Image.Exif()
    block[0x0112] = orientation
    return as_("JPEG", exif=block)


def zipped(picture: Image.Image) -> bytes:
    """A zip archive with a JPEG in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("photo.jpg", jpeg(picture))
    return buffer.getvalue()


def deep_grey(picture: Image.Image) -> Image.Image:
    """The picture in grey, with values up to 65535."""
    return Image.fromarray(np.asarray(picture.convert("L")).astype("<u2") * 257)


# ---------------------------------------------------------------------------------------- PNG


def png_chunk(name: bytes, data: bytes) -> bytes:
    """A chunk with its length and the right checksum."""
    checksum = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checksum


def raw_png(width: int, height: int, packed: bytes, *, bits: int = 8, extra: bytes = b"") -> bytes:
    """A PNG of a header, chunks of one's own, compressed rows as they are, and an end."""
    header = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    chunks = png_chunk(b"IHDR", header) + extra + png_chunk(b"IDAT", packed)
    return PNG_BEGIN + chunks + png_chunk(b"IEND", b"")


def png_rows(pixels: Image.Image | np.ndarray) -> bytes:
    """Rows, not compressed yet, of uint8 or big-endian uint16 (H, W, channels)."""
    return b"".join(b"\0" + row.tobytes() for row in np.asarray(pixels))


def png_saying(width: int, height: int) -> Content:
    """A PNG with the pixels of a picture of another size than its header says."""
    return lambda picture: raw_png(width, height, zlib.compress(png_rows(picture)))


def png_with(*chunks: tuple[bytes, bytes]) -> Content:
    """A good PNG with chunks (name, data) of one's own before its pixels."""
    extra = b"".join(png_chunk(name, data) for name, data in chunks)

    def content(picture: Image.Image) -> bytes:
        return raw_png(*picture.size, zlib.compress(png_rows(picture)), extra=extra)

    return content


def png_bomb(picture: Image.Image) -> bytes:
    """A good PNG with 1 GB packed behind its last row."""
    return raw_png(*picture.size, with_zeros(png_rows(picture), 1024))


def deep_png(picture: Image.Image) -> bytes:
    """A PNG with 16 bits a channel."""
    rows = png_rows(np.asarray(picture).astype(">u2") * 257)
    return raw_png(*picture.size, zlib.compress(rows), bits=16)


def png_flipped(place: int) -> Content:
    """A PNG with one other bit at a place, counted from the end if it is negative."""

    def content(picture: Image.Image) -> bytes:
        whole = bytearray(png(picture))
        whole[place] ^= 1
        return bytes(whole)

    return content


def with_zeros(data: bytes, megabytes: int) -> bytes:
    """Data and so many zero bytes, compressed to a thousandth; the checksum is a wrong one."""
    packer = zlib.compressobj(9)
    blocks = [data, bytes(1 << 20), bytes(1 << 20)]
    begin, first, again = (packer.compress(b) + packer.flush(zlib.Z_FULL_FLUSH) for b in blocks)
    return begin + first + again * (megabytes - 1) + packer.flush()


# --------------------------------------------------------------------------------------- JPEG


def jpeg_with(marker: int, data: bytes) -> Content:
    """A JPEG with one more segment at its beginning."""
    segment = struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data

    def content(picture: Image.Image) -> bytes:
        whole = jpeg(picture)
        return whole[:2] + segment + whole[2:]

    return content


def without_segments(whole: bytes, marker: int) -> bytes:
    """A JPEG less its segments of a kind."""
    kept, place = whole[:2], 2
    while whole[place + 1] != 0xDA:  # start of scan: no segments behind it
        end = place + 2 + struct.unpack(">H", whole[place + 2 : place + 4])[0]
        kept += b"" if whole[place + 1] == marker else whole[place:end]
        place = end
    return kept + whole[place:]


def jpeg_frame(place: int, *values: int) -> Content:
    """A JPEG with other bytes in its frame header, which begins ff c0."""

    def content(picture: Image.Image) -> bytes:
        changed = bytearray(jpeg(picture))
        start = changed.index(b"\xff\xc0") + place
        changed[start : start + len(values)] = values
        return bytes(changed)

    return content


def many_scans(number: int) -> bytes:
    """A progressive JPEG of 2,000 x 2,000 grey pixels that repeats its finest scan."""
    whole = encoded(Image.new("L", (2000, 2000)), "JPEG", progressive=True)
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * number + whole[-2:]


def four_inks(picture: Image.Image) -> bytes:
    """A CMYK JPEG as Adobe writes it, each ink as 255 less its amount."""
    return encoded(picture.convert("CMYK"), "JPEG", quality=95)


def ycck(picture: Image.Image) -> bytes:
    """The same with the first three inks turned into a brightness and two colours."""
    whole = bytearray(four_inks(picture))
    whole[whole.index(b"Adobe") + 11] = 2
    return bytes(whole)


# --------------------------------------------------------------------------------------- TIFF


def grey_tiff(width: int, height: int, pixels: bytes, *, following: int = 0) -> bytes:
    """An uncompressed 8-bit grey TIFF, whatever its header says.

    Args:
        width: In the header.
        height: As `width`.
        pixels: At byte 8; the directory is behind them.
        following: Where the next directory is said to be; 0 for none.
    """
    values = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height}
    values |= {279: len(pixels)}
    directory = struct.pack("<H", len(values))
    for tag, value in values.items():
        directory += struct.pack("<HHII", tag, 4, 1, value)
    end = struct.pack("<I", following)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory + end


# ----------------------------------------------------------------------------- GIF, BMP, others


def gif_named(comment: bytes) -> bytes:
    """A GIF of one grey pixel on a screen whose width is the bytes `/*`, and a comment."""
    screen = b"GIF89a" + b"/*" + struct.pack("<HBBB", 1, 0x80, 0, 0) + b"\x80\x80\x80\xff\xff\xff"
    pixel = b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return screen + b"!\xfe" + bytes([len(comment)]) + comment + b"\0" + pixel + b";"


def gif_screen(width: int, height: int) -> bytes:
    """A GIF of one pixel on a screen of any size."""
    good = encoded(Image.new("P", (1, 1)), "GIF")
    return good[:6] + struct.pack("<HH", width, height) + good[10:]


def bmp_header(width: int, height: int) -> bytes:
    """The header of a 24-bit BMP of any size, with 100 bytes of pixels."""
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 154, 0, 0, 54) + info + bytes(100)


def webp_header(width: int, height: int) -> bytes:
    """A WebP that announces a canvas (up to 2^24 a side) and has no picture on it."""
    canvas = struct.pack("<I", 0) + struct.pack("<I", width - 1)[:3]
    chunk = b"VP8X" + struct.pack("<I", 10) + canvas + struct.pack("<I", height - 1)[:3]
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk
