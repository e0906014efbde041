"""PLMCL: pseudo labels that move by momentum, and a loss that trusts them by degrees.

arXiv 2208.09999. Equations are cited by their number there; where its text can be read in two
ways, a switch holds both and the default is the reading that the rest of the text supports.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import (
    Method,
    Schedule,
    State,
    cross_entropy,
    expected_positive_penalty,
    observed_cross_entropy,
)

Order = Literal["prediction_as_target", "pseudo_label_as_target"]

# logit(0.995): Cole et al.'s finite stand-in for an observed label. Nothing reads it but the eye.
OBSERVED_LATENT = math.log(0.995 / 0.005)


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
        regulariser_weight: Of R_k, which eq. 6 calls "the regularizer" of Cole et al.
        cs_order: Which argument of L_cs (eq. 1) is the fixed target. The prediction, as the paper
            defines L: pseudo labels approach it. The pseudo label: they run to 0 or 1 instead.
        cs_mean: Whether the pseudo labels' gradient keeps eq. 1's literal 1/L, which makes the
            step depend on the number of labels.
        unobserved_order: Which argument of L_unobs (eq. 7) is the fixed target. The pseudo label,
            as the text describes; or the prediction, as the formula is printed.
    """

    alpha: Annotated[float, Field(ge=0)]
    momentum: Annotated[float, Field(ge=0, lt=1)]
    sharpness: Annotated[float, Field(ge=0)]
    order: Annotated[float, Field(gt=0)]
    unobserved_weight: Annotated[float, Field(ge=0)]
    regulariser_weight: Annotated[float, Field(ge=0)]
    cs_order: Order
    cs_mean: bool
    unobserved_order: Order

    def initial_state(self, targets: Tensor, observed: Tensor) -> State:
        """Undecided (0.5) and at rest; observed entries at 0.995 or 0.005."""
        latent = torch.where(observed, (2 * targets.float() - 1) * OBSERVED_LATENT, 0.0)
        return {"latent": latent, "velocity": torch.zeros_like(latent)}

    def loss(
        self,
        logits: Tensor,
        targets: Tensor,
        observed: Tensor,
        labels: State,
        *,
        schedule: Schedule,
        positives_per_image: float,
    ) -> Tensor:
        """Eq. 6 with the pseudo labels from before `update`, as in Algorithm 1."""
        latent = labels["latent"].float()
        pseudo_labels = torch.sigmoid(latent)
        if self.unobserved_order == "pseudo_label_as_target":
            unobserved = cross_entropy(logits, pseudo_labels)
        else:
            unobserved = cross_entropy(latent, torch.sigmoid(logits.float()))
        weight = curriculum_weight(
            pseudo_labels, schedule.phi, unobserved_weight=self.unobserved_weight
        )
        known = observed_cross_entropy(logits, targets, observed)
        entries = torch.where(observed, known, weight * unobserved)
        penalty = expected_positive_penalty(logits, positives_per_image)
        return entries.mean() + self.regulariser_weight * penalty

    @torch.no_grad()
    def update(self, logits: Tensor, targets: Tensor, observed: Tensor, labels: State) -> State:
        """Eqs. 2 and 4: one step of the unobserved pseudo labels; observed ones stand still."""
        latent = labels["latent"].float()
        pseudo_labels = torch.sigmoid(latent)
        if self.cs_order == "prediction_as_target":
            gradient = pseudo_labels - torch.sigmoid(logits.float())
        else:
            # The logit of the prediction is the network's own output: exact and finite.
            gradient = -pseudo_labels * (1 - pseudo_labels) * logits.float()
        if self.cs_mean:
            gradient = gradient / logits.shape[1]
        velocity = self.momentum * labels["velocity"].float() + (1 - self.momentum) * gradient
        factor = self_guided_factor(
            pseudo_labels, alpha=self.alpha, sharpness=self.sharpness, order=self.order
        )
        # Also for an entry that was unobserved at the last visit and has been labeled since.
        frozen = self.initial_state(targets, observed)
        return {
            "latent": torch.where(observed, frozen["latent"], latent - factor * velocity),
            "velocity": torch.where(observed, frozen["velocity"], velocity),
        }


METHOD = Plmcl
