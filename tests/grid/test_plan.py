"""Tests of a grid's plan: which trainings it needs, on cases small enough to write down."""

import pytest
from project import ROOT

from plmcl.errors import PlmclError
from plmcl.grid import plan
from plmcl.grid.plan import first_round, identity, make_variants, second_round
from plmcl.grid.spec import GridSpec
from plmcl.params import load_params, parse_section

PARAMS = load_params(ROOT / "params.yaml")
RATE = "train.linear.learning_rate"


def spec(**changes):
    values = {
        "title": "t",
        "seeds": [0, 1, 2],
        "settings": ["sspl-20", "fspl"],
        "tune_seeds": [0, 1],
        "rows": {"AN": {"method": "an"}},
    }
    return parse_section(GridSpec, values | changes, "grid")


def planned(runs):
    return [(run.row, run.setting, run.seed, run.candidate) for run in runs]


def test_a_row_that_is_not_tuned_runs_on_all_seeds_at_once():
    grid = spec(rows={"AN": {"method": "an"}, "full labels": {"method": "bce", "setting": "ffl"}})
    variants = make_variants(grid, PARAMS)
    assert planned(first_round(grid, variants)) == [
        *(("AN", setting, seed, "") for setting in ("sspl-20", "fspl") for seed in (0, 1, 2)),
        *(("full labels", "ffl", seed, "") for seed in (0, 1, 2)),
    ]
    assert second_round(grid, variants, {("AN", "fspl"): "", ("full labels", "ffl"): ""}) == []


def test_candidates_run_on_the_tuning_seeds_and_the_chosen_one_on_the_rest():
    grid = spec(settings=["fspl"], tune={RATE: [3e-4, 1e-3]})
    variants = make_variants(grid, PARAMS)
    assert planned(first_round(grid, variants)) == [
        ("AN", "fspl", 0, "learning_rate=0.0003"),
        ("AN", "fspl", 0, "learning_rate=0.001"),
        ("AN", "fspl", 1, "learning_rate=0.0003"),
        ("AN", "fspl", 1, "learning_rate=0.001"),
    ]
    chosen = {("AN", "fspl"): "learning_rate=0.0003"}
    assert planned(second_round(grid, variants, chosen)) == [
        ("AN", "fspl", 2, "learning_rate=0.0003")
    ]
    # A cell of which all tuning runs failed has no candidate, and no second round.
    assert second_round(grid, variants, {}) == []


def test_a_run_has_the_values_of_its_row_its_candidate_and_its_seed():
    grid = spec(
        params={"train": {"mode": "linear", "linear": {"epochs": 3}}},
        rows={
            "AN": {"method": "an", "params": {"train": {"linear": {"epochs": 4}}}},
            "AN-LS": {"method": "an", "params": {"methods": {"an": {"smoothing": 0.1}}}},
        },
        tune={RATE: [0.5]},
    )
    first, *_, last = first_round(grid, make_variants(grid, PARAMS))
    assert (first.params.train.linear.epochs, last.params.train.linear.epochs) == (4, 3)
    assert first.params.train.linear.learning_rate == 0.5
    assert (first.params.seed, last.params.seed) == (0, 2)
    assert last.params.methods["an"] == {"smoothing": 0.1}
    assert first.params.methods == PARAMS.methods
    assert first.params.train.fine_tune == PARAMS.train.fine_tune


def test_a_rows_own_candidates_are_combined_with_the_grids_or_replace_them():
    rows = {
        "both": {"method": "plmcl", "tune": {"methods.plmcl.alpha": [1, 5.0]}},
        "own": {"method": "plmcl", "tune": {"methods.plmcl.alpha": [1], RATE: None}},
        "other rates": {"method": "an", "tune": {RATE: [1e-2, 1e-4]}},
    }
    variants = make_variants(spec(tune={RATE: [1e-3]}, rows=rows), PARAMS)
    assert {row: list(candidates) for row, candidates in variants.items()} == {
        "both": ["alpha=1 learning_rate=0.001", "alpha=5 learning_rate=0.001"],
        "own": ["alpha=1"],
        "other rates": ["learning_rate=0.01", "learning_rate=0.0001"],
    }


def test_values_of_the_same_name_are_told_apart():
    tune = {RATE: [1e-3], "train.fine_tune.learning_rate": [1e-4], "labels.per_image": [None, 1.5]}
    ((without, with_k),) = (list(row) for row in make_variants(spec(tune=tune), PARAMS).values())
    assert without == "fine_tune.learning_rate=0.0001 linear.learning_rate=0.001 per_image=null"
    assert with_k.endswith("per_image=1.5")


def refused(**changes):
    with pytest.raises(PlmclError) as refusal:
        make_variants(spec(**changes), PARAMS)
    return str(refusal.value).split("\n")


def test_every_problem_is_found_before_the_first_training():
    lines = refused(
        rows={
            "A": {"method": "an", "params": {"train": {"linear": {"learning_rte": 1e-3}}}},
            "B": {"method": "na"},
            "C": {"method": "an", "tune": {RATE: [1e-3, -1.0]}},
            "D": {"method": "plmcl", "params": {"methods": {"plmcl": {"alpha": "ten"}}}},
            "E": {"method": "an", "params": {"data": {"path": "elsewhere"}}},
        }
    )
    assert len(lines) == 5
    assert lines[0] == (
        "rows.A: train.linear.learning_rte: not in params.yaml; did you mean "
        "'train.linear.learning_rate'?"
    )
    assert lines[1].startswith("rows.B: methods.na: unknown method; known: an")
    assert lines[2] == f"rows.C.{RATE}: input should be greater than 0, found -1.0"
    assert lines[3].startswith("rows.D: methods.plmcl.alpha: ")
    assert lines[4].startswith("rows.E: data.path: the same for a whole grid")


def test_a_problem_of_all_candidates_is_said_once():
    (line,) = refused(tune={"train.linear.lerning_rate": [1, 2, 3]})
    assert line == (
        "rows.AN: train.linear.lerning_rate: not in params.yaml; did you mean "
        "'train.linear.learning_rate'?"
    )


def name(run, **changes):
    return identity(run, **({"data": "d", "splits": "s", "weights": "w"} | changes))


def runs_of(**changes):
    grid = spec(settings=["fspl"], **changes)
    return first_round(grid, make_variants(grid, PARAMS))


def test_the_same_training_in_two_rows_has_one_identity():
    rows = {"AN": {"method": "an"}, "again": {"method": "an", "tune": {RATE: [1e-3]}}}
    one, two = runs_of(seeds=[0], tune_seeds=[0], rows=rows)
    assert one.row != two.row
    assert name(one) == name(two)


def test_what_a_result_depends_on_is_in_its_identity_and_nothing_else():
    (base,) = runs_of(seeds=[0], tune_seeds=[0])

    def changed(values, setting="fspl", seed=0):
        grid = spec(seeds=[seed], tune_seeds=[seed], settings=[setting], params=values)
        (run,) = first_round(grid, make_variants(grid, PARAMS))
        return name(run)

    assert changed({}) == name(base)
    same = [
        {"methods": {"plmcl": {"alpha": 99.0}}},  # of another method
        {"train": {"fine_tune": {"epochs": 99}}},  # of a phase that does not run
        {"train": {"threads": 7}},
    ]
    assert {changed(values) for values in same} == {name(base)}
    others = [
        changed({"methods": {"an": {"smoothing": 0.1}}}),
        changed({"train": {"linear": {"epochs": 99}}}),
        changed({"image": {"size": 99}}),
        changed({"split": {"val": 0.3}}),
        changed({}, setting="sspl-20"),
        changed({}, seed=1),
        *(name(base, **{part: "other"}) for part in ("data", "splits", "weights")),
    ]
    assert len({name(base), *others}) == 1 + len(others)


def test_a_changed_file_of_a_method_changes_that_method_alone(tmp_path, monkeypatch):
    plan.code_sha256.cache_clear()
    before = {method: plan.code_sha256(method) for method in ("an", "epr", "plmcl")}
    import plmcl.methods.epr
    import plmcl.ranking

    other = tmp_path / "other.py"
    other.write_text("another text")
    monkeypatch.setattr(plmcl.methods.epr, "__file__", str(other))
    plan.code_sha256.cache_clear()
    after = {method: plan.code_sha256(method) for method in before}
    assert [method for method in before if before[method] != after[method]] == ["epr"]
    monkeypatch.setattr(plmcl.ranking, "__file__", str(other))
    plan.code_sha256.cache_clear()
    assert all(plan.code_sha256(method) != after[method] for method in before)
    plan.code_sha256.cache_clear()
