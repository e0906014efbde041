import math

import pytest
import torch

from plmcl.methods.an import AssumeNegative
from plmcl.methods.base import Batch, Context

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
TARGETS = [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
OBSERVED = [[True, False, False], [False, True, True]]  # 1 ? ? / ? 1 0


def loss(logits, targets, observed, smoothing: float) -> torch.Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return AssumeNegative(smoothing=smoothing).loss(batch, Context(0, 1, 0, 1e-3, 1.0))


def oracle(logits: list[list[float]], smoothing: float) -> float:
    total = 0.0
    for i in range(2):
        for j in range(3):
            positive = OBSERVED[i][j] and TARGETS[i][j] == 1
            target = 1 - smoothing if positive else smoothing
            prob = 1 / (1 + math.exp(-logits[i][j]))
            total += -target * math.log(prob) - (1 - target) * math.log(1 - prob)
    return total / 6


def test_a_hand_worked_table() -> None:
    # p: [1/2  3/4  1/4]  taken as [1 0 0]  -log: [ln 2  ln 4  ln(4/3)]
    #    [3/4  1/2  1/2]           [0 0 0]        [ln 4  ln 2  ln 2   ]
    log3 = math.log(3)
    value = loss(
        [[0, log3, -log3], [log3, 0, 0]],
        [[1.0, 1, 1], [0, 0, 0]],
        [[True, False, False], [True, False, False]],
        0.0,
    )
    expected = (7 * math.log(2) + math.log(4 / 3)) / 6
    assert float(value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_it_is_the_double_loop_with_unobserved_as_0(smoothing: float, numeric_gradient) -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(logits, TARGETS, OBSERVED, smoothing)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, smoothing), rel=1e-6)
    assert logits.grad is not None
    expected = torch.tensor(numeric_gradient(lambda table: oracle(table, smoothing), LOGITS))
    torch.testing.assert_close(logits.grad, expected, atol=1e-6, rtol=0)


def test_an_observed_negative_and_an_unobserved_label_count_alike() -> None:
    targets, observed = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    assert loss(LOGITS, targets, observed, 0.1) == loss(LOGITS, targets, ~observed, 0.1)


def test_smoothing_is_applied_to_both_sides() -> None:
    """AN-LS: target .9 for an observed positive, .1 for everything else."""
    logits = torch.tensor([[math.log(9), -math.log(9)]], requires_grad=True)
    loss(logits, [[1.0, 0.0]], [[True, False]], 0.1).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [pytest.approx([0, 0], abs=1e-7)]


def test_it_needs_no_observed_negatives() -> None:
    assert not AssumeNegative(smoothing=0.0).needs_negatives
