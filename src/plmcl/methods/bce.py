"""Cross entropy on what is observed: the reference that full labels give (BCE, BCE-LS)."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Batch, Context, Method, observed_cross_entropy, smooth


class BinaryCrossEntropy(Method):
    """Mean over all B*L entries of the observed entries' cross entropy; others count as 0.

    Attributes:
        smoothing: e of label smoothing: targets are 1 - e and e. 0.1 is the BCE-LS of the tables.
    """

    smoothing: Annotated[float, Field(ge=0, lt=0.5)]

    @property
    def needs_negatives(self) -> bool:
        """True: from positives alone the optimum is to predict every label always."""
        return True

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        targets = smooth(batch.targets, self.smoothing)
        return observed_cross_entropy(batch.logits, targets, batch.observed).mean()


METHOD = BinaryCrossEntropy
