"""Features are computed once for the same pixels and weights, and never for others."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows
from plmcl.features import cached_features
from plmcl.models import Classifier


class Counting(nn.Module):
    """Features are the channels' means; counts its calls, and is no good in training mode."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, images):
        assert not self.training
        self.calls += 1
        return images.mean(dim=(2, 3))


@pytest.fixture
def images(tmp_path):
    for i in range(5):
        Image.new("RGB", (40, 40), (10 * i, 20, 30)).save(tmp_path / f"{i}.png")
    recipe = Recipe(size=32, background=(255, 255, 255), max_pixels=10**6)
    return ImageRows(tmp_path, [f"{i}.png" for i in range(5)], recipe)


def compute(images, cache, *, weights="w", content=tuple("abcde")):
    backbone = Counting()
    model = Classifier(backbone, num_features=3, num_labels=2, mean=(0, 0, 0), std=(1, 1, 1))
    model.train()
    features = cached_features(
        model,
        images,
        content=list(content),
        weights=weights,
        cache=cache,
        device=torch.device("cpu"),
        progress=lambda done, total: None,
    )
    assert model.training
    return features, backbone.calls


def test_features_are_those_of_each_image_in_order(images, tmp_path):
    features, _ = compute(images, tmp_path / "cache")
    expected = np.array([[10 * i, 20, 30] for i in range(5)]) / 255
    np.testing.assert_allclose(features.numpy(), expected, rtol=1e-6)


def test_the_second_time_nothing_is_computed(images, tmp_path):
    first, calls = compute(images, tmp_path / "cache")
    second, none = compute(images, tmp_path / "cache")
    assert calls == 1
    assert none == 0
    assert torch.equal(first, second)


def test_other_pixels_of_the_same_files_are_computed_anew(images, tmp_path):
    compute(images, tmp_path / "cache")
    larger = ImageRows(images.root, images.paths, Recipe(64, (255, 255, 255), 10**6))
    assert compute(larger, tmp_path / "cache")[1] == 1


def test_other_code_is_computed_anew(images, tmp_path, monkeypatch):
    compute(images, tmp_path / "cache")
    monkeypatch.setattr("plmcl.features._code", lambda: ["another version"])
    assert compute(images, tmp_path / "cache")[1] == 1


@pytest.mark.parametrize("change", [{"weights": "others"}, {"content": tuple("abcdX")}])
def test_other_weights_or_other_pixels_are_computed_anew(images, tmp_path, change):
    compute(images, tmp_path / "cache")
    assert compute(images, tmp_path / "cache", **change)[1] == 1
