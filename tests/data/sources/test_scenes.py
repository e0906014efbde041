import csv
import json

import numpy as np
import pytest
from PIL import Image

from plmcl import schemas
from plmcl.data.images import Recipe
from plmcl.data.ingest import ingest
from plmcl.data.sources import make_source
from plmcl.data.sources.scenes import label_chances, sample_labels
from plmcl.errors import PlmclError


def scenes(**changes):
    section = {"images": 6, "labels": 12, "size": 64, "labels_per_image": 2.2, "clutter": 3}
    return make_source("scenes", {"scenes": section | changes})


def draw(raw, *, seed=0, **changes):
    scenes(**changes).download(raw, raw, seed=seed)
    return {path.name: path.read_bytes() for path in sorted((raw / "images").iterdir())}


def truth(raw):
    with (raw / "labels.csv").open(encoding="utf-8", newline="") as file:
        return {row["image"]: row["labels"] for row in csv.DictReader(file)}


def sample(count, num_labels, labels_per_image):
    chances = label_chances(num_labels, labels_per_image)
    matrix = np.zeros((count, num_labels), dtype=bool)
    for index in range(count):
        matrix[index, sample_labels(chances, np.random.default_rng([0, index]))] = True
    return matrix


def test_the_same_seed_draws_the_same_bytes(tmp_path):
    assert draw(tmp_path / "a") == draw(tmp_path / "b")
    assert truth(tmp_path / "a") == truth(tmp_path / "b")
    other = draw(tmp_path / "c", seed=1)
    assert all(other[name] != content for name, content in draw(tmp_path / "d").items())


def test_an_image_is_the_same_whatever_the_number_of_images(tmp_path):
    few, many = draw(tmp_path / "few", images=3), draw(tmp_path / "many", images=5)
    assert list(many)[:3] == list(few) == ["000000.jpg", "000001.jpg", "000002.jpg"]
    assert all(many[name] == content for name, content in few.items())
    assert truth(tmp_path / "few").items() <= truth(tmp_path / "many").items()


def test_annotations_are_the_exact_truth(tmp_path):
    calls = []
    source = scenes(images=40)
    source.download(tmp_path, tmp_path / "raw", seed=0, progress=lambda *call: calls.append(call))
    found = source.annotations(tmp_path / "raw")
    names = json.loads((tmp_path / "raw" / "label_names.json").read_text(encoding="utf-8"))
    assert found.label_names == names
    assert names[:3] == [
        "umbrella",
        "airplane",
        "black chess knight",
    ]  # order of the draw, not sorted
    assert found.files == [f"{index:06d}.jpg" for index in range(40)]
    expected = sample(40, 12, 2.2)
    for index, name in enumerate(found.files):
        labels = found.labels.loc[found.labels["image_id"] == name, "label"]
        assert set(labels) == {names[j] for j in np.flatnonzero(expected[index])}
    assert (found.unlisted, found.splits, found.passed_over) == ("negative", {}, [])
    assert calls == [(done, 40) for done in range(1, 41)]


def test_the_manifest_is_made_of_whole_pictures(tmp_path):
    source = scenes()
    source.download(tmp_path, tmp_path / "raw", seed=0)
    recipe = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)
    root = tmp_path / "raw" / "images"
    manifest = ingest(source.annotations(tmp_path / "raw"), tmp_path / "raw", recipe)
    schemas.validate_manifest(manifest, report_to=tmp_path)
    assert manifest.images["status"].tolist() == ["ok"] * 6
    assert set(manifest.images["width"]) == {64}
    assert Image.open(root / "000000.jpg").format == "JPEG"


@pytest.mark.parametrize(("num_labels", "mean"), [(12, 2.2), (2, 1.2), (80, 3.0), (500, 8.0)])
def test_the_mean_number_of_labels_is_as_asked(num_labels, mean):
    counts = sample(3000, num_labels, mean).sum(axis=1)
    error = 4 * counts.std() / np.sqrt(len(counts))  # four standard errors
    assert abs(counts.mean() - mean) < error


def test_pictures_without_a_label_exist_and_are_rare():
    share = (sample(4000, 12, 2.2).sum(axis=1) == 0).mean()
    assert 0.004 < share < 0.02


def test_label_frequencies_have_a_long_tail():
    frequency = sample(4000, 40, 3.0).mean(axis=0)
    assert frequency[:4].mean() > 5 * frequency[-10:].mean()
    assert frequency.min() > 0


def test_labels_of_a_group_raise_each_other():
    present = sample(6000, 12, 2.2)
    lift = {True: [], False: []}
    for a in range(12):
        for b in range(a + 1, 12):
            together = (present[:, a] & present[:, b]).mean()
            independent = present[:, a].mean() * present[:, b].mean()
            lift[a % 3 == b % 3].append(together / independent)
    assert np.mean(lift[True]) > 1.2 > 0.9 > np.mean(lift[False])


def test_more_labels_a_picture_than_possible_are_refused(tmp_path):
    with pytest.raises(
        PlmclError, match=r"labels_per_image: with 3 labels at most 2\.8, found 4\.0"
    ):
        draw(tmp_path / "raw", labels=3, labels_per_image=4.0)
    assert not (tmp_path / "raw").exists()


@pytest.mark.parametrize(
    "change",
    [{"images": 0}, {"labels": 1}, {"size": 8}, {"labels_per_image": 0.5}, {"clutter": -1}],
)
def test_senseless_numbers_are_refused(change):
    with pytest.raises(PlmclError, match=next(iter(change))):
        scenes(**change)


def test_reading_before_drawing_says_what_to_do(tmp_path):
    with pytest.raises(PlmclError, match=r"label_names\.json: not found; run the download stage"):
        scenes().annotations(tmp_path)


def test_five_hundred_labels_and_many_in_a_picture(tmp_path):
    draw(tmp_path / "raw", images=3, labels=500, labels_per_image=30.0, size=128)
    assert (
        len(json.loads((tmp_path / "raw" / "label_names.json").read_text(encoding="utf-8"))) == 500
    )
    assert max(len(labels.split(";")) for labels in truth(tmp_path / "raw").values()) > 15
