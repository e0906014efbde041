import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plmcl.methods import make_method, method_names
from plmcl.methods.base import (
    Method,
    Schedule,
    State,
    cross_entropy,
    expected_positive_penalty,
    observed_cross_entropy,
    smooth,
)
from plmcl.params import load_params

SECTIONS = load_params(Path(__file__).parents[2] / "params.yaml").methods
EVERY_METHOD = pytest.mark.parametrize("name", method_names())


def a_batch(name: str, dtype: torch.dtype = torch.float32) -> tuple[Method, list, State]:
    """Six images, five labels; a third observed; pseudo labels that have already moved."""
    method = make_method(name, SECTIONS)
    generator = torch.Generator().manual_seed(7)
    logits = (4 * torch.randn(6, 5, generator=generator)).to(dtype)
    targets = (torch.rand(6, 5, generator=generator) < 0.4).float()
    observed = torch.rand(6, 5, generator=generator) < 0.35
    labels = method.initial_state(targets, observed)
    for _ in range(3):
        labels = method.update(logits, targets, observed, labels)
    return method, [logits, targets, observed], labels


def loss_and_gradient(method: Method, batch: list, labels: State) -> tuple[Tensor, Tensor]:
    logits = batch[0].clone().requires_grad_()
    value = method.loss(
        logits,
        *batch[1:],
        labels,
        schedule=Schedule(epoch=2, epochs=5),
        positives_per_image=1.5,
    )
    value.backward()
    assert logits.grad is not None
    return value.detach(), logits.grad


def test_phi_is_0_in_the_first_epoch_and_below_1_in_the_last() -> None:
    assert [Schedule(epoch, 4).phi for epoch in range(4)] == [0, 0.25, 0.5, 0.75]


def test_cross_entropy_equals_a_double_loop() -> None:
    logits, targets = torch.linspace(-6, 6, 12).view(4, 3), torch.rand(4, 3)
    result = cross_entropy(logits, targets)
    for i in range(4):
        for j in range(3):
            t, p = float(targets[i, j]), 1 / (1 + math.exp(-float(logits[i, j])))
            expected = -t * math.log(p) - (1 - t) * math.log(1 - p)
            assert float(result[i, j]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_cross_entropy_is_fp32_and_finite_at_extreme_logits(dtype: torch.dtype) -> None:
    """Case 40: 1 - p is 0 in half precision from a logit of 8 on, and its logarithm infinite."""
    logits = torch.tensor([[100.0, -100.0, 30.0]], dtype=dtype)
    result = cross_entropy(logits, torch.tensor([[0.0, 1.0, 1.0]], dtype=dtype))
    assert result.dtype == torch.float32
    assert result.tolist() == [[100.0, 100.0, pytest.approx(math.exp(-30))]]


def test_unobserved_entries_give_neither_value_nor_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    targets = torch.tensor([[1.0, math.nan, 0.0]])
    observed = torch.tensor([[True, False, False]])
    result = observed_cross_entropy(logits, targets, observed)
    result.sum().backward()
    assert result.tolist() == [[pytest.approx(math.log(2)), 0, 0]]
    assert logits.grad is not None
    assert logits.grad.tolist() == [[-0.5, 0, 0]]


def test_smoothing_is_applied_on_both_sides() -> None:
    assert smooth(torch.tensor([0.0, 1.0]), 0.1).tolist() == pytest.approx([0.1, 0.9])
    assert smooth(torch.tensor([0.0, 1.0]), 0.0).tolist() == [0.0, 1.0]


def test_expected_positive_penalty_of_a_hand_worked_batch() -> None:
    # p = [.5 .75 .25] and [.75 .5 .5]: counts 1.5 and 1.75, mean 1.625; ((1.625 - 1) / 3)^2.
    log3 = math.log(3)
    logits = torch.tensor([[0, log3, -log3], [log3, 0, 0]])
    assert float(expected_positive_penalty(logits, 1)) == pytest.approx((0.625 / 3) ** 2, rel=1e-6)
    assert float(expected_positive_penalty(logits, 1.625)) == pytest.approx(0, abs=1e-12)


def test_expected_positive_penalty_has_the_scale_of_coco() -> None:
    # As in docs/methods.md: L = 80, k = 2.9, every p = .5: .215; gradient .0029 / B a logit.
    logits = torch.zeros(4, 80, requires_grad=True)
    penalty = expected_positive_penalty(logits, 2.9)
    penalty.backward()
    assert float(penalty.detach()) == pytest.approx(0.215, abs=5e-4)
    assert logits.grad is not None
    assert float(logits.grad[0, 0]) == pytest.approx(0.0029 / 4, abs=5e-5 / 4)


@EVERY_METHOD
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_loss_is_an_fp32_scalar_and_finite_at_extreme_logits(
    name: str, dtype: torch.dtype
) -> None:
    """Case 40."""
    method, batch, labels = a_batch(name)
    batch[0] = torch.where(batch[0] > 0, 100.0, -100.0).to(dtype)
    value, gradient = loss_and_gradient(method, batch, labels)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert gradient.isfinite().all()
    for state in method.update(*batch, labels).values():
        assert state.isfinite().all()


@EVERY_METHOD
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_give_the_loss_of_their_own_values(
    name: str, dtype: torch.dtype
) -> None:
    method, batch, labels = a_batch(name, dtype)
    value, _ = loss_and_gradient(method, batch, labels)
    batch[0] = batch[0].float()
    assert value == loss_and_gradient(method, batch, labels)[0]


@EVERY_METHOD
def test_autocast_changes_neither_loss_nor_state(name: str) -> None:
    method, batch, labels = a_batch(name)
    plain, plain_next = loss_and_gradient(method, batch, labels), method.update(*batch, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, cast_next = loss_and_gradient(method, batch, labels), method.update(*batch, labels)
    assert plain[0] == cast[0]
    assert torch.equal(plain[1], cast[1])
    for key, state in plain_next.items():
        assert state.dtype == cast_next[key].dtype == torch.float32
        assert torch.equal(state, cast_next[key])


@EVERY_METHOD
def test_targets_are_not_read_where_nothing_is_observed(name: str) -> None:
    method, batch, labels = a_batch(name)
    spoilt = [batch[0], torch.where(batch[2], batch[1], math.nan), batch[2]]
    for clean, dirty in zip(
        loss_and_gradient(method, batch, labels),
        loss_and_gradient(method, spoilt, labels),
        strict=True,
    ):
        assert torch.equal(clean, dirty)
    for make in (lambda b: method.initial_state(*b[1:]), lambda b: method.update(*b, labels)):
        for key, state in make(batch).items():
            assert torch.equal(state, make(spoilt)[key])


@EVERY_METHOD
def test_update_leaves_its_arguments_alone_and_keeps_no_graph(name: str) -> None:
    method, batch, labels = a_batch(name)
    batch[0].requires_grad_()
    before = {key: state.clone() for key, state in labels.items()}
    after = method.update(*batch, labels)
    assert after.keys() == before.keys()
    for key, state in labels.items():
        assert torch.equal(state, before[key])
        assert not after[key].requires_grad
        assert after[key].shape == batch[0].shape
