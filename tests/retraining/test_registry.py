"""MLflow's registry: what it stores is what was made, and it can be served from there."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from tiny_model import SIZE
from versions import LABELS, git, make_root, stage

from plmcl.errors import PlmclError
from plmcl.mlflow_store import open_store
from plmcl.retraining import registry
from plmcl.retraining.versions import sha256_of
from plmcl.run_record import RunRecord
from plmcl.tracking import start_run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_root(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def first(root):
    return stage(root, 1)


@pytest.fixture(autouse=True)
def _default_address(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def client(root):
    return open_store("plmcl", root).client


def stored(client, number):
    return client.get_model_version("plmcl", str(number))


def test_a_version_says_what_it_was_made_of_and_belongs_to_its_run(root, first, client):
    number = registry.register(first, root)
    found = stored(client, number)
    assert number == 1
    assert found.status == "READY"
    assert found.tags == {
        "plmcl.version": "v0001",
        "plmcl.commit": first.record.commit,
        "plmcl.dvc_lock_sha256": "1" * 64,
        "plmcl.data_sha256": "2" * 64,
        "plmcl.splits_sha256": "3" * 64,
        "plmcl.model_sha256": first.record.model_sha256,
    }
    assert git(root, "cat-file", "-t", found.tags["plmcl.commit"]) == "commit"
    # The store did not have the run: it was made from run.json, with its figures.
    run = client.get_run(found.run_id)
    assert run.data.tags["plmcl.record_id"] == first.record.mlflow_run_id
    assert run.data.metrics["test/mAP"] == 0.5
    assert run.info.status == "FINISHED"


def test_the_same_file_is_registered_once(root, first, client):
    again = replace(first, record=replace(first.record, version="v0100", created=5))
    assert registry.register(again, root) == registry.register(first, root) == 1
    assert len(client.search_model_versions("name = 'plmcl'")) == 1


def test_the_run_that_trained_it_is_used_where_it_is_there(root, client):
    version = stage(root, 2)
    run = RunRecord.read(version.path / "run.json")
    with start_run(run, root=root):
        pass
    run.write(version.path / "run.json")
    assert stored(client, registry.register(version, root)).run_id == run.mlflow_run_id


def test_the_alias_moves_to_a_version_and_only_if_it_is_elsewhere(root, first):
    second = stage(root, 3)
    assert registry.alias_version(first, root) is None
    assert registry.move_alias(first, root) == (1, True)
    assert registry.move_alias(first, root) == (1, False)
    number, moved = registry.move_alias(second, root)  # registers it, too
    assert (registry.alias_version(first, root), moved) == (number, True)
    assert registry.move_alias(first, root) == (1, True)


def test_the_alias_stays_where_it_is_if_the_store_gives_back_another_file(root, first, monkeypatch):
    """Case 78."""
    version = stage(root, 4)
    upload = registry._upload

    def damaged(*arguments):
        source = upload(*arguments)
        (Path(source) / "data" / "model.onnx").write_bytes(b"half of it")
        return source

    monkeypatch.setattr(registry, "_upload", damaged)
    with pytest.raises(PlmclError, match=r"cannot be used: sha256 .*…, expected "):
        registry.move_alias(version, root)
    assert registry.alias_version(first, root) == 1
    monkeypatch.undo()
    # It is not taken for the file the next time either: it is registered anew.
    number, moved = registry.move_alias(version, root)
    assert moved
    assert number == 5
    registry.move_alias(first, root)


def test_a_model_that_gives_no_answer_is_not_taken(root, first):
    version = stage(root, 5)
    version.model.write_bytes(b"no model, and yet the right hash")
    record = replace(version.record, model_sha256=sha256_of(version.model))
    with pytest.raises(PlmclError, match="not an ONNX file"):
        registry.move_alias(replace(version, record=record), root)
    assert registry.alias_version(first, root) == 1


def test_projects_that_share_a_store_have_models_of_their_own(root, first, client):
    version = stage(root, 6)
    run = replace(RunRecord.read(version.path / "run.json"), experiment="other/one")
    run.write(version.path / "run.json")
    assert registry.move_alias(version, root) == (1, True)
    assert client.get_model_version_by_alias("other-one", "champion").version == 1
    assert registry.alias_version(first, root) == 1


def test_a_removed_version_takes_its_files_along_and_what_is_served_stays(root, first, client):
    version = stage(root, 7)
    number = registry.register(version, root)
    found = stored(client, number)
    assert (Path(found.source) / "MLmodel").exists()
    registry.remove(version, root)
    registry.remove(first, root)  # the alias stands for it
    assert not Path(found.source).exists()
    assert client.get_run(found.run_id).info.lifecycle_stage == "active"
    numbers = {int(v.version) for v in client.search_model_versions("name = 'plmcl'")}
    assert number not in numbers
    assert 1 in numbers
    registry.remove(version, root)  # nothing is left to remove


def test_tags_are_set_on_the_run(root, first, client):
    registry.tag_run(first, {"plmcl.decision": "refused: mAP fell"}, root)
    run_id = stored(client, 1).run_id
    assert client.get_run(run_id).data.tags["plmcl.decision"] == "refused: mAP fell"


@pytest.mark.slow
def test_what_the_alias_stands_for_is_loaded_by_mlflow_with_the_code_that_lies_beside_it(
    root, first, tmp_path
):
    """Cases 77 and 101: nothing of the project is there, and the session has its provider."""
    registry.move_alias(first, root)
    code = (
        "import sys, mlflow, numpy as np, plmcl\n"
        "uri = f'sqlite:///{sys.argv[1]}/mlflow.db'\n"
        "mlflow.set_tracking_uri(uri)\n"
        "del sys.modules['plmcl']\n"
        "model = mlflow.pyfunc.load_model('models:/plmcl@champion')\n"
        "print(sys.modules['plmcl'].__file__)\n"
        f"print(model.predict(np.full((1, {SIZE}, {SIZE}, 3), 128, np.uint8)).to_json())\n"
        "ours = {n.partition('.')[0] for n in sys.modules}\n"
        "print(sorted({'torch', 'pandera'} & ours))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)],
        cwd=tmp_path,
        env=os.environ | {"PLMCL_PROVIDERS": "CPUExecutionProvider"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, answer, heavy = done.stdout.splitlines()[-3:]
    assert "/code/plmcl/" in where
    # sigmoid((128 - 128) / 64)
    expected = pd.DataFrame(np.full((1, 3), 0.5), columns=LABELS)
    assert answer == expected.to_json()
    assert heavy == "[]"


def test_mlflow_is_told_what_the_model_needs_and_nothing_of_training(root, first, client):
    source = Path(stored(client, 1).source)
    names = {line.partition("==")[0] for line in (source / "requirements.txt").read_text().split()}
    assert names - {"onnxruntime", "onnxruntime-gpu"} == {"mlflow", "numpy", "pandas", "pillow"}
    flavor = mlflow.models.Model.load(str(source)).flavors["python_function"]
    assert flavor["loader_module"] == "plmcl.pyfunc"
    assert (source / "data" / "model.onnx").read_bytes() == first.model.read_bytes()
