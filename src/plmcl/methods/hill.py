"""Hill loss of Zhang et al.: a negative that is predicted high is likely a missing label.

arXiv 2112.07368.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, Method, focal_cross_entropy


class Hill(Method):
    """Positives by a focal loss with a margin, unobserved entries by a hill over p.

    An observed negative is no missing label: it has its cross entropy. The mean over all entries,
    where the code of the publication sums.

    Attributes:
        margin: m, taken off the logit of a positive.
        focus: gamma; a positive's cross entropy is weighted by (1 - p)^gamma, p with the margin.
        unobserved_weight: lambda; p^2 of an unobserved entry is weighted by lambda - p. With 1.5
            the loss is flat at p = 1; with less it falls from p = 2 lambda / 3 on.
    """

    margin: Annotated[float, Field(ge=0)]
    focus: Annotated[float, Field(ge=0)]
    unobserved_weight: Annotated[float, Field(ge=1)]

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        logits = batch.logits.float()
        probs = logits.sigmoid()
        positive = focal_cross_entropy(logits - self.margin, self.focus)
        negative = functional.softplus(logits)
        hill = (self.unobserved_weight - probs) * probs**2
        known = torch.where(batch.targets > 0, positive, negative)
        return torch.where(batch.observed, known, hill).mean()


METHOD = Hill
