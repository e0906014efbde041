"""Label state in files: the numbers of the store in memory, whatever becomes of an epoch."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from plmcl.data import loading
from plmcl.data.loading import EpochOrder
from plmcl.errors import PlmclError
from plmcl.labels.mapped import Column, MappedStore
from plmcl.labels.store import LabelStore

N, L = 1003, 5
IDS = [f"{i}.jpg" for i in range(N)]
COLUMNS = {"latent": Column(L, torch.float32), "step": Column(1, torch.float32)}


def beginning(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    latent = torch.rand(N, L, generator=generator).to(dtype)
    return {"latent": latent, "step": torch.zeros(N, 1)}


def in_blocks():
    state = beginning()
    for start in range(0, N, 256):
        yield {name: values[start : start + 256] for name, values in state.items()}


def make_mapped(folder, dtype=torch.float32):
    columns = COLUMNS | {"latent": Column(L, dtype)}
    store = MappedStore(IDS, columns, in_blocks)
    store.open(folder)
    return store


def step(state, rows):
    """Some state that depends on the old one and on the row."""
    target = (rows % 97 / 97)[:, None]
    return {"latent": 0.9 * state["latent"] + 0.1 * target, "step": state["step"] + 1}


def run_epoch(store, epoch):
    order = EpochOrder(IDS, seed=0, batch_size=32, in_blocks=True)
    order.epoch = epoch
    store.begin_epoch(epoch)
    for batch in map(torch.from_numpy, order):
        store.write(batch, step(store.read(batch), batch))
    store.end_epoch(lambda state: state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_it_gives_the_numbers_of_the_store_in_memory(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(loading, "BLOCK", 16)
    monkeypatch.setattr(loading, "WINDOW", 3)
    memory, mapped = LabelStore(IDS, beginning(dtype)), make_mapped(tmp_path, dtype)
    for epoch in (1, 2, 3):
        for store in (memory, mapped):
            run_epoch(store, epoch)
        assert mapped.state["latent"].dtype == dtype
        assert all(torch.equal(mapped.state[name], memory.state[name]) for name in COLUMNS)
    memory.save(tmp_path / "memory")
    mapped.save(tmp_path / "mapped")
    for file in ("latent.npy", "step.npy", "image_ids.json"):
        written = [(tmp_path / kind / file).read_bytes() for kind in ("memory", "mapped")]
        assert written[0] == written[1], file


def test_an_epoch_that_was_cut_off_leaves_the_one_before_it(tmp_path):
    store = make_mapped(tmp_path)
    run_epoch(store, 1)
    snapshot, before = store.snapshot(), store.state["latent"].clone()
    store.begin_epoch(2)
    store.write(torch.arange(9), step(store.read(torch.arange(9)), torch.arange(9)))
    assert torch.equal(store.read(torch.arange(N))["latent"], before)  # reads are of before it
    again = make_mapped(tmp_path)
    again.restore(snapshot)
    assert torch.equal(again.state["latent"], before)
    run_epoch(again, 2)
    expected = LabelStore(IDS, beginning())
    for epoch in (1, 2):
        run_epoch(expected, epoch)
    assert torch.equal(again.state["latent"], expected.state["latent"])


def test_an_epoch_that_no_commit_names_makes_room_for_its_repetition(tmp_path):
    store = make_mapped(tmp_path)
    snapshot = store.snapshot()
    run_epoch(store, 1)
    again = make_mapped(tmp_path)
    again.restore(snapshot)
    again.begin_epoch(1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000", "writing"]


def test_one_goes_back_to_an_earlier_generation_as_to_a_copy(tmp_path):
    store = make_mapped(tmp_path)
    snapshots = [store.snapshot()]
    for epoch in (1, 2):
        run_epoch(store, epoch)
        snapshots.append(store.snapshot())
    assert [snapshot["generation"] for snapshot in snapshots] == [0, 1, 2]
    for generation in (0, 2, 1):
        store.restore(snapshots[generation])
        assert (store.read(torch.tensor([5, 700]))["step"] == generation).all()
        named = store.files(snapshots[generation])
        assert {path.parent.name for path in named} == {f"{generation:05d}"}
    json.dumps(snapshots)  # plain types: a checkpoint holds no more of it


def test_a_row_that_was_not_visited_ends_the_epoch(tmp_path):
    store = make_mapped(tmp_path)
    store.begin_epoch(1)
    rows = torch.arange(2, N)
    store.write(rows, store.read(rows))
    with pytest.raises(AssertionError, match="2 rows of the label state were not visited"):
        store.end_epoch(lambda state: state)


def test_a_full_disk_is_said_before_the_epoch_and_the_next_attempt_goes_on(tmp_path):
    """Not when a page of the mapped file is written, where it would be a bus error."""
    store = make_mapped(tmp_path)
    run_epoch(store, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * N * L - 1, before[1]))
    try:
        with pytest.raises(PlmclError, match=r"no room for the label state.*File too large"):
            store.begin_epoch(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["00000", "00001"]
    run_epoch(store, 2)
    assert (store.state["step"] == 2).all()


def test_what_lies_on_the_disk_is_not_held_in_memory(tmp_path):
    def anonymous():
        return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) / 1024

    rows, blocks = 200_000, 50
    ids = [str(i) for i in range(rows)]
    columns = {"latent": Column(80, torch.float32)}  # 64 MB a generation

    def zeros():
        for _ in range(blocks):
            yield {"latent": torch.zeros(rows // blocks, 80)}

    store = MappedStore(ids, columns, zeros)
    store.open(tmp_path / "store")
    before, peak = anonymous(), 0.0
    store.begin_epoch(1)
    for batch in torch.arange(rows).split(rows // blocks):
        state = store.read(batch)
        store.write(batch, {"latent": state["latent"] + 1})
        peak = max(peak, anonymous())
    store.end_epoch(lambda state: state)
    store.save(tmp_path / "saved")
    assert max(peak, anonymous()) - before < 16
    assert (
        np.load(tmp_path / "saved/latent.npy", mmap_mode="r")[::1000].tolist() == [[1] * 80] * 200
    )
