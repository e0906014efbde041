"""Features are computed once for the same pixels and weights, and never for others."""

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import plmcl
from plmcl import features
from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows
from plmcl.features import cached_features
from plmcl.heads import LinearHead
from plmcl.models import Classifier


class Counting(nn.Module):
    """Features are the channels' means; counts its images, and is no good in training mode."""

    def __init__(self):
        super().__init__()
        self.images = 0

    def forward(self, images):
        assert not self.training
        self.images += len(images)
        return images.mean(dim=(2, 3))


@pytest.fixture
def images(tmp_path):
    for i in range(5):
        Image.new("RGB", (40, 40), (10 * i, 20, 30)).save(tmp_path / f"{i}.png")
    recipe = Recipe(size=32, background=(255, 255, 255), max_pixels=10**6)
    return ImageRows(tmp_path, [f"{i}.png" for i in range(5)], recipe)


def rows_of(images, *rows):
    return ImageRows(images.root, images.paths[list(rows)], images.recipe)


def compute(images, cache, *, weights="w", content=tuple("abcde"), report=None, **views):
    backbone = Counting()
    model = Classifier(backbone, LinearHead(3, 2), mean=(0, 0, 0), std=(1, 1, 1))
    model.train()
    features = cached_features(
        model,
        images,
        content=list(content),
        weights=weights,
        cache=cache,
        device=torch.device("cpu"),
        progress=report or (lambda done, total: None),
        **views,
    )
    assert model.training
    return (features if views else features[0]), backbone.images


def test_features_are_those_of_each_image_in_order(images, tmp_path):
    features, _ = compute(images, tmp_path / "cache")
    expected = np.array([[10 * i, 20, 30] for i in range(5)]) / 255
    np.testing.assert_allclose(features.numpy(), expected, rtol=1e-6)


def test_the_second_time_nothing_is_computed(images, tmp_path):
    first, computed = compute(images, tmp_path / "cache")
    second, none = compute(images, tmp_path / "cache")
    assert computed == 5
    assert none == 0
    assert torch.equal(first, second)


def test_other_pixels_of_the_same_files_are_computed_anew(images, tmp_path):
    compute(images, tmp_path / "cache")
    larger = ImageRows(images.root, images.paths, Recipe(64, (255, 255, 255), 10**6))
    assert compute(larger, tmp_path / "cache")[1] == 5


def test_other_code_is_computed_anew(images, tmp_path, monkeypatch):
    compute(images, tmp_path / "cache")
    monkeypatch.setattr("plmcl.features._code", lambda: ["another version"])
    assert compute(images, tmp_path / "cache")[1] == 5


def test_other_weights_are_computed_anew_and_of_other_pixels_only_those_that_are_new(
    images, tmp_path
):
    compute(images, tmp_path / "cache")
    assert compute(images, tmp_path / "cache", weights="others")[1] == 5
    _, computed = compute(images, tmp_path / "cache", content=tuple("abcdX"))
    assert computed == 1
    # "e" is still known, and nothing else: whatever the file holds now, its hash says what it is.
    assert compute(images, tmp_path / "cache", content=tuple("edcba"))[1] == 0


def test_rows_come_in_the_order_that_is_asked_for_and_a_twin_is_computed_once(images, tmp_path):
    first, _ = compute(images, tmp_path / "cache")
    turned = rows_of(images, 4, 0, 0, 2)
    features, computed = compute(turned, tmp_path / "cache", content=tuple("eaac"))
    assert computed == 0
    assert torch.equal(features, first[[4, 0, 0, 2]])
    twins = rows_of(images, 1, 1, 3)
    assert compute(twins, tmp_path / "other", content=tuple("bbd"))[1] == 2


def test_views_differ_and_are_the_same_in_another_order(tmp_path):
    generator = np.random.default_rng(0)
    for i in range(3):
        pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    recipe = Recipe(size=32, background=(255, 255, 255), max_pixels=10**6)
    images = ImageRows(tmp_path, [f"{i}.png" for i in range(3)], recipe)
    asked = {"kind": "crop", "views": 4, "content": tuple("abc")}
    views, computed = compute(images, tmp_path / "cache", **asked)
    assert views.shape == (4, 3, 3)
    assert computed == 12
    assert len({tuple(view.flatten().tolist()) for view in views}) == 4
    turned = rows_of(images, 2, 0, 1)
    again, _ = compute(turned, tmp_path / "other", **(asked | {"content": tuple("cab")}))
    assert torch.equal(again, views[:, [2, 0, 1]])
    more, computed = compute(images, tmp_path / "cache", **(asked | {"views": 5}))
    assert computed == 3
    assert torch.equal(more[:4], views)


@pytest.mark.parametrize("damage", [b"", b"not a file of numpy's", None])
def test_a_damaged_file_is_computed_anew(images, tmp_path, damage):
    first, _ = compute(images, tmp_path / "cache")
    (path,) = (tmp_path / "cache").rglob("*.npz")
    path.write_bytes(path.read_bytes()[:-40] if damage is None else damage)
    again, computed = compute(images, tmp_path / "cache")
    assert computed == 5
    assert torch.equal(first, again)


def test_threads_that_ask_at_once_all_get_their_answer(images, tmp_path):
    results = []

    def ask():
        results.append(compute(images, tmp_path / "cache"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(computed for _, computed in results) == [0, 0, 0, 5]
    assert all(torch.equal(features, results[0][0]) for features, _ in results)


TWO = """
import sys
import time
import torch
from pathlib import Path
from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows
from plmcl.features import cached_features
from plmcl.heads import LinearHead
from plmcl.models import Classifier

class Slow(torch.nn.Module):
    count = 0
    def forward(self, images):
        Slow.count += len(images)
        time.sleep(1)
        return images.mean(dim=(2, 3))

folder = Path(sys.argv[1])
images = ImageRows(folder, [f"{i}.png" for i in range(5)], Recipe(32, (255, 255, 255), 10**6))
model = Classifier(Slow(), LinearHead(3, 2), mean=(0, 0, 0), std=(1, 1, 1))
features = cached_features(
    model, images, content=list("abcde"), weights="w", cache=folder / "cache",
    device=torch.device("cpu"), progress=lambda done, total: None,
)
print(Slow.count, features.sum().item())
"""


@pytest.mark.slow
def test_of_two_processes_that_ask_at_once_one_computes(images, tmp_path):
    command = [sys.executable, "-c", TWO, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate()[0].split() for process in both]
    assert sorted(int(count) for count, _ in answers) == [0, 5]
    assert answers[0][1] == answers[1][1]


def test_a_view_that_some_images_have_is_computed_for_the_others_alone(images, tmp_path):
    some = rows_of(images, 1, 3)
    first, _ = compute(some, tmp_path / "cache", content="bd", kind="crop", views=2)
    both, computed = compute(images, tmp_path / "cache", kind="crop", views=2)
    assert computed == 6
    assert torch.equal(both[:, [1, 3]], first)


def test_progress_counts_the_views_that_are_missing(images, tmp_path):
    told = []
    compute(rows_of(images, 0, 1), tmp_path / "cache", content="ab", kind="flip", views=3)
    compute(
        images, tmp_path / "cache", kind="flip", views=3,
        report=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told[-1] == (9, 9)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_a_killed_process_had_written_is_not_computed_again(images, tmp_path, monkeypatch):
    monkeypatch.setattr("plmcl.features.VIEWS_A_FILE", 2)
    whole, computed = compute(images, tmp_path / "whole")
    assert computed == 5

    def kill(done, total):
        if done > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(images, tmp_path / "cache", report=kill)
    again, computed = compute(images, tmp_path / "cache")
    assert computed == 3
    assert torch.equal(again, whole)


@pytest.mark.parametrize("name", ["models", "pooling", "data/augmentation", "data/images"])
def test_features_are_known_by_the_code_that_makes_them(name):
    source = Path(plmcl.__file__).parent / f"{name}.py"
    assert hashlib.sha256(source.read_bytes()).hexdigest() in features._code()
