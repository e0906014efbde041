"""Tests of a grid file's reader: what it takes, and how it refuses the rest."""

import pytest

from plmcl.errors import PlmclError
from plmcl.grid.spec import load_grid

TEXT = """\
title: Two methods
seeds: [0, 1, 2]
settings: [sspl-20, fspl]
params:
  train: {mode: linear}
tune:
  train.linear.learning_rate: [3e-4, 1e-3]
tune_seeds: [0, 1]
compare: {rows: [PLMCL], against: null}
rows:
  AN: {method: an}
  PLMCL: {method: plmcl, tune: {methods.plmcl.alpha: [1, 5], train.linear.learning_rate: null}}
  full labels: {method: bce, setting: ffl, reference: true}
published: null
"""


@pytest.fixture
def load(tmp_path):
    def read(text):
        path = tmp_path / "grid.yaml"
        path.write_text(text)
        return load_grid(path)

    return read


def test_values_arrive_with_their_types(load):
    spec = load(TEXT)
    assert spec.seeds == (0, 1, 2)
    assert spec.tune == {"train.linear.learning_rate": (0.0003, 0.001)}
    assert spec.rows["PLMCL"].tune["train.linear.learning_rate"] is None
    assert spec.rows["full labels"].reference
    assert list(spec.rows) == ["AN", "PLMCL", "full labels"]
    assert spec.compare is not None
    assert spec.compare.rows == ("PLMCL",)


def test_a_row_has_all_settings_or_its_own(load):
    spec = load(TEXT)
    assert spec.columns("AN") == ("sspl-20", "fspl")
    assert spec.columns("full labels") == ("ffl",)


def test_what_may_be_left_out(load):
    spec = load("{title: t, seeds: [4], settings: [fspl], rows: {AN: {method: an}}}")
    assert spec.tuning_seeds == (4,)
    assert (spec.compare, spec.published, dict(spec.tune)) == (None, None, {})


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("title:", "titel:", "titel: unknown key; did you mean 'title'?"),
        ("{method: an}", "{methd: an}", "rows.AN.methd: unknown key"),
        ("sspl-20, fspl", "sspl-200", "settings.0: string should match pattern"),
        ("[0, 1, 2]", "[0, 1, 1]", "seeds: each once, found [0, 1, 1]"),
        ("[0, 1]\n", "[0, 7]\n", "tune_seeds: must be among seeds, found [0, 7]"),
        ("rows: [PLMCL]", "rows: [PLCML]", "compare: no row is called 'PLCML'"),
        ("[3e-4, 1e-3]", "[]", "tune.train.linear.learning_rate: "),
        ("AN: {", '"A\\nN": {', "rows.A\nN"),
    ],
)
def test_a_mistake_is_a_line_with_its_place(load, before, after, line):
    assert before in TEXT
    with pytest.raises(PlmclError) as refusal:
        load(TEXT.replace(before, after))
    assert line in str(refusal.value)


def test_what_is_no_yaml(load, tmp_path):
    with pytest.raises(PlmclError, match=r"grid\.yaml: not valid YAML: line 1"):
        load("title: [")
    with pytest.raises(PlmclError, match="cannot be read"):
        load_grid(tmp_path / "absent.yaml")
