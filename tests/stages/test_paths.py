"""Paths stay inside the project, whatever a run is called."""

import pytest

from plmcl.errors import PlmclError
from plmcl.stages.paths import Paths


def test_a_run_is_named_by_its_setting_and_method(tmp_path):
    paths = Paths.of_project(tmp_path, "scenes")
    assert paths.raw == tmp_path / "data/raw/scenes"
    assert paths.images == tmp_path / "data"
    assert paths.model("sspl-40", "an") == tmp_path / "models/sspl-40-an"
    assert paths.run("sspl-40", "an") == tmp_path / "reports/runs/sspl-40-an"


def test_photos_stay_where_they_are(tmp_path):
    paths = Paths.of_photos(tmp_path / "out", tmp_path / "photos")
    assert paths.raw == paths.images == tmp_path / "photos"
    assert paths.manifests == tmp_path / "out/data/manifests"


@pytest.mark.parametrize("setting", ["../../etc", "sspl/40", "", "a b"])
def test_other_names_are_refused(tmp_path, setting):
    paths = Paths.of_project(tmp_path, "scenes")
    for place in (paths.model, paths.run):
        with pytest.raises(PlmclError, match="names no run"):
            place(setting, "../x")
