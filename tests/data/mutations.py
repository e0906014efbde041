"""Damage for files that tests feed to readers: what disks, transfers and hostile people do."""

import random

# Texts that have broken readers of one kind or another.
HOSTILE = [
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", "\u202e".encode(), b"\r", b"\n", b"\t"),
    *(b",", b";", b'"', b"'", b"\\", b"\\ud800", b"\\u0000", b"%s", b"../", b"/", b"C:\\", b"?"),
    *(b"-1", b"0", b"1e999", b"-0", b"NaN", b"Infinity", b"null", b"true", b"9" * 5000, b"0x10"),
    *(b"[", b"]", b"{", b"}", b"[" * 2000, b'{"a":' * 2000, b"[]", b"{}", b'""', b"x" * 200_000),
    *(b"<", b">", b"&", b"&x;", b"<a>" * 2000, b"<![CDATA[", b"<!--", b"<?xml?>", b"]]>"),
    b'<!DOCTYPE a [<!ENTITY x "x">]>',
    b'<!DOCTYPE a SYSTEM "file:///etc/passwd">',
    *(b"&a ", b"*a", b"- ", b": ", b"!!python/object:os.system ", b"<<: *a", b"---\n", b"%YAML 9"),
    *(b"PAR1", b"PK\x03\x04", b"\x80\x04\x95", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f"),
]  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A damaged copy: one to four times bits flipped, or a part cut, repeated, moved or planted."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(damaged))
        length = min(len(damaged) - start, int(rng.expovariate(0.05)))
        part = bytes(damaged[start : start + length])
        kind = rng.choice(["flip", "cut", "end", "repeat", "move", "plant", "plant", "replace"])
        if kind == "flip" and start < len(damaged):
            damaged[start] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del damaged[start : start + length]
        elif kind == "end":
            del damaged[start:]
        elif kind == "repeat":
            damaged[start:start] = part * rng.randint(1, 20)
        elif kind == "move":
            del damaged[start : start + length]
            place = rng.randint(0, len(damaged))
            damaged[place:place] = part
        elif kind == "plant":
            damaged[start:start] = rng.choice(HOSTILE)
        elif kind == "replace":
            damaged[start : start + length] = rng.choice(HOSTILE)
    return bytes(damaged)
