import math

import pytest
import torch

from plmcl.methods.base import Batch, Context
from plmcl.methods.epr import ExpectedPositive

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
TARGETS = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
OBSERVED = [[True, True, False], [False, False, False]]  # 1 0 ? / ? ? ?


def loss(logits, targets, observed, *, weight: float, k: float) -> torch.Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return ExpectedPositive(weight=weight).loss(batch, Context(0, 1, 0, 1e-3, k))


def oracle(logits: list[list[float]], *, weight: float, k: float) -> float:
    known, count = 0.0, 0.0
    for i in range(2):
        for j in range(3):
            prob = 1 / (1 + math.exp(-logits[i][j]))
            count += prob
            if OBSERVED[i][j]:
                known += -math.log(prob if TARGETS[i][j] == 1 else 1 - prob)
    return known / 6 + weight * ((count / 2 - k) / 3) ** 2


def test_a_hand_worked_table() -> None:
    # p: [1/2  3/4  1/4]  observed [1 . .]  -log: [ln 2  .     .]   sum = 3 ln 2
    #    [3/4  1/2  1/2]           [0 . .]        [ln 4  .     .]
    # counts 3/2 and 7/4, mean 13/8; k = 1: R = (5/8 / 3)^2 = 25/576
    log3 = math.log(3)
    arguments = (
        [[0, log3, -log3], [log3, 0, 0]],
        [[1.0, 0, 0], [0, 0, 0]],
        [[True, False, False], [True, False, False]],
    )
    expected = 3 * math.log(2) / 6 + 2 * 25 / 576
    assert float(loss(*arguments, weight=2.0, k=1.0)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("weight", "k"), [(0.0, 1.0), (1.0, 1.5), (3.0, 0.2)])
def test_it_is_the_double_loop_and_its_finite_differences(
    weight: float, k: float, numeric_gradient
) -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(logits, TARGETS, OBSERVED, weight=weight, k=k)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, weight=weight, k=k), rel=1e-6)
    assert logits.grad is not None
    expected = numeric_gradient(lambda table: oracle(table, weight=weight, k=k), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


def test_unobserved_entries_feel_the_regulariser_and_nothing_else() -> None:
    unobserved = ~torch.tensor(OBSERVED)
    gradients = {}
    for weight in (0.0, 1.0):
        logits = torch.tensor(LOGITS, requires_grad=True)
        loss(logits, TARGETS, OBSERVED, weight=weight, k=1.0).backward()
        assert logits.grad is not None
        gradients[weight] = logits.grad
    assert (gradients[0.0][unobserved] == 0).all()
    # dR/dz = 2 (count - k) / (L^2 B) * p (1 - p), on every image, labeled or not.
    probs = torch.tensor(LOGITS).sigmoid()
    expected = 2 * (probs.sum(1).mean() - 1.0) / (9 * 2) * probs * (1 - probs)
    torch.testing.assert_close(gradients[1.0][unobserved], expected[unobserved])


def test_the_regulariser_vanishes_when_the_count_is_right() -> None:
    logits = torch.zeros(2, 4, requires_grad=True)
    nothing = torch.zeros(2, 4)
    value = loss(logits, nothing, nothing.bool(), weight=5.0, k=2.0)
    value.backward()
    assert float(value.detach()) == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_it_needs_no_observed_negatives() -> None:
    assert not ExpectedPositive(weight=1.0).needs_negatives
