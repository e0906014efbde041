"""How often the strongest suspicions of `plmcl audit` are right, where the truth is known.

    python benchmarks/audit.py photos5 --data ../shared/data --out benchmarks/results

SSPL at 40 %, frozen features, three seeds (of splits and label draws), each method's own scores
and out-of-fold ones. Missing: no label is changed. Wrong: 8 % of the labeled training images get a
label that they do not show. One JSON with every figure, and the table of means as text.
"""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from grids import make_project
from numpy.typing import NDArray
from ruamel.yaml import YAML

from plmcl.data.manifest import Manifest
from plmcl.data.rows import truth_rows
from plmcl.labelling.suspicions import MISSING, WRONG, precision_at, ranked, suspect
from plmcl.labelling.trained import Trained, open_trained
from plmcl.labels.store import LabelStore
from plmcl.ordering import rank_keys
from plmcl.params import load_params
from plmcl.schemas import ObservedLabels, read_table, write_table
from plmcl.stages import split, train
from plmcl.stages.job import Job
from plmcl.stages.paths import Paths
from plmcl.training import Observations

SETTING, SEEDS, SHARE_WRONG = "sspl-40", 3, 0.08
METHODS = ("ridge", "an")
AT = {MISSING: (50, 200), WRONG: (20, 50)}
FOLDS = 5


def main(
    data_set: Annotated[str, typer.Argument(help="photos5, clothing26, scenes20 or scenes80.")],
    out: Annotated[Path, typer.Option(help="Folder for audit-<data set>.json and .txt.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
) -> None:
    """Train, audit, compare with the truth."""
    root = work / data_set
    make_project(data_set, data, root)
    rows = []
    for seed in range(SEEDS):
        for kind in AT:
            paths = prepare(root, seed, wrong=kind == WRONG)
            for method in METHODS:
                params = load_params(root / "params.yaml")
                train.run(paths, params, SETTING, method, track=False)
                trained = open_trained(root, f"{SETTING}-{method}")
                for scores, probs in both(trained).items():
                    rows += figures(trained, probs, kind, {"seed": seed, "method": method,
                                                           "scores": scores})  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows, indent=1)
    (out / f"audit-{data_set}.json").write_text(text + "\n", encoding="utf-8")
    table = pd.DataFrame(rows).pivot_table(
        "precision", ["kind", "among", "method", "scores"], "at", aggfunc="mean", sort=False
    )
    text = (100 * table).round(1).to_string()
    (out / f"audit-{data_set}.txt").write_text(text + "\n", encoding="utf-8")
    print(text)


def prepare(root: Path, seed: int, *, wrong: bool) -> Paths:
    """Splits and label draw of a seed; with `wrong`, some labels are exchanged for false ones."""
    file = root / "params.yaml"
    yaml = YAML()
    values = yaml.load(file)
    values["seed"] = seed
    values["train"]["threads"] = 1  # the same features on any machine
    yaml.dump(values, file)
    params = load_params(file)
    paths = Paths.of_project(root.resolve(), params.data.source)
    split.run(paths, params, [SETTING])
    if wrong:
        spoil(paths, seed)
    return paths


def spoil(paths: Paths, seed: int) -> None:
    """Exchange labels of the draw, evenly over the labels that an image does not show."""
    manifest = Manifest.read(paths.manifests)
    observed = read_table(paths.observed(SETTING), ObservedLabels)
    shown = manifest.labels[manifest.labels["value"] == 1].groupby("image_id")["label"].agg(set)
    generator = np.random.default_rng(seed)
    number = round(SHARE_WRONG * len(observed))
    for row in generator.choice(len(observed), number, replace=False):
        image_id = observed["image_id"].iloc[row]
        false = [name for name in manifest.label_names if name not in shown[image_id]]
        if false:
            observed.loc[row, "label"] = str(generator.choice(false))
    write_table(observed, paths.observed(SETTING))


def both(trained: Trained) -> dict[str, NDArray[np.float32]]:
    """The training images' scores by the model itself, and out of fold."""
    job = trained.prepare()
    outside = crossfit(job)
    trained.load(job)
    return {"own": job.predict(job.train), "out of fold": outside}


def crossfit(job: Job) -> NDArray[np.float32]:
    """Probabilities (N, L) of the N training images, each by a head that saw none of its labels.

    The images are dealt into `FOLDS` parts by their content, equal bytes together. For each part
    the head is fitted once more, with the labels of that part hidden; its images stay, unlabeled.

    Args:
        job: Before its first step; not changed.

    Returns:
        NaN where a part holds every observed positive of a label: no other image tells of it.
    """
    parts = rank_keys(job.params.seed, "crossfit", job.train.sha256) % FOLDS
    positive = job.train.observed & (job.train.targets == 1)
    probs = np.full(job.train.observed.shape, np.nan, dtype=np.float32)
    for part in range(FOLDS):
        held = parts == part
        if held.any() and positive[~held].any():
            fitted = _without(job, held)
            fitted.fit(
                checkpoints=None, on_epoch=lambda entry: None, progress=lambda done, total: None
            )
            told = positive[~held].any(axis=0)
            probs[held] = np.where(told, fitted.predict(job.train)[held], np.nan)
    return probs


def _without(job: Job, held: NDArray[np.bool_]) -> Job:
    """The same training, without the labels of the images that are `held` (N,)."""
    targets = job.observations.targets
    kept = torch.from_numpy(~held).to(targets.device)[:, None]
    observed = job.observations.observed & kept
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.params.seed)
        state = job.method.initial_state(targets.cpu(), observed.cpu())
    state = {name: rows.to(targets.device) for name, rows in state.items()}
    return replace(
        job,
        model=copy.deepcopy(job.model),
        observations=Observations(targets, observed, job.observations.positives_per_image),
        store=LabelStore(job.train.image_ids, state),
    )


def figures(
    trained: Trained, probs: NDArray[np.float32], kind: str, of: dict[str, Any]
) -> list[dict[str, Any]]:
    """Precisions, among all training images and among the labeled ones, with the base rate."""
    job = trained.prepare()
    true = truth_rows(trained.manifest, trained.splits, "train").targets == 1
    positive = job.train.observed & (job.train.targets == 1)
    labeled = np.broadcast_to(positive.any(axis=1, keepdims=True), positive.shape)
    names = trained.manifest.label_names
    columns = {name: column for column, name in enumerate(names)}
    found = []
    for among, passed_over in (("all", np.zeros_like(positive)), ("labeled", ~labeled)):
        suspects = ranked(
            suspect(job.train.targets, job.train.observed, probs, names,
                    passed_over=passed_over, per_label=200)
        )  # fmt: skip
        cells = ~positive & ~passed_over if kind == MISSING else positive
        base = float((true if kind == MISSING else ~true)[cells].mean())
        for n in AT[kind]:
            precision = precision_at(suspects, kind, true, columns, n)
            found.append({**of, "kind": kind, "among": among, "at": n, "precision": precision,
                          "base_rate": base})  # fmt: skip
        if kind == WRONG:
            break
    return found


if __name__ == "__main__":
    typer.run(main)
