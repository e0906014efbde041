"""What the runs of a grid read, made once and before them: splits, features, decoded images."""

import functools
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout, suppress

from plmcl.errors import PlmclError
from plmcl.grid.plan import Run, fine_tunes, identity
from plmcl.grid.worker import Place, SeedPaths, prepare_run, read_pixels
from plmcl.methods import make_method
from plmcl.models import build_classifier, load_backbone_weights
from plmcl.params import Model, Params
from plmcl.stages import split
from plmcl.stages.job import PHASES


def draw_splits(runs: Iterable[Run], place: Place) -> None:
    """Make the splits of every seed, and the labels that each setting shows."""
    seeds: dict[SeedPaths, tuple[Params, set[str]]] = {}
    for run in runs:
        _, settings = seeds.setdefault(place.paths(run.params), (run.params, set()))
        settings.add(run.setting)
    place.logs.mkdir(parents=True, exist_ok=True)
    with (place.logs / "splits.txt").open("w", encoding="utf-8") as log, redirect_stdout(log):
        for paths, (params, settings) in seeds.items():
            print(f"{paths.splits.name}:")
            split.run(paths, params, sorted(settings))


def identify(runs: Iterable[Run], place: Place) -> list[str]:
    """`plan.identity` of each run; the splits are drawn."""
    data = place.project.data_sha256()
    splits = functools.cache(SeedPaths.splits_sha256)
    return [
        identity(
            run,
            data=data,
            splits=splits(place.paths(run.params), run.setting),
            weights=_weights_sha256(run.params.model),
        )
        for run in runs
    ]


def compute_features(runs: Sequence[Run], place: Place) -> None:
    """Have features on the disk, so that no two workers compute the same ones."""
    computed = set()
    for run in runs:
        params, method = run.params, make_method(run.method, run.params.methods)
        kinds = method.needs_strong_view, method.solves
        key = place.paths(params), params.model, params.image, params.train.linear.views, kinds
        reads = "linear" in PHASES[params.train.mode] or method.solves
        if reads and key not in computed:
            computed.add(key)
            with suppress(PlmclError):  # the run itself will say it
                prepare_run(run, place).compute_features()


def decode_images(runs: Sequence[Run], place: Place) -> None:
    """Have decoded images on the disk for the runs that fine-tune, if they are not too many.

    Raises:
        PlmclError: An image cannot be read.
    """
    for run in {run.params.image: run for run in runs if fine_tunes(run)}.values():
        read_pixels(run, place)


@functools.cache
def _weights_sha256(model: Model) -> str:
    network = build_classifier(
        model.backbone, num_labels=1, seed=0, pooling=model.pooling, head=model.head
    )
    return load_backbone_weights(network, model.backbone, model.weights).sha256
