"""A commit is whole or absent; the earlier one goes only after the next one stands."""

import pickle

import pytest
import torch

from plmcl.checkpoint import Checkpoints


def test_there_is_nothing_to_resume_at_first(tmp_path):
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.load() is None
    assert checkpoints.epoch == 0


def test_the_newest_commit_is_loaded_and_the_earlier_one_is_gone(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for epoch in (1, 2):
        checkpoints.save(epoch, {"epoch": epoch, "weights": {"w": torch.full((3,), epoch)}})
    state = checkpoints.load()
    assert state is not None
    assert state["epoch"] == checkpoints.epoch == 2
    assert state["weights"]["w"].tolist() == [2, 2, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00002"]


def test_a_save_that_was_cut_off_is_not_taken_for_a_commit(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"epoch": 1})
    (tmp_path / "writing").mkdir()
    (tmp_path / "writing" / "state.pt").write_bytes(b"half a file")
    state = checkpoints.load()
    assert state is not None
    assert state["epoch"] == 1
    checkpoints.save(2, {"epoch": 2})
    assert not (tmp_path / "writing").exists()


def test_a_failed_save_keeps_the_earlier_commit(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"epoch": 1})

    def disk_full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", disk_full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, {"epoch": 2})
    monkeypatch.undo()
    state = checkpoints.load()
    assert state is not None
    assert state["epoch"] == 1


def test_only_tensors_and_plain_types_are_committed(tmp_path):
    class Thing:
        pass

    checkpoints = Checkpoints(tmp_path)
    with pytest.raises((pickle.PickleError, AttributeError)):
        checkpoints.save(1, {"thing": Thing()})
    assert checkpoints.load() is None
