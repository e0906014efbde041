import shutil

import pytest

from plmcl.errors import PlmclError
from plmcl.labelling.trained import open_trained
from plmcl.run_record import RunRecord


def test_the_run_that_is_best_on_validation_is_taken(project):
    runs = {
        name: RunRecord.read(project / f"reports/runs/sspl-40-{name}/run.json").best_selection
        for name in ("an", "ridge")
    }
    assert open_trained(project).method == max(runs, key=runs.get)
    assert open_trained(project, "sspl-40-an").method == "an"


def test_a_run_that_is_not_there_is_refused_with_those_that_are(project, tmp_path):
    with pytest.raises(
        PlmclError, match=r"--run ffl-an: .* trained are: sspl-40-an, sspl-40-ridge"
    ):
        open_trained(project, "ffl-an")
    with pytest.raises(PlmclError, match=r"holds no params\.yaml"):
        open_trained(tmp_path)
    shutil.copy(project / "params.yaml", tmp_path)
    with pytest.raises(PlmclError, match="images are not there"):
        open_trained(tmp_path)


def test_a_model_of_other_labels_than_training_sees_now_is_refused_case_15(project, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(project, copy)
    trained = open_trained(copy, "sspl-40-ridge")
    labels = copy / "data/manifests/labels.parquet"
    labels.write_bytes(labels.read_bytes() + b" ")
    with pytest.raises(PlmclError, match="the images or their labels changed since this training"):
        trained.load(trained.prepare())


def test_a_result_says_what_it_is_of_case_43(trained):
    assert trained.identity["run"] == "sspl-40-ridge"
    assert trained.identity["seed"] == "0"
    assert trained.identity["data_sha256"] == trained.paths.data_sha256()
    assert trained.identity["splits_sha256"] == trained.paths.splits_sha256("sspl-40")
