"""FixMatch for many labels: a plain view that is sure teaches a strongly augmented one.

Sohn et al., arXiv 2001.07685, with a sigmoid for each label in the place of the softmax.
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


class FixMatch(Method):
    """Observed entries by their label, unobserved ones by what the plain view is sure of.

    Attributes:
        threshold: tau: an entry is taken as 1 from p >= tau on, as 0 up to p <= 1 - tau.
        unlabeled_weight: Of these entries.
        regulariser_weight: Of R_k, which FixMatch does not have; from positives alone the
            predictions run to 1 without it.
    """

    threshold: Annotated[float, Field(gt=0.5, lt=1)]
    unlabeled_weight: Annotated[float, Field(ge=0)]
    regulariser_weight: Annotated[float, Field(ge=0)]

    @property
    def needs_strong_view(self) -> bool:
        """True: the strong view is what an unobserved label teaches."""
        return True

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        assert batch.strong is not None
        probs = batch.logits.detach().float().sigmoid()
        positive, negative = probs >= self.threshold, probs <= 1 - self.threshold
        known = observed_cross_entropy(batch.logits, batch.targets, batch.observed)
        sure = observed_cross_entropy(
            batch.strong, positive, (positive | negative) & ~batch.observed
        )
        penalty = expected_positive_penalty(batch.logits, context)
        entries = known + self.unlabeled_weight * sure
        return entries.mean() + self.regulariser_weight * penalty


METHOD = FixMatch
