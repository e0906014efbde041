"""Order and changes of an epoch follow from (seed, epoch, image id) alone."""

import hashlib
import multiprocessing
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from plmcl.data import loading
from plmcl.data.augmentation import augment
from plmcl.data.images import Recipe, load
from plmcl.data.loading import (
    STRONG,
    WEAK,
    EpochOrder,
    FeatureBatches,
    ImageBatches,
    ImageRows,
    sequential_batches,
    view_batches,
)
from plmcl.errors import PlmclError

IDS = [f"photo {i:03d}.jpg" for i in range(50)]


def rows_of(order, epoch):
    order.epoch = epoch
    return [int(row) for batch in order for row in batch]


def draws_of(order, epoch, purpose=WEAK):
    order.epoch = epoch
    return [int(draw) for draw in order.draws(purpose)]


def flips_of(order, epoch):
    return [draw % 2 == 1 for draw in draws_of(order, epoch)]


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
    assert [len(batch) for batch in order] == [16, 16, 16, 2]
    assert len(order) == 4
    assert sorted(rows_of(order, 3)) == list(range(50))


def test_a_last_batch_of_one_joins_the_batch_before_it():
    order = EpochOrder(IDS, seed=0, batch_size=7)  # 50 = 7 * 7 + 1
    assert [len(batch) for batch in order] == [7] * 6 + [8]
    assert len(order) == 7
    alone = EpochOrder(IDS[:1], seed=0, batch_size=7)
    assert [len(batch) for batch in alone] == [1]
    assert sorted(rows_of(order, 0)) == list(range(50))


def test_the_order_changes_with_the_epoch_and_the_seed_and_repeats_itself():
    order = EpochOrder(IDS, seed=0, batch_size=16)
    first = rows_of(order, 0)
    assert first != rows_of(order, 1)
    assert first != rows_of(EpochOrder(IDS, seed=1, batch_size=16), 0)
    assert first == rows_of(EpochOrder(IDS, seed=0, batch_size=7), 0)


def test_images_that_arrive_later_change_neither_relative_order_nor_draws():
    order, larger = (EpochOrder(ids, seed=0, batch_size=8) for ids in (IDS, [*IDS, "new.jpg"]))
    assert rows_of(order, 2) == [row for row in rows_of(larger, 2) if row < 50]
    for purpose in (WEAK, STRONG):
        assert draws_of(order, 2, purpose) == draws_of(larger, 2, purpose)[:50]


def test_a_draw_is_splitmix64_of_a_hash_of_seed_purpose_and_id():
    def by_hand(image_id, seed, epoch):
        digest = hashlib.sha256(f"{seed}|flip|{image_id}".encode()).digest()
        z = (int.from_bytes(digest[:8], "big") + 0x9E3779B97F4A7C15 * (epoch + 1)) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    order = EpochOrder(IDS, seed=9, batch_size=8)
    assert draws_of(order, 4) == [by_hand(image_id, 9, 4) for image_id in IDS]


def test_half_of_the_images_are_mirrored_and_not_always_the_same():
    order = EpochOrder([str(i) for i in range(4000)], seed=0, batch_size=100)
    first, second = (np.array(flips_of(order, epoch)) for epoch in (0, 1))
    # Binomial with p = 1/2: four standard deviations are 127 of 4000.
    assert abs(first.sum() - 2000) < 127
    assert abs((first == second).sum() - 2000) < 127


def test_flips_order_and_strong_views_are_unrelated():
    order = EpochOrder([str(i) for i in range(4000)], seed=0, batch_size=4000)
    flips = np.array(flips_of(order, 0))
    assert abs(flips[rows_of(order, 0)[:2000]].sum() - 1000) < 90
    strong = np.array(draws_of(order, 0, STRONG)) % 2 == 1
    assert abs((flips == strong).sum() - 2000) < 127


def test_pixels_are_those_of_the_recipe_changed_as_the_key_says(images):
    row, views = images[3, ("none", 1), ("flip", 1), ("randaugment", 5)]
    expected = load(images.root / "3.png", images.recipe)
    assert row == 3
    assert views.dtype == torch.uint8
    np.testing.assert_array_equal(views[0].numpy(), expected)
    np.testing.assert_array_equal(views[1].numpy(), expected[:, ::-1])
    np.testing.assert_array_equal(views[2].numpy(), augment(expected, "randaugment", 5))


def test_decoded_pixels_stand_in_for_the_files(images, tmp_path):
    pixels = np.stack([load(images.root / path, images.recipe) for path in images.paths])
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    decoded = ImageRows(tmp_path / "nowhere", images.paths, images.recipe, mapped)
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    for augmentation in ("flip", "crop"):
        from_files, from_pixels = (
            [batch for _, batch in ImageBatches(rows, order, augmentation).epoch(0)]
            for rows in (images, decoded)
        )
        assert torch.equal(torch.cat(from_files), torch.cat(from_pixels))


def test_no_process_is_started_to_copy_decoded_pixels_as_they_are(images, monkeypatch):
    monkeypatch.setattr(loading, "usable_cores", lambda: 3)
    pixels = np.stack([load(images.root / path, images.recipe) for path in images.paths])
    decoded = ImageRows(images.root, images.paths, images.recipe, pixels)
    before = set(multiprocessing.active_children())
    started = []
    for rows in (images, decoded):
        batches = iter(sequential_batches(rows, batch_size=3))
        _, first = next(batches)
        started.append(len(set(multiprocessing.active_children()) - before))
        np.testing.assert_array_equal(first.numpy(), pixels[:3])
        del batches
    assert started == [2, 0]
    # What changes them is work to share.
    keys = [(row, ("randaugment", 5)) for row in range(7)]
    batches = view_batches(decoded, keys, batch_size=3)
    next(batches)
    assert len(set(multiprocessing.active_children()) - before) == 2


@pytest.mark.parametrize("cpus", [1, 3])
def test_the_number_of_workers_changes_nothing(images, monkeypatch, cpus):
    monkeypatch.setattr(loading, "usable_cores", lambda: cpus)
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    batches = ImageBatches(images, order)
    assert batches.loader.num_workers == cpus - 1
    assert len(batches) == len(list(batches.epoch(0))) == 2
    for epoch in (0, 1):
        flips = flips_of(order, epoch)
        seen = list(batches.epoch(epoch))
        rows = torch.cat([rows for rows, _ in seen]).tolist()
        assert rows == rows_of(order, epoch)
        pixels = torch.cat([pixels for _, pixels in seen])
        for row, image in zip(rows, pixels, strict=True):
            assert image[0, 0 if flips[row] else 31, 0] == 200 + row


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no safe fork")
def test_workers_are_forked_also_in_a_process_that_was_spawned(images, monkeypatch):
    monkeypatch.setattr(loading, "usable_cores", lambda: 2)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "spawn")
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    assert ImageBatches(images, order).loader.multiprocessing_context.get_start_method() == "fork"


@pytest.mark.parametrize("cpus", [1, 3])
def test_epochs_under_way_are_those_that_are_asked_for_one_by_one(images, monkeypatch, cpus):
    monkeypatch.setattr(loading, "usable_cores", lambda: cpus)
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    one_by_one, under_way = (ImageBatches(images, order, epochs=epochs) for epochs in (0, 4))
    # In turn; again, as after a return to an earlier epoch; and after one that was left half done.
    for epoch in (1, 2, 1, 2, 3, 3):
        expected, found = list(one_by_one.epoch(epoch)), list(under_way.epoch(epoch))
        assert [rows.tolist() for rows, _ in found] == [rows.tolist() for rows, _ in expected]
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(found, expected, strict=True))
    next(under_way.epoch(2))
    assert next(under_way.epoch(3))[0].tolist() == rows_of(order, 3)[:3]


def test_without_room_for_their_batches_no_workers_are_started_case_67(
    images, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(loading, "usable_cores", lambda: 3)
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    assert ImageBatches(images, order).loader.num_workers == 2
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(loading, "SHARED_MEMORY", tmp_path)
    huge = Recipe(size=10**7, background=(0, 0, 0), max_pixels=10**6)
    batches = ImageBatches(ImageRows(images.root, images.paths, huge), order)
    assert batches.loader.num_workers == 0
    said = capsys.readouterr().err
    # Three batches of three images of 3 * 10^14 bytes, for each of two workers.
    assert "2 processes that load images need 5400000000 MB" in said
    assert "docker run --shm-size=1g" in said


def test_ranks_and_loaders_share_the_room_for_their_batches_case_67(images, monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "usable_cores", lambda: 3)
    monkeypatch.setattr(loading, "SHARED_MEMORY", tmp_path)
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    needed = 3 * 2 * 3 * 3 * images.recipe.size**2  # three batches of three, for each of two

    def workers_where(free):
        monkeypatch.setattr(loading.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        batches = ImageBatches(images, order)
        return batches.loader.num_workers, batches

    assert workers_where(needed + 1)[0] == 2
    number, in_use = workers_where(2 * needed + 1)
    assert number == 2
    assert workers_where(2 * needed)[0] == 0  # of which one part is promised
    assert workers_where(2 * needed + 1)[0] == 2
    del in_use
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert workers_where(2 * needed)[0] == 0
    assert workers_where(2 * needed + 2)[0] == 2


def test_a_worker_copies_nothing_of_the_list_of_images_case_68():
    """Reading a list of texts would write to the count of each, and so copy all their pages."""
    # In a process of its own: what hundreds of tests left lies on the same pages.
    done = subprocess.run([sys.executable, "-c", GROWTH], check=True, capture_output=True)
    of_an_array, of_a_list = map(float, done.stdout.split())
    assert of_a_list > 5
    assert of_an_array < of_a_list / 2


# Prints by how many MB a forked worker grows that reads some of every page.
GROWTH = """
import gc, os
from pathlib import Path
from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows

paths = [f"a folder/{i:050d}.jpg" for i in range(100_000)]
images = ImageRows(Path("nowhere"), paths, Recipe(32, (0, 0, 0), 10**6))

def own_memory():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.split("Private_Dirty:")[1].split()[0]) / 1024

for read in (lambda row: images[row, ("none", 0)], lambda row: Path(paths[row])):
    if not os.fork():
        gc.disable()  # it writes to every object
        for _ in range(1_000):
            read(0)  # what any reading imports, allocates and touches
        before = own_memory()
        for row in range(0, len(paths), 10):
            read(row)
        print(own_memory() - before, flush=True)
        os._exit(0)
    os.wait()
"""


def test_rows_that_lie_together_are_visited_together(monkeypatch):
    monkeypatch.setattr(loading, "BLOCK", 4)
    monkeypatch.setattr(loading, "WINDOW", 3)
    ids = [str(i) for i in range(48)]  # 12 blocks, 4 windows of 12 rows
    plain, order = (EpochOrder(ids, seed=5, batch_size=5, in_blocks=b) for b in (False, True))
    seen = set()
    for epoch in (0, 1):
        rows = rows_of(order, epoch)
        assert sorted(rows) == list(range(48))
        for start in range(0, 48, 12):
            window = rows[start : start + 12]
            blocks = frozenset(row // 4 for row in window)
            assert len(blocks) == 3
            # Within a window, the order is the one that there is without windows.
            assert window == [row for row in rows_of(plain, epoch) if row // 4 in blocks]
            seen.add(blocks)
    assert len(seen) > 4  # other blocks are together in another epoch
    monkeypatch.setattr(loading, "WINDOW", 12)
    assert rows_of(order, 1) == rows_of(plain, 1)


@pytest.mark.parametrize("cpus", [1, 3])
def test_a_strong_view_comes_behind_the_weak_one(images, monkeypatch, cpus):
    monkeypatch.setattr(loading, "usable_cores", lambda: cpus)
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    weak, strong = draws_of(order, 2), draws_of(order, 2, STRONG)
    for rows, pixels in ImageBatches(images, order, augmentation="crop", strong=True).epoch(2):
        assert pixels.shape == (2, len(rows), 32, 32, 3)
        for i, row in enumerate(rows.tolist()):
            original = load(images.root / f"{row}.png", images.recipe)
            first, second = pixels[:, i].numpy()
            np.testing.assert_array_equal(first, augment(original, "crop", weak[row]))
            np.testing.assert_array_equal(second, augment(original, "randaugment", strong[row]))


def test_a_strong_view_leaves_the_weak_one_as_it_is(images):
    order = EpochOrder([str(i) for i in range(7)], seed=5, batch_size=3)
    alone, beside = (ImageBatches(images, order, strong=strong) for strong in (False, True))
    for (_, pixels), (_, both) in zip(alone.epoch(1), beside.epoch(1), strict=True):
        assert torch.equal(pixels, both[0])


def test_features_follow_the_same_order():
    features = torch.arange(50.0)[:, None].repeat(1, 4)
    order = EpochOrder(IDS, seed=0, batch_size=16)
    batches = FeatureBatches(features, order)
    assert len(batches) == 4
    for rows, inputs in batches.epoch(1):
        assert inputs[:, 2].tolist() == rows.tolist()
    rows = torch.cat([rows for rows, _ in batches.epoch(1)])
    assert rows.tolist() == rows_of(order, 1)


def test_strong_features_are_of_the_same_rows_and_of_a_view_drawn_each_epoch():
    features = torch.arange(50.0)[:, None].repeat(1, 4)
    strong = torch.stack([features + 100 * (view + 1) for view in range(3)])
    order = EpochOrder(IDS, seed=0, batch_size=16)
    seen = []
    for epoch in range(2):
        views = {}
        for rows, inputs in FeatureBatches(features, order, strong).epoch(epoch):
            assert inputs.shape == (2, len(rows), 4)
            assert torch.equal(inputs[0], features[rows])
            for row, value in zip(rows.tolist(), inputs[1, :, 3].tolist(), strict=True):
                views[row], own = divmod(int(value), 100)
                assert own == row
        assert [views[row] for row in range(50)] == [
            1 + draw % 3 for draw in draws_of(order, epoch, STRONG)
        ]
        seen.append(views)
    assert seen[0] != seen[1]
    assert set(seen[0].values()) == {1, 2, 3}


def test_sequential_batches_visit_each_row_once_in_order_unmirrored(images):
    seen = list(sequential_batches(images, batch_size=3))
    assert torch.cat([rows for rows, _ in seen]).tolist() == list(range(7))
    assert [int(image[0, 31, 0]) for _, batch in seen for image in batch] == list(range(200, 207))


def test_views_come_in_the_order_asked_for(images):
    keys = [(row, ("none", 0), ("flip", 1)) for row in (5, 2, 2, 6)]
    seen = list(view_batches(images, keys, batch_size=3))
    assert [views.shape for _, views in seen] == [(2, 3, 32, 32, 3), (2, 1, 32, 32, 3)]
    assert torch.cat([rows for rows, _ in seen]).tolist() == [5, 2, 2, 6]
    plain, mirrored = torch.cat([views for _, views in seen], dim=1)
    assert plain[:, 0, 31, 0].tolist() == [205, 202, 202, 206]
    assert torch.equal(mirrored, plain.flip(2))


def test_a_file_that_vanished_is_one_clear_error_also_from_a_worker(images, monkeypatch):
    (images.root / "4.png").unlink()
    for cpus in (1, 2):
        monkeypatch.setattr(loading, "usable_cores", lambda n=cpus: n)
        with pytest.raises(PlmclError, match=r"4\.png: .*readable at ingest") as error:
            list(sequential_batches(images, batch_size=2))
        assert "\n" not in str(error.value)
