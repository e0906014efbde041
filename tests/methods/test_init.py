from pathlib import Path

import pytest

from plmcl.errors import PlmclError
from plmcl.methods import base, make_method, method_names
from plmcl.methods.an import AssumeNegative
from plmcl.methods.plmcl import Plmcl
from plmcl.params import load_params

FOLDER = Path(base.__file__).parent
SECTIONS = load_params(Path(__file__).parents[2] / "params.yaml").methods


def test_the_methods_are_the_files_of_the_folder() -> None:
    files = {path.stem for path in FOLDER.glob("[a-z]*.py")}
    assert method_names() == sorted(files - {"base"})


def test_every_method_is_made_from_the_params_that_we_ship() -> None:
    for name in method_names():
        assert type(make_method(name, SECTIONS)).__module__ == f"plmcl.methods.{name}"


def test_a_method_holds_the_values_of_its_section() -> None:
    assert make_method("an", {"an": {"smoothing": 0.1}}) == AssumeNegative(smoothing=0.1)
    plmcl = make_method("plmcl", {"plmcl": SECTIONS["plmcl"] | {"alpha": 5}})
    assert isinstance(plmcl, Plmcl)
    assert plmcl.alpha == 5.0


@pytest.mark.parametrize("name", ["plmlc", "base", "../an", "an.x", ""])
def test_an_unknown_method_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(PlmclError) as caught:
        make_method(name, SECTIONS)
    known = ", ".join(method_names())
    assert str(caught.value) == f"methods.{name}: unknown method; known: {known}"


def test_a_method_without_a_section_is_refused() -> None:
    with pytest.raises(PlmclError, match=r"^methods\.epr: missing from params\.yaml$"):
        make_method("epr", {"an": {"smoothing": 0.0}})


def test_a_misspelt_key_is_refused_with_the_one_that_was_meant() -> None:
    section = dict(SECTIONS["plmcl"])
    section["momentm"] = section.pop("momentum")
    with pytest.raises(PlmclError) as caught:
        make_method("plmcl", {"plmcl": section})
    assert sorted(str(caught.value).splitlines()) == [
        "methods.plmcl.momentm: unknown key; did you mean 'momentum'?",
        "methods.plmcl.momentum: missing",
    ]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bce", {"smoothing": 0.5}),
        ("an", {"smoothing": -0.1}),
        ("an", {"smoothing": "0.1"}),
        ("epr", {"weight": -1}),
        ("plmcl", {"alpha": -1}),
        ("plmcl", {"momentum": 1.0}),
        ("plmcl", {"order": 0}),
        ("plmcl", {"cs_order": "A"}),
        ("plmcl", {"cs_mean": "false"}),
        ("plmcl", {"unobserved_order": "literal"}),
        ("plmcl", {"regulariser_weight": None}),
        ("wan", {"negative_weight": -0.1}),
        ("role", {"rate_factor": -1}),
        ("role", {"weight": "1"}),
        ("em", {"entropy_weight": -0.2}),
        ("em", {"apl_warmup": 0}),
        ("em", {"apl_share": 1.1}),
        ("fixmatch", {"threshold": 0.5}),
        ("fixmatch", {"unlabeled_weight": -1}),
        ("ups", {"dropout_rate": 1.0}),
        ("ups", {"passes": 1}),
        ("ups", {"positive_threshold": 0.4}),
        ("ups", {"negative_threshold": 0.5}),
    ],
)
def test_a_value_outside_its_range_is_refused_by_its_key(name: str, change: dict) -> None:
    with pytest.raises(PlmclError, match=rf"^methods\.{name}\.{next(iter(change))}: .*found"):
        make_method(name, {name: SECTIONS[name] | change})


def test_frozen_pseudo_labels_and_no_curriculum_factor_are_allowed() -> None:
    off = {"alpha": 0, "momentum": 0, "sharpness": 0, "regulariser_weight": 0}
    assert make_method("plmcl", {"plmcl": SECTIONS["plmcl"] | off})
