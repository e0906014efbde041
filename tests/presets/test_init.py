"""Presets are complete params files that hold the published numbers."""

import itertools

import pytest
from project import ROOT
from ruamel.yaml import YAML
from typer.testing import CliRunner

from plmcl.cli import app
from plmcl.methods import method_names
from plmcl.params import load_params
from plmcl.presets import compose, read_preset
from plmcl.stages import check

DATA_SETS = ("voc", "coco", "nuswide")
MODES = ("linear", "linear_init", "end_to_end")
BACKBONES = ("resnet50", "resnet101")


def load(folder, data_set, mode="linear_init", backbone="resnet50", protocol="holdout"):
    path = folder / "params.yaml"
    path.write_text(compose(data_set, mode=mode, backbone=backbone, protocol=protocol))
    return load_params(path)


@pytest.mark.parametrize(
    ("data_set", "mode", "backbone"), list(itertools.product(DATA_SETS, MODES, BACKBONES))
)
def test_every_preset_is_a_params_file_that_can_be_used(tmp_path, data_set, mode, backbone):
    params = load(tmp_path, data_set, mode, backbone)
    check.run(params)
    assert (params.data.source, params.train.mode) == (data_set, mode)
    assert (params.model.backbone, params.model.weights) == (backbone, "imagenet")
    assert list(params.sources) == [data_set]
    assert sorted(params.methods) == method_names()


@pytest.mark.parametrize(
    ("data_set", "k", "batch_size", "learning_rate"),
    [("voc", 1.5, 8, 1e-5), ("coco", 2.9, 16, 1e-5), ("nuswide", 1.9, 16, 1e-4)],
)
def test_the_numbers_of_the_paper_and_of_cole_et_al(
    tmp_path, data_set, k, batch_size, learning_rate
):
    params = load(tmp_path, data_set)
    assert params.labels.per_image == k
    assert params.image.size == 448
    linear, fine_tune = params.train.linear, params.train.fine_tune
    assert (linear.epochs, linear.batch_size, linear.learning_rate) == (25, 16, 1e-3)
    assert (fine_tune.epochs, fine_tune.batch_size) == (5, batch_size)
    assert fine_tune.learning_rate == learning_rate
    assert (fine_tune.head_rate, fine_tune.ema_decay) == (1, 0)
    assert (fine_tune.batch_norm, fine_tune.augmentation) == ("train", "flip")
    assert (params.split.draw, params.split.val) == ("cole", 0.2)
    assert load(tmp_path, data_set, "end_to_end").train.fine_tune.epochs == 10


def test_the_papers_hyper_parameters_are_the_methods_values(tmp_path):
    """n = 2; beta_1 = 0.7, beta_2 = 0.6 and lambda = 4 are the best of its table 5."""
    plmcl = load(tmp_path, "coco").methods["plmcl"]
    assert (plmcl["order"], plmcl["momentum"]) == (2, 0.7)
    assert (plmcl["unobserved_weight"], plmcl["sharpness"]) == (0.6, 4)


@pytest.mark.parametrize(
    ("data_set", "em", "slope", "bias"),
    [
        ("voc", (0.2, 0.02, 5), [0, 2], [-2, -2]),
        ("coco", (0.1, 0.9, 5), [0, 10], [-2, -8]),
        ("nuswide", (0.1, 0.2, 4), [0, 10], [-2, -8]),
    ],
)
def test_a_method_has_its_authors_values_for_the_data_set(tmp_path, data_set, em, slope, bias):
    methods = load(tmp_path, data_set).methods
    found = methods["em"]
    assert (found["entropy_weight"], found["apl_weight"], found["apl_warmup"]) == em
    assert (methods["gr"]["positive_slope"], methods["gr"]["positive_bias"]) == (slope, bias)
    assert methods["em"]["apl_share"] == 0.9  # the same for all


def test_the_protocol_is_holdout_unless_the_papers_is_asked_for(tmp_path):
    assert load(tmp_path, "voc").split.protocol == "holdout"
    assert load(tmp_path, "voc", protocol="paper").split.protocol == "paper"


def test_the_command_prints_the_file_and_nothing_else():
    printed = CliRunner().invoke(app, ["preset", "voc", "--protocol", "paper"])
    assert printed.exit_code == 0
    assert printed.output == compose(
        "voc", mode="linear_init", backbone="resnet50", protocol="paper"
    )
    assert printed.output.startswith("# plmcl preset voc --mode linear_init --backbone resnet50 ")


def test_every_method_has_its_section_in_params_yaml_and_in_the_presets():
    params = YAML(typ="safe").load(ROOT / "params.yaml")["methods"]
    presets = read_preset("methods")
    assert sorted(params) == sorted(presets) == method_names()
    assert {name: list(section) for name, section in params.items()} == {
        name: list(presets[name]) for name in params
    }


def test_one_preset_does_not_change_another():
    first = compose("voc", mode="linear", backbone="resnet101", protocol="paper")
    compose("nuswide", mode="end_to_end", backbone="resnet50", protocol="holdout")
    assert compose("voc", mode="linear", backbone="resnet101", protocol="paper") == first
