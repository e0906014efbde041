"""What the evaluate stage says of its figures."""

import numpy as np

from plmcl.evaluation import difficult_both_ways, evaluate
from plmcl.stages.evaluate import summary, why_no_map


def test_both_figures_of_difficult_objects_are_printed_case_27():
    """Case 27: the highest score is a difficult object; each figure under its protocol's name."""
    probs = np.array([[0.9], [0.8], [0.1]])
    targets, difficult = np.array([[0], [1], [0]]), np.array([[True], [False], [False]])
    observed = np.ones((3, 1), dtype=bool)
    evaluation = evaluate(targets, observed, probs)
    assert summary(evaluation) == "test mAP 50.0 (mean over 1 of 1 labels, 3 labeled images)"
    evaluation.metrics.update(difficult_both_ways(targets, observed, difficult, probs))
    assert summary(evaluation).endswith(
        "; difficult objects as negatives, the published protocol, 50.0; ignored 100.0"
    )
    assert why_no_map(evaluation) == ""


def test_why_there_is_no_map_is_apart_from_the_figure():
    """A table of methods says it once; by hand: the one known label stands second of two."""
    targets = np.array([[0, 1]])
    known = evaluate(targets, targets == 1, np.array([[0.9, 0.8]]))
    assert summary(known) == "test mAP n/a, mean reciprocal rank of the known labels 0.500"
    assert why_no_map(known).startswith("no label has known positives and known negatives there")
    nothing = evaluate(targets, np.zeros((1, 2), dtype=bool), np.array([[0.9, 0.8]]))
    assert summary(nothing) == "test mAP n/a"
    assert why_no_map(nothing) == "no known positive label on 1 test images"
