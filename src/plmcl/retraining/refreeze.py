"""The champion scored again, on a test split that has changed: else nothing compares with it."""

import filecmp
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from plmcl import schemas
from plmcl.data.manifest import Manifest
from plmcl.data.rows import Rows, truth_rows
from plmcl.durable import copy, sync
from plmcl.errors import PlmclError
from plmcl.evaluation import evaluate
from plmcl.inference import Tagger, tag_files
from plmcl.params import load_params
from plmcl.progress import show_progress
from plmcl.retraining.production import Production, Version
from plmcl.retraining.scored import Cells, Scored, truth_table
from plmcl.stages.paths import Paths

BATCH_SIZE = 32


def refreeze(root: Path) -> list[str]:
    """Score the champion's ONNX file on the project's test split as it is now.

    Beside the champion, predictions.parquet and truth.parquet are replaced; what they were is kept
    as predictions-1.parquet and truth-1.parquet, then -2, and so on. Whoever calls this holds the
    lock of `plmcl.retraining.lock`.

    Args:
        root: Of the project, with a manifest and splits that are up to date.

    Returns:
        What was done, in words.

    Raises:
        PlmclError: There is no champion, it knows none of the labels, or a test image is unusable.
    """
    champion = Production(root).champion
    if champion is None:
        raise PlmclError(f"{root}: no champion yet, so there is nothing to score again")
    paths = Paths.of_project(root, load_params(root / "params.yaml").data.source)
    manifest = Manifest.read(paths.manifests)
    splits = schemas.read_table(paths.splits / "splits.parquet", schemas.Splits)
    test = truth_rows(manifest, splits, "test")
    tagger = Tagger(champion.model)
    truth = truth_table(test, manifest.label_names)
    truth = truth[truth["label"].isin(list(tagger.card.label_names))]
    new = Scored(
        version=champion.version,
        predictions=_predict(tagger, test.image_ids, [paths.images / path for path in test.paths]),
        truth=truth,
        model=champion.model,
        complete=False,  # for the gate, the challenger's says it
    )
    difference, before = _earlier(champion, new)
    if not difference:
        return [f"{champion.version} was scored on this very test split: nothing has changed"]
    _keep_earlier(champion.path)
    schemas.write_table(new.truth, champion.path / "truth.parquet")
    schemas.write_table(new.predictions, champion.path / "predictions.parquet")
    sync(champion.path)
    return [
        f"{champion.version} scored on the present test split: {_figure(Cells.of(new))}, before "
        f"{before} ({difference})",
        *_warnings(champion, tagger, manifest, test),
    ]


def _predict(tagger: Tagger, image_ids: Sequence[str], files: Sequence[Path]) -> pd.DataFrame:
    names = list(tagger.card.label_names)
    scores = np.empty((len(files), len(names)), dtype=np.float32)
    with show_progress("predict test") as progress:
        for row, found in enumerate(tag_files(tagger, files, batch_size=BATCH_SIZE)):
            if found.error is not None:
                raise PlmclError(f"{found.file}: {found.error}; run the ingest stage again")
            scores[row] = [tag.score for tag in found.labels]
            progress(row + 1, len(files))
    return pd.DataFrame(
        {
            "image_id": np.repeat(np.array(image_ids, dtype=object), len(names)),
            "label": np.tile(np.array(names, dtype=object), len(files)),
            "score": scores.ravel(),
        }
    )


def _earlier(champion: Version, new: Scored) -> tuple[str, str]:
    """How the split differs from the one that it was scored on, and its figure there."""
    try:
        old = Cells.of(champion.scored())
        return old.difference(Cells.of(new)), _figure(old)
    except PlmclError as error:  # of a refreeze that was killed between its two files, say
        return f"its tables did not belong together: {error}", "n/a"


def _keep_earlier(folder: Path) -> None:
    kept = (folder / f"predictions-{number}.parquet" for number in itertools.count(1))
    earlier = list(itertools.takewhile(Path.exists, kept))
    now = folder / "predictions.parquet"
    if earlier and filecmp.cmp(earlier[-1], now, shallow=False):
        return  # killed after it was kept, before it was replaced
    # The predictions last: they say that the pair is there.
    for name in ("truth", "predictions"):
        target = folder / f"{name}-{len(earlier) + 1}.parquet"
        partial = target.with_name(f".{target.name}.partial")
        copy(folder / f"{name}.parquet", partial)
        partial.replace(target)


def _figure(cells: Cells) -> str:
    mean = evaluate(cells.targets, cells.observed, cells.probs).metrics["mAP"]
    shown = "n/a" if mean is None else f"{100 * mean:.1f}"
    return f"test mAP {shown} on {len(cells.image_ids):,} images"


def _warnings(champion: Version, tagger: Tagger, manifest: Manifest, test: Rows) -> Iterator[str]:
    learned = set(json.loads((champion.path / "labels" / "image_ids.json").read_text("utf-8")))
    seen = sum(image_id in learned for image_id in test.image_ids)
    if seen:
        yield (
            f"{champion.version} was trained on {seen:,} of these test images: its figure is too "
            "good, and no training can start from it (retraining.start: scratch)"
        )
    gone = [name for name in tagger.card.label_names if name not in manifest.label_names]
    if gone:
        yield f"nothing is known of its labels {', '.join(gone)} any more"
