"""Large loss (LL) of Kim et al. (CVPR 2022): among assumed negatives, a large loss is a mistake.

arXiv 2206.03740. A network learns the true negatives first, so that the hidden positives stand out
by their loss; they are rejected (LL-R), corrected (LL-Ct) or permanently corrected (LL-Cp).
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Batch, Context, Method, State, cross_entropy


class LargeLoss(Method):
    """Mean cross entropy with unobserved labels taken as 0, but for those of the largest losses.

    State, with `permanent` only: `flipped` is 1 where an unobserved entry has become a positive
    for good; float32 (B, L).

    Attributes:
        scheme: What becomes of the largest losses of a step: `reject` leaves them out, `correct`
            takes them as positives in this step, `permanent` from this step on.
        rate: d, a share of the batch's B * L entries. After e whole epochs, `reject` and `correct`
            change ceil(e * d * B * L) entries a step; `permanent` flips ceil(d * B * L) more in
            each step. The first epoch is left as it is.
    """

    scheme: Literal["reject", "correct", "permanent"]
    rate: Annotated[float, Field(ge=0, le=1)]

    def initial_state(self, targets: Tensor, observed: Tensor) -> State:
        """Nothing flipped."""
        if self.scheme != "permanent":
            return {}
        return {"flipped": torch.zeros_like(targets, dtype=torch.float32)}

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        assumed = self._assumed(batch)
        large = self._large(batch, context)
        if self.scheme == "reject":
            return cross_entropy(batch.logits, assumed).where(~large, 0.0).mean()
        return cross_entropy(batch.logits, torch.where(large, 1.0, assumed)).mean()

    @torch.no_grad()
    def update(self, batch: Batch, context: Context) -> State:
        """Flip for good what `loss` takes as positives in this step."""
        if self.scheme != "permanent":
            return batch.labels
        large = self._large(batch, context)
        return {"flipped": torch.where(large, 1.0, batch.labels["flipped"])}

    def _assumed(self, batch: Batch) -> Tensor:
        """What is observed; elsewhere 1 if an earlier step flipped the entry, or 0; (B, L)."""
        flipped = batch.labels.get("flipped", torch.zeros_like(batch.targets))
        return torch.where(batch.observed, batch.targets.float(), flipped)

    def _large(self, batch: Batch, context: Context) -> Tensor:
        """Which of the assumed negatives have the largest losses of the batch; (B, L) bool."""
        candidates = ~batch.observed & (self._assumed(batch) == 0)
        # The loss of a negative rises with its logit.
        own = batch.logits.detach().float().where(candidates, -torch.inf)
        logits = context.share.gather(own).flatten()
        rounds = min(context.epoch, 1) if self.scheme == "permanent" else context.epoch
        # In this order, since (9 * 0.001) * 1000 is above 9.
        count = min(math.ceil(rounds * logits.numel() * self.rate), logits.numel())
        none = torch.zeros_like(logits, dtype=torch.bool)
        large = none.index_fill(0, logits.topk(count).indices, True)
        return context.share.own(large.view(-1, own.shape[1])) & candidates


METHOD = LargeLoss
