"""Batches of any size through a session that sees a few sizes only.

ONNX Runtime keeps memory for each batch size that it has seen, and CUDA searches the fastest
convolutions anew for each.
"""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

INPUT, OUTPUT = "images", "probs"

Pixels = npt.NDArray[np.uint8]
Probs = npt.NDArray[np.float32]

# From large to small. Larger pieces leave a CPU's caches: 16 took a sixth more time than 8.
CPU_SIZES = (8, 4, 2, 1)
GPU_SIZES = (64, 32, 16, 8, 4, 2, 1)


class Cut:
    """Cuts a batch into pieces of `CPU_SIZES`: no slower on a CPU than whole, and padded is.

    Args:
        session: ONNX Runtime's.
        num_labels: L.
    """

    def __init__(self, session: Any, num_labels: int) -> None:
        self._session, self._num_labels = session, num_labels

    def run(self, images: Pixels) -> Probs:
        """The graph's answers (B, L) for uint8 images (B, size, size, 3)."""
        parts = [self._session.run([OUTPUT], {INPUT: part})[0] for part in _cut(images)]
        return np.concatenate([np.empty((0, self._num_labels), np.float32), *parts])


class Bound:
    """Pads a batch to one of `GPU_SIZES`, each with buffers of its own on the device.

    Pixels travel as bytes, straight into the buffer. Threads take turns.

    Args:
        session: ONNX Runtime's.
        num_labels: L.
        device: ONNX Runtime's name of where the buffers are, such as `cuda`.
    """

    def __init__(self, session: Any, num_labels: int, *, device: str) -> None:
        self._session, self._num_labels, self._device = session, num_labels, device
        self._buffers: dict[int, _Buffer] = {}
        self._turn = threading.Lock()

    def run(self, images: Pixels) -> Probs:
        """As `Cut.run`."""
        probs = np.empty((len(images), self._num_labels), np.float32)
        with self._turn:
            for start in range(0, len(images), GPU_SIZES[0]):
                part = images[start : start + GPU_SIZES[0]]
                probs[start : start + len(part)] = self._buffer(part).run(part)
        return probs

    def _buffer(self, images: Pixels) -> "_Buffer":
        size = min(size for size in GPU_SIZES if size >= len(images))
        if size not in self._buffers:
            ends = ((size, *images.shape[1:]), (size, self._num_labels))
            self._buffers[size] = _Buffer(self._session, *ends, device=self._device)
        return self._buffers[size]


class _Buffer:
    """Input and output of one batch size, on the device."""

    def __init__(
        self, session: Any, images: tuple[int, ...], probs: tuple[int, int], *, device: str
    ) -> None:
        self._session = session
        self._images = ort.OrtValue.ortvalue_from_shape_and_type(images, np.uint8, device, 0)
        self._probs = ort.OrtValue.ortvalue_from_shape_and_type(probs, np.float32, device, 0)
        self._binding = session.io_binding()
        self._binding.bind_ortvalue_input(INPUT, self._images)
        self._binding.bind_ortvalue_output(OUTPUT, self._probs)
        self._padded = np.zeros(images, np.uint8)

    def run(self, images: Pixels) -> Probs:
        """Answers (B, L) for at most as many images as the buffer holds."""
        if len(images) == len(self._padded):
            self._images.update_inplace(np.ascontiguousarray(images))
        else:
            self._padded[: len(images)] = images  # behind them is what was there
            self._images.update_inplace(self._padded)
        self._session.run_with_iobinding(self._binding)
        probs: Probs = self._probs.numpy()[: len(images)]
        return probs


def _cut(images: Pixels) -> Iterator[Pixels]:
    start = 0
    while start < len(images):
        size = next(size for size in CPU_SIZES if size <= len(images) - start)
        yield images[start : start + size]
        start += size
