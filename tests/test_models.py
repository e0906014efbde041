"""Backbones, where their weights come from, and the file a trained classifier is kept in."""

import hashlib
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from plmcl import models
from plmcl.errors import PlmclError
from plmcl.heads import LinearHead
from plmcl.models import (
    Classifier,
    ModelRecord,
    build_classifier,
    load_backbone_weights,
    load_classifier,
    save_classifier,
)
from plmcl.pooling import make_pooling

LITE = "tf_efficientnet_lite0"


def make_record(**changes):
    values = {
        "backbone": LITE,
        "pooling": "mean",
        "head": "linear",
        "label_names": ["cat", "NA", "a,b"],
        "recipe": {"size": 64},
        "setting": "sspl-40",
        "method": "plmcl",
        "weights": "none",
        "weights_sha256": "",
        "best_epoch": 3,
        "selection": "mAP",
        "selection_value": 0.5,
        "data_sha256": "d",
        "splits_sha256": "s",
        "code_commit": "",
    }
    return ModelRecord(**(values | changes))


def test_the_network_normalises_uint8_pixels_itself():
    class Means(nn.Module):
        def forward(self, images):
            return images.mean(dim=(2, 3))

    model = Classifier(Means(), LinearHead(3, 2), mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    pixels = torch.tensor([255, 0, 51], dtype=torch.uint8).expand(1, 4, 4, 3)
    # (1 - .5)/.5 = 1, (0 - .25)/.25 = -1, (.2 - 0)/1 = .2
    torch.testing.assert_close(model.features(pixels), torch.tensor([[1.0, -1.0, 0.2]]))
    expected = model.head(torch.tensor([[1.0, -1.0, 0.2]]))
    torch.testing.assert_close(model(pixels), expected)


@pytest.mark.parametrize("backbone", [LITE, "resnet50"])
def test_a_boosted_classifier_has_the_weights_of_a_linear_one(backbone, tmp_path):
    model = build_classifier(backbone, num_labels=3, seed=0, head="boostlu").eval()
    linear = build_classifier(backbone, num_labels=3, seed=0)
    images = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    assert model.features(images).shape == (2, linear.num_features, 2, 2)
    assert model(images).shape == (2, 3)
    own, other = model.state_dict(), linear.state_dict()
    assert own.keys() == other.keys()
    assert all(torch.equal(own[name], other[name]) for name in own)
    save_classifier(model, make_record(backbone=backbone, head="boostlu"), tmp_path / "m.pt")
    loaded, _ = load_classifier(tmp_path / "m.pt", make_record().label_names)
    torch.testing.assert_close(loaded(images), model(images))


@pytest.mark.parametrize("pooling", ["deviation", "parts"])
@pytest.mark.parametrize("backbone", [LITE, "resnet50"])
def test_pooling_sees_the_maps_of_the_same_backbone(backbone, pooling, tmp_path):
    model = build_classifier(backbone, num_labels=2, seed=0, pooling=pooling, head="unit").eval()
    model.head.center.copy_(torch.randn(model.num_features))
    images = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    boosted = build_classifier(backbone, num_labels=2, seed=0, head="boostlu").eval()
    maps = boosted.features(images)
    torch.testing.assert_close(model.features(images), make_pooling(pooling)(maps))
    record = make_record(backbone=backbone, pooling=pooling, head="unit", label_names=["a", "b"])
    save_classifier(model, record, tmp_path / "m.pt")
    loaded, _ = load_classifier(tmp_path / "m.pt", ["a", "b"])
    assert torch.equal(loaded.head.center, model.head.center)
    torch.testing.assert_close(loaded(images), model(images))


@pytest.mark.parametrize(("name", "value"), [("head", "mlp"), ("pooling", "max")])
def test_a_file_with_an_unknown_part_is_refused(tmp_path, name, value):
    model = build_classifier(LITE, num_labels=3, seed=0)
    save_classifier(model, make_record(**{name: value}), tmp_path / "m.pt")
    with pytest.raises(PlmclError, match=rf"m\.pt: {name} '{value}' is not known: "):
        load_classifier(tmp_path / "m.pt", make_record().label_names)


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_state():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first, second, other = (build_classifier(LITE, num_labels=3, seed=s) for s in (0, 0, 1))
    assert torch.rand(1) == expected
    assert torch.equal(first.head.weight, second.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)


@pytest.mark.parametrize("backbone", ["resnet50", "resnet101"])
@pytest.mark.slow
def test_torchvision_backbones_give_2048_features(backbone):
    model = build_classifier(backbone, num_labels=4, seed=0).eval()
    images = torch.zeros(2, 64, 64, 3, dtype=torch.uint8)
    assert model.features(images).shape == (2, 2048)
    assert model(images).shape == (2, 4)


def test_an_unknown_backbone_is_named_with_its_neighbours():
    with pytest.raises(
        PlmclError, match=r"unknown 'tf_efficientnet_lite9'.*near: tf_efficientnet_lite4"
    ):
        build_classifier("tf_efficientnet_lite9", num_labels=1, seed=0)


def test_packaged_weights_are_the_published_file_and_change_the_backbone():
    model = build_classifier(LITE, num_labels=3, seed=0)
    head = model.head.weight.clone()
    before = model.backbone.conv_stem.weight.clone()
    weights = load_backbone_weights(model, LITE, "package")
    # By torch's convention the file's name ends with the beginning of its hash.
    assert weights.source == "efficientnet-lite0-57934424.pth"
    assert weights.sha256.startswith("57934424")
    assert not torch.equal(model.backbone.conv_stem.weight, before)
    assert torch.equal(model.head.weight, head)


def test_packaged_weights_of_another_backbone_are_not_there():
    model = build_classifier(LITE, num_labels=3, seed=0)
    with pytest.raises(PlmclError, match=r"no package holds weights of resnet50; .*lite0"):
        load_backbone_weights(model, "resnet50", "package")


def test_a_state_dict_from_a_path_is_loaded_by_name_and_hashed(tmp_path):
    source = build_classifier(LITE, num_labels=3, seed=5)
    path = tmp_path / "mine.pt"
    extra = {"classifier.weight": torch.zeros(1000, 1280)}
    torch.save(source.backbone.state_dict() | extra, path)
    model = build_classifier(LITE, num_labels=3, seed=0)
    weights = load_backbone_weights(model, LITE, str(path))
    assert weights.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert torch.equal(model.backbone.conv_stem.weight, source.backbone.conv_stem.weight)


def test_weights_that_do_not_fit_are_refused_with_the_first_tensor(tmp_path):
    path = tmp_path / "other.pt"
    torch.save({"conv1.weight": torch.zeros(3)}, path)
    model = build_classifier(LITE, num_labels=3, seed=0)
    with pytest.raises(PlmclError, match=r"other\.pt: does not fit.*conv_stem\.weight"):
        load_backbone_weights(model, LITE, str(path))


def test_weights_that_run_code_are_not_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "owned",)

    path = tmp_path / "bomb.pt"
    path.write_bytes(pickle.dumps(Bomb()))
    model = build_classifier(LITE, num_labels=3, seed=0)
    with pytest.raises(PlmclError, match="cannot read it safely"):
        load_backbone_weights(model, LITE, str(path))
    assert not (tmp_path / "owned").exists()


def test_a_missing_path_is_named():
    model = build_classifier(LITE, num_labels=3, seed=0)
    with pytest.raises(PlmclError, match=r"model\.weights: /nowhere/w\.pt is not a file"):
        load_backbone_weights(model, LITE, "/nowhere/w.pt")


def test_without_a_network_the_message_says_which_file_to_put_where(tmp_path, monkeypatch):
    """Case 71."""

    def no_network(url, destination):
        raise OSError("Temporary failure in name resolution")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    model = build_classifier(LITE, num_labels=3, seed=0)
    with pytest.raises(PlmclError) as error:
        load_backbone_weights(model, "resnet50", "imagenet")
    assert str(tmp_path / "checkpoints" / "resnet50-0676ba61.pth") in str(error.value)


def test_a_downloaded_file_is_used_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", None)
    (tmp_path / "checkpoints").mkdir()
    source = build_classifier(LITE, num_labels=3, seed=5)
    file = tmp_path / "checkpoints" / "unnamed"
    torch.save(source.backbone.state_dict(), file)
    name = f"lite0-{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}.pth"
    file.rename(file.with_name(name))
    monkeypatch.setattr(models, "imagenet_url", lambda backbone: f"somewhere/{name}")
    model = build_classifier(LITE, num_labels=3, seed=0)
    assert load_backbone_weights(model, LITE, "imagenet").source == name


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path, monkeypatch):
    """By torch's convention a published file's name ends with the beginning of its hash."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    source = build_classifier(LITE, num_labels=3, seed=5)
    name = models.imagenet_url(LITE).rsplit("/", 1)[-1]
    assert name == "tf_efficientnet_lite0-0aa007d2.pth"
    torch.save(source.backbone.state_dict(), tmp_path / "checkpoints" / name)
    model = build_classifier(LITE, num_labels=3, seed=0)
    with pytest.raises(PlmclError, match=r"not the published file.*its name says 0aa007d2"):
        load_backbone_weights(model, LITE, "imagenet")


def test_a_classifier_survives_its_file(tmp_path):
    model = build_classifier(LITE, num_labels=3, seed=0).eval()
    record = make_record()
    save_classifier(model, record, tmp_path / "m" / "model.pt")
    loaded, loaded_record = load_classifier(tmp_path / "m" / "model.pt", record.label_names)
    images = torch.randint(0, 255, (2, 64, 64, 3), dtype=torch.uint8)
    assert loaded_record == record
    assert not loaded.training
    assert torch.equal(loaded(images), model(images))


@pytest.mark.parametrize(
    ("names", "change"),
    [
        (["cat", "NA", "a,b", "dog"], r"added \['dog'\], removed \[\]"),
        (["cat", "NA"], r"added \[\], removed \['a,b'\]"),
        (["NA", "cat", "a,b"], "another order"),
    ],
)
def test_a_label_list_that_changed_since_training_is_refused(tmp_path, names, change):
    path = tmp_path / "model.pt"
    save_classifier(build_classifier(LITE, num_labels=3, seed=0), make_record(), path)
    with pytest.raises(PlmclError, match=f"the label list changed since training .{change}"):
        load_classifier(path, names)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    with pytest.raises(PlmclError, match="not found; run the train stage first"):
        load_classifier(path, [])
    path.write_bytes(b"")
    with pytest.raises(PlmclError, match="cannot read it safely"):
        load_classifier(path, [])
    torch.save({"a": torch.zeros(1)}, path)
    with pytest.raises(PlmclError, match="not a model of ours"):
        load_classifier(path, [])
