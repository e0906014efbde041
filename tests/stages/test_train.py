"""What a run is told apart by: the params that it uses, and no others."""

import pytest
from project import ROOT

from plmcl.params import load_params
from plmcl.stages.train import used_params


@pytest.mark.parametrize(
    ("mode", "phases"),
    [
        ("linear", {"linear"}),
        ("linear_init", {"linear", "fine_tune"}),
        ("end_to_end", {"fine_tune"}),
    ],
)
def test_a_run_uses_the_phases_of_its_mode_with_all_their_values(mode, phases):
    params = load_params(ROOT / "params.yaml")
    train = params.train.model_copy(update={"mode": mode})
    used = used_params(params.model_copy(update={"train": train}), "fixmatch")
    assert {key.split(".")[1] for key in used if key.startswith("train.")} == (
        {"mode", "warm_start", "precision", "threads", "state_memory_mb", "state_precision"}
        | phases
    )
    # Strong views of features are read in the linear phase alone.
    assert ("train.linear.views" in used) == ("linear" in phases)


def test_a_run_uses_its_own_methods_section_alone():
    used = used_params(load_params(ROOT / "params.yaml"), "epr")
    assert [key for key in used if key.startswith("methods.")] == ["methods.epr.weight"]
