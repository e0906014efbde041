import math

import pytest
import torch
from torch.nn import functional

from plmcl.methods.an import AssumeNegative
from plmcl.methods.base import Batch, Context
from plmcl.methods.wan import WeakAssumeNegative

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
TARGETS = [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
OBSERVED = [[True, False, False], [False, True, True]]  # 1 ? ? / ? 1 0
CONTEXT = Context(0, 1, 0, 1e-3, 1.0)


def loss(logits, targets, observed, negative_weight: float | None) -> torch.Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return WeakAssumeNegative(negative_weight=negative_weight).loss(batch, CONTEXT)


def oracle(logits: list[list[float]], weight: float) -> float:
    total = 0.0
    for i in range(2):
        for j in range(3):
            prob = 1 / (1 + math.exp(-logits[i][j]))
            if OBSERVED[i][j]:
                total += -math.log(prob if TARGETS[i][j] == 1 else 1 - prob)
            else:
                total += -weight * math.log(1 - prob)
    return total / 6


def test_a_hand_worked_table() -> None:
    # p: [1/2  3/4  1/4]  [1 ? ?]  -log: [ln 2  ln 4  ln(4/3)]
    #    [3/4  1/2  1/2]  [0 ? ?]        [ln 4  ln 2  ln 2   ]
    # Observed: 3 ln 2. The others: (4 ln 2 + ln(4/3)) / 2.
    log3 = math.log(3)
    value = loss(
        [[0, log3, -log3], [log3, 0, 0]],
        [[1.0, 0, 0], [0, 0, 0]],
        [[True, False, False], [True, False, False]],
        None,
    )
    expected = (3 * math.log(2) + (4 * math.log(2) + math.log(4 / 3)) / 2) / 6
    assert float(value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("given", "weight"), [(None, 1 / 2), (0.0, 0.0), (0.3, 0.3)])
def test_it_is_the_double_loop_and_its_finite_differences(
    given: float | None, weight: float, numeric_gradient
) -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(logits, TARGETS, OBSERVED, given)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, weight), rel=1e-6)
    assert logits.grad is not None
    expected = torch.tensor(numeric_gradient(lambda table: oracle(table, weight), LOGITS))
    torch.testing.assert_close(logits.grad, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("num_labels", "weight"), [(20, 1 / 19), (80, 1 / 79), (312, 1 / 311)])
def test_the_default_weight_is_that_of_the_published_sets(num_labels: int, weight: float) -> None:
    nothing = torch.zeros(1, num_labels)
    value = loss(nothing, nothing, nothing.bool(), None)
    assert float(value) == pytest.approx(weight * math.log(2), rel=1e-6)


def test_a_single_label_weighs_1() -> None:
    nothing = torch.zeros(3, 1)
    assert float(loss(nothing, nothing, nothing.bool(), None)) == pytest.approx(math.log(2))


def test_an_observed_negative_weighs_as_much_as_an_observed_positive() -> None:
    observed = torch.tensor([[True, True, False, False]])
    logits = torch.zeros(1, 4, requires_grad=True)
    loss(logits, [[1.0, 0, 0, 0]], observed, None).backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-1 / 8, 1 / 8, 1 / 24, 1 / 24])


def test_with_weight_1_it_is_an() -> None:
    batch = Batch(torch.tensor(LOGITS), torch.tensor(TARGETS), torch.tensor(OBSERVED))
    expected = AssumeNegative(smoothing=0.0).loss(batch, CONTEXT)
    assert loss(LOGITS, TARGETS, OBSERVED, 1.0) == expected


def test_at_100_percent_known_it_is_torchs_own_bce() -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    assert loss(logits, targets, everything, None) == functional.binary_cross_entropy_with_logits(
        logits, targets
    )


def test_it_needs_no_observed_negatives() -> None:
    assert not WeakAssumeNegative(negative_weight=None).needs_negatives
