"""A training, set up from what the earlier stages wrote, ready to run."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from plmcl import schemas
from plmcl.checkpoint import Checkpoints
from plmcl.data.augmentation import Augmentation
from plmcl.data.images import Recipe
from plmcl.data.loading import (
    EpochOrder,
    FeatureBatches,
    ImageBatches,
    ImageRows,
    on_device,
    sequential_batches,
)
from plmcl.data.manifest import Manifest
from plmcl.data.rows import Rows, positives_per_image, training_rows, truth_rows
from plmcl.distribution import from_first, join_parts, make_fabric, part_of
from plmcl.errors import PlmclError
from plmcl.evaluation import evaluate, predict, selection_score
from plmcl.features import cached_features
from plmcl.heads import LinearHead, UnitHead, make_head
from plmcl.labels.initial import make_store
from plmcl.labels.mapped import MappedStore
from plmcl.labels.store import LabelStore
from plmcl.methods import make_method
from plmcl.methods.base import Batch, Context, Head, Method, State
from plmcl.models import (
    Classifier,
    Weights,
    build_classifier,
    load_backbone_weights,
)
from plmcl.ordering import positions
from plmcl.params import Params, Phase
from plmcl.progress import show_progress
from plmcl.stages.paths import Paths
from plmcl.training import Fitted, Observations, PhaseRun, Score, fit
from plmcl.warm import load_warm

PHASES = {
    "linear": ("linear",),
    "linear_init": ("linear", "fine_tune"),
    "end_to_end": ("fine_tune",),
}


@dataclass(frozen=True)
class Decoded:
    """Images that are decoded already, for many short trainings on the same ones.

    Attributes:
        image_ids: N stable ids.
        pixels: uint8 (N, H, W, 3), through the recipe.
    """

    image_ids: list[str]
    pixels: NDArray[np.uint8]

    def of(self, rows: Rows) -> NDArray[np.uint8]:
        """The pixels of `rows`, which are all among these images."""
        found: NDArray[np.uint8] = self.pixels[positions(rows.image_ids, self.image_ids)]
        return found


@dataclass(frozen=True)
class Start:
    """The champion that a training starts from.

    Attributes:
        sha256: Of its files.
        text: What was taken from it, for people.
    """

    sha256: str
    text: str


@dataclass(frozen=True)
class Job:
    """A training, ready to start: what it learns from, what it changes, where it runs.

    Attributes:
        params: All of them.
        label_names: L names.
        train: The training images, with the labels that the setting shows.
        selection: The images that the best epoch is chosen on, with all that is known of them.
        test: The test images, likewise.
        observations: Of `train`, on the device.
        model: Pretrained backbone and random head, on the device.
        weights: Where the backbone's weights came from.
        start: The champion that it starts from, if any.
        method: The loss, and the per-image state's update.
        store: That state.
        fabric: Device and precision.
        images: The folder that the images' paths start from.
        features: Where features are kept.
        features_device: Where those that are not there yet are computed.
        decoded: The images' pixels, if they are decoded already.
    """

    params: Params
    label_names: list[str]
    train: Rows
    selection: Rows
    test: Rows
    observations: Observations
    model: Classifier
    weights: Weights
    start: Start | None
    method: Method
    store: LabelStore
    fabric: Fabric
    images: Path
    features: Path
    features_device: torch.device
    decoded: Decoded | None

    @property
    def recipe(self) -> Recipe:
        """How a file becomes pixels."""
        return Recipe(**self.params.image.model_dump())

    @property
    def precision(self) -> str:
        """That of training, as `Fabric` calls it."""
        return _precision(self.params.train.precision)

    @property
    def place(self) -> str:
        """Where training runs: the device, and on how many of them."""
        ranks = self.fabric.world_size
        return f"{self.fabric.device}" if ranks == 1 else f"{ranks} x {self.fabric.device.type}"

    @property
    def trained(self) -> nn.Module:
        """What training changes: the head alone, or all weights."""
        return self.model if "fine_tune" in self._phases else self.model.head

    def fit(
        self,
        *,
        checkpoints: Checkpoints | None,
        on_epoch: Callable[[dict[str, Any]], None],
        progress: Callable[[int, int], None],
        figures: Callable[[Context], dict[str, Any]] | None = None,
    ) -> Fitted:
        """Train; `model` holds the best weights afterwards. The arguments are `training.fit`'s."""
        if isinstance(self.store, MappedStore):
            if checkpoints is None:
                raise PlmclError(
                    "train.state_memory_mb: the label state needs more, and a grid keeps it in "
                    "memory: raise it"
                )
            self.store.open(checkpoints.generations)
        head = self.model.head
        if isinstance(head, UnitHead):
            head.center.copy_(self.features_of(self.train)[0].mean(dim=0))
        return fit(
            self.trained,
            self.method,
            self.store,
            self.observations,
            [self._linear() if name == "linear" else self._fine_tune() for name in self._phases],
            fabric=self.fabric,
            seed=self.params.seed,
            checkpoints=checkpoints,
            on_epoch=on_epoch,
            progress=progress,
            solved=self._solve() if self.method.solves else None,
            figures=figures,
        )

    def predict(self, rows: Rows) -> NDArray[np.float32]:
        """Probabilities (N, L) of images, by the weights that `model` holds now."""
        if self.trained is self.model.head:
            return _predict_features(self.model.head, self.features_of(rows)[0])
        part = part_of(len(rows), self.fabric)
        return self._predict_images(self.model, self._images(rows, part))

    def features_of(self, rows: Rows, kind: Augmentation = "none", views: int = 1) -> Tensor:
        """Features of images under the pretrained backbone: (views, N, D), on the device.

        Args:
            rows: N images.
            kind: How each view is augmented.
            views: How many different views of each image.
        """
        network = [self.params.model.backbone, self.params.model.pooling, self.weights.sha256]
        if self.weights.source == "none":
            network.append(f"seed {self.params.seed}")
        with show_progress("features") as progress:
            features = cached_features(
                self.model,
                self._images(rows),
                content=rows.sha256,
                weights=" ".join(network),
                cache=self.features,
                device=self.features_device,
                progress=progress,
                kind=kind,
                views=views,
            )
        return features.to(self.fabric.device)

    def compute_features(self) -> None:
        """Have the features that training and prediction will ask for on the disk."""
        for rows in (self.train, self.selection, self.test):
            self.features_of(rows)
        if self.method.needs_strong_view:
            self.features_of(self.train, "randaugment", self.params.train.linear.views)

    @property
    def _phases(self) -> tuple[str, ...]:
        names = PHASES[self.params.train.mode]
        # A head in closed form needs no epochs.
        return tuple(n for n in names if n != "linear") if self.method.solves else names

    def _linear(self) -> PhaseRun:
        phase = self.params.train.linear
        train, selection = self.features_of(self.train)[0], self.features_of(self.selection)[0]
        strong = None
        if self.method.needs_strong_view:
            strong = self.features_of(self.train, "randaugment", phase.views)
        return PhaseRun(
            name="linear",
            network=self.model.head,
            batches=FeatureBatches(train, self._order(phase), strong),
            epochs=phase.epochs,
            learning_rate=phase.learning_rate,
            score=lambda head: self._score(_predict_features(head, selection)),
        )

    def _fine_tune(self) -> PhaseRun:
        phase = self.params.train.fine_tune
        selection = self._images(self.selection, part_of(len(self.selection), self.fabric))
        return PhaseRun(
            name="fine_tune",
            network=self.model,
            batches=ImageBatches(
                self._images(self.train),
                self._order(phase),
                augmentation=phase.augmentation,
                strong=self.method.needs_strong_view,
                epochs=sum(getattr(self.params.train, name).epochs for name in self._phases),
            ),
            epochs=phase.epochs,
            learning_rate=phase.learning_rate,
            score=lambda model: self._score(self._predict_images(model, selection)),
            head_rate=phase.head_rate,
            frozen_statistics=phase.batch_norm == "frozen",
            ema_decay=phase.ema_decay,
            sample=self._sample(phase.batch_size),
            compiled=phase.compile,
        )

    def _sample(self, batch_size: int) -> Tensor | None:
        device, size = self.fabric.device, self.params.image.size
        # Passes with dropout draw other numbers each time, which the head does without graphs.
        if device.type != "cuda" or self.method.dropout_passes:
            return None
        views = 2 if self.method.needs_strong_view else 1
        return torch.zeros(views * batch_size, size, size, 3, dtype=torch.uint8, device=device)

    def _solve(self) -> dict[str, Any]:
        """Give the head the closed form that is best on the selection split; the history's entry.

        Raises:
            PlmclError: The method found none.
        """
        train, selection = self.features_of(self.train)[0], self.features_of(self.selection)[0]
        observations, head = self.observations, self.model.head
        batch = Batch(torch.empty(0), observations.targets, observations.observed)
        k = observations.positives_per_image
        best: tuple[Score, Head] | None = None
        for solution in self.method.solve(head.prepare(train), head.parts, batch, k):
            _load(solution, head)
            score = self._score(_predict_features(head, selection))
            if best is None or score[1] > best[0][1]:
                best = score, solution
        if best is None:
            raise PlmclError(f"{type(self.method).__name__}: no head in closed form was found")
        (name, value), solution = best
        _load(solution, head)
        with torch.no_grad():
            loss = self.method.loss(
                replace(batch, logits=head.eval()(train)), Context(0, 1, 0, 1.0, k)
            )
        phase = f"solved, {solution.name}"
        return {"epoch": 0, "phase": phase, "train/loss": float(loss), name: value}

    def _order(self, phase: Phase) -> EpochOrder:
        return EpochOrder(
            self.train.image_ids,
            seed=self.params.seed,
            batch_size=phase.batch_size,
            rank=self.fabric.global_rank,
            ranks=self.fabric.world_size,
            in_blocks=isinstance(self.store, MappedStore),
        )

    def _images(self, rows: Rows, part: slice = slice(None)) -> ImageRows:
        pixels = None if self.decoded is None else self.decoded.of(rows)[part]
        return ImageRows(self.images, rows.paths[part], self.recipe, pixels)

    def _predict_images(self, model: nn.Module, images: ImageRows) -> NDArray[np.float32]:
        batches = on_device(sequential_batches(images), self.fabric.device)
        return join_parts(predict(model, batches, len(images)))

    def _score(self, probs: NDArray[np.float32]) -> Score:
        evaluation = evaluate(self.selection.targets, self.selection.observed, probs)
        name, value = selection_score(evaluation)
        prefix = "val" if self.params.split.protocol == "holdout" else "selected_on_test"
        return f"{prefix}/{name}", from_first(value)


def prepare(
    paths: Paths,
    params: Params,
    setting: str,
    method_name: str,
    *,
    manifest: Manifest | None = None,
    decoded: Decoded | None = None,
    features_device: torch.device | None = None,
) -> Job:
    """Read what the earlier stages wrote and set everything up, the same for the same seed.

    Where `torchrun` started several processes, all of them call this, and `fit` and `predict`.

    Args:
        paths: Of the project.
        params: All of them.
        setting: Such as `sspl-40`.
        method_name: Such as `plmcl`.
        manifest: The project's, if it has been read.
        decoded: Pixels of all usable images, if they are decoded.
        features_device: Where features are computed; None: where training runs.
    """
    torch.set_num_threads(params.train.threads)
    manifest = manifest or Manifest.read(paths.manifests)
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    observed = schemas.read_table(paths.observed(setting), schemas.ObservedLabels)
    train = training_rows(manifest, splits, observed)
    selection = truth_rows(manifest, splits, selection_split(params))
    k = positives_per_image(params.labels.per_image, manifest, splits)
    method = make_method(method_name, params.methods)
    has_negatives = bool((train.observed & (train.targets == 0)).any())
    refuse_without_negatives(method_name, method, setting, has_negatives)
    fabric = make_fabric(_precision(params.train.precision))
    model, weights = _pretrained(
        params.model.backbone,
        params.model.weights,
        params.model.pooling,
        params.model.head,
        len(manifest.label_names),
        params.seed if params.model.weights == "none" else 0,
    )
    model = copy.deepcopy(model)
    model.head = make_head(
        params.model.head, model.head.parts, len(manifest.label_names), seed=params.seed
    )
    model.head.dropout = method.dropout
    test = truth_rows(manifest, splits, "test")
    warm = None
    if params.train.warm_start != "none":
        warm = load_warm(paths.warm(params.train.warm_start))
        warm.refuse_seen(manifest, train, (selection, test))
        weights = warm.load_backbone(model, weights, params.model)
        if not method.solves:
            warm.load_head(model.head, manifest.label_names)
    model.to(fabric.device)
    if fabric.device.type == "cuda":
        model.to(memory_format=torch.channels_last)
    targets = torch.from_numpy(train.targets).float().to(fabric.device)
    known = torch.from_numpy(train.observed).to(fabric.device)

    def carry(fresh: State, seen: Tensor, image_ids: Sequence[str]) -> State:
        if warm is None or not warm.is_of(setting, method_name):
            return fresh
        return warm.carry_state(fresh, method, seen, image_ids, manifest.label_names)

    store = make_store(
        train.image_ids,
        train.targets,
        train.observed,
        method,
        params.train,
        seed=params.seed,
        device=fabric.device,
        ranks=fabric.world_size,
        carry=carry,
    )
    start = None
    if warm is not None:
        names = {"image_ids": train.image_ids, "label_names": manifest.label_names}
        run = setting, method_name
        start = Start(warm.sha256, warm.describe(method, store.names, run=run, **names))
    return Job(
        params=params,
        label_names=manifest.label_names,
        train=train,
        selection=selection,
        test=test,
        observations=Observations(targets, known, k),
        model=model,
        weights=weights,
        start=start,
        method=method,
        store=store,
        fabric=fabric,
        images=paths.images,
        features=paths.features,
        features_device=features_device or fabric.device,
        decoded=decoded,
    )


def _precision(
    asked: Literal["auto", "32-true", "bf16-mixed"],
) -> Literal["32-true", "bf16-mixed"]:
    if asked != "auto":
        return asked
    has_bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if has_bf16 else "32-true"


@functools.lru_cache(maxsize=2)
def _pretrained(
    backbone: str, weights: str, pooling: str, head: str, num_labels: int, seed: int
) -> tuple[Classifier, Weights]:
    # Kept for the next training in this process: building and reading take longer than a head's.
    model = build_classifier(backbone, num_labels=num_labels, seed=seed, pooling=pooling, head=head)
    return model, load_backbone_weights(model, backbone, weights)


def _predict_features(head: nn.Module, features: Tensor) -> NDArray[np.float32]:
    return predict(head, [(torch.arange(len(features)), features)], len(features))


def _load(solution: Head, head: LinearHead) -> None:
    with torch.no_grad():
        head.weight.copy_(solution.weight)
        head.bias.copy_(solution.bias)


def refuse_without_negatives(name: str, method: Method, setting: str, has_negatives: bool) -> None:
    """Refuse a method that learns nothing from positive labels alone.

    Raises:
        PlmclError: Which method and setting, and what to do.
    """
    if method.needs_negatives and not has_negatives:
        raise PlmclError(
            f"{name} needs observed negatives and {setting} shows none: take a method for "
            "positive labels (such as an, epr, ridge), or a setting with negatives (ffl, fpl, sfl)"
        )


def selection_split(params: Params) -> str:
    """What the best epoch is chosen on: `val`, or `test` under the paper's protocol."""
    return "val" if params.split.protocol == "holdout" else "test"
