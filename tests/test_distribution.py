"""Several ranks train what one process would: each row once, batch statistics over all rows."""

import shutil
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from distributed_scenarios import (
    EPOCHS,
    IDS,
    B,
    Counting,
    L,
    N,
    alone,
    everything,
    fail_on_one,
    features_of,
    probabilities,
    train,
)
from lightning_fabric import Fabric
from project import SMALL, edit_params, make_project, run_command, run_to_splits
from ranks import on_ranks

from plmcl.data.loading import EpochOrder
from plmcl.distribution import make_fabric
from plmcl.errors import PlmclError
from plmcl.methods import method_names
from plmcl.ordering import owners
from plmcl.params import load_params
from plmcl.share import ALONE
from plmcl.stages import train as train_stage
from plmcl.stages.paths import Paths


def orders_of(ranks, ids=IDS, batch_size=B):
    return [
        EpochOrder(ids, seed=0, batch_size=batch_size, rank=rank, ranks=ranks)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_each_row_is_visited_once_an_epoch_by_its_owner_and_ranks_take_as_many_steps(ranks):
    for number in range(ranks, 40):
        ids = [f"{i}.png" for i in range(number)]
        owner = owners(0, ids, ranks)
        orders = orders_of(ranks, ids)
        for epoch in (0, 1):
            batches = []
            for order in orders:
                order.epoch = epoch
                batches.append(list(order))
            visited = [np.concatenate(own) for own in batches]
            assert sorted(np.concatenate(visited)) == list(range(number))
            for rank, rows in enumerate(visited):
                assert (owner[rows] == rank).all()
            assert {len(own) for own in batches} == {len(order) for order in orders}
            for step, parts in enumerate(zip(*batches, strict=True)):
                counts = tuple(len(part) for part in parts)
                assert all(order.counts(step) == counts for order in orders)
                # Batch statistics of one image are none.
                assert min(counts) > 1 or number < 2 * ranks


def test_rows_are_shared_out_evenly_by_a_hash_of_their_ids():
    owner = owners(0, IDS, 3)
    assert sorted(np.bincount(owner)) == [7, 8, 8]
    shuffled = [IDS[i] for i in np.random.default_rng(0).permutation(N)]
    assert dict(zip(shuffled, owners(0, shuffled, 3), strict=True)) == dict(
        zip(IDS, owner, strict=True)
    )
    assert (owners(1, IDS, 3) != owner).any()


def test_more_processes_than_images_are_refused():
    with pytest.raises(PlmclError, match="4 processes have only 3 images to train on"):
        EpochOrder(IDS[:3], seed=0, batch_size=4, rank=0, ranks=4)


def test_a_share_without_other_ranks_is_the_tensor_itself():
    rows = torch.rand(3, 2)
    assert ALONE.gather(rows) is ALONE.own(rows) is ALONE.weigh(rows) is rows


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(PlmclError, match="--nproc-per-node 4: this machine has 2 GPUs"):
        make_fabric("32-true")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two and three ranks found."""
    folder = tmp_path_factory.mktemp("ranks")
    fabric = Fabric(accelerator="cpu", devices=1)
    train(Counting(), features_of(0, 1, None), fabric, checkpoints=folder / "of 1", stop=1)
    results = {}
    for ranks, before in ((2, 1), (3, 2)):
        shutil.copytree(folder / f"of {before}", folder / f"for {ranks}")
        results[ranks] = on_ranks(
            ranks,
            everything,
            folder / f"ranks {ranks}",
            method_names(),
            folder / f"of {ranks}",
            folder / f"for {ranks}",
        )
    results["of 3"] = folder / "of 3"
    return results


SEVERAL = pytest.mark.parametrize("ranks", [2, 3])


@pytest.mark.slow
@SEVERAL
def test_a_gathered_batch_is_in_order_and_its_gradient_that_of_one_process(found, ranks):
    counts = (1, 4, 2)[:ranks]
    whole = torch.arange(1.0, 1 + sum(counts))[:, None]
    # d (mean^2 + mean) / dx = (2 mean + 1) / B.
    expected = torch.full_like(whole, (2 * whole.mean().item() + 1) / sum(counts))
    parts = [result["gather"] for result in found[ranks]]
    for part in parts:
        assert torch.equal(part["whole"], whole)
    assert torch.equal(torch.cat([part["own"] for part in parts]), whole)
    torch.testing.assert_close(torch.cat([part["gradient"] for part in parts]), expected)


@pytest.mark.slow
@SEVERAL
@pytest.mark.parametrize("name", method_names())
def test_ranks_train_what_one_process_trains_on_their_batches_together(found, ranks, name):
    expected = alone(name, ranks)
    for result in found[ranks]:
        trained = result["methods"][name]
        for part in ("weights", "labels"):
            assert trained[part].keys() == expected[part].keys()
            for key, values in expected[part].items():
                torch.testing.assert_close(trained[part][key], values, rtol=0, atol=1e-5)
        losses = [[entry["train/loss"] for entry in run["history"]] for run in (trained, expected)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
@SEVERAL
def test_every_rank_ends_with_the_same_weights_statistics_and_label_state(found, ranks):
    first, *others = [result["normed"] for result in found[ranks]]
    assert (first["weights"]["body.1.running_mean"] != 0).any()
    assert torch.equal(first["labels"]["visits"], torch.full((N, L), float(EPOCHS)))
    for other in others:
        assert other["history"] == first["history"]
        for part in ("weights", "labels"):
            for key, values in first[part].items():
                assert torch.equal(other[part][key], values), key


@pytest.mark.slow
def test_a_training_goes_on_on_another_number_of_ranks(found):
    """From one process to two, from two to three, and from three to one."""
    fabric = Fabric(accelerator="cpu", devices=1)
    last = train(Counting(), features_of(0, 1, None), fabric, checkpoints=found["of 3"])
    for result in (*(rank["resumed"] for n in (2, 3) for rank in found[n]), last):
        assert [entry["epoch"] for entry in result["history"]] == list(range(1, EPOCHS + 1))
        assert torch.equal(result["labels"]["visits"], torch.full((N, L), float(EPOCHS)))


@pytest.mark.slow
@SEVERAL
def test_images_are_scored_once_and_the_same_on_every_rank(found, ranks):
    fabric = Fabric(accelerator="cpu", devices=1)
    for number, images in enumerate((N, 2)):
        expected = probabilities(images, fabric)
        for result in found[ranks]:
            np.testing.assert_array_equal(result["probs"][number], expected)
    assert {result["score"] for result in found[ranks]} == {0.5}


@pytest.mark.slow
@SEVERAL
def test_what_is_wrong_on_one_rank_ends_all_of_them(found, ranks):
    for rank, result in enumerate(found[ranks]):
        disagreed, spoiled = result["errors"]
        other = 1 if rank == 0 else 0
        assert disagreed.startswith(f"epochs done: {rank} here and {other} on rank {other}; all")
        assert spoiled.startswith("the loss is nan in epoch 1; lower the learning rate")


def torchrun(*command, cwd, check=True):
    """Two processes on this machine."""
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return run_command(sys.executable, *launch, *command, cwd=cwd, check=check, PYTHONPATH="src")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project that has been split, and has been trained by one process with twice the batch."""
    # Frozen: in batches half as large batch norm would see other statistics.
    fine_tune = {"epochs": 2, "learning_rate": 1e-3, "batch_norm": "frozen"}
    changes = {
        "sources.scenes": SMALL["sources.scenes"] | {"images": 160},
        "train.linear": SMALL["train.linear"] | {"learning_rate": 1e-3},
        "train.fine_tune": SMALL["train.fine_tune"] | fine_tune,
    }
    root = make_project(tmp_path_factory.mktemp("torchrun") / "two", changes)
    run_to_splits(root)
    one = Path(shutil.copytree(root, root.with_name("one")))
    doubled = {f"train.{name}.batch_size": 16 for name in ("linear", "fine_tune")}
    edit_params(one / "params.yaml", doubled)
    params = load_params(one / "params.yaml")
    train_stage.run(
        Paths.of_project(one, params.data.source), params, "sspl-40", "epr", track=False
    )
    return root


@pytest.mark.slow
def test_torchrun_trains_like_one_process_of_the_batch_together_and_writes_once(project):
    done = torchrun("-m", "plmcl.stages.train", "sspl-40", "epr", cwd=project)
    assert "on 2 x cpu" in done.stdout
    assert done.stdout.count("best epoch") == 1
    two, one = (
        pd.read_csv(folder / "reports/runs/sspl-40-epr/history.csv")
        for folder in (project, project.with_name("one"))
    )
    assert two["epoch"].tolist() == one["epoch"].tolist() == list(range(1, 6))
    np.testing.assert_allclose(two["train_loss"], one["train_loss"], rtol=0.1)
    np.testing.assert_allclose(two["selection"], one["selection"], atol=0.05)
    files = [path.name for path in (project / "models/sspl-40-epr").rglob("*")]
    assert sorted(files) == ["image_ids.json", "labels", "model.pt"]
    with sqlite3.connect(project / "mlflow.db") as database:
        assert database.execute("select status from runs").fetchall() == [("FINISHED",)]
    assert not list((project / ".plmcl/checkpoints").glob("*/*"))


@pytest.mark.slow
def test_an_error_of_one_rank_ends_those_that_wait_for_it(tmp_path):
    with pytest.raises(AssertionError) as failures:
        on_ranks(2, fail_on_one, tmp_path / "failing")
    of_one, of_other = str(failures.value).split("rank 1: ")
    assert "PlmclError: only here" in of_other
    assert "RuntimeError" in of_one  # gloo says that the other is gone
