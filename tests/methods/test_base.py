import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plmcl.methods import make_method, method_names
from plmcl.methods.base import (
    Batch,
    Context,
    Method,
    State,
    cross_entropy,
    expected_positive_penalty,
    focal_cross_entropy,
    observed_cross_entropy,
    smooth,
)
from plmcl.params import load_params

SECTIONS = load_params(Path(__file__).parents[2] / "params.yaml").methods
CONTEXT = Context(epoch=2, epochs=5, step=7, learning_rate=1e-2, positives_per_image=1.5)

# Of methods that do more than their section in params.yaml asks for.
CHANGES = [
    ("plmcl", {"warm_up": 1, "from_predictions": True, "bias_correction": True}),
    ("em", {"apl_weight": 0.5, "apl_warmup": 1}),
    ("ll", {"scheme": "reject", "rate": 0.1}),
    ("ll", {"scheme": "permanent", "rate": 0.1}),
    ("splc", {"change_epoch": 3}),
    ("asl", {"negative_focus": 0.0, "clip": 0.0}),
    ("asl", {"negative_focus": 0.5}),
]
CASES = [(name, {}) for name in method_names()] + CHANGES
EVERY_METHOD = pytest.mark.parametrize(
    ("name", "changes"),
    CASES,
    ids=["-".join([name, *map(str, changes.values())]) for name, changes in CASES],
)


def a_batch(name: str, changes: dict, dtype: torch.dtype = torch.float32) -> tuple[Method, Batch]:
    """Six images, five labels; a third observed; state that three epochs have already moved."""
    method = make_method(name, {name: SECTIONS[name] | changes})
    generator = torch.Generator().manual_seed(7)

    def some_logits(*shape: int) -> Tensor:
        return (4 * torch.randn(*shape, generator=generator)).to(dtype)

    targets = (torch.rand(6, 5, generator=generator) < 0.4).float()
    observed = torch.rand(6, 5, generator=generator) < 0.35
    batch = Batch(
        logits=some_logits(6, 5),
        targets=targets,
        observed=observed,
        labels=initial_state(method, targets, observed),
        strong=some_logits(6, 5) if method.needs_strong_view else None,
        passes=some_logits(method.dropout_passes, 6, 5) if method.dropout_passes else None,
    )
    for epoch in range(3):
        # Two steps an epoch: a state may have missed some.
        context = replace(CONTEXT, epoch=epoch, step=2 * epoch)
        batch = replace(batch, labels=method.update(batch, context))
        batch = replace(batch, labels=method.end_epoch(targets, observed, batch.labels, context))
    return method, batch


def initial_state(method: Method, targets: Tensor, observed: Tensor) -> State:
    """It may draw from torch's own generator."""
    torch.manual_seed(7)
    return method.initial_state(targets, observed)


def map_logits(batch: Batch, change) -> Batch:
    """The batch with all of its logits changed."""
    names = [name for name in ("logits", "strong", "passes") if getattr(batch, name) is not None]
    return replace(batch, **{name: change(getattr(batch, name)) for name in names})


def loss_and_gradients(method: Method, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    """The loss, and its gradient for each tensor of logits that may carry one."""
    batch = map_logits(batch, lambda logits: logits.clone().requires_grad_())
    value = method.loss(batch, CONTEXT)
    value.backward()
    assert batch.passes is None or batch.passes.grad is None
    leaves = [batch.logits] if batch.strong is None else [batch.logits, batch.strong]
    gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
    assert len(gradients) == len(leaves)
    return value.detach(), gradients


def assert_same(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert values.dtype == other[name].dtype == torch.float32
        assert torch.equal(values, other[name])


def test_phi_is_0_in_the_first_epoch_and_below_1_in_the_last() -> None:
    contexts = [replace(CONTEXT, epoch=epoch, epochs=4) for epoch in range(4)]
    assert [context.phi for context in contexts] == [0, 0.25, 0.5, 0.75]


def test_cross_entropy_equals_a_double_loop() -> None:
    targets = torch.linspace(0, 1, 12).view(3, 4).T
    logits = torch.linspace(-6, 6, 12).view(4, 3)
    result = cross_entropy(logits, targets)
    for i in range(4):
        for j in range(3):
            t, p = float(targets[i, j]), 1 / (1 + math.exp(-float(logits[i, j])))
            expected = -t * math.log(p) - (1 - t) * math.log(1 - p)
            assert float(result[i, j]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


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


@pytest.mark.parametrize("focus", [0.0, 0.5, 2.0])
def test_focal_cross_entropy_equals_a_double_loop_and_is_finite_with_its_gradient(
    focus: float,
) -> None:
    logits = torch.linspace(-6, 6, 12).view(4, 3)
    result = focal_cross_entropy(logits, focus)
    for i in range(4):
        for j in range(3):
            p = 1 / (1 + math.exp(-float(logits[i, j])))
            expected = -((1 - p) ** focus) * math.log(p)
            assert float(result[i, j]) == pytest.approx(expected, rel=1e-4)
    extreme = torch.tensor([-100.0, 100.0], dtype=torch.float16, requires_grad=True)
    focal_cross_entropy(extreme, focus).sum().backward()
    assert extreme.grad is not None
    assert extreme.grad.isfinite().all()


def test_what_is_not_observed_is_assumed_negative_and_its_target_unread() -> None:
    targets = torch.tensor([[1.0, math.nan, 0.0]])
    batch = Batch(torch.zeros(1, 3), targets, torch.tensor([[True, False, True]]))
    assert batch.assumed.tolist() == [[1, 0, 0]]


def test_smoothing_is_applied_on_both_sides() -> None:
    assert smooth(torch.tensor([0.0, 1.0]), 0.1).tolist() == pytest.approx([0.1, 0.9])
    assert smooth(torch.tensor([0.0, 1.0]), 0.0).tolist() == [0.0, 1.0]


def test_expected_positive_penalty_of_a_hand_worked_batch() -> None:
    # p = [.5 .75 .25] and [.75 .5 .5]: counts 1.5 and 1.75, mean 1.625; ((1.625 - 1) / 3)^2.
    log3 = math.log(3)
    logits = torch.tensor([[0, log3, -log3], [log3, 0, 0]])
    one, mean = (replace(CONTEXT, positives_per_image=k) for k in (1, 1.625))
    assert float(expected_positive_penalty(logits, one)) == pytest.approx((0.625 / 3) ** 2)
    assert float(expected_positive_penalty(logits, mean)) == pytest.approx(0, abs=1e-12)


def test_expected_positive_penalty_has_the_scale_of_coco() -> None:
    # As in docs/methods.md: L = 80, k = 2.9, every p = .5: .215; gradient .0029 / B a logit.
    logits = torch.zeros(4, 80, requires_grad=True)
    penalty = expected_positive_penalty(logits, replace(CONTEXT, positives_per_image=2.9))
    penalty.backward()
    assert float(penalty.detach()) == pytest.approx(0.215, abs=5e-4)
    assert logits.grad is not None
    assert float(logits.grad[0, 0]) == pytest.approx(0.0029 / 4, abs=5e-5 / 4)


@EVERY_METHOD
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_loss_is_an_fp32_scalar_and_finite_at_extreme_logits(
    name: str, changes: dict, dtype: torch.dtype
) -> None:
    """Case 40."""
    method, batch = a_batch(name, changes)
    batch = map_logits(batch, lambda z: torch.where(z > 0, 100.0, -100.0).to(dtype))
    value, gradients = loss_and_gradients(method, batch)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    for state in method.update(batch, CONTEXT).values():
        assert state.isfinite().all()


@EVERY_METHOD
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_give_the_loss_and_state_of_their_own_values(
    name: str, changes: dict, dtype: torch.dtype
) -> None:
    method, batch = a_batch(name, changes, dtype)
    exact = map_logits(batch, Tensor.float)
    assert loss_and_gradients(method, batch)[0] == loss_and_gradients(method, exact)[0]
    assert_same(method.update(batch, CONTEXT), method.update(exact, CONTEXT))


@EVERY_METHOD
def test_autocast_changes_neither_loss_nor_state(name: str, changes: dict) -> None:
    method, batch = a_batch(name, changes)
    plain, plain_next = loss_and_gradients(method, batch), method.update(batch, CONTEXT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, cast_next = loss_and_gradients(method, batch), method.update(batch, CONTEXT)
    assert plain[0] == cast[0]
    for one, other in zip(plain[1], cast[1], strict=True):
        assert torch.equal(one, other)
    assert_same(plain_next, cast_next)


@EVERY_METHOD
def test_targets_are_not_read_where_nothing_is_observed(name: str, changes: dict) -> None:
    method, batch = a_batch(name, changes)
    spoilt = replace(batch, targets=torch.where(batch.observed, batch.targets, math.nan))
    (value, gradients), (other_value, other_gradients) = (
        loss_and_gradients(method, b) for b in (batch, spoilt)
    )
    assert value == other_value
    for one, other in zip(gradients, other_gradients, strict=True):
        assert torch.equal(one, other)
    for state_of in (
        lambda b: initial_state(method, b.targets, b.observed),
        lambda b: method.update(b, CONTEXT),
        lambda b: method.end_epoch(b.targets, b.observed, b.labels, CONTEXT),
    ):
        assert_same(state_of(batch), state_of(spoilt))


@EVERY_METHOD
def test_a_state_is_one_fp32_tensor_a_name_with_rows_of_its_own(name: str, changes: dict) -> None:
    method, batch = a_batch(name, changes)
    start = initial_state(method, batch.targets, batch.observed)
    assert start.keys() == batch.labels.keys()
    for values in start.values():
        assert values.dtype == torch.float32
        assert values.shape in {(6, 5), (6, 1)}
        assert values.isfinite().all()
    # The store writes rows in place.
    assert len({values.data_ptr() for values in start.values()}) == len(start)


@EVERY_METHOD
@pytest.mark.parametrize("called", ["update", "end_epoch"])
def test_the_next_state_has_the_form_of_the_last_which_is_left_alone(
    name: str, changes: dict, called: str
) -> None:
    method, batch = a_batch(name, changes)
    batch = map_logits(batch, lambda logits: logits.requires_grad_())
    before = {key: values.clone() for key, values in batch.labels.items()}
    targets, observed = batch.targets.clone(), batch.observed.clone()
    if called == "update":
        after = method.update(batch, CONTEXT)
    else:
        after = method.end_epoch(batch.targets, batch.observed, batch.labels, CONTEXT)
    assert torch.equal(batch.targets, targets)
    assert torch.equal(batch.observed, observed)
    assert_same(batch.labels, before)
    assert after.keys() == before.keys()
    for key, values in after.items():
        assert values.shape == before[key].shape
        assert values.dtype == torch.float32
        assert values.isfinite().all()
        assert not values.requires_grad


@EVERY_METHOD
def test_heads_in_closed_form_are_finite_fp32_and_blind_to_what_is_not_observed(
    name: str, changes: dict
) -> None:
    method, batch = a_batch(name, changes)
    features = torch.randn(6, 7, generator=torch.Generator().manual_seed(7))
    before = features.clone()
    unknown = torch.where(batch.observed, batch.targets, math.nan)
    heads, others = (
        list(method.solve(features, [3, 4], Batch(torch.empty(0), targets, batch.observed), 1.5))
        for targets in (batch.targets, unknown)
    )
    assert bool(heads) == method.solves
    assert len({head.name for head in heads}) == len(heads)
    for head, other in zip(heads, others, strict=True):
        assert head.weight.shape == (5, 7)
        assert head.bias.shape == (5,)
        for values in (head.weight, head.bias):
            assert values.dtype == torch.float32
            assert values.isfinite().all()
        assert torch.equal(head.weight, other.weight)
        assert torch.equal(head.bias, other.bias)
    assert torch.equal(features, before)
