"""What a model's probabilities are worth: average precision on known cells, and ranks.

Arrays are (N, L): images by labels. `targets` in {0, 1} count only where `observed` (bool) is
true; `probs` are probabilities, never logits (nothing here guesses) and never decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plmcl.errors import PlmclError
from plmcl.ranking import Bools, Ints, Ranking, blocks, check_cells

if TYPE_CHECKING:
    from torch import Tensor, nn

Floats = NDArray[np.float64]

# The name under which AP figures are reported; interpolated and 11-point AP are other numbers.
AP_FLAVOUR = "step-wise, ties grouped, known cells, macro mean"


@dataclass(frozen=True)
class Evaluation:
    """The figures of one split.

    Attributes:
        average_precision: (L,), NaN where a label has no known positive or no known negative.
        positives: (L,) known positives.
        negatives: (L,) known negatives.
        unknown: (L,) cells that nobody looked at.
        metrics: Flat figures as fractions; None where a figure is not defined.
    """

    average_precision: Floats
    positives: Ints
    negatives: Ints
    unknown: Ints
    metrics: dict[str, float | int | None]


def average_precision(targets: NDArray[Any], observed: Bools, probs: NDArray[Any]) -> Floats:
    """Step-wise average precision of each label over its known cells.

    AP = sum over distinct scores of (R_n - R_(n-1)) * P_n: not interpolated, tied scores are one
    step, so the order of the rows does not matter. It equals scikit-learn's.

    Args:
        targets: (N, L) in {0, 1}.
        observed: (N, L) bool.
        probs: (N, L) in [0, 1].

    Returns:
        (L,), NaN where a label has no known positive or no known negative.

    Raises:
        PlmclError: A shape, type or value breaks the rules of this module's arrays.
    """
    check_cells(targets, observed, probs)
    positive = observed & (targets == 1)
    result = np.zeros(probs.shape[1])
    for block in blocks(*probs.T.shape):
        ranking = Ranking(probs.T[block], positive.T[block], observed.T[block])
        precision = ranking.hits / ranking.rank
        total = np.maximum(ranking.hits[:, -1], 1)
        result[block] = (ranking.gains() * precision).sum(axis=1) / total
    positives = positive.sum(axis=0)
    known = observed.sum(axis=0)
    return np.where((positives > 0) & (positives < known), result, np.nan)


def evaluate(targets: NDArray[Any], observed: Bools, probs: NDArray[Any]) -> Evaluation:
    """All figures of a split.

    `mAP` averages over the labels that have an AP. `mAP_empty_as_zero` also counts a label
    without a known positive, as 0, like the reference code. `mAP_unknown_as_negative` is the
    mAP when every unknown cell is taken for a negative. `mean_reciprocal_rank` is over the known
    positive cells, each ranked among all L scores of its image, ties at their middle rank.

    Args:
        targets: (N, L) in {0, 1}.
        observed: (N, L) bool.
        probs: (N, L) in [0, 1].

    Raises:
        PlmclError: As `average_precision`.
    """
    per_label = average_precision(targets, observed, probs)
    positive = observed & (targets == 1)
    positives = positive.sum(axis=0)
    known = observed.sum(axis=0)
    closed = (
        per_label if observed.all() else average_precision(positive, np.ones_like(observed), probs)
    )
    has_ap = ~np.isnan(per_label)
    empty_as_zero = np.where(positives == 0, 0.0, per_label)
    metrics: dict[str, float | int | None] = {
        "mAP": _mean(per_label),
        "mAP_empty_as_zero": _mean(empty_as_zero) if has_ap.any() else None,
        "mAP_unknown_as_negative": _mean(closed),
        "labels": len(per_label),
        "labels_averaged": int(has_ap.sum()),
        "labels_without_positives": int((positives == 0).sum()),
        "labels_without_negatives": int((positives == known).sum()),
        "images_scored": len(probs),
        "images_known": int(observed.any(axis=1).sum()),
        "mean_reciprocal_rank": _mean_reciprocal_rank(positive, probs),
        "known_cells": int(known.sum()),
    }
    return Evaluation(
        average_precision=per_label,
        positives=positives,
        negatives=known - positives,
        unknown=len(probs) - known,
        metrics=metrics,
    )


def difficult_both_ways(
    targets: NDArray[Any], observed: Bools, difficult: Bools, probs: NDArray[Any]
) -> dict[str, float | None]:
    """MAP with the difficult cells as negatives, as published, and without them.

    Args:
        targets: (N, L) in {0, 1}; 0 where `difficult`.
        observed: (N, L) bool.
        difficult: (N, L) bool: cells with difficult instances only.
        probs: (N, L) in [0, 1].
    """
    negative = average_precision(targets, observed | difficult, probs)
    ignored = average_precision(targets, observed & ~difficult, probs)
    return {
        "mAP_difficult_negative": _mean(negative),
        "mAP_difficult_ignored": _mean(ignored),
    }


def selection_score(evaluation: Evaluation) -> tuple[str, float]:
    """The figure that the best epoch is chosen by, and its name.

    mAP; where no label has one (every known cell is positive), the mean reciprocal rank, because
    the AP of positives alone is 1 for any model.

    Raises:
        PlmclError: The split has no known positive at all.
    """
    for name in ("mAP", "mean_reciprocal_rank"):
        value = evaluation.metrics[name]
        if value is not None:
            return name, float(value)
    raise PlmclError(
        f"no known positive label on the {evaluation.metrics['images_scored']} images that the "
        "best epoch is chosen on: give some of them labels"
    )


def predict(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_images: int
) -> NDArray[np.float32]:
    """Probabilities of `num_images` images; the arguments and the rest are `predict_logits`'s."""
    return _predict(model, batches, num_images, lambda logits: logits.sigmoid())


def predict_logits(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_images: int
) -> NDArray[np.float32]:
    """Logits of `num_images` images: evaluation mode, fp32, no autocast.

    Args:
        model: Maps inputs to logits (B, L). The bare module: an engine's wrapper may bring an
            autocast of its own. Its modules' modes are as before afterwards.
        batches: (rows, inputs): (B,) int64 positions in the result and what the model takes, on
            its device.
        num_images: N.

    Returns:
        (N, L).

    Raises:
        PlmclError: A row came twice, never, or is outside [0, N); or an output is not finite.
    """
    return _predict(model, batches, num_images, lambda logits: logits)


def _predict(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    num_images: int,
    finish: Callable[[Tensor], Tensor],
) -> NDArray[np.float32]:
    import torch  # here alone: what only compares figures needs no torch

    visits = np.zeros(num_images, dtype=np.int64)
    outputs = np.zeros((num_images, 0), dtype=np.float32)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for batch_rows, inputs in batches:
            rows = batch_rows.cpu().numpy()
            outside = rows[(rows < 0) | (rows >= num_images)]
            if len(outside):
                raise PlmclError(f"predict: row {outside[0]} is outside 0..{num_images - 1}")
            with (
                torch.inference_mode(),
                torch.autocast(inputs.device.type, enabled=False),
                _strict_fp32(),
            ):
                logits = model(inputs)
            finite = logits.isfinite().all(dim=1).cpu().numpy()
            if not finite.all():
                raise PlmclError(
                    f"predict: the model's output for row {rows[~finite][0]} is not finite"
                )
            np.add.at(visits, rows, 1)
            if not outputs.size:
                outputs = np.zeros((num_images, logits.shape[1]), dtype=np.float32)
            outputs[rows] = finish(logits.float()).cpu().numpy()
    finally:
        for module, training in modes:
            module.training = training
    wrong = np.flatnonzero(visits != 1)
    if len(wrong):
        raise PlmclError(
            f"predict: each of the {num_images} rows must come exactly once; {len(wrong)} did not, "
            f"row {wrong[0]} came {visits[wrong[0]]} times"
        )
    return outputs


@contextmanager
def _strict_fp32() -> Iterator[None]:
    """Convolutions in fp32 and not in TF32, cuDNN's default: the served model has no TF32."""
    import torch

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _mean_reciprocal_rank(positive: Bools, probs: NDArray[Any]) -> float | None:
    if not positive.any():
        return None
    total = 0.0
    for block in blocks(*probs.shape):
        ranking = Ranking(probs[block], positive[block], np.ones_like(positive[block]))
        middle = (ranking.before(ranking.rank) + 1 + ranking.rank) / 2
        total += float((ranking.gains() / middle).sum())
    return total / int(positive.sum())


def _mean(values: Floats) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None
