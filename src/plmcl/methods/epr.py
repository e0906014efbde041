"""Expected positive regularisation (EPR) of Cole et al.: learn from what is observed and from k."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from plmcl.methods.base import (
    Batch,
    Context,
    Method,
    expected_positive_penalty,
    observed_cross_entropy,
)


class ExpectedPositive(Method):
    """Cross entropy of the observed entries over B*L, plus R_k over all images of the batch.

    R_k is the only force that lowers a prediction where no negative is observed.

    Attributes:
        weight: Of R_k; 1 in the reference code.
    """

    weight: Annotated[float, Field(ge=0)]

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        known = observed_cross_entropy(batch.logits, batch.targets, batch.observed).mean()
        penalty = expected_positive_penalty(batch.logits, context)
        return known + self.weight * penalty


METHOD = ExpectedPositive
