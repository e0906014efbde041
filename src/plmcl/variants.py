"""Smaller files of an exported model: half precision, and whole numbers of eight bits.

A variant is a whole file with a card of its own. It is kept only where it ranks images about as
well as the fp32 file that it was made of.
"""

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.transformers.float16 import convert_float_to_float16

from plmcl.errors import PlmclError
from plmcl.export import write_model
from plmcl.inference import INPUT, Pixels, Probs, Tagger
from plmcl.machine import usable_cores
from plmcl.session import CPU, open_session

Precision = Literal["fp16", "int8"]
Figure = Callable[[Probs], tuple[str, float]]
Batches = Callable[[], Iterator[Pixels]]  # the same ones at each call

# Where nearly all of the time goes.
_HEAVY = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_FP32 = onnx.TensorProto.FLOAT
# Other images may reach higher than those that are looked at.
_MARGIN = 2


@dataclass(frozen=True)
class Variant:
    """What became of a variant that was asked for.

    Attributes:
        precision: Which.
        kept: Whether its file is there.
        reason: In words.
        figure: Name of the figure that it is judged by.
        fp32: Its value for the fp32 file, from 0 to 1.
        value: Its value for the variant on the same images; None if that gave no finite scores.
        sha256: Of the file; "" if it was not kept.
    """

    precision: Precision
    kept: bool
    reason: str
    figure: str
    fp32: float
    value: float | None
    sha256: str


def write_variants(
    model: Path,
    folder: Path,
    precisions: Sequence[Precision],
    *,
    calibration: Batches,
    judged: Batches,
    figure: Figure,
    max_drop: float,
) -> list[Variant]:
    """Write `<precision>.onnx` for each that is good enough, and variants.json about all of them.

    Args:
        model: The exported fp32 file.
        folder: Of the variants; what it held before is gone.
        precisions: Which are asked for.
        calibration: Training images (B, size, size, 3), of which int8 takes its ranges.
        judged: M images in all, that variant and fp32 file are compared on.
        figure: Name and value of how well probabilities (M, L) of `judged` rank, from 0 to 1.
        max_drop: How much lower a variant's value may be.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        making = Path(temporary) / folder.name
        making.mkdir()
        variants = []
        if precisions:
            judge = _Judge(model, judged, figure, max_drop)
            variants = [
                judge.write(precision, partial(_CONVERT[precision], model, calibration), making)
                for precision in precisions
            ]
        text = json.dumps([asdict(variant) for variant in variants], indent=2, allow_nan=False)
        (making / "variants.json").write_text(text + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        making.replace(folder)
    return variants


class _Judge:
    """Compares variants with the file that they were made of."""

    def __init__(self, model: Path, judged: Batches, figure: Figure, max_drop: float) -> None:
        tagger = Tagger(model, providers=[CPU])
        self._card, self._sha256 = tagger.card, tagger.sha256
        self._judged, self._figure, self._max_drop = judged, figure, max_drop
        self._expected = self._predict(tagger)
        self._name, self._fp32 = figure(self._expected)

    def write(
        self, precision: Precision, convert: Callable[[], onnx.ModelProto], folder: Path
    ) -> Variant:
        path = folder / f"{precision}.onnx"
        card = replace(self._card, precision=precision, parity={})
        value = None
        try:
            proto = convert()
            write_model(proto, card, path)
            probs = self._predict(Tagger(path, providers=[CPU]))
            value = self._figure(probs)[1]
            kept, reason = self._fp32 - value <= self._max_drop, self._say(value)
        except PlmclError as error:
            kept, reason = False, str(error).removeprefix(f"{path}: ")
        except Exception as error:  # of a converter, which knows not every graph
            kept, reason = False, f"it cannot be made: {' '.join(repr(error).split()):.300}"
        sha256 = ""
        if kept:
            write_model(proto, replace(card, parity=self._parity(proto, probs, value)), path)
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            path.unlink(missing_ok=True)
        return Variant(precision, kept, reason, self._name, self._fp32, value, sha256)

    def _predict(self, tagger: Tagger) -> Probs:
        return np.concatenate([tagger.predict(images) for images in self._judged()])

    def _parity(self, proto: onnx.ModelProto, probs: Probs, value: float | None) -> dict[str, Any]:
        return {
            "opset": proto.opset_import[0].version,
            "fp32_sha256": self._sha256,
            "images": len(probs),
            "max_difference": {"fp32": float(np.abs(probs - self._expected).max())},
            "figure": self._name,
            "fp32": self._fp32,
            "value": value,
            "max_drop": self._max_drop,
        }

    def _say(self, value: float) -> str:
        change, allowed = 100 * (value - self._fp32), 100 * self._max_drop
        return (
            f"{self._name} {100 * value:.2f} on {len(self._expected)} images, of fp32 "
            f"{100 * self._fp32:.2f}: {change:+.2f}, down to -{allowed:g} is allowed"
        )


def to_fp16(model: Path, calibration: Batches) -> onnx.ModelProto:
    """The backbone in half precision; pooling, head, calibration and both ends as they are.

    Raises:
        PlmclError: Something in the backbone comes near the largest number of half precision.
    """
    proto = onnx.load(model)
    _check_range(proto, calibration())
    # Sums over places would overflow, and a score near 0 or 1 would be rounded to it.
    with _quiet():
        half = convert_float_to_float16(proto, keep_io_types=True, node_block_list=_behind(proto))
    _join_casts(half.graph)
    return half  # type: ignore[no-any-return]


def to_int8(model: Path, calibration: Batches) -> onnx.ModelProto:
    """The backbone in eight bits, by the ranges that images take; what is behind it as it is."""
    proto = onnx.load(model)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "int8.onnx"
        quantize_static(
            proto,
            path,
            _Reader(calibration()),
            per_channel=True,  # a depthwise convolution's channels differ by orders of magnitude
            # Seven bits of weights: on processors without VNNI eight overflow, silently.
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_behind(proto),
        )
        return onnx.load(path)


_CONVERT: dict[Precision, Callable[[Path, Batches], onnx.ModelProto]] = {
    "fp16": to_fp16,
    "int8": to_int8,
}


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Gives the quantiser its images, a batch at a time."""

    def __init__(self, batches: Iterator[Pixels]) -> None:
        self._batches = batches

    def get_next(self) -> dict[str, Pixels] | None:
        batch = next(self._batches, None)
        return None if batch is None else {INPUT: batch}


def _num_backbone(proto: onnx.ModelProto) -> int:
    """How many of the nodes are the backbone's, up to the last heavy one before the head."""
    heavy = [place for place, node in enumerate(proto.graph.node) if node.op_type in _HEAVY]
    return heavy[-2] + 1 if len(heavy) > 1 else 0


def _behind(proto: onnx.ModelProto) -> list[str]:
    """Names of the nodes behind the backbone: pooling, head, calibration and scores."""
    return [node.name for node in proto.graph.node[_num_backbone(proto) :]]


def _check_range(proto: onnx.ModelProto, batches: Iterator[Pixels]) -> None:
    # A CPU computes half precision in fp32, so that what overflows on a GPU does not show here.
    watched = onnx.shape_inference.infer_shapes(proto)
    graph = watched.graph
    floats = {v.name for v in graph.value_info if v.type.tensor_type.elem_type == _FP32}
    nodes = graph.node[: _num_backbone(proto)]
    names = [name for node in nodes for name in node.output if name in floats]
    for name in names:
        size, largest = f"{name}_size", f"{name}_largest"
        graph.node.append(onnx.helper.make_node("Abs", [name], [size]))
        graph.node.append(onnx.helper.make_node("ReduceMax", [size], [largest], keepdims=0))
        graph.output.append(onnx.helper.make_tensor_value_info(largest, _FP32, []))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "watched.onnx"
        onnx.save(watched, path)
        session = open_session(path, providers=[CPU], threads=usable_cores())
        for images in batches:
            largest = max(session.run([f"{name}_largest" for name in names], {INPUT: images}))
            if not largest * _MARGIN < np.finfo(np.float16).max:
                raise PlmclError(
                    f"the backbone reaches {largest:.3g} on training images, and half precision "
                    f"ends at {np.finfo(np.float16).max:.0f}"
                )


def _join_casts(graph: onnx.GraphProto) -> None:
    """Take away the way through half precision between two nodes that both stay in fp32.

    And the second of two equal casts, of what two such nodes read; the converter makes both.
    """
    halved = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Cast" and node.name.endswith("_cast_to_fp16_node")
    }
    whole = {}
    for node in graph.node:
        if node.op_type == "Cast" and node.input[0] in halved:
            node.input[0] = halved[node.input[0]]
            whole[node.output[0]] = node.input[0]
    for node in graph.node:
        node.input[:] = [whole.get(name, name) for name in node.input]
    used = {name for node in graph.node for name in node.input}
    used |= {output.name for output in graph.output}
    made: set[str] = set()
    for node in list(graph.node):
        if node.op_type == "Cast":
            if node.output[0] in made or node.output[0] not in used:
                graph.node.remove(node)
            made.add(node.output[0])
    del graph.value_info[:]  # of the casts as well


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the converters' advice, which the root logger would print."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
