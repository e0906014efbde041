"""Entropy maximisation (EM), with asymmetric pseudo-labelling (APL), of Zhou et al. (ECCV 2022).

arXiv 2203.16219, as its code has it.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import Batch, Context, Method, State, cross_entropy, observed_cross_entropy


class EntropyMaximisation(Method):
    """Cross entropy of what is observed, and for the rest the entropy of the prediction as a gain.

    State, with APL only: `pseudo_label` is the latest prediction until `assigned` is 1, and from
    then on the soft label of that entry for good; float32 (B, L) each.

    Attributes:
        entropy_weight: a, of the entropy; 0.2 on VOC, 0.1 on COCO and NUS-WIDE, 0.01 on CUB.
        apl_weight: b, of a pseudo label's cross entropy; 0: EM alone. Published: 0.02 on VOC,
            0.9 on COCO, 0.2 on NUS-WIDE, 0.4 on CUB.
        apl_warmup: Epochs before the first pseudo labels; 5, 5, 4 and 3 there.
        apl_share: Of a label's unobserved entries, how many have a pseudo label in the end.
    """

    entropy_weight: Annotated[float, Field(ge=0)]
    apl_weight: Annotated[float, Field(ge=0)]
    apl_warmup: Annotated[int, Field(ge=1)]
    apl_share: Annotated[float, Field(ge=0, le=1)]

    @property
    def of_one_training(self) -> frozenset[str]:
        """All of it: pseudo labels are assigned in rounds, which begin again."""
        return frozenset({"pseudo_label", "assigned"})

    def initial_state(self, targets: Tensor, observed: Tensor) -> State:
        """Nothing predicted and nothing assigned."""
        if not self.apl_weight:
            return {}
        none = torch.zeros_like(targets, dtype=torch.float32)
        return {"pseudo_label": none + 0.5, "assigned": none}

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        known = observed_cross_entropy(batch.logits, batch.targets, batch.observed)
        # The cross entropy of p with itself; the gradient at a logit z is p (1 - p) (-z).
        entropy = cross_entropy(batch.logits, torch.sigmoid(batch.logits.float()))
        unobserved = -self.entropy_weight * entropy
        if self.apl_weight:
            pull = self.apl_weight * cross_entropy(batch.logits, batch.labels["pseudo_label"])
            unobserved = torch.where(batch.labels["assigned"] > 0, pull, unobserved)
        return torch.where(batch.observed, known, unobserved).mean()

    @torch.no_grad()
    def update(self, batch: Batch, context: Context) -> State:
        """Remember the predictions where no pseudo label is assigned."""
        if not self.apl_weight:
            return batch.labels
        assigned, probs = batch.labels["assigned"], torch.sigmoid(batch.logits.float())
        pseudo_label = torch.where(assigned > 0, batch.labels["pseudo_label"], probs)
        return {"pseudo_label": pseudo_label, "assigned": assigned}

    def end_epoch(
        self, targets: Tensor, observed: Tensor, labels: State, context: Context
    ) -> State:
        """Assign the next pseudo labels: of each label, the entries that are predicted lowest.

        The first are assigned after epoch `apl_warmup`, the last before the last epoch begins.
        """
        rounds = context.epochs - self.apl_warmup
        if not self.apl_weight or not self.apl_warmup <= context.epoch + 1 < context.epochs:
            return labels
        unobserved = ~observed
        quota = (self.apl_share * unobserved.sum(dim=0).double() / rounds).floor()
        free = unobserved & (labels["assigned"] == 0)
        order = torch.where(free, labels["pseudo_label"], torch.inf).argsort(dim=0, stable=True)
        rank = order.argsort(dim=0)
        return {**labels, "assigned": labels["assigned"] + (free & (rank < quota))}


METHOD = EntropyMaximisation
