"""The contract between a method and the loop, and the pieces that several losses share.

A method is not the model: it maps (logits, targets, observed, labels) to a loss, and may keep
state for each training image. It knows neither ranks, files, MLflow nor DVC.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from plmcl.params import Section

# Rows of a method's per-image state: one (B, L) float tensor for each name.
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Schedule:
    """Where training stands, over all of its phases.

    Attributes:
        epoch: Epochs done, from 0.
        epochs: Epochs of all phases together.
    """

    epoch: int
    epochs: int

    @property
    def phi(self) -> float:
        """Share of training done, in [0, 1): phi_t of the paper, 0 in the first epoch."""
        return self.epoch / self.epochs


class Method(Section, ABC):
    """A training method; its fields are its section of params.yaml.

    Every argument named below has shape (B, L): `logits` in any float precision, `targets` float
    in {0, 1} and meaningful only where `observed` (bool) is true.
    """

    @property
    def needs_negatives(self) -> bool:
        """Whether training without any observed negative is meaningless for this method."""
        return False

    def initial_state(self, targets: Tensor, observed: Tensor) -> State:
        """State of images that the method has not seen; empty for a method that keeps none."""
        return {}

    @abstractmethod
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
        """Scalar loss in fp32: a mean over B*L entries, plus regularisers.

        Args:
            logits: Of the network, before the sigmoid.
            targets: Known labels.
            observed: Where `targets` is known.
            labels: The state of these images *before* `update`.
            schedule: Where training stands.
            positives_per_image: k, the expected number of positive labels of an image.
        """

    def update(self, logits: Tensor, targets: Tensor, observed: Tensor, labels: State) -> State:
        """The next state of the images just seen; `logits` carry no gradient."""
        return labels


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Entry-wise -t log p - (1-t) log(1-p) with p = sigmoid(logits), in fp32 and finite.

    Args:
        logits: (B, L), any float precision.
        targets: (B, L) in [0, 1].
    """
    return functional.binary_cross_entropy_with_logits(
        logits.float(), targets.float(), reduction="none"
    )


def observed_cross_entropy(logits: Tensor, targets: Tensor, observed: Tensor) -> Tensor:
    """`cross_entropy` where observed; elsewhere 0, with no gradient, whatever `targets` holds.

    Args:
        logits: (B, L), any float precision.
        targets: (B, L) in [0, 1] where observed.
        observed: (B, L) bool.
    """
    # Both: a NaN target behind one `where` alone would still reach the gradient as 0 * NaN.
    known = torch.where(observed, targets.float(), 0.0)
    return torch.where(observed, cross_entropy(logits, known), 0.0)


def smooth(targets: Tensor, smoothing: float) -> Tensor:
    """Label smoothing as Cole et al. code it: 1 becomes 1 - e, 0 becomes e; (B, L)."""
    return targets * (1 - 2 * smoothing) + smoothing


def expected_positive_penalty(logits: Tensor, positives_per_image: float) -> Tensor:
    """R_k of Cole et al.: ((batch mean of the expected count - k) / L)^2, scalar, fp32.

    Args:
        logits: (B, L); every image of the batch counts, labeled or not.
        positives_per_image: k.
    """
    probs = torch.sigmoid(logits.float())
    return ((probs.sum(dim=1).mean() - positives_per_image) / logits.shape[1]) ** 2
