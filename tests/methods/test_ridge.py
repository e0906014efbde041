"""The closed form against explicit solves, and against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import average_precision_score

from plmcl.methods.base import Batch, Context
from plmcl.methods.epr import ExpectedPositive
from plmcl.methods.ridge import FEWEST, Ridge, Space, expected_positives, highest


def make_ridge(penalties=(10.0,), rounds=(1,)) -> Ridge:
    return Ridge(penalties=tuple(penalties), rounds=tuple(rounds), regulariser_weight=1.0)


def some_images(num_images: int, num_features: int, num_labels: int = 3, seed: int = 0):
    """Features whose variances and mean differ, and labels that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_images, num_features, generator=generator)
    mixing = torch.randn(num_features, num_labels, generator=generator)
    noise = torch.randn(num_images, num_labels, generator=generator)
    truth = features @ mixing / num_features**0.5 + 0.5 * noise > 0.7
    scales = torch.linspace(0.5, 2, num_features)
    return features * scales + 3, truth


def single_positives(truth: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """One of the labels that each image shows, of half of the images."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(truth.shape, generator=generator) * truth
    chosen = torch.zeros_like(truth)
    chosen[torch.arange(len(truth)), draws.argmax(dim=1)] = True
    return chosen & truth & (torch.rand(len(truth), 1, generator=generator) < 0.5)


def solve(ridge, features, positive, *, negative=None, k=1.2, parts=None):
    observed = positive if negative is None else positive | negative
    batch = Batch(torch.empty(0), positive.float(), observed)
    return list(ridge.solve(features, parts or [features.shape[1]], batch, k))


def explicit(features, positive, penalty, second=None):
    """w_j of (C + lambda I) w_j = mean of the positives - mean of the rest, a label at a time."""
    images = features.double().numpy()
    centred = images - images.mean(axis=0)
    covariance = centred.T @ centred / len(images)
    covariance /= np.trace(covariance) / images.shape[1]
    columns = []
    for label in range(positive.shape[1]):
        shown = positive[:, label].numpy()
        mean = images[shown].mean(axis=0)
        if second is not None:
            mean = (mean + images[second[:, label].numpy()].mean(axis=0)) / 2
        difference = mean - images[~shown].mean(axis=0)
        ridge = penalty * np.eye(images.shape[1])
        columns.append(np.linalg.solve(covariance + ridge, difference))
    return np.stack(columns, axis=1)


def directions(weights) -> np.ndarray:
    weights = np.asarray(weights, dtype=float)
    return weights / np.linalg.norm(weights, axis=-1, keepdims=True)


def logits_of(head, features):
    return features @ head.weight.T + head.bias


@pytest.mark.parametrize(("num_images", "num_features"), [(15, 40), (20, 20), (60, 12)])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 300.0])
def test_a_discriminant_is_the_explicit_solution(num_images, num_features, penalty):
    features, truth = some_images(num_images, num_features)
    space = Space((features - features.mean(dim=0)).double())
    assert space.dual == (num_images <= num_features)
    weight = space.discriminants(truth, truth, penalty)
    # The covariance in `Space` is over its mean diagonal, so its own divisor is nothing.
    np.testing.assert_allclose(weight, explicit(features, truth, penalty), rtol=1e-4, atol=1e-6)


def test_a_second_set_of_positives_counts_half():
    features, truth = some_images(40, 10)
    second = truth.roll(1, dims=0)
    weight = Space((features - features.mean(dim=0)).double()).discriminants(truth, second, 5.0)
    np.testing.assert_allclose(weight, explicit(features, truth, 5.0, second), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
def test_with_all_labels_and_no_ridge_it_is_fishers_discriminant(solver):
    features, truth = some_images(200, 8)
    (head,) = solve(make_ridge([1e-9]), features, truth, negative=~truth)
    for label in range(truth.shape[1]):
        fisher = LinearDiscriminantAnalysis(solver=solver)
        fisher.fit(features.double().numpy(), truth[:, label].numpy())
        expected = directions(fisher.coef_[0])
        np.testing.assert_allclose(directions(head.weight[label]), expected, atol=1e-5)


@pytest.mark.parametrize(("num_images", "num_features"), [(30, 50), (80, 12)])
def test_scale_and_bias_change_no_ranking(num_images, num_features):
    features, truth = some_images(num_images, num_features)
    positive = single_positives(truth)
    (head,) = solve(make_ridge([3.0]), features, positive)
    logits = logits_of(head, features).numpy()
    scores = features.double().numpy() @ explicit(features, positive, 3.0)
    for label in range(truth.shape[1]):
        shown = truth[:, label].numpy()
        assert average_precision_score(shown, logits[:, label]) == pytest.approx(
            average_precision_score(shown, scores[:, label])
        )


def test_the_mean_probability_is_the_share_that_is_expected():
    features, truth = some_images(80, 12)
    positive = single_positives(truth)
    for head in solve(make_ridge([1.0, 1e4], [1, 2]), features, positive, k=1.2):
        shares = logits_of(head, features).sigmoid().mean(dim=0)
        expected = expected_positives(positive, 1.2) / 80
        np.testing.assert_allclose(shares, expected, atol=1e-4)


def test_the_scale_is_that_of_two_normal_distributions_of_one_variance():
    features, truth = some_images(80, 12)
    (head,) = solve(make_ridge([3.0]), features, truth)
    scores = (features - features.mean(dim=0)).double().numpy() @ explicit(features, truth, 3.0)
    for label in range(truth.shape[1]):
        column = scores[:, label]
        scale = column[truth[:, label].numpy()].mean() / column.var()
        measured = np.polyfit(column, logits_of(head, features)[:, label].numpy(), 1)[0]
        assert measured == pytest.approx(scale, rel=1e-3)


def test_expected_positives_by_hand():
    # Observed: 5, 2 and 0; with one more each 6, 3 and 1 of 10. k N = 0.5 * 100 = 50 positives.
    positive = torch.zeros(100, 3, dtype=torch.bool)
    positive[:5, 0] = positive[:2, 1] = True
    assert expected_positives(positive, 0.5).tolist() == [30, 15, 5]
    # k N = 200: 120 are more than .8 of the images. k N = 10: 6, and 3 and 1 are fewer than 5.
    assert expected_positives(positive, 2.0).tolist() == [80, 60, 20]
    assert expected_positives(positive, 0.1).tolist() == [6, FEWEST, FEWEST]


def test_of_very_few_images_not_all_are_positive():
    positive = torch.tensor([[True, False], [False, False], [False, False]])
    assert expected_positives(positive, 1.5).tolist() == [2, 2]
    assert expected_positives(positive[:1], 1.5).tolist() == [1, 1]


def test_the_highest_are_chosen_and_never_a_known_negative():
    scores = torch.tensor([[0.9, 0.1], [0.8, 0.4], [0.7, 0.3], [0.6, 0.2]])
    negative = torch.tensor([[True, False], [False, False], [False, False], [False, False]])
    chosen = highest(scores, torch.tensor([2, 1]), negative)
    assert chosen.tolist() == [[False, False], [True, True], [True, False], [False, False]]
    # More expected than are possible: those that are possible.
    assert highest(scores, torch.tensor([4, 4]), negative).tolist() == (~negative).tolist()


def test_the_second_round_is_the_explicit_one():
    features, truth = some_images(60, 12)
    positive = single_positives(truth)
    negative = ~truth & (torch.rand(truth.shape, generator=torch.Generator().manual_seed(1)) < 0.3)
    (head,) = solve(make_ridge([3.0], [2]), features, positive, negative=negative, k=1.2)
    assert head.name == "part 1, penalty 3, 2 rounds"
    scores = features.double().numpy() @ explicit(features, positive, 3.0)
    found = np.zeros(truth.shape, dtype=bool)
    for label, count in enumerate(expected_positives(positive, 1.2).tolist()):
        possible = [i for i in range(60) if not negative[i, label]]
        best = sorted(possible, key=lambda i: -scores[i, label])[:count]
        found[best, label] = True
    expected = explicit(features, positive, 3.0, torch.from_numpy(found))
    np.testing.assert_allclose(directions(head.weight), directions(expected.T), atol=1e-4)


def test_when_every_label_is_known_the_second_round_finds_nothing_new():
    # Each label on as many images: so k N shared out is what is there.
    features, _ = some_images(60, 8)
    truth = torch.zeros(60, 3, dtype=torch.bool)
    for label in range(3):
        truth[features[:, label].argsort(descending=True)[:20], label] = True
    assert expected_positives(truth, 1.0).tolist() == [20, 20, 20]
    first, second = solve(make_ridge([3.0], [1, 2]), features, truth, negative=~truth, k=1.0)
    torch.testing.assert_close(first.weight, second.weight)
    torch.testing.assert_close(first.bias, second.bias)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_label_that_was_never_observed_is_equally_likely_everywhere(rounds):
    features, truth = some_images(60, 12)
    positive = single_positives(truth)
    positive[:, 1] = False
    (head,) = solve(make_ridge([3.0], [rounds]), features, positive)
    assert (head.weight[1] == 0).all()
    assert (head.weight[[0, 2]] != 0).any(dim=1).all()
    share = expected_positives(positive, 1.2)[1] / 60
    assert float(head.bias[1].sigmoid()) == pytest.approx(float(share), rel=1e-4)


def test_images_that_are_all_the_same_are_all_equally_likely():
    positive = torch.zeros(30, 2, dtype=torch.bool)
    positive[0, 0] = positive[1, 1] = True
    for head in solve(make_ridge([3.0], [1, 2]), torch.ones(30, 4), positive, k=0.9):
        assert head.weight.isfinite().all()
        probs = logits_of(head, torch.ones(30, 4)).sigmoid()
        np.testing.assert_allclose(
            probs, expected_positives(positive, 0.9).expand(30, 2) / 30, atol=1e-4
        )


def test_a_wrong_k_moves_the_counts_and_no_ranking_of_the_first_round():
    features, truth = some_images(80, 12)
    positive = single_positives(truth)
    (right,), (wrong,) = (solve(make_ridge([3.0]), features, positive, k=k) for k in (1.2, 0.6))
    assert torch.equal(right.weight, wrong.weight)
    counts = [logits_of(head, features).sigmoid().sum(dim=0) for head in (right, wrong)]
    np.testing.assert_allclose(counts[1], counts[0] / 2, atol=0.6)  # both are rounded


def test_a_head_sees_one_part_and_there_is_one_for_each_part_penalty_and_round():
    features, truth = some_images(60, 10)
    positive = single_positives(truth)
    heads = solve(make_ridge([3.0, 30.0], [1, 2]), features, positive, parts=[4, 6])
    assert [head.name for head in heads] == [
        f"part {part}, penalty {penalty}, {rounds} rounds"
        for part in (1, 2)
        for penalty in (3, 30)
        for rounds in (1, 2)
    ]
    for head in heads[:4]:
        assert (head.weight[:, 4:] == 0).all()
        assert (head.weight[:, :4] != 0).all()
    for head in heads[4:]:
        assert (head.weight[:, :4] == 0).all()
        assert (head.weight[:, 4:] != 0).all()
    alone = solve(make_ridge([3.0, 30.0], [1, 2]), features[:, 4:], positive)
    for of_two, of_one in zip(heads[4:], alone, strict=True):
        torch.testing.assert_close(of_two.weight[:, 4:], of_one.weight)
        torch.testing.assert_close(of_two.bias, of_one.bias)


def test_the_second_round_alone_is_the_second_of_both():
    features, truth = some_images(60, 10)
    positive = single_positives(truth)
    _, second = solve(make_ridge([3.0], [1, 2]), features, positive)
    (alone,) = solve(make_ridge([3.0], [2]), features, positive)
    assert torch.equal(second.weight, alone.weight)
    assert second.name == alone.name


def test_an_infinite_ridge_leaves_the_difference_of_means():
    features, truth = some_images(60, 10)
    (head,) = solve(make_ridge([1e9]), features, truth)
    for label in range(truth.shape[1]):
        shown = truth[:, label]
        difference = features[shown].mean(dim=0) - features[~shown].mean(dim=0)
        np.testing.assert_allclose(
            directions(head.weight[label]), directions(difference), atol=1e-5
        )


def test_it_finds_the_same_twice_and_leaves_its_input_alone():
    features, truth = some_images(60, 10)
    before, positive = features.clone(), single_positives(truth)
    ridge = make_ridge([3.0, 1e4], [1, 2])
    for one, other in zip(*(solve(ridge, features, positive) for _ in range(2)), strict=True):
        assert torch.equal(one.weight, other.weight)
        assert torch.equal(one.bias, other.bias)
    assert torch.equal(features, before)


def test_fine_tuning_is_by_eprs_loss():
    logits = torch.tensor([[0.4, -1.2, 3.0], [-0.7, 0.0, 1.5]])
    targets = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    observed = torch.tensor([[True, True, False], [False, False, False]])
    batch, context = Batch(logits, targets, observed), Context(0, 1, 0, 1e-3, 1.3)
    for weight in (0.0, 1.0, 2.5):
        ridge = Ridge(penalties=(1.0,), rounds=(1,), regulariser_weight=weight)
        expected = ExpectedPositive(weight=weight).loss(batch, context)
        assert ridge.loss(batch, context) == expected


@pytest.mark.parametrize(
    "changes",
    [{"penalties": ()}, {"penalties": (0.0,)}, {"rounds": ()}, {"rounds": (3,)}, {"rounds": (0,)}],
)
def test_values_that_mean_nothing_are_refused(changes):
    values = {"penalties": (1.0,), "rounds": (1,), "regulariser_weight": 1.0}
    with pytest.raises(ValueError, match=next(iter(changes))):
        Ridge(**(values | changes))
