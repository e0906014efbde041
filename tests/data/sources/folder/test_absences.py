import pandas as pd

from plmcl.data.cells import Cells
from plmcl.data.formats.base import LabelFile
from plmcl.data.sources.folder.absences import with_absences


def test_all_that_is_not_listed_and_not_called_unknown_is_absent():
    cells, unknown = Cells(), Cells()
    cells.add("b.jpg", "cat", 1)
    cells.add("b.jpg", "dog", 0)
    cells.add("a.jpg", "elk", 1)
    cells.name("c.jpg")
    unknown.add("c.jpg", "cat", 0)
    unknown.add("a.jpg", "elk", 0)  # but another row knows it
    found = LabelFile(cells.table(), cells.named, unknown=unknown.table()[["image_id", "label"]])
    table = with_absences(found, ["dog", "elk", "cat"])
    expected = pd.DataFrame(
        [
            *(("a.jpg", "cat", 0), ("a.jpg", "dog", 0), ("a.jpg", "elk", 1)),
            *(("b.jpg", "cat", 1), ("b.jpg", "dog", 0), ("b.jpg", "elk", 0)),
            *(("c.jpg", "dog", 0), ("c.jpg", "elk", 0)),
        ],
        columns=["image_id", "label", "value"],
    ).astype({"value": "int8"})
    pd.testing.assert_frame_equal(table, expected)
