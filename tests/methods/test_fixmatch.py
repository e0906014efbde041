import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, expected_positive_penalty
from plmcl.methods.fixmatch import FixMatch

# With tau = .75, of the plain view: sure of 1, sure of 0, neither.
LOGITS = [[1.2, -1.2, 0.4], [-2.0, 2.0, -0.3]]
STRONG = [[0.3, 0.8, -0.5], [1.1, -0.2, 0.6]]
TARGETS = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
OBSERVED = [[False, False, True], [False, True, False]]  # ? ? 1 / ? 0 ?
CONTEXT = Context(0, 1, 0, 1e-3, 1.2)


def make(**changes: float) -> FixMatch:
    fields = {"threshold": 0.75, "unlabeled_weight": 1.0, "regulariser_weight": 0.0}
    return FixMatch.model_validate(fields | changes)


def loss(method: FixMatch, logits, strong, targets=TARGETS, observed=OBSERVED) -> Tensor:
    batch = Batch(
        torch.as_tensor(logits),
        torch.as_tensor(targets),
        torch.as_tensor(observed),
        strong=torch.as_tensor(strong),
    )
    return method.loss(batch, CONTEXT)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def oracle(
    logits: list[list[float]], strong: list[list[float]], method: FixMatch, k: float
) -> float:
    """The plain view's choices are those of LOGITS, whatever `logits` moves by."""
    known, sure, count = 0.0, 0.0, 0.0
    for i in range(2):
        for j in range(3):
            plain, other = sigmoid(logits[i][j]), sigmoid(strong[i][j])
            count += plain
            if OBSERVED[i][j]:
                known += -math.log(plain if TARGETS[i][j] == 1 else 1 - plain)
            elif sigmoid(LOGITS[i][j]) >= method.threshold:
                sure += -math.log(other)
            elif sigmoid(LOGITS[i][j]) <= 1 - method.threshold:
                sure += -math.log(1 - other)
    penalty = ((count / 2 - k) / 3) ** 2
    return (known + method.unlabeled_weight * sure) / 6 + method.regulariser_weight * penalty


def test_a_hand_worked_table() -> None:
    # tau = .7; plain p [3/4 1/4 1/2] / [3/4 1/4 1/2], the first image unobserved, the second 0 1 1.
    # strong p [1/2 3/4 1/4]: the first is taught 1 (ln 2), the second 0 (ln 4), the third nothing.
    # Second image, plain view: -log 1/4, -log 1/4, -log 1/2 = 5 ln 2. With weight 2:
    log3 = math.log(3)
    value = loss(
        make(threshold=0.7, unlabeled_weight=2.0),
        [[log3, -log3, 0], [log3, -log3, 0]],
        [[0, log3, -log3], [log3, log3, log3]],
        [[0.0, 0, 0], [0, 1, 1]],
        [[False] * 3, [True] * 3],
    )
    assert float(value) == pytest.approx((5 + 2 * 3) * math.log(2) / 6, rel=1e-6)


@pytest.mark.parametrize("threshold", [0.6, 0.75, 0.95])
@pytest.mark.parametrize(("unlabeled", "regulariser"), [(1.0, 0.0), (0.3, 2.0)])
def test_it_is_the_double_loop_and_its_finite_differences_for_both_views(
    threshold: float, unlabeled: float, regulariser: float, numeric_gradient
) -> None:
    method = make(threshold=threshold, unlabeled_weight=unlabeled, regulariser_weight=regulariser)
    logits = torch.tensor(LOGITS, requires_grad=True)
    strong = torch.tensor(STRONG, requires_grad=True)
    value = loss(method, logits, strong)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, STRONG, method, 1.2), rel=1e-6)
    plain = numeric_gradient(lambda table: oracle(table, STRONG, method, 1.2), LOGITS)
    other = numeric_gradient(lambda table: oracle(LOGITS, table, method, 1.2), STRONG)
    torch.testing.assert_close(logits.grad, torch.tensor(plain), atol=1e-6, rtol=0)
    torch.testing.assert_close(strong.grad, torch.tensor(other), atol=1e-6, rtol=0)


def test_observed_labels_teach_the_plain_view_and_sure_predictions_the_strong_one() -> None:
    logits = torch.tensor(LOGITS, requires_grad=True)
    strong = torch.tensor(STRONG, requires_grad=True)
    loss(make(), logits, strong).backward()
    assert logits.grad is not None
    assert strong.grad is not None
    observed = torch.tensor(OBSERVED)
    sure = torch.tensor([[True, True, False], [True, True, False]])
    assert torch.equal(logits.grad != 0, observed)
    assert torch.equal(strong.grad != 0, sure & ~observed)


def test_an_observed_negative_lowers_its_prediction_however_sure_the_view_is_of_a_1() -> None:
    logits = torch.full((1, 2), 10.0, requires_grad=True)
    strong = torch.zeros(1, 2, requires_grad=True)
    loss(make(), logits, strong, [[0.0, 0.0]], [[True, False]]).backward()
    assert logits.grad is not None
    assert strong.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([0.5, 0], abs=1e-4)
    assert strong.grad[0].tolist() == pytest.approx([0, -0.25])


def test_from_positives_alone_nothing_but_the_regulariser_lowers_a_prediction() -> None:
    """As the documentation warns: all predictions are sure of 1, and teach it."""
    gradients = {}
    for weight in (0.0, 1.0):
        logits = torch.full((2, 3), 4.0, requires_grad=True)
        strong = torch.full((2, 3), 4.0, requires_grad=True)
        positive = [[True, False, False], [False, False, False]]
        value = loss(make(regulariser_weight=weight), logits, strong, torch.ones(2, 3), positive)
        value.backward()
        assert logits.grad is not None
        assert strong.grad is not None
        gradients[weight] = logits.grad + strong.grad
    assert (gradients[0.0] < 0).all()
    assert (gradients[1.0] > 0).any()


def test_at_100_percent_known_it_is_torchs_own_bce() -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits, strong = 3 * torch.randn(2, 8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    expected = functional.binary_cross_entropy_with_logits(logits, targets)
    assert loss(make(), logits, strong, targets, everything) == expected
    regularised = loss(make(regulariser_weight=2.0), logits, strong, targets, everything)
    torch.testing.assert_close(
        regularised, expected + 2 * expected_positive_penalty(logits, CONTEXT)
    )


def test_it_asks_for_a_strong_view_and_no_observed_negatives() -> None:
    assert make().needs_strong_view
    assert not make().needs_negatives
