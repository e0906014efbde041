import numpy as np
import pytest

from plmcl.labelling.suspicions import MISSING, WRONG, precision_at, ranked, suspect

# Four images, labels a and b. Image 0 is said to show a, image 1 a and b, image 3 not to show b.
TARGETS = np.uint8([[1, 0], [1, 1], [0, 0], [0, 0]])
OBSERVED = np.array([[1, 0], [1, 1], [0, 0], [0, 1]], dtype=bool)
PROBS = np.float32([[0.9, 0.2], [0.1, 0.8], [0.6, 0.7], [0.3, 0.75]])


def found(probs=PROBS, passed_over=None, per_label=10):
    nothing = np.zeros_like(OBSERVED)
    passed_over = nothing if passed_over is None else passed_over
    return ranked(
        suspect(TARGETS, OBSERVED, probs, ["a", "b"], passed_over=passed_over, per_label=per_label)
    )


def rows(table, kind, *columns):
    return list(table.loc[table["kind"] == kind, list(columns)].itertuples(index=False, name=None))


def test_missing_are_the_highest_scores_of_what_is_not_said_to_be_there():
    assert rows(found(), MISSING, "row", "label", "known", "rank", "label_rank") == [
        (3, "b", "absent", 1, 1),
        (2, "b", "unknown", 2, 2),
        (2, "a", "unknown", 3, 1),
        (3, "a", "unknown", 4, 2),
        (0, "b", "unknown", 5, 3),
    ]


def test_wrong_are_scores_below_the_mean_of_what_is_said_to_show_the_label():
    """Label a: mean (0.9 + 0.1) / 2 = 0.5, so 0.1 is suspicious by 1 - 0.1 / 0.5 = 0.8."""
    table = found()
    assert rows(table, WRONG, "row", "label", "known") == [(1, "a", "present")]
    assert table.loc[table["kind"] == WRONG, "suspicion"].iloc[0] == pytest.approx(0.8)


def test_an_entry_without_a_score_is_never_suspected_and_counts_in_no_mean():
    probs = PROBS.copy()
    probs[0, 0] = probs[2, 1] = np.nan
    table = found(probs)
    assert (2, "b") not in rows(table, MISSING, "row", "label")
    assert rows(table, WRONG, "row") == []  # the mean of a is now 0.1 itself


def test_difficult_objects_are_not_called_missing_case_27():
    """A published list calls them absent, and they are there: their score is high."""
    difficult = np.zeros_like(OBSERVED)
    difficult[3, 1] = True
    assert (3, "b") not in rows(found(passed_over=difficult), MISSING, "row", "label")


def test_so_many_of_each_label_and_no_more():
    assert rows(found(per_label=1), MISSING, "row", "label") == [(3, "b"), (2, "a")]


def test_precision_is_the_share_of_right_ones_among_the_first():
    true = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=bool)
    columns = {"a": 0, "b": 1}
    table = found()
    assert precision_at(table, MISSING, true, columns, 1) == 1.0
    assert precision_at(table, MISSING, true, columns, 3) == pytest.approx(2 / 3)
    assert precision_at(table, WRONG, true, columns, 1) == 1.0
    assert precision_at(table, MISSING, true, columns, 6) is None
