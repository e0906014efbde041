"""Variants in fewer bits: what is in them, and when they are not kept."""

import hashlib
import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiny_model import SIZE, make_card

from plmcl import variants
from plmcl.inference import Tagger
from plmcl.variants import write_variants

IMAGES = np.random.default_rng(0).integers(0, 256, (40, SIZE, SIZE, 3), dtype=np.uint8)


def network(path, *, gain=1.0, sensitive=False):
    """Two convolutions, the mean, a head and a calibration, as an exported file has them.

    `gain` multiplies the maps, and the head divides by it. A `sensitive` head takes the difference
    of channels that are nearly equal.
    """
    generator = np.random.default_rng(1)
    first = generator.standard_normal((8, 3, 3, 3)).astype(np.float32)
    second = generator.standard_normal((8, 8, 1, 1)).astype(np.float32)
    head = 0.1 * generator.standard_normal((8, 3)).astype(np.float32)
    if sensitive:
        second[1::2] = second[::2] * 1.0001
        head = 1e4 * np.tile(np.float32([[1], [-1]]), (4, 3))
    constants = {
        "middle": np.float32(128),
        "spread": np.float32(64),
        "first": first,
        "second": second * np.float32(gain),
        "places": np.int64([2, 3]),
        "head": head / np.float32(gain),
        "bias": np.zeros(3, np.float32),
        "slopes": np.float32([1, 0.5, 2]),
        "intercepts": np.float32([0, 0.1, -0.1]),
    }
    nodes = [
        ("Transpose", ["images"], "moved", {"perm": [0, 3, 1, 2]}),
        ("Cast", ["moved"], "floats", {"to": TensorProto.FLOAT}),
        ("Sub", ["floats", "middle"], "centred", {}),
        ("Div", ["centred", "spread"], "pixels", {}),
        ("Conv", ["pixels", "first"], "maps", {}),
        ("Relu", ["maps"], "bent", {}),
        ("Conv", ["bent", "second"], "more", {}),
        ("ReduceMean", ["more", "places"], "average", {"keepdims": 0}),
        ("ReduceMax", ["more", "places"], "highest", {"keepdims": 0}),
        ("Add", ["average", "highest"], "mean", {}),
        ("Gemm", ["mean", "head", "bias"], "logits", {}),
        ("Mul", ["logits", "slopes"], "scaled", {}),
        ("Add", ["scaled", "intercepts"], "shifted", {}),
        ("Sigmoid", ["shifted"], "probs", {}),
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ins, [out], f"node_{out}", **more) for op, ins, out, more in nodes],
        "by hand",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, ["batch", SIZE, SIZE, 3])],
        [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    card = make_card(calibration_rules=["Platt scaling"] * 3, run_id="r7")
    helper.set_model_props(proto, card.to_metadata())
    path.write_bytes(proto.SerializeToString())
    return path


def batches():
    return (IMAGES[start : start + 8] for start in range(0, len(IMAGES), 8))


def make(model, *precisions, figure=lambda probs: ("mAP", 0.5), max_drop=0.003):
    return write_variants(
        model,
        model.parent / "variants",
        precisions,
        calibration=batches,
        judged=batches,
        figure=figure,
        max_drop=max_drop,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The fp32 file, and what was made of it."""
    model = network(tmp_path_factory.mktemp("model") / "model.onnx")
    return model, make(model, "fp16", "int8")


@pytest.mark.parametrize(("place", "difference"), [(0, 2e-3), (1, 0.1)])
def test_a_variant_is_a_whole_file_that_says_what_it_is(made, place, difference):
    model, variant = made[0], made[1][place]
    path = model.parent / "variants" / f"{variant.precision}.onnx"
    assert variant.kept
    assert variant.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    tagger, original = Tagger(path), Tagger(model)
    found, expected = tagger.predict(IMAGES), original.predict(IMAGES)
    np.testing.assert_allclose(found, expected, atol=difference)
    assert not np.array_equal(found, expected)
    card = tagger.card
    assert (card.precision, original.card.precision) == (variant.precision, "fp32")
    assert card.parity == {
        "opset": onnx.load(path).opset_import[0].version,
        "fp32_sha256": original.sha256,
        "images": 40,
        "max_difference": {"fp32": pytest.approx(np.abs(found - expected).max(), abs=1e-6)},
        "figure": "mAP",
        "fp32": 0.5,
        "value": 0.5,
        "max_drop": 0.003,
    }
    same = ("label_names", "threshold_rules", "calibration_rules", "recipe", "run_id")
    assert all(getattr(card, name) == getattr(original.card, name) for name in same)
    np.testing.assert_array_equal(card.thresholds, original.card.thresholds)


def test_fp16_halves_the_backbone_and_leaves_head_and_scores_whole(made):
    path = made[0].parent / "variants" / "fp16.onnx"
    proto = onnx.load(path)
    kinds = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    assert kinds["first"] == kinds["second"] == TensorProto.FLOAT16
    assert {kinds[name] for name in ("head", "bias", "slopes")} == {TensorProto.FLOAT}
    casts = [node for node in proto.graph.node if node.op_type == "Cast"]
    assert sorted(helper.get_attribute_value(node.attribute[0]) for node in casts) == [
        TensorProto.FLOAT,  # before the mean
        TensorProto.FLOAT,  # the scores, which are that already
        TensorProto.FLOAT16,  # the pixels
    ]
    probs = Tagger(path).predict(IMAGES)
    assert (probs.astype(np.float16) != probs).mean() > 0.9  # not rounded on their way


def test_int8_has_ranges_in_the_file_and_a_whole_head(made):
    proto = onnx.load(made[0].parent / "variants" / "int8.onnx")
    nodes = {node.name: node for node in proto.graph.node}
    (weights,) = [t for t in proto.graph.initializer if t.name == "second_quantized"]
    assert weights.data_type == TensorProto.INT8
    assert np.abs(numpy_helper.to_array(weights)).max() <= 64  # seven bits
    assert list(nodes["node_logits"].input) == ["mean", "head", "bias"]
    assert nodes["node_maps"].input[0].endswith("DequantizeLinear_Output")


def test_the_folder_holds_what_was_kept_and_the_reasons(made):
    folder = made[0].parent / "variants"
    assert sorted(path.name for path in folder.iterdir()) == [
        "fp16.onnx", "int8.onnx", "variants.json",
    ]  # fmt: skip
    said = json.loads((folder / "variants.json").read_text())
    assert [entry["precision"] for entry in said] == ["fp16", "int8"]
    assert (
        said[0]["reason"] == "mAP 50.00 on 40 images, of fp32 50.00: +0.00, down to -0.3 is allowed"
    )


@pytest.mark.parametrize(("fall", "kept"), [(0.0029, True), (0.0031, False)])
def test_a_variant_that_ranks_worse_is_not_kept_and_says_why(tmp_path, fall, kept):
    model = network(tmp_path / "model.onnx")
    before = model.read_bytes()
    values = iter([0.6, 0.6 - fall])
    (variant,) = make(model, "fp16", figure=lambda probs: ("mAP", next(values)))
    assert (variant.kept, variant.fp32, variant.value) == (kept, 0.6, 0.6 - fall)
    assert (tmp_path / "variants" / "fp16.onnx").exists() == kept
    change = "-0.29" if kept else "-0.31"
    assert f"of fp32 60.00: {change}, down to -0.3 is allowed" in variant.reason
    assert (variant.sha256 == "") is not kept
    assert model.read_bytes() == before


def test_case_102_half_precision_that_overflows_is_not_kept(tmp_path):
    model = network(tmp_path / "model.onnx", gain=1e5)
    assert np.isfinite(Tagger(model).predict(IMAGES)).all()
    (variant,) = make(model, "fp16")
    assert not variant.kept
    assert variant.value is None
    # ONNX Runtime computes it in fp32 on a CPU, where nothing overflows.
    assert re.fullmatch(
        r"the backbone reaches \d\.\d+e\+\d+ on training images, and half precision ends at 65504",
        variant.reason,
    )
    assert [path.name for path in (tmp_path / "variants").iterdir()] == ["variants.json"]
    (said,) = json.loads((tmp_path / "variants" / "variants.json").read_text())
    assert said["reason"] == variant.reason


def test_case_102_scores_that_are_not_finite_are_not_kept(tmp_path, monkeypatch):
    model = network(tmp_path / "model.onnx")
    broken = onnx.load(model)
    (head,) = [tensor for tensor in broken.graph.initializer if tensor.name == "head"]
    head.CopyFrom(numpy_helper.from_array(np.full((8, 3), np.nan, np.float32), "head"))
    monkeypatch.setitem(variants._CONVERT, "int8", lambda *_: broken)
    (variant,) = make(model, "int8")
    assert not variant.kept
    assert variant.reason == ("scores: not finite for 8 of 8 images, the first at position 0")
    assert [path.name for path in (tmp_path / "variants").iterdir()] == ["variants.json"]


def test_a_graph_that_cannot_be_converted_is_a_reason(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyError("no such\nop")

    monkeypatch.setitem(variants._CONVERT, "int8", fail)
    (variant,) = make(network(tmp_path / "model.onnx"), "int8")
    assert not variant.kept
    assert variant.reason.startswith("it cannot be made: KeyError(")


def test_the_figure_is_of_the_variants_own_scores(tmp_path):
    model = network(tmp_path / "model.onnx", sensitive=True)
    expected = Tagger(model).predict(IMAGES)

    def agreement(probs):
        return "agreement", float(((probs > 0.5) == (expected > 0.5)).mean())

    (variant,) = make(model, "int8", figure=agreement)
    assert variant.fp32 == 1
    assert variant.value is not None
    assert variant.value < 0.99
    assert not variant.kept


def test_none_asked_for_leaves_an_empty_list_and_no_older_files(tmp_path):
    model = network(tmp_path / "model.onnx")
    folder = tmp_path / "variants"
    folder.mkdir()
    (folder / "fp16.onnx").write_bytes(b"of an older model")
    assert make(model) == []
    assert [path.name for path in folder.iterdir()] == ["variants.json"]
    assert json.loads((folder / "variants.json").read_text()) == []


def test_a_second_making_gives_the_same_bytes_and_says_nothing(made, tmp_path, capfd):
    model = network(tmp_path / "model.onnx")
    again = make(model, "fp16", "int8")
    assert [variant.sha256 for variant in again] == [variant.sha256 for variant in made[1]]
    assert capfd.readouterr() == ("", "")
