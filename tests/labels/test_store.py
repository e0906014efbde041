"""Per-image state: rows are read and written by index, and survive a round trip to disk."""

import json

import numpy as np
import pytest
import torch

from plmcl.errors import PlmclError
from plmcl.labels import store as store_module
from plmcl.labels.store import LabelStore

IDS = ["b.jpg", "a, with comma.jpg", 'quote".jpg', "line\nbreak 🙂.jpg"]


def make_store():
    return LabelStore(IDS, {"latent": torch.zeros(4, 2), "velocity": torch.ones(4, 2)})


def test_a_write_changes_the_named_rows_only():
    store = make_store()
    rows = torch.tensor([2, 0])
    state = store.read(rows)
    state["latent"] += torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    store.write(rows, state)
    assert store.state["latent"].tolist() == [[3, 4], [0, 0], [1, 2], [0, 0]]
    assert store.state["velocity"].tolist() == [[1, 1]] * 4


def test_what_is_read_is_a_copy():
    store = make_store()
    store.read(torch.tensor([1]))["latent"] += 7
    assert store.state["latent"].sum() == 0


def test_a_round_trip_keeps_ids_and_values(tmp_path):
    store = make_store()
    store.state["latent"][3, 1] = 0.1
    store.save(tmp_path / "labels")
    loaded = LabelStore.load(tmp_path / "labels")
    assert loaded.image_ids == IDS
    assert loaded.state.keys() == store.state.keys()
    assert all(torch.equal(loaded.state[name], store.state[name]) for name in store.state)


def test_a_method_without_state_has_an_empty_store(tmp_path):
    LabelStore(IDS, {}).save(tmp_path)
    assert LabelStore.load(tmp_path).state == {}


def test_rows_that_do_not_match_the_index_are_refused(tmp_path):
    make_store().save(tmp_path)
    (tmp_path / "image_ids.json").write_text(json.dumps(IDS[:3]))
    with pytest.raises(PlmclError, match="4 rows for 3 image ids"):
        LabelStore.load(tmp_path)


def test_arrays_of_another_store_do_not_stay_beside_its_own(tmp_path):
    LabelStore(["a", "b"], {"flipped": torch.ones(2, 3)}).save(tmp_path)
    LabelStore(["a", "b", "c"], {"latent": torch.ones(3, 3)}).save(tmp_path)
    assert LabelStore.load(tmp_path).names == ("latent",)


def test_a_pickle_is_not_read(tmp_path):
    make_store().save(tmp_path)
    np.save(tmp_path / "latent.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(PlmclError, match=r"latent\.npy: not an array: .*Python objects"):
        LabelStore.load(tmp_path)


def test_a_folder_that_is_no_store_is_named(tmp_path):
    with pytest.raises(PlmclError, match=r"image_ids\.json: not found"):
        LabelStore.load(tmp_path)


def test_the_files_are_those_of_numpy_and_json_in_whatever_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "BLOCK", 3)
    store = LabelStore(
        IDS,
        {
            "latent": torch.arange(8.0).view(4, 2).t().contiguous().t(),
            "half": torch.full((4, 1), 0.1).half(),
        },
    )
    store.save(tmp_path)
    for name, values in store.state.items():
        np.save(tmp_path / "expected", values.contiguous().numpy())
        expected = (tmp_path / "expected.npy").read_bytes()
        assert (tmp_path / f"{name}.npy").read_bytes() == expected
    text = (tmp_path / "image_ids.json").read_text(encoding="utf-8")
    assert text == json.dumps(IDS, ensure_ascii=False, indent=0) + "\n"


def test_a_store_may_be_written_over_the_files_that_it_was_read_from(tmp_path):
    make_store().save(tmp_path)
    loaded = LabelStore.load(tmp_path)
    loaded.write(torch.tensor([1]), {name: torch.full((1, 2), 7.0) for name in loaded.names})
    loaded.save(tmp_path)
    assert LabelStore.load(tmp_path).state["latent"].tolist() == [[0, 0], [7, 7], [0, 0], [0, 0]]


def test_half_precision_is_read_as_float32_and_rounded_when_written():
    store = LabelStore(IDS, {"latent": torch.zeros(4, 2, dtype=torch.float16)})
    store.write(torch.tensor([2]), {"latent": torch.tensor([[0.1, 4097.0]])})
    read = store.read(torch.tensor([2]))["latent"]
    assert read.dtype == torch.float32
    assert read.tolist() == [[0.0999755859375, 4096.0]]  # 10 bits behind the leading one


@pytest.mark.parametrize("name", ["image_ids.json", "latent.npy"])
@pytest.mark.parametrize("content", [b"", b"[", b"\x93NUMPY\x01\x00 cut off"])
def test_a_damaged_file_is_named(tmp_path, name, content):
    make_store().save(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PlmclError, match=f"{name}: not "):
        LabelStore.load(tmp_path)
