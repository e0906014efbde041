"""The loop: phases of epochs, per-image state beside the weights, the best epoch kept."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from plmcl.averaging import WeightAverage
from plmcl.capture import Captured
from plmcl.checkpoint import Checkpoints
from plmcl.data.loading import EpochOrder, on_device
from plmcl.distribution import agree, average_statistics, exchange, total
from plmcl.errors import PlmclError
from plmcl.heads import LinearHead
from plmcl.labels.store import LabelStore
from plmcl.methods.base import Batch, Context, Method
from plmcl.share import ALONE, Share

Score = tuple[str, float]


class Batches(Protocol):
    """Where an epoch's batches come from; see `plmcl.data.loading`.

    Attributes:
        order: The rows of the batches, with several ranks those of this one.
    """

    order: EpochOrder

    def __len__(self) -> int:
        """Batches in an epoch."""
        ...

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(rows (B,) int64, inputs) of each batch; each row once.

        Inputs have B as their first dimension, or (2, B) where a strong view comes with each.
        """
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
        score: What the selection split says of a network such as this: (name, value); larger is
            better. The same on every rank.
        head_rate: The head's learning rate, as a multiple.
        frozen_statistics: Whether batch norm keeps the statistics that it has.
        ema_decay: Of the average of the weights that is scored and kept; 0: the weights themselves.
        sample: Inputs of a whole batch's shape, on the GPU: the network's pass over such a batch is
            replayed from CUDA graphs. None: it is not.
        compiled: Whether the pass that is replayed is compiled before.
    """

    name: str
    network: nn.Module
    batches: Batches
    epochs: int
    learning_rate: float
    score: Callable[[nn.Module], Score]
    head_rate: float = 1.0
    frozen_statistics: bool = False
    ema_decay: float = 0.0
    sample: Tensor | None = None
    compiled: bool = False

    def training_network(self, autocast: AbstractContextManager[None]) -> nn.Module:
        """The network in the mode that it trains in, captured if it can be."""
        self.set_mode(self.network)
        if self.sample is None:
            if self.compiled:
                self._goes_without("compilation", "no step is replayed from CUDA graphs here")
            return self.network
        for compiled in (True, False) if self.compiled else (False,):
            try:
                return Captured(self.network, self.sample, autocast, compiled=compiled)
            except RuntimeError as error:
                self._goes_without("compilation" if compiled else "CUDA graphs", str(error))
        return self.network

    def _goes_without(self, what: str, reason: str) -> None:
        line, _, _ = reason.partition("\n")
        print(f"{self.name}: goes without {what}: {line}", file=sys.stderr)

    def set_mode(self, network: nn.Module) -> None:
        """Training mode, but for the batch norm that keeps its statistics."""
        network.train()
        if self.frozen_statistics:
            for module in network.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def optimizer(self) -> torch.optim.Adam:
        """Adam over the network, the head at its own rate."""
        heads = [module for module in self.network.modules() if isinstance(module, LinearHead)]
        in_heads = {id(weights) for head in heads for weights in head.parameters()}
        groups: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
        for weights in self.network.parameters():
            groups[id(weights) in in_heads].append(weights)
        rates = (self.learning_rate, self.learning_rate * self.head_rate)
        return torch.optim.Adam(
            [
                {"params": group, "lr": rate}
                for group, rate in zip(groups, rates, strict=True)
                if group
            ],
            lr=self.learning_rate,
            # One kernel for many weights.
            fused=all(weights.is_cuda for weights in self.network.parameters()) or None,
        )


@dataclass(frozen=True)
class Fitted:
    """What training leaves behind.

    Attributes:
        best_epoch: From 1; 0 where the head in closed form was best. The model holds the weights
            of that epoch, the store its label state.
        best_score: (name, value) on the selection split.
        history: One entry an epoch: `epoch`, `phase`, `train/loss`, the score under its name, and
            what `figures` gave.
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
    checkpoints: Checkpoints | None,
    on_epoch: Callable[[dict[str, Any]], None],
    progress: Callable[[int, int], None],
    solved: dict[str, Any] | None = None,
    figures: Callable[[Context], dict[str, Any]] | None = None,
) -> Fitted:
    """Train through all phases, going on from the newest checkpoint.

    Each phase starts from the best weights so far and the label state that belongs to them. At the
    end `model` and `store` hold those of the best epoch of all. With several ranks, all of them
    call this and all have everything at the end; rank 0 commits.

    Args:
        model: All weights, whichever of them a phase trains.
        method: The loss, and the update of the per-image state.
        store: That state; changed in place.
        observations: Of the rows of `store`.
        phases: In order.
        fabric: Device and precision.
        seed: Of what a network draws while it trains (dropout), anew each epoch and rank.
        checkpoints: Where the state is committed each epoch; None for a training so short that
            it is repeated instead.
        on_epoch: Given the entry of `Fitted.history` after each epoch.
        progress: Told (epochs done, epochs in all).
        solved: Entry of the history for the weights that `model` holds now, if its head was made
            in closed form: they compete with those of every epoch.
        figures: Given the context of the epoch that has ended, what else the history keeps of it.
    """
    epochs = sum(phase.epochs for phase in phases)
    state: dict[str, Any] | None = checkpoints.load() if checkpoints else None
    if state is None:
        state = {"epoch": 0, "step": 0, "history": [], "best": None}
        if solved is not None:
            state["history"].append(solved)
            state["best"] = _best(solved, model, store)
            on_epoch(solved)
    elif state["history"]:
        on_epoch(state["history"][-1])  # a process that ended after the commit may not have
    agree("epochs done", state["epoch"])
    best, history, step = state["best"], state["history"], state["step"]
    progress(state["epoch"], epochs)
    end = 0
    for phase in phases:
        start, end = end, end + phase.epochs
        if state["epoch"] >= end:
            continue
        if best is not None:
            _restore(best, model, store)
        network, optimizer = fabric.setup(
            phase.training_network(fabric.autocast()), phase.optimizer()
        )
        average = WeightAverage(phase.network, phase.ema_decay) if phase.ema_decay else None
        if state["epoch"] > start:
            _restore(state, model, store)
            optimizer.load_state_dict(state["optimizer"])
            if average is not None:
                average.load_state_dict(state["average"])
        for epoch in range(max(start, state["epoch"]), end):
            torch.manual_seed(seed + epoch + epochs * fabric.global_rank)
            context = Context(
                epoch, epochs, step, phase.learning_rate, observations.positives_per_image
            )
            loss = train_epoch(
                network,
                optimizer,
                phase,
                method,
                store,
                observations,
                context=context,
                fabric=fabric,
                average=average,
            )
            step += len(phase.batches)
            kept = phase.network if average is None else average.module
            name, value = phase.score(kept)
            entry = {"epoch": epoch + 1, "phase": phase.name, "train/loss": loss, name: value}
            if figures is not None:
                entry |= figures(context)
            history.append(entry)
            if best is None or value > best["score"]:
                best = _best(entry, model if average is None else kept, store)
            if checkpoints is not None and fabric.is_global_zero:
                now = _snapshot(model, store)
                checkpoints.save(
                    epoch + 1,
                    {"epoch": epoch + 1, "step": step, "history": history, "best": best}
                    | {"optimizer": optimizer.state_dict()}
                    | {"average": None if average is None else average.state_dict()}
                    | now,
                    store.files(now["labels"]) | store.files(best["labels"]),
                )
            on_epoch(entry)
            progress(epoch + 1, epochs)
    assert best is not None
    _restore(best, model, store)
    return Fitted(best["epoch"], (best["name"], best["score"]), history)


def train_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    phase: PhaseRun,
    method: Method,
    store: LabelStore,
    observations: Observations,
    *,
    context: Context,
    fabric: Fabric,
    average: WeightAverage | None,
) -> float:
    """One pass over the training images; the mean loss of an image, of all ranks.

    The method sees the state from before the step and gives the next one (Algorithm 1 of the
    paper): its rows are written back at once, so each image moves exactly once an epoch.
    """
    phase.set_mode(network)
    order, ranks = phase.batches.order, fabric.world_size
    summed = torch.zeros((), device=fabric.device)
    store.begin_epoch(context.epoch + 1)
    batches = on_device(phase.batches.epoch(context.epoch), fabric.device)
    for number, (rows, inputs) in enumerate(batches):
        batch = _look(network, method, inputs, rows, store, observations)
        share = Share(order.counts(number), fabric.global_rank) if ranks > 1 else ALONE
        now = replace(context, step=context.step + number, share=share)
        loss = method.loss(batch, now)
        store.write(rows, method.update(_without_gradient(batch), now))
        optimizer.zero_grad()
        fabric.backward(share.weigh(loss))
        optimizer.step()
        if average is not None:
            average.update()
        summed += loss.detach() * len(rows)
    average_statistics([phase.network, *([] if average is None else [average.module])], ranks)
    exchange(store.state, order.owner, ranks)
    store.end_epoch(
        lambda state: method.end_epoch(observations.targets, observations.observed, state, context)
    )
    mean = (total(summed) / len(order.owner)).item()
    if not math.isfinite(mean):
        raise PlmclError(
            f"the loss is {mean} in epoch {context.epoch + 1}; lower the learning rate, or set "
            "train.precision to 32-true (with other values training begins anew)"
        )
    return mean


def _look(
    network: nn.Module,
    method: Method,
    inputs: Tensor,
    rows: Tensor,
    store: LabelStore,
    observations: Observations,
) -> Batch:
    """The batch as the method sees it, after as many passes of the network as it needs."""
    strong = passes = None
    if method.needs_strong_view:
        # One pass over both views, so that batch norm sees one batch.
        logits, strong = network(inputs.flatten(0, 1)).chunk(2)
    elif method.dropout_passes:
        logits, *drawn = network(inputs, passes=method.dropout_passes).unbind()
        passes = torch.stack(drawn).detach()
    else:
        logits = network(inputs)
    return Batch(
        logits=logits,
        targets=observations.targets[rows],
        observed=observations.observed[rows],
        labels=store.read(rows),
        strong=strong,
        passes=passes,
    )


def _without_gradient(batch: Batch) -> Batch:
    strong = None if batch.strong is None else batch.strong.detach()
    return replace(batch, logits=batch.logits.detach(), strong=strong)


def _best(entry: dict[str, Any], model: nn.Module, store: LabelStore) -> dict[str, Any]:
    name = next(key for key in entry if key not in ("epoch", "phase", "train/loss"))
    return {"epoch": entry["epoch"], "name": name, "score": entry[name]} | _snapshot(model, store)


def _snapshot(model: nn.Module, store: LabelStore) -> dict[str, Any]:
    weights = {name: w.detach().cpu().clone() for name, w in model.state_dict().items()}
    return {"model": weights, "labels": store.snapshot()}


def _restore(state: dict[str, Any], model: nn.Module, store: LabelStore) -> None:
    model.load_state_dict(state["model"])
    store.restore(state["labels"])
