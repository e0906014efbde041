"""An exported model that can be worked out by hand: how red, green and blue an image is."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from plmcl.card import Card
from plmcl.data.images import Recipe

SIZE = 8
RECIPE = Recipe(size=SIZE, background=(255, 255, 255), max_pixels=10_000)


def make_card(**changes):
    values = {
        "label_names": ["red", "gr;een", 'b,"lue'],
        "thresholds": np.float32([0.5, 0.5, 0.99]),
        "threshold_rules": ["best F1"] * 3,
        "recipe": RECIPE,
        "setting": "sspl-40",
        "method": "plmcl",
        "data_sha256": "",
        "splits_sha256": "",
        "code_commit": "",
        "run_id": "",
        "parity": {},
    }
    return Card(**(values | changes))


def make_model(path, card=None, *, batch="batch", size=SIZE, outputs=3, name="images", dark=1):
    """Label c's probability is sigmoid((mean of channel c - 128) / 64), by hand in ONNX.

    Where the three means' sum is below `dark`, the root of (sum - dark) is added and taken away:
    not a number.
    """
    shape = [batch, size, size, 3]
    constants = {"hw": np.int64([1, 2]), "mid": np.float32(128), "scale": np.float32(64)}
    constants |= {"dark": np.float32(dark), "zero": np.float32(0)}
    nodes = [
        ("Cast", [name], "pixels", {"to": TensorProto.FLOAT}),
        ("ReduceMean", ["pixels", "hw"], "mean", {"keepdims": 0}),
        ("ReduceSum", ["mean", "last"], "total", {"keepdims": 1}),
        ("Sub", ["total", "dark"], "bright", {}),
        ("Sqrt", ["bright"], "root", {}),
        ("Mul", ["root", "zero"], "nothing", {}),
        ("Sub", ["mean", "mid"], "centred", {}),
        ("Div", ["centred", "scale"], "scaled", {}),
        ("Add", ["scaled", "nothing"], "logits", {}),
        ("Sigmoid", ["logits"], "probs", {}),
    ]
    constants["last"] = np.int64([1])
    graph = helper.make_graph(
        [helper.make_node(op, ins, [out], **attributes) for op, ins, out, attributes in nodes],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("probs", TensorProto.FLOAT, [batch, outputs])],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(model, (make_card() if card is None else card).to_metadata())
    path.write_bytes(model.SerializeToString())
    return path
