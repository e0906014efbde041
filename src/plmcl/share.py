"""What one process has of a batch that several share: its rows, and a way to see the others'.

The arithmetic: of R ranks, rank r has B_r rows of the batch, B = sum of B_r. The mean over all
rows of a loss l is sum_r (B_r / B) mean_r(l), and torch averages the gradients of the ranks; so
each rank weighs its loss by w_r = B_r R / B. A statistic P of the gathered batch is in the loss of
every rank, the same number. The backward pass of a gathering sums over ranks what arrives there:
the logits of each rank get sum_r w_r dP = R dP, of which the average leaves dP.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Share:
    """The rows that this process has of a batch, which is the whole batch without other ranks.

    Attributes:
        counts: B_r, the rows of each rank; empty without other ranks.
        rank: This one.
    """

    counts: tuple[int, ...] = ()
    rank: int = 0

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.counts) or 1

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, rank by rank; differentiable. To be called by all of them.

        Args:
            rows: (B_r, ...), of this rank.

        Returns:
            (B, ...), the same on every rank.
        """
        if self.ranks == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, self)
        return gathered

    def own(self, rows: Tensor) -> Tensor:
        """What belongs to this rank, (B_r, ...), of a whole batch (B, ...)."""
        if self.ranks == 1:
            return rows
        start = sum(self.counts[: self.rank])
        return rows[start : start + self.counts[self.rank]]

    def weigh(self, loss: Tensor) -> Tensor:
        """The loss times B_r R / B: averaged over ranks, it counts each row of the batch once."""
        if self.ranks == 1:
            return loss
        return loss * (self.counts[self.rank] * self.ranks / sum(self.counts))


ALONE = Share()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, share: Share) -> Tensor:
        ctx.share = share
        # Ranks differ in their rows, and a collective takes tensors of one shape.
        padded = rows.new_zeros(max(share.counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in share.counts]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, share.counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.contiguous().clone()
        distributed.all_reduce(total)
        return ctx.share.own(total), None
