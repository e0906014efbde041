"""A tagger as training's evaluation runs it against the same tagger as it is served; one JSON.

    python benchmarks/parity.py --out benchmarks/results/parity.json

Trains one on photos5 (a minute), then goes through all its photos twice, from the files on:
training's data set, batches and torch; and ONNX Runtime. Also compares the pixels of the two, and
those of the service's decoding processes, bit for bit.
"""

import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime
import pandas as pd
import PIL
import torch
import typer

from plmcl.calibration import Calibration
from plmcl.data.images import Recipe
from plmcl.data.loading import ImageRows, sequential_batches
from plmcl.evaluation import predict_logits
from plmcl.inference import Pixels, Probs, Tagger, tag_files
from plmcl.machine import usable_cores
from plmcl.models import load_classifier
from plmcl.serving.decoding import DecoderPool
from plmcl.stages.fit import run
from plmcl.stages.request import Request, survey

TOLERANCE = 1e-3
DECODE_SECONDS = 30.0
BATCH = 16
VERSIONS = {"torch": torch, "onnxruntime": onnxruntime, "pillow": PIL, "numpy": np}


def train(photos: Path, out: Path) -> tuple[Path, Path, Path]:
    """A tagger with all labels known: model.pt, per_label.csv, and the ONNX file made of them."""
    request = Request(
        photos=photos / "images",
        labels=photos / "labels.csv",
        unlisted="negative",
        setting="given",
        methods=["an"],
    )
    tagger = run(request, survey(request, out), out)
    (weights,), (per_label,) = out.glob("models/*/model.pt"), out.rglob("per_label.csv")
    return weights, per_label, tagger


def of_torch(
    weights: Path, per_label: Path, label_names: Sequence[str], images: ImageRows
) -> Probs:
    """Probabilities (N, L) by the path that a split is evaluated on."""
    model, _ = load_classifier(weights, label_names)
    logits = predict_logits(model, sequential_batches(images), len(images))
    fitted = pd.read_csv(per_label, dtype={"slope": np.float32, "intercept": np.float32})
    return Calibration(
        slopes=fitted["slope"].to_numpy(),
        intercepts=fitted["intercept"].to_numpy(),
        rules=fitted["calibration_rule"].tolist(),
    ).probabilities(logits)


def decoded_by_the_service(files: Sequence[Path], recipe: Recipe) -> Iterator[Pixels]:
    """Pixels (size, size, 3) of each file, as the service's processes make them."""
    pool = DecoderPool(usable_cores(), seconds=DECODE_SECONDS)

    async def some(files: Sequence[Path]) -> list[Pixels]:
        return await asyncio.gather(*(pool.decode(file.read_bytes(), recipe) for file in files))

    with asyncio.Runner() as runner:
        runner.run(pool.start(recipe))
        for start in range(0, len(files), BATCH):
            yield from runner.run(some(files[start : start + BATCH]))
        runner.run(pool.close())


def different_pixels(images: ImageRows, files: Sequence[Path]) -> int:
    """Images whose pixels before any random change differ from those that are served."""
    served = decoded_by_the_service(files, images.recipe)
    trained = (image for _, batch in sequential_batches(images) for image in batch.numpy())
    return sum(
        not np.array_equal(mine, theirs) for mine, theirs in zip(trained, served, strict=True)
    )


def compare(
    weights: Path, per_label: Path, tagger: Tagger, folder: Path, names: Sequence[str]
) -> dict[str, Any]:
    """Both ways over the files `names` of a folder."""
    files, card = [folder / name for name in names], tagger.card
    images = ImageRows(folder, names, card.recipe)
    torch_probs = of_torch(weights, per_label, card.label_names, images)
    predictions = list(tag_files(tagger, files, batch_size=BATCH))
    assert all(prediction.error is None for prediction in predictions)
    served = np.float32([[tag.score for tag in p.labels] for p in predictions])
    decisions = np.array([[tag.decision for tag in p.labels] for p in predictions])
    differences = np.abs(served - torch_probs)
    return {
        "photos": len(files),
        "labels": len(card.label_names),
        "labels_calibrated": sum(not r.startswith("none") for r in card.calibration_rules),
        "largest_difference": float(differences.max()),
        "mean_difference": float(differences.mean()),
        "different_decisions": int((decisions != (torch_probs >= card.thresholds)).sum()),
        "smallest_distance_to_a_threshold": float(np.abs(torch_probs - card.thresholds).min()),
        "photos_with_different_pixels": different_pixels(images, files),
    }


def main(
    out: Annotated[Path, typer.Option(help="JSON to write.")],
    photos: Annotated[
        Path | None, typer.Option(help="Folder with images/ and labels.csv; default: photos5.")
    ] = None,
) -> None:
    """Compare, write, and fail if it is not as it should be."""
    photos = photos or Path(os.environ["PLMCL_SHARED_DATA"]) / "photos5"
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        weights, per_label, path = train(photos, Path(folder))
        tagger = Tagger(path, providers=["CPUExecutionProvider"])
        names = sorted(file.name for file in (photos / "images").iterdir())
        found = compare(weights, per_label, tagger, photos / "images", names)
    report = {
        "machine": {"processor": platform.machine(), "cores": usable_cores()}
        | {name: module.__version__ for name, module in VERSIONS.items()},
        "tolerance": TOLERANCE,
        **found,
        "seconds_in_all": round(time.monotonic() - start),
    }
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))
    assert found["largest_difference"] < TOLERANCE
    assert found["different_decisions"] == found["photos_with_different_pixels"] == 0


if __name__ == "__main__":
    typer.run(main)
