"""A champion's weights and state on the images and labels of another day, worked by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from tables import image_table

from plmcl.data.manifest import Manifest
from plmcl.data.rows import Rows
from plmcl.errors import PlmclError
from plmcl.heads import LinearHead
from plmcl.labels.store import LabelStore
from plmcl.methods import make_method
from plmcl.methods.base import OBSERVED_LATENT
from plmcl.models import ModelRecord, Weights, build_classifier, save_classifier
from plmcl.params import Model
from plmcl.presets import read_preset
from plmcl.warm import load_warm

SECTIONS = {name: dict(values) for name, values in read_preset("methods").items()}
PLMCL, AN, RIDGE, ROLE = (make_method(name, SECTIONS) for name in ("plmcl", "an", "ridge", "role"))
NAMES = ["cat", "dog", "elk"]
IDS = ["a", "b"]
RECORD = ModelRecord(
    backbone="test_efficientnet", pooling="mean", head="linear", label_names=NAMES, recipe={},
    setting="sspl-40", method="plmcl", weights="none", weights_sha256="", best_epoch=1,
    selection="val/mAP", selection_value=0.5, data_sha256="", splits_sha256="", code_commit="",
)  # fmt: skip
CHOSEN = Model(backbone="test_efficientnet", weights="none", pooling="mean", head="linear")
PACKAGED = Weights("packaged.pth", "1234")


@pytest.fixture(scope="module")
def network():
    """Backbone and head of the champion."""
    return build_classifier("test_efficientnet", num_labels=3, seed=1)


@pytest.fixture
def champion(tmp_path, network):
    """Writes v0002 and reads it back."""

    def write(record=RECORD, state=None, image_ids=IDS):
        folder = tmp_path / "warm/v0002"
        save_classifier(network, record, folder / "model.pt")
        latent = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        kept = {"latent": latent, "velocity": latent / 10} if state is None else state
        LabelStore(image_ids, kept).save(folder / "labels")
        return load_warm(folder)

    return write


def test_the_rows_of_the_head_go_by_label_name(champion, network):
    """elk and cat stay and change places, dog is gone, owl is new."""
    head = LinearHead(network.num_features, 3)
    fresh = head.weight.detach().clone(), head.bias.detach().clone()
    champion().load_head(head, ["elk", "owl", "cat"])
    for now, before, old in zip(
        (head.weight, head.bias), fresh, (network.head.weight, network.head.bias), strict=True
    ):
        assert torch.equal(now[0], old[2])
        assert torch.equal(now[1], before[1])
        assert torch.equal(now[2], old[0])


def test_state_goes_by_image_id_and_label_name(champion):
    """Of the champion's images a is gone and c is new; dog is gone and owl is new."""
    fresh = {"latent": torch.full((2, 3), -1.0), "velocity": torch.zeros(2, 3)}
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    state = champion().carry_state(fresh, PLMCL, nothing, ["c", "b"], ["elk", "owl", "cat"])
    assert state["latent"].tolist() == [[-1, -1, -1], [6, -1, 4]]
    np.testing.assert_allclose(state["velocity"], [[0, 0, 0], [0.6, 0, 0.4]], rtol=1e-6)
    assert fresh["latent"].unique().tolist() == [-1]  # not changed in place


def test_what_has_been_labeled_since_is_no_pseudo_label_any_more(champion):
    targets = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    observed = torch.tensor([[True, True, False], [False, False, False]])
    fresh = PLMCL.initial_state(targets, observed)
    state = champion().carry_state(fresh, PLMCL, observed, IDS, NAMES)
    known = OBSERVED_LATENT
    np.testing.assert_allclose(state["latent"], [[-known, known, 3], [4, 5, 6]], rtol=1e-6)
    np.testing.assert_allclose(state["velocity"], [[0, 0, 0.3], [0.4, 0.5, 0.6]], rtol=1e-6)


def test_what_counts_the_steps_of_one_training_starts_anew(champion):
    """ROLE's estimates go on; its Adam, which counts steps, does not."""
    old = {name: torch.full((2, 3), 7.0) for name in ("latent", "moment", "second_moment")}
    old["step"] = torch.full((2, 1), 900.0)
    record = dataclasses.replace(RECORD, method="role")
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    fresh = ROLE.initial_state(torch.zeros(2, 3), nothing)
    state = champion(record, old).carry_state(fresh, ROLE, nothing, IDS, NAMES)
    assert (state["latent"] == 7).all()
    assert all((state[name] == 0).all() for name in ("moment", "second_moment", "step"))


@pytest.mark.parametrize(
    ("name", "change", "anew"),
    [
        ("plmcl", {}, set()),
        ("plmcl", {"bias_correction": True}, {"velocity"}),
        ("em", {"apl_weight": 0.1}, {"pseudo_label", "assigned"}),
        ("ll", {"scheme": "permanent"}, set()),
    ],
)
def test_which_state_counts_something(name, change, anew):
    method = make_method(name, SECTIONS | {name: SECTIONS[name] | change})
    assert method.of_one_training == anew
    state = method.initial_state(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
    assert anew <= set(state)


def test_the_backbone_is_the_champions_and_the_head_is_left(champion, network):
    model = build_classifier("test_efficientnet", num_labels=2, seed=5)
    head = model.head.weight.clone()
    weights = champion().load_backbone(model, PACKAGED, CHOSEN)
    for name, values in network.backbone.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[name], values)
    assert torch.equal(model.head.weight, head)
    assert weights.source == "v0002/model.pt"
    assert len(weights.sha256) == 64
    # Of the backbone alone: a champion with another head has the same features.
    other = dataclasses.replace(
        champion(), weights=champion().weights | {"head.bias": torch.ones(3)}
    )
    again = build_classifier("test_efficientnet", num_labels=2, seed=6)
    assert other.load_backbone(again, PACKAGED, CHOSEN) == weights
    changed = champion().weights | {"backbone.conv_stem.weight": torch.ones_like(
        champion().weights["backbone.conv_stem.weight"])}  # fmt: skip
    other = dataclasses.replace(champion(), weights=changed)
    assert other.load_backbone(again, PACKAGED, CHOSEN).sha256 != weights.sha256


def test_a_backbone_that_was_not_trained_keeps_its_name_and_its_cached_features(champion):
    model = build_classifier("test_efficientnet", num_labels=2, seed=1)
    assert champion().load_backbone(model, PACKAGED, CHOSEN) == PACKAGED


@pytest.mark.parametrize(
    ("name", "own", "wanted"),
    [
        ("backbone", "resnet50", "test_efficientnet"),
        ("pooling", "parts", "mean"),
        ("head", "unit", "linear"),
    ],
)
def test_another_kind_of_network_is_refused_with_both_names(champion, network, name, own, wanted):
    warm = champion(dataclasses.replace(RECORD, **{name: own}))
    with pytest.raises(PlmclError, match=rf"v0002 has the {name} {own}, and model\.{name} is "
                                         rf"{wanted}; set train\.warm_start to none"):  # fmt: skip
        warm.load_backbone(network, PACKAGED, CHOSEN)


def test_files_that_do_not_fit_together_are_refused(champion, network):
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    fresh = {"latent": torch.zeros(2, 3)}
    narrow = champion(state={"latent": torch.zeros(2, 2)})
    with pytest.raises(PlmclError, match=r"labels/latent\.npy is of shape \(2, 2\)"):
        narrow.carry_state(fresh, PLMCL, nothing, IDS, NAMES)
    with pytest.raises(PlmclError, match=r"v0002 does not fit: head\.weight is of shape"):
        narrow.load_head(LinearHead(7, 3), NAMES)
    half = dataclasses.replace(narrow, weights={"head.bias": torch.zeros(3)})
    model = build_classifier("test_efficientnet", num_labels=3, seed=5)
    with pytest.raises(PlmclError, match=r"v0002/model\.pt: does not fit the backbone: \d+ of"):
        half.load_backbone(model, PACKAGED, CHOSEN)


def rows(image_ids, sha256):
    empty = np.zeros((len(image_ids), 3))
    return Rows(list(image_ids), list(image_ids), list(sha256), empty, empty.astype(bool))


def test_images_that_the_champion_learned_from_are_not_measured_on(champion):
    """It learned from a and b; their bytes are A and B, and those of c are B too."""
    manifest = Manifest(image_table(list("abcd"), sha256=list("ABBD")), None, NAMES, "negative")
    warm = champion()
    warm.refuse_seen(manifest, rows("ab", "AB"), [rows("d", "D"), rows("", "")])
    # A published list has the same bytes in two splits: they are trained on now as they were then.
    warm.refuse_seen(manifest, rows("ab", "AB"), [rows("c", "B")])
    for held_out in (rows("db", "DB"), rows("dc", "DB")):
        with pytest.raises(PlmclError, match=r"v0002 learned from 1 images that are held out now, "
                                             rf"such as '{held_out.image_ids[1]}'"):  # fmt: skip
            warm.refuse_seen(manifest, rows("a", "A"), [rows("", ""), held_out])


def said(warm, method=PLMCL, run=("sspl-40", "plmcl"), names=NAMES, ids=("b", "c", "d")):
    state = method.initial_state(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.bool))
    return warm.describe(method, state, run=run, image_ids=list(ids), label_names=names)


def test_a_line_says_what_was_taken(champion):
    warm = champion()
    start = "warm start from v0002: "
    head = "3 of 3 label rows of the head"
    assert said(warm) == f"{start}{head}, the label state of 1 of 3 images"
    assert said(warm, names=["elk", "a,b", "owl"]) == (
        f"{start}1 of 3 label rows of the head, the label state of 1 of 3 images; "
        "labels new: 'a,b', 'owl'; labels gone: 'cat', 'dog'"
    )
    assert said(warm, run=("fspl", "plmcl")) == (
        f"{start}{head}, no label state, since its own is that of sspl-40-plmcl"
    )
    assert said(warm, ROLE, ("sspl-40", "role")) == (
        f"{start}{head}, no label state, since its own is that of sspl-40-plmcl"
    )
    assert said(warm, AN, ("sspl-40", "an")) == f"{start}{head}, no label state"
    assert said(warm, RIDGE, ("sspl-40", "ridge")) == (
        f"{start}no row of the head, which is made in closed form, no label state"
    )


def test_a_champion_is_known_by_all_of_its_files(champion):
    first = champion().sha256
    assert champion().sha256 == first
    assert champion(image_ids=["a", "c"]).sha256 != first
    assert (
        champion(state={"latent": torch.zeros(2, 3), "velocity": torch.ones(2, 3)}).sha256 != first
    )
    assert champion(dataclasses.replace(RECORD, best_epoch=2)).sha256 != first


def test_what_is_missing_is_named(tmp_path, champion):
    with pytest.raises(PlmclError, match=r"train\.warm_start: .*v0009 is not there; run: dvc"):
        load_warm(tmp_path / "warm/v0009")
    champion()
    (tmp_path / "warm/v0002/labels/image_ids.json").unlink()
    with pytest.raises(PlmclError, match=r"image_ids\.json: not found"):
        load_warm(tmp_path / "warm/v0002")
    (tmp_path / "warm/v0002/model.pt").write_bytes(b"no model")
    with pytest.raises(PlmclError, match=r"model\.pt: torch cannot read it safely"):
        load_warm(tmp_path / "warm/v0002")
