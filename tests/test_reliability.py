"""Calibration and decisions over known cells: worked by hand, and scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from plmcl.reliability import both_known, decide_at, decide_by_label, reliability

# Of six cells five are known: scores 0.1 and 0.1 (absent), 0.75 (absent), 0.75 and 1 (present).
TARGETS = np.array([[0, 1, 0], [1, 0, 1]])
OBSERVED = np.array([[True, True, True], [True, True, False]])
PROBS = np.array([[0.125, 1.0, 0.75], [0.75, 0.125, 0.5]], np.float32)


def test_a_bin_has_the_share_of_its_positives_and_its_mean_score():
    found = reliability(TARGETS, OBSERVED, PROBS)
    np.testing.assert_allclose(found.scores, [0.125, 0.75, 1.0])
    np.testing.assert_allclose(found.shares, [0, 0.5, 1])
    assert found.cells.tolist() == [2, 2, 1]  # the unknown cell, at 0.5, is in no bin
    assert found.error == pytest.approx((2 * 0.125 + 2 * 0.25 + 0) / 5)


def test_scores_that_are_the_shares_have_no_error():
    targets = np.array([[1], [0], [0], [0]])
    found = reliability(targets, np.ones((4, 1), bool), np.full((4, 1), 0.25))
    assert found.error == 0


def test_decisions_with_one_cut_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 2, (40, 5))
    observed = generator.random((40, 5)) < 0.7
    probs = generator.integers(0, 11, (40, 5)).astype(np.float32) / 10  # with ties at the cuts
    cuts = np.array([0.0, 0.25, 0.5, 0.75])
    found = decide_at(targets, observed, probs, cuts)
    for place, cut in enumerate(cuts):
        expected = precision_recall_fscore_support(
            targets[observed], probs[observed] >= cut, average="binary"
        )
        np.testing.assert_allclose(
            [found.precision[place], found.recall[place], found.f1[place]], expected[:3]
        )


def test_above_every_score_nothing_is_said():
    found = decide_at(TARGETS, OBSERVED, PROBS * 0.5, np.array([0.9]))
    assert np.isnan(found.precision[0])
    assert (found.recall[0], found.f1[0]) == (0, 0)


def test_each_label_has_its_own_threshold():
    # Said: 0.125 (absent), 1 (present), 0.75 (present), of the known cells.
    found = decide_by_label(TARGETS, OBSERVED, PROBS, np.array([0.125, 0.5, 0.9], np.float32))
    assert found.precision[0] == pytest.approx(2 / 3)
    assert found.recall[0] == 1
    assert found.f1[0] == pytest.approx(4 / 5)


def test_positives_alone_say_nothing():
    assert both_known(TARGETS, OBSERVED)
    assert not both_known(TARGETS, OBSERVED & (TARGETS == 1))
    assert not both_known(TARGETS, np.zeros_like(OBSERVED))
