"""Damage that only images can have: lengths, heads and checksums that lie."""

import random
import struct

from data.image_bytes import PNG_BEGIN, png_chunk
from data.mutations import mutate

_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_SIZES = {1: "B", 2: "H", 4: "I"}


def mutate_image(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A damaged copy of a file, or a crossing of it with one of the others."""
    kind = rng.choice(["any", "bits", "number", "number", "head", "splice", "cut"])
    other = rng.choice(others)
    if kind == "any":
        damaged = mutate(data, rng)
    elif kind == "bits":
        damaged = _flip_bits(data, rng)
    elif kind == "number":
        damaged = _set_number(data, rng)
    elif kind == "head":
        length = rng.choice([2, 4, 8, 12, 16, 32])
        damaged = other[:length] + data[length:]
    elif kind == "splice":
        damaged = data[: rng.randint(1, len(data))] + other[rng.randint(0, len(other)) :]
    else:
        damaged = data[: rng.randint(0, len(data))]
    # A reader that checks checksums would never come to what is wrong.
    return repair_png(damaged) if rng.random() < 0.7 else damaged


def repair_png(data: bytes) -> bytes:
    """The same with the right checksum on each chunk, as far as chunks can be found."""
    if not data.startswith(PNG_BEGIN):
        return data
    repaired, place = PNG_BEGIN, len(PNG_BEGIN)
    while place + 12 <= len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        end = place + 8 + length
        if end + 4 > len(data):
            break
        repaired += png_chunk(data[place + 4 : place + 8], data[place + 8 : end])
        place = end + 4
    return repaired + data[place:]


def _flip_bits(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 30)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _set_number(data: bytes, rng: random.Random) -> bytes:
    # Most lengths and sizes are near the beginning.
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        size = rng.choice([1, 2, 4])
        reach = rng.choice([40, 200, len(data)])
        place = rng.randrange(max(1, min(reach, len(data)) - size))
        number = rng.choice([*_NUMBERS, rng.getrandbits(32)]) % (1 << 8 * size)
        order = rng.choice("<>")
        damaged[place : place + size] = struct.pack(order + _SIZES[size], number)
    return bytes(damaged)
