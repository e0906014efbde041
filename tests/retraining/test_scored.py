from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from plmcl.data.rows import Rows
from plmcl.errors import PlmclError
from plmcl.retraining.scored import Cells, Scored, truth_table


def scored(predictions: list[tuple], truth: list[tuple]) -> Scored:
    return Scored(
        version="v0001",
        predictions=pd.DataFrame(predictions, columns=["image_id", "label", "score"]),
        truth=pd.DataFrame(truth, columns=["image_id", "label", "value"]),
        model=Path("model.onnx"),
        complete=True,
    )


# Not in the order of ids; the labels are in the model's order and not in that of their names.
PREDICTIONS = [("2", "z", 0.1), ("2", "NA", 0.2), ("1", "z", 0.3), ("1", "NA", 0.4)]
TRUTH = [("1", "NA", 1), ("2", "NA", 0), ("2", "z", 1)]


def test_tables_become_matrices():
    cells = Cells.of(scored(PREDICTIONS, TRUTH))
    assert cells.image_ids == ["1", "2"]
    assert cells.label_names == ["z", "NA"]
    assert cells.probs.tolist() == np.float32([[0.3, 0.4], [0.1, 0.2]]).tolist()
    assert cells.targets.tolist() == [[0, 1], [1, 0]]
    assert cells.observed.tolist() == [[False, True], [True, True]]
    assert cells.of_labels(["NA"]).probs.tolist() == np.float32([[0.4], [0.2]]).tolist()


def test_a_table_of_truth_is_what_is_observed():
    rows = Rows(
        ["1", "2"],
        ["", ""],
        ["", ""],
        targets=np.uint8([[0, 1], [1, 0]]),
        observed=np.array([[False, True], [True, True]]),
    )
    table = truth_table(rows, ["z", "NA"])
    assert table.values.tolist() == [["1", "NA", 1], ["2", "z", 1], ["2", "NA", 0]]
    assert table["value"].dtype == np.int8


def test_a_missing_probability_is_refused():
    with pytest.raises(PlmclError, match="each of 2 images and 2 labels, found 3"):
        Cells.of(scored(PREDICTIONS[:3], TRUTH))


@pytest.mark.parametrize("stranger", [("3", "z", 1), ("1", "y", 1)])
def test_a_truth_of_other_cells_is_refused(stranger):
    with pytest.raises(
        PlmclError, match=r"truth of v0001 is not of the images .* `plmcl refreeze`"
    ):
        Cells.of(scored(PREDICTIONS, [*TRUTH, stranger]))


def test_what_differs_is_counted():
    old = Cells.of(scored(PREDICTIONS, TRUTH))
    other = [("2", "z", 0.9), ("2", "NA", 0.9), ("3", "z", 0.9), ("3", "NA", 0.9)]
    new = Cells.of(scored([*other, ("4", "z", 0.5), ("4", "NA", 0.5)], [("2", "NA", 1)]))
    assert old.difference(new) == (
        "new images: 2, images that are gone: 1, labels no longer known: 1, labels that changed: 1"
    )
    assert new.difference(old) == (
        "new images: 1, images that are gone: 2, labels known only now: 1, labels that changed: 1"
    )
    scores = [(image, label, 0.5) for image, label, _ in PREDICTIONS]
    assert old.difference(Cells.of(scored(scores, TRUTH))) == ""
