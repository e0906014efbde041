import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmcl.methods.base import Batch, Context, State
from plmcl.methods.em import EntropyMaximisation

LOGITS = [[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]]
TARGETS = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
OBSERVED = [[True, False, False], [False, True, False]]  # 1 ? ? / ? 0 ?
PSEUDO_LABEL = [[0.9, 0.1, 0.2], [0.3, 0.6, 0.4]]
ASSIGNED = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
CONTEXT = Context(0, 10, 0, 1e-3, 1.0)


def make(**changes: float) -> EntropyMaximisation:
    fields = {"entropy_weight": 0.2, "apl_weight": 0.0, "apl_warmup": 5, "apl_share": 0.9}
    return EntropyMaximisation.model_validate(fields | changes)


def loss(method: EntropyMaximisation, logits, targets=TARGETS, observed=OBSERVED) -> Tensor:
    labels = {"pseudo_label": torch.tensor(PSEUDO_LABEL), "assigned": torch.tensor(ASSIGNED)}
    batch = Batch(
        torch.as_tensor(logits),
        torch.as_tensor(targets),
        torch.as_tensor(observed),
        labels if method.apl_weight else {},
    )
    return method.loss(batch, CONTEXT)


def oracle(logits: list[list[float]], method: EntropyMaximisation) -> float:
    total = 0.0
    for i in range(2):
        for j in range(3):
            p = 1 / (1 + math.exp(-logits[i][j]))
            if OBSERVED[i][j]:
                total += -math.log(p if TARGETS[i][j] == 1 else 1 - p)
            elif method.apl_weight and ASSIGNED[i][j]:
                soft = PSEUDO_LABEL[i][j]
                entry = -soft * math.log(p) - (1 - soft) * math.log(1 - p)
                total += method.apl_weight * entry
            else:
                entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
                total -= method.entropy_weight * entropy
    return total / 6


# ---------------------------------------------------------------------------- loss


def test_a_hand_worked_table() -> None:
    # p: [1/2  3/4  .]  [1 ? ]: ln 2, and H(3/4) = 3/4 ln(4/3) + 1/4 ln 4 = ln 4 - 3/4 ln 3.
    value = loss(make(), [[0, math.log(3)]], [[1.0, 0.0]], [[True, False]])
    expected = (math.log(2) - 0.2 * (math.log(4) - 0.75 * math.log(3))) / 2
    assert float(value) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weights", [(0.2, 0.0), (0.0, 0.9), (0.1, 0.4)])
def test_it_is_the_double_loop_and_its_finite_differences(
    weights: tuple[float, float], numeric_gradient
) -> None:
    method = make(entropy_weight=weights[0], apl_weight=weights[1])
    logits = torch.tensor(LOGITS, requires_grad=True)
    value = loss(method, logits)
    value.backward()
    assert float(value.detach()) == pytest.approx(oracle(LOGITS, method), rel=1e-5)
    expected = numeric_gradient(lambda table: oracle(table, method), LOGITS)
    torch.testing.assert_close(logits.grad, torch.tensor(expected), atol=1e-6, rtol=0)


def test_the_entropy_pulls_every_unobserved_logit_to_0() -> None:
    """The gradient of the publication: a p (1 - p) z, which is 0 at z = 0 and for large z."""
    logits = torch.tensor([[-30.0, -2.0, -0.5, 0.0, 0.5, 2.0, 30.0]], requires_grad=True)
    nothing = torch.zeros(1, 7)
    loss(make(), logits, nothing, nothing.bool()).backward()
    probs = logits.detach().sigmoid()
    expected = 0.2 * probs * (1 - probs) * logits.detach() / 7
    torch.testing.assert_close(logits.grad, expected, atol=1e-8, rtol=1e-4)


def test_a_pseudo_label_is_where_its_entry_rests() -> None:
    """Without APL the same entry rests at 1/2."""
    soft = torch.tensor([0.1, 0.3])
    logits = torch.tensor(LOGITS)
    logits[0, 1], logits[1, 0] = soft.logit()
    logits.requires_grad_()
    loss(make(apl_weight=0.5), logits).backward()
    assert logits.grad is not None
    assert logits.grad[0, 1] == pytest.approx(0, abs=1e-8)
    assert logits.grad[1, 0] == pytest.approx(0, abs=1e-8)
    loss(make(), logits).backward()
    assert logits.grad[0, 1] < -1e-3
    assert logits.grad[1, 0] < -1e-3


def test_an_observed_negative_has_its_cross_entropy_and_no_entropy() -> None:
    logits = torch.tensor([[-3.0, -3.0]], requires_grad=True)
    loss(make(), logits, [[0.0, 0.0]], [[True, False]]).backward()
    prob = 1 / (1 + math.exp(3))
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx(
        [prob / 2, 0.2 * prob * (1 - prob) * -3 / 2], rel=1e-5
    )


@pytest.mark.parametrize("apl_weight", [0.0, 0.5])
def test_at_100_percent_known_it_is_torchs_own_bce(apl_weight: float) -> None:
    """Case 39: everything observed is ordinary full supervision."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(2, 3, generator=generator)
    targets = (torch.rand(2, 3, generator=generator) < 0.3).float()
    everything = torch.ones(2, 3, dtype=torch.bool)
    value = loss(make(apl_weight=apl_weight), logits, targets, everything)
    assert value == functional.binary_cross_entropy_with_logits(logits, targets)


def test_it_needs_no_observed_negatives() -> None:
    assert not make().needs_negatives


# ---------------------------------------------------------------------------- state


def at(epoch: int, epochs: int = 10) -> Context:
    return replace(CONTEXT, epoch=epoch, epochs=epochs)


def test_em_alone_keeps_no_state() -> None:
    nothing = torch.zeros(2, 3)
    assert make().initial_state(nothing, nothing.bool()) == {}


def test_the_latest_prediction_is_kept_until_a_pseudo_label_is_assigned() -> None:
    method = make(apl_weight=0.5)
    labels: State = method.initial_state(torch.zeros(1, 2), torch.zeros(1, 2).bool())
    labels = method.update(Batch(torch.zeros(1, 2) + 1, *[torch.zeros(1, 2)] * 2, labels), CONTEXT)
    assert labels["pseudo_label"].tolist() == [pytest.approx([0.7310586, 0.7310586])]
    labels = {**labels, "assigned": torch.tensor([[1.0, 0.0]])}
    labels = method.update(Batch(torch.zeros(1, 2) - 1, *[torch.zeros(1, 2)] * 2, labels), CONTEXT)
    assert labels["pseudo_label"].tolist() == [pytest.approx([0.7310586, 0.2689414])]
    assert labels["assigned"].tolist() == [[1, 0]]


def test_a_round_of_pseudo_labels_worked_by_hand() -> None:
    # 4 epochs, warm-up 2, share .9. Label 0: 5 unobserved, .9 * 5 / 2 = 2.25, so the two lowest;
    # label 1: 3 unobserved (1.35, so one); label 2: 1 unobserved (.45, so none).
    predicted = [[0.5, 0.9, 0.1], [0.1, 0.2, 0.1], [0.4, 0.1, 0.1], [0.2, 0.1, 0.1], [0.3, 0.3, 0]]
    observed = [[False] * 3, [False, True, True], [False, True, True], [False, False, True],
                [False, False, True]]  # fmt: skip
    labels: State = {"pseudo_label": torch.tensor(predicted), "assigned": torch.zeros(5, 3)}
    method = make(apl_weight=0.5, apl_warmup=2)
    arguments = torch.zeros(5, 3), torch.tensor(observed)
    assert method.end_epoch(*arguments, labels, at(0, 4)) is labels
    labels = method.end_epoch(*arguments, labels, at(1, 4))
    assert labels["assigned"].T.tolist() == [[0, 1, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]
    # The next round takes the lowest of those that are left.
    labels = method.end_epoch(*arguments, labels, at(2, 4))
    assert labels["assigned"].T.tolist() == [[0, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    assert labels["pseudo_label"].tolist() == torch.tensor(predicted).tolist()
    # No epoch would learn from a round after the last.
    assert method.end_epoch(*arguments, labels, at(3, 4)) is labels


def test_in_the_end_the_share_of_each_labels_unobserved_entries_is_assigned() -> None:
    generator = torch.Generator().manual_seed(5)
    observed = torch.zeros(120, 2, dtype=torch.bool)
    observed[:20, 0] = True
    method = make(apl_weight=0.5)
    labels = method.initial_state(torch.zeros(120, 2), observed)
    counts = []
    for epoch in range(10):
        labels = {**labels, "pseudo_label": torch.rand(120, 2, generator=generator)}
        labels = method.end_epoch(torch.zeros(120, 2), observed, labels, at(epoch))
        counts.append(labels["assigned"].sum(dim=0).tolist())
    # .9 * 100 / 5 = 18 and .9 * 120 / 5 = 21.6 a round, five rounds.
    assert counts[:4] == [[0, 0]] * 4
    assert counts[4:] == [[18, 21], [36, 42], [54, 63], [72, 84], [90, 105], [90, 105]]
    # However often a round comes, no entry is assigned twice, and no observed one at all.
    for _ in range(3):
        labels = method.end_epoch(torch.zeros(120, 2), observed, labels, at(8))
    assert torch.equal(labels["assigned"], (~observed).float())


def test_of_equal_predictions_no_more_than_the_quota_are_taken() -> None:
    method = make(apl_weight=0.5, apl_warmup=1, apl_share=0.5)
    nothing = torch.zeros(10, 1)
    labels = method.initial_state(nothing, nothing.bool())
    labels = method.end_epoch(nothing, nothing.bool(), labels, at(0, 2))
    assert labels["assigned"].sum() == 5


def test_a_training_no_longer_than_the_warm_up_assigns_nothing() -> None:
    method = make(apl_weight=0.5, apl_warmup=5)
    nothing = torch.zeros(4, 1)
    labels = method.initial_state(nothing, nothing.bool())
    for epoch in range(5):
        assert method.end_epoch(nothing, nothing.bool(), labels, at(epoch, 5)) is labels
