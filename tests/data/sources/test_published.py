import numpy as np
import official_sets as sets

from plmcl.data.formats.base import ImageIndex
from plmcl.data.sources.published import Part, Published, annotate


def test_a_missing_name_with_half_a_character_is_listed(tmp_path):
    sets.write_images(tmp_path / "images", ["a.jpg"])
    part = Part(["a.jpg", "\ud800.jpg"], np.ones((2, 1), dtype=bool))
    said = Published(tmp_path / "images", ["dog"], {"train": part}, files=[])
    report = tmp_path / "missing.txt"
    found = annotate(
        said, tmp_path, lambda files: ImageIndex(files).find, missing=0.5, report=report
    )
    assert found.files == ["a.jpg"]
    assert report.read_text() == "\\ud800.jpg\n"
