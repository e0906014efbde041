"""Batches of any size, through few sizes: the same answers, and no more memory."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiny_model import SIZE, make_model

from plmcl.buckets import CPU_SIZES, GPU_SIZES, Bound, Cut

LABELS = 3
IMAGES = np.random.default_rng(0).integers(0, 256, (150, SIZE, SIZE, 3), dtype=np.uint8)
SIZES = (0, 1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 127, 150)


class Watched:
    """A session that notes the sizes of the batches that it sees."""

    def __init__(self, session):
        self._session, self.seen = session, []

    def run(self, names, inputs):
        self.seen.append(len(inputs["images"]))
        return self._session.run(names, inputs)

    def io_binding(self):
        return self._session.io_binding()

    def run_with_iobinding(self, binding):
        (probs,) = binding.get_outputs()
        self.seen.append(probs.shape()[0])
        self._session.run_with_iobinding(binding)


@pytest.fixture
def session(tmp_path):
    path = make_model(tmp_path / "model.onnx")
    return Watched(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))


def ways(session):
    # The buffers may be anywhere: here they are in the memory of the CPU.
    return {"cut": Cut(session, LABELS), "bound": Bound(session, LABELS, device="cpu")}


@pytest.mark.parametrize("way", ["cut", "bound"])
def test_any_batch_gets_the_answers_of_the_whole_in_order(session, way):
    run = ways(session)[way].run
    expected = 1 / (1 + np.exp(-(IMAGES.astype(np.float64).mean(axis=(1, 2)) - 128) / 64))
    for size in SIZES:
        probs = run(IMAGES[:size])
        assert probs.dtype == np.float32
        assert probs.shape == (size, LABELS)
        np.testing.assert_allclose(probs, expected[:size], atol=1e-6)
    # Views, whose bytes do not follow each other.
    np.testing.assert_allclose(run(IMAGES[::-3, ::-1]), expected[::-3], atol=1e-6)
    np.testing.assert_allclose(run(IMAGES[63::-1, :, ::-1]), expected[63::-1], atol=1e-6)


def test_a_batch_is_cut_for_a_cpu_and_padded_for_a_gpu(session):
    for way, seen in (("cut", [8, 8, 8, 8, 4, 2, 1]), ("bound", [64])):
        session.seen.clear()
        ways(session)[way].run(IMAGES[:39])
        assert session.seen == seen
    session.seen.clear()
    ways(session)["bound"].run(IMAGES)
    assert session.seen == [64, 64, 32]


@pytest.mark.parametrize(("way", "sizes"), [("cut", CPU_SIZES), ("bound", GPU_SIZES)])
def test_the_session_sees_few_sizes(session, way, sizes):
    made = ways(session)[way]
    for size in range(1, len(IMAGES)):
        made.run(IMAGES[:size])
    assert set(session.seen) == set(sizes)


def test_answers_that_were_given_stay_while_the_buffers_are_used_again(session):
    bound = ways(session)["bound"]
    first = bound.run(IMAGES[:2])
    before = first.copy()
    bound.run(255 - IMAGES[:2])
    np.testing.assert_array_equal(first, before)


def test_threads_that_share_buffers_get_their_own_answers(session):
    bound = ways(session)["bound"]
    alone = [bound.run(IMAGES[i : i + 1]) for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: bound.run(IMAGES[i : i + 1]), range(64)))
    np.testing.assert_array_equal(found, alone)


def convolution(path):
    """A MB of activations an image, so that what is kept of each size can be seen."""
    side, channels = 64, 64
    weight = np.full((channels, 3, 1, 1), 1e-3, np.float32)
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["floats"], ["pixels"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["pixels", "weight"], ["maps"]),
        helper.make_node("Sqrt", ["maps"], ["roots"]),
        helper.make_node("Conv", ["roots", "more"], ["again"]),
        helper.make_node("ReduceMean", ["again", "places"], ["mean"], keepdims=0),
        helper.make_node("Sigmoid", ["mean"], ["probs"]),
    ]
    constants = {
        "weight": weight,
        "more": np.full((2, channels, 1, 1), 1e-3, np.float32),
        "places": np.int64([2, 3]),
    }
    shape = ["batch", side, side, 3]
    graph = helper.make_graph(
        nodes,
        "convolution",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.write_bytes(proto.SerializeToString())


# MB that the process grew by while it answered batches of 200 odd sizes, after eight others.
GROWTH = """
import random, sys
import numpy as np, onnxruntime
from plmcl.buckets import Cut
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
run = Cut(session, 2).run if sys.argv[2] == "cut" else lambda x: session.run(None, {"images": x})
images = np.zeros((41, 64, 64, 3), np.uint8)
def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
for size in range(1, 32, 4):
    run(images[:size])
before = megabytes()
chosen = random.Random(0)
for _ in range(200):
    run(images[: 2 * chosen.randrange(21) + 1])
print(megabytes() - before)
"""


@pytest.mark.slow
def test_200_odd_batch_sizes_take_no_more_memory(tmp_path):
    convolution(tmp_path / "model.onnx")

    def growth(way):
        command = [sys.executable, "-c", GROWTH, tmp_path / "model.onnx", way]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout)

    assert growth("cut") < 5
    assert growth("bare") > 40  # what the session itself does
