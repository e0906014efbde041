"""Made-up pictures with exact labels: nothing to download, any number of images and labels.

Labels are long-tailed and come in groups: a picture has a theme, and labels of the theme's group
are likelier than others. A stand-in for photographs; results that are claimed come from those.
"""

import csv
import json
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from plmcl.data.filling import filling
from plmcl.data.formats import csv as label_csv
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.data.listing import first_five, list_images
from plmcl.data.sources.base import Annotations, Source
from plmcl.data.sources.scenes.drawing import draw_picture
from plmcl.data.sources.scenes.glyphs import choose_glyphs
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

IMAGES = "images"

_GROUP_SIZE = 4
_LIKELIER = 6.0  # odds of a label in its own group's pictures against other pictures
_TAIL = 0.7  # frequency falls as rank^-0.7
_BLANK = 0.01  # share of pictures without any label
_MOST = 0.95  # no label is surer than this


class Scenes(Source):
    """Pictures of glyphs from the font that matplotlib ships.

    Attributes:
        images: Their number; picture i is the same whatever the number.
        labels: Their number; each is one glyph.
        size: Height and width, in pixels.
        labels_per_image: Mean number of labels of a picture.
        clutter: Strokes, shapes and blobs that mean nothing, in each picture.
    """

    images: Annotated[int, Field(ge=1)]
    labels: Annotated[int, Field(ge=2)]
    size: Annotated[int, Field(ge=32, le=2048)]
    labels_per_image: Annotated[float, Field(ge=1.1)]
    clutter: Annotated[int, Field(ge=0)]

    def download(
        self, path: Path, raw: Path, *, seed: int, progress: ProgressCallback | None = None
    ) -> None:
        """Draw the pictures; `path` is not read.

        Raises:
            PlmclError: More labels, or more labels a picture, than there can be.
        """
        glyphs = choose_glyphs(self.labels)
        chances = label_chances(self.labels, self.labels_per_image)
        with filling(raw) as partial:
            (partial / IMAGES).mkdir()
            names = [glyph.name for glyph in glyphs]
            text = json.dumps(names, indent=2, ensure_ascii=False)
            (partial / "label_names.json").write_text(text + "\n", encoding="utf-8")
            with (partial / "labels.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["image", "labels"])
                for index in range(self.images):
                    rng = np.random.default_rng([seed, index])
                    present = sample_labels(chances, rng)
                    picture = draw_picture(
                        [glyphs[label].mask for label in present],
                        # steps of the golden section spread any number of hues well
                        [label * 0.618034 % 1 for label in present],
                        size=self.size,
                        clutter=self.clutter,
                        rng=rng,
                    )
                    name = f"{index:06d}.jpg"
                    picture.save(partial / IMAGES / name, quality=90)
                    writer.writerow([name, ";".join(names[label] for label in present)])
                    if progress is not None:
                        progress(index + 1, self.images)

    def annotations(self, raw: Path) -> Annotations:
        """Read the truth that was written beside the pictures; opens none of them."""
        names_path = raw / "label_names.json"
        if not names_path.is_file():
            raise PlmclError(f"{names_path}: not found; run the download stage")
        files, passed_over = list_images(raw / IMAGES)
        found = label_csv.read(raw / "labels.csv", ImageIndex(files), Options())
        if found.absent:
            raise PlmclError(f"{raw / IMAGES}: pictures are gone: {first_five(found.absent)}")
        return Annotations(
            root=IMAGES,
            files=files,
            splits=found.splits,
            labels=found.labels,
            label_names=json.loads(names_path.read_text(encoding="utf-8")),
            unlisted="negative",
            passed_over=passed_over,
        )


def label_chances(num_labels: int, labels_per_image: float) -> np.ndarray:
    """Chance of each label under each theme, (themes, L), before empty draws are repeated.

    Raises:
        PlmclError: That many labels a picture cannot be had.
    """
    num_themes = max(1, num_labels // _GROUP_SIZE)
    weights = np.arange(1.0, num_labels + 1) ** -_TAIL
    group = np.arange(num_labels) % num_themes  # each group has frequent and rare labels
    own = group[None, :] == np.arange(num_themes)[:, None]
    weights = weights[None, :] * np.where(own, _LIKELIER, 1.0)

    def chances(scale: float) -> np.ndarray:
        chance: np.ndarray = np.minimum(_MOST, scale * weights)
        return chance

    def mean_count(scale: float) -> float:
        chance = chances(scale)
        empty = np.prod(1 - chance, axis=1)
        return float((1 - _BLANK) * (chance.sum(axis=1) / (1 - empty)).mean())

    low, high = 1e-3 / weights.sum(axis=1).max(), 1 / weights.min()
    if not mean_count(low) <= labels_per_image <= mean_count(high):
        raise PlmclError(
            f"sources.scenes.labels_per_image: with {num_labels} labels at most "
            f"{mean_count(high):.1f}, found {labels_per_image}"
        )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_count(middle) < labels_per_image else (low, middle)
    return chances(low)


def sample_labels(chances: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Draw one picture's labels, ascending: a theme, then each label by itself."""
    theme = rng.integers(len(chances))
    if rng.uniform() < _BLANK:
        return []
    while True:
        present = np.flatnonzero(rng.uniform(size=chances.shape[1]) < chances[theme])
        if len(present):
            return [int(label) for label in present]


SOURCE = Scenes
