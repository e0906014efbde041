"""A trained classifier as one ONNX file that describes itself, or no file at all.

The exporter is not trusted: the file is loaded by ONNX Runtime from a folder of its own and must
give torch's probabilities on real images before it gets its name.
"""

import copy
import os
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from plmcl.calibration import Calibration
from plmcl.errors import PlmclError
from plmcl.inference import INPUT, OUTPUT, Card, Pixels, Probs, Tagger
from plmcl.machine import usable_cores
from plmcl.models import Classifier
from plmcl.session import CPU, open_session

OPSET = 18  # the exporter's own: it converts from it to any other
PARITY_BATCHES = (1, 2, 7)
# What gives another answer each time; in a trained network it is a dropout that is still on.
_RANDOM_OPS = {
    "Bernoulli", "Multinomial",
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip


class _Served(nn.Module):
    """What the file holds: uint8 pixels (B, H, W, 3) to calibrated probabilities (B, L)."""

    slopes: Tensor
    intercepts: Tensor

    def __init__(self, classifier: nn.Module, calibration: Calibration) -> None:
        super().__init__()
        self.classifier = classifier
        self.register_buffer("slopes", torch.tensor(calibration.slopes))
        self.register_buffer("intercepts", torch.tensor(calibration.intercepts))

    def forward(self, images: Tensor) -> Tensor:
        probs: Tensor = torch.sigmoid(self.classifier(images) * self.slopes + self.intercepts)
        return probs


def export_onnx(
    model: Classifier,
    card: Card,
    images: Pixels,
    path: Path,
    *,
    tolerance: float,
    calibration: Calibration | None = None,
) -> Card:
    """Write `path`, after a parity gate; on any failure an older file there stays as it was.

    Args:
        model: Left as it is, with its device and its train or eval mode.
        card: What the file will say of itself; its `parity` is replaced, and its
            `calibration_rules` are those of `calibration`.
        images: Real ones (7 or more, size, size, 3), uint8 RGB, as `data.images.load` makes them.
        path: The ONNX file.
        tolerance: The gate: the largest |difference| of a probability must be below it.
        calibration: Of the labels' scores; becomes part of the graph. None: none.

    Returns:
        The card in the file, with `parity`: opset, tolerance, number of images, and the largest
        difference measured at each batch size.

    Raises:
        PlmclError: The card or the images do not fit the model, the graph is not an eval-mode
            graph, a score is not finite, or the gate failed.
    """
    _check_images(images, card.recipe.size)
    if calibration is None:
        calibration = Calibration.none(len(card.label_names), "not asked for")
    card = replace(card, calibration_rules=calibration.rules)
    # A copy: the caller's modules keep their modes (a frozen part may differ from the rest).
    served = _Served(copy.deepcopy(model), calibration).cpu().eval().requires_grad_(False)
    expected = _torch_probs(served, images)
    if expected.shape[1] != len(card.label_names):
        raise PlmclError(
            f"{path}: not exported: the card names {len(card.label_names)} labels, but the model "
            f"has {expected.shape[1]} outputs"
        )
    proto = _to_onnx(served, images[:2])
    check_eval_graph(proto)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        candidate = Path(folder) / path.name
        try:
            write_model(proto, replace(card, parity={}), candidate)
            parity = _measure(candidate, images, expected, tolerance=tolerance)
            card = replace(card, parity={"opset": proto.opset_import[0].version, **parity})
            # Once more, so that what gets the name is the very file that passed.
            write_model(proto, card, candidate)
            _measure(candidate, images, expected, tolerance=tolerance)
        except PlmclError as error:
            raise PlmclError(f"{path}: not exported: {error}") from None
        candidate.replace(path)
    return card


def check_eval_graph(proto: onnx.ModelProto) -> None:
    """Refuse a graph with a node that behaves as in training.

    Raises:
        PlmclError: Names the node and its kind.
    """
    for node in (n for graph in (proto.graph, *proto.functions) for n in _nodes(graph)):
        training = any(a.name == "training_mode" and a.i for a in node.attribute)
        # An eval-mode export has no Dropout; its third input is `training_mode`.
        dropout = node.op_type == "Dropout" and len(node.input) > 2
        if training or dropout or node.op_type in _RANDOM_OPS:
            raise PlmclError(
                f"graph: node {node.name!r} is a {node.op_type} in training mode: the model does "
                "something in eval mode that belongs to training"
            )


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for branch in (attribute.g, *attribute.graphs):
                yield from _nodes(branch)


def _check_images(images: Pixels, size: int) -> None:
    fits = images.dtype == np.uint8 and images.ndim == 4 and images.shape[1:] == (size, size, 3)
    if not fits or len(images) < max(PARITY_BATCHES):
        raise PlmclError(
            f"images of the parity gate: expected uint8 ({max(PARITY_BATCHES)} or more, {size}, "
            f"{size}, 3), found {images.dtype} {images.shape}"
        )


@torch.inference_mode()
def _torch_probs(served: nn.Module, images: Pixels) -> Probs:
    batches = _batches(images, max(PARITY_BATCHES))
    probs: Probs = torch.cat([served(torch.from_numpy(batch)) for batch in batches]).numpy()
    if not np.isfinite(probs).all():
        raise PlmclError("the model's own scores are not finite: it cannot be exported")
    return probs


def _batches(images: Pixels, size: int) -> Iterator[Pixels]:
    for start in range(0, len(images), size):
        yield images[start : start + size]


def _to_onnx(served: nn.Module, images: Pixels) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about torch's own inner calls
        program = torch.onnx.export(
            served,
            (torch.from_numpy(images),),  # two: a batch of one would become a constant
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    proto: onnx.ModelProto = program.model_proto
    _strip_notes(proto)
    return proto


def _strip_notes(proto: onnx.ModelProto) -> None:
    """Remove the exporter's debugging notes: paths of this machine, and 2% of the file."""
    graph = proto.graph
    parts: list[Any] = [graph, *graph.node, *graph.input, *graph.output, *graph.value_info]
    for part in (proto, *parts, *graph.initializer):
        del part.metadata_props[:]


def write_model(proto: onnx.ModelProto, card: Card, path: Path) -> None:
    """Write one file, with the card in its metadata and no other."""
    onnx.helper.set_model_props(proto, card.to_metadata())
    with path.open("wb") as file:
        file.write(proto.SerializeToString())
        file.flush()
        os.fsync(file.fileno())


def _measure(path: Path, images: Pixels, expected: Probs, *, tolerance: float) -> dict[str, Any]:
    """The gate: all images at each batch size, by the file and by nothing beside it."""
    Tagger(path, providers=[CPU])  # it can be served
    # The session itself: a tagger cuts batches to other sizes.
    session = open_session(path, providers=[CPU], threads=usable_cores())
    differences: dict[str, float] = {}
    for size in PARITY_BATCHES:
        batches = [session.run([OUTPUT], {INPUT: batch})[0] for batch in _batches(images, size)]
        probs = np.concatenate(batches)
        bad = np.count_nonzero(~np.isfinite(probs).all(axis=1))
        if bad:
            raise PlmclError(
                f"parity gate: at batch {size} the scores of {bad} of {len(images)} images are not "
                "finite"
            )
        difference = float(np.abs(probs - expected).max())
        if not difference < tolerance:
            raise PlmclError(
                f"parity gate: at batch {size} a probability differs from torch's by "
                f"{difference:.3g}, the tolerance (export.tolerance) is {tolerance:g}"
            )
        differences[str(size)] = difference
    return {"tolerance": tolerance, "images": len(images), "max_difference": differences}
