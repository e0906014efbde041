"""Labels from a CSV file that somebody else wrote."""

import csv
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from plmcl.data.listing import first_five
from plmcl.errors import PlmclError


def read_label_csv(
    path: Path, files: list[str], root: Path
) -> tuple[dict[tuple[str, str], int], dict[str, str], set[str]]:
    """Read a CSV file with the columns `image`, `labels` (`;` between them) and maybe `split`.

    Rows of the same image are merged; a row without a label names an image without one.

    Args:
        path: The CSV file: UTF-8, with or without a byte order mark.
        files: The images that exist, as `list_images` names them.
        root: Where they are, for messages.

    Returns:
        (image id, label) -> 1; image id -> split; and all images that the file names.

    Raises:
        PlmclError: The file is missing, is not such a CSV file, or names absent images.
    """
    known = set(files)
    absent: dict[str, None] = {}
    named: set[str] = set()
    values: dict[tuple[str, str], int] = {}
    splits: dict[str, str] = {}
    for where, row in _csv_rows(path):
        image_id = _image_id(row["image"], where)
        named.add(image_id)
        if image_id not in known:
            absent[image_id] = None
        for label in row["labels"].split(";"):
            if label.strip():
                values[image_id, label.strip()] = 1
        split = row.get("split", "").strip()
        if split not in {"", "train", "val", "test"}:
            raise PlmclError(f"{where}: split must be train, val, test or empty, found {split!r}")
        if split and splits.setdefault(image_id, split) != split:
            raise PlmclError(
                f"{where}: {image_id!r} is in split {split!r} here and in "
                f"{splits[image_id]!r} above"
            )
    if absent:
        raise PlmclError(
            f"{path}: {len(absent)} of {len(named)} images are not among the {len(files)} usable "
            f"files in {root}: {first_five(list(absent))}; names are paths below that folder"
        )
    return values, splits, named


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    # (place for messages, column -> text); columns that nobody asks for are passed over
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            if not {"image", "labels"} <= set(header):
                raise PlmclError(
                    f"{path}: the first line must name the columns image,labels "
                    f"(and maybe split), found {','.join(header)!r}"
                )
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if not any(cells):
                    continue
                if len(cells) != len(header):
                    raise PlmclError(
                        f"{where}: {len(cells)} cells where the header has {len(header)}; put "
                        'quotes around text with a comma, and ";" between labels'
                    )
                yield where, dict(zip(header, cells, strict=True))
    except OSError as error:
        raise PlmclError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise PlmclError(
            f"{path}: not UTF-8 (it holds the byte {error.object[error.start]:#04x}); "
            "save it as UTF-8"
        ) from None
    except csv.Error as error:
        raise PlmclError(f"{path}, line {reader.line_num}: {error}") from None


def _image_id(name: str, where: str) -> str:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise PlmclError(f"{where}: {name!r} must be a path below the folder of images")
    return str(path)
