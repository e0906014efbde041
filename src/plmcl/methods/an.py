"""Assume negative: what nobody looked at is absent (AN; AN-LS with smoothing 0.1)."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Method, Schedule, State, cross_entropy, smooth


class AssumeNegative(Method):
    """Mean cross entropy with every unobserved label taken as 0, like an observed negative.

    Attributes:
        smoothing: e of label smoothing, on both sides: targets are 1 - e and e.
    """

    smoothing: Annotated[float, Field(ge=0, lt=0.5)]

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        observed: Tensor,
        labels: State,
        *,
        schedule: Schedule,
        positives_per_image: float,
    ) -> Tensor:
        """See `Method.loss`."""
        assumed = torch.where(observed, targets.float(), 0.0)
        return cross_entropy(logits, smooth(assumed, self.smoothing)).mean()


METHOD = AssumeNegative
