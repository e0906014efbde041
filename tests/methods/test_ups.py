import math
from statistics import mean, stdev

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, expected_positive_penalty
from plmcl.methods.ups import Ups

LOGITS = [[0.4, -1.2, 3.0, 0.1], [-0.7, 0.0, 1.5, -0.2]]
TARGETS = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
OBSERVED = [[True, False, False, False], [False, False, True, False]]  # 1 ? ? ? / ? ? 0 ?
# Three passes; unobserved, of the first image: sure of 0, of 1, high but shaky; of the second:
# undecided, sure of 1, low but shaky.
PASSES = [
    [[0.0, -4.0, 3.0, 3.5], [0.1, 2.0, 4.0, -6.0]],
    [[0.5, -4.1, 2.9, 0.5], [-0.1, 2.1, 4.1, -2.8]],
    [[0.2, -4.2, 3.1, 2.5], [0.0, 1.9, 3.9, -5.0]],
]
TAUGHT = [[False, True, True, False], [False, True, False, False]]
CONTEXT = Context(0, 1, 0, 1e-3, 1.2)


def make(**changes: float) -> Ups:
    fields: dict[str, float] = {
        "dropout_rate": 0.3,
        "passes": 3,
        "positive_threshold": 0.7,
        "positive_deviation": 0.05,
        "negative_threshold": 0.05,
        "negative_deviation": 0.005,
        "regulariser_weight": 0.0,
    }
    return Ups.model_validate(fields | changes)


def loss(method: Ups, logits, passes=PASSES, targets=TARGETS, observed=OBSERVED) -> Tensor:
    batch = Batch(
        torch.as_tensor(logits),
        torch.as_tensor(targets),
        torch.as_tensor(observed),
        passes=torch.as_tensor(passes),
    )
    return method.loss(batch, CONTEXT)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def oracle(logits: list[list[float]], method: Ups, k: float) -> float:
    total, count = 0.0, 0.0
    for i in range(2):
        for j in range(4):
            prob = sigmoid(logits[i][j])
            drawn = [sigmoid(one[i][j]) for one in PASSES]
            count += prob
            if OBSERVED[i][j]:
                total += -math.log(prob if TARGETS[i][j] == 1 else 1 - prob)
            elif (
                mean(drawn) >= method.positive_threshold
                and stdev(drawn) <= method.positive_deviation
            ):
                total += -math.log(prob)
            elif (
                mean(drawn) <= method.negative_threshold
                and stdev(drawn) <= method.negative_deviation
            ):
                total += -math.log(1 - prob)
    return total / 8 + method.regulariser_weight * ((count / 2 - k) / 4) ** 2


def test_a_hand_worked_table() -> None:
    # Two passes of p: [.8 .8], [.8 .6], [.02 .02], [.1 .1]; deviations 0, .2 / sqrt(2), 0, 0.
    # So the first is taught 1, the third 0, the others nothing: p = [1/2 . 3/4 .].
    drawn = torch.tensor([[[0.8, 0.8, 0.02, 0.1]], [[0.8, 0.6, 0.02, 0.1]]]).logit()
    logits = [[0.0, 5.0, math.log(3), 5.0]]
    nothing = torch.zeros(1, 4)
    for room in (0.05, 0.14):
        value = loss(make(positive_deviation=room), logits, drawn, nothing, nothing.bool())
        assert float(value) == pytest.approx((math.log(2) + math.log(4)) / 4, rel=1e-6)
    # With room for a deviation of .142, and means up to .1, all four count.
    wider = make(positive_deviation=0.142, negative_threshold=0.101)
    value = loss(wider, logits, drawn, nothing, nothing.bool())
    more = math.log(1 + math.exp(-5)) + math.log(1 + math.exp(5))
    assert float(value) == pytest.approx((3 * math.log(2) + more) / 4, rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positive_deviation": 0.5},
        {"negative_deviation": 0.5},
        {"positive_threshold": 0.9},
        {"negative_threshold": 0.0},
        {"regulariser_weight": 2.0},
    ],
)
def test_it_is_the_double_loop_and_its_finite_differences(changes: dict, numeric_gradient) -> None:
    method = make(**changes)
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(method, logits)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, method, 1.2), rel=1e-6)
    expected = numeric_gradient(lambda table: oracle(table, method, 1.2), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


def test_only_observed_entries_and_those_that_the_passes_agree_on_have_a_gradient() -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss(make(), logits).backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad != 0, torch.tensor(OBSERVED) | torch.tensor(TAUGHT))


def test_an_observed_negative_stands_against_passes_that_are_sure_of_a_1() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    sure = torch.full((3, 1, 2), 6.0)
    loss(make(), logits, sure, [[0.0, 0.0]], [[True, False]]).backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([0.25, -0.25])


def test_at_100_percent_known_it_is_torchs_own_bce() -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits, *passes = 3 * torch.randn(4, 8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    drawn = torch.stack(passes)
    expected = functional.binary_cross_entropy_with_logits(logits, targets)
    assert loss(make(), logits, drawn, targets, everything) == expected
    regularised = loss(make(regulariser_weight=2.0), logits, drawn, targets, everything)
    torch.testing.assert_close(
        regularised, expected + 2 * expected_positive_penalty(logits, CONTEXT)
    )


def test_it_asks_for_dropout_and_for_passes_but_no_observed_negatives() -> None:
    method = make(dropout_rate=0.25, passes=7)
    assert (method.dropout, method.dropout_passes) == (0.25, 7)
    assert not method.needs_negatives
