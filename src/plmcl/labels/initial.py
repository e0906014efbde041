"""The store that a training starts with: in memory if it fits there, else in files."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plmcl.errors import PlmclError
from plmcl.labels.mapped import Column, MappedStore
from plmcl.labels.store import LabelStore, State
from plmcl.methods.base import Method
from plmcl.params import Train

BLOCK = 1 << 18  # rows whose state is made at once

# Given fresh state of some rows, what is observed of them, and their ids: their state.
Carry = Callable[[State, Tensor, Sequence[str]], State]


def make_store(
    image_ids: Sequence[str],
    targets: npt.NDArray[np.uint8],
    observed: npt.NDArray[np.bool_],
    method: Method,
    settings: Train,
    *,
    seed: int,
    device: torch.device,
    ranks: int,
    carry: Carry,
) -> LabelStore:
    """The store of a method's state of the training images.

    Args:
        image_ids: N of them.
        targets: (N, L) in {0, 1}.
        observed: (N, L), where `targets` is known.
        method: Whose state it is.
        settings: Where it may be, and in how many bits.
        seed: Of what the method draws for it.
        device: Of a store in memory.
        ranks: Processes that train.
        carry: What becomes of the method's fresh state.

    Raises:
        PlmclError: It must be in files, and there is more than one process, or the method looks
            at all of it at once.
    """

    def blocks(length: int) -> Iterator[State]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for start in range(0, len(image_ids), length):
                rows = slice(start, start + length)
                known = torch.from_numpy(observed[rows])
                fresh = method.initial_state(torch.from_numpy(targets[rows]).float(), known)
                yield carry(fresh, known, image_ids[rows])

    columns = _columns(method, targets, observed, settings)
    row_bytes = sum(column.width * column.dtype.itemsize for column in columns.values())
    megabytes = len(image_ids) * row_bytes / 1e6
    if megabytes <= settings.state_memory_mb:
        (state,) = blocks(len(image_ids))
        return LabelStore(
            image_ids, {n: state[n].to(device, column.dtype) for n, column in columns.items()}
        )
    reason = f"{ranks} processes share it" if ranks > 1 else ""
    if type(method).end_epoch is not Method.end_epoch:
        reason = f"{type(method).__name__} looks at all of it after each epoch"
    if reason:
        raise PlmclError(
            f"train.state_memory_mb: {settings.state_memory_mb}, and the label state is "
            f"{megabytes:.0f} MB; it must be in memory, since {reason}: set it to "
            f"{int(megabytes) + 1}"
        )
    return MappedStore(image_ids, columns, lambda: blocks(BLOCK))


def _columns(
    method: Method,
    targets: npt.NDArray[np.uint8],
    observed: npt.NDArray[np.bool_],
    settings: Train,
) -> dict[str, Column]:
    with torch.random.fork_rng(devices=[]):
        like = method.initial_state(
            torch.from_numpy(targets[:1]).float(), torch.from_numpy(observed[:1])
        )
    short = torch.float16 if settings.state_precision == "float16" else torch.float32
    return {
        # Counts and the like would overflow in 16 bits.
        name: Column(values.shape[1], torch.float32 if name in method.of_one_training else short)
        for name, values in like.items()
    }
