"""A commit is whole or absent; the earlier one goes only after the next one stands."""

import hashlib
import pickle
import resource
import shutil
import signal
import threading
from contextlib import contextmanager

import pytest
import torch

from plmcl import checkpoint
from plmcl.checkpoint import Checkpoints
from plmcl.durable import sha256
from plmcl.errors import PlmclError


def state_of(epoch):
    return {"epoch": epoch, "weights": {"w": torch.full((30_000,), epoch)}}


@contextmanager
def room_for(size):
    """No file may grow beyond `size` bytes: writing more fails as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_there_is_nothing_to_resume_at_first(tmp_path):
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.load() is None
    assert checkpoints.epoch == 0


def test_the_newest_commit_is_loaded_and_one_is_kept_behind_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for epoch in (1, 2, 3):
        checkpoints.save(epoch, state_of(epoch))
    state = checkpoints.load()
    assert state is not None
    assert state["epoch"] == checkpoints.epoch == 3
    assert state["weights"]["w"].tolist() == [3] * 30_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-00002", "epoch-00003"]


def test_a_save_that_was_cut_off_is_not_taken_for_a_commit(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state_of(1))
    (tmp_path / "writing").mkdir()
    (tmp_path / "writing" / "state.pt").write_bytes(b"half a file")
    state = checkpoints.load()
    assert state is not None
    assert state["epoch"] == 1
    checkpoints.save(2, state_of(2))
    assert not (tmp_path / "writing").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # within a tensor: torch reads it without a word
    path.write_bytes(content)


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [cut, empty, flip, remove])
@pytest.mark.parametrize("name", ["state.pt", "files.json"])
def test_from_a_damaged_commit_one_goes_back_to_the_one_before_case_61(
    tmp_path, capsys, name, damage
):
    for epoch in (1, 2, 3):
        Checkpoints(tmp_path).save(epoch, state_of(epoch))
    damage(tmp_path / "epoch-00003" / name)
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.epoch == 2
    state = checkpoints.load()
    assert state is not None
    assert state["weights"]["w"].tolist() == [2] * 30_000
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"{tmp_path / 'epoch-00003'}: damaged (")
    assert said.endswith("goes on from the commit before it, or begins anew without one")
    checkpoints.save(3, state_of(33))  # in its place
    state = Checkpoints(tmp_path).load()
    assert state is not None
    assert state["epoch"] == 33
    damage(tmp_path / "epoch-00002" / name)
    damage(tmp_path / "epoch-00003" / name)
    assert Checkpoints(tmp_path).load() is None


def test_a_full_disk_keeps_the_earlier_commit_and_the_next_attempt_goes_on_case_61(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state_of(1))
    for room in (50, 100_000):  # in the first bytes; within the tensor
        with room_for(room), pytest.raises(PlmclError) as refusal:
            checkpoints.save(2, state_of(2))
        assert str(refusal.value) == (
            f"{tmp_path}: the state after epoch 2 cannot be saved: File too large; make room and "
            "repeat the command: it goes on after epoch 1"
        )
        assert [path.name for path in tmp_path.iterdir()] == ["epoch-00001"]
    checkpoints.save(2, state_of(2))
    assert Checkpoints(tmp_path).epoch == 2


@pytest.mark.usefixtures("signals_end")
@pytest.mark.parametrize(
    ("numbers", "ending", "at_once"),
    [
        ((signal.SIGTERM,), SystemExit, False),
        ((signal.SIGTERM, signal.SIGTERM), SystemExit, False),
        ((signal.SIGINT, signal.SIGINT), KeyboardInterrupt, True),
    ],
)
def test_a_signal_in_a_save_ends_it_as_a_signal_case_66(
    tmp_path, monkeypatch, numbers, ending, at_once
):
    """torch writes through C++, which makes a RuntimeError of what a handler raises."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state_of(1))
    writes = []

    class Signalling:
        def update(self, content):
            writes.append(len(content))
            if len(writes) == 5:
                for number in numbers:
                    signal.raise_signal(number)

    monkeypatch.setattr(hashlib, "sha256", Signalling)
    with pytest.raises(ending):
        checkpoints.save(2, state_of(2))
    monkeypatch.undo()
    assert (len(writes) == 5) == at_once
    assert Checkpoints(tmp_path).epoch == 1


def test_files_beside_the_commits_stay_as_long_as_one_names_them(tmp_path):
    checkpoints = Checkpoints(tmp_path)

    def generation(number):
        file = checkpoints.generations / f"{number:05d}" / "latent.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([number]))
        return {file: sha256(file)}

    left = []
    best = {}
    for epoch in (1, 2, 3, 4):
        files = generation(epoch)
        best = files if epoch <= 2 else best
        checkpoints.save(epoch, state_of(epoch), files | best)
        left.append(sorted(path.name for path in checkpoints.generations.iterdir()))
    assert left == [
        ["00001"],
        ["00001", "00002"],
        ["00002", "00003"],
        ["00002", "00003", "00004"],
    ]
    (checkpoints.generations / "00004/latent.npy").write_bytes(b"other")
    assert Checkpoints(tmp_path).epoch == 3
    (checkpoints.generations / "00002/latent.npy").unlink()  # the best one's, of both
    assert Checkpoints(tmp_path).epoch == 0


def test_a_training_is_done_by_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "PATIENCE", 0.1)
    with (
        Checkpoints(tmp_path / "new").held(),
        pytest.raises(PlmclError, match="another process goes on with this training"),
        Checkpoints(tmp_path / "new").held(),
    ):
        pass
    with Checkpoints(tmp_path / "new").held():
        pass


def test_one_that_waits_goes_on_where_the_other_removes_the_directory(tmp_path):
    directory = tmp_path / "new"
    first, second, entered = Checkpoints(directory), Checkpoints(directory), threading.Event()

    def wait():
        with second.held():
            entered.set()

    with first.held():
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not entered.wait(0.2)
        shutil.rmtree(directory)
    waiting.join(30)
    assert entered.is_set()
    assert directory.is_dir()


def test_only_tensors_and_plain_types_are_committed(tmp_path):
    class Thing:
        pass

    checkpoints = Checkpoints(tmp_path)
    with pytest.raises((pickle.PickleError, AttributeError)):
        checkpoints.save(1, {"thing": Thing()})
    assert checkpoints.load() is None
