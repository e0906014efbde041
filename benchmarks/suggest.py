"""What `plmcl suggest` gains over images chosen at random, at equal budget.

    python benchmarks/suggest.py photos5 --data ../shared/data --out benchmarks/results

From no label on: 5, 10, 20 and 40 % of the training images are given the one positive of the label
draw; an image without a positive spends its turn. `ridge` on frozen features, its head chosen on
the validation split, test mAP. A seed is another split and another label draw; random is the mean
of several draws. One JSON with every figure, and the table as text: the mean difference of the
pairs, with its 95 % interval by Student's t.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from audit import prepare
from grids import make_project
from scipy import stats

from plmcl.data.rows import Rows
from plmcl.evaluation import AP_FLAVOUR, evaluate
from plmcl.labelling.suggest import choose
from plmcl.methods import ridge
from plmcl.methods.base import Batch, Head
from plmcl.params import load_params
from plmcl.schemas import Draws, read_table
from plmcl.stages.job import prepare as prepare_job

BUDGETS = (5, 10, 20, 40)


def main(
    data_set: Annotated[str, typer.Argument(help="photos5, clothing26, scenes20 or scenes80.")],
    out: Annotated[Path, typer.Option(help="Folder for suggest-<data set>.json and .txt.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
    seeds: Annotated[int, typer.Option(help="Splits and label draws.")] = 5,
    draws: Annotated[int, typer.Option(help="Random choices a seed.")] = 3,
) -> None:
    """Choose, label, train and measure."""
    root = work / data_set
    make_project(data_set, data, root)
    rows: list[dict[str, Any]] = []
    ridge.Space = decomposed(ridge.Space)  # type: ignore[misc, assignment]
    for seed in range(seeds):
        bench = Bench(root, seed)
        number = len(bench.labels)
        nobody, everybody = np.zeros(number, bool), np.ones(number, bool)
        # Answers do not change the choice: all rounds in one are the same as one after another.
        chosen = choose(bench.job, nobody, everybody, round(BUDGETS[-1] * number / 100))
        rows += bench.curve(chosen, {"seed": seed, "choice": "suggest"})
        for draw in range(draws):
            order = np.random.default_rng([seed, draw]).permutation(number).tolist()
            rows += bench.curve(order, {"seed": seed, "choice": f"random {draw}"})
        print(f"seed {seed} done", flush=True)
    found = {"data_set": data_set, "method": "ridge", "ap": AP_FLAVOUR, "rows": rows}
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1)
    (out / f"suggest-{data_set}.json").write_text(text + "\n", encoding="utf-8")
    words = table(pd.DataFrame(rows)).to_string(index=False)
    (out / f"suggest-{data_set}.txt").write_text(words + "\n", encoding="utf-8")
    print(words)


class Bench:
    """A training before its first label, ready to be given many choices of labels.

    Args:
        root: The project.
        seed: Of its splits and its label draw.
    """

    def __init__(self, root: Path, seed: int) -> None:
        paths = prepare(root, seed, wrong=False)
        self.job = prepare_job(paths, load_params(root / "params.yaml"), "sspl-40", "ridge")
        names = self.job.label_names
        drawn = read_table(paths.splits / "draws.parquet", Draws).set_index("image_id")["label"]
        column = {name: number for number, name in enumerate(names)} | {"": -1}
        # The one positive that each training image would be given; -1: it has none.
        self.labels = drawn.loc[self.job.train.image_ids].map(column).to_numpy(np.int64)
        head, train = self.job.model.head, self.job.features_of(self.job.train)[0]
        head.center.copy_(train.mean(dim=0))
        self.train = head.prepare(train)
        self.val = head.prepare(self.job.features_of(self.job.selection)[0])
        self.test = head.prepare(self.job.features_of(self.job.test)[0])

    def curve(self, order: list[int], of: dict[str, Any]) -> list[dict[str, Any]]:
        """Validation and test mAP after each budget of an order of the training images."""
        found = []
        for percent in BUDGETS:
            rows = np.array(order[: round(percent * len(self.labels) / 100)])
            rows = rows[self.labels[rows] >= 0]
            targets = torch.zeros(len(self.labels), len(self.job.label_names))
            targets[rows, self.labels[rows]] = 1
            val, test = self.solve(targets)
            found.append({**of, "percent": percent, "labeled": len(rows), "val": val, "test": test,
                          "labels_seen": int(targets.any(dim=0).sum())})  # fmt: skip
        return found

    def solve(self, targets: torch.Tensor) -> tuple[float, float]:
        """Validation and test mAP of the head that is best on validation, as a training has it."""
        batch = Batch(torch.empty(0), targets, targets == 1)
        k = self.job.observations.positives_per_image
        heads = self.job.method.solve(self.train, self.job.model.head.parts, batch, k)
        scored = [
            (mean_ap(self.job.selection, self.val, head), number, head)
            for number, head in enumerate(heads)
        ]
        val, _, best = max(scored, key=lambda entry: (entry[0], -entry[1]))
        return val, mean_ap(self.job.test, self.test, best)


def decomposed(space: type[ridge.Space]) -> Callable[[torch.Tensor], ridge.Space]:
    """`ridge.Space` that keeps what it made: all choices of labels are solved on one space."""
    kept: dict[tuple[int, float], ridge.Space] = {}

    def make(images: torch.Tensor) -> ridge.Space:
        key = images.shape[1], float(images.abs().sum())
        if key not in kept:
            kept[key] = space(images)
        return kept[key]

    return make


def mean_ap(rows: Rows, features: torch.Tensor, head: Head) -> float:
    """MAP of a head on prepared features."""
    probs = torch.sigmoid(features @ head.weight.T + head.bias).numpy()
    return float(evaluate(rows.targets, rows.observed, probs).metrics["mAP"])


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a budget: means in %, the difference on each split, its interval, the wins."""
    rows = rows.assign(choice=rows["choice"].str.split().str[0])
    by_seed = rows.groupby(["percent", "choice", "seed"])[["val", "test"]].mean() * 100
    lines = []
    for percent in BUDGETS:
        ours, random = by_seed.loc[percent, "suggest"], by_seed.loc[percent, "random"]
        difference = ours - random
        half = stats.t.ppf(0.975, len(difference) - 1) * difference.sem()
        lines.append(
            {
                "% labeled": percent,
                "random": round(random["test"].mean(), 1),
                "suggest": round(ours["test"].mean(), 1),
                "difference": f"{difference['test'].mean():+.1f} ± {half['test']:.1f}",
                "seeds won": f"{(difference['test'] > 0).sum()} of {len(difference)}",
                "on validation": f"{difference['val'].mean():+.1f} ± {half['val']:.1f}",
            }
        )
    return pd.DataFrame(lines)


if __name__ == "__main__":
    typer.run(main)
