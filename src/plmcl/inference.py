"""Tag images with an exported model: ONNX Runtime, Pillow and numpy; no torch, no pandas.

A file whose card is missing, newer, broken, or at odds with its own graph is refused before the
first image.
"""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plmcl.buckets import INPUT as INPUT
from plmcl.buckets import OUTPUT as OUTPUT
from plmcl.buckets import Bound, Cut
from plmcl.buckets import Pixels as Pixels
from plmcl.buckets import Probs as Probs
from plmcl.card import Card as Card
from plmcl.data.images import ImageProblem, load
from plmcl.errors import PlmclError
from plmcl.machine import usable_cores
from plmcl.session import CUDA, open_session

NOT_FINITE = "not_finite: the model gives no number for this image"

Source = Callable[[], Path | bytes]
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
        require_gpu: Whether a session without CUDA is refused; the error says what it needs.

    Attributes:
        card: What the file says of itself.
        sha256: Of the file.
        version: Such as v0003, of a file that was promoted: what record.json beside it says. Else
            empty.
        providers: The providers that the session really has.
        thresholds: The card's, as `Tag` has them.

    Raises:
        PlmclError: The file or a provider is missing, or the file is not one that we can serve.
    """

    def __init__(
        self,
        path: Path,
        *,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        require_gpu: bool = False,
    ) -> None:
        # Once: a champion's link may lead elsewhere a moment later.
        real = path.resolve()
        try:
            open_real = partial(
                open_session,
                real,
                providers=providers,
                threads=threads or usable_cores(),
                require_gpu=require_gpu,
            )
            self._session = open_real()
            self.card = Card.from_metadata(self._session.get_modelmeta().custom_metadata_map)
            if self.card.precision == "fp16" and CUDA in self._session.get_providers():
                self._session = open_real(tensor_cores=True)
            _check_graph(self._session, self.card)
            with real.open("rb") as file:
                self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self.version = _version_beside(real, self.sha256)
        except PlmclError as error:
            raise PlmclError(f"{path}: {str(error).removeprefix(f'{real}: ')}") from None
        self.providers: list[str] = self._session.get_providers()
        self.thresholds = _to_decimals(self.card.thresholds)
        num_labels = len(self.card.label_names)
        self._batches: Bound | Cut = (
            Bound(self._session, num_labels, device="cuda")
            if CUDA in self.providers
            else Cut(self._session, num_labels)
        )

    def predict(self, images: Pixels) -> Probs:
        """Probabilities (B, L) of RGB images (B, size, size, 3) as `data.images.load` makes them.

        Raises:
            PlmclError: The images have another type or shape, or a score is not finite.
        """
        probs = self._run(images)
        if not np.isfinite(probs).all():
            finite = np.isfinite(probs).all(axis=1)
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
        return self._batches.run(images)

    def _tags(self, probs: Probs) -> list[Tag]:
        decisions = (probs >= self.card.thresholds).tolist()
        columns = (self.card.label_names, _to_decimals(probs), self.thresholds, decisions)
        return [Tag(*tag) for tag in zip(*columns, strict=True)]


def tag_files(
    tagger: Tagger, files: Iterable[str | Path], *, batch_size: int
) -> Iterator[Prediction]:
    """Tag files in their order; a file that cannot be used gives its `error` and stops nothing.

    Args:
        tagger: The model.
        files: May be endless; read only as far as needed.
        batch_size: Images that the network takes at once.
    """
    sources = ((os.fspath(file), partial(Path, file)) for file in files)
    return tag_sources(tagger, sources, batch_size=batch_size, threads=usable_cores())


def tag_sources(
    tagger: Tagger, sources: Iterable[tuple[str, Source]], *, batch_size: int, threads: int
) -> Iterator[Prediction]:
    """Tag images that may be anywhere, in their order; one that cannot be used gives its `error`.

    At most two batches of decoded images are in memory: while the network works on one, threads
    get and decode the next. The batches are those of the sources, also where some have an error:
    a stretch that begins with a batch gives the same numbers alone.

    Args:
        tagger: The model.
        sources: What to call each image, and what a thread calls to get it: a file, or a file's
            content, or a PlmclError. May be endless; read only as far as needed.
        batch_size: Images that the network takes at once.
        threads: That get and decode.
    """
    if batch_size < 1:
        raise PlmclError(f"batch_size: expected 1 or more, found {batch_size}")
    waiting = iter(sources)
    pool = ThreadPoolExecutor(threads)

    def get(source: Source) -> Pixels:
        return load(source(), tagger.card.recipe)

    def start_batch() -> deque[Decoding]:
        return deque((name, pool.submit(get, s)) for name, s in islice(waiting, batch_size))

    try:
        batch = start_batch()
        while batch:
            following = start_batch()
            yield from _tag_batch(tagger, batch)
            batch = following
    finally:
        pool.shutdown(cancel_futures=True)


def to_text(name: str) -> str:
    """A name as answers have it: bytes that are not UTF-8 are written as escapes."""
    # Python carries them as lone surrogates.
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def to_record(prediction: Prediction) -> dict[str, Any]:
    """What JSON keeps of a prediction; all texts are UTF-8.

    {"file": …, "error": text or null, "labels": [{"label", "score", "threshold", "decision"}, …]}
    """
    return {
        "file": to_text(prediction.file),
        "error": None if prediction.error is None else to_text(prediction.error),
        "labels": [tag._asdict() for tag in prediction.labels],
    }


def to_json_line(prediction: Prediction) -> str:
    """`to_record` on one line, without its end."""
    return json.dumps(to_record(prediction), ensure_ascii=False)


def _tag_batch(tagger: Tagger, batch: deque[Decoding]) -> Iterator[Prediction]:
    images: list[Pixels] = []
    errors: list[str | None] = []
    for _, decoding in batch:
        try:
            images.append(decoding.result())
            errors.append(None)
        except ImageProblem as problem:
            errors.append(f"{problem.status}: {problem}")
        except PlmclError as problem:  # there is no image
            errors.append(str(problem))
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


def _version_beside(path: Path, sha256: str) -> str:
    """What the record of a promotion says, if there is one and it is of this very file."""
    try:
        record = json.loads((path.parent / "record.json").read_bytes())
        version, named = str(record["version"]), str(record["model_sha256"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    if named != sha256:
        raise PlmclError(
            f"sha256 {sha256[:12]}…, but record.json beside it has {named[:12]}…: damaged, or "
            "changed by hand"
        )
    return version


def _to_decimals(values: Probs) -> list[float]:
    # The shortest decimals that name each float32: 0.9 and not 0.8999999761581421. They keep the
    # order, so whoever compares them comes to the same decisions.
    return [float(text) for text in values.astype(str).tolist()]
