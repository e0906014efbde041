"""PLMCL: pseudo labels that move by momentum, and a loss that trusts them by degrees.

arXiv 2208.09999. Equations are cited by their number there; where its text can be read in two
ways, a switch holds both and the default is the reading that the rest of the text supports.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import (
    OBSERVED_LATENT,
    Batch,
    Context,
    Method,
    State,
    cross_entropy,
    expected_positive_penalty,
    observed_cross_entropy,
    observed_latent,
)

Order = Literal["prediction_as_target", "pseudo_label_as_target"]


def self_guided_factor(
    pseudo_labels: Tensor, *, alpha: float, sharpness: float, order: float
) -> Tensor:
    """Psi, eq. 3: alpha * exp(-lambda * |2 y - 1|^n); a confident pseudo label moves less.

    Args:
        pseudo_labels: Any shape, in [0, 1].
        alpha: The factor at 0.5.
        sharpness: lambda.
        order: n.
    """
    confidence = (2 * pseudo_labels - 1).abs()
    return alpha * torch.exp(-sharpness * confidence**order)


def curriculum_weight(pseudo_labels: Tensor, phi: float, *, unobserved_weight: float) -> Tensor:
    """Xi, eq. 8: beta_2 * (1 - g e^(-10 c)) / (1 + g e^(-10 c)), c = |2 y - 1|, g = 1 - phi.

    0 for an undecided pseudo label at the start, beta_2 for every one at the end. For g > 0 it
    equals beta_2 * tanh(5 c - ln(g) / 2).

    Args:
        pseudo_labels: Any shape, in [0, 1].
        phi: Share of training done, in [0, 1].
        unobserved_weight: beta_2.
    """
    confidence = (2 * pseudo_labels - 1).abs()
    decay = (1 - phi) * torch.exp(-10 * confidence)
    return unobserved_weight * (1 - decay) / (1 + decay)


class Plmcl(Method):
    """The method; state of an image: `latent` y_u and `velocity` m, float32 (B, L) each.

    The pseudo label is sigmoid(latent). Observed entries are frozen: they enter the loss by their
    own label and their pseudo label is never used.

    Attributes:
        alpha: Step of an undecided pseudo label, in logits for a gradient of 1 (`cs_mean: false`).
            0 freezes the pseudo labels where they are.
        momentum: beta_1, eq. 2.
        sharpness: lambda, eq. 3.
        order: n, eq. 3.
        unobserved_weight: beta_2, eq. 8.
        curriculum: Whether xi weighs unobserved entries (eq. 8); else beta_2 does, always.
        regulariser_weight: Of R_k, which eq. 6 calls "the regularizer" of Cole et al.
        cs_order: Which argument of L_cs (eq. 1) is the fixed target. The prediction, as the paper
            defines L: pseudo labels approach it. The pseudo label: they run to 0 or 1 instead.
        cs_mean: Whether the pseudo labels' gradient keeps eq. 1's literal 1/L, which makes the
            step depend on the number of labels.
        warm_up: Ours, 0 in the paper: epochs without pseudo labels, on L_obs alone, which is EPR's
            loss. The paper's pseudo labels begin at 0.5 and follow a network that has seen nothing,
            for much of a short training.
        from_predictions: Ours, false in the paper: whether pseudo labels start at the first
            prediction after the warm-up, and not at 0.5.
        bias_correction: Ours, false in the paper: whether the momentum is divided by
            1 - beta_1^t at its t-th step, as Adam's is; else it counts for 1 - beta_1 at the first.
        unobserved_order: Which argument of L_unobs (eq. 7) is the fixed target. The pseudo label,
            as the text describes; or the prediction, as the formula is printed.
    """

    alpha: Annotated[float, Field(ge=0)]
    momentum: Annotated[float, Field(ge=0, lt=1)]
    sharpness: Annotated[float, Field(ge=0)]
    order: Annotated[float, Field(gt=0)]
    unobserved_weight: Annotated[float, Field(ge=0)]
    curriculum: bool
    regulariser_weight: Annotated[float, Field(ge=0)]
    cs_order: Order
    cs_mean: bool
    unobserved_order: Order
    warm_up: Annotated[int, Field(ge=0)]
    from_predictions: bool
    bias_correction: bool

    @property
    def of_one_training(self) -> frozenset[str]:
        """The velocity, where its correction counts the steps that it has gone through."""
        return frozenset({"velocity"} if self.bias_correction else ())

    def initial_state(self, targets: Tensor, observed: Tensor) -> State:
        """Undecided (0.5) and at rest; observed entries at 0.995 or 0.005."""
        latent = observed_latent(targets, observed, 0.0)
        return {"latent": latent, "velocity": torch.zeros_like(latent)}

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """Eq. 6 with the pseudo labels from before `update`, as in Algorithm 1."""
        latent = batch.labels["latent"].float()
        pseudo_labels = torch.sigmoid(latent)
        if self.unobserved_order == "pseudo_label_as_target":
            unobserved = cross_entropy(batch.logits, pseudo_labels)
        else:
            unobserved = cross_entropy(latent, torch.sigmoid(batch.logits.float()))
        weight = self.pseudo_label_weight(pseudo_labels, context)
        known = observed_cross_entropy(batch.logits, batch.targets, batch.observed)
        entries = torch.where(batch.observed, known, weight * unobserved)
        penalty = expected_positive_penalty(batch.logits, context)
        return entries.mean() + self.regulariser_weight * penalty

    def pseudo_label_weight(self, pseudo_labels: Tensor, context: Context) -> Tensor:
        """Xi, or beta_2 without a curriculum; 0 in the warm-up."""
        if context.epoch < self.warm_up:
            return torch.zeros_like(pseudo_labels)
        if not self.curriculum:
            return torch.full_like(pseudo_labels, self.unobserved_weight)
        return curriculum_weight(
            pseudo_labels, context.phi, unobserved_weight=self.unobserved_weight
        )

    @torch.no_grad()
    def update(self, batch: Batch, context: Context) -> State:
        """Eqs. 2 and 4: one step of the unobserved pseudo labels; observed ones stand still."""
        if context.epoch < self.warm_up:
            return batch.labels
        latent = batch.labels["latent"].float()
        pseudo_labels = torch.sigmoid(latent)
        if self.cs_order == "prediction_as_target":
            gradient = pseudo_labels - torch.sigmoid(batch.logits.float())
        else:
            # The logit of the prediction is the network's own output: exact and finite.
            gradient = -pseudo_labels * (1 - pseudo_labels) * batch.logits.float()
        if self.cs_mean:
            gradient = gradient / latent.shape[1]
        velocity = self.momentum * batch.labels["velocity"].float() + (1 - self.momentum) * gradient
        step = velocity
        if self.bias_correction:
            steps = context.epoch - self.warm_up + (0 if self.from_predictions else 1)
            step = velocity / (1 - self.momentum ** max(1, steps))
        factor = self_guided_factor(
            pseudo_labels, alpha=self.alpha, sharpness=self.sharpness, order=self.order
        )
        moved = {"latent": latent - factor * step, "velocity": velocity}
        if self.from_predictions:
            # Undecided and at rest: also of an image that arrived later, or after a return to
            # weights from before the end of the warm-up.
            fresh = (latent == 0) & (batch.labels["velocity"] == 0)
            start = batch.logits.float().clamp(-OBSERVED_LATENT, OBSERVED_LATENT)
            moved["latent"] = torch.where(fresh, start, moved["latent"])
            moved["velocity"] = torch.where(fresh, 0.0, moved["velocity"])
        # Also for an entry that was unobserved at the last visit and has been labeled since.
        frozen = self.initial_state(batch.targets, batch.observed)
        return {
            name: torch.where(batch.observed, frozen[name], values)
            for name, values in moved.items()
        }


METHOD = Plmcl
