"""What a user asks of `plmcl fit`, looked at before anything slow is imported or written."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plmcl.data.manifest import Unlisted
from plmcl.data.sources import make_source
from plmcl.data.sources.base import Annotations
from plmcl.errors import PlmclError
from plmcl.labels.settings import Setting
from plmcl.presets import read_preset

# What the params.yaml of a tagger begins with: the preset's own first words.
MARK = "# What `plmcl fit` starts from"


@dataclass(frozen=True)
class Request:
    """What the user asks for, where it differs from presets/fit.yaml.

    Attributes:
        photos: Folder of images.
        labels: File or folder of labels, in any format; None: one sub-folder a tag.
        unlisted: What a label that is not listed for an image means.
        setting: Label setting; `given` takes the labels as they are.
        methods: Trained one after the other; the best on the validation split is exported.
        minus_one: What -1 in the labels means.
        labels_per_photo: k; None: counted where the labels are complete, else the preset's.
        fine_tune: Whether all weights are trained after the head.
        format: Of the labels; `auto`: by their names and first bytes.
        missing: Share of the images that the labels name which need not be there.
    """

    photos: Path
    labels: Path | None
    unlisted: Unlisted
    setting: str
    methods: Sequence[str]
    minus_one: Literal["refuse", "negative", "unknown"] = "refuse"
    labels_per_photo: float | None = None
    fine_tune: bool = False
    format: str = "auto"
    missing: float = 0.0

    def values(self) -> Any:
        """Those of its params.yaml: the preset, with what the user said in its place."""
        values = read_preset("fit")
        values["methods"] = read_preset("methods")
        values["grid"] = {"settings": [self.setting], "methods": list(self.methods)}
        values["data"]["path"] = str(self.photos.resolve())
        values["sources"]["folder"] |= {
            "labels": None if self.labels is None else str(self.labels.resolve()),
            "format": self.format,
            "unlisted": self.unlisted,
            "minus_one": self.minus_one,
            "missing": self.missing,
        }
        if self.labels_per_photo is not None or self.unlisted == "negative":
            values["labels"]["per_image"] = self.labels_per_photo
        if self.fine_tune:
            values["train"]["mode"] = "linear_init"
        return values


def survey(request: Request, out: Path) -> Annotations:
    """Read the names of the photos and the labels, and refuse what cannot be used.

    Args:
        request: All of it is looked at.
        out: Where the tagger is to be; nothing is written there.

    Raises:
        PlmclError: There are no images, the labels do not fit them, a name is unknown or a number
            out of range; `out` holds something else; or `torchrun` started several processes.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise PlmclError(
            "torchrun: fit works in one process; several GPUs train in a project whose data.source "
            "is folder, by torchrun -m plmcl.stages.train SETTING METHOD"
        )
    if not request.photos.is_dir():
        raise PlmclError(f"{request.photos}: not a folder")
    if out.resolve().is_relative_to(request.photos.resolve()):
        raise PlmclError(f"--out: {out} lies among the photos in {request.photos}; choose another")
    _refuse_folder_of_others(out)
    Setting.parse(request.setting)
    k = request.labels_per_photo
    if k is not None and not 0 < k < math.inf:
        raise PlmclError(f"--labels-per-photo: must be a number above 0, found {k:g}")
    values = request.values()
    known = sorted(values["methods"])  # `plmcl.methods` would import torch
    for name in request.methods:
        if name not in known:
            raise PlmclError(f"--method {name}: unknown method; known: {', '.join(known)}")
    return make_source("folder", values["sources"]).annotations(request.photos.resolve())


def _refuse_folder_of_others(out: Path) -> None:
    """Nothing is overwritten but what an earlier fit has written, or had begun to."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    params = out / "params.yaml"
    start = params.read_text("utf-8", errors="replace")[: len(MARK)] if params.is_file() else None
    if start is None or not MARK.startswith(start):
        raise PlmclError(
            f"--out: {out} is there and no tagger of plmcl fit, so nothing in it is overwritten; "
            "choose a new or an empty folder"
        )


def in_options(message: str) -> str:
    """A message that names keys of params.yaml, with the options of `plmcl fit` in their place.

    The options for a folder are called as its keys are.
    """
    message = message.replace("labels.per_image", "--labels-per-photo")
    return re.sub(r"sources\.folder\.(\w+)", lambda key: "--" + key[1].replace("_", "-"), message)
