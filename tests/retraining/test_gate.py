import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper

from plmcl.card import Card
from plmcl.data.images import Recipe
from plmcl.params import Gate
from plmcl.retraining import gate as gate_module
from plmcl.retraining.gate import Decision, Scored, decide

SIZE = 8
PARITY = {"tolerance": 1e-4, "images": 7, "max_difference": {"1": 2e-7, "2": 3e-7}}
GATE = Gate(min_gain=-0.01, max_label_drop=0.15, min_positives=10, resamples=200)
LABELS = ["cat", "NA"]
# 20 positives of 60 images for the first label, every other image for the second.
TARGETS = np.stack([np.arange(60) < 20, np.arange(60) % 2 == 0], axis=1).astype(np.uint8)
IDS = [f"image {row:02d}" for row in range(60)]
FINE = [
    "all labels of the 60 test images are known",
    "ONNX equals torch: probabilities differ by 3.0e-07 at most, less than 1.0e-04 is allowed",
    "smoke prediction: 2 images, 2 labels, all finite",
]


def make_model(
    path: Path, label_names: list[str], *, scale: float = 255.0, parity: dict | None = None
) -> Path:
    """A model of at most three labels: probability c is the mean of channel c over `scale`."""
    shape = ["batch", SIZE, SIZE, 3]
    columns = np.eye(3, len(label_names), dtype=np.float32) / np.float32(scale)
    constants = {"hw": np.int64([1, 2]), "columns": columns}
    nodes = [
        helper.make_node("Cast", ["images"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["pixels", "hw"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "columns"], ["probs"]),
    ]
    graph = helper.make_graph(
        nodes,
        "by hand",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["batch", len(label_names)])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    card = Card(
        label_names=label_names,
        thresholds=np.full(len(label_names), 0.5, dtype=np.float32),
        threshold_rules=["best F1"] * len(label_names),
        recipe=Recipe(size=SIZE, background=(255, 255, 255), max_pixels=10_000),
        setting="sspl-40",
        method="an",
        data_sha256="d",
        splits_sha256="s",
        code_commit="c",
        run_id="r",
        parity=PARITY if parity is None else parity,
    )
    helper.set_model_props(model, card.to_metadata())
    path.write_bytes(model.SerializeToString())
    return path


def probs(*mistakes: int) -> np.ndarray:
    """Every positive above every negative, but the first `mistakes[l]` positives below them all."""
    scores = 0.2 + 0.6 * TARGETS.astype(np.float32)
    for label, number in enumerate(mistakes):
        scores[np.flatnonzero(TARGETS[:, label])[:number], label] = 0.1
    return scores


def ap(positives: int, mistakes: int) -> float:
    """By hand: the right ones at precision 1, then those that come after all 60 - P negatives."""
    right = positives - mistakes
    return (right + mistakes * positives / 60) / positives


def scored(
    version: str,
    scores: np.ndarray,
    model: Path,
    *,
    labels: list[str] = LABELS,
    ids: list[str] = IDS,
    targets: np.ndarray = TARGETS,
    observed: np.ndarray | None = None,
) -> Scored:
    cells = pd.DataFrame({"image_id": np.repeat(ids, len(labels)), "label": labels * len(ids)})
    truth = cells.assign(value=targets.ravel())
    known = np.ones(targets.size, dtype=bool) if observed is None else observed.ravel()
    return Scored(
        version=version,
        predictions=cells.assign(score=scores.ravel()),
        truth=truth[known],
        model=model,
        complete=bool(known.all()),
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "model.onnx", LABELS)


def judge(before: np.ndarray, after: np.ndarray, model: Path, gate: Gate = GATE) -> Decision:
    return decide(scored("v0001", before, model), scored("v0002", after, model), gate)


# ----------------------------------------------------------------------------- the two compared


def test_a_better_challenger_is_promoted(model):
    decision = judge(probs(5, 6), probs(2, 6), model)
    old, new = (ap(20, 5) + ap(30, 6)) / 2, (ap(20, 2) + ap(30, 6)) / 2
    assert decision.promote
    assert not decision.proposes
    assert decision.champion == "v0001"
    assert decision.challenger == "v0002"
    figures = decision.figures
    assert figures["champion_mAP"] == pytest.approx(old)
    assert figures["challenger_mAP"] == figures["test_mAP"] == pytest.approx(new)
    assert figures["gain"] == pytest.approx(new - old)
    assert 0 <= figures["gain_low"] < new - old < figures["gain_high"]
    assert (figures["test_images"], figures["labels_judged"], figures["resamples"]) == (60, 2, 200)
    low, high = (f"{100 * figures[name]:+.1f}" for name in ("gain_low", "gain_high"))
    # ap(20, 5) = (15 + 5/3) / 20 = 83.3, ap(20, 2) = 93.3, ap(30, 6) = 90.0.
    assert decision.reasons == [
        f"test mAP 91.7 against 86.7 of v0001: gain +5.0, 95 % interval {low} to {high}, lowest "
        "allowed -1.0",
        "no label's AP falls by more than 15.0",
        *FINE,
    ]
    assert decision.labels == [
        {
            "label": "cat",
            "champion_AP": pytest.approx(ap(20, 5)),
            "challenger_AP": pytest.approx(ap(20, 2)),
            "difference": pytest.approx(0.1),
            "positives": 20,
        },
        {
            "label": "NA",
            "champion_AP": pytest.approx(0.9),
            "challenger_AP": pytest.approx(0.9),
            "difference": 0.0,
            "positives": 30,
        },
    ]


def test_a_bad_challenger_is_refused(model):
    # Its two and six mistakes come first, and all other positives last: AP 40 and 60.
    decision = judge(probs(2, 6), 1 - probs(2, 6), model)
    assert not decision.promote
    assert not decision.proposes
    assert decision.reasons[0].startswith("test mAP 50.0 against 91.7 of v0001: gain -41.7, 95 %")
    assert decision.reasons[0].endswith("lowest allowed -1.0: the lower end is below that")
    assert decision.reasons[1] == (
        "labels whose AP falls by more than 15.0: cat by 53.3 to 40.0, NA by 30.0 to 60.0"
    )
    assert decision.reasons[2:] == FINE


def test_it_is_the_lower_end_that_must_reach_the_least_gain(model):
    better, worse = probs(4, 6), probs(5, 6)
    low = judge(better, worse, model).figures["gain_low"]
    assert low < -0.01
    assert not judge(better, worse, model).promote
    assert judge(better, worse, model, replace_gate(min_gain=low)).promote
    assert not judge(better, worse, model, replace_gate(min_gain=low + 1e-9)).promote
    # The same model gains nothing, for sure.
    same = judge(better, better, model, replace_gate(min_gain=0.0))
    assert same.promote
    assert (same.figures["gain_low"], same.figures["gain_high"]) == (0, 0)


def replace_gate(**changes: float) -> Gate:
    return GATE.model_copy(update=changes)


def test_a_label_that_falls_far_refuses_a_gain(model):
    # cat falls from 96.7 to 80.0, NA rises from 66.7 to 100.
    loose = replace_gate(min_gain=-0.1)
    decision = judge(probs(1, 20), probs(6, 0), model, loose)
    assert decision.figures["gain"] > 0
    assert decision.figures["largest_fall"] == pytest.approx(ap(20, 1) - ap(20, 6))
    assert not decision.promote
    assert decision.reasons[0] == "labels whose AP falls by more than 15.0: cat by 16.7 to 80.0"
    assert judge(
        probs(1, 20), probs(6, 0), model, replace_gate(min_gain=-0.1, max_label_drop=0.17)
    ).promote


def test_a_label_with_few_positives_is_not_judged(model):
    decision = judge(
        probs(1, 20), probs(6, 0), model, replace_gate(min_gain=-0.1, min_positives=21)
    )
    assert decision.promote
    assert decision.reasons[1] == (
        "no label's AP falls by more than 15.0 (1 of 2 labels not judged: fewer than 21 positives)"
    )
    assert decision.figures["labels_judged"] == 1


def test_the_same_two_give_the_same_decision(model):
    assert judge(probs(5, 6), probs(2, 9), model) == judge(probs(5, 6), probs(2, 9), model)


# ------------------------------------------------------------------- other images, other labels


def test_another_test_split_is_never_compared(model):
    champion = scored("v0001", probs(5, 6)[2:], model, ids=IDS[2:], targets=TARGETS[2:])
    changed = TARGETS.copy()
    changed[[7, 8, 9], 0] = 0
    challenger = scored("v0002", probs(0, 0), model, targets=changed)
    decision = decide(champion, challenger, GATE)
    assert not decision.promote
    assert not decision.proposes
    assert decision.reasons[0] == (
        "not the test split that v0001 was scored on: new images: 2, labels that changed: 3; "
        "`plmcl refreeze` scores it on the present one"
    )
    assert "gain" not in decision.figures
    assert [row["champion_AP"] for row in decision.labels] == [None, None]


def test_new_labels_are_named_and_not_compared(tmp_path):
    model = make_model(tmp_path / "model.onnx", ["dog", *LABELS])
    old = scored("v0001", probs(5, 6), model)
    dogs = TARGETS[:, :1]
    new = scored(
        "v0002",
        np.hstack([0.5 - 0.3 * dogs, probs(2, 6)]),
        model,
        labels=["dog", *LABELS],
        targets=np.hstack([dogs, TARGETS]),
    )
    decision = decide(old, new, GATE)
    assert decision.promote
    assert "new labels, not compared: dog" in decision.reasons
    assert decision.figures["gain"] == pytest.approx((ap(20, 2) - ap(20, 5)) / 2)
    assert decision.figures["challenger_mAP"] == pytest.approx((ap(20, 2) + 0.9) / 2)
    assert decision.figures["test_mAP"] == pytest.approx((ap(20, 20) + ap(20, 2) + 0.9) / 3)
    assert [row["label"] for row in decision.labels] == ["dog", "cat", "NA"]
    assert decision.labels[0]["champion_AP"] is None


def test_a_label_that_is_gone_is_for_a_person_to_decide(tmp_path, model):
    smaller = make_model(tmp_path / "model.onnx", ["NA"])
    new = scored("v0002", probs(0, 6)[:, 1:], smaller, labels=["NA"], targets=TARGETS[:, 1:])
    decision = decide(scored("v0001", probs(0, 6), model), new, GATE)
    assert not decision.promote
    assert decision.proposes
    assert decision.reasons[0] == "labels that v0001 has and it has not: cat"
    assert decision.labels[-1]["label"] == "cat"
    assert decision.labels[-1]["challenger_AP"] is None
    assert decision.figures["labels_removed"] == 1


def test_no_label_in_common(tmp_path, model):
    other = make_model(tmp_path / "model.onnx", ["dog"])
    new = scored("v0002", probs(0, 6)[:, 1:], other, labels=["dog"], targets=TARGETS[:, 1:])
    decision = decide(scored("v0001", probs(0, 6), model), new, GATE)
    assert not decision.promote
    assert decision.reasons[0] == "no label in common with v0001"


# ---------------------------------------------------------------- a test split with unknown labels


def test_without_a_complete_test_split_it_only_proposes(model):
    observed = np.ones(TARGETS.shape, dtype=bool)
    observed[50:, 0] = False
    old = scored("v0001", probs(5, 6), model, observed=observed)
    new = scored("v0002", probs(2, 6), model, observed=observed)
    decision = decide(old, new, GATE)
    assert not decision.promote
    assert decision.proposes
    assert decision.reasons[0] == (
        "the test split is not completely labeled: 110 of 120 labels of 60 images are known; "
        "label the rest, or decide yourself: `plmcl promote v0002`"
    )
    assert decision.figures["gain"] > 0
    worse = decide(
        old, replace(new, predictions=scored("", probs(20, 30), model).predictions), GATE
    )
    assert not worse.promote
    assert not worse.proposes


def test_with_positives_alone_there_is_no_map(model):
    observed = TARGETS == 1
    decision = decide(
        scored("v0001", probs(5, 6), model, observed=observed),
        scored("v0002", probs(2, 6), model, observed=observed),
        GATE,
    )
    assert decision.proposes
    assert decision.figures["test_mAP"] is None
    assert decision.reasons[0].startswith(
        "test mAP n/a: no label has a known positive and a known negative on the test split; mean "
        "reciprocal rank of the known labels 0."
    )


def test_the_first_model_needs_no_champion(model):
    decision = decide(None, scored("v0001", probs(5, 6), model), GATE)
    assert decision.promote
    assert decision.champion is None
    assert decision.reasons == [
        "the first model, nothing to compare with: test mAP 86.7",
        *FINE,
    ]
    assert decision.labels[0]["challenger_AP"] == pytest.approx(ap(20, 5))


def test_nor_is_the_first_model_promoted_on_an_incomplete_test_split(model):
    for observed in (TARGETS == 1, TARGETS == [1, 0]):
        decision = decide(None, scored("v0001", probs(5, 6), model, observed=observed), GATE)
        assert not decision.promote
        assert decision.proposes
        assert any("`plmcl promote v0001`" in reason for reason in decision.reasons)


# ------------------------------------------------------------------------- the file that is served


def refusal(model: Path) -> str:
    decision = decide(
        scored("v0001", probs(5, 6), model), scored("v0002", probs(2, 6), model), GATE
    )
    assert not decision.promote
    assert not decision.proposes
    return decision.reasons[0]


@pytest.mark.parametrize(
    ("parity", "reason"),
    [
        ({}, "its file records no comparison with torch: {}"),
        ({"tolerance": 1e-4, "max_difference": {}}, "its file records no comparison with torch"),
        (
            PARITY | {"max_difference": {"1": 2e-7, "7": 2e-4}},
            "ONNX differs from torch: probabilities differ by 2.0e-04 at most, less than 1.0e-04 "
            "is allowed",
        ),
    ],
)
def test_a_file_that_differs_from_torch_is_refused(tmp_path, parity, reason):
    model = make_model(tmp_path / "model.onnx", LABELS, parity=parity)
    assert refusal(model).startswith(reason)


def test_a_file_that_cannot_be_served_is_refused(tmp_path):
    missing = tmp_path / "model.onnx"
    assert refusal(missing) == f"it cannot be served: {missing}: not found"
    missing.write_bytes(b"not a model")
    assert "not an ONNX file" in refusal(missing)


def test_a_file_with_other_labels_is_refused(tmp_path):
    model = make_model(tmp_path / "model.onnx", ["NA", "cat"])
    assert refusal(model) == "its file names 2 labels (NA, cat), scored were 2 (cat, NA)"


def test_a_file_whose_scores_are_no_probabilities_is_refused(tmp_path):
    not_finite = make_model(tmp_path / "model.onnx", LABELS, scale=np.nan)
    assert refusal(not_finite) == (
        "smoke prediction: scores: not finite for 2 of 2 images, the first at position 0"
    )
    assert refusal(make_model(tmp_path / "model.onnx", LABELS, scale=1.0)).endswith(
        "are no probabilities"
    )


@pytest.mark.slow
def test_judging_needs_no_torch():
    code = (
        f"import sys, {gate_module.__name__}, plmcl.retraining.refreeze, plmcl.retraining.drift\n"
    )
    code += "print([m for m in ('torch', 'lightning_fabric', 'prefect') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
