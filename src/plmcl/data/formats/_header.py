"""The layouts of a table of labels: its header decides which of three it has.

Long: `image,labels`. One cell a row: `image,label` and maybe `value`. Wide: `image` and a column
for each label. All may have a column `split`; in the first two, other columns are passed over.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plmcl.data.label_files import name_list, shown
from plmcl.errors import PlmclError


@dataclass(frozen=True)
class Header:
    """Where the columns are; those that the layout does not have are None.

    Attributes:
        image: Always there.
        split: In any layout.
        labels: Of the long layout.
        label: Of the layout with one cell a row.
        value: Of that layout, too.
        label_columns: Label -> its column, in the wide layout.
    """

    image: int
    split: int | None
    labels: int | None
    label: int | None
    value: int | None
    label_columns: dict[str, int]

    @property
    def used(self) -> list[int]:
        """The columns that are read."""
        single = (self.image, self.split, self.labels, self.label, self.value)
        return [*(place for place in single if place is not None), *self.label_columns.values()]


def parse_header(names: Sequence[str], path: Path) -> Header:
    """Find the layout that the names of the columns make.

    Raises:
        PlmclError: There is none, or a column is there twice, or one that would be passed over is
            nearly called `value`: without it, every row is a label that is present.
    """
    known: dict[str, int] = {}
    for place, name in enumerate(names):
        lower = name.strip().lower()
        if lower in {"image", "split", "labels", "label", "value"}:
            if lower in known:
                raise PlmclError(f"{path}: two columns are called {lower}")
            known[lower] = place
    image, split = known.get("image"), known.get("split")
    labels = known.get("labels")
    label = known.get("label") if labels is None else None
    value = known.get("value") if label is not None else None
    if label is not None and value is None:
        others = {name.strip().lower() for name in names} - known.keys()
        if near := difflib.get_close_matches("value", others, 1):
            raise PlmclError(f"{path}: unknown column {shown(near[0])}; is 'value' meant?")
    wide = {}
    if image is not None and labels is None and label is None:
        places = [place for place in range(len(names)) if place not in (image, split)]
        columns = name_list([names[place] for place in places], f"{path}: columns")
        wide = dict(zip(columns, places, strict=True))
    if image is None or (labels is None and label is None and not wide):
        one = len(names) == 1 and any(mark in names[0] for mark in "\t;|")
        raise PlmclError(
            f"{path}: needs the columns image,labels (and maybe split), or image,label,value, or "
            f"image and one for each label; found {shown(','.join(names))}"
            + ("; put commas between the columns" if one else "")
        )
    return Header(image, split, labels, label, value, wide)
