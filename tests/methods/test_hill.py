import math

import pytest
import torch
from torch import Tensor

from plmcl.methods.base import Batch, Context
from plmcl.methods.hill import Hill

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
TARGETS = [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
OBSERVED = [[True, False, False], [False, True, True]]  # 1 ? ? / ? 1 0
CONTEXT = Context(0, 1, 0, 1e-3, 1.0)


def make(margin: float = 1.0, focus: float = 2.0, unobserved_weight: float = 1.5) -> Hill:
    return Hill(margin=margin, focus=focus, unobserved_weight=unobserved_weight)


def loss(method: Hill, logits, targets=TARGETS, observed=OBSERVED) -> Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return method.loss(batch, CONTEXT)


def oracle(logits: list[list[float]], method: Hill) -> float:
    total = 0.0
    for i in range(2):
        for j in range(3):
            p = 1 / (1 + math.exp(-logits[i][j]))
            if not OBSERVED[i][j]:
                total += (method.unobserved_weight - p) * p**2
            elif TARGETS[i][j] == 0:
                total += -math.log(1 - p)
            else:
                p = 1 / (1 + math.exp(-(logits[i][j] - method.margin)))
                total += -((1 - p) ** method.focus) * math.log(p)
    return total / 6


def test_a_hand_worked_table() -> None:
    # z = [1  ln 3  -ln 3], [1 ? 0]: a positive at 1/2 after the margin, (1/2)^2 ln 2;
    # unobserved at 3/4, (3/2 - 3/4) (3/4)^2 = 27/64; a negative at 1/4, ln 4/3.
    log3 = math.log(3)
    value = loss(make(), [[1.0, log3, -log3]], [[1.0, 0, 0]], [[True, False, True]])
    expected = (math.log(2) / 4 + 27 / 64 + math.log(4 / 3)) / 3
    assert float(value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("fields", [(1.0, 2.0, 1.5), (0.0, 0.0, 1.0), (0.5, 0.5, 1.7)])
def test_it_is_the_double_loop_and_its_finite_differences(
    fields: tuple[float, float, float], numeric_gradient
) -> None:
    method = make(*fields)
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(method, logits)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, method), rel=1e-5)
    expected = numeric_gradient(lambda table: oracle(table, method), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


def unobserved_gradient(method: Hill, probs: list[float]) -> list[float]:
    """At the predictions, of the loss of entries that nobody looked at."""
    logits = torch.tensor([probs], dtype=torch.float64).logit().float().requires_grad_()
    nothing = torch.zeros(1, len(probs))
    (len(probs) * loss(method, logits, nothing, nothing.bool())).backward()
    assert logits.grad is not None
    return logits.grad[0].tolist()


def test_the_pull_on_an_unobserved_entry_is_a_hill_over_its_prediction() -> None:
    # d/dz (3/2 - p) p^2 = 3 p^2 (1 - p)^2, highest at 1/2: 3/16; at 1/4 and 3/4: 27/256.
    low, middle, high, sure = unobserved_gradient(make(), [0.25, 0.5, 0.75, 1 - 1e-4])
    assert [low, middle, high] == pytest.approx([27 / 256, 3 / 16, 27 / 256], rel=1e-5)
    assert sure == pytest.approx(0, abs=1e-7)


def test_a_small_weight_raises_the_predictions_that_are_high() -> None:
    """(1.2 - p) p^2 has its top at p = 0.8."""
    gradient = unobserved_gradient(make(unobserved_weight=1.2), [0.79, 0.8, 0.81])
    assert gradient[0] > 1e-3
    assert gradient[1] == pytest.approx(0, abs=1e-6)
    assert gradient[2] < -1e-3


@pytest.mark.parametrize("focus", [0.0, 0.5, 2.0])
def test_a_positive_is_finite_however_it_is_predicted(focus: float) -> None:
    logits = torch.tensor([[-300.0, 300.0]], requires_grad=True)
    everything = torch.ones(1, 2, dtype=torch.bool)
    value = loss(make(focus=focus), logits, [[1.0, 1.0]], everything)
    value.backward()
    assert float(value.detach()) == pytest.approx(301 / 2)
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-1 / 2, 0], abs=1e-6)


def test_without_margin_and_focus_what_is_observed_has_its_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    value = loss(make(margin=0.0, focus=0.0), logits, targets, everything)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
    torch.testing.assert_close(value, expected)


def test_it_needs_no_observed_negatives() -> None:
    assert not make().needs_negatives
