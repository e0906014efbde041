"""Asymmetric loss (ASL) of Ridnik et al. (ICCV 2021): easy negatives count little, or not at all.

arXiv 2009.14119.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, Method, focal_cross_entropy

# Below this a shifted prediction counts as 0, where a power below 1 has no gradient.
SMALLEST = 1e-8


class Asymmetric(Method):
    """Focal losses with unobserved labels taken as 0; positives and negatives each have a power.

    The mean over all entries, where the code of the publication sums.

    Attributes:
        positive_focus: gamma_+; a positive's cross entropy is weighted by (1 - p)^gamma_+.
        negative_focus: gamma_-; a negative's is -p_m^gamma_- log(1 - p_m).
        clip: m of p_m = max(p - m, 0): a negative predicted below it is left out.
    """

    positive_focus: Annotated[float, Field(ge=0)]
    negative_focus: Annotated[float, Field(ge=0)]
    clip: Annotated[float, Field(ge=0, lt=1)]

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        logits = batch.logits.float()
        positive = focal_cross_entropy(logits, self.positive_focus)
        # log(1 - p_m) = min(log(1 - p + m), 0), from log(1 - p): that is finite where 1 - p is 0.
        clip = logits.new_full((), math.log(self.clip) if self.clip else -math.inf)
        log_absent = torch.logaddexp(functional.logsigmoid(-logits), clip).clamp(max=0)
        shifted = -torch.expm1(log_absent)
        negative = -(shifted.clamp(min=SMALLEST) ** self.negative_focus) * log_absent
        return torch.where(batch.observed & (batch.targets > 0), positive, negative).mean()


METHOD = Asymmetric
