import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, State
from plmcl.methods.role import Role

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
LATENT = [[5.0, 0.3, -0.2], [0.1, -4.0, -1.0]]
TARGETS = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
OBSERVED = [[True, False, False], [False, True, False]]  # 1 ? ? / ? 0 ?
CONTEXT = Context(epoch=0, epochs=1, step=0, learning_rate=1e-3, positives_per_image=1.2)


def make(**changes: float) -> Role:
    fields = {"rate_factor": 10.0, "weight": 1.0, "regulariser_weight": 1.0}
    return Role.model_validate(fields | changes)


def at_rest(latent: Tensor) -> dict[str, Tensor]:
    none = {name: torch.zeros_like(latent) for name in ("moment", "second_moment")}
    return {"latent": latent, **none, "step": torch.zeros(len(latent), 1)}


def a_batch(logits, latent, targets=TARGETS, observed=OBSERVED) -> Batch:
    return Batch(
        torch.as_tensor(logits),
        torch.as_tensor(targets),
        torch.as_tensor(observed),
        at_rest(torch.as_tensor(latent)),
    )


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def cross(target: float, x: float) -> float:
    return -target * math.log(sigmoid(x)) - (1 - target) * math.log(1 - sigmoid(x))


def oracle(logits: list[list[float]], latent: list[list[float]], method: Role) -> float:
    """The loss, whose fixed targets are those of LOGITS and LATENT, whatever moves."""
    total, counts = 0.0, [0.0, 0.0]
    for i in range(2):
        for j in range(3):
            counts[0] += sigmoid(logits[i][j])
            counts[1] += sigmoid(latent[i][j])
            if OBSERVED[i][j]:
                total += 0.5 * cross(TARGETS[i][j], logits[i][j])
                total += 0.5 * cross(TARGETS[i][j], latent[i][j])
            total += 0.5 * method.weight * cross(sigmoid(LATENT[i][j]), logits[i][j])
            total += 0.5 * method.weight * cross(sigmoid(LOGITS[i][j]), latent[i][j])
    penalties = sum(((count / 2 - 1.2) / 3) ** 2 for count in counts)
    return total / 6 + 0.5 * method.regulariser_weight * penalties


# ---------------------------------------------------------------------------- loss


def test_a_hand_worked_image() -> None:
    # p [1/2 3/4], q [3/4 1/2], the first observed as 1; k = 1.25 = both counts.
    # Observed: ln 2 and ln(4/3). Cross terms, q taught by p and p by q:
    #   CE(3/4, 1/2) + CE(1/2, 3/4) = ln 2 + (ln(4/3) + ln 4) / 2, for either label.
    log3 = math.log(3)
    batch = a_batch([[0, log3]], [[log3, 0]], [[1.0, 0.0]], [[True, False]])
    value = make().loss(batch, replace(CONTEXT, positives_per_image=1.25))
    observed = math.log(2) + math.log(4 / 3)
    crossed = 2 * (math.log(2) + (math.log(4 / 3) + math.log(4)) / 2)
    assert float(value) == pytest.approx((observed + crossed) / 2 / 2, rel=1e-6)


@pytest.mark.parametrize(("weight", "regulariser"), [(1.0, 1.0), (0.0, 2.0), (0.4, 0.0)])
def test_it_is_the_double_loop_and_its_finite_differences(
    weight: float, regulariser: float, numeric_gradient
) -> None:
    """The estimates reach the network as its fixed targets and in no other way."""
    method = make(weight=weight, regulariser_weight=regulariser)
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = method.loss(a_batch(logits, LATENT), CONTEXT)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, LATENT, method), rel=1e-5)
    expected = numeric_gradient(lambda table: oracle(table, LATENT, method), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("weight", "regulariser"), [(1.0, 1.0), (0.0, 2.0), (0.4, 0.0)])
def test_the_estimates_go_down_the_gradient_of_the_same_loss(
    weight: float, regulariser: float, numeric_gradient
) -> None:
    method = make(weight=weight, regulariser_weight=regulariser)
    after = method.update(a_batch(LOGITS, LATENT), CONTEXT)
    expected = numeric_gradient(lambda table: oracle(LOGITS, table, method), LATENT)
    torch.testing.assert_close(10 * after["moment"], torch.tensor(expected), atol=1e-6, rtol=1e-4)


def test_an_observed_negative_lowers_its_prediction_and_its_estimate() -> None:
    method = make(weight=0.0, regulariser_weight=0.0)
    logits = torch.zeros(1, 3, requires_grad=True)
    batch = a_batch(logits, torch.zeros(1, 3), [[1.0, 0.0, 0.0]], [[True, True, False]])
    method.loss(batch, CONTEXT).backward()
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([-1 / 12, 1 / 12, 0])
    # The first step of Adam is the learning rate, 10 * .001, against the sign of the gradient.
    after = method.update(replace(batch, logits=torch.zeros(1, 3)), CONTEXT)
    assert after["latent"][0].tolist() == pytest.approx([0.01, -0.01, 0], rel=1e-5)


def test_at_100_percent_known_and_without_cross_terms_it_is_half_of_each_sides_bce() -> None:
    """Case 39, as far as ROLE goes: its cross terms reach observed labels as well."""
    generator = torch.Generator().manual_seed(3)
    logits, latent = 3 * torch.randn(2, 8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    batch = a_batch(logits, latent, targets, torch.ones(8, 20, dtype=torch.bool))
    sides = [functional.binary_cross_entropy_with_logits(z, targets) for z in (logits, latent)]
    value = make(weight=0.0, regulariser_weight=0.0).loss(batch, CONTEXT)
    torch.testing.assert_close(value, sum(sides) / 2)


def test_it_needs_no_observed_negatives() -> None:
    assert not make().needs_negatives


# ---------------------------------------------------------------------------- state


def test_estimates_start_undecided_uniformly_in_their_logit_and_observed_ones_at_their_label() -> (
    None
):
    observed = torch.zeros(4000, 3, dtype=torch.bool)
    observed[:, :2] = True
    targets = torch.tensor([[1.0, 0.0, 1.0]]).expand(4000, 3)
    torch.manual_seed(0)
    start = make().initial_state(targets, observed)
    assert start["latent"][:, 0].sigmoid().unique().tolist() == [pytest.approx(0.995, abs=1e-6)]
    assert start["latent"][:, 1].sigmoid().unique().tolist() == [pytest.approx(0.005, abs=1e-6)]
    chance = start["latent"][:, 2]
    assert 0.4 < float(chance.sigmoid().min()) < 0.401
    assert 0.599 < float(chance.sigmoid().max()) < 0.6
    quarters = torch.quantile(chance, torch.tensor([0.25, 0.5, 0.75])) / math.log(1.5)
    assert quarters.tolist() == pytest.approx([-0.5, 0, 0.5], abs=0.05)
    for name in ("moment", "second_moment", "step"):
        assert (start[name] == 0).all()


class Dense:
    """The reference code's way: all estimates are one parameter of Adam."""

    def __init__(self, latent: Tensor, rate: float) -> None:
        self.latent = torch.nn.Parameter(latent.clone())
        self.optimizer = torch.optim.Adam([self.latent], lr=rate)

    def step(self, rows: Tensor, logits: Tensor, targets: Tensor, observed: Tensor) -> None:
        latent, probs = self.latent[rows], logits.sigmoid()
        known = functional.binary_cross_entropy_with_logits(latent, targets, reduction="none")
        crossed = functional.binary_cross_entropy_with_logits(latent, probs, reduction="none")
        penalty = ((latent.sigmoid().sum(1).mean() - 1.2) / latent.shape[1]) ** 2
        self.optimizer.zero_grad()
        (0.5 * (known * observed + crossed).mean() + 0.5 * penalty).backward()
        self.optimizer.step()


def visit(
    method: Role, store: State, rows: Tensor, step: int, *given: Tensor, rate: float = 1e-3
) -> None:
    """One step as the loop takes it: rows are read, moved and written back."""
    labels = {name: values[rows] for name, values in store.items()}
    context = replace(CONTEXT, step=step, learning_rate=rate)
    for name, values in method.update(Batch(*given, labels), context).items():
        store[name][rows] = values


def test_rows_that_are_left_out_move_as_in_one_dense_adam_parameter() -> None:
    """60 steps over 9 images, of which most are in few batches, and one in none.

    The tolerance is for fp32, and for Adam's eps, which a catch-up holds constant: 1e-8 beside
    root mean squares of some 1e-3.
    """
    generator = torch.Generator().manual_seed(2)
    targets = (torch.rand(9, 4, generator=generator) < 0.4).float()
    observed = torch.rand(9, 4, generator=generator) < 0.3
    method = make()
    torch.manual_seed(4)
    store = dict(method.initial_state(targets, observed))
    start = store["latent"].clone()
    dense = Dense(start, rate=10 * 1e-3)
    share = torch.tensor([0.9, 0.5, 0.5, 0.2, 0.2, 0.1, 0.1, 0.05, 0.0])
    latest = torch.zeros(9, dtype=torch.long)
    for step in range(60):
        rows = torch.nonzero(torch.rand(9, generator=generator) < share)[:, 0]
        if not len(rows):
            rows = torch.tensor([0])
        logits = 2 * torch.randn(len(rows), 4, generator=generator)
        dense.step(rows, logits, targets[rows], observed[rows])
        visit(method, store, rows, step, logits, targets[rows], observed[rows])
        latest[rows] = step
        moved = dense.latent.detach() - start
        lazily = store["latent"] - start
        torch.testing.assert_close(lazily[rows], moved[rows], rtol=1e-4, atol=1e-6)
    assert (59 - latest[:8]).max() > 10
    assert float(moved[:8].abs().max()) > 0.1
    assert torch.equal(store["latent"][8], start[8])


@pytest.mark.parametrize("missed", [1, 30, 250, 1000])
def test_a_long_absence_ends_where_adams_own_steps_end(missed: int) -> None:
    """The loss, too, sees the row after the steps that it missed."""
    targets = observed = torch.zeros(2, 3)
    method, store = make(), dict(at_rest(torch.tensor(LATENT)))
    dense = Dense(store["latent"], rate=10 * 1e-3)
    for step in range(5):
        logits = torch.tensor(LOGITS) + 0.1 * step
        dense.step(torch.arange(2), logits, targets, observed)
        visit(method, store, torch.arange(2), step, logits, targets, observed.bool())
    left = store["latent"].clone()
    for _ in range(missed):
        dense.optimizer.zero_grad(set_to_none=False)
        dense.optimizer.step()
    batch = Batch(torch.tensor(LOGITS), targets, observed.bool(), store)
    now = replace(CONTEXT, step=5 + missed)
    torch.testing.assert_close(
        method.loss(batch, now),
        method.loss(replace(batch, labels=at_rest(dense.latent.detach())), CONTEXT),
        rtol=1e-6,
        atol=0,
    )
    dense.step(torch.arange(2), torch.tensor(LOGITS), targets, observed)
    after = method.update(batch, now)
    moved = dense.latent.detach() - left
    torch.testing.assert_close(after["latent"] - left, moved, rtol=1e-4, atol=1e-6)
    assert (after["step"] == 6 + missed).all()


def test_the_rate_of_the_estimates_is_a_multiple_of_the_networks() -> None:
    batch = a_batch(LOGITS, LATENT)
    moves = [
        make(rate_factor=factor).update(batch, replace(CONTEXT, learning_rate=rate))["latent"]
        - batch.labels["latent"]
        for factor, rate in ((10.0, 1e-2), (1.0, 1e-1), (0.0, 1e-1))
    ]
    torch.testing.assert_close(moves[0], moves[1])
    assert float(moves[0].abs().min()) > 0.09
    assert (moves[2] == 0).all()
