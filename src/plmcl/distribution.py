"""One training on several processes, each with a GPU (or a share of the cores) of its own.

`torchrun` starts them. Every rank owns some of the training images for the whole training: it
trains on them alone and moves their state alone, so nothing of the state is exchanged in a step.
Weights are the same everywhere; gradients are averaged by torch. Once an epoch the rows of the
state are exchanged, so that rank 0 can commit, and write, all of it.
What a method computes over a whole batch goes through `plmcl.share`.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, distributed, nn

from plmcl.errors import PlmclError

# How long a rank waits for the others, say while rank 0 writes: `torchrun` ends all when one fails.
PATIENCE = timedelta(hours=2)


def make_fabric(precision: Literal["32-true", "bf16-mixed"]) -> Fabric:
    """The device of this process; where `torchrun` started several, connected with the others."""
    ranks, here = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if ranks == 1:
        return Fabric(accelerator="auto", devices=1, precision=precision)
    gpus = torch.cuda.device_count()
    if 0 < gpus < here:
        raise PlmclError(f"torchrun --nproc-per-node {here}: this machine has {gpus} GPUs")
    # Each rank keeps the batch norm statistics of its own images; see `average_statistics`.
    warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")  # still the only name
    strategy = DDPStrategy(timeout=PATIENCE, broadcast_buffers=False)
    fabric = Fabric(
        accelerator="auto",
        devices=here,
        num_nodes=ranks // here,
        strategy=strategy,
        precision=precision,
    )
    fabric.launch()
    return fabric


def agree(name: str, value: Any) -> None:
    """Make sure that all ranks have the same value before they train on it.

    Raises:
        PlmclError: They do not; on every rank.
    """
    for rank, other in enumerate(_everyones(value)):
        if other != value:
            raise PlmclError(
                f"{name}: {value} here and {other} on rank {rank}; all nodes must see one and the "
                "same project folder, with the same code"
            )


def from_first(value: float) -> float:
    """The value of rank 0: another processor's may differ in its last digit."""
    return float(_everyones(value)[0])


def total(values: Tensor) -> Tensor:
    """The sum over ranks."""
    if distributed.is_initialized():
        distributed.all_reduce(values)
    return values


def part_of(number: int, fabric: Fabric) -> slice:
    """Which of `number` things, in their order, this rank looks at: all without other ranks."""
    bounds = np.linspace(0, number, fabric.world_size + 1).round().astype(int).tolist()
    return slice(bounds[fabric.global_rank], bounds[fabric.global_rank + 1])


def join_parts(part: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What all ranks found for their parts, in order; the same on every rank."""
    # An empty part does not know how wide it is.
    parts = [found for found in _everyones(part) if len(found)]
    return np.concatenate(parts) if len(parts) > 1 else [*parts, part][0]


def exchange(state: Mapping[str, Tensor], owner: npt.NDArray[np.int64], ranks: int) -> None:
    """Bring the rows of all owners to every rank, in place.

    Args:
        state: (N, L) each.
        owner: (N,), the rank whose rows are right.
        ranks: R; nothing happens if there is but one.
    """
    if ranks == 1:
        return
    for rank in range(ranks):
        for values in state.values():
            rows = torch.from_numpy(np.flatnonzero(owner == rank)).to(values.device)
            owned = values[rows]
            distributed.broadcast(owned, src=rank)
            values[rows] = owned


def average_statistics(networks: Sequence[nn.Module], ranks: int) -> None:
    """Give every rank the mean over ranks of the statistics of batch norm, in place.

    Args:
        networks: In the mode that they train in: statistics that are kept are equal.
        ranks: R; nothing happens if there is but one.
    """
    if ranks == 1:
        return
    for network in networks:
        for module in network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
                for statistic in (module.running_mean, module.running_var):
                    if statistic is not None:
                        distributed.all_reduce(statistic)
                        statistic /= ranks


def _everyones(value: Any) -> list[Any]:
    if not distributed.is_initialized():
        return [value]
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value)
    return found
