"""Pseudo-label consistency (PLC) of Xie et al. (NeurIPS 2022): one view's labels teach another.

The first stage of their Label-Aware Global Consistency, without its contrastive part, as its code
has it.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Batch, Context, Method, cross_entropy, observed_cross_entropy


class PseudoLabelConsistency(Method):
    """The plain view as in AN, and a strong view by what the plain one is sure of.

    The latter is a mean over the sure entries alone; observed ones are always among them, with
    their own label.

    Attributes:
        threshold: tau: an entry is taken as 1 from p >= tau on, as 0 below p < 1 - tau.
        weight: Of the strong view's term.
    """

    threshold: Annotated[float, Field(ge=0.5, lt=1)]
    weight: Annotated[float, Field(ge=0)]

    @property
    def needs_strong_view(self) -> bool:
        """True: the strong view is what a sure prediction teaches."""
        return True

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        assert batch.strong is not None
        probs = torch.where(batch.observed, batch.assumed, batch.logits.detach().float().sigmoid())
        positive, negative = probs >= self.threshold, probs < 1 - self.threshold
        sure = positive | negative
        taught = context.share.gather(observed_cross_entropy(batch.strong, positive, sure)).sum()
        count = context.share.gather(sure.sum(dim=1)).sum()
        consistency = taught / count.clamp(min=1)
        return cross_entropy(batch.logits, batch.assumed).mean() + self.weight * consistency


METHOD = PseudoLabelConsistency
