"""Suggest: which images to give their one label next, asked in Label Studio."""

import csv
import io
import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from plmcl.errors import PlmclError
from plmcl.labelling import label_studio
from plmcl.labelling.herding import herd, unit_vectors
from plmcl.labelling.trained import Trained
from plmcl.stages.job import Job

SECONDS_PER_LABEL = 28.8


@dataclass(frozen=True)
class Suggestion:
    """Images to label next.

    Attributes:
        trained: What was trained so far.
        images: Columns rank, image_id and path; the most wanted first.
        labeled: Training images that are labeled already.
        total: Training images.
        passed_over: Unlabeled training images that somebody has answered about already.
    """

    trained: Trained
    images: pd.DataFrame
    labeled: int
    total: int
    passed_over: int


def suggest(trained: Trained, budget: int, *, answered: Collection[str] = ()) -> Suggestion:
    """Choose unlabeled training images.

    Args:
        trained: A training whose features are used, and whose labels are not asked for again.
        budget: How many.
        answered: Ids of images about which somebody has been asked: not asked again.

    Raises:
        PlmclError: No image is left to ask about.
    """
    job = trained.prepare()
    labeled = np.asarray(job.train.observed.any(axis=1))
    asked = np.isin(np.array(job.train.image_ids, dtype=object), sorted(answered))
    candidates = ~labeled & ~asked
    if not candidates.any():
        raise PlmclError(
            f"{trained.name}: all {len(job.train)} training images are labeled or were asked about"
        )
    rows = choose(job, labeled, candidates, budget)
    images = pd.DataFrame(
        {
            "rank": np.arange(1, len(rows) + 1),
            "image_id": [job.train.image_ids[row] for row in rows],
            "path": [job.train.paths[row] for row in rows],
        }
    )
    return Suggestion(
        trained=trained,
        images=images,
        labeled=int(labeled.sum()),
        total=len(job.train),
        passed_over=int((asked & ~labeled).sum()),
    )


def choose(
    job: Job, labeled: NDArray[np.bool_], candidates: NDArray[np.bool_], budget: int
) -> list[int]:
    """Rows of training images, chosen on the features under the pretrained backbone.

    Args:
        job: Of the training.
        labeled: (N,) bool.
        candidates: (N,) bool.
        budget: How many, at most.

    Raises:
        PlmclError: The head takes maps of features, of which nothing is kept.
    """
    if job.params.model.head == "boostlu":
        raise PlmclError(
            "model.head: boostlu: suggest needs features of images; use linear or unit"
        )
    features = job.features_of(job.train)[0].cpu().numpy()
    vectors = unit_vectors(features, job.model.head.parts)
    return herd(vectors, labeled, candidates, budget, keys=job.train.sha256)


def write_suggestion(found: Suggestion, out: Path, *, url: str | None, not_sure: str) -> None:
    """Write suggestions.csv, suggest.json, and tasks.json with config.xml for Label Studio.

    Args:
        found: What to ask.
        out: Folder, made here.
        url: Of `label_studio.addresses`.
        not_sure: Text of that choice.
    """
    questions = [
        label_studio.Question(row["image_id"], row["path"], "name")
        for row in found.images.to_dict("records")
    ]
    label_studio.write_project(
        questions,
        out,
        ask="name",
        label_names=found.trained.manifest.label_names,
        images=found.trained.paths.images,
        url=url,
        not_sure=not_sure,
        model=found.trained.name,
    )
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found.images.columns)
    writer.writerows(found.images.itertuples(index=False, name=None))
    (out / "suggestions.csv").write_bytes(text.getvalue().encode())
    record = {
        **found.trained.identity,
        "suggested": len(found.images),
        "labeled": found.labeled,
        "train_images": found.total,
        "passed_over": found.passed_over,
    }
    text_record = json.dumps(record, indent=2, ensure_ascii=False)
    (out / "suggest.json").write_text(text_record + "\n", encoding="utf-8")


def describe(found: Suggestion) -> list[str]:
    """The suggestion in lines for people."""
    number, share = len(found.images), 100 / found.total
    lines = [
        f"labeled: {found.labeled} of {found.total} training images "
        f"({found.labeled * share:.1f} % of the images, not of the entries)",
        f"suggested: {number} more, to {(found.labeled + number) * share:.1f} %; about "
        f"{number * SECONDS_PER_LABEL / 3600:.1f} hours at {SECONDS_PER_LABEL} s a label",
    ]
    if found.passed_over:
        lines.append(f"passed over: {found.passed_over} unlabeled images with an answer already")
    return lines
