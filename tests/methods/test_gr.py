import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.errors import PlmclError
from plmcl.methods import make_method
from plmcl.methods.base import Batch, Context
from plmcl.methods.gr import GeneralisedRobust, robust_loss

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
TARGETS = [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
OBSERVED = [[True, False, False], [False, True, True]]  # 1 ? ? / ? 1 0
FIELDS = {
    "positive_slope": (0.0, 2.0),
    "positive_bias": (-2.0, -2.0),
    "weight_center": (0.5, 0.8),
    "weight_width": (2.0, 0.5),
    "positive_power": 0.01,
    "negative_power": 1.0,
}


def make(**changes) -> GeneralisedRobust:
    return GeneralisedRobust.model_validate(FIELDS | changes)


def at(epoch: int, epochs: int) -> Context:
    return Context(epoch, epochs, 0, 1e-3, 1.0)


def loss(method: GeneralisedRobust, logits, context, targets=TARGETS, observed=OBSERVED) -> Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return method.loss(batch, context)


def oracle(
    logits: list[list[float]],
    numbers: tuple[float, float, float, float],
    powers: tuple[float, float],
) -> float:
    """With the weights at the predictions of LOGITS, wherever `logits` moves."""
    (slope, bias, center, width), (q2, q3) = numbers, powers
    total = 0.0
    for i in range(2):
        for j in range(3):
            p = 1 / (1 + math.exp(-logits[i][j]))
            if OBSERVED[i][j]:
                total += -math.log(p if TARGETS[i][j] == 1 else 1 - p)
                continue
            fixed = 1 / (1 + math.exp(-LOGITS[i][j]))
            k = 1 / (1 + math.exp(-(slope * fixed + bias)))
            v = math.exp(-((fixed - center) ** 2) / (2 * width**2))
            total += v * (k * (1 - p**q2) / q2 + (1 - k) * (1 - (1 - p) ** q3) / q3)
    return total / 6


def test_a_hand_worked_entry() -> None:
    # p = 3/4, k = sigmoid(4 * 3/4 - 3) = 1/2, v = e^(-1/2) one width from the center; q2 = q3
    # = 1: the two losses are 1/4 and 3/4.
    method = make(
        positive_slope=(4.0, 4.0),
        positive_bias=(-3.0, -3.0),
        weight_center=(0.5, 0.5),
        weight_width=(0.25, 0.25),
        positive_power=1.0,
    )
    value = loss(method, [[math.log(3)]], at(0, 1), [[0.0]], [[False]])
    assert float(value) == pytest.approx(math.exp(-0.5) * (1 / 8 + 3 / 8), rel=1e-6)


@pytest.mark.parametrize("powers", [(0.01, 1.0), (0.5, 1.5)])
@pytest.mark.parametrize(
    ("epoch", "epochs", "numbers"),
    [
        (0, 7, (0.0, -2.0, 0.5, 2.0)),
        (2, 7, (2 / 3, -2.0, 0.6, 1.5)),
        (3, 7, (1.0, -2.0, 0.65, 1.25)),
        (6, 7, (2.0, -2.0, 0.8, 0.5)),
        (0, 1, (0.0, -2.0, 0.5, 2.0)),
    ],
)
def test_it_is_the_double_loop_with_weights_that_stand_still(
    epoch: int, epochs: int, numbers, powers, numeric_gradient
) -> None:
    method = make(positive_power=powers[0], negative_power=powers[1])
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(method, logits, at(epoch, epochs))
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, numbers, powers), rel=1e-5)
    expected = numeric_gradient(lambda table: oracle(table, numbers, powers), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


def test_the_bias_has_a_schedule_as_well() -> None:
    """As on COCO: the odds of a positive, at p = 1/2, from e^-2 to e^(5 - 8)."""
    method = make(positive_slope=(0.0, 10.0), positive_bias=(-2.0, -8.0), weight_center=(0.5, 0.5))
    for epoch, odds in ((0, math.exp(-2)), (4, math.exp(-3))):
        k = odds / (1 + odds)
        value = loss(method, [[0.0]], at(epoch, 5), [[0.0]], [[False]])
        expected = k * (1 - 0.5**0.01) / 0.01 + (1 - k) / 2
        assert float(value) == pytest.approx(expected, rel=1e-5)


def test_the_robust_loss_lies_between_cross_entropy_and_absolute_error() -> None:
    likelihood = torch.tensor([0.05, 0.5, 0.9], dtype=torch.float64)
    near_0 = robust_loss(likelihood.log(), 1e-9)
    torch.testing.assert_close(near_0, -likelihood.log(), rtol=1e-7, atol=0)
    torch.testing.assert_close(robust_loss(likelihood.log(), 1.0), 1 - likelihood)
    # Bounded by 1 / q, however unlikely.
    assert robust_loss(torch.tensor([-1e6]), 0.5).tolist() == [2.0]


def test_an_observed_negative_has_its_cross_entropy() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    loss(make(), logits, at(3, 5), [[0.0, 0.0]], [[True, False]]).backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 0]) == pytest.approx(1 / 4)
    assert 0 < float(logits.grad[0, 1]) < 1 / 8


def test_at_100_percent_known_it_is_torchs_own_bce() -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    value = loss(make(), logits, at(2, 5), targets, everything)
    assert value == functional.binary_cross_entropy_with_logits(logits, targets)


def test_it_needs_no_observed_negatives() -> None:
    assert not make().needs_negatives


@pytest.mark.parametrize(
    ("field", "values"), [("weight_width", [2.0, 0.0]), ("positive_slope", [1.0])]
)
def test_a_schedule_is_two_numbers_and_a_width_is_above_0(field: str, values: list) -> None:
    section = {key: list(v) if isinstance(v, tuple) else v for key, v in FIELDS.items()}
    with pytest.raises(PlmclError, match=f"methods.gr.{field}"):
        make_method("gr", {"gr": section | {field: values}})
