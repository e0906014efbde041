"""Self-paced loss correction (SPLC) of Zhang et al.: a label that is predicted high is a positive.

arXiv 2112.07368, with the focal margin loss, as its code has it.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Batch, Context, Method, focal_cross_entropy


class SelfPacedCorrection(Method):
    """Mean focal loss with unobserved labels taken as 0, but for those predicted above a threshold.

    These are taken as positives in this step. The mean over all entries, where the code of the
    publication sums.

    Attributes:
        threshold: tau; an unobserved entry with p > tau is taken as a positive.
        change_epoch: Epochs before the first correction, over all phases.
        margin: m, taken off the logit of an observed positive, and of no other.
        focus: gamma; the cross entropy of an entry is weighted by (1 - a)^gamma, a being the
            probability of what the entry is taken for.
    """

    threshold: Annotated[float, Field(gt=0, lt=1)]
    change_epoch: Annotated[int, Field(ge=0)]
    margin: Annotated[float, Field(ge=0)]
    focus: Annotated[float, Field(ge=0)]

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        logits = batch.logits.float()
        given = batch.observed & (batch.targets > 0)
        high = logits.sigmoid() > self.threshold
        corrected = high & ~batch.observed & (context.epoch >= self.change_epoch)
        as_positive = torch.where(given, logits - self.margin, logits)
        # The logit of a.
        taken = torch.where(given | corrected, as_positive, -logits)
        return focal_cross_entropy(taken, self.focus).mean()


METHOD = SelfPacedCorrection
