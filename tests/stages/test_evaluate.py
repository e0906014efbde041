"""What the evaluate stage says of its figures."""

import numpy as np

from plmcl.evaluation import difficult_both_ways, evaluate
from plmcl.stages.evaluate import summary


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
