import hashlib
import json
import shutil

import numpy as np
import pytest
from PIL import Image
from project import ROOT, SMALL, edit_params
from scipy import stats
from tables import manifest

from plmcl import schemas
from plmcl.errors import PlmclError
from plmcl.params import load_params
from plmcl.retraining import drift as drift_module
from plmcl.retraining.drift import drift, main
from plmcl.stages.paths import Paths


def normal(seed: int, rows: int, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1, (rows, 8)).astype(np.float32)


def slow_energy(old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """The energy distance and the mean distance across, pair by pair."""

    def mean(first: np.ndarray, second: np.ndarray) -> float:
        return float(np.mean([[np.linalg.norm(x - y) for y in second] for x in first]))

    return 2 * mean(old, new) - mean(old, old) - mean(new, new), mean(old, new)


def test_three_images_by_hand():
    found = drift(np.array([[0.0], [2.0]]), np.array([[4.0]]))
    # Across (4 + 2) / 2 = 3, among the old (0 + 2 + 2 + 0) / 4 = 1: 2 * 3 - 1 - 0 = 5 of 6.
    assert found.energy == pytest.approx(5 / 6)
    # Of the three equally likely splits, {0 4 | 2} differs by 2 and {2 4 | 0} by 5.
    assert found.p == pytest.approx(2 / 3, abs=0.05)
    # Each old image is 2 from the other, the new one 2 from its nearest: not farther.
    assert found.far == 0
    assert (found.old, found.new) == (2, 1)


def test_it_is_the_energy_distance():
    old, new = normal(0, 9), normal(1, 7, 0.5)
    energy, across = slow_energy(old, new)
    assert drift(old, new).energy == pytest.approx(energy / (2 * across), rel=1e-6)
    # In one dimension it is scipy's, squared.
    line = stats.energy_distance(old[:, 0], new[:, 0]) ** 2
    across = slow_energy(old[:, :1], new[:, :1])[1]
    assert drift(old[:, :1], new[:, :1]).energy == pytest.approx(line / (2 * across), rel=1e-6)


def test_the_p_value_is_scipys():
    old, new = normal(2, 12), normal(3, 9, 0.35)

    rows = np.concatenate([old, new])
    distances = np.linalg.norm(rows[:, None] - rows, axis=2)

    def statistic(first: np.ndarray, second: np.ndarray) -> float:
        first, second = first.astype(int), second.astype(int)
        across, one, other = (
            distances[np.ix_(*pair)].mean()
            for pair in ((first, second), (first, first), (second, second))
        )
        return 2 * across - one - other

    expected = stats.permutation_test(
        (np.arange(12), np.arange(12, 21)),
        statistic,
        n_resamples=999,
        alternative="greater",
        rng=0,
    ).pvalue
    assert 0.02 < expected < 0.98
    assert drift(old, new).p == pytest.approx(expected, abs=0.06)


def test_without_a_difference_p_is_uniform():
    found = [drift(normal(seed, 50), normal(1000 + seed, 30)) for seed in range(40)]
    p = [one.p for one in found]
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert np.mean([one.far for one in found]) == pytest.approx(0.05, abs=0.03)


def test_a_shift_is_seen():
    found = drift(normal(0, 100), normal(1, 40, 1.0))
    assert found.p == 1 / 1000
    assert found.far > 0.2
    assert found.energy > 0.05
    far = drift(normal(0, 100), normal(1, 40, 50.0))
    assert far.far == 1
    assert far.energy > 0.9
    assert str(far).startswith("40 new images differ from 100 old ones: energy distance 0.9")


def test_equal_images_do_not_differ():
    rows = normal(0, 30)
    same = drift(rows, rows)
    assert (same.energy, same.p, same.far) == (pytest.approx(0, abs=1e-6), 1.0, 0.0)
    assert str(same) == (
        "30 new images do not differ clearly from 30 old ones: energy distance 0.000 of 1 "
        "(p 1.000); 0 % are farther from any old image than usual, 5 % would be without a "
        "difference"
    )
    assert drift(np.ones((5, 2)), np.ones((3, 2))).energy == 0


def test_the_same_images_give_the_same_figures():
    old, new = normal(0, 60), normal(1, 30, 0.1)
    assert drift(old, new) == drift(old, new)
    assert drift(old, new).p != drift(old, new, seed=5).p


def test_of_many_images_a_part_is_compared(monkeypatch):
    monkeypatch.setattr(drift_module, "ROWS_A_SIDE", 50)
    old, new = normal(0, 80), normal(1, 60, 0.5)
    found = drift(old, new)
    assert (found.old, found.new, found.p) == (80, 60, 1 / 1000)
    # It is none of the first or of the last.
    assert found.energy not in (drift(old[:50], new[:50]).energy, drift(old[30:], new[10:]).energy)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (np.ones((3, 2)), np.ones((3, 3)), r"found \(3, 2\) and \(3, 3\)"),
        (np.ones((1, 2)), np.ones((3, 2)), "needs two old images and a new one, found 1 and 3"),
        (np.ones((3, 2)), np.ones((0, 2)), "found 3 and 0"),
        (np.ones((3, 2)), np.full((3, 2), np.nan), "a feature is not finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(old, new, message):
    with pytest.raises(PlmclError, match=message):
        drift(old, new)


@pytest.mark.slow
def test_the_images_of_later_deliveries_are_compared_with_the_base_set(tmp_path, capsys):
    from plmcl.stages import split

    shutil.copy(ROOT / "params.yaml", tmp_path)
    edit_params(tmp_path / "params.yaml", SMALL | {"train.mode": "linear"})
    params, paths = load_params(tmp_path / "params.yaml"), Paths.of_project(tmp_path, "scenes")
    make_manifest(paths)
    split.run(paths, params, ["sspl-40"])
    found = {}
    for since in (0, 1, 2):
        main(tmp_path, since, tmp_path / f"{since}.json")
        found[since] = json.loads((tmp_path / f"{since}.json").read_text())
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    num_train = int((splits["split"] == "train").sum()) - 17
    assert [found[0]["old"], found[1]["old"]] == [num_train, num_train]
    assert [found[0]["new"], found[1]["new"]] == [17, 5]
    assert max(found[0]["p"], found[1]["p"]) < 0.01
    assert found[0]["words"].startswith(f"17 new images differ from {num_train} old ones: energy")
    assert found[2] == {"since": 2, "words": "no images were delivered after delivery 2"}
    assert found[2]["words"] in capsys.readouterr().out
    # The features are those that trainings ask for.
    assert list(paths.features.glob("*/view-0/*.npz"))


def make_manifest(paths: Paths) -> None:
    """A base set of 40 pictures of noise, and 12 and 5 of one colour each that came later."""
    generator = np.random.default_rng(0)
    ids = [f"{number:02d}.png" for number in range(57)]
    delivery = np.repeat([0, 1, 2], [40, 12, 5])
    hashes = []
    for number, name in enumerate(ids):
        path = paths.images / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (48, 48, 3), dtype=np.uint8)
        if delivery[number]:
            pixels[:] = (255, 4 * number, 60 * delivery[number])
        Image.fromarray(pixels).save(path)
        hashes.append(hashlib.sha256(path.read_bytes()).hexdigest())
    labels = ("cat", "dog", "elk")
    truth = {(name, labels[number % 3]): 1 for number, name in enumerate(ids[:40])}
    manifest(ids, truth, label_names=labels, sha256=hashes, delivery=delivery).write(
        paths.manifests
    )
