"""How new images differ from the old ones: the energy distance of their features.

As a command it compares the images of later deliveries with the base set's training images.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.data.rows import Rows, truth_rows
from plmcl.errors import PlmclError
from plmcl.ordering import positions, rank_keys
from plmcl.params import load_params
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths

Floats = NDArray[np.float64]

ROWS_A_SIDE = 2000  # all distances of two such sides: 128 megabytes
PERMUTATIONS = 999
FAR = 0.95  # an image is far if it is farther from its nearest old one than so many old ones are
SEED = 0


@dataclass(frozen=True)
class Drift:
    """How M new images differ from N old ones.

    Attributes:
        old: N.
        new: M.
        energy: The energy distance as a share of the distance between the two, in [0, 1]: 0 only
            where both are spread alike, 1 where each is one point. Few images raise it by chance.
        p: The share of random splits of the same images into N and M that differ as much.
        far: The share of the new images that are farther from their nearest old image than 95 %
            of the old ones are from theirs; 0.05 where nothing differs.
    """

    old: int
    new: int
    energy: float
    p: float
    far: float

    def __str__(self) -> str:
        seen = "differ" if self.p < 0.05 else "do not differ clearly"
        return (
            f"{self.new:,} new images {seen} from {self.old:,} old ones: energy distance "
            f"{self.energy:.3f} of 1 (p {self.p:.3f}); {100 * self.far:.0f} % are farther from "
            "any old image than usual, 5 % would be without a difference"
        )


def drift(old: NDArray[Any], new: NDArray[Any], *, seed: int = SEED) -> Drift:
    """Compare two sets of features.

    The energy distance is 2 E|x-y| - E|x-x'| - E|y-y'| (Szekely & Rizzo 2013), over all pairs.

    Args:
        old: (N, D); if there are more than ROWS_A_SIDE, a random part of them.
        new: (M, D), likewise.
        seed: Of that part and of the permutations.

    Raises:
        PlmclError: There are fewer than two old rows or no new one, their widths differ, or a
            value is not finite.
    """
    if old.ndim != 2 or new.ndim != 2 or old.shape[1:] != new.shape[1:]:
        raise PlmclError(f"drift: expected (N, D) and (M, D), found {old.shape} and {new.shape}")
    if len(old) < 2 or len(new) < 1:
        raise PlmclError(
            f"drift: needs two old images and a new one, found {len(old)} and {len(new)}"
        )
    if not (np.isfinite(old).all() and np.isfinite(new).all()):
        raise PlmclError("drift: a feature is not finite")
    generator = np.random.default_rng(seed)
    sides = [
        rows if len(rows) <= ROWS_A_SIDE else generator.choice(rows, ROWS_A_SIDE, replace=False)
        for rows in (old, new)
    ]
    num_old = len(sides[0])
    distances = _distances(np.concatenate(sides).astype(np.float64))
    is_new = np.zeros((len(distances), 1 + PERMUTATIONS))
    is_new[num_old:, 0] = 1
    for column in range(1, 1 + PERMUTATIONS):
        is_new[:, column] = generator.permutation(is_new[:, 0])
    energy, between = _energy(distances, is_new)
    # Equal up to rounding is as much: so it is where all images are the same.
    as_much = np.count_nonzero(energy[1:] >= energy[0] * (1 - 1e-9))
    return Drift(
        old=len(old),
        new=len(new),
        energy=float(energy[0] / (2 * between[0])) if between[0] > 0 else 0.0,
        p=(1 + as_much) / (1 + PERMUTATIONS),
        far=_share_far(distances, num_old),
    )


def _distances(rows: Floats) -> Floats:
    """Of each row from each row: (K, K)."""
    rows = rows - rows.mean(axis=0)  # smaller numbers, smaller rounding
    squares = (rows**2).sum(axis=1)
    squared = squares[:, None] + squares - 2 * (rows @ rows.T)
    np.fill_diagonal(squared, 0)
    distances: Floats = np.sqrt(np.maximum(squared, 0, out=squared), out=squared)
    return distances


def _energy(distances: Floats, is_new: Floats) -> tuple[Floats, Floats]:
    """Energy distance, and mean distance across, of each of P splits (K, P) in {0, 1}: (P,)."""
    new = is_new.sum(axis=0)
    old = len(is_new) - new
    to_new = distances @ is_new
    within_new = (to_new * is_new).sum(axis=0)
    across = to_new.sum(axis=0) - within_new
    within_old = distances.sum() - within_new - 2 * across
    between = across / (old * new)
    return np.maximum(2 * between - within_old / old**2 - within_new / new**2, 0), between


def _share_far(distances: Floats, num_old: int) -> float:
    among_old = distances[:num_old, :num_old].copy()
    np.fill_diagonal(among_old, np.inf)
    usual = np.quantile(among_old.min(axis=1), FAR)
    return float((distances[num_old:, :num_old].min(axis=1) > usual).mean())


def of_deliveries(paths: Paths, since: int) -> Drift | None:
    """Compare the images of the deliveries after `since` with the base set's training images.

    Only of a random part of each, the same one every time, features are needed.

    Returns:
        None if there are no such images.

    Raises:
        PlmclError: A table or an image cannot be read, or there are no two old images.
    """
    from plmcl.stages.job import prepare  # torch, which the flow does without

    params = load_params(paths.root / "params.yaml")
    manifest = Manifest.read(paths.manifests)
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    train = truth_rows(manifest, splits, "train")
    images = manifest.images
    delivery = images["delivery"].to_numpy()[positions(train.image_ids, images["image_id"])]
    is_old, is_new = delivery == 0, delivery > since
    if not is_new.any():
        return None
    method = params.grid.methods[0]  # the features are the same for all of them
    job = prepare(paths, params, params.retraining.setting, method, manifest=manifest)
    old, new = (
        job.features_of(_part(train, np.flatnonzero(side)))[0].cpu().numpy()
        for side in (is_old, is_new)
    )
    return replace(drift(old, new), old=int(is_old.sum()), new=int(is_new.sum()))


def _part(rows: Rows, at: NDArray[np.int64]) -> Rows:
    draw = rank_keys(SEED, "drift", [rows.image_ids[i] for i in at])
    at = np.sort(at[np.argsort(draw)[:ROWS_A_SIDE]])
    return Rows(
        [rows.image_ids[i] for i in at],
        [rows.paths[i] for i in at],
        [rows.sha256[i] for i in at],
        rows.targets[at],
        rows.observed[at],
    )


def main(
    root: Annotated[Path, typer.Option(help="The project's folder.")],
    since: Annotated[int, typer.Option(help="Deliveries after this one are new.")],
    out: Annotated[Path, typer.Option(help="The JSON file to write.")],
) -> None:
    """Write how the images that were delivered since differ from the base set's."""
    params = load_params(root / "params.yaml")
    found = of_deliveries(Paths.of_project(root, params.data.source), since)
    words = f"no images were delivered after delivery {since}" if found is None else str(found)
    record = {"since": since, "words": words, **({} if found is None else asdict(found))}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    print(words)


if __name__ == "__main__":
    run_stage(main)
