"""VOC XML: a folder of files, one an image, that list the objects in it."""

import xml.etree.ElementTree as ET  # the parser below takes no DOCTYPE, hence no entity
from pathlib import Path
from typing import Any

from plmcl.data.cells import Cells
from plmcl.data.formats.base import ImageIndex, LabelFile, Options
from plmcl.data.label_files import files_below, label_name, read_bytes, shown
from plmcl.data.manifest import no_cells
from plmcl.errors import PlmclError

_MAX_BYTES = 1 << 24
_MAX_DEPTH = 32


def read(path: Path, index: ImageIndex, options: Options) -> LabelFile:
    """Read labels: the names of the objects.

    A file is about the image that its `filename` names, or else the one that has its own name.

    Raises:
        PlmclError: There is no XML file; one of them is no VOC file; or two are about the same
            image.
    """
    names = list(files_below(path, ".xml"))
    if not names:
        raise PlmclError(f"{path}: no XML file in it")
    cells, difficult = Cells(), Cells()
    absent: list[str] = []
    read_from: dict[str, Path] = {}
    for name in names:
        file = path / name
        root = _parse(file)
        filename = (root.findtext("filename") or "").strip()
        image_id = index.find_name(filename, str(file)) if filename else None
        image_id = image_id or index.find_name(name[: -len(".xml")], str(file))
        if image_id is None:
            absent.append(filename or name)
            continue
        if read_from.setdefault(image_id, file) != file:
            raise PlmclError(f"{file}: is about {image_id!r}, as {read_from[image_id]} is")
        cells.name(image_id)
        for label, is_difficult in _objects(root, file).items():
            if is_difficult:
                difficult.add(image_id, label, 0)
            if not is_difficult or options.difficult == "negative":
                cells.add(image_id, label, int(not is_difficult))
    hard = difficult.table()[["image_id", "label"]]
    words = f"labels that only difficult objects give (difficult: {options.difficult})"
    return LabelFile(
        labels=cells.table(),
        named=cells.named,
        absent=absent,
        unknown=hard if options.difficult == "ignore" else no_cells(),
        difficult=hard,
        notes={words: len(hard)} if len(hard) else {},
        files=[path / name for name in names],
    )


def recognise(path: Path) -> bool:
    """Whether it is a folder with an XML file."""
    return path.is_dir() and any(files_below(path, ".xml"))


def _parse(file: Path) -> ET.Element:
    parser = ET.XMLParser(target=_Builder(file))  # noqa: S314
    try:
        parser.feed(read_bytes(file, max_bytes=_MAX_BYTES))
        root: ET.Element = parser.close()
    except (ET.ParseError, LookupError, ValueError) as error:  # the latter two: its encoding
        raise PlmclError(f"{file}: not XML: {error}") from None
    if root.tag != "annotation":
        raise PlmclError(f"{file}: must be a VOC annotation, found the element {shown(root.tag)}")
    return root


class _Builder(ET.TreeBuilder):
    # of a tree of limited depth without a DOCTYPE, where entities would be declared

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._depth = 0

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise PlmclError(f"{self._file}: holds a DOCTYPE, which no VOC file needs")

    def start(self, tag: Any, attrs: Any) -> ET.Element:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PlmclError(f"{self._file}: nested too deeply")
        return super().start(tag, attrs)

    def end(self, tag: Any) -> ET.Element:
        self._depth -= 1
        return super().end(tag)


def _objects(root: ET.Element, file: Path) -> dict[str, bool]:
    # label -> whether all its objects are difficult
    labels: dict[str, bool] = {}
    for number, entry in enumerate(root.iterfind("object"), start=1):
        where = f"{file}, object {number}"
        label = label_name(entry.findtext("name", ""), f"{where}, name")
        difficult = entry.findtext("difficult", "0").strip()
        if difficult not in ("0", "1"):
            raise PlmclError(f"{where}, difficult: must be 0 or 1, found {shown(difficult)}")
        labels[label] = labels.get(label, True) and difficult == "1"
    return labels
