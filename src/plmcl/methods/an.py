"""Assume negative: what nobody looked at is absent (AN; AN-LS with smoothing 0.1)."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Batch, Context, Method, cross_entropy, smooth


class AssumeNegative(Method):
    """Mean cross entropy with every unobserved label taken as 0, like an observed negative.

    Attributes:
        smoothing: e of label smoothing, on both sides: targets are 1 - e and e.
    """

    smoothing: Annotated[float, Field(ge=0, lt=0.5)]

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        return cross_entropy(batch.logits, smooth(batch.assumed, self.smoothing)).mean()


METHOD = AssumeNegative
