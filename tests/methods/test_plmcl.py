import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, State, expected_positive_penalty
from plmcl.methods.epr import ExpectedPositive
from plmcl.methods.plmcl import Plmcl, curriculum_weight, self_guided_factor

LOG3 = math.log(3)
OBSERVED_LATENT = math.log(199)  # logit(.995)

# The hand-worked table; p = sigmoid(logits), y = sigmoid(latent), label (0, 0) observed as 1:
#   p  [1/2  3/4  1/4]    y  [(1)  1/2  3/4]
#      [3/4  1/2  1/2]       [1/2  1/4  1/2]
LOGITS = [[0.0, LOG3, -LOG3], [LOG3, 0.0, 0.0]]
TARGETS = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
OBSERVED = [[True, False, False], [False, False, False]]
LATENT = [[OBSERVED_LATENT, 0.0, LOG3], [0.0, -LOG3, 0.0]]

# phi = 1/2, k = 1.
CONTEXT = Context(epoch=2, epochs=4, step=0, learning_rate=1e-3, positives_per_image=1.0)


def make(**changes: object) -> Plmcl:
    fields: dict[str, object] = {
        "alpha": 10.0,
        "momentum": 0.7,
        "sharpness": 4.0,
        "order": 2.0,
        "unobserved_weight": 0.6,
        "curriculum": True,
        "regulariser_weight": 1.0,
        "cs_order": "prediction_as_target",
        "cs_mean": False,
        "unobserved_order": "pseudo_label_as_target",
        "warm_up": 0,
        "from_predictions": False,
        "bias_correction": False,
    }
    return Plmcl.model_validate(fields | changes)


def state(latent: list[list[float]] = LATENT) -> dict[str, Tensor]:
    return {"latent": torch.tensor(latent), "velocity": torch.zeros(len(latent), len(latent[0]))}


def batch() -> tuple[Tensor, Tensor, Tensor]:
    return torch.tensor(LOGITS), torch.tensor(TARGETS), torch.tensor(OBSERVED)


def loss(method: Plmcl, logits: Tensor, *, phi: float = 0.5, k: float = 1.0) -> Tensor:
    context = replace(CONTEXT, epoch=round(4 * phi), positives_per_image=k)
    return method.loss(Batch(logits, *batch()[1:], state()), context)


def update(method: Plmcl, *batch: Tensor | State) -> State:
    return method.update(Batch(*batch), CONTEXT)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def oracle_loss(logits: list[list[float]], method: Plmcl, *, phi: float, k: float) -> float:
    entries, count = 0.0, 0.0
    for i in range(2):
        for j in range(3):
            p, y = sigmoid(logits[i][j]), sigmoid(LATENT[i][j])
            count += p
            if OBSERVED[i][j]:
                entries += -math.log(p if TARGETS[i][j] == 1 else 1 - p)
                continue
            decay = (1 - phi) * math.exp(-10 * abs(2 * y - 1))
            xi = method.unobserved_weight * (1 - decay) / (1 + decay)
            target, value = (y, p) if method.unobserved_order[:2] == "ps" else (p, y)
            entries += xi * (-target * math.log(value) - (1 - target) * math.log(1 - value))
    return entries / 6 + method.regulariser_weight * ((count / 2 - k) / 3) ** 2


def consistency_loss(latent: list[list[float]], method: Plmcl) -> float:
    """Eq. 1 of the first image, without its 1/L, in the order that `cs_order` names."""
    total = 0.0
    for j in range(3):
        p, y = sigmoid(LOGITS[0][j]), sigmoid(latent[0][j])
        target, value = (p, y) if method.cs_order[:2] == "pr" else (y, p)
        total += -target * math.log(value) - (1 - target) * math.log(1 - value)
    return total


# ---------------------------------------------------------------------------- psi and xi


def test_psi_has_the_values_of_the_table() -> None:
    confidence = torch.tensor([0, 0.2, 0.4, 0.5, 0.6, 0.8, 0.9, 1])
    expected = [1, 0.852, 0.527, 0.368, 0.237, 0.077, 0.039, 0.0183]
    for pseudo_labels in ((1 + confidence) / 2, (1 - confidence) / 2):
        psi = self_guided_factor(pseudo_labels, alpha=1.0, sharpness=4.0, order=2.0)
        assert psi.tolist() == pytest.approx(expected, abs=5e-4)
    doubled = self_guided_factor(confidence, alpha=2.0, sharpness=4.0, order=2.0)
    single = self_guided_factor(confidence, alpha=1.0, sharpness=4.0, order=2.0)
    assert torch.equal(doubled, 2 * single)


def test_psi_with_another_order_and_sharpness() -> None:
    psi = self_guided_factor(torch.tensor([0.75]), alpha=3.0, sharpness=2.0, order=3.0)
    assert float(psi) == pytest.approx(3 * math.exp(-2 * 0.125), rel=1e-6)
    flat = self_guided_factor(torch.tensor([0.0, 0.3, 1.0]), alpha=3.0, sharpness=0.0, order=2.0)
    assert flat.tolist() == [3, 3, 3]


XI_TABLE = {
    0: [0, 0.147, 0.277, 0.457, 0.543, 0.592, 0.59995],
    0.25: [0.0857, 0.225, 0.341, 0.489, 0.557, 0.594, 0.600],
    0.5: [0.200, 0.321, 0.414, 0.524, 0.571, 0.596, 0.600],
    0.75: [0.360, 0.442, 0.499, 0.561, 0.585, 0.598, 0.600],
    0.9: [0.491, 0.531, 0.557, 0.584, 0.594, 0.599, 0.600],
    1: [0.6] * 7,
}


@pytest.mark.parametrize("phi", XI_TABLE)
def test_xi_has_the_values_of_the_table(phi: float) -> None:
    confidence = torch.tensor([0, 0.05, 0.1, 0.2, 0.3, 0.5, 1])
    for pseudo_labels in ((1 + confidence) / 2, (1 - confidence) / 2):
        xi = curriculum_weight(pseudo_labels, phi, unobserved_weight=0.6)
        assert xi.tolist() == pytest.approx(XI_TABLE[phi], abs=5e-4)


def test_xi_is_a_hyperbolic_tangent_of_the_confidence() -> None:
    pseudo_labels = torch.linspace(0, 1, 101, dtype=torch.float64)
    confidence = (2 * pseudo_labels - 1).abs()
    for phi in (0.0, 0.3, 0.97):
        xi = curriculum_weight(pseudo_labels, phi, unobserved_weight=0.6)
        closed = 0.6 * torch.tanh(5 * confidence - 0.5 * math.log(1 - phi))
        torch.testing.assert_close(xi, closed, atol=1e-15, rtol=0)


@pytest.mark.parametrize("phi", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_xi_of_an_undecided_label_rises_from_0_to_beta_2(phi: float) -> None:
    xi = curriculum_weight(torch.tensor(0.5), phi, unobserved_weight=0.6)
    assert float(xi) == pytest.approx(0.6 * phi / (2 - phi), rel=1e-6)


# ---------------------------------------------------------------------------- state


def test_pseudo_labels_start_undecided_and_observed_ones_at_their_own_label() -> None:
    targets = torch.tensor([[1.0, 0.0, 1.0]])
    start = make().initial_state(targets, torch.tensor([[True, True, False]]))
    assert start["latent"].sigmoid().tolist() == [pytest.approx([0.995, 0.005, 0.5], abs=1e-6)]
    assert start["velocity"].tolist() == [[0, 0, 0]]
    assert start["latent"].dtype == start["velocity"].dtype == torch.float32


def test_two_visits_of_the_hand_worked_table() -> None:
    # y - p      [ .   -1/4   1/2]    m = .3 (y - p)  [ .    -.075  .15 ]
    #            [-1/4 -1/4    0 ]                    [-.075 -.075  0   ]
    # psi        10 at y = 1/2; 10 / e at y = 1/4 and 3/4 (c = 1/2, 4 c^2 = 1)
    near = 10 / math.e
    first = [[OBSERVED_LATENT, 0.75, LOG3 - 0.15 * near], [0.75, -LOG3 + 0.075 * near, 0.0]]
    velocity = [[0.0, -0.075, 0.15], [-0.075, -0.075, 0.0]]
    after = update(make(), *batch(), state())
    torch.testing.assert_close(after["latent"], torch.tensor(first))
    torch.testing.assert_close(after["velocity"], torch.tensor(velocity))
    # The second visit, entry (0, 1): y = sigmoid(.75) = .6791787, y - p = -.0708213,
    # m = .7 * -.075 + .3 * -.0708213 = -.0737464; c = .3583574, psi = 10 exp(-4 c^2) = 5.9830
    after = update(make(), *batch(), after)
    assert float(after["velocity"][0, 1]) == pytest.approx(-0.0737464, abs=1e-6)
    assert float(after["latent"][0, 1]) == pytest.approx(0.75 + 5.98297 * 0.0737464, abs=1e-5)
    # Entry (1, 2) stands at its minimum, and nothing pushes it.
    assert after["latent"][1, 2] == after["velocity"][1, 2] == 0


def test_momentum_carries_on_where_the_gradient_is_0() -> None:
    labels = {"latent": torch.zeros(2, 3), "velocity": torch.full((2, 3), -0.1)}
    after = update(make(), torch.zeros(2, 3), *batch()[1:], labels)
    assert float(after["velocity"][1, 2]) == pytest.approx(-0.07, abs=1e-7)
    assert float(after["latent"][1, 2]) == pytest.approx(0.7, abs=1e-6)


@pytest.mark.parametrize("order", ["prediction_as_target", "pseudo_label_as_target"])
def test_the_step_follows_the_gradient_of_eq_1_in_either_order(
    order: str, numeric_gradient
) -> None:
    # Without momentum and psi the step is alpha times the gradient.
    method = make(cs_order=order, momentum=0.0, sharpness=0.0, alpha=2.0)
    expected = numeric_gradient(lambda table: consistency_loss(table, method), LATENT[:1])[0]
    after = update(method, *batch(), state())
    step = (torch.tensor(LATENT[0]) - after["latent"][0]) / 2
    assert step[1:].tolist() == pytest.approx(expected[1:], abs=1e-6)
    assert step[0] == 0


@pytest.mark.parametrize("order", ["prediction_as_target", "pseudo_label_as_target"])
def test_cs_mean_divides_the_gradient_by_the_number_of_labels(order: str) -> None:
    literal = update(make(cs_order=order, cs_mean=True, alpha=30.0), *batch(), state())
    default = update(make(cs_order=order, cs_mean=False, alpha=10.0), *batch(), state())
    torch.testing.assert_close(literal["latent"], default["latent"])
    torch.testing.assert_close(3 * literal["velocity"], default["velocity"])


def test_the_other_order_has_no_rest_at_the_prediction_and_polarises() -> None:
    logits = torch.tensor([[0.4, -0.4, 0.0]])
    nothing = torch.zeros(1, 3)
    method = make(cs_order="pseudo_label_as_target", sharpness=0.0)
    labels = method.initial_state(nothing, nothing.bool())
    for _ in range(300):
        labels = update(method, logits, nothing, nothing.bool(), labels)
    assert labels["latent"].sigmoid().tolist() == [pytest.approx([1, 0, 0.5], abs=1e-2)]


# Final pseudo label after 10 and 30 visits at a constant prediction, from 0.5; those after 10
# are in docs/methods-plmcl.md.
PREDICTIONS = [0.02, 0.1, 0.3, 0.6, 0.9]
VISITS_TABLE = {
    1 / 80: ([0.488, 0.490, 0.495, 0.502, 0.510], [0.460, 0.467, 0.483, 0.508, 0.533]),
    1 / 20: ([0.455, 0.463, 0.481, 0.509, 0.537], [0.370, 0.389, 0.441, 0.530, 0.611]),
    0.5: ([0.259, 0.283, 0.369, 0.570, 0.717], [0.171, 0.197, 0.310, 0.600, 0.803]),
    1.0: ([0.198, 0.221, 0.318, 0.602, 0.779], [0.132, 0.160, 0.299, 0.600, 0.840]),
    2.0: ([0.150, 0.173, 0.283, 0.616, 0.827], [0.101, 0.132, 0.301, 0.600, 0.868]),
    5.0: ([0.103, 0.128, 0.289, 0.585, 0.872], [0.069, 0.108, 0.301, 0.600, 0.892]),
    10.0: ([0.076, 0.105, 0.328, 0.615, 0.895], [0.051, 0.100, 0.301, 0.600, 0.900]),
}


def visit(method: Plmcl, logits: Tensor, visits: int) -> list[float]:
    nothing = torch.zeros_like(logits)
    labels = method.initial_state(nothing, nothing.bool())
    for _ in range(visits):
        labels = update(method, logits, nothing, nothing.bool(), labels)
    return [round(value, 3) for value in labels["latent"].sigmoid()[0].tolist()]


@pytest.mark.parametrize("alpha", VISITS_TABLE)
def test_visits_at_a_constant_prediction_end_where_the_table_says(alpha: float) -> None:
    logits = torch.tensor([PREDICTIONS]).logit()
    assert visit(make(alpha=alpha), logits, 10) == VISITS_TABLE[alpha][0]
    assert visit(make(alpha=alpha), logits, 30) == VISITS_TABLE[alpha][1]


@pytest.mark.parametrize("num_labels", [20, 80])
def test_the_literal_mean_with_alpha_1_hardly_leaves_one_half(num_labels: int) -> None:
    logits = torch.tensor([PREDICTIONS * (num_labels // 5)]).logit()
    after = visit(make(alpha=1.0, cs_mean=True), logits, 30)
    assert after == VISITS_TABLE[1 / num_labels][1] * (num_labels // 5)


def test_alpha_0_freezes_the_pseudo_labels() -> None:
    method = make(alpha=0.0)
    logits, targets, observed = batch()
    labels = method.initial_state(targets, observed)
    for _ in range(3):
        labels = update(method, logits, targets, observed, labels)
    assert torch.equal(labels["latent"], method.initial_state(targets, observed)["latent"])


def test_observed_entries_never_move() -> None:
    generator = torch.Generator().manual_seed(1)
    targets = (torch.rand(8, 6, generator=generator) < 0.5).float()
    observed = torch.rand(8, 6, generator=generator) < 0.5
    method = make(alpha=20.0)
    start = labels = method.initial_state(targets, observed)
    for _ in range(20):
        logits = 5 * torch.randn(8, 6, generator=generator)
        labels = update(method, logits, targets, observed, labels)
        assert torch.equal(labels["latent"][observed], start["latent"][observed])
        assert (labels["velocity"][observed] == 0).all()
    assert (labels["latent"][~observed] != 0).all()


def test_an_entry_that_was_labeled_meanwhile_takes_its_label() -> None:
    logits, targets, observed = batch()
    method = make()
    labels = update(method, logits, targets, observed, state())
    observed[1, 0] = observed[0, 1] = True
    targets[0, 1] = 1.0
    after = update(method, logits, targets, observed, labels)
    assert after["latent"][1, 0].sigmoid() == pytest.approx(0.005, abs=1e-6)
    assert after["latent"][0, 1].sigmoid() == pytest.approx(0.995, abs=1e-6)
    assert after["velocity"][1, 0] == after["velocity"][0, 1] == 0


# ---------------------------------------------------------------------------- loss


def test_the_loss_of_the_hand_worked_table() -> None:
    # phi = .5, so g = .5: xi = .6 * .5 / 1.5 = .2 at y = 1/2, and at y = 1/4 and 3/4 (c = 1/2)
    # xi = .6 (1 - .5 e^-5) / (1 + .5 e^-5) = .5959708.
    # cross entropy of p against y (target):
    #   [ln 2       .8369882  1.1116413]   (1/2, 3/4), (3/4, 1/4)
    #   [.8369882   ln 2      ln 2     ]   (1/2, 3/4), (1/4, 1/2), (1/2, 1/2)
    # .6931472 + .2 * (.8369882 + .8369882 + .6931472) + .5959708 * (1.1116413 + .6931472)
    # = 2.2421731; / 6 = .3736955; R_1 = 25/576 = .0434028
    assert float(loss(make(), torch.tensor(LOGITS))) == pytest.approx(0.4170983, abs=1e-6)


@pytest.mark.parametrize("order", ["pseudo_label_as_target", "prediction_as_target"])
@pytest.mark.parametrize(("phi", "weight"), [(0.0, 1.0), (0.5, 0.0), (0.75, 2.5)])
def test_it_is_the_double_loop_and_its_finite_differences(
    order: str, phi: float, weight: float, numeric_gradient
) -> None:
    method = make(unobserved_order=order, regulariser_weight=weight)
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(method, logits, phi=phi, k=1.2)
    value.backward()
    assert float(value.detach()) == pytest.approx(
        oracle_loss(LOGITS, method, phi=phi, k=1.2), rel=1e-6
    )
    expected = numeric_gradient(lambda table: oracle_loss(table, method, phi=phi, k=1.2), LOGITS)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("order", "per_entry"),
    [
        ("pseudo_label_as_target", lambda p, y: p - y),
        ("prediction_as_target", lambda p, y: -p * (1 - p) * torch.logit(y)),
    ],
)
def test_the_pull_on_an_unobserved_logit_in_either_order(order: str, per_entry) -> None:
    """yhat - y_u read as usual, -yhat (1 - yhat) logit(y_u) literally: docs/methods-plmcl.md."""
    method = make(unobserved_order=order, regulariser_weight=0.0)
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss(method, logits).backward()
    probs, pseudo_labels = torch.tensor(LOGITS).sigmoid(), torch.tensor(LATENT).sigmoid()
    xi = curriculum_weight(pseudo_labels, 0.5, unobserved_weight=0.6)
    expected = xi * per_entry(probs, pseudo_labels) / 6
    unobserved = ~torch.tensor(OBSERVED)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[unobserved], expected[unobserved])


def test_undecided_pseudo_labels_are_silent_in_the_first_epoch() -> None:
    """xi = 0 at phi = 0 and y = 1/2: only the observed entry and R_k teach."""
    logits, targets, observed = batch()
    logits.requires_grad_()
    method = make(regulariser_weight=0.0)
    start = method.initial_state(targets, observed)
    value = method.loss(Batch(logits, targets, observed, start), replace(CONTEXT, epoch=0))
    value.backward()
    assert float(value.detach()) == pytest.approx(math.log(2) / 6, rel=1e-6)
    assert logits.grad is not None
    assert (logits.grad[~observed] == 0).all()


def test_the_loss_reads_the_pseudo_labels_from_before_the_update() -> None:
    logits, targets, observed = batch()
    method = make()
    old = state()
    before = method.loss(Batch(logits, targets, observed, old), CONTEXT)
    new = update(method, logits, targets, observed, old)
    assert method.loss(Batch(logits, targets, observed, old), CONTEXT) == before
    assert method.loss(Batch(logits, targets, observed, new), CONTEXT) != before


@pytest.mark.parametrize("order", ["pseudo_label_as_target", "prediction_as_target"])
def test_at_100_percent_known_it_is_bce_plus_the_regulariser(order: str) -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(8, 20, generator=generator)
    targets = (torch.rand(8, 20, generator=generator) < 0.3).float()
    observed = torch.ones(8, 20, dtype=torch.bool)
    method = make(unobserved_order=order)
    known = Batch(logits, targets, observed, method.initial_state(targets, observed))
    context = replace(CONTEXT, epoch=3, positives_per_image=6.0)
    value = method.loss(known, context)
    expected = functional.binary_cross_entropy_with_logits(logits, targets)
    torch.testing.assert_close(value, expected + expected_positive_penalty(logits, context))


def test_it_needs_no_observed_negatives() -> None:
    assert not make().needs_negatives


def at(epoch):
    return Context(epoch=epoch, epochs=10, step=0, learning_rate=1e-3, positives_per_image=1.5)


def warm_batch(method):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4, 3, generator=generator)
    observed = torch.rand(4, 3, generator=generator) < 0.3
    targets = observed.float()
    return Batch(logits, targets, observed, method.initial_state(targets, observed))


def test_while_it_warms_up_it_is_epr_and_the_labels_stand_still():
    method = make(warm_up=2)
    batch = warm_batch(method)
    for epoch in (0, 1):
        assert method.loss(batch, at(epoch)) == ExpectedPositive(weight=1.0).loss(batch, at(epoch))
        assert method.update(batch, at(epoch)) == batch.labels


@pytest.mark.parametrize("warm_up", [0, 2])
def test_afterwards_it_is_the_papers_method(warm_up):
    method, paper = make(warm_up=warm_up), make()
    batch = warm_batch(method)
    assert method.loss(batch, at(warm_up)) == paper.loss(batch, at(warm_up))
    after, expected = method.update(batch, at(warm_up)), paper.update(batch, at(warm_up))
    for name, values in expected.items():
        assert torch.equal(after[name], values)


def test_pseudo_labels_start_where_the_network_stands_and_are_cut_at_an_observed_ones_height():
    method = make(warm_up=2, from_predictions=True)
    logits = torch.tensor([[0.5, -9.0, 2.0]])
    observed = torch.tensor([[False, False, True]])
    targets = observed.float()
    batch = Batch(logits, targets, observed, method.initial_state(targets, observed))
    after = method.update(batch, at(2))
    assert after["latent"][0, :2].tolist() == pytest.approx([0.5, -math.log(199)])
    assert float(after["latent"][0, 2]) == pytest.approx(math.log(199))
    assert (after["velocity"] == 0).all()
    # From then on as in the paper: y = sigmoid(.5), p = sigmoid(2): m = .3 (y - p), y - psi m.
    moved = Batch(torch.tensor([[2.0, -9.0, 2.0]]), targets, observed, after)
    y, p = 1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(-2))
    psi = 10 * math.exp(-4 * (2 * y - 1) ** 2)
    later = method.update(moved, at(3))
    assert float(later["latent"][0, 0]) == pytest.approx(0.5 - psi * 0.3 * (y - p), rel=1e-5)


def test_bias_correction_makes_the_first_step_whole_and_fades():
    plain, corrected = make(warm_up=2), make(warm_up=2, bias_correction=True)
    batch = warm_batch(plain)
    for epoch, factor in ((2, 1 / 0.3), (3, 1 / (1 - 0.49)), (9, 1 / (1 - 0.7**8))):
        steps = [method.update(batch, at(epoch))["latent"] for method in (plain, corrected)]
        moved = [step - batch.labels["latent"] for step in steps]
        torch.testing.assert_close(moved[1], factor * moved[0])


def test_without_the_curriculum_every_unobserved_entry_weighs_beta_2():
    """Constant 0.6 where xi would be 0: at phi = 0 and an undecided pseudo label."""
    logits = torch.zeros(1, 1)
    nothing = torch.zeros(1, 1)
    for curriculum, weight in ((True, 0.0), (False, 0.6)):
        method = make(curriculum=curriculum, regulariser_weight=0.0)
        labels = method.initial_state(nothing, nothing.bool())
        value = method.loss(Batch(logits, nothing, nothing.bool(), labels), at(0))
        assert float(value) == pytest.approx(weight * math.log(2))
