import math

import pytest
import torch
from torch.nn import functional

from plmcl.methods.base import Batch, Context
from plmcl.methods.bce import BinaryCrossEntropy

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
TARGETS = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
OBSERVED = [[True, True, False], [False, True, True]]


def loss(logits, targets, observed, smoothing: float) -> torch.Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return BinaryCrossEntropy(smoothing=smoothing).loss(batch, Context(0, 1, 0, 1e-3, 1.0))


def oracle(logits: list[list[float]], smoothing: float) -> float:
    total = 0.0
    for i in range(2):
        for j in range(3):
            if OBSERVED[i][j]:
                target = 1 - smoothing if TARGETS[i][j] == 1 else smoothing
                prob = 1 / (1 + math.exp(-logits[i][j]))
                total += -target * math.log(prob) - (1 - target) * math.log(1 - prob)
    return total / 6


def test_a_hand_worked_table() -> None:
    # p:   [1/2  3/4  1/4]   observed: [1 . .]   -log: [ln 2  .      .    ]
    #      [3/4  1/2  1/2]             [0 . 0]         [ln 4  .      ln 2 ]   sum / 6 = 4 ln 2 / 6
    log3 = math.log(3)
    value = loss(
        [[0, log3, -log3], [log3, 0, 0]],
        [[1.0, 0, 0], [0, 0, 0]],
        [[True, False, False], [True, False, True]],
        0.0,
    )
    assert float(value) == pytest.approx(4 * math.log(2) / 6, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_double_loop_over_observed_entries(smoothing: float) -> None:
    assert float(loss(LOGITS, TARGETS, OBSERVED, smoothing)) == pytest.approx(
        oracle(LOGITS, smoothing), rel=1e-6
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_is_that_of_finite_differences_and_0_where_not_observed(
    smoothing: float, numeric_gradient
) -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss(logits, TARGETS, OBSERVED, smoothing).backward()
    assert logits.grad is not None
    expected = torch.tensor(numeric_gradient(lambda table: oracle(table, smoothing), LOGITS))
    torch.testing.assert_close(logits.grad, expected, atol=1e-6, rtol=0)
    assert (logits.grad[~torch.tensor(OBSERVED)] == 0).all()


def test_at_100_percent_known_it_is_torchs_own_bce() -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    assert loss(logits, targets, everything, 0.0) == functional.binary_cross_entropy_with_logits(
        logits, targets
    )


def test_smoothing_has_its_minimum_at_the_smoothed_target() -> None:
    """BCE-LS: targets .9 and .1, so the gradient vanishes at p = .9 and .1."""
    logits = torch.tensor([[math.log(9), -math.log(9)]], requires_grad=True)
    loss(logits, [[1.0, 0.0]], [[True, True]], 0.1).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [pytest.approx([0, 0], abs=1e-7)]


def test_it_says_that_it_needs_observed_negatives() -> None:
    assert BinaryCrossEntropy(smoothing=0.0).needs_negatives
