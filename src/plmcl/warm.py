"""A champion to start from: its weights and its label state, mapped onto the images of today.

Rows of the head and columns of the state go by label name, rows of the state by image id, so labels
and images may have come, gone and moved since.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plmcl.data.manifest import Manifest
from plmcl.data.rows import Rows
from plmcl.errors import PlmclError
from plmcl.heads import LinearHead
from plmcl.labels.store import LabelStore
from plmcl.methods.base import Method, State
from plmcl.models import Classifier, ModelRecord, Weights, load_backbone_state, read_saved
from plmcl.ordering import positions
from plmcl.params import Model

ANEW = "set train.warm_start to none (retraining.start: scratch) to start anew"


@dataclass(frozen=True)
class Warm:
    """A champion, as a retraining put it beside the data.

    Attributes:
        version: Its name, such as `v0002`.
        weights: Of the whole classifier, by name.
        record: What its model.pt says of it.
        labels: The state that its method kept, and the ids of the images that it learned from.
        sha256: Of all its files.
    """

    version: str
    weights: dict[str, Tensor]
    record: ModelRecord
    labels: LabelStore
    sha256: str

    def refuse_seen(self, manifest: Manifest, train: Rows, held_out: Sequence[Rows]) -> None:
        """Refuse to go on where images that the champion learned from are measured on now.

        Args:
            manifest: Says what bytes its images have.
            train: Bytes that are trained on in any case do not count.
            held_out: The images that figures come from.

        Raises:
            PlmclError: How many there are, and one of them.
        """
        learned = positions(manifest.images["image_id"], self.labels.image_ids) >= 0
        bytes_seen = set(manifest.images.loc[learned, "sha256"]) - set(train.sha256)
        seen = [
            image_id
            for rows in held_out
            for image_id, sha256 in zip(rows.image_ids, rows.sha256, strict=True)
            if sha256 in bytes_seen
        ]
        if seen:
            raise PlmclError(
                f"train.warm_start: {self.version} learned from {len(seen)} images that are held "
                f"out now, such as {seen[0]!r}: figures on them would be too good; {ANEW}"
            )

    def load_backbone(self, model: Classifier, weights: Weights, chosen: Model) -> Weights:
        """Give a model the champion's backbone.

        Args:
            model: Changed in place, unless the champion's backbone is the one that it has: then
                the features that are cached under `weights` are the champion's, too.
            weights: Where the model's backbone came from.
            chosen: What params.yaml says of the model.

        Returns:
            Where its backbone comes from now.

        Raises:
            PlmclError: The champion is another kind of network.
        """
        for name in ("backbone", "pooling", "head"):
            own, wanted = getattr(self.record, name), getattr(chosen, name)
            if own != wanted:
                raise PlmclError(
                    f"train.warm_start: {self.version} has the {name} {own}, and model.{name} is "
                    f"{wanted}; {ANEW}"
                )
        prefix = "backbone."
        saved = {n.removeprefix(prefix): t for n, t in self.weights.items() if n.startswith(prefix)}
        present = model.backbone.state_dict()
        if saved.keys() == present.keys() and all(torch.equal(saved[n], present[n]) for n in saved):
            return weights
        path = Path(self.version, "model.pt")
        load_backbone_state(model.backbone, saved, path)
        digest = hashlib.sha256()
        for name, values in sorted(saved.items()):
            digest.update(name.encode() + values.contiguous().numpy().tobytes())
        return Weights(str(path), digest.hexdigest())

    def load_head(self, head: LinearHead, label_names: Sequence[str]) -> None:
        """Give a head the champion's rows of the labels that both have; the others stay.

        Args:
            head: Changed in place.
            label_names: Of its rows.

        Raises:
            PlmclError: The champion's head takes other features.
        """
        rows, own = _shared(label_names, self.record.label_names)
        with torch.no_grad():
            for name, values in (("weight", head.weight), ("bias", head.bias)):
                saved = self.weights[f"head.{name}"]
                if saved.shape[1:] != values.shape[1:]:
                    raise self._misfit(f"head.{name} is of shape {tuple(saved.shape)}")
                values[rows] = saved[own].to(values.device)

    def carry_state(
        self,
        fresh: State,
        method: Method,
        observed: Tensor,
        image_ids: Sequence[str],
        label_names: Sequence[str],
    ) -> State:
        """The champion's state of the images and labels that both have; the others as in `fresh`.

        Args:
            fresh: `method.initial_state`: (N, L) tensors by name.
            method: The champion's, too.
            observed: (N, L) bool. What is observed now is as in `fresh`: it may not have been.
            image_ids: N.
            label_names: L.

        Raises:
            PlmclError: A saved array has not a column for each of the champion's labels.
        """
        state = dict(fresh)
        rows, own_rows = _shared(image_ids, self.labels.image_ids)
        columns, own_columns = _shared(label_names, self.record.label_names)
        for name in self._carried(fresh, method):
            saved = self.labels.state[name]
            if saved.shape[1:] != (len(self.record.label_names),):
                raise self._misfit(f"labels/{name}.npy is of shape {tuple(saved.shape)}")
            carried = fresh[name].clone()
            taken = saved[own_rows[:, None], own_columns].to(carried.dtype)
            carried[rows[:, None], columns] = taken
            state[name] = torch.where(observed, fresh[name], carried)
        return state

    def is_of(self, setting: str, method: str) -> bool:
        """Whether its label state means here what it meant there."""
        return (self.record.setting, self.record.method) == (setting, method)

    def describe(
        self,
        method: Method,
        state: Collection[str],
        *,
        run: tuple[str, str],
        image_ids: Sequence[str],
        label_names: Sequence[str],
    ) -> str:
        """What of it a training starts from, in a line.

        Args:
            method: Of the training.
            state: Names of its label state.
            run: Setting and name of the method.
            image_ids: Of the training images.
            label_names: Of the training.
        """
        known = set(self.record.label_names)
        head = f"{len(known & set(label_names))} of {len(label_names)} label rows of the head"
        if method.solves:
            head = "no row of the head, which is made in closed form"
        carried = "no label state"
        if state and not self.is_of(*run):
            carried += f", since its own is that of {self.record.setting}-{self.record.method}"
        elif self._carried(state, method):
            rows, _ = _shared(image_ids, self.labels.image_ids)
            carried = f"the label state of {len(rows)} of {len(image_ids)} images"
        text = f"warm start from {self.version}: {head}, {carried}"
        for what, names in (
            ("new", [name for name in label_names if name not in known]),
            ("gone", [name for name in self.record.label_names if name not in set(label_names)]),
        ):
            if names:
                text += f"; labels {what}: {', '.join(map(repr, names))}"
        return text

    def _carried(self, fresh: Collection[str], method: Method) -> list[str]:
        return [n for n in fresh if n in self.labels.state and n not in method.of_one_training]

    def _misfit(self, reason: str) -> PlmclError:
        return PlmclError(f"train.warm_start: {self.version} does not fit: {reason}; {ANEW}")


def load_warm(folder: Path) -> Warm:
    """Read a champion.

    Args:
        folder: With model.pt and labels/, named by its version.

    Raises:
        PlmclError: It is missing or damaged.
    """
    if not folder.is_dir():
        raise PlmclError(f"train.warm_start: {folder} is not there; run: dvc checkout")
    weights, record = read_saved(folder / "model.pt")
    labels = LabelStore.load(folder / "labels")
    digest = hashlib.sha256()
    for file in [folder / "model.pt", *sorted((folder / "labels").iterdir())]:
        with file.open("rb") as content:
            digest.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return Warm(folder.name, weights, record, labels, digest.hexdigest())


def _shared(names: Sequence[str], among: Sequence[str]) -> tuple[Tensor, Tensor]:
    # Where each name that is in both stands: in `names`, and in `among`.
    found = torch.from_numpy(positions(names, among))
    at = torch.nonzero(found >= 0).flatten()
    return at, found[at]
