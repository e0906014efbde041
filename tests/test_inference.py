import itertools
import json
import os
import subprocess
import sys
import threading
from hashlib import sha256

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image
from tiny_model import RECIPE, SIZE, make_card, make_model

from plmcl import inference, session
from plmcl.data.images import load
from plmcl.errors import PlmclError
from plmcl.inference import Prediction, Tag, Tagger, tag_files, to_json_line
from plmcl.session import CPU

RED, GREEN, BLUE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)


def oracle(images):
    means = images.astype(np.float64).mean(axis=(1, 2))
    return 1 / (1 + np.exp(-(means - 128) / 64))


def paint(path, colour, size=(SIZE, SIZE)):
    Image.new("RGB", size, colour).save(path)
    return str(path)


@pytest.fixture
def tagger(tmp_path):
    return Tagger(make_model(tmp_path / "model.onnx"), providers=[CPU])


def test_predict_gives_the_graphs_probabilities_at_any_batch(tagger):
    images = np.random.default_rng(0).integers(0, 256, (64, SIZE, SIZE, 3), dtype=np.uint8)
    for batch in (1, 2, 7, 64):
        probs = tagger.predict(images[:batch])
        assert probs.dtype == np.float32
        np.testing.assert_allclose(probs, oracle(images[:batch]), atol=1e-6)
    assert tagger.predict(images[:0]).shape == (0, 3)
    np.testing.assert_allclose(tagger.predict(images[::-2, ::-1]), oracle(images[::-2]), atol=1e-6)


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((2, SIZE, SIZE, 3), np.float32),
        np.zeros((2, SIZE, SIZE, 3), np.int8),
        np.zeros((SIZE, SIZE, 3), np.uint8),
        np.zeros((2, 3, SIZE, SIZE), np.uint8),
        np.zeros((2, SIZE, SIZE, 4), np.uint8),
        np.zeros((2, SIZE + 1, SIZE, 3), np.uint8),
    ],
)
def test_predict_refuses_another_type_or_shape_and_names_both(tagger, images):
    with pytest.raises(PlmclError) as error:
        tagger.predict(images)
    assert "expected uint8 (B, 8, 8, 3)" in str(error.value)
    assert f"found {images.dtype} {images.shape}" in str(error.value)


def test_predict_refuses_scores_that_are_not_finite_and_says_where(tagger):
    images = np.full((4, SIZE, SIZE, 3), 9, np.uint8)
    images[[1, 3]] = 0
    with pytest.raises(PlmclError, match="not finite for 2 of 4 images, the first at position 1"):
        tagger.predict(images)


def test_case_93_the_providers_are_those_of_the_session(tagger):
    assert tagger.providers == tagger._session.get_providers() == [CPU]


def test_case_93_a_gpu_that_is_required_and_missing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "has_cuda_driver", lambda: False)
    path = make_model(tmp_path / "model.onnx")
    with pytest.raises(PlmclError, match=r"asked for CUDAExec.*needs onnxruntime-gpu, an NVIDIA"):
        Tagger(path, require_gpu=True)


def promote(path, version, **changes):
    """A version as a promotion leaves it."""
    path.parent.mkdir()
    make_model(path, make_card(run_id=version))
    record = {"version": version, "model_sha256": sha256(path.read_bytes()).hexdigest()}
    (path.parent / "record.json").write_text(json.dumps(record | changes))


def test_a_promoted_file_tells_its_version_also_through_the_champions_link(tmp_path):
    for version in ("v0001", "v0002"):
        promote(tmp_path / version / "model.onnx", version)
    (tmp_path / "champion").symlink_to("v0002")
    for folder, version in (("v0001", "v0001"), ("champion", "v0002")):
        path = tmp_path / folder / "model.onnx"
        tagger = Tagger(path)
        assert (tagger.version, tagger.card.run_id) == (version, version)
        assert tagger.sha256 == sha256(path.read_bytes()).hexdigest()


def test_a_promoted_file_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "v0001" / "model.onnx"
    promote(path, "v0001", model_sha256="0" * 64)
    with pytest.raises(PlmclError, match=r"sha256 .*but record\.json beside it has 000000000000"):
        Tagger(path)


@pytest.mark.parametrize("beside", [None, "", "[]", '{"version": 3}', "not JSON"])
def test_a_file_that_was_not_promoted_has_no_version(tmp_path, beside):
    path = make_model(tmp_path / "model.onnx")
    if beside is not None:
        (tmp_path / "record.json").write_text(beside)
    assert Tagger(path).version == ""


def test_case_94_the_network_gets_the_cores_of_this_process_unless_told(tmp_path):
    path = make_model(tmp_path / "model.onnx")
    options = Tagger(path, providers=[CPU])._session.get_session_options()
    assert options.intra_op_num_threads == len(os.sched_getaffinity(0))
    options = Tagger(path, providers=[CPU], threads=5)._session.get_session_options()
    assert options.intra_op_num_threads == 5


def test_case_100_a_label_list_of_another_width_is_refused(tmp_path):
    card = make_card(
        label_names=["a", "b"], thresholds=np.float32([0.5, 0.5]), threshold_rules=["", ""]
    )
    path = make_model(tmp_path / "model.onnx", card)
    with pytest.raises(PlmclError) as error:
        Tagger(path)
    assert str(error.value) == f"{path}: label_names: 2 names, but the graph has 3 outputs"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"size": 16}, r"graph: takes images of \[16, 16, 3\], but the recipe makes \[8, 8, 3\]"),
        ({"size": "any"}, r"graph: takes images of \['any', 'any', 3\], but"),
        ({"batch": 1}, "graph: takes batches of 1 only"),
        ({"name": "input"}, r"graph: expected images \(uint8.*found \[\('input'"),
    ],
)
def test_a_graph_at_odds_with_its_card_is_refused(tmp_path, options, rule):
    with pytest.raises(PlmclError, match=rule) as error:
        Tagger(make_model(tmp_path / "model.onnx", **options))
    assert str(error.value).startswith(f"{tmp_path}/model.onnx: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "text", "rule"),
    [
        ("plmcl.format", None, "not a model that plmcl exported"),
        ("plmcl.format", "3", "reads up to 2; upgrade plmcl"),
        (
            "plmcl.recipe",
            '{"size": 8, "background": [0, 0, 0], "max_pixels": 1, "version": 9}',
            "9",
        ),
        ("plmcl.run_id", None, "run_id: missing"),
    ],
    ids=["not ours", "newer format", "case 99: unknown recipe", "incomplete"],
)
def test_a_file_with_a_wrong_card_is_refused_in_one_line(tmp_path, key, text, rule):
    path = make_model(tmp_path / "model.onnx")
    model = onnx.load(path)
    metadata = {entry.key: entry.value for entry in model.metadata_props} | {key: text}
    del model.metadata_props[:]
    helper.set_model_props(model, {k: v for k, v in metadata.items() if v is not None})
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PlmclError, match=rule) as error:
        Tagger(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_case_104_each_label_has_name_score_threshold_and_decision(tagger, tmp_path):
    path = paint(tmp_path / "a.png", (255, 128, 0))
    (prediction,) = tag_files(tagger, [path], batch_size=4)
    # sigmoid(127/64), sigmoid(0) and sigmoid(-2), rounded as float32 numbers are written
    assert prediction == Prediction(
        path,
        None,
        [
            Tag("red", pytest.approx(0.87914, abs=1e-5), 0.5, True),
            Tag("gr;een", 0.5, 0.5, True),  # at the threshold is decided
            Tag('b,"lue', pytest.approx(0.11920, abs=1e-5), 0.99, False),
        ],
    )
    exact = tagger.predict(np.stack([load(tmp_path / "a.png", RECIPE)]))[0]
    assert [np.float32(tag.score) for tag in prediction.labels] == list(exact)


def test_case_99_files_go_through_the_recipe_that_training_uses(tagger, tmp_path):
    noise = np.random.default_rng(1).integers(0, 256, (37, 51, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(noise).save(path)
    (prediction,) = tag_files(tagger, [path], batch_size=1)
    expected = tagger.predict(np.stack([load(path, RECIPE)]))[0]
    assert [np.float32(tag.score) for tag in prediction.labels] == list(expected)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_bad_files_are_predictions_with_an_error_and_the_order_stays(tagger, tmp_path, batch_size):
    empty = tmp_path / "empty.jpg"
    empty.touch()
    (tmp_path / "page.jpg").write_text("<html>404")
    files = [
        str(empty),
        str(tmp_path / "page.jpg"),
        str(tmp_path / "missing.jpg"),
        paint(tmp_path / "red.png", RED),
        str(tmp_path),
        paint(tmp_path / "black.png", BLACK),
        paint(tmp_path / "huge.png", RED, (200, 200)),
        paint(tmp_path / "blue.png", BLUE),
        "a\0b.jpg",
    ]
    predictions = list(tag_files(tagger, files, batch_size=batch_size))
    assert [p.file for p in predictions] == files
    problems = [(p.error or "ok").split(":")[0] for p in predictions]
    assert problems == [
        "empty",
        "not_an_image",
        "unreadable",
        "ok",
        "unreadable",
        "not_finite",
        "too_large",
        "ok",
        "unreadable",
    ]
    decided = [[t.label for t in p.labels if t.decision] for p in predictions]
    assert decided == [[], [], [], ["red"], [], [], [], [], []]
    assert [len(p.labels) for p in predictions] == [0, 0, 0, 3, 0, 0, 0, 3, 0]


def test_no_file_gives_no_prediction(tagger):
    assert list(tag_files(tagger, [], batch_size=4)) == []


def test_a_batch_size_below_one_is_refused(tagger):
    with pytest.raises(PlmclError, match="batch_size: expected 1 or more, found 0"):
        list(tag_files(tagger, ["a.jpg"], batch_size=0))


def test_an_endless_list_is_read_two_batches_ahead_at_most(tagger, tmp_path):
    path = paint(tmp_path / "red.png", RED)
    taken = itertools.count()
    endless = (path for _ in taken)
    before = threading.active_count()
    stream = tag_files(tagger, endless, batch_size=5)
    for _ in range(12):
        next(stream)
    assert next(taken) == 20  # batches 1-3 given or begun, batch 4 being decoded
    stream.close()
    assert threading.active_count() == before


def test_decoding_starts_no_more_than_two_batches(tagger, monkeypatch):
    started = []
    release = threading.Event()

    def slow_load(path, recipe):
        started.append(path)
        release.wait(10)
        return np.full((SIZE, SIZE, 3), 200, np.uint8)

    monkeypatch.setattr(inference, "load", slow_load)
    monkeypatch.setattr(inference, "usable_cores", lambda: 50)
    stream = tag_files(tagger, (str(i) for i in range(100)), batch_size=4)
    worker = threading.Thread(target=lambda: next(stream))
    worker.start()
    worker.join(0.3)
    assert len(started) == 8
    release.set()
    worker.join()
    stream.close()


def test_json_line_is_the_whole_prediction_on_one_line():
    tags = [Tag("new\nline 🙂", 0.1, 0.5, False)]
    line = to_json_line(Prediction("dir/a b.jpg", None, tags))
    assert line == (
        '{"file": "dir/a b.jpg", "error": null, "labels": [{"label": "new\\nline 🙂", '
        '"score": 0.1, "threshold": 0.5, "decision": false}]}'
    )
    bad = Prediction("b.jpg", "empty: 0 bytes", [])
    assert json.loads(to_json_line(bad)) == {
        "file": "b.jpg",
        "error": "empty: 0 bytes",
        "labels": [],
    }


def test_a_name_that_is_not_utf8_can_be_tagged_and_written(tagger, tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    paint(name, RED)
    (prediction,) = tag_files(tagger, [name], batch_size=1)
    assert prediction.error is None
    assert json.loads(to_json_line(prediction).encode())["file"].endswith("caf\\udce9.png")


def test_import_needs_neither_torch_nor_lightning_pandas_nor_pydantic():
    heavy = {"torch", "lightning", "lightning_fabric", "pandas", "pydantic", "onnx", "mlflow"}
    code = f"import sys, plmcl.inference; print(sorted({heavy!r} & sys.modules.keys()))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (run.stdout, run.stderr) == ("[]\n", "")
