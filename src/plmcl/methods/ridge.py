"""A linear head in closed form: ridge-regularised discriminants, and a second look at the data.

Ours. For each label, the direction that separates the mean of what shows it from the mean of the
rest, under one covariance of all images: Fisher's linear discriminant (1936) with a ridge
(Friedman 1989). Nothing is known of most images, yet all of them shape the covariance.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import (
    Batch,
    Context,
    Head,
    Method,
    expected_positive_penalty,
    observed_cross_entropy,
)

# Of the images that the second round takes for positives of a label: a handful, and not all.
FEWEST, LARGEST_SHARE = 5, 0.8
# A deviation of scores below this, times the lengths of weights and features, is rounding.
SMALLEST_DEVIATION = 1e-6


class Ridge(Method):
    """Solves the head for every candidate; the best on validation is kept.

    Fine-tuning, where it follows, is by EPR's loss.

    Attributes:
        penalties: Candidates of lambda, in units of the covariance's mean diagonal. The larger,
            the more the head is the plain difference of means.
        rounds: Candidates of the number of rounds, 1 or 2. The second round adds to the observed
            positives of a label the images that score highest by the first, as many as k says.
        regulariser_weight: Of R_k, in fine-tuning.
    """

    penalties: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
    rounds: Annotated[tuple[Annotated[int, Field(ge=1, le=2)], ...], Field(min_length=1)]
    regulariser_weight: Annotated[float, Field(ge=0)]

    @property
    def solves(self) -> bool:
        """True."""
        return True

    @torch.no_grad()
    def solve(
        self, features: Tensor, parts: Sequence[int], batch: Batch, positives_per_image: float
    ) -> Iterator[Head]:
        """One candidate for each part of the features, each penalty and each number of rounds."""
        positive = batch.observed & (batch.targets == 1)
        negative = batch.observed & (batch.targets == 0)
        expected = expected_positives(positive, positives_per_image)
        starts = [sum(parts[:number]) for number in range(len(parts))]
        for number, (start, width) in enumerate(zip(starts, parts, strict=True), start=1):
            part = features[:, start : start + width].double()
            space = Space(part - part.mean(dim=0))
            for penalty in self.penalties:
                weight = space.discriminants(positive, positive, penalty)
                for done in range(1, max(self.rounds) + 1):
                    if done == 2:
                        found = highest(space.images @ weight, expected, negative)
                        weight = space.discriminants(positive, found, penalty)
                    if done in self.rounds:
                        name = f"part {number}, penalty {penalty:g}, {done} rounds"
                        yield _head(features, start, part, weight, positive, expected, name)

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """EPR's, for fine-tuning."""
        known = observed_cross_entropy(batch.logits, batch.targets, batch.observed).mean()
        penalty = expected_positive_penalty(batch.logits, context)
        return known + self.regulariser_weight * penalty


class Space:
    """Centred features, ready to be solved for any penalty.

    Args:
        images: (N, D), float64, of mean 0.
    """

    def __init__(self, images: Tensor) -> None:
        self.images = images
        # The smaller of the two matrices whose eigenvalues are the covariance's.
        self.dual = images.shape[0] <= images.shape[1]
        gram = images @ images.T if self.dual else images.T @ images
        mean_diagonal = gram.trace() / images.shape[1]
        values, self.vectors = torch.linalg.eigh(gram / mean_diagonal.clamp_min(1e-300))
        self.values = values.clamp_min(0)

    def discriminants(self, positive: Tensor, second: Tensor, penalty: float) -> Tensor:
        """(C + lambda I)^-1 (mean of what shows a label - mean of the rest): (D, L).

        C is the covariance over its mean diagonal. A label of which nothing is known gets 0.

        Args:
            positive: (N, L) bool, what shows each label.
            second: (N, L) bool, a second such set: the mean is between those of the two.
            penalty: lambda.
        """
        shares = (_uniform(positive) + _uniform(second)) / 2 - _uniform(~positive)
        shares = torch.where(positive.any(dim=0), shares, 0.0)
        if self.dual:
            inner = self.vectors.T @ shares / (self.values + penalty)[:, None]
            weight: Tensor = self.images.T @ (self.vectors @ inner)
        else:
            inner = self.vectors.T @ (self.images.T @ shares) / (self.values + penalty)[:, None]
            weight = self.vectors @ inner
        return weight


def expected_positives(positive: Tensor, positives_per_image: float) -> Tensor:
    """How many of the N images show each label: k N shared out as the observed positives are.

    Args:
        positive: (N, L) bool, the observed ones; one more is assumed of each label.
        positives_per_image: k.

    Returns:
        (L,) int64, at least `FEWEST` and at most `LARGEST_SHARE` of N, but never fewer than are
        observed.
    """
    num_images = len(positive)
    counts = positive.sum(dim=0).double() + 1
    expected = (positives_per_image * num_images * counts / counts.sum()).round()
    largest = max(1, int(LARGEST_SHARE * num_images))
    expected = expected.clamp(min=min(FEWEST, largest), max=largest)
    return torch.maximum(expected, positive.sum(dim=0)).long()


def highest(scores: Tensor, expected: Tensor, negative: Tensor) -> Tensor:
    """The images that score highest, as many as expected, of those not known to be negative.

    Args:
        scores: (N, L).
        expected: (L,).
        negative: (N, L) bool.

    Returns:
        (N, L) bool.
    """
    possible = scores.masked_fill(negative, -torch.inf)
    place = possible.argsort(dim=0, descending=True, stable=True).argsort(dim=0, stable=True)
    return (place < expected) & ~negative


def _head(
    features: Tensor,
    start: int,
    part: Tensor,
    weight: Tensor,
    positive: Tensor,
    expected: Tensor,
    name: str,
) -> Head:
    """The discriminants as logits: a scale and a bias for each label, which change no ranking.

    The scale is that of two normal distributions of one variance, (mean of the positives - mean
    of all) / variance; with the bias, the mean probability is the expected share of the images.
    """
    center = part.mean(dim=0)
    scores = (part - center) @ weight
    apart = (_uniform(positive) * scores).sum(dim=0)
    variance = scores.var(dim=0, correction=0)
    length = weight.norm(dim=0) * part.norm(dim=1).mean()
    known = variance.sqrt() > SMALLEST_DEVIATION * length
    scale = torch.where(known, apart.clamp_min(0) / variance.clamp_min(1e-300), 0.0)
    bias = _bias(scale * scores, expected / len(scores))
    full = features.new_zeros(weight.shape[1], features.shape[1])
    full[:, start : start + part.shape[1]] = (scale * weight).T.to(full.dtype)
    shifted = bias - center @ (scale * weight)
    return Head(full, shifted.to(full.dtype), name)


def _bias(logits: Tensor, shares: Tensor) -> Tensor:
    """What to add to logits (N, L) so that the mean probability of a label is its share (L,)."""
    low, high = torch.full_like(shares, -1e3), torch.full_like(shares, 1e3)
    for _ in range(60):  # of 2000, to the last digit
        middle = (low + high) / 2
        above = torch.sigmoid(logits + middle).mean(dim=0) > shares
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return (low + high) / 2


def _uniform(chosen: Tensor) -> Tensor:
    """(N, L) bool as weights of each column that sum to 1; 0 where nothing is chosen."""
    weights = chosen.double()
    return weights / weights.sum(dim=0).clamp_min(1)


METHOD = Ridge
