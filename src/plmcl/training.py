"""The loop: phases of epochs, per-image state beside the weights, the best epoch kept."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from plmcl.checkpoint import Checkpoints
from plmcl.errors import PlmclError
from plmcl.labels.store import LabelStore
from plmcl.methods.base import Method, Schedule

Score = tuple[str, float]


class Batches(Protocol):
    """Where an epoch's batches come from; see `plmcl.data.loading`."""

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows (B,) int64, inputs) of each batch; each row once."""
        ...


@dataclass(frozen=True)
class Observations:
    """What the training images are known to show.

    Attributes:
        targets: (N, L) float in {0, 1}.
        observed: (N, L) bool, where `targets` is known.
        positives_per_image: k.
    """

    targets: Tensor
    observed: Tensor
    positives_per_image: float


@dataclass(frozen=True)
class PhaseRun:
    """One phase, ready to run.

    Attributes:
        name: `linear` or `fine_tune`.
        network: What is trained: the head alone, or the whole classifier.
        batches: Its inputs.
        epochs: How many.
        learning_rate: Of Adam.
        score: What the selection split says of the network now: (name, value); larger is better.
    """

    name: str
    network: nn.Module
    batches: Batches
    epochs: int
    learning_rate: float
    score: Callable[[], Score]


@dataclass(frozen=True)
class Fitted:
    """What training leaves behind.

    Attributes:
        best_epoch: From 1; the model holds the weights of that epoch, the store its label state.
        best_score: (name, value) on the selection split.
        history: One entry an epoch: `epoch`, `phase`, `train/loss` and the score under its name.
    """

    best_epoch: int
    best_score: Score
    history: list[dict[str, Any]]


def fit(
    model: nn.Module,
    method: Method,
    store: LabelStore,
    observations: Observations,
    phases: Sequence[PhaseRun],
    *,
    fabric: Fabric,
    seed: int,
    checkpoints: Checkpoints,
    on_epoch: Callable[[dict[str, Any]], None],
    progress: Callable[[int, int], None],
) -> Fitted:
    """Train through all phases, going on from the newest checkpoint.

    Each phase starts from the best weights so far and the label state that belongs to them. At the
    end `model` and `store` hold those of the best epoch of all.

    Args:
        model: All weights, whichever of them a phase trains.
        method: The loss, and the update of the per-image state.
        store: That state; changed in place.
        observations: Of the rows of `store`.
        phases: In order.
        fabric: Device and precision.
        seed: Of what a network draws while it trains (dropout), anew each epoch.
        checkpoints: Where the state is committed each epoch.
        on_epoch: Given the entry of `Fitted.history` after each epoch.
        progress: Told (epochs done, epochs in all).
    """
    epochs = sum(phase.epochs for phase in phases)
    state: dict[str, Any] = checkpoints.load() or {"epoch": 0, "history": [], "best": None}
    best, history = state["best"], state["history"]
    progress(state["epoch"], epochs)
    end = 0
    for phase in phases:
        start, end = end, end + phase.epochs
        if state["epoch"] >= end:
            continue
        if best is not None:
            _restore(best, model, store)
        optimizer = torch.optim.Adam(phase.network.parameters(), lr=phase.learning_rate)
        network, optimizer = fabric.setup(phase.network, optimizer)
        if state["epoch"] > start:
            _restore(state, model, store)
            optimizer.load_state_dict(state["optimizer"])
        for epoch in range(max(start, state["epoch"]), end):
            torch.manual_seed(seed + epoch)
            loss = train_epoch(
                network,
                optimizer,
                phase.batches.epoch(epoch),
                method,
                store,
                observations,
                schedule=Schedule(epoch, epochs),
                fabric=fabric,
            )
            name, value = phase.score()
            if best is None or value > best["score"]:
                best = {"epoch": epoch + 1, "name": name, "score": value}
                best |= _snapshot(model, store)
            entry = {"epoch": epoch + 1, "phase": phase.name, "train/loss": loss}
            history.append(entry | {name: value})
            checkpoints.save(
                epoch + 1,
                {"epoch": epoch + 1, "history": history, "best": best}
                | {"optimizer": optimizer.state_dict()}
                | _snapshot(model, store),
            )
            on_epoch(history[-1])
            progress(epoch + 1, epochs)
    assert best is not None
    _restore(best, model, store)
    return Fitted(best["epoch"], (best["name"], best["score"]), history)


def train_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    method: Method,
    store: LabelStore,
    observations: Observations,
    *,
    schedule: Schedule,
    fabric: Fabric,
) -> float:
    """One pass over the training images; the mean loss of an image.

    The method sees the state from before the step and gives the next one (Algorithm 1 of the
    paper): its rows are written back at once, so each image moves exactly once an epoch.
    """
    network.train()
    total = torch.zeros((), device=fabric.device)
    count = 0
    for rows, inputs in batches:
        rows, inputs = rows.to(fabric.device), inputs.to(fabric.device)
        targets, observed = observations.targets[rows], observations.observed[rows]
        labels = store.read(rows)
        logits = network(inputs)
        loss = method.loss(
            logits,
            targets,
            observed,
            labels,
            schedule=schedule,
            positives_per_image=observations.positives_per_image,
        )
        store.write(rows, method.update(logits.detach(), targets, observed, labels))
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        total += loss.detach() * len(rows)
        count += len(rows)
    mean = (total / count).item()
    if not math.isfinite(mean):
        raise PlmclError(
            f"the loss is {mean} in epoch {schedule.epoch + 1}; lower the learning rate, or set "
            "train.precision to 32-true (with other values training begins anew)"
        )
    return mean


def _snapshot(model: nn.Module, store: LabelStore) -> dict[str, dict[str, Tensor]]:
    def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: values.detach().cpu().clone() for name, values in tensors.items()}

    return {"model": copied(model.state_dict()), "labels": copied(store.state)}


def _restore(state: dict[str, Any], model: nn.Module, store: LabelStore) -> None:
    model.load_state_dict(state["model"])
    for name, values in store.state.items():
        values.copy_(state["labels"][name])
