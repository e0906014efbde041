import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context
from plmcl.methods.plc import PseudoLabelConsistency

# With tau = .75, of the plain view: sure of 1, sure of 0, neither.
LOGITS = [[1.2, -1.2, 0.4], [-2.0, 2.0, -0.3]]
STRONG = [[0.3, 0.8, -0.5], [1.1, -0.2, 0.6]]
TARGETS = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
OBSERVED = [[False, False, True], [False, True, False]]  # ? ? 1 / ? 0 ?
CONTEXT = Context(0, 1, 0, 1e-3, 1.0)


def make(threshold: float = 0.75, weight: float = 1.0) -> PseudoLabelConsistency:
    return PseudoLabelConsistency(threshold=threshold, weight=weight)


def loss(
    method: PseudoLabelConsistency, logits, strong, targets=TARGETS, observed=OBSERVED
) -> Tensor:
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
    logits: list[list[float]], strong: list[list[float]], method: PseudoLabelConsistency
) -> float:
    """The plain view's choices are those of LOGITS, whatever `logits` moves by."""
    assumed, agreement, taught = 0.0, 0.0, 0
    for i in range(2):
        for j in range(3):
            plain, other = sigmoid(logits[i][j]), sigmoid(strong[i][j])
            given = OBSERVED[i][j] and TARGETS[i][j] == 1
            assumed += -math.log(plain if given else 1 - plain)
            choice = sigmoid(LOGITS[i][j])
            if OBSERVED[i][j]:
                hard = given
            elif choice >= method.threshold:
                hard = True
            elif choice < 1 - method.threshold:
                hard = False
            else:
                continue
            taught += 1
            agreement += -math.log(other if hard else 1 - other)
    return assumed / 6 + method.weight * agreement / taught


def test_a_hand_worked_table() -> None:
    # tau = .7; plain p [3/4 1/4 1/2] / [3/4 1/4 1/2], the first image unobserved, the second 0 1 ?.
    # All but the second 1 count as 0 there: 2 (ln 4 + ln 4/3 + ln 2) + (ln 4 - ln 4/3).
    # strong p [1/2 3/4 1/4]: taught 1 0 -, ln 2 + ln 4; [3/4 3/4 3/4]: taught 0 1 -, ln 4 + ln 4/3.
    log3 = math.log(3)
    value = loss(
        make(threshold=0.7, weight=2.0),
        [[log3, -log3, 0], [log3, -log3, 0]],
        [[0, log3, -log3], [log3, log3, log3]],
        [[0.0, 0, 0], [0, 1, 0]],
        [[False] * 3, [True, True, False]],
    )
    log2, log4, third = math.log(2), math.log(4), math.log(4 / 3)
    expected = (3 * log4 + third + 2 * log2) / 6 + 2 * (log2 + 2 * log4 + third) / 4
    assert float(value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.75, 0.95])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_it_is_the_double_loop_and_its_finite_differences_for_both_views(
    threshold: float, weight: float, numeric_gradient
) -> None:
    method = make(threshold, weight)
    logits = torch.tensor(LOGITS, requires_grad=True)
    strong = torch.tensor(STRONG, requires_grad=True)
    value = loss(method, logits, strong)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, STRONG, method), rel=1e-6)
    plain = numeric_gradient(lambda table: oracle(table, STRONG, method), LOGITS)
    other = numeric_gradient(lambda table: oracle(LOGITS, table, method), STRONG)
    torch.testing.assert_close(logits.grad, torch.tensor(plain), atol=1e-6, rtol=0)
    torch.testing.assert_close(strong.grad, torch.tensor(other), atol=1e-6, rtol=0)


def test_only_sure_and_observed_entries_teach_the_strong_view() -> None:
    strong = torch.tensor(STRONG, requires_grad=True)
    loss(make(), LOGITS, strong).backward()
    assert strong.grad is not None
    sure = torch.tensor([[True, True, False], [True, True, False]])
    assert torch.equal(strong.grad != 0, sure | torch.tensor(OBSERVED))


def test_the_plain_view_learns_from_assumed_negatives_alone() -> None:
    """No gradient reaches it through the choice, the target or the count of the strong view's."""
    gradients = []
    for weight in (0.0, 5.0):
        logits = torch.tensor(LOGITS, requires_grad=True)
        loss(make(weight=weight), logits, STRONG).backward()
        assert logits.grad is not None
        gradients.append(logits.grad)
    assert torch.equal(*gradients)
    # (p - t) / 6 with t = 1 for the observed positive alone.
    known = torch.tensor([[0.0, 0, 1], [0, 0, 0]])
    torch.testing.assert_close(gradients[0], (torch.tensor(LOGITS).sigmoid() - known) / 6)


@pytest.mark.parametrize("plain", [-10.0, 0.0, 10.0])
def test_observed_labels_are_taught_whatever_the_plain_view_predicts(plain: float) -> None:
    strong = torch.zeros(1, 2, requires_grad=True)
    loss(make(), [[plain, plain]], strong, [[1.0, 0.0]], [[True, True]]).backward()
    assert strong.grad is not None
    assert strong.grad.tolist() == [[-0.25, 0.25]]


def test_where_nothing_is_taught_only_the_assumed_negatives_are_left() -> None:
    logits, strong = torch.zeros(2, 3), torch.full((2, 3), 4.0, requires_grad=True)
    value = loss(make(weight=7.0), logits, strong, torch.zeros(2, 3), torch.zeros(2, 3).bool())
    value.backward()
    assert float(value.detach()) == pytest.approx(math.log(2))
    assert strong.grad is not None
    assert not strong.grad.any()


def test_a_prediction_at_the_threshold_is_taught_as_a_1() -> None:
    strong, nothing = torch.zeros(1, 1, requires_grad=True), torch.zeros(1, 1)
    loss(make(threshold=0.5), nothing, strong, nothing, nothing.bool()).backward()
    assert strong.grad is not None
    assert strong.grad.tolist() == [[-0.5]]


def test_at_100_percent_known_it_is_torchs_own_bce_of_both_views() -> None:
    """Case 39."""
    generator = torch.Generator().manual_seed(3)
    logits, strong = 3 * torch.randn(2, 8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    plain, other = (
        functional.binary_cross_entropy_with_logits(view, targets) for view in (logits, strong)
    )
    value = loss(make(weight=0.5), logits, strong, targets, everything)
    torch.testing.assert_close(value, plain + 0.5 * other)


def test_it_asks_for_a_strong_view_and_no_observed_negatives() -> None:
    assert make().needs_strong_view
    assert not make().needs_negatives
