"""From the lists of a published data set, and the images that are there, to annotations."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from plmcl.data.cells import Cells
from plmcl.data.listing import first_five, list_files
from plmcl.data.manifest import Unlisted
from plmcl.data.sources.base import Annotations
from plmcl.errors import PlmclError

logger = logging.getLogger(__name__)

# Called with (name in a list, place for messages); gives the image id, or None if it is missing.
Find = Callable[[str, str], str | None]


@dataclass(frozen=True)
class Part:
    """One split as it was published.

    Attributes:
        names: N images in the published order, as paths below the folder of images.
        present: (N, L), the labels that count.
        difficult: (N, L), the labels that only difficult objects give; None: nothing is said.
    """

    names: list[str]
    present: npt.NDArray[np.bool_]
    difficult: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Published:
    """What the files of a data set say.

    Attributes:
        images: Folder of the images.
        label_names: L labels in the published order.
        parts: By split, "train" and "test".
        files: The files that say it.
        totals: Number of images of each split in the whole data set, where it is known.
        unlisted: "unknown": difficult cells are unknown, and all others are said.
        notes: As in `Annotations`.
    """

    images: Path
    label_names: list[str]
    parts: dict[str, Part]
    files: list[Path]
    totals: dict[str, int] = field(default_factory=dict)
    unlisted: Unlisted = "negative"
    notes: dict[str, int] = field(default_factory=dict)


def annotate(
    said: Published,
    folder: Path,
    make_find: Callable[[list[str]], Find],
    *,
    missing: float,
    report: Path,
) -> Annotations:
    """Find the listed images and say what is known of them.

    Args:
        said: What was published.
        folder: That `said.images` is below.
        make_find: From the images that exist to the way a listed name is found among them.
        missing: Share of the listed images that may be absent.
        report: File for the names of absent images, one a line.

    Raises:
        PlmclError: No image is listed, more are absent than may be, or two names stand for one.
    """
    listed = sum(len(part.names) for part in said.parts.values())
    if listed == 0:
        raise PlmclError(f"{folder}: the lists name no image")
    listing = list_files(said.images)
    find = make_find(listing.files)
    found = {split: _look_up(part, split, find) for split, part in said.parts.items()}
    absent = _absent(said, found)
    _check_absent(absent, listed, said.images, missing, report)
    places = _places(found)
    labels, difficult = _cells(said, found)
    counts = {
        **said.notes,
        "listed images that are missing": len(absent),
        "images in no published list": len(listing.files) - len(places),
        **{
            f"images in the {split} list, where the published one has {total:,}": len(found[split])
            for split, total in said.totals.items()
            if len(found[split]) != total
        },
    }
    table = labels.table()
    numbers = [f"{split} {sum(map(bool, ids))} images" for split, ids in found.items()]
    numbers += [f"{len(said.label_names)} labels", f"{table['value'].sum()} positives"]
    logger.info("%s: %s", folder, ", ".join(numbers))
    return Annotations(
        root=said.images.relative_to(folder).as_posix(),
        files=sorted(places),
        splits={image_id: split for image_id, (split, _) in places.items()},
        labels=table,
        label_names=said.label_names,
        unlisted=said.unlisted,
        passed_over=[
            file for file in listing.passed_over if said.images / file.path not in said.files
        ],
        difficult=difficult.table()[["image_id", "label"]],
        published={image_id: place for image_id, (_, place) in places.items()},
        notes={what: count for what, count in counts.items() if count},
    )


def _look_up(part: Part, split: str, find: Find) -> list[str | None]:
    return [
        find(name, f"{split} list, image {place}") for place, name in enumerate(part.names, start=1)
    ]


def _absent(said: Published, found: dict[str, list[str | None]]) -> list[str]:
    return [
        name
        for split, part in said.parts.items()
        for name, image_id in zip(part.names, found[split], strict=True)
        if image_id is None
    ]


def _check_absent(
    absent: list[str], listed: int, images: Path, allowed: float, report: Path
) -> None:
    if not absent:
        report.unlink(missing_ok=True)
        return
    report.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name}\n" for name in absent)
    # JSON can hold half a character, which no file can.
    report.write_text(text, encoding="utf-8", errors="backslashreplace")
    counted = (
        f"{listed - len(absent)} of {listed} listed images found in {images}; missing: "
        f"{first_five(absent)}; all missing names: {report}"
    )
    if len(absent) == listed or len(absent) > allowed * listed:
        raise PlmclError(f"{counted}; the share that may be missing is {allowed:g} (`missing`)")
    logger.warning(counted)


def _places(found: dict[str, list[str | None]]) -> dict[str, tuple[str, int]]:
    # image id -> split and place in its list
    places: dict[str, tuple[str, int]] = {}
    for split, ids in found.items():
        for place, image_id in enumerate(ids):
            if image_id is None:
                continue
            if image_id in places:
                other, before = places[image_id]
                raise PlmclError(
                    f"{split} list, image {place + 1}: {image_id!r} is also image {before + 1} "
                    f"of the {other} list"
                )
            places[image_id] = split, place
    return places


def _cells(said: Published, found: dict[str, list[str | None]]) -> tuple[Cells, Cells]:
    # labels and, as cells of value 0, what is difficult
    labels, difficult = Cells(), Cells()
    for split, part in said.parts.items():
        ids, names = found[split], said.label_names
        hard = np.zeros_like(part.present) if part.difficult is None else part.difficult
        _add(labels, part.present, 1, ids, names)
        _add(difficult, hard, 0, ids, names)
        if said.unlisted == "unknown":
            _add(labels, ~part.present & ~hard, 0, ids, names)
    return labels, difficult


def _add(
    cells: Cells,
    where: npt.NDArray[np.bool_],
    value: int,
    ids: list[str | None],
    label_names: list[str],
) -> None:
    for row, column in np.argwhere(where).tolist():
        image_id = ids[row]
        if image_id is not None:
            cells.add(image_id, label_names[column], value)
