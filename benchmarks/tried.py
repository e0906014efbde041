"""Ideas that did not become the default, beside EPR, PLMCL and `ridge`: what each of them gave.

    python benchmarks/tried.py photos5 --data ../shared/data --out benchmarks/results

Frozen features, SSPL at 20 %, five seeds; learning rates and PLMCL's values are those that
grids/frozen.yaml was tuned to. What an idea has to choose, it chooses on the validation split of
the seed. One CSV with a line for each row and seed, and the table as text.
"""

import copy
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from grids import make_project
from torch import Tensor
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from plmcl.data.loading import FeatureBatches
from plmcl.data.rows import Rows
from plmcl.evaluation import average_precision
from plmcl.grid.inputs import draw_splits
from plmcl.grid.plan import Run, make_variants
from plmcl.grid.results import choose_candidates, read_results
from plmcl.grid.spec import load_grid
from plmcl.grid.worker import Place, prepare_run, train
from plmcl.heads import LinearHead
from plmcl.methods import make_method
from plmcl.methods.base import Batch, Context, Method, observed_cross_entropy
from plmcl.methods.ridge import expected_positives
from plmcl.stages.job import Job
from plmcl.stages.paths import Paths

SETTING, SEEDS = "sspl-20", range(5)
GRID = Path("grids/frozen.yaml")
# Rows of that grid which are ideas of the list, too: two views of an image.
TWO_VIEWS = ("PLC", "FixMatch + R_k")
NEIGHBOURS, STEPS = 10, 20
# Every so many-th image is held out to estimate k.
HELD_OUT = 5


@dataclass(frozen=True)
class Outcome:
    """What a row came to for a seed; `val` and `test` are fractions."""

    row: str
    candidate: str
    val: float
    test: float


class ClassPriors(Method):
    """EPR with a prior of each label in place of R_k: mean over labels of (batch mean - prior)^2.

    Attributes:
        priors: The expected share of the images that show each label.
        weight: Of the penalty.
    """

    priors: tuple[float, ...]
    weight: float

    def loss(self, batch: Batch, context: Context) -> Tensor:
        """See `Method.loss`."""
        known = observed_cross_entropy(batch.logits, batch.targets, batch.observed).mean()
        shares = torch.sigmoid(batch.logits).mean(dim=0)
        return known + self.weight * ((shares - shares.new_tensor(self.priors)) ** 2).mean()


class Bench:
    """A seed's features and labels, and heads trained on them as the job would.

    Args:
        job: Of EPR.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.k = job, job.observations.positives_per_image
        self.targets, self.observed = job.observations.targets, job.observations.observed
        self.positive = self.observed & (self.targets == 1)
        self.train, self.val, self.test = (
            job.features_of(rows)[0] for rows in (job.train, job.selection, job.test)
        )

    def head(
        self,
        method: Method,
        targets: Tensor | None = None,
        observed: Tensor | None = None,
        *,
        decay: float = 0.0,
        choose: bool = True,
    ) -> LinearHead:
        """A head of the best epoch on validation, trained by `method`.

        Args:
            method: The loss.
            targets: (N, L) instead of the observed labels.
            observed: (N, L), where `targets` counts.
            decay: Above 0: `method.update` sees the predictions of the average of the weights.
            choose: Whether there is a best epoch; else the last one is taken.
        """
        targets = self.targets if targets is None else targets
        observed = self.observed if observed is None else observed
        phase = self.job.params.train.linear
        head = copy.deepcopy(self.job.model.head).train()
        optimizer = torch.optim.Adam(head.parameters(), lr=phase.learning_rate, fused=True)
        averaging = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        average = AveragedModel(head, multi_avg_fn=averaging)
        state = dict(method.initial_state(targets, observed))
        batches = FeatureBatches(self.train, self.job._order(phase))
        best, kept = -1.0, copy.deepcopy(head)
        for epoch in range(phase.epochs):
            context = Context(epoch, phase.epochs, 0, phase.learning_rate, self.k)
            for rows, inputs in batches.epoch(epoch):
                labels = {name: values[rows] for name, values in state.items()}
                batch = Batch(head(inputs), targets[rows], observed[rows], labels)
                loss = method.loss(batch, context)
                with torch.no_grad():
                    seen = average(inputs) if decay else batch.logits.detach()
                    moved = method.update(replace(batch, logits=seen), context)
                for name, values in state.items():
                    values[rows] = moved[name]
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if decay:
                    average.update_parameters(head)
            score = self.score(self.job.selection, self.logits(head, self.val))
            if score > best or not choose:
                best, kept = score, copy.deepcopy(head)
        return kept

    @torch.no_grad()
    def logits(self, head: LinearHead, features: Tensor) -> Tensor:
        """(N, L) of features (N, D)."""
        logits: Tensor = head.eval()(features)
        head.train()
        return logits

    def score(self, rows: Rows, logits: Tensor) -> float:
        """The mAP of logits (N, L)."""
        probs = logits.sigmoid().numpy()
        return float(np.nanmean(average_precision(rows.targets, rows.observed, probs)))

    def best(self, row: str, candidates: Iterable[tuple[str, Tensor, Tensor]]) -> Outcome:
        """The candidate (name, validation logits, test logits) that is best on validation."""
        scored = [(self.score(self.job.selection, val), n, test) for n, val, test in candidates]
        val, name, test = max(scored, key=lambda candidate: candidate[0])
        return Outcome(row, name, val, self.score(self.job.test, test))

    def of_heads(self, row: str, heads: Iterable[tuple[str, LinearHead]]) -> Outcome:
        """`best` of heads."""
        return self.best(
            row, ((name, self.logits(h, self.val), self.logits(h, self.test)) for name, h in heads)
        )


@dataclass(frozen=True)
class Seed:
    """What the ideas start from, with the splits and labels of a seed.

    Attributes:
        runs: Of EPR, PLMCL and ridge, as they were tuned.
        place: Where they read.
    """

    runs: dict[str, Run]
    place: Place

    @cached_property
    def bench(self) -> Bench:
        """Of EPR."""
        return Bench(prepare_run(self.runs["EPR"], self.place))

    @cached_property
    def epr(self) -> LinearHead:
        """EPR's head."""
        return self.bench.head(self.bench.job.method)

    def through_job(self, row: str, run: Run, candidate: str) -> Outcome:
        """What a run of the grid comes to."""
        figures = train(run, self.place)
        return Outcome(row, candidate, figures.val, figures.test)


def baselines(seed: Seed) -> Iterator[Outcome]:
    """EPR, PLMCL and ridge as they are."""
    for name, run in seed.runs.items():
        yield seed.through_job(name, run, run.candidate)


def longer(seed: Seed) -> Iterator[Outcome]:
    """EPR and PLMCL with four times as many epochs."""
    for name in ("EPR", "PLMCL"):
        run = with_epochs(seed.runs[name], 100)
        yield seed.through_job(f"{name}, 100 epochs", run, "epochs=100")


def averaged_predictions(seed: Seed) -> Iterator[Outcome]:
    """PLMCL whose pseudo labels follow the predictions of the average of the head's weights."""
    bench = Bench(prepare_run(seed.runs["PLMCL"], seed.place))
    head = bench.head(bench.job.method, decay=0.99)
    yield bench.of_heads("PLMCL, predictions of an average", [("decay=0.99", head)])


def class_priors(seed: Seed) -> Iterator[Outcome]:
    """The observed positives of each label, scaled so that they sum to k, in place of R_k."""
    bench = seed.bench
    priors = expected_positives(bench.positive, bench.k) / len(bench.positive)
    yield bench.of_heads(
        "EPR, class priors in place of R_k",
        (
            (f"weight={weight:g}", bench.head(ClassPriors(priors=tuple(priors), weight=weight)))
            for weight in (0.1, 1.0, 10.0)
        ),
    )


def self_training(seed: Seed) -> Iterator[Outcome]:
    """A second head on EPR's predictions, as they are and propagated over neighbours."""
    bench = seed.bench
    bce = make_method("bce", bench.job.params.methods)
    everywhere = torch.ones_like(bench.observed)
    own = bench.logits(seed.epr, bench.train).sigmoid()

    def second(mix: float) -> LinearHead:
        return bench.head(bce, propagate(bench, own, mix), everywhere)

    yield bench.of_heads("EPR, then a head on its predictions", [("", second(0.0))])
    yield bench.of_heads(
        "EPR, the same over neighbours", ((f"mix={mix:g}", second(mix)) for mix in (0.5, 0.9))
    )


def propagate(bench: Bench, labels: Tensor, mix: float) -> Tensor:
    """Soft labels (N, L): `mix` of the neighbours' mean and the rest one's own, again and again.

    Neighbours are the nearest by cosine, either way; what is observed stays as observed.
    """
    unit = functional.normalize(bench.train, dim=1)
    near = (unit @ unit.T).fill_diagonal_(-1).topk(NEIGHBOURS).indices
    graph = torch.zeros(len(unit), len(unit)).scatter_(1, near, 1.0)
    graph = torch.maximum(graph, graph.T)
    graph /= graph.sum(dim=1, keepdim=True)
    soft = torch.where(bench.observed, bench.targets, labels)
    for _ in range(STEPS if mix else 0):
        mixed = mix * (graph @ soft) + (1 - mix) * labels
        soft = torch.where(bench.observed, bench.targets, mixed)
    return soft


def co_occurrence(seed: Seed) -> Iterator[Outcome]:
    """EPR's logits plus, for every other label, its probability times the log lift it brings.

    The lift P(l | m) / P(l) comes from EPR's own predictions of the training images.
    """
    bench, epr = seed.bench, seed.epr
    probs = bench.logits(epr, bench.train).sigmoid()
    given = (probs.T @ probs) / probs.sum(dim=0)[:, None]
    lift = (given / probs.mean(dim=0)).log().fill_diagonal_(0.0)
    val, test = bench.logits(epr, bench.val), bench.logits(epr, bench.test)
    yield bench.best(
        "EPR, logits shifted by co-occurrence",
        (
            (f"weight={w:g}", val + w * val.sigmoid() @ lift, test + w * test.sigmoid() @ lift)
            for w in (0.0, 0.1, 0.3, 1.0)
        ),
    )


def estimate_k(bench: Bench) -> float:
    """The k that the training labels alone suggest: Elkan and Noto's estimator (KDD 2008).

    A head learns to tell observed positives from all else, on four fifths of the images. Its mean
    probability at the positives of the rest estimates the share of all positives that is observed.
    """
    held = (torch.arange(len(bench.train)) % HELD_OUT == 0)[:, None].expand_as(bench.observed)
    bce = make_method("bce", bench.job.params.methods)
    head = bench.head(bce, bench.positive.float(), ~held, choose=False)
    probs = bench.logits(head, bench.train).sigmoid()
    observed_share = float(probs[bench.positive & held].mean())
    observed = float(bench.positive.sum()) / len(bench.train)
    return min(observed / observed_share, float(probs.shape[1]))


def estimated_k(seed: Seed) -> Iterator[Outcome]:
    """The default told the estimated k."""
    k = round(estimate_k(seed.bench), 3)
    run, found = with_k(seed.runs["ridge"], k), f"k={k:g} true={seed.bench.k:.3f}"
    yield seed.through_job("ridge, k estimated", run, found)


IDEAS = {
    "baselines": baselines,
    "class-priors": class_priors,
    "self-training": self_training,
    "co-occurrence": co_occurrence,
    "estimated-k": estimated_k,
    "averaged-predictions": averaged_predictions,
    "longer": longer,
}


def with_epochs(run: Run, epochs: int) -> Run:
    """The run with so many epochs of the head."""
    linear = run.params.train.linear.model_copy(update={"epochs": epochs})
    settings = run.params.train.model_copy(update={"linear": linear})
    return replace(run, params=run.params.model_copy(update={"train": settings}))


def with_k(run: Run, k: float) -> Run:
    """The run that is told k."""
    labels = run.params.labels.model_copy(update={"per_image": k})
    return replace(run, params=run.params.model_copy(update={"labels": labels}))


def tabulate(results: pd.DataFrame, quoted: pd.DataFrame) -> str:
    """Mean ± deviation of each row, and of its differences to EPR, seed by seed, in points.

    Args:
        results: Columns row, seed and test.
        quoted: The same of rows of the grid, which are compared with the grid's EPR.
    """
    lines = ["| row | test mAP | against EPR | seeds above |", "| --- | --- | --- | --- |"]
    for table, ending in ((results, ""), (quoted, " (from the table above)")):
        tests = 100 * table.pivot(index="seed", columns="row", values="test")
        for row in table["row"].unique():
            gain = tests[row] - tests["EPR"]
            shown = f"{gain.mean():+.1f} ± {gain.std():.1f} | {(gain > 0).sum()} of {len(gain)}"
            if row == "EPR":
                if ending:
                    continue
                shown = "|"
            lines.append(
                f"| {row}{ending} | {tests[row].mean():.1f} ± {tests[row].std():.1f} | {shown} |"
            )
    return "\n".join(lines) + "\n"


def main(
    data_set: Annotated[str, typer.Argument(help="One that grids/frozen.yaml was run on.")],
    out: Annotated[Path, typer.Option(help="Folder for tried-<data set>.csv and .txt.")],
    data: Annotated[Path, typer.Option(help="Folder of the photographs.")] = Path("../shared/data"),
    work: Annotated[Path, typer.Option(help="Where the project is made.")] = Path(".plmcl/grids"),
    tuned: Annotated[Path, typer.Option(help="Results of grids/frozen.yaml.")] = Path(
        "benchmarks/results/grids"
    ),
    idea: Annotated[list[str] | None, typer.Option(help="One of IDEAS; else all.")] = None,
) -> None:
    """Every idea on every seed, but for what the CSV has already; one thread."""
    root = (work / data_set).resolve()
    params = make_project(data_set, data, root)
    single = params.train.model_copy(update={"threads": 1})
    spec, grid = load_grid(GRID), read_results(tuned / f"{data_set}-{GRID.stem}.csv")
    variants = make_variants(spec, params.model_copy(update={"train": single}))
    chosen = choose_candidates(grid, spec.tuning_seeds)
    place = Place(
        Paths.of_project(root, params.data.source), root / ".plmcl" / "grid" / "tried", "cpu"
    )
    seeds = {}
    for seed in SEEDS:
        runs = {}
        for row in ("EPR", "PLMCL", "ridge"):
            candidate = chosen[row, SETTING]
            made = variants[row][candidate].model_copy(update={"seed": seed})
            runs[row] = Run(row, spec.rows[row].method, SETTING, seed, candidate, made)
        draw_splits(runs.values(), place)
        seeds[seed] = Seed(runs, place)
    file = out / f"tried-{data_set}.csv"
    lines: list[dict[Any, Any]] = []
    if file.exists():
        lines += pd.read_csv(file, keep_default_na=False).to_dict("records")
    done = {(line["idea"], line["seed"]) for line in lines}
    for name, seed in itertools.product(IDEAS if idea is None else idea, SEEDS):
        if (name, seed) not in done:
            lines += [vars(o) | {"idea": name, "seed": seed} for o in IDEAS[name](seeds[seed])]
            pd.DataFrame(lines).to_csv(file, index=False, lineterminator="\n")
            print(name, seed, flush=True)
    results = pd.DataFrame(lines)
    cells = grid["row"].isin(["EPR", *TWO_VIEWS]) & (grid["setting"] == SETTING)
    as_chosen = [chosen[cell] for cell in zip(grid["row"], grid["setting"], strict=True)]
    text = tabulate(results, grid[cells & (grid["candidate"] == as_chosen)])
    (out / f"tried-{data_set}.txt").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    typer.run(main)
