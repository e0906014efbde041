"""Tests of to_matrix: hand-worked, and against a loop over rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plmcl.errors import PlmclError
from plmcl.labels.matrix import to_matrix

NAMES = ["NA", "None", "null", "no", "007", "1e3", "a,b", 'say "x"', "two\nlines", "😀"]


def table(rows):
    frame = pd.DataFrame(rows, columns=["image_id", "label", "value"])
    return frame.astype({"image_id": "str", "label": "str", "value": np.int8})


KNOWN = table([("b", "cat", 0), ("a", "dog", 1)])


def test_three_states_when_an_unlisted_label_is_unknown():
    """Cases 33 and 34: yes, no and unknown; unknown is `observed` False, never a -1."""
    targets, observed = to_matrix(KNOWN, ["a", "b", "c"], ["cat", "dog"], unlisted="unknown")
    assert targets.dtype == np.uint8
    assert observed.dtype == bool
    assert targets.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert observed.tolist() == [[False, True], [True, False], [False, False]]


def test_two_states_when_an_unlisted_label_is_negative():
    targets, observed = to_matrix(KNOWN, ["a", "b", "c"], ["cat", "dog"], unlisted="negative")
    assert targets.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert observed.all()


def test_an_image_without_labels_keeps_its_row():
    """Case 47."""
    targets, observed = to_matrix(table([]), ["a", "b"], ["cat"], unlisted="unknown")
    assert targets.tolist() == [[0], [0]]
    assert not observed.any()


@pytest.mark.parametrize("unlisted", ["negative", "unknown"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_it_is_a_loop_over_the_rows(unlisted, data):
    ids = [f"{i}.jpg" for i in range(data.draw(st.integers(1, 6)))]
    cells = st.tuples(st.sampled_from(ids), st.sampled_from(NAMES), st.integers(0, 1))
    rows = data.draw(st.lists(cells, unique_by=lambda cell: cell[:2]))
    targets = np.zeros((len(ids), len(NAMES)), dtype=int)
    observed = np.full(targets.shape, unlisted == "negative")
    for image_id, label, value in rows:
        targets[ids.index(image_id), NAMES.index(label)] = value
        observed[ids.index(image_id), NAMES.index(label)] = True
    found = to_matrix(table(rows), ids, NAMES, unlisted=unlisted)
    np.testing.assert_array_equal(found[0], targets)
    np.testing.assert_array_equal(found[1], observed)


def test_an_unknown_image_is_refused_by_its_id():
    with pytest.raises(PlmclError, match="labels: image_id 'b' is not one of the 1 known"):
        to_matrix(KNOWN, ["a"], ["cat", "dog"], unlisted="unknown")


def test_an_unknown_label_is_refused_by_its_name():
    with pytest.raises(PlmclError, match="labels: label 'dog' is not one of the 1 known"):
        to_matrix(KNOWN, ["a", "b"], ["cat"], unlisted="unknown")
