import csv
import dataclasses
import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from PIL import Image
from tables import manifest
from torch import nn
from torch.nn import functional

from plmcl import export
from plmcl.calibration import Calibration
from plmcl.card import Card
from plmcl.data.images import Recipe
from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.export import check_eval_graph, export_onnx
from plmcl.inference import Tagger
from plmcl.models import ModelRecord, build_classifier, load_classifier, save_classifier
from plmcl.scoring.predict import predict
from plmcl.session import CPU

SIZE, LABELS = 16, 3
IMAGES = np.random.default_rng(0).integers(0, 256, (9, SIZE, SIZE, 3), dtype=np.uint8)
CARD = Card(
    label_names=["a", "NA", "no"],
    thresholds=np.float32([0.1, 0.5, 0.9]),
    threshold_rules=["best F1"] * LABELS,
    recipe=Recipe(size=SIZE, background=(255, 255, 255), max_pixels=10_000),
    setting="sspl-40",
    method="an",
    data_sha256="d",
    splits_sha256="s",
    code_commit="c",
    run_id="r",
    parity={"old": 1},
)

CALIBRATION = Calibration(
    slopes=np.float32([0.5, 1, 2]),
    intercepts=np.float32([0.25, 0, -1]),
    rules=["Platt scaling", "none: too few", "Platt scaling"],
)

# ---- The gate and the file, with a graph made by hand in the exporter's place: fast. ----


class Means(nn.Module):
    """Logits from the mean of each channel; `Means.graph` is the same in ONNX, by hand."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, LABELS)
        self.head.weight.data = torch.tensor([[0.1, -0.1, 0], [0, 0.2, -0.2], [0.3, 0, 0]])
        self.head.bias.data = torch.tensor([0.0, 1.0, -38.0])

    def forward(self, images):
        return self.head(images.float().mean(dim=(1, 2)))

    def graph(self, *, off_by=0.0, from_batch=1):
        """The ONNX model; in batches of `from_batch` or more every probability is off."""
        weight, bias = (p.detach().numpy() for p in (self.head.weight, self.head.bias))
        constants = {"hw": np.int64([1, 2]), "w": weight, "b": bias}
        constants |= {"from": np.int64([from_batch]), "d": np.float32(off_by), "0": np.float32(0)}
        nodes = [
            helper.make_node("Cast", ["images"], ["pixels"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["pixels", "hw"], ["mean"], keepdims=0),
            helper.make_node("Gemm", ["mean", "w", "b"], ["logits"], transB=1),
            helper.make_node("Sigmoid", ["logits"], ["right"]),
            helper.make_node("Shape", ["images"], ["batch"], start=0, end=1),
            helper.make_node("GreaterOrEqual", ["batch", "from"], ["large"]),
            helper.make_node("Where", ["large", "d", "0"], ["error"]),
            helper.make_node("Add", ["right", "error"], ["probs"]),
        ]
        shape = ["batch", SIZE, SIZE, 3]
        graph = helper.make_graph(
            nodes,
            "by hand",
            [helper.make_tensor_value_info("images", TensorProto.UINT8, shape)],
            [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["batch", LABELS])],
            [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture
def exporter_gives(monkeypatch):
    return lambda proto: monkeypatch.setattr(export, "_to_onnx", lambda *_: proto)


def test_card_records_what_the_gate_measured(tmp_path, exporter_gives):
    exporter_gives(Means().graph(off_by=0.001, from_batch=7))
    path = tmp_path / "new" / "model.onnx"
    card = export_onnx(Means(), CARD, IMAGES, path, tolerance=0.002)
    assert card.parity["opset"] == 18
    assert card.parity["tolerance"] == 0.002
    assert card.parity["images"] == 9
    assert list(card.parity["max_difference"]) == ["1", "2", "7"]
    assert list(card.parity["max_difference"].values()) == pytest.approx([0, 0, 0.001], abs=2e-6)
    assert Tagger(path).card.to_metadata() == card.to_metadata()
    assert card.calibration_rules == ["none: not asked for"] * LABELS
    measured = {"calibration_rules": CARD.calibration_rules, "parity": CARD.parity}
    assert dataclasses.replace(card, **measured).to_metadata() == CARD.to_metadata()


def test_labels_of_any_kind_go_from_the_label_list_to_the_answers_case_42(tmp_path, exporter_gives):
    """Case 42: manifest, checkpoint, ONNX file, a CSV and a JSON line of the answers."""
    names = ['a, "b"', "it's", 'a", "c']
    manifest(["x.jpg"], label_names=names).write(tmp_path / "manifests")
    listed = Manifest.read(tmp_path / "manifests").label_names
    classifier = build_classifier("test_efficientnet", num_labels=LABELS, seed=0)
    record = ModelRecord(
        backbone="test_efficientnet", pooling="mean", head="linear", label_names=listed, recipe={},
        setting="sspl-40", method="an", weights="none", weights_sha256="", best_epoch=1,
        selection="val/mAP", selection_value=None, data_sha256="", splits_sha256="", code_commit="",
    )  # fmt: skip
    save_classifier(classifier, record, tmp_path / "model.pt")
    _, loaded = load_classifier(tmp_path / "model.pt", names)
    card = dataclasses.replace(CARD, label_names=loaded.label_names)
    exporter_gives(Means().graph())
    export_onnx(Means(), card, IMAGES, tmp_path / "model.onnx", tolerance=0.002)
    Image.fromarray(IMAGES[0]).save(tmp_path / "x.png")
    options = {"output": None, "batch_size": 1, "providers": [CPU], "require_gpu": False}
    for suffix in ("csv", "jsonl"):
        out = tmp_path / f"tags.{suffix}"
        predict([str(tmp_path / "x.png")], tmp_path / "model.onnx", out=out, **options)
    answer = json.loads((tmp_path / "tags.jsonl").read_text())
    assert [entry["label"] for entry in answer["labels"]] == names
    with (tmp_path / "tags.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert json.loads(row["scores"]) == answer["labels"]
    assert row["labels"] == ";".join(e["label"] for e in answer["labels"] if e["decision"]) != ""


@pytest.mark.parametrize("older", [None, b"an older model"])
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_case_96_a_failed_gate_names_batch_and_numbers_and_leaves_no_file(
    tmp_path, exporter_gives, older, batch
):
    exporter_gives(Means().graph(off_by=0.25, from_batch=batch))
    path = tmp_path / "model.onnx"
    if older:
        path.write_bytes(older)
    with pytest.raises(PlmclError) as error:
        export_onnx(Means(), CARD, IMAGES, path, tolerance=1e-4)
    assert str(error.value) == (
        f"{path}: not exported: parity gate: at batch {batch} a probability differs from torch's "
        "by 0.25, the tolerance (export.tolerance) is 0.0001"
    )
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([older] if older else [])


def test_scores_that_are_not_finite_fail_the_gate(tmp_path, exporter_gives):
    exporter_gives(Means().graph(off_by=np.nan, from_batch=7))
    with pytest.raises(PlmclError, match="at batch 7 the scores of 7 of 9 images are not fin"):
        export_onnx(Means(), CARD, IMAGES, tmp_path / "model.onnx", tolerance=1e-4)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_served_is_not_exported(tmp_path, exporter_gives):
    proto = Means().graph()
    proto.opset_import[0].version = 99
    exporter_gives(proto)
    with pytest.raises(PlmclError, match=r"model\.onnx: not exported: .*model has opset 99, this"):
        export_onnx(Means(), CARD, IMAGES, tmp_path / "model.onnx", tolerance=1e-4)
    assert list(tmp_path.iterdir()) == []


def test_a_passed_gate_replaces_an_older_file(tmp_path, exporter_gives):
    exporter_gives(Means().graph())
    path = tmp_path / "model.onnx"
    path.write_bytes(b"an older model")
    card = export_onnx(Means(), CARD, IMAGES, path, tolerance=1e-4)
    assert Tagger(path).card.to_metadata() == card.to_metadata()
    assert list(tmp_path.iterdir()) == [path]


def test_what_does_not_fit_is_refused_before_any_file(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(PlmclError, match=r"uint8 \(7 or more, 16, 16, 3\), found uint8 \(6, 16"):
        export_onnx(Means(), CARD, IMAGES[:6], path, tolerance=1e-4)
    with pytest.raises(PlmclError, match=r"found uint8 \(9, 8, 16, 3\)"):
        export_onnx(Means(), CARD, IMAGES[:, ::2], path, tolerance=1e-4)
    with pytest.raises(PlmclError, match="found float32"):
        export_onnx(Means(), CARD, IMAGES.astype(np.float32), path, tolerance=1e-4)
    card = dataclasses.replace(
        CARD, label_names=["a"], thresholds=np.float32([0.5]), threshold_rules=["k"]
    )
    with pytest.raises(PlmclError, match="the card names 1 labels, but the model has 3 outputs"):
        export_onnx(Means(), card, IMAGES, path, tolerance=1e-4)
    broken = Means()
    broken.head.bias.data[1] = float("nan")
    with pytest.raises(PlmclError, match="own scores are not finite"):
        export_onnx(broken, CARD, IMAGES, path, tolerance=1e-4)
    assert list(tmp_path.iterdir()) == []


def proto_of(*nodes):
    return helper.make_model(helper.make_graph(nodes, "g", [], []))


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("BatchNormalization", list("xsbmv"), list("ymv"), "n", training_mode=1),
        helper.make_node("Dropout", ["x", "ratio", "training"], ["y"], "n"),
        helper.make_node("RandomNormalLike", ["x"], ["y"], "n"),
        helper.make_node("Bernoulli", ["x"], ["y"], "n"),
    ],
    ids=lambda node: node.op_type,
)
def test_case_98_a_training_node_is_found_also_inside_a_branch(node):
    branches = {
        "then_branch": helper.make_graph([node], "t", [], []),
        "else_branch": helper.make_graph([], "e", [], []),
    }
    for proto in (proto_of(node), proto_of(helper.make_node("If", ["c"], ["y"], **branches))):
        with pytest.raises(PlmclError, match=f"node 'n' is a {node.op_type} in training mode"):
            check_eval_graph(proto)


def test_case_98_nodes_in_eval_mode_pass():
    normalise = helper.make_node("BatchNormalization", list("xsbmv"), ["y"], training_mode=0)
    check_eval_graph(proto_of(normalise, helper.make_node("Dropout", ["y", "ratio"], ["z"])))


# ---- The exporter itself: some seconds a model. ----


class Tiny(nn.Module):
    """As `models.Classifier`: uint8 (B, H, W, 3) to logits, with what train mode changes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, stride=2)
        self.norm = nn.BatchNorm2d(6)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(6, LABELS)

    def forward(self, images):
        pixels = images.permute(0, 3, 1, 2).float()
        features = self.norm(self.conv((pixels - 128) / 64)).relu().mean(dim=(2, 3))
        return self.head(self.dropout(features))


class AlwaysDropping(Tiny):
    def forward(self, images):
        return functional.dropout(super().forward(images), 0.5, training=True)


class AlwaysNormalisingByTheBatch(Tiny):
    def forward(self, images):
        logits = super().forward(images)
        return functional.batch_norm(logits, torch.zeros(3), torch.ones(3), training=True)


def trained(cls=Tiny):
    """In train mode, with running statistics and weights far from their initial values."""
    torch.manual_seed(0)
    model = cls()
    with torch.no_grad():
        for _ in range(5):
            model(torch.from_numpy(IMAGES))
        model.head.weight.mul_(5)
    return model


def torch_probs(model, images):
    with torch.no_grad():
        logits = model(torch.from_numpy(images))
    return 1 / (1 + np.exp(-logits.double().numpy()))


def calibrated_probs(model, images):
    probs = torch_probs(model, images)
    return 1 / (
        1 + np.exp(-CALIBRATION.slopes * np.log(probs / (1 - probs)) - CALIBRATION.intercepts)
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The file of a model that was in train mode, and the card that the export returned."""
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    return path, export_onnx(trained(), CARD, IMAGES, path, tolerance=1e-4, calibration=CALIBRATION)


@pytest.mark.slow
def test_case_96_any_batch_size_gives_torchs_probabilities(exported):
    session = onnxruntime.InferenceSession(exported[0], providers=["CPUExecutionProvider"])
    many = np.random.default_rng(1).integers(0, 256, (64, SIZE, SIZE, 3), dtype=np.uint8)
    for batch in (1, 2, 7, 64):
        (probs,) = session.run(["probs"], {"images": many[:batch]})
        assert probs.dtype == np.float32
        assert probs.shape == (batch, LABELS)
        expected = calibrated_probs(trained().eval(), many[:batch])
        np.testing.assert_allclose(probs, expected, atol=1e-6)
    assert np.ptp(probs, axis=0).min() > 0.01  # the images do differ: the test can fail


@pytest.mark.slow
def test_recorded_parity_is_what_anyone_measures(exported):
    path, card = exported
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = calibrated_probs(trained().eval(), IMAGES)
    for batch, recorded in card.parity["max_difference"].items():
        starts = range(0, 9, int(batch))
        parts = [session.run(None, {"images": IMAGES[i : i + int(batch)]})[0] for i in starts]
        measured = np.abs(np.concatenate(parts) - expected).max()
        assert recorded == pytest.approx(measured, abs=2e-7)  # torch's own sigmoid rounds
        assert recorded < 1e-6
    assert card.calibration_rules == CALIBRATION.rules
    assert card.parity["opset"] == onnx.load(path).opset_import[0].version == 18


@pytest.mark.slow
def test_graph_takes_uint8_nhwc_and_names_its_ends(exported):
    graph = onnx.load(exported[0]).graph
    ends = {
        end.name: (
            end.type.tensor_type.elem_type,
            [dim.dim_param or dim.dim_value for dim in end.type.tensor_type.shape.dim],
        )
        for end in (*graph.input, *graph.output)
    }
    assert ends == {
        "images": (TensorProto.UINT8, ["batch", SIZE, SIZE, 3]),
        "probs": (TensorProto.FLOAT, ["batch", LABELS]),
    }


@pytest.mark.slow
def test_case_98_a_model_in_train_mode_is_exported_in_eval_mode(exported):
    path, _ = exported
    kinds = {node.op_type for node in onnx.load(path).graph.node}
    assert not kinds & {"Dropout", "Bernoulli", "RandomUniformLike"}
    probs = Tagger(path).predict(IMAGES)
    np.testing.assert_allclose(probs, calibrated_probs(trained().eval(), IMAGES), atol=1e-6)
    assert np.abs(probs - calibrated_probs(trained(), IMAGES)).max() > 0.05  # what train mode gives


@pytest.mark.slow
def test_case_101_one_file_that_loads_alone(exported, tmp_path):
    path, _ = exported
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]
    alone = shutil.copy(path, tmp_path / "alone.onnx")
    np.testing.assert_array_equal(Tagger(alone).predict(IMAGES), Tagger(path).predict(IMAGES))


@pytest.mark.slow
def test_a_second_export_is_silent_gives_the_same_bytes_and_leaves_the_model_alone(
    exported, tmp_path, capfd, recwarn
):
    model = trained()
    model.norm.eval()  # frozen, inside a model that trains
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    path = tmp_path / "model.onnx"
    export_onnx(model, CARD, IMAGES, path, tolerance=1e-4, calibration=CALIBRATION)
    assert path.read_bytes() == exported[0].read_bytes()
    assert capfd.readouterr() == ("", "")
    assert [str(warning.message) for warning in recwarn] == []
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_nothing_of_this_machine_is_in_the_file(exported):
    content = exported[0].read_bytes()
    for trace in (b"site-packages", b"test_export", b"stack_trace", b"/tmp", b"/home", b"/work"):
        assert trace not in content


@pytest.mark.slow
def test_case_98_dropout_that_is_on_in_eval_mode_is_refused(tmp_path):
    with pytest.raises(PlmclError, match="a Dropout in training mode"):
        export_onnx(trained(AlwaysDropping), CARD, IMAGES, tmp_path / "m.onnx", tolerance=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_case_98_batch_statistics_in_eval_mode_fail_the_gate(tmp_path):
    # The exporter writes such a layer as an eval-mode one, without a word.
    model = trained(AlwaysNormalisingByTheBatch)
    with pytest.raises(PlmclError, match=r"parity gate: at batch 1 .* differs from torch's"):
        export_onnx(model, CARD, IMAGES, tmp_path / "m.onnx", tolerance=1e-4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_unit_head_on_parts_is_the_same_in_onnx(tmp_path):
    from plmcl.models import build_classifier

    name = "test_efficientnet"
    model = build_classifier(name, num_labels=LABELS, seed=0, pooling="parts", head="unit").eval()
    card = dataclasses.replace(CARD, recipe=dataclasses.replace(CARD.recipe, size=96))
    images = np.kron(IMAGES, np.ones((1, 6, 6, 1), np.uint8))
    with torch.no_grad():
        model.head.center.copy_(model.features(torch.from_numpy(images)).mean(dim=0))
        model.head.weight.mul_(20)
    path = tmp_path / "model.onnx"
    export_onnx(model, card, images, path, tolerance=1e-4)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch in (1, 2, 5):
        (probs,) = session.run(["probs"], {"images": images[:batch]})
        np.testing.assert_allclose(probs, torch_probs(model, images[:batch]), atol=1e-5)
    assert np.ptp(probs, axis=0).min() > 0.01  # the images do differ: the test can fail
