import numpy as np

from plmcl.labelling.herding import WIDTH, herd, unit_vectors

GENERATOR = np.random.default_rng(0)


def vectors(number, width=6):
    return unit_vectors(GENERATOR.normal(size=(number, width)), [width])


def distance(all_vectors, chosen):
    """Squared distance of the two means in the kernel's space, by the definition."""
    kernel = np.exp((all_vectors.astype(np.float64) @ all_vectors.T - 1) / WIDTH)
    some = kernel[chosen]
    return kernel.mean() - 2 * some.mean() + some[:, chosen].mean()


def no(number):
    return np.zeros(number, dtype=bool)


def test_each_next_image_is_the_one_that_brings_the_means_closest():
    points, labeled = vectors(30), no(30)
    labeled[[4, 9]] = True
    keys = [str(row) for row in range(30)]
    chosen = herd(points, labeled, ~labeled, 5, keys=keys)
    so_far = [4, 9]
    for row in chosen:
        free = [r for r in range(30) if r not in so_far]
        best = min(free, key=lambda r: distance(points, [*so_far, r]))
        assert row == best
        so_far.append(row)


def test_what_is_labeled_looks_more_like_all_than_a_random_choice():
    points = vectors(200)
    chosen = herd(points, no(200), ~no(200), 20, keys=[str(row) for row in range(200)])
    random = [
        distance(points, GENERATOR.choice(200, 20, replace=False).tolist()) for _ in range(50)
    ]
    assert distance(points, chosen) < min(random)


def test_rounds_give_what_one_round_gives():
    points, keys = vectors(40), [str(row) for row in range(40)]
    whole = herd(points, no(40), ~no(40), 10, keys=keys)
    labeled = no(40)
    labeled[whole[:4]] = True
    assert herd(points, labeled, ~labeled, 6, keys=keys) == whole[4:]


def test_only_candidates_each_content_once_and_no_more_than_there_are():
    points = vectors(6)
    keys = ["a", "b", "a", "c", "d", "d"]
    candidates = np.array([1, 0, 1, 1, 1, 1], dtype=bool)
    chosen = herd(points, no(6), candidates, 99, keys=keys)
    assert sorted(keys[row] for row in chosen) == ["a", "c", "d"]


def test_parts_have_the_same_length_whatever_their_scale():
    features = np.array([[1.0, 0, 900, 0], [-1, 0, 0, 900], [0, 3, -900, -900]])
    made = unit_vectors(features, [2, 2])
    np.testing.assert_allclose(np.linalg.norm(made[:, :2], axis=1), 0.5**0.5, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1, rtol=1e-6)
    assert made.dtype == np.float32
