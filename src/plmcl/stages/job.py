"""A training, set up from what the earlier stages wrote: everything but the running of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from plmcl import schemas
from plmcl.data.images import Recipe
from plmcl.data.loading import (
    EpochOrder,
    FeatureBatches,
    ImageBatches,
    ImageRows,
    sequential_batches,
)
from plmcl.data.manifest import Manifest
from plmcl.data.rows import Rows, positives_per_image, training_rows, truth_rows
from plmcl.errors import PlmclError
from plmcl.evaluation import evaluate, predict, selection_score
from plmcl.features import cached_features
from plmcl.labels.store import LabelStore
from plmcl.methods import make_method
from plmcl.methods.base import Method
from plmcl.models import Classifier, Weights, build_classifier, load_backbone_weights
from plmcl.params import Params, Phase
from plmcl.progress import show_progress
from plmcl.stages.paths import Paths
from plmcl.training import Observations, PhaseRun, Score

PHASES = {
    "linear": ("linear",),
    "linear_init": ("linear", "fine_tune"),
    "end_to_end": ("fine_tune",),
}


@dataclass(frozen=True)
class Job:
    """A training, ready to start: what it learns from, what it changes, where it runs."""

    params: Params
    label_names: list[str]
    raw: Path
    features: Path
    train: Rows
    selection: Rows
    observations: Observations
    model: Classifier
    weights: Weights
    method: Method
    store: LabelStore
    fabric: Fabric

    @property
    def recipe(self) -> Recipe:
        """How a file becomes pixels."""
        return Recipe(**self.params.image.model_dump())

    def phases(self) -> list[PhaseRun]:
        """The phases of `train.mode`."""
        settings = {"linear": self.params.train.linear, "fine_tune": self.params.train.fine_tune}
        make = {"linear": self._linear, "fine_tune": self._fine_tune}
        return [make[name](settings[name]) for name in PHASES[self.params.train.mode]]

    def _linear(self, phase: Phase) -> PhaseRun:
        train, selection = self._features(self.train), self._features(self.selection)

        def score() -> Score:
            rows = torch.arange(len(self.selection))
            return self._score(predict(self.model.head, [(rows, selection)], len(rows)))

        batches = FeatureBatches(train, self._order(phase))
        return PhaseRun(
            "linear", self.model.head, batches, phase.epochs, phase.learning_rate, score
        )

    def _fine_tune(self, phase: Phase) -> PhaseRun:
        selection = self._images(self.selection)

        def score() -> Score:
            batches = sequential_batches(selection)
            on_device = ((rows, images.to(self.fabric.device)) for rows, images in batches)
            return self._score(predict(self.model, on_device, len(selection)))

        batches = ImageBatches(self._images(self.train), self._order(phase))
        return PhaseRun("fine_tune", self.model, batches, phase.epochs, phase.learning_rate, score)

    def _order(self, phase: Phase) -> EpochOrder:
        return EpochOrder(self.train.image_ids, seed=self.params.seed, batch_size=phase.batch_size)

    def _images(self, rows: Rows) -> ImageRows:
        return ImageRows(self.raw, rows.paths, self.recipe)

    def _features(self, rows: Rows) -> torch.Tensor:
        backbone = self.params.model.backbone
        random_weights = f" seed {self.params.seed}" if self.weights.source == "none" else ""
        with show_progress("features") as progress:
            return cached_features(
                self.model,
                self._images(rows),
                content=rows.sha256,
                weights=f"{backbone} {self.weights.sha256}{random_weights}",
                cache=self.features,
                device=self.fabric.device,
                progress=progress,
            )

    def _score(self, probs: Any) -> Score:
        evaluation = evaluate(self.selection.targets, self.selection.observed, probs)
        name, value = selection_score(evaluation)
        prefix = "val" if self.params.split.protocol == "holdout" else "selected_on_test"
        return f"{prefix}/{name}", value


def prepare(paths: Paths, params: Params, setting: str, method_name: str) -> Job:
    """Read what the earlier stages wrote and set everything up, the same for the same seed."""
    torch.set_num_threads(params.train.threads)
    manifest = Manifest.read(paths.manifests)
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    observed = schemas.read_table(paths.observed(setting), schemas.ObservedLabels)
    train = training_rows(manifest, splits, observed)
    selection = truth_rows(manifest, splits, selection_split(params))
    k = positives_per_image(params.labels.per_image, manifest, splits)
    method = make_method(method_name, params.methods)
    has_negatives = bool((train.observed & (train.targets == 0)).any())
    refuse_without_negatives(method_name, method, setting, has_negatives)
    fabric = Fabric(accelerator="auto", devices=1, precision=params.train.precision)
    model = build_classifier(
        params.model.backbone, num_labels=len(manifest.label_names), seed=params.seed
    )
    weights = load_backbone_weights(model, params.model.backbone, params.model.weights)
    model.to(fabric.device)
    targets = torch.from_numpy(train.targets).float().to(fabric.device)
    known = torch.from_numpy(train.observed).to(fabric.device)
    return Job(
        params=params,
        label_names=manifest.label_names,
        raw=paths.raw,
        features=paths.features,
        train=train,
        selection=selection,
        observations=Observations(targets, known, k),
        model=model,
        weights=weights,
        method=method,
        store=LabelStore(train.image_ids, method.initial_state(targets, known)),
        fabric=fabric,
    )


def refuse_without_negatives(name: str, method: Method, setting: str, has_negatives: bool) -> None:
    """Refuse a method that learns nothing from positive labels alone.

    Raises:
        PlmclError: Which method and setting, and what to do.
    """
    if method.needs_negatives and not has_negatives:
        raise PlmclError(
            f"{name} needs observed negatives and {setting} shows none: take a method for "
            "positive labels (an, epr, plmcl), or a setting with negatives (ffl, fpl, sfl)"
        )


def selection_split(params: Params) -> str:
    """What the best epoch is chosen on: `val`, or `test` under the paper's protocol."""
    return "val" if params.split.protocol == "holdout" else "test"
