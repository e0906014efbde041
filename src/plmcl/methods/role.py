"""ROLE of Cole et al.: the labels of the training images are estimated together with the network.

arXiv 2106.09708, as its code has it. The estimates q = sigmoid(theta) are one dense (N, L)
parameter of Adam there, so a row moves in every step, by its moments alone where its image is not
in the batch. Here a row makes up for the steps that it missed when its image comes up again.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from plmcl.methods.base import (
    Batch,
    Context,
    Method,
    State,
    cross_entropy,
    expected_positive_penalty,
    observed_cross_entropy,
    observed_latent,
)

# Adam's constants: torch's defaults, which the reference code leaves as they are.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8

# A missed step moves a row by about 0.9 of the one before: after 200 of them, by 1e-9 of it.
COUNTED_STEPS = 200

# logit(0.6): an unobserved estimate starts between 0.4 and 0.6, uniformly in its logit.
UNDECIDED_LATENT = math.log(0.6 / 0.4)


def catch_up(rows: State, step: int, rate: float) -> dict[str, Tensor]:
    """The rows after the steps of Adam in which their gradient was 0.

    In these, m and v shrink to beta_1 m and beta_2 v. The j-th step of all moves theta by
    rate * m_j / (1 - beta_1^j) / (sqrt(v_j / (1 - beta_2^j)) + eps). Were eps 0, that would be
    m / sqrt(v) of the last visit times a number that all labels of a row share; eps counts here
    as it did at the last visit.

    Args:
        rows: As in `Role`.
        step: Steps of the optimizer done by now.
        rate: Learning rate of the estimates.
    """
    done = rows["step"]
    missed = step - done
    nth = torch.arange(1, COUNTED_STEPS + 1, device=done.device)
    shrunk = (BETA_1 / math.sqrt(BETA_2)) ** nth
    moves = shrunk * _unbias(done + nth, BETA_2).sqrt() / _unbias(done + nth, BETA_1)
    distance = torch.where(nth <= missed, moves, 0.0).sum(dim=1, keepdim=True)
    epsilon = EPSILON * _unbias(done.clamp(min=1), BETA_2).sqrt()
    direction = rows["moment"] / (rows["second_moment"].sqrt() + epsilon)
    return {
        "latent": rows["latent"] - rate * distance * direction,
        "moment": BETA_1**missed * rows["moment"],
        "second_moment": BETA_2**missed * rows["second_moment"],
        "step": torch.full_like(done, step),
    }


def adam_step(rows: State, gradient: Tensor, rate: float) -> State:
    """One step of Adam (Kingma and Ba, arXiv 1412.6980).

    Args:
        rows: As in `Role`, caught up.
        gradient: (B, L), of the loss with respect to theta.
        rate: Learning rate.
    """
    step = rows["step"] + 1
    moment = BETA_1 * rows["moment"] + (1 - BETA_1) * gradient
    second_moment = BETA_2 * rows["second_moment"] + (1 - BETA_2) * gradient**2
    scale = (second_moment / _unbias(step, BETA_2)).sqrt() + EPSILON
    latent = rows["latent"] - rate * moment / _unbias(step, BETA_1) / scale
    return {"latent": latent, "moment": moment, "second_moment": second_moment, "step": step}


class Role(Method):
    """The method; all of its state is float32.

    `latent` theta, `moment` m and `second_moment` v are (B, L), `step` (B, 1): the steps of the
    optimizer that a row has gone through.

    Attributes:
        rate_factor: Learning rate of the estimates over that of the network.
        weight: Of the cross terms, in which network and estimates are each other's fixed target.
        regulariser_weight: Of R_k, for network and estimates alike.
    """

    rate_factor: Annotated[float, Field(ge=0)]
    weight: Annotated[float, Field(ge=0)]
    regulariser_weight: Annotated[float, Field(ge=0)]

    @property
    def of_one_training(self) -> frozenset[str]:
        """Adam's."""
        return frozenset({"moment", "second_moment", "step"})

    def initial_state(self, targets: Tensor, observed: Tensor) -> State:
        """Almost undecided, by chance, and at rest; observed entries at 0.995 or 0.005."""
        chance = torch.empty_like(targets, dtype=torch.float32)
        chance.uniform_(-UNDECIDED_LATENT, UNDECIDED_LATENT)
        latent = observed_latent(targets, observed, chance)
        return {
            "latent": latent,
            "moment": torch.zeros_like(latent),
            "second_moment": torch.zeros_like(latent),
            "step": torch.zeros_like(latent[:, :1]),
        }

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`; the estimates are those from before `update`, caught up."""
        rows = catch_up(batch.labels, context.step, self.rate_factor * context.learning_rate)
        return self._objective(batch, rows["latent"], context)

    @torch.no_grad()
    def update(self, batch: Batch, context: Context) -> State:
        """One step of the estimates, down the gradient of the loss."""
        rate = self.rate_factor * context.learning_rate
        rows = catch_up(batch.labels, context.step, rate)
        with torch.enable_grad():
            latent = rows["latent"].requires_grad_()
            objective = context.share.weigh(self._objective(batch, latent, context))
        (gradient,) = torch.autograd.grad(objective, latent)
        return adam_step(rows, gradient / context.share.ranks, rate)

    def _objective(self, batch: Batch, latent: Tensor, context: Context) -> Tensor:
        def taught(learner: Tensor, teacher: Tensor) -> Tensor:
            known = observed_cross_entropy(learner, batch.targets, batch.observed)
            cross = cross_entropy(learner, torch.sigmoid(teacher.detach().float()))
            penalty = expected_positive_penalty(learner, context)
            return (known + self.weight * cross).mean() + self.regulariser_weight * penalty

        return (taught(batch.logits, latent) + taught(latent, batch.logits)) / 2


def _unbias(step: Tensor, beta: float) -> Tensor:
    # 1 - beta^step, without the digits that it loses in fp32 at the first steps.
    return -torch.expm1(step * math.log(beta))


METHOD = Role
