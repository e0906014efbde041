"""One record from either end: a file, a version, a run, a commit."""

import json
import shutil

import pytest
from versions import git, make_repository, stage

from plmcl.errors import PlmclError
from plmcl.retraining.lineage import trace


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Three versions, of which the second is served."""
    root = make_repository(tmp_path_factory.mktemp("project"))
    made = [
        stage(root, number, deliveries=number - 1, registry_version=number) for number in (1, 2, 3)
    ]
    (root / "models" / "production" / "champion").symlink_to("v0002")
    return root, made


def test_each_end_leads_to_the_same_record(versions, tmp_path):
    root, (_, second, _) = versions
    copy = tmp_path / "renamed.onnx"
    shutil.copy(second.model, copy)
    git(root, "branch", "production", second.record.commit)
    git(root, "tag", "-a", "served", second.record.commit, "-m", "with a message")
    ends = [
        "champion", "v0002", str(second.model), str(copy),
        str(root / "models" / "production" / "champion" / "model.onnx"),
        second.record.mlflow_run_id, second.record.model_sha256,
        second.record.commit, second.record.commit[:10], "production", "served",
    ]  # fmt: skip
    assert {trace(root, end).version for end in ends} == {"v0002"}
    found = trace(root, "v0002")
    assert found.to_dict() == {
        "version": "v0002",
        "champion": True,
        "previous": "",
        "model": "models/production/v0002/model.onnx",
        "model_sha256": second.record.model_sha256,
        "intact": True,
        "setting": "sspl-40",
        "method": "an",
        "deliveries": 1,
        "data_sha256": "2" * 64,
        "splits_sha256": "3" * 64,
        "commit": second.record.commit,
        "dvc_lock_sha256": "1" * 64,
        "mlflow_run_id": second.record.mlflow_run_id,
        "registry_version": 2,
        "test_mAP": 0.5,
    }
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_it_is_told_to_people_in_lines(versions):
    root, (first, *_) = versions
    lines = trace(root, "v0001").text().splitlines()
    assert lines[0] == "version           v0001, not the champion"
    assert "deliveries        none: the base set" in lines
    assert "test mAP          50.0 %" in lines
    assert f"git commit        {first.record.commit}" in lines
    assert "deliveries        up to 2" in trace(root, "v0003").text()


def test_a_file_that_was_changed_is_told(versions):
    root, (_, _, third) = versions
    content = third.model.read_bytes()
    third.model.write_bytes(content + b"?")
    try:
        assert not trace(root, "v0003").intact
        assert "the file there is another one" in trace(root, "v0003").text()
        with pytest.raises(PlmclError, match="no file, version, run or commit of a version"):
            trace(root, str(third.model))
    finally:
        third.model.write_bytes(content)


@pytest.mark.parametrize("what", ["v0009", "HEAD", "", "--all", "no such thing", "main"])
def test_what_belongs_to_no_version_is_refused(versions, what):
    root, _ = versions
    with pytest.raises(PlmclError, match=r"there are: v0001, v0002, v0003"):
        trace(root, what)


def test_a_version_goes_before_a_tag_of_its_name(versions):
    root, (first, _, third) = versions
    git(root, "tag", "v0001", third.record.commit)
    assert trace(root, "v0001").commit == first.record.commit


def test_without_a_version_it_says_so(tmp_path):
    with pytest.raises(PlmclError, match=r"champion: no file.*there are: none"):
        trace(make_repository(tmp_path), "champion")
