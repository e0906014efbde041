"""Complete params files: what `plmcl fit` starts from, and the published protocols."""

import importlib.resources
import io
from typing import Any, Literal

from ruamel.yaml import YAML

DataSet = Literal["voc", "coco", "nuswide"]
Mode = Literal["linear", "linear_init", "end_to_end"]
Backbone = Literal["resnet50", "resnet101"]
Protocol = Literal["holdout", "paper"]


def read_preset(name: str) -> Any:
    """The values of a file of this folder, with its comments for ruamel to write again.

    Args:
        name: Such as `fit`.
    """
    file = importlib.resources.files(__name__) / f"{name}.yaml"
    return YAML().load(file.read_text(encoding="utf-8"))


def compose(data_set: DataSet, *, mode: Mode, backbone: Backbone, protocol: Protocol) -> str:
    """The text of a params.yaml with the published protocol, and every method's section.

    A method's values are its authors' for the data set where they give such.

    Args:
        data_set: Source of the images.
        mode: `train.mode`.
        backbone: `model.backbone`.
        protocol: `split.protocol`.
    """
    published = read_preset("published")
    values = published["base"]
    values["methods"] = read_preset("methods")
    for part in (
        published["data_sets"][data_set],
        published["modes"][mode],
        {"model": {"backbone": backbone}, "split": {"protocol": protocol}},
    ):
        _lay_over(values, part)
    file = io.StringIO()
    file.write(f"# plmcl preset {data_set} --mode {mode} --backbone {backbone} ")
    file.write(f"--protocol {protocol}\n")
    YAML().dump(values, file)
    return file.getvalue()


def _lay_over(values: Any, part: Any) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and key in values:
            _lay_over(values[key], value)
        else:
            values[key] = value
