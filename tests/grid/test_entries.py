"""From runs to entries, every number worked by hand."""

import math

import pandas as pd
import pytest
from grid.small import grid, runs
from scipy import stats

from plmcl.errors import PlmclError
from plmcl.grid.entries import compare, leaders, make_entries, tuning

TUNED = {"tune": {"methods.epr.weight": [1.0, 2.0]}}


def test_an_entry_is_mean_and_sample_deviation_over_the_seeds_in_percent():
    """80 and 84: mean 82, and each is 2 away, so the deviation is sqrt((4 + 4) / 1)."""
    entries = make_entries(
        grid({"EPR": {}}, settings=["fspl"]),
        runs(("EPR", "fspl", "", (0.7, 0.7), (0.80, 0.84))),
    )
    (entry,) = entries.values()
    assert entry.mean == pytest.approx(82)
    assert entry.deviation == pytest.approx(math.sqrt(8))
    assert entry.test == pytest.approx({0: 80, 1: 84})
    assert entry.lacks == ()


def test_the_candidate_is_chosen_on_validation_though_another_is_better_on_the_test():
    spec = grid({"EPR": TUNED}, settings=["sspl-20", "fspl"])
    entries = make_entries(
        spec,
        runs(
            ("EPR", "sspl-20", "weight=1", (0.70, 0.74), (0.50, 0.50)),
            ("EPR", "sspl-20", "weight=2", (0.73, 0.70), (0.90, 0.90)),
            ("EPR", "fspl", "weight=1", (0.70, 0.70), (0.60, 0.60)),
            ("EPR", "fspl", "weight=2", (0.71, 0.71), (0.65, 0.65)),
        ),
    )
    assert [(e.candidate, e.mean) for e in entries.values()] == [
        ("weight=1", pytest.approx(50)),  # .720 against .715
        ("weight=2", pytest.approx(65)),  # each setting by itself
    ]


def test_candidates_are_chosen_on_the_tuning_seeds_and_shown_on_all():
    """The second seed would choose otherwise, and is not asked."""
    spec = grid({"EPR": TUNED}, settings=["fspl"], tune_seeds=[0])
    table = runs(
        ("EPR", "fspl", "weight=1", (0.70, 0.10), (0.60, 0.62)),
        ("EPR", "fspl", "weight=2", (0.60, 0.99), (0.90, 0.90)),
    )
    entry = make_entries(spec, table)["EPR", "fspl"]
    assert (entry.candidate, entry.mean) == ("weight=1", pytest.approx(61))


def test_what_is_missing_is_named_and_never_averaged_silently():
    spec = grid({"EPR": {}, "tuned": TUNED}, seeds=[0, 1, 2])
    entries = make_entries(
        spec,
        runs(
            ("EPR", "sspl-20", "", (0.7, None, 0.7), (0.80, None, 0.90)),
            ("tuned", "fspl", "weight=1", (0.7, 0.7, 0.7), (0.1, 0.2, 0.3)),
            ("tuned", "fspl", "weight=2", (0.8, 0.8, None), (0.1, 0.2, None)),
        ),
    )
    assert entries["EPR", "sspl-20"].lacks == ("seed 1",)
    assert entries["EPR", "sspl-20"].mean == pytest.approx(85)
    assert entries["EPR", "fspl"].lacks == ("seed 0", "seed 1", "seed 2")
    assert math.isnan(entries["EPR", "fspl"].mean)
    # The better candidate lacks a tuning seed: it cannot be compared and is not chosen.
    assert entries["tuned", "fspl"].candidate == "weight=1"
    assert entries["tuned", "fspl"].lacks == ("1 of 2 candidates",)


def test_a_figure_that_is_not_defined_is_missing():
    table = runs(("EPR", "fspl", "", (0.7, 0.7), (0.8, math.nan)))
    entry = make_entries(grid({"EPR": {}}, settings=["fspl"]), table)["EPR", "fspl"]
    assert (entry.mean, entry.lacks) == (pytest.approx(80), ("seed 1",))


def test_what_is_not_tuned_needs_no_tuning_seed():
    spec = grid({"EPR": {}}, settings=["fspl"], tune_seeds=[0])
    entry = make_entries(spec, runs(("EPR", "fspl", "", (None, 0.7), (None, 0.8))))["EPR", "fspl"]
    assert (entry.mean, entry.lacks) == (pytest.approx(80), ("seed 0",))


def test_a_row_with_its_own_setting_is_the_same_in_each_column():
    spec = grid({"BCE": {"setting": "ffl", "reference": True}})
    entries = make_entries(spec, runs(("BCE", "ffl", "", (0.9, 0.9), (0.91, 0.93))))
    assert entries["BCE", "sspl-20"] == entries["BCE", "fspl"]
    assert entries["BCE", "fspl"].mean == pytest.approx(92)


def test_the_best_of_a_column_is_no_reference_and_lacks_nothing():
    spec = grid({"BCE": {"setting": "ffl", "reference": True}, "AN": {}, "EPR": {}, "half": {}})
    entries = make_entries(
        spec,
        runs(
            ("BCE", "ffl", "", (0.9, 0.9), (0.99, 0.99)),
            ("AN", "sspl-20", "", (0.9, 0.9), (0.70, 0.70)),
            ("EPR", "sspl-20", "", (0.9, 0.9), (0.60, 0.78)),
            ("half", "sspl-20", "", (0.9, None), (0.98, None)),
            ("AN", "fspl", "", (0.9, 0.9), (0.75, 0.75)),
            ("EPR", "fspl", "", (0.9, 0.9), (0.75, 0.75)),
        ),
    )
    assert leaders(spec, entries) == {("AN", "sspl-20"), ("AN", "fspl"), ("EPR", "fspl")}


def test_nothing_is_best_of_one():
    spec = grid({"AN": {}}, settings=["fspl"])
    table = runs(("AN", "fspl", "", (0.9, 0.9), (0.7, 0.7)))
    assert leaders(spec, make_entries(spec, table)) == set()


# ------------------------------------------------------------------------------ comparisons


def test_a_comparison_by_hand():
    """Against EPR (mean 81), not AN (80.5): differences 1 and 3 points, so t = 2 and p as Cauchy's;
    under fspl -3 and -4, t = -7. Holm doubles the smaller, and the larger stays."""
    spec = grid({"AN": {}, "EPR": {}, "ours": {}}, compare={"rows": ["ours"]})
    entries = make_entries(
        spec,
        runs(
            ("AN", "sspl-20", "", (0.9, 0.9), (0.81, 0.80)),
            ("EPR", "sspl-20", "", (0.9, 0.9), (0.80, 0.82)),
            ("ours", "sspl-20", "", (0.9, 0.9), (0.81, 0.85)),
            ("AN", "fspl", "", (0.9, 0.9), (0.90, 0.91)),
            ("EPR", "fspl", "", (0.9, 0.9), (0.80, 0.80)),
            ("ours", "fspl", "", (0.9, 0.9), (0.87, 0.87)),
        ),
    )
    first, second = compare(spec, entries)
    assert (first.column, first.against, first.pairs) == ("sspl-20", "EPR", 2)
    assert first.difference == pytest.approx(2)
    assert first.p == pytest.approx(1 - 2 * math.atan(2) / math.pi)
    assert (second.column, second.against) == ("fspl", "AN")
    assert second.difference == pytest.approx(-3.5)
    assert second.p == pytest.approx(1 - 2 * math.atan(7) / math.pi)
    assert second.p_holm == pytest.approx(2 * second.p)
    assert first.p_holm == pytest.approx(first.p)


def test_pairs_are_those_of_the_same_seed():
    spec = grid({"EPR": {}, "ours": {}}, seeds=[0, 1, 2, 3], settings=["fspl"],
                compare={"rows": ["ours"]})  # fmt: skip
    table = runs(
        ("EPR", "fspl", "", (0.9, 0.9, 0.9, None), (0.70, 0.80, 0.90, None)),
        ("ours", "fspl", "", (None, 0.9, 0.9, 0.9), (None, 0.82, 0.91, 0.60)),
    )
    # The order of the lines says nothing.
    (comparison,) = compare(spec, make_entries(spec, table.iloc[::-1]))
    assert comparison.pairs == 2
    assert comparison.difference == pytest.approx(1.5)
    assert comparison.p == pytest.approx(stats.ttest_rel([82, 91], [80, 90]).pvalue)


def test_a_row_is_held_against_no_reference_and_not_against_itself():
    spec = grid(
        {"BCE": {"setting": "ffl", "reference": True}, "AN": {}, "EPR": {}, "ours": {}},
        settings=["fspl"],
        compare={"rows": ["ours"]},
    )
    lines = [
        ("BCE", "ffl", "", (0.9, 0.9), (0.99, 0.98)),
        ("AN", "fspl", "", (0.9, 0.9), (0.70, 0.71)),
        ("EPR", "fspl", "", (0.9, 0.9), (0.75, 0.71)),
        ("ours", "fspl", "", (0.9, 0.9), (0.95, 0.91)),
    ]
    assert [c.against for c in compare(spec, make_entries(spec, runs(*lines)))] == ["EPR"]
    spec = spec.model_copy(
        update={"compare": spec.compare.model_copy(update={"against": ("AN", "ours")})}
    )
    assert [c.against for c in compare(spec, make_entries(spec, runs(*lines)))] == ["AN"]


def test_a_comparison_that_cannot_be_made_yet_is_there_and_not_counted():
    spec = grid({"EPR": {}, "ours": {}}, compare={"rows": ["ours"]})
    table = runs(
        ("EPR", "sspl-20", "", (0.9, 0.9), (0.80, 0.82)),
        ("ours", "sspl-20", "", (0.9, 0.9), (0.81, 0.85)),
        ("ours", "fspl", "", (0.9, 0.9), (0.81, 0.85)),
    )
    first, second = compare(spec, make_entries(spec, table))
    assert first.p_holm == first.p
    assert (second.against, second.pairs) == ("", 0)
    assert all(map(math.isnan, (second.difference, second.p, second.p_holm)))


def test_no_comparison_is_made_that_nobody_asked_for():
    spec = grid({"AN": {}, "EPR": {}})
    assert compare(spec, make_entries(spec, runs(("AN", "fspl", "", (0.9,), (0.8,))))) == []


# ----------------------------------------------------------------------------------- tuning


def test_the_tuning_table_has_every_candidate_and_marks_the_chosen():
    spec = grid({"EPR": TUNED, "AN": {}}, settings=["fspl"], tune_seeds=[0])
    table = runs(
        ("EPR", "fspl", "weight=1", (0.70, 0.10), (0.60, 0.62)),
        ("EPR", "fspl", "weight=2", (0.60, None), (0.90, None)),
        ("AN", "fspl", "", (0.50, 0.90), (0.90, 0.90)),
    )
    found = tuning(spec, table, make_entries(spec, table))
    assert list(found) == ["row", "setting", "candidate", "seeds", "val", "chosen"]
    assert found.values.tolist() == [
        ["AN", "fspl", "", 1, 50.0, True],
        ["EPR", "fspl", "weight=1", 1, 70.0, True],
        ["EPR", "fspl", "weight=2", 1, 60.0, False],
    ]


# ---------------------------------------------------------------------------------- refusals


def test_what_was_chosen_on_the_test_split_is_not_mixed_with_what_was_not():
    table = pd.concat(
        [
            runs(("AN", "fspl", "", (0.9, 0.9), (0.8, 0.8))),
            runs(("EPR", "fspl", "", (0.9, 0.9), (0.8, 0.8)), selection="selected_on_test/mAP"),
        ]
    )
    with pytest.raises(PlmclError) as refusal:
        make_entries(grid({"AN": {}, "EPR": {}}), table)
    assert str(refusal.value) == (
        "grid: runs chosen by selected_on_test/mAP and by val/mAP cannot be in one table; "
        "run the grid anew under one split.protocol"
    )


def test_a_run_that_is_there_twice_is_refused():
    table = runs(("AN", "fspl", "", (0.9, 0.9), (0.8, 0.8)))
    with pytest.raises(PlmclError) as refusal:
        make_entries(grid({"AN": {}}), pd.concat([table, table.iloc[1:]]))
    assert str(refusal.value) == "grid: AN, fspl, seed 1, nothing tuned: there twice"


def test_no_run_is_no_table():
    with pytest.raises(PlmclError, match="no run is finished yet"):
        make_entries(grid({"AN": {}}), runs())
