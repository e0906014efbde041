"""What Triton reads, by NVIDIA's own schema of it."""

import json
import sys
from importlib import metadata, util

import numpy as np
import pytest
from google.protobuf import text_format
from tiny_model import RECIPE, SIZE, make_card, make_model

from plmcl.card import Card
from plmcl.cli import pipeline
from plmcl.errors import PlmclError
from plmcl.inference import Tagger
from plmcl.session import CPU
from plmcl.triton import write_repository


@pytest.fixture(scope="session")
def schema():
    """Alone: the package around it imports gRPC."""
    path = metadata.distribution("tritonclient").locate_file(
        "tritonclient/grpc/model_config_pb2.py"
    )
    spec = util.spec_from_file_location("model_config_pb2", path)
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def read(schema, folder):
    return text_format.Parse((folder / "config.pbtxt").read_text("utf-8"), schema.ModelConfig())


def test_the_config_says_what_the_graph_takes_and_gives(schema, tmp_path):
    folder = write_repository(make_model(tmp_path / "m.onnx"), tmp_path / "models", name="tagger")
    config = read(schema, folder)
    assert folder == tmp_path / "models/tagger"
    assert (config.name, config.backend) == ("tagger", "onnxruntime")
    assert config.default_model_filename == "model.onnx"
    assert config.max_batch_size == 64
    (images,), (probs,) = config.input, config.output
    assert (images.name, images.data_type) == ("images", schema.TYPE_UINT8)
    assert list(images.dims) == [SIZE, SIZE, 3]
    assert (probs.name, probs.data_type, list(probs.dims)) == ("probs", schema.TYPE_FP32, [3])
    assert config.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert config.dynamic_batching.max_queue_delay_microseconds == 5000
    assert (folder / probs.label_filename).read_text() == 'red\ngr;een\nb,"lue\n'


def test_the_files_are_those_that_triton_looks_for_and_the_model_is_the_very_file(tmp_path):
    model = make_model(tmp_path / "m.onnx")
    folder = write_repository(model, tmp_path / "models", name="tagger")
    found = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert found == ["1/model.onnx", "config.pbtxt", "labels.txt"]
    assert (folder / "1/model.onnx").read_bytes() == model.read_bytes()
    assert list((tmp_path / "models").iterdir()) == [folder]  # and nothing half written
    images = np.full((5, SIZE, SIZE, 3), 200, np.uint8)
    probs = Tagger(folder / "1/model.onnx", providers=[CPU]).predict(images)
    np.testing.assert_array_equal(probs, Tagger(model, providers=[CPU]).predict(images))


def test_case_104_a_client_finds_thresholds_and_recipe_in_the_config(schema, tmp_path):
    labels = ["größe", "back\\slash", 'quote"']
    model = make_model(tmp_path / "m.onnx", make_card(label_names=labels))
    config = read(schema, write_repository(model, tmp_path / "models", name="tagger"))
    told = {key: value.string_value for key, value in config.parameters.items()}
    assert json.loads(told.pop("plmcl.sha256")) == Tagger(model, providers=[CPU]).sha256
    card = Card.from_metadata(told)
    assert card.label_names == labels
    assert card.thresholds.tolist() == pytest.approx([0.5, 0.5, 0.99])
    assert card.recipe == RECIPE


def test_a_champion_keeps_its_version_number_and_takes_the_place_of_the_last(schema, tmp_path):
    models = tmp_path / "models"
    for number, threshold in (("v0002", 0.25), ("v0013", 0.75)):
        place = tmp_path / number
        place.mkdir()
        card = make_card(thresholds=np.float32([threshold] * 3))
        sha256 = Tagger(make_model(place / "model.onnx", card), providers=[CPU]).sha256
        record = {"version": number, "model_sha256": sha256}
        (place / "record.json").write_text(json.dumps(record))
        champion = tmp_path / "champion"
        champion.unlink(missing_ok=True)
        champion.symlink_to(number)
        write_repository(champion / "model.onnx", models, name="other")
        folder = write_repository(champion / "model.onnx", models, name="tagger")
    assert sorted(p.name for p in folder.iterdir()) == ["13", "config.pbtxt", "labels.txt"]
    told = read(schema, folder).parameters["plmcl.thresholds"].string_value
    assert json.loads(told) == [0.75] * 3
    assert sorted(p.name for p in models.iterdir()) == ["other", "tagger"]


def test_what_cannot_be_written_is_refused_and_what_is_there_stays(tmp_path):
    models = tmp_path / "models"
    good = make_model(tmp_path / "m.onnx")
    folder = write_repository(good, models, name="tagger")
    before = (folder / "config.pbtxt").read_bytes()
    with pytest.raises(PlmclError, match=r"name: expected letters.*found '\.\./x'"):
        write_repository(good, models, name="../x")
    labels = ["two\nlines", "a", "b"]
    bad = make_model(tmp_path / "bad.onnx", make_card(label_names=labels))
    with pytest.raises(PlmclError, match=r"label_names: 'two\\nlines' cannot be one line"):
        write_repository(bad, models, name="tagger")
    (tmp_path / "no.onnx").write_bytes(b"\0" * 99)
    with pytest.raises(PlmclError, match="not an ONNX file"):
        write_repository(tmp_path / "no.onnx", models, name="tagger")
    assert (folder / "config.pbtxt").read_bytes() == before
    assert list(models.iterdir()) == [folder]


def test_the_command_takes_a_stage_or_a_repository_and_says_so(tmp_path, capsys):
    model = make_model(tmp_path / "m.onnx")
    pipeline.export(triton=tmp_path / "models", model=model, name="tagger")
    assert capsys.readouterr().out == f"{tmp_path}/models/tagger\n"
    with pytest.raises(PlmclError, match="expected SETTING and METHOD, or --triton DIR"):
        pipeline.export("sspl-40")
    with pytest.raises(PlmclError, match="--triton: takes the file of --model"):
        pipeline.export("sspl-40", "an", triton=tmp_path / "models", model=model)
