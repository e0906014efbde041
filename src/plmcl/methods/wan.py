"""Weak assume negative (WAN) of Cole et al.: what nobody looked at counts a little as absent."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Batch, Context, Method, cross_entropy


class WeakAssumeNegative(Method):
    """Mean cross entropy with every unobserved label taken as 0 and weighted by g.

    Observed labels count fully, the negatives among them as well.

    Attributes:
        negative_weight: g. None: 1 / (L - 1), so that the L - 1 assumed negatives of an image
            weigh as much as its one observed positive.
    """

    negative_weight: Annotated[float, Field(ge=0)] | None

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        weight = torch.where(batch.observed, 1.0, self._weight(batch.logits.shape[1]))
        return (weight * cross_entropy(batch.logits, batch.assumed)).mean()

    def _weight(self, num_labels: int) -> float:
        if self.negative_weight is not None:
            return self.negative_weight
        return 1 / max(num_labels - 1, 1)


METHOD = WeakAssumeNegative
