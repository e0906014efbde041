"""What follows from scores and records, worked by hand."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report_runs import LABELS, NOT_CHANGED, make_manifest, make_run

from plmcl.errors import PlmclError
from plmcl.labels import figures
from plmcl.report import pseudo_labels
from plmcl.report.gallery import Tag, make_changes
from plmcl.report.pseudo_labels import read_course
from plmcl.report.results import read_result
from plmcl.report.scores import Scores, cooccurrence, read_scores
from plmcl.report.sections import cost_section, pair_section, score_section

EPOCHS = [
    {"epoch": 1, "phase": "linear", "train/loss": 1.0, "val/mAP": 0.5}
    | {"pseudo_labels/confidence": 0.25, "pseudo_labels/precision": None}
    | {"pseudo_label_histogram": "3 1"},
    {"epoch": 2, "phase": "linear", "train/loss": 1.0, "val/mAP": 0.5}
    | {"pseudo_labels/confidence": 0.5, "pseudo_labels/precision": 0.75}
    | {"pseudo_label_histogram": "4 0"},
]


def scores(targets, observed=None, probs=None):
    targets = np.array(targets, np.uint8)
    observed = np.ones(targets.shape, bool) if observed is None else np.array(observed)
    probs = targets if probs is None else np.array(probs)
    ids = [f"{number}.jpg" for number in range(len(targets))]
    return Scores(ids, targets, observed, probs.astype(np.float32))


def test_how_often_labels_come_together():
    known = np.ones((4, 3), bool)
    known[2, 1] = False
    found = cooccurrence(
        scores(
            [[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]],
            known,
            [[0.9, 0.9, 0.1], [0.9, 0.9, 0.1], [0.1, 0.1, 0.1], [0.1, 0.9, 0.1]],
        ),
        np.full(3, 0.5, np.float32),
        ["cat", "dog", "fox"],
        number=3,
    )
    assert found.labels == ["cat", "dog"]  # no fox is known to be there
    assert found.counts.tolist() == [3, 2]
    # A dog beside one of the two cats of which that is known; a cat beside one of two dogs.
    np.testing.assert_allclose(found.truth, [[np.nan, 0.5], [0.5, np.nan]])
    np.testing.assert_allclose(found.predicted, [[np.nan, 1], [2 / 3, np.nan]])


def test_images_are_ordered_by_what_is_known_of_them():
    found = scores(
        [[1, 0], [1, 0], [0, 0]],
        [[True, True], [True, False], [False, False]],
        [[0.5, 0.5], [0.9, 0.9], [0.5, 0.5]],
    )
    assert found.order() == ["1.jpg", "0.jpg"]


def test_scores_are_read_in_the_manifests_order(tmp_path):
    folder = make_run(tmp_path / "sspl-40-plmcl")
    found = read_scores(folder, make_manifest())
    assert found.image_ids == ["<b>c</b>.png", "a.png", "b.png"]
    np.testing.assert_allclose(found.probs[1], [0.9, 0.6, 0.2])
    assert found.targets[1].tolist() == [1, 0, 1]
    assert found.observed.all()
    assert not read_scores(folder, make_manifest("unknown")).is_judged


def test_an_image_without_all_scores_is_refused(tmp_path):
    folder = make_run(tmp_path / "sspl-40-plmcl")
    table = pd.read_parquet(folder / "predictions.parquet")
    table.iloc[1:].to_parquet(folder / "predictions.parquet", index=False)
    with pytest.raises(PlmclError, match="an image lacks scores"):
        read_scores(folder, make_manifest())


def test_what_cannot_be_judged_has_no_section(tmp_path):
    result = read_result(make_run(tmp_path / "sspl-40-plmcl"))
    unknown = read_scores(result.folder, make_manifest("unknown"))
    assert score_section([result], {result.folder: unknown}, LABELS, {"plmcl": 0}) == {}
    assert pair_section(result, unknown, LABELS) == {}


def test_the_course_of_pseudo_labels_is_read_from_the_record(tmp_path):
    assert read_course(read_result(make_run(tmp_path / "sspl-40-an"))) is None
    result = read_result(make_run(tmp_path / "sspl-40-plmcl", history=EPOCHS))
    course = read_course(result)
    assert course.epochs.tolist() == [1, 2]
    assert course.histograms.tolist() == [[0.75, 0.25], [1, 0]]
    assert set(course.figures) == {"confidence", "precision"}
    np.testing.assert_allclose(course.figures["precision"], [np.nan, 0.75])
    broken = [EPOCHS[0] | {"pseudo_label_histogram": "1 x"}]
    result = read_result(make_run(tmp_path / "sspl-20-plmcl", history=broken))
    with pytest.raises(PlmclError, match="pseudo_label_histogram"):
        read_course(result)


def test_figures_have_the_names_under_which_training_records_them():
    assert (pseudo_labels.GROUP, pseudo_labels.HISTOGRAM) == (figures.GROUP, figures.HISTOGRAM)


def test_images_that_changed_have_what_was_given_and_what_was_added(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    table = f"{NOT_CHANGED}b.png,NA,1,0.995\nb.png,cat,0,0.9\na.png,cat,0,0.8\nd.png,cat,0,0.7\n"
    result = read_result(make_run(tmp_path / "sspl-40-plmcl", changed=table))
    found = make_changes(result.changed, make_manifest(), tmp_path)
    assert [(change.image_id, change.given) for change in found] == [
        ("b.png", ["NA"]),
        ("a.png", []),
    ]
    assert found[0].added == [Tag("cat", 0.9, "wrong")]
    assert found[1].added == [Tag("cat", 0.8, "right")]
    open_world = make_changes(result.changed, make_manifest("unknown"), tmp_path)
    assert open_world[0].added == [Tag("cat", 0.9, "unknown")]


def test_annotation_is_priced_where_it_can_be(tmp_path):
    """250 training images: 100 labels under sspl-40, 28.8 s each."""
    names = ("sspl-40-an", "fspl-an", "given-an")
    results = [read_result(make_run(tmp_path / name)) for name in names]
    found = cost_section(results, num_train=250, num_labels=3, colours={"an": 0})
    assert found["prices"] == [("sspl-40", "0.8"), ("fspl", "2.0")]
    assert "hours of annotation" in found["chart"]
    alone = cost_section(results[:1], num_train=250, num_labels=3, colours={"an": 0})
    assert (alone["chart"], alone["methods"]) == (None, [])
