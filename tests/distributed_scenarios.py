"""What tests/test_distribution.py runs on one process and on several."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from project import ROOT
from torch import Tensor, nn

from plmcl.checkpoint import Checkpoints
from plmcl.data.loading import EpochOrder, FeatureBatches
from plmcl.distribution import agree, from_first, join_parts, make_fabric, part_of
from plmcl.errors import PlmclError
from plmcl.evaluation import predict
from plmcl.heads import LinearHead
from plmcl.labels.store import LabelStore
from plmcl.methods import make_method
from plmcl.methods.base import Method
from plmcl.params import load_params
from plmcl.share import Share
from plmcl.training import Observations, PhaseRun, fit

N, L, D, B, EPOCHS = 23, 3, 5, 4, 3
IDS = [f"{i}.jpg" for i in range(N)]
# Beyond params.yaml: with state, and with so few epochs that what the method does is done.
CHANGES: dict[str, dict[str, Any]] = {
    "ll": {"scheme": "permanent", "rate": 0.05},
    "em": {"apl_weight": 0.5, "apl_warmup": 1, "apl_share": 0.5},
    "plmcl": {"warm_up": 0},
}


def method_of(name: str) -> Method:
    """A method as params.yaml has it, with `CHANGES`."""
    sections: dict[str, Any] = dict(load_params(ROOT / "params.yaml").methods)
    return make_method(name, {name: {**sections[name], **CHANGES.get(name, {})}})


class Net(nn.Module):
    """Batch norm between two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = LinearHead(8, L)

    def forward(self, features: Tensor, passes: int = 0) -> Tensor:
        logits: Tensor = self.head(self.body(features), passes)
        return logits


class Counting(Method):
    """Its state is how often an image was seen; its loss is the mean squared logit."""

    def initial_state(self, targets, observed):
        return {"visits": torch.zeros_like(targets)}

    def loss(self, batch, context):
        visits = batch.labels["visits"]
        assert torch.equal(visits, torch.full_like(visits, context.epoch))
        return (batch.logits**2).mean()

    def update(self, batch, context):
        return {"visits": batch.labels["visits"] + 1}


class Spoiled(Counting):
    """Its loss is not a number for one image."""

    def loss(self, batch, context):
        logits = batch.logits.where(batch.targets[:, :1] >= 0, torch.nan)
        return (logits**2).mean()


class Together:
    """The batches of all ranks as those of one process: each is made of one of every rank's."""

    def __init__(self, ranks: int, strong: Tensor) -> None:
        self.order = EpochOrder(IDS, seed=0, batch_size=ranks * B)
        self.parts = [features_of(rank, ranks, strong) for rank in range(ranks)]

    def __len__(self) -> int:
        return len(self.parts[0])

    def epoch(self, epoch: int):
        for parts in zip(*(part.epoch(epoch) for part in self.parts), strict=True):
            rows, inputs = zip(*parts, strict=True)
            yield torch.cat(rows), torch.cat(inputs, dim=inputs[0].dim() - 2)


def features_of(rank: int, ranks: int, strong: Tensor | None) -> FeatureBatches:
    order = EpochOrder(IDS, seed=0, batch_size=B, rank=rank, ranks=ranks)
    return FeatureBatches(random(N, D), order, strong)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def observations() -> Observations:
    observed = torch.rand(N, L, generator=torch.Generator().manual_seed(1)) < 0.4
    return Observations(observed.float(), observed, 1.5)


def train(
    method: Method,
    batches: Any,
    fabric: Fabric,
    *,
    checkpoints: Path | None = None,
    stop: int = 0,
    seen: Observations | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Weights, label state and history after EPOCHS epochs, or after `stop` of them."""
    seen = seen or observations()
    torch.manual_seed(0)
    store = LabelStore(IDS, method.initial_state(seen.targets, seen.observed))
    network = Net()
    scores = iter(range(100))

    def ended(entry: dict[str, Any]) -> None:
        if entry["epoch"] == stop:
            raise KeyboardInterrupt

    phase = PhaseRun(
        "fine_tune", network, batches, EPOCHS, 0.01, lambda _: ("val/mAP", next(scores)), **options
    )
    history = None
    with contextlib.suppress(KeyboardInterrupt):
        history = fit(
            network,
            method,
            store,
            seen,
            [phase],
            fabric=fabric,
            seed=3,
            checkpoints=None if checkpoints is None else Checkpoints(checkpoints),
            on_epoch=ended,
            progress=lambda done, total: None,
        ).history
    return {"weights": network.state_dict(), "labels": dict(store.state), "history": history}


def strong_views(method: Method) -> Tensor | None:
    return random(2, N, D) if method.needs_strong_view else None


def alone(name: str, ranks: int) -> dict[str, Any]:
    """A training of one process, on the batches that several have together."""
    method = method_of(name)
    fabric = Fabric(accelerator="cpu", devices=1)
    batches = Together(ranks, strong_views(method))
    return train(method, batches, fabric, frozen_statistics=True)


def everything(names: list[str], checkpoints: Path, resumed: Path) -> dict[str, Any]:
    """All that is to be seen on several ranks, on one of them.

    Args:
        names: Methods to train with.
        checkpoints: Where a training that is stopped after its first epoch is committed.
        resumed: Commits of such a training on another number of ranks.
    """
    fabric = make_fabric("32-true")
    rank, ranks = fabric.global_rank, fabric.world_size
    return {
        "gather": gather(rank, ranks),
        "methods": {name: beside_others(name, fabric) for name in names},
        "normed": train(Counting(), features_of(rank, ranks, None), fabric, ema_decay=0.5),
        "stopped": train(
            Counting(), features_of(rank, ranks, None), fabric, checkpoints=checkpoints, stop=1
        ),
        "resumed": train(Counting(), features_of(rank, ranks, None), fabric, checkpoints=resumed),
        "probs": [probabilities(images, fabric) for images in (N, 2)],
        "score": from_first(0.5 + rank),
        "errors": [disagree(rank), spoil(fabric)],
    }


def beside_others(name: str, fabric: Fabric) -> dict[str, Any]:
    method = method_of(name)
    rank, ranks = fabric.global_rank, fabric.world_size
    batches = features_of(rank, ranks, strong_views(method))
    return train(method, batches, fabric, frozen_statistics=True)


def gather(rank: int, ranks: int) -> dict[str, Any]:
    """Of 1, 4 and 2 rows, one after the other 1, 2, ... : the batch, and a squared mean's gradient.

    The gradient is that of the rank's logits, averaged over ranks as torch does with weights.
    """
    counts = (1, 4, 2)[:ranks]
    share = Share(counts, rank)
    whole = torch.arange(1.0, 1 + sum(counts))[:, None]
    own = share.own(whole).clone().requires_grad_()
    gathered = share.gather(own)
    loss = share.weigh(gathered.mean() ** 2 + own.mean())
    loss.backward()
    assert own.grad is not None
    return {"whole": gathered.detach(), "own": own.detach(), "gradient": own.grad / ranks}


def probabilities(images: int, fabric: Fabric) -> np.ndarray:
    """Of the first images, each rank looking at a part of them."""
    part = part_of(images, fabric)
    features = random(N, D)[:images][part]
    batches = ((torch.tensor([i]), features[i : i + 1]) for i in range(len(features)))
    return join_parts(predict(Net(), batches, len(features)))


def disagree(rank: int) -> str:
    try:
        agree("epochs done", rank)
    except PlmclError as error:
        return str(error)
    return ""


def spoil(fabric: Fabric) -> str:
    """A loss that is not finite on the rank of image 0 alone."""
    seen = observations()
    targets = seen.targets.clone()
    targets[0] = -1
    batches = features_of(fabric.global_rank, fabric.world_size, None)
    try:
        train(Spoiled(), batches, fabric, seen=replace(seen, targets=targets))
    except PlmclError as error:
        return str(error)
    return ""


def fail_on_one() -> None:
    """Rank 1 ends while the others wait for it."""
    if make_fabric("32-true").global_rank == 1:
        raise PlmclError("only here")
    torch.distributed.barrier()
