"""Tiny data sets in the official layouts, made on the spot; what they say is in the tests."""

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

VOC_LABELS = [
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
]  # fmt: skip


def jpeg(name: str) -> bytes:
    """A small picture; other names give other bytes."""
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((32, 24)).save(file, "JPEG")
    return file.getvalue()


def write_files(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Write texts and bytes to their paths below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_images(root: Path, names: Iterable[str]) -> None:
    """Write a small JPEG for each name."""
    write_files(root, {name: jpeg(name) for name in names})


def write_voc(base: Path, splits: Mapping[str, Mapping[str, Mapping[str, int]]]) -> None:
    """Write `VOC2012`: official split -> image -> label -> value; what is not said is -1."""
    for split, images in splits.items():
        for label in VOC_LABELS:
            lines = [f"{image} {values.get(label, -1):2d}\n" for image, values in images.items()]
            write_files(base, {f"ImageSets/Main/{label}_{split}.txt": "".join(lines)})
        write_images(base / "JPEGImages", [f"{image}.jpg" for image in images])


def write_coco(
    path: Path,
    categories: Mapping[int, str],
    images: Mapping[int, str],
    annotations: Iterable[tuple[int, int, int]],
) -> None:
    """Write an annotation file; an annotation is (image id, category id, iscrowd)."""
    entries = [
        {"id": number, "image_id": image, "category_id": category, "iscrowd": crowd}
        for number, (image, category, crowd) in enumerate(annotations, start=1)
    ]
    document = {
        "info": {"year": 2014},
        "images": [{"id": key, "file_name": name} for key, name in images.items()],
        "annotations": entries,
        "categories": [{"id": key, "name": name} for key, name in categories.items()],
    }
    write_files(path.parent, {path.name: json.dumps(document)})


def tar(folder: Path, archive: Path) -> None:
    """Pack what is in a folder; `.tgz` is compressed."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz" if archive.suffix == ".tgz" else "w") as file:
        for path in sorted(folder.iterdir()):
            file.add(path, path.name)


def pack_zip(folder: Path, archive: Path, members: Iterable[str]) -> None:
    """Pack some of the files and folders in a folder."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as file:
        for member in members:
            path = folder / member
            for part in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if part.is_file():
                    file.write(part, part.relative_to(folder).as_posix())


def below(root: Path) -> list[str]:
    """Paths of all files below a folder, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def rows(table) -> list[tuple]:
    """The rows of a data frame."""
    return list(table.itertuples(index=False, name=None))


def in_order(annotations, split: str) -> list[str]:
    """The images of a split in the published order."""
    ids = [image_id for image_id in annotations.files if annotations.splits[image_id] == split]
    return sorted(ids, key=annotations.published.__getitem__)
