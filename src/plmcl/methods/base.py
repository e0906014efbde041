"""The contract between a method and the loop, and the pieces that several losses share.

A method is not the model: it maps a batch's logits and what is known of its labels to a loss, and
may keep state for each training image. It knows neither files, MLflow nor DVC; of other processes,
that what it takes over a whole batch (a mean that is squared, an order) goes through `Share`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from plmcl.params import Section
from plmcl.share import ALONE, Share

# logit(0.995): Cole et al.'s finite stand-in for an observed label.
OBSERVED_LATENT = math.log(0.995 / 0.005)

# Rows of a method's per-image state: one float tensor (B, L), or (B, 1), for each name.
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Batch:
    """The images of one step as a method sees them; every tensor is (B, L) unless it says other.

    Attributes:
        logits: Of the network, before the sigmoid, in any float precision.
        targets: Float in {0, 1}; meaningful only where `observed`.
        observed: Bool, where `targets` is known.
        labels: The state of these images, from before this step.
        strong: Logits of a strongly augmented view of the same images, with gradient; None unless
            `Method.needs_strong_view`.
        passes: (P, B, L) logits of further passes with dropout, without gradient; None unless
            `Method.dropout_passes`.
    """

    logits: Tensor
    targets: Tensor
    observed: Tensor
    labels: State = field(default_factory=dict)
    strong: Tensor | None = None
    passes: Tensor | None = None

    @property
    def assumed(self) -> Tensor:
        """(B, L) float: what is observed, and 0 for all else: unobserved is assumed negative."""
        return torch.where(self.observed, self.targets.float(), 0.0)


@dataclass(frozen=True)
class Context:
    """What a method knows beside the batch: where training stands, over all of its phases.

    Attributes:
        epoch: Epochs done, from 0.
        epochs: Epochs of all phases together.
        step: Steps of the optimizer done, from 0.
        learning_rate: Of the network's optimizer in this phase.
        positives_per_image: k, the expected number of positive labels of an image.
        share: Which rows of the step's batch this process has, and how to see the others'.
    """

    epoch: int
    epochs: int
    step: int
    learning_rate: float
    positives_per_image: float
    share: Share = ALONE

    @property
    def phi(self) -> float:
        """Share of training done, in [0, 1): phi_t of the paper, 0 in the first epoch."""
        return self.epoch / self.epochs


@dataclass(frozen=True)
class Head:
    """A linear head in closed form.

    Attributes:
        weight: (L, D).
        bias: (L,).
        name: Which of a method's candidates it is, for people.
    """

    weight: Tensor
    bias: Tensor
    name: str


class Method(Section, ABC):
    """A training method; its fields are its section of params.yaml."""

    @property
    def needs_negatives(self) -> bool:
        """Whether training without any observed negative is meaningless for this method."""
        return False

    @property
    def needs_strong_view(self) -> bool:
        """Whether each image must also be seen strongly augmented; doubles a step's cost."""
        return False

    @property
    def dropout_passes(self) -> int:
        """How many further passes through the head, with dropout, a step needs."""
        return 0

    @property
    def dropout(self) -> float:
        """Probability that a feature is dropped before the head while training."""
        return 0.0

    def solve(
        self, features: Tensor, parts: Sequence[int], batch: Batch, positives_per_image: float
    ) -> Iterator[Head]:
        """Heads on frozen features in closed form; the best on validation is where training starts.

        A method that yields none starts from random weights, and its head learns by gradients.

        Args:
            features: (N, D), of all training images, as the head's weights meet them.
            parts: Widths of the parts that D is made of.
            batch: All N training images; its logits are empty.
            positives_per_image: k.
        """
        yield from ()

    @property
    def solves(self) -> bool:
        """Whether `solve` yields heads."""
        return False

    @property
    def of_one_training(self) -> frozenset[str]:
        """Names of the state that counts steps or rounds: the next training starts it anew."""
        return frozenset()

    def initial_state(self, targets: Tensor, observed: Tensor) -> State:
        """State of images that the method has not seen; empty for a method that keeps none.

        Args:
            targets: (N, L) as in `Batch`.
            observed: (N, L) as in `Batch`.
        """
        return {}

    @abstractmethod
    def loss(self, batch: Batch, context: Context) -> Tensor:
        """Scalar loss in fp32: a mean over B*L entries, plus regularisers.

        What is no mean over this process's entries is taken over the gathered batch: see `Share`.
        """

    def update(self, batch: Batch, context: Context) -> State:
        """The next state of the images just seen; the logits carry no gradient."""
        return batch.labels

    def pseudo_label_weight(self, pseudo_labels: Tensor, context: Context) -> Tensor | None:
        """Weight in the loss of unobserved entries with these pseudo labels; None: no such weight.

        Args:
            pseudo_labels: Any shape, in [0, 1].
            context: Of the epoch.
        """
        return None

    def end_epoch(
        self, targets: Tensor, observed: Tensor, labels: State, context: Context
    ) -> State:
        """The state of all N images after an epoch, given what `update` left.

        Args:
            targets: (N, L) as in `Batch`.
            observed: (N, L) as in `Batch`.
            labels: (N, L) each.
            context: Of the epoch that ends.
        """
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


def focal_cross_entropy(logits: Tensor, focus: float) -> Tensor:
    """Entry-wise -(1-p)^gamma log p with p = sigmoid(logits) (Lin et al., arXiv 1708.02002).

    With the negated logits it is that of an absent label. In fp32; value and gradient are finite.

    Args:
        logits: (B, L), any float precision.
        focus: gamma.
    """
    logits = logits.float()
    # log(1 - p) = -softplus(logit): the power itself has no gradient where 1 - p is 0.
    weight = torch.exp(-focus * functional.softplus(logits))
    return weight * functional.softplus(-logits)


def observed_latent(targets: Tensor, observed: Tensor, otherwise: Tensor | float) -> Tensor:
    """Logits of label estimates to begin with: +-`OBSERVED_LATENT` where observed; (B, L) fp32.

    Args:
        targets: (B, L) in {0, 1} where observed.
        observed: (B, L) bool.
        otherwise: Where not observed; (B, L), or one for all.
    """
    return torch.where(observed, (2 * targets.float() - 1) * OBSERVED_LATENT, otherwise)


def smooth(targets: Tensor, smoothing: float) -> Tensor:
    """Label smoothing as Cole et al. code it: 1 becomes 1 - e, 0 becomes e; (B, L)."""
    return targets * (1 - 2 * smoothing) + smoothing


def expected_positive_penalty(logits: Tensor, context: Context) -> Tensor:
    """R_k of Cole et al.: ((batch mean of the expected count - k) / L)^2, scalar, fp32.

    Args:
        logits: (B, L); every image of the batch counts, labeled or not, on whichever rank.
        context: Of the step.
    """
    counts = context.share.gather(torch.sigmoid(logits.float()).sum(dim=1))
    return ((counts.mean() - context.positives_per_image) / logits.shape[1]) ** 2
