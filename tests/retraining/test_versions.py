"""A version says where it comes from, and whether it still is what it was."""

import json

import pytest
from versions import make_repository, stage

from plmcl.errors import PlmclError
from plmcl.retraining.versions import ProductionRecord, Version, sha256_of
from plmcl.schemas import write_table

RECORD = ProductionRecord(
    version="v0001",
    created=1,
    setting="sspl-40",
    method="an",
    commit="c" * 40,
    dvc_lock_sha256="1" * 64,
    data_sha256="2" * 64,
    splits_sha256="3" * 64,
    model_sha256="4" * 64,
    mlflow_run_id="",
    deliveries=0,
    test_mAP=None,
)


def test_a_record_is_read_as_it_was_written(tmp_path):
    RECORD.write(tmp_path / "record.json")
    assert ProductionRecord.read(tmp_path / "record.json") == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": "2"}, "version: "),
        ({"commit": "HEAD"}, "commit: "),
        ({"deliveries": "1"}, "deliveries: "),
        ({"deliveries": -1}, "deliveries: "),
        ({"colour": 1}, "colour: "),
    ],
)
def test_a_record_of_another_form_is_refused_with_its_key(tmp_path, change, says):
    path = tmp_path / "record.json"
    RECORD.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PlmclError, match=says):
        ProductionRecord.read(path)


def test_a_test_split_of_which_something_is_unknown_is_not_complete(tmp_path):
    version = stage(make_repository(tmp_path), 1)
    truth = version.scored().truth.iloc[:1]
    write_table(truth, version.path / "truth.parquet")
    assert not version.scored().complete


def test_the_hash_of_a_file_is_that_of_its_bytes(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert sha256_of(tmp_path / "file") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_a_version_is_read_from_its_folder(tmp_path):
    version = stage(make_repository(tmp_path), 1)
    assert Version.read(version.path) == version
    version.model.unlink()
    with pytest.raises(PlmclError, match=r"model\.onnx: not found"):
        version.check()
