"""Uncertainty-aware pseudo-label selection (UPS) for many labels.

Rizve et al., arXiv 2101.06329, with a sigmoid for each label in the place of the softmax.
"""

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


class Ups(Method):
    """Observed entries by their label, unobserved ones where passes with dropout agree.

    An entry is taken as 1 or 0 by the mean and the standard deviation of its prediction over the
    passes, anew each time that its image comes up.

    Attributes:
        dropout_rate: Share of the features that a pass drops, in training as well.
        passes: How many passes decide.
        positive_threshold: Smallest mean of a 1.
        positive_deviation: Largest standard deviation of a 1.
        negative_threshold: Largest mean of a 0.
        negative_deviation: Largest standard deviation of a 0.
        regulariser_weight: Of R_k, which UPS does not have; from positives alone the predictions
            run to 1 without it.
    """

    dropout_rate: Annotated[float, Field(gt=0, lt=1)]
    passes: Annotated[int, Field(ge=2)]
    positive_threshold: Annotated[float, Field(ge=0.5, le=1)]
    positive_deviation: Annotated[float, Field(ge=0)]
    negative_threshold: Annotated[float, Field(ge=0, lt=0.5)]
    negative_deviation: Annotated[float, Field(ge=0)]
    regulariser_weight: Annotated[float, Field(ge=0)]

    @property
    def dropout(self) -> float:
        """`dropout_rate`."""
        return self.dropout_rate

    @property
    def dropout_passes(self) -> int:
        """`passes`."""
        return self.passes

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        assert batch.passes is not None
        probs = batch.passes.float().sigmoid()
        mean, deviation = probs.mean(dim=0), probs.std(dim=0)
        positive = (mean >= self.positive_threshold) & (deviation <= self.positive_deviation)
        negative = (mean <= self.negative_threshold) & (deviation <= self.negative_deviation)
        known = observed_cross_entropy(batch.logits, batch.targets, batch.observed)
        agreed = observed_cross_entropy(
            batch.logits, positive, (positive | negative) & ~batch.observed
        )
        penalty = expected_positive_penalty(batch.logits, context)
        return (known + agreed).mean() + self.regulariser_weight * penalty


METHOD = Ups
