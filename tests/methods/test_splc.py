import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context
from plmcl.methods.splc import SelfPacedCorrection

LOGITS = [[0.9, -1.2, 3.0], [0.7, 2.0, 0.2]]
TARGETS = [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
OBSERVED = [[True, False, False], [False, True, True]]  # 1 ? ? / ? 0 1
LOG3 = math.log(3)


def make(
    threshold: float = 0.6, change_epoch: int = 1, margin: float = 1.0, focus: float = 2.0
) -> SelfPacedCorrection:
    return SelfPacedCorrection(
        threshold=threshold, change_epoch=change_epoch, margin=margin, focus=focus
    )


def loss(
    method: SelfPacedCorrection, logits, targets=TARGETS, observed=OBSERVED, epoch: int = 1
) -> Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return method.loss(batch, Context(epoch, 10, 0, 1e-3, 1.0))


def oracle(logits: list[list[float]], method: SelfPacedCorrection, epoch: int) -> float:
    total = 0.0
    for i in range(2):
        for j in range(3):
            z, t = logits[i][j], TARGETS[i][j] if OBSERVED[i][j] else 0.0
            if t == 1:
                z -= method.margin
            p = 1 / (1 + math.exp(-z))
            if not OBSERVED[i][j] and epoch >= method.change_epoch and p > method.threshold:
                t = 1.0
            total += -t * (1 - p) ** method.focus * math.log(p)
            total += -(1 - t) * p**method.focus * math.log(1 - p)
    return total / 6


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_hand_worked_table(epoch: int) -> None:
    # z = [1  ln 3  ln 3  -ln 3], [1 ? 0 ?]: a positive at 1/2 after the margin, (1/2)^2 ln 2;
    # unobserved at 3/4: as a negative (3/4)^2 ln 4, corrected (1/4)^2 ln 4/3, without a margin;
    # the observed negative stays (3/4)^2 ln 4; unobserved at 1/4, (1/4)^2 ln 4/3.
    value = loss(
        make(),
        [[1.0, LOG3, LOG3, -LOG3]],
        [[1.0, 0, 0, 0]],
        [[True, False, True, False]],
        epoch,
    )
    high, low = 9 / 16 * math.log(4), math.log(4 / 3) / 16
    expected = (math.log(2) / 4 + (high if epoch == 0 else low) + high + low) / 4
    assert float(value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("fields", [(0.6, 1, 1.0, 2.0), (0.8, 0, 0.5, 1.5), (0.3, 2, 0.0, 0.0)])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_it_is_the_double_loop_and_its_finite_differences(
    fields: tuple[float, int, float, float], epoch: int, numeric_gradient
) -> None:
    method = make(*fields)
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(method, logits, epoch=epoch)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, method, epoch), rel=1e-5)
    expected = numeric_gradient(lambda table: oracle(table, method, epoch), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


def gradient(
    method: SelfPacedCorrection, logits: list[float], known: bool, epoch: int
) -> list[float]:
    """Of entries that are all 0, and observed or not."""
    row = torch.tensor([logits], requires_grad=True)
    loss(method, row, torch.zeros_like(row), torch.full_like(row, known).bool(), epoch).backward()
    assert row.grad is not None
    return row.grad[0].tolist()


def test_from_the_change_epoch_on_what_is_predicted_above_the_threshold_is_raised() -> None:
    # sigmoid(.4) = .599 and sigmoid(.41) = .601.
    before = gradient(make(change_epoch=3), [0.4, 0.41, 5.0], known=False, epoch=2)
    after = gradient(make(change_epoch=3), [0.4, 0.41, 5.0], known=False, epoch=3)
    assert [slope > 0 for slope in before] == [True, True, True]
    assert [slope > 0 for slope in after] == [True, False, False]


def test_a_prediction_at_the_threshold_is_not_yet_corrected() -> None:
    assert gradient(make(threshold=0.5), [0.0], known=False, epoch=1)[0] > 0


def test_an_observed_negative_is_lowered_however_high_it_is_predicted() -> None:
    assert all(slope > 0 for slope in gradient(make(), [0.4, 2.0, 20.0], known=True, epoch=5))


@pytest.mark.parametrize("focus", [0.0, 0.5, 2.0])
def test_what_is_observed_is_finite_however_it_is_predicted(focus: float) -> None:
    # The worst of a positive, 300 + 1 of margin, and of a negative, 300; and the best of both.
    logits = torch.tensor([[-300.0, 300.0, 300.0, -300.0]], requires_grad=True)
    everything = torch.ones(1, 4, dtype=torch.bool)
    value = loss(make(focus=focus), logits, [[1.0, 0.0, 1.0, 0.0]], everything)
    value.backward()
    assert float(value.detach()) == pytest.approx(601 / 4)
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-1 / 4, 1 / 4, 0, 0], abs=1e-6)


@pytest.mark.parametrize("focus", [0.0, 2.0])
def test_at_100_percent_known_it_is_the_focal_loss_with_a_margin(focus: float) -> None:
    """Case 39; without focus and margin, torch's own BCE."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    entries = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    expected = ((1 - torch.exp(-entries)) ** focus * entries).mean()
    given = logits + 0.7 * targets
    value = loss(make(margin=0.7, focus=focus), given, targets, everything)
    torch.testing.assert_close(value, expected)


def test_it_needs_no_observed_negatives() -> None:
    assert not make().needs_negatives
