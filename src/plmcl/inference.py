"""Tag images with an exported model: ONNX Runtime, Pillow and numpy; no torch, no pandas.

A file whose card is missing, newer, broken, or at odds with its own graph is refused before the
first image.
"""

import csv
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from plmcl.card import Card as Card
from plmcl.data.images import ImageProblem, load
from plmcl.errors import PlmclError
from plmcl.machine import usable_cores
from plmcl.session import open_session

INPUT, OUTPUT = "images", "probs"
CSV_COLUMNS = ("file", "error", "labels", "scores")
NOT_FINITE = "not_finite: the model gives no number for this image"

Pixels = npt.NDArray[np.uint8]
Probs = npt.NDArray[np.float32]
Decoding = tuple[str, Future[Pixels]]


class Tag(NamedTuple):
    """What the model says of one label; `float32(score)` is the graph's own number."""

    label: str
    score: float
    threshold: float
    decision: bool


@dataclass(frozen=True)
class Prediction:
    """What the model says of one file: an error, or a tag for every label in the model's order."""

    file: str
    error: str | None
    labels: list[Tag]


class Tagger:
    """An exported model, ready to score images.

    Args:
        path: The ONNX file.
        providers: ONNX Runtime's execution providers, in order; every one that is named here must
            be there. None: CUDA where it works, else the CPU.
        threads: Of the network on the CPU. None: the cores that this process may use.

    Attributes:
        card: What the file says of itself.
        providers: The providers that the session really has.
        thresholds: The card's, as `Tag` has them.

    Raises:
        PlmclError: The file or a provider is missing, or the file is not one that we can serve.
    """

    def __init__(
        self, path: Path, *, providers: Sequence[str] | None = None, threads: int | None = None
    ) -> None:
        self._session = open_session(path, providers=providers, threads=threads or usable_cores())
        self.providers: list[str] = self._session.get_providers()
        try:
            self.card = Card.from_metadata(self._session.get_modelmeta().custom_metadata_map)
            _check_graph(self._session, self.card)
        except PlmclError as error:
            raise PlmclError(f"{path}: {error}") from None
        self.thresholds = _to_decimals(self.card.thresholds)

    def predict(self, images: Pixels) -> Probs:
        """Probabilities (B, L) of RGB images (B, size, size, 3) as `data.images.load` makes them.

        Raises:
            PlmclError: The images have another type or shape, or a score is not finite.
        """
        probs = self._run(images)
        finite = np.isfinite(probs).all(axis=1)
        if not finite.all():
            raise PlmclError(
                f"scores: not finite for {np.count_nonzero(~finite)} of {len(images)} images, "
                f"the first at position {np.argmin(finite)}"
            )
        return probs

    def tag(self, files: Sequence[str], images: Pixels) -> list[Prediction]:
        """Predictions for images (B, size, size, 3) that were made of files, in their order.

        An image whose scores are not finite gives an `error`.

        Raises:
            PlmclError: The images have another type or shape.
        """
        probs = self._run(images)
        return [
            Prediction(file, None, self._tags(row))
            if np.isfinite(row).all()
            else Prediction(file, NOT_FINITE, [])
            for file, row in zip(files, probs, strict=True)
        ]

    def _run(self, images: Pixels) -> Probs:
        size = self.card.recipe.size
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (size, size, 3):
            raise PlmclError(
                f"images: expected uint8 (B, {size}, {size}, 3), found {images.dtype} "
                f"{images.shape}"
            )
        probs: Probs = self._session.run([OUTPUT], {INPUT: images})[0]
        return probs

    def _tags(self, probs: Probs) -> list[Tag]:
        decisions = (probs >= self.card.thresholds).tolist()
        columns = (self.card.label_names, _to_decimals(probs), self.thresholds, decisions)
        return [Tag(*tag) for tag in zip(*columns, strict=True)]


def tag_files(
    tagger: Tagger, files: Iterable[str | Path], *, batch_size: int
) -> Iterator[Prediction]:
    """Tag files in their order; a file that cannot be used gives its `error` and stops nothing.

    At most two batches of decoded images are in memory: while the network works on one, threads
    decode the next.

    Args:
        tagger: The model.
        files: May be endless; read only as far as needed.
        batch_size: Images that the network takes at once.
    """
    if batch_size < 1:
        raise PlmclError(f"batch_size: expected 1 or more, found {batch_size}")
    names = (os.fspath(file) for file in files)
    pool = ThreadPoolExecutor(usable_cores())

    def start_batch() -> deque[Decoding]:
        recipe = tagger.card.recipe
        return deque((n, pool.submit(load, Path(n), recipe)) for n in islice(names, batch_size))

    try:
        batch = start_batch()
        while batch:
            following = start_batch()
            yield from _tag_batch(tagger, batch)
            batch = following
    finally:
        pool.shutdown(cancel_futures=True)


def to_record(prediction: Prediction) -> dict[str, Any]:
    """What JSON keeps of a prediction; all texts are UTF-8.

    {"file": …, "error": text or null, "labels": [{"label", "score", "threshold", "decision"}, …]}
    """
    return {
        "file": _to_utf8(prediction.file),
        "error": None if prediction.error is None else _to_utf8(prediction.error),
        "labels": [tag._asdict() for tag in prediction.labels],
    }


def to_json_line(prediction: Prediction) -> str:
    """`to_record` on one line, without its end."""
    return json.dumps(to_record(prediction), ensure_ascii=False)


def write_jsonl(predictions: Iterable[Prediction], out: TextIO) -> None:
    """Write `to_json_line` of each prediction as it comes."""
    for prediction in predictions:
        out.write(to_json_line(prediction) + "\n")


def write_csv(predictions: Iterable[Prediction], out: TextIO) -> None:
    """Write a header and one row a file, as they come.

    Columns: `file`; `error`, empty if there is none; `labels`, the decided ones joined by `;`, for
    people; `scores`, the JSON list that `to_json_line` has under `labels`, for programs (a label
    may itself hold a `;`).

    Args:
        predictions: What to write.
        out: Opened with newline="".
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for prediction in predictions:
        decided = ";".join(tag.label for tag in prediction.labels if tag.decision)
        scores = json.dumps([tag._asdict() for tag in prediction.labels], ensure_ascii=False)
        error = _to_utf8(prediction.error or "")
        writer.writerow((_to_utf8(prediction.file), error, decided, scores))


def _tag_batch(tagger: Tagger, batch: deque[Decoding]) -> Iterator[Prediction]:
    images: list[Pixels] = []
    errors: list[str | None] = []
    for _, decoding in batch:
        try:
            images.append(decoding.result())
            errors.append(None)
        except ImageProblem as problem:
            errors.append(f"{problem.status}: {problem}")
    files = [file for file, _ in batch]
    good = [file for file, error in zip(files, errors, strict=True) if error is None]
    tagged = iter(tagger.tag(good, np.stack(images)) if images else ())
    for file, error in zip(files, errors, strict=True):
        yield next(tagged) if error is None else Prediction(file, error, [])


def _check_graph(session: Any, card: Card) -> None:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    found = [(node.name, node.type, len(node.shape)) for node in (*inputs, *outputs)]
    if found != [(INPUT, "tensor(uint8)", 4), (OUTPUT, "tensor(float)", 2)]:
        raise PlmclError(
            f"graph: expected {INPUT} (uint8, rank 4) to {OUTPUT} (float, rank 2), "
            f"found {found!r:.200}"
        )
    batch, *pixels = inputs[0].shape
    size = card.recipe.size
    if isinstance(batch, int):
        raise PlmclError(f"graph: takes batches of {batch} only; export it again")
    if pixels != [size, size, 3]:
        raise PlmclError(f"graph: takes images of {pixels}, but the recipe makes {[size, size, 3]}")
    if outputs[0].shape[1] != len(card.label_names):
        raise PlmclError(
            f"label_names: {len(card.label_names)} names, but the graph has "
            f"{outputs[0].shape[1]} outputs"
        )


def _to_decimals(values: Probs) -> list[float]:
    # The shortest decimals that name each float32: 0.9 and not 0.8999999761581421. They keep the
    # order, so whoever compares them comes to the same decisions.
    return [float(text) for text in values.astype(str).tolist()]


def _to_utf8(text: str) -> str:
    # A file's name may hold bytes that are not UTF-8; Python carries them as lone surrogates.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
