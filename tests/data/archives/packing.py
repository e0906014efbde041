"""Archives, good and hostile, and what `extract` says to them."""

import io
import random
import struct
import tarfile
import zipfile

import pytest

from plmcl.data.archives import Limits, extract
from plmcl.errors import PlmclError

LIMITS = Limits(max_files=100, max_bytes=1_000_000, max_file_bytes=500_000)

NOISE = random.Random(0).randbytes(300_000)

FILES = {
    "set/images/a.jpg": NOISE,
    "set/images/b c, 'd'.jpg": NOISE[:70_000],
    "set/写真/ü.txt": "ü".encode(),
    "set/empty": b"",
    "readme": b"x" * 100_000,
}

KINDS = ["zip", "w", "w:gz", "w:bz2"]


def pack(path, files, kind="zip"):
    """Write an archive of files, {name: bytes}, made by the standard library."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, data in files.items():
                bundle.writestr(name, data)
    else:
        with tarfile.open(path, kind) as tar:
            for name, data in files.items():
                tar.addfile(entry(name, size=len(data), mode=0o755), io.BytesIO(data))
    return path


def entry(name, **values):
    info = tarfile.TarInfo(name)
    for key, value in values.items():
        setattr(info, key, value)
    return info


def pack_tar(path, *infos, tar_format=tarfile.PAX_FORMAT):
    """Write a tar of entries whose bytes are zeros."""
    with tarfile.open(path, "w", format=tar_format, errors="surrogateescape") as tar:
        for info in infos:
            tar.addfile(info, io.BytesIO(bytes(max(0, info.size))) if info.isreg() else None)
    return path


def pack_zip(path, name, mode=0, data=b"x", **values):
    """Write a zip of one entry, with any name and mode."""
    info = zipfile.ZipInfo("name")
    info.filename, info.external_attr = name, mode << 16
    for key, value in values.items():
        setattr(info, key, value)
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr(info, data)
    return path


def overwrite(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)
    return path


def declare(path, size):
    """Let the one member of a zip declare another unpacked size."""
    central = path.read_bytes().index(b"PK\x01\x02")
    overwrite(path, central + 24, struct.pack("<I", size))
    return overwrite(path, 22, struct.pack("<I", size))


def refusal(archive, limits=LIMITS, **options):
    """The message of a refusal, which leaves nothing behind."""
    target = archive.parent / "out" / "target"
    with pytest.raises(PlmclError) as caught:
        extract(archive, target, limits=limits, **options)
    assert list(target.parent.iterdir()) == []
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{archive}: ")
    return message.removeprefix(f"{archive}: ")
