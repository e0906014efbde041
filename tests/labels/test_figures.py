"""What is recorded of pseudo labels, worked by hand; and that the truth changes no training."""

import math

import numpy as np
import pytest
import torch
from project import ROOT

from plmcl.data.rows import Rows
from plmcl.labels import figures
from plmcl.labels.figures import HISTOGRAM, PseudoLabelFigures, has_pseudo_labels
from plmcl.labels.store import LabelStore
from plmcl.methods import make_method
from plmcl.methods.base import Context
from plmcl.methods.plmcl import curriculum_weight
from plmcl.params import load_params

IDS = ["a", "b", "c"]
# Image a shows label 0; of c only label 2's truth is known, besides.
TARGETS = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 0]])
OBSERVED = TARGETS == 1
PSEUDO = torch.tensor([[0.995, 0.9, 0.2], [0.6, 0.4, 0.1], [0.7, 0.5, 0.8]])
TRUTH = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], np.uint8)
KNOWN = np.array([[True] * 3, [True] * 3, [False, False, True]])
PLMCL = make_method("plmcl", load_params(ROOT / "params.yaml").methods)
CONTEXT = Context(epoch=1, epochs=4, step=0, learning_rate=0.1, positives_per_image=1.5)


def watch(pseudo=PSEUDO, velocity=None, known=KNOWN, ids=IDS):
    state = {"latent": torch.logit(pseudo)}
    if velocity is not None:
        state["velocity"] = velocity
    rows = Rows(list(ids), [], [], TRUTH[: len(ids)], known[: len(ids)])
    return PseudoLabelFigures(LabelStore(ids, state), PLMCL, TARGETS, OBSERVED, rows)


def test_figures_are_of_the_unobserved_entries():
    velocity = torch.tensor([[9.0, -0.5, 0.1], [0.1, -0.1, 0.2], [0, 0, 0.2]])
    found = watch(velocity=velocity).after(CONTEXT)
    y = torch.tensor([0.9, 0.2, 0.6, 0.4, 0.1, 0.7, 0.5, 0.8])
    assert found["pseudo_labels/confidence"] == pytest.approx((2 * y - 1).abs().mean().item())
    assert found["pseudo_labels/velocity"] == pytest.approx(1.2 / 8)
    weight = curriculum_weight(y, 0.25, unobserved_weight=0.6).mean().item()
    assert found["pseudo_labels/weight"] == pytest.approx(weight)
    # Above a half and judged: 0.9 (right), 0.6 (wrong), 0.8 (right); present: also b's label 1.
    assert found["pseudo_labels/precision"] == pytest.approx(2 / 3)
    assert found["pseudo_labels/recall"] == pytest.approx(2 / 3)


def test_the_histogram_counts_every_entry_once():
    pseudo = PSEUDO.clone()
    pseudo[1, 0], pseudo[2, 1] = 0.0, 1.0
    counts = [int(count) for count in watch(pseudo).after(CONTEXT)[HISTOGRAM].split()]
    assert len(counts) == figures.BINS
    assert sum(counts) == 8
    assert (counts[0], counts[-1]) == (1, 1)


def test_what_has_no_denominator_is_none():
    undecided = watch(torch.full((3, 3), 0.5)).after(CONTEXT)
    assert undecided["pseudo_labels/precision"] is None
    assert undecided["pseudo_labels/recall"] == 0
    assert undecided["pseudo_labels/confidence"] == 0
    without = watch(known=np.zeros_like(KNOWN)).after(CONTEXT)
    assert not {"pseudo_labels/precision", "pseudo_labels/recall"} & set(without)
    assert "pseudo_labels/velocity" not in without


def test_images_are_ranked_by_what_is_added():
    found = watch().most_changed()
    # a adds 0.8, c adds 0.4 + 0.6, b adds 0.2.
    assert found["image_id"].tolist() == ["c", "c", "a", "a", "b"]
    assert found["label"].tolist() == [2, 0, 0, 1, 0]
    assert found["observed"].tolist() == [0, 0, 1, 0, 0]
    np.testing.assert_allclose(found["pseudo_label"], [0.8, 0.7, 0.995, 0.9, 0.6], atol=1e-6)
    assert watch(torch.full((3, 3), 0.5)).most_changed().empty


def test_of_many_images_some_are_looked_at(monkeypatch):
    monkeypatch.setattr(figures, "ROWS", 2)
    assert figures.looked_at(IDS) == ["a", "c"]
    rows = Rows(["a", "c"], [], [], TRUTH[::2], KNOWN[::2])
    store = LabelStore(IDS, {"latent": torch.logit(PSEUDO)})
    found = PseudoLabelFigures(store, PLMCL, TARGETS, OBSERVED, rows)
    assert sum(map(int, found.after(CONTEXT)[HISTOGRAM].split())) == 5
    assert found.most_changed()["image_id"].tolist() == ["c", "c", "a", "a"]


def test_half_precision_and_all_observed_are_fine():
    rows = Rows(IDS, [], [], TRUTH, KNOWN)
    half = LabelStore(IDS, {"latent": torch.logit(PSEUDO).half()})
    found = PseudoLabelFigures(half, PLMCL, TARGETS, torch.ones_like(OBSERVED), rows)
    assert found.after(CONTEXT)["pseudo_labels/confidence"] is None
    found = PseudoLabelFigures(half, PLMCL, TARGETS, OBSERVED, rows)
    assert math.isfinite(found.after(CONTEXT)["pseudo_labels/confidence"])


def test_only_a_store_of_pseudo_labels_has_figures():
    assert has_pseudo_labels(LabelStore(IDS, {"latent": PSEUDO}))
    assert not has_pseudo_labels(LabelStore(IDS, {"flipped": PSEUDO}))
