import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.asl import Asymmetric
from plmcl.methods.base import Batch, Context

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, -4.0]]
TARGETS = [[1.0, 0.0, 1.0], [1.0, 0.0, 1.0]]
OBSERVED = [[True, False, False], [True, True, False]]  # 1 ? ? / 1 0 ?, the last below a clip
CONTEXT = Context(0, 1, 0, 1e-3, 1.0)


def make(
    positive_focus: float = 1.0, negative_focus: float = 4.0, clip: float = 0.05
) -> Asymmetric:
    return Asymmetric(positive_focus=positive_focus, negative_focus=negative_focus, clip=clip)


def loss(method: Asymmetric, logits, targets=TARGETS, observed=OBSERVED) -> Tensor:
    batch = Batch(torch.as_tensor(logits), torch.as_tensor(targets), torch.as_tensor(observed))
    return method.loss(batch, CONTEXT)


def oracle(logits: list[list[float]], method: Asymmetric) -> float:
    total = 0.0
    for i in range(2):
        for j in range(3):
            p = 1 / (1 + math.exp(-logits[i][j]))
            if OBSERVED[i][j] and TARGETS[i][j] == 1:
                total += -((1 - p) ** method.positive_focus) * math.log(p)
            else:
                p = max(p - method.clip, 0)
                total += -(p**method.negative_focus) * math.log(1 - p)
    return total / 6


def test_a_hand_worked_table() -> None:
    # p = 3/4, 3/4, 1/4, 1/5; [1 ? 0 ?], gamma+ 1, gamma- 2 and a clip of 1/4: a positive,
    # (1/4) ln 4/3; the second, p_m = 1/2, (1/2)^2 ln 2; at the clip and below it nothing.
    log3 = math.log(3)
    value = loss(
        make(negative_focus=2.0, clip=0.25),
        [[log3, log3, -log3, -math.log(4)]],
        [[1.0, 0, 0, 0]],
        [[True, False, True, False]],
    )
    expected = (math.log(4 / 3) / 4 + math.log(2) / 4) / 4
    assert float(value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "fields", [(1.0, 4.0, 0.05), (0.0, 4.0, 0.3), (2.0, 1.0, 0.0), (0.5, 0.5, 0.1), (0.0, 0.0, 0.2)]
)
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


@pytest.mark.parametrize("negative_focus", [0.0, 0.5, 4.0])
def test_an_easy_negative_has_neither_loss_nor_gradient(negative_focus: float) -> None:
    # Up to a clip of 0.2, a logit of -ln 4 = -1.386; observed or not.
    logits = torch.tensor([[-1.39, -30.0, -1.38]], requires_grad=True)
    observed = [[True, False, False]]
    value = loss(make(1.0, negative_focus, 0.2), logits, torch.zeros(1, 3), observed)
    value.backward()
    assert logits.grad is not None
    assert logits.grad[0, :2].tolist() == [0, 0]
    assert logits.grad[0, 2] > 0


def test_an_observed_negative_counts_like_an_assumed_one() -> None:
    targets, logits = [[1.0, 0.0, 0.0]], [[0.3, 1.2, -0.4]]
    seen = loss(make(), logits, targets, [[True, True, True]])
    assert seen == loss(make(), logits, targets, [[True, False, False]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("clip", [0.0, 0.05])
@pytest.mark.parametrize("negative_focus", [0.0, 0.5, 1.0, 4.0])
def test_it_is_finite_however_the_logits_are(
    dtype: torch.dtype, clip: float, negative_focus: float
) -> None:
    """Case 40: in half precision 1 - p is 0 and its logarithm infinite from a logit of 8 on."""
    row = [-100.0, 100.0, -300.0, 30.0, 100.0]
    logits = torch.tensor([row], dtype=dtype, requires_grad=True)
    targets = torch.tensor([[1.0, 1, 0, 0, 0]])
    everything = torch.ones(1, 5, dtype=torch.bool)
    value = loss(make(1.0, negative_focus, clip), logits, targets, everything)
    value.backward()
    assert logits.grad is not None
    # With a clip, a negative costs at most (1 - clip)^gamma- log(1 / clip), and is let go there.
    most = (1 - clip) ** negative_focus * -math.log(clip) if clip else 0
    costs = [100, 0, 0, most or 30, most or 100]
    assert float(value.detach()) == pytest.approx(sum(costs) / 5, rel=1e-5)
    slopes = [-1, 0, 0, float(not clip), float(not clip)]
    assert logits.grad[0].tolist() == pytest.approx([slope / 5 for slope in slopes], abs=1e-3)


def test_without_focus_and_clip_it_is_torchs_own_bce_of_assumed_negatives() -> None:
    """Case 39: with everything observed, ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    everything = torch.ones(8, 20, dtype=torch.bool)
    some = torch.rand(8, 20, generator=generator) < 0.4
    for observed in (everything, some):
        expected = functional.binary_cross_entropy_with_logits(logits, targets * observed)
        torch.testing.assert_close(loss(make(0, 0, 0), logits, targets, observed), expected)


def test_it_needs_no_observed_negatives() -> None:
    assert not make().needs_negatives
