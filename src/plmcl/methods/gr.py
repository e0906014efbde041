"""Generalised robust loss (GR) of Chen et al. (IJCAI 2024): soft labels from the predictions.

arXiv 2405.03501, with the functions k and v of its code.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, Method, observed_cross_entropy

# The values of the first and of the last epoch; in between on a straight line.
Schedule = tuple[float, float]
Width = Annotated[float, Field(gt=0)]


def robust_loss(log_likelihood: Tensor, power: float) -> Tensor:
    """(1 - a^q) / q of a likelihood a: the cross entropy for q to 0, 1 - a for q = 1.

    Args:
        log_likelihood: log a, any shape; at most 0.
        power: q, above 0.
    """
    return -torch.expm1(power * log_likelihood) / power


class GeneralisedRobust(Method):
    """Cross entropy of what is observed; the rest partly as positives, partly as negatives.

    Attributes:
        positive_slope: w, of the probability k = sigmoid(w p + b) that an unobserved entry with
            the prediction p is a positive. Published: [0, 2] on VOC; in use: [0, 10] on COCO,
            NUS-WIDE and CUB.
        positive_bias: b; [-2, -2] and [-2, -8] there.
        weight_center: mu, the prediction at which an unobserved entry counts fully.
        weight_width: sigma, of the bell by which it counts less on either side.
        positive_power: q2, of the robust loss of a positive.
        negative_power: q3, of that of a negative; 1, on CUB 1.5.
    """

    positive_slope: Schedule
    positive_bias: Schedule
    weight_center: Schedule
    weight_width: tuple[Width, Width]
    positive_power: Annotated[float, Field(gt=0)]
    negative_power: Annotated[float, Field(gt=0)]

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        logits = batch.logits.float()
        positive, weight = self._weights(logits.detach().sigmoid(), context)
        as_positive = robust_loss(functional.logsigmoid(logits), self.positive_power)
        as_negative = robust_loss(functional.logsigmoid(-logits), self.negative_power)
        unobserved = weight * (positive * as_positive + (1 - positive) * as_negative)
        known = observed_cross_entropy(logits, batch.targets, batch.observed)
        return torch.where(batch.observed, known, unobserved).mean()

    def _weights(self, probs: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """k, the probability of a positive, and v, the weight, of predictions; (B, L) each."""
        share = context.epoch / max(context.epochs - 1, 1)
        slope, bias, center, width = (
            first + share * (last - first)
            for first, last in (
                self.positive_slope,
                self.positive_bias,
                self.weight_center,
                self.weight_width,
            )
        )
        positive = torch.sigmoid(slope * probs + bias)
        return positive, torch.exp(-(((probs - center) / width) ** 2) / 2)


METHOD = GeneralisedRobust
