import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.an import AssumeNegative
from plmcl.methods.base import Batch, Context, State
from plmcl.methods.ll import LargeLoss

LOGITS = [[0.4, -1.2, 3.0, 0.9], [-0.7, 0.1, 1.5, -2.0]]
TARGETS = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
OBSERVED = [[True, False, True, False], [False, False, False, True]]  # 1 ? 0 ? / ? ? ? 1
# Unobserved, from the largest loss on: (1, 2), (0, 3), (1, 1), (1, 0), (0, 1).
RANKED = [(1, 2), (0, 3), (1, 1), (1, 0), (0, 1)]
SCHEMES = pytest.mark.parametrize("scheme", ["reject", "correct", "permanent"])


def make(scheme: str, rate: float = 0.125) -> LargeLoss:
    return LargeLoss.model_validate({"scheme": scheme, "rate": rate})


def at(epoch: int) -> Context:
    return Context(epoch, 10, 7 * epoch, 1e-3, 1.0)


def a_batch(method: LargeLoss, logits=LOGITS) -> Batch:
    targets, observed = torch.tensor(TARGETS), torch.tensor(OBSERVED)
    return Batch(
        torch.as_tensor(logits), targets, observed, method.initial_state(targets, observed)
    )


def oracle(
    logits: list[list[float]], scheme: str, count: int, flipped: list[tuple[int, int]]
) -> float:
    """AN loss of 2 * 4 entries, but for the `count` largest of those that are assumed negative."""
    losses: dict[tuple[int, int], float] = {}
    total = 0.0
    for i in range(2):
        for j in range(4):
            prob = 1 / (1 + math.exp(-logits[i][j]))
            if OBSERVED[i][j]:
                total += -math.log(prob if TARGETS[i][j] == 1 else 1 - prob)
            elif (i, j) in flipped:
                total += -math.log(prob)
            else:
                losses[i, j] = -math.log(1 - prob)
    for number, (i, j) in enumerate(sorted(losses, key=losses.__getitem__, reverse=True)):
        if number >= count:
            total += losses[i, j]
        elif scheme != "reject":
            total += -math.log(1 / (1 + math.exp(-logits[i][j])))
    return total / 8


# ---------------------------------------------------------------------------- loss


@pytest.mark.parametrize(
    ("scheme", "expected"),
    # p: [1/2 3/4 4/5], [1 ? ?]: ln 2, ln 4 as a negative; ln 5 as a negative, ln 5/4 as a positive.
    [
        ("reject", (math.log(2) + math.log(4)) / 3),
        ("correct", (math.log(2) + math.log(4) + math.log(5 / 4)) / 3),
        ("permanent", (math.log(2) + math.log(4) + math.log(5 / 4)) / 3),
    ],
)
def test_a_hand_worked_table(scheme: str, expected: float) -> None:
    method = make(scheme, 1 / 3)
    targets = torch.tensor([[1.0, 0.0, 0.0]])
    observed = targets > 0
    logits = torch.tensor([[0, math.log(3), math.log(4)]])
    batch = Batch(logits, targets, observed, method.initial_state(targets, observed))
    assert float(method.loss(batch, at(1))) == pytest.approx(expected, rel=1e-6)


@SCHEMES
@pytest.mark.parametrize(
    ("rate", "epoch", "growing", "constant"),
    # Of 8 entries, 5 of them candidates.
    [
        (0.125, 0, 0, 0),
        (0.125, 1, 1, 1),
        (0.125, 3, 3, 1),
        (0.002, 1, 1, 1),
        (0.13, 1, 2, 2),
        (0.25, 2, 4, 2),
        (0.125, 9, 5, 1),
        (1.0, 3, 5, 5),
        (0.0, 9, 0, 0),
    ],
)
def test_it_is_the_double_loop_and_its_finite_differences(
    scheme: str, rate: float, epoch: int, growing: int, constant: int, numeric_gradient
) -> None:
    method = make(scheme, rate)
    count = constant if scheme == "permanent" else growing
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = method.loss(a_batch(method, logits), at(epoch))
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, scheme, count, []), rel=1e-5)
    expected = numeric_gradient(lambda table: oracle(table, scheme, count, []), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


def gradient(scheme: str, epoch: int) -> Tensor:
    method = make(scheme)
    logits = torch.tensor(LOGITS, requires_grad=True)
    method.loss(a_batch(method, logits), at(epoch)).backward()
    assert logits.grad is not None
    return logits.grad


def test_a_rejected_entry_has_no_gradient_and_a_corrected_one_that_of_a_positive() -> None:
    probs = torch.tensor(LOGITS).sigmoid()
    rejected, corrected, plain = (
        gradient("reject", 2),
        gradient("correct", 2),
        gradient("reject", 0),
    )
    for i, j in RANKED[:2]:
        assert rejected[i, j] == 0
        assert float(corrected[i, j]) == pytest.approx((float(probs[i, j]) - 1) / 8, rel=1e-5)
        assert plain[i, j] > 0
        rejected[i, j] = corrected[i, j] = plain[i, j]
    assert torch.equal(rejected, plain)
    assert torch.equal(corrected, plain)


@SCHEMES
def test_the_first_epoch_is_an(scheme: str) -> None:
    method = make(scheme, 1.0)
    batch = a_batch(method)
    assert method.loss(batch, at(0)) == AssumeNegative(smoothing=0.0).loss(batch, at(0))
    assert method.update(batch, at(0)).keys() == batch.labels.keys()
    assert not any(state.any() for state in method.update(batch, at(0)).values())


@SCHEMES
def test_an_observed_negative_is_never_touched(scheme: str) -> None:
    """(0, 2) has the largest loss of all."""
    method = make(scheme, 1.0)
    logits = torch.tensor(LOGITS, requires_grad=True)
    method.loss(a_batch(method, logits), at(5)).backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 2]) == pytest.approx(1 / (1 + math.exp(-3)) / 8, rel=1e-6)


@SCHEMES
def test_at_100_percent_known_it_is_torchs_own_bce(scheme: str) -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    method = make(scheme)
    batch = Batch(logits, targets, everything, method.initial_state(targets, everything))
    expected = functional.binary_cross_entropy_with_logits(logits, targets)
    assert method.loss(batch, at(6)) == expected
    assert not any(state.any() for state in method.update(batch, at(6)).values())


@SCHEMES
def test_of_equal_losses_no_more_are_changed_than_the_count(scheme: str) -> None:
    method = make(scheme, 0.3)
    nothing = torch.zeros(2, 5)
    logits = torch.ones(2, 5, requires_grad=True)
    batch = Batch(logits, nothing, nothing.bool(), method.initial_state(nothing, nothing.bool()))
    method.loss(batch, at(1)).backward()
    assert logits.grad is not None
    assert (logits.grad <= 0).sum() == 3


@pytest.mark.parametrize(("epoch", "count"), [(1, 1), (9, 9), (10, 10), (13, 13)])
def test_rounding_does_not_add_an_entry_to_a_whole_count(epoch: int, count: int) -> None:
    """(9 * 0.001) * 1000 is above 9, and (13 * 0.001) * 1000 above 13."""
    nothing = torch.zeros(10, 100)
    logits = torch.zeros(10, 100, requires_grad=True)
    make("reject", 0.001).loss(Batch(logits, nothing, nothing.bool()), at(epoch)).backward()
    assert logits.grad is not None
    assert (logits.grad == 0).sum() == count


def test_it_needs_no_observed_negatives() -> None:
    assert not make("correct").needs_negatives


# ---------------------------------------------------------------------------- state


@pytest.mark.parametrize("scheme", ["reject", "correct"])
def test_only_the_permanent_scheme_keeps_a_state(scheme: str) -> None:
    method = make(scheme)
    assert a_batch(method).labels == {}
    assert method.update(a_batch(method), at(3)) == {}


def where(labels: State) -> list[tuple[int, int]]:
    return [(i, j) for i, j in RANKED if labels["flipped"][i, j] == 1]


def test_each_step_flips_the_next_largest_and_the_earlier_ones_stay_positives() -> None:
    method = make("permanent")
    batch = a_batch(method)
    for done in range(7):
        # The loss of a step already holds what that step flips.
        value = method.loss(batch, at(1 + done))
        expected = oracle(LOGITS, "permanent", 1, RANKED[:done])
        assert float(value) == pytest.approx(expected, rel=1e-5)
        batch = replace(batch, labels=method.update(batch, at(1 + done)))
        assert where(batch.labels) == RANKED[: done + 1]
        assert batch.labels["flipped"].sum() == min(done + 1, 5)


def test_a_flip_outlives_a_change_of_the_prediction_and_counts_once() -> None:
    method = make("permanent")
    batch = a_batch(method)
    batch = replace(batch, labels=method.update(batch, at(1)))
    lower = [list(row) for row in LOGITS]
    lower[1][2] = -4.0
    batch = replace(batch, logits=torch.tensor(lower))
    expected = oracle(lower, "permanent", 1, [(1, 2)])
    assert float(method.loss(batch, at(2))) == pytest.approx(expected, rel=1e-5)
    assert where(method.update(batch, at(2))) == [(1, 2), (0, 3)]


def test_a_label_that_is_learned_later_goes_before_its_flip() -> None:
    method = make("permanent", 0.0)
    batch = a_batch(method)
    batch = replace(batch, labels={"flipped": torch.ones(2, 4)})
    nothing_else = replace(batch, observed=torch.ones(2, 4, dtype=torch.bool))
    expected = functional.binary_cross_entropy_with_logits(batch.logits, batch.targets)
    assert method.loss(nothing_else, at(2)) == expected
