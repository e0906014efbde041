"""Order and mirroring of an epoch follow from (seed, epoch, image id) alone."""

import numpy as np
import pytest
import torch
from PIL import Image

from plmcl.data import loading
from plmcl.data.images import Recipe, load
from plmcl.data.loading import (
    EpochOrder,
    FeatureBatches,
    ImageBatches,
    ImageRows,
    sequential_batches,
)
from plmcl.errors import PlmclError

IDS = [f"photo {i:03d}.jpg" for i in range(50)]


def rows_of(order, epoch):
    order.epoch = epoch
    return [row for batch in order for row, _ in batch]


def flips_of(order, epoch):
    order.epoch = epoch
    return {row: flip for batch in order for row, flip in batch}


@pytest.fixture
def images(tmp_path):
    """Seven images; the left half is dark and the right half bright, so a mirrored one shows."""
    for i in range(7):
        pixels = np.zeros((32, 32, 3), np.uint8)
        pixels[:, 16:] = 200 + i
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    recipe = Recipe(size=32, background=(255, 255, 255), max_pixels=10**6)
    return ImageRows(tmp_path, [f"{i}.png" for i in range(7)], recipe)


def test_an_epoch_visits_each_row_once_and_ends_with_a_short_batch():
    order = EpochOrder(IDS, seed=0, batch_size=16)
    batches = list(order)
    assert [len(batch) for batch in batches] == [16, 16, 16, 2]
    assert len(order) == 4
    assert sorted(rows_of(order, 3)) == list(range(50))


def test_a_last_batch_of_one_joins_the_batch_before_it():
    order = EpochOrder(IDS, seed=0, batch_size=7)  # 50 = 7 * 7 + 1
    assert [len(batch) for batch in order] == [7] * 6 + [8]
    assert len(order) == 7
    assert [len(batch) for batch in EpochOrder(IDS[:1], seed=0, batch_size=7)] == [1]
    assert sorted(rows_of(order, 0)) == list(range(50))


def test_the_order_changes_with_the_epoch_and_the_seed_and_repeats_itself():
    order = EpochOrder(IDS, seed=0, batch_size=16)
    first = rows_of(order, 0)
    assert first != rows_of(order, 1)
    assert first != rows_of(EpochOrder(IDS, seed=1, batch_size=16), 0)
    assert first == rows_of(EpochOrder(IDS, seed=0, batch_size=7), 0)


def test_images_that_arrive_later_change_neither_relative_order_nor_flips():
    order, larger = (EpochOrder(ids, seed=0, batch_size=8) for ids in (IDS, [*IDS, "new.jpg"]))
    assert rows_of(order, 2) == [row for row in rows_of(larger, 2) if row < 50]
    later = flips_of(larger, 2)
    assert flips_of(order, 2) == {row: later[row] for row in range(50)}


def test_half_of_the_images_are_mirrored_and_not_always_the_same():
    order = EpochOrder([str(i) for i in range(4000)], seed=0, batch_size=100)
    first, second = (np.array([f for _, f in sorted(flips_of(order, e).items())]) for e in (0, 1))
    # Binomial with p = 1/2: four standard deviations are 127 of 4000.
    assert abs(first.sum() - 2000) < 127
    assert abs((first == second).sum() - 2000) < 127


def test_flips_and_order_are_unrelated():
    order = EpochOrder([str(i) for i in range(4000)], seed=0, batch_size=4000)
    flips = np.array([flip for _, flip in next(iter(order))])
    assert abs(flips[:2000].sum() - 1000) < 90


def test_pixels_are_those_of_the_recipe_mirrored_where_the_key_says_so(images):
    row, plain = images[3, False]
    _, mirrored = images[3, True]
    expected = load(images.root / "3.png", images.recipe)
    assert row == 3
    assert plain.dtype == torch.uint8
    np.testing.assert_array_equal(plain.numpy(), expected)
    np.testing.assert_array_equal(mirrored.numpy(), expected[:, ::-1])


@pytest.mark.parametrize("cpus", [1, 3])
def test_the_number_of_workers_changes_nothing(images, monkeypatch, cpus):
    monkeypatch.setattr(loading, "usable_cores", lambda: cpus)
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    batches = ImageBatches(images, order)
    assert batches.loader.num_workers == cpus - 1
    for epoch in (0, 1):
        order.epoch = epoch
        keys = [key for batch in order for key in batch]
        seen = list(batches.epoch(epoch))
        assert torch.cat([rows for rows, _ in seen]).tolist() == [row for row, _ in keys]
        pixels = torch.cat([pixels for _, pixels in seen])
        for (row, flip), image in zip(keys, pixels, strict=True):
            assert image[0, 0 if flip else 31, 0] == 200 + row


def test_features_follow_the_same_order():
    features = torch.arange(50.0)[:, None].repeat(1, 4)
    order = EpochOrder(IDS, seed=0, batch_size=16)
    for rows, inputs in FeatureBatches(features, order).epoch(1):
        assert inputs[:, 2].tolist() == rows.tolist()
    rows = torch.cat([rows for rows, _ in FeatureBatches(features, order).epoch(1)])
    assert rows.tolist() == rows_of(order, 1)


def test_sequential_batches_visit_each_row_once_in_order_unmirrored(images):
    seen = list(sequential_batches(images, batch_size=3))
    assert torch.cat([rows for rows, _ in seen]).tolist() == list(range(7))
    assert [int(image[0, 31, 0]) for _, batch in seen for image in batch] == list(range(200, 207))


def test_a_file_that_vanished_is_one_clear_error_also_from_a_worker(images, monkeypatch):
    (images.root / "4.png").unlink()
    for cpus in (1, 2):
        monkeypatch.setattr(loading, "usable_cores", lambda n=cpus: n)
        with pytest.raises(PlmclError, match=r"4\.png: .*readable at ingest") as error:
            list(sequential_batches(images, batch_size=2))
        assert "\n" not in str(error.value)
