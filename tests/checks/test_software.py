import importlib.metadata

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from plmcl.checks import software
from plmcl.errors import PlmclError


def test_the_model_that_providers_are_tried_on_is_a_negation():
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.checker.check_model(model)
    assert onnx.load_from_string(software.NEGATION) == model


def test_every_listed_provider_gets_its_line_and_the_cpu_computes():
    found = list(software.providers())
    assert [f.found.split(":")[0] for f in found] == ort.get_available_providers()
    assert found[-1].found == "CPUExecutionProvider: loads and computes"
    assert {f.status for f in found} <= {"ok", "warning"}


def test_cuda_that_is_listed_and_does_not_load_is_a_warning_where_there_is_a_driver(monkeypatch):
    """Case 93."""
    if "CUDAExecutionProvider" not in ort.get_available_providers() or software.has_cuda_driver():
        pytest.skip("needs onnxruntime-gpu on a machine without a GPU")
    monkeypatch.setattr(software, "has_cuda_driver", lambda: True)
    cuda = next(f for f in software.providers() if "CUDA" in f.found)
    assert cuda.status == "warning"
    assert "asked for CUDAExecutionProvider, but the session has CPUExecutionProvider" in cuda.found
    assert "run on the CPU" in cuda.advice


class Session:
    def __init__(self, answer):
        self.answer = answer

    def run(self, outputs, inputs):
        if self.answer is None:
            raise RuntimeError("no kernel\nfor this device")
        return [np.float32([self.answer])]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (2, "CPUExecutionProvider: -2 was expected, [2.0] came out"),
        (None, "CPUExecutionProvider: loads and fails: no kernel"),
    ],
)
def test_a_provider_that_loads_and_computes_nothing_right_is_a_problem(
    monkeypatch, tmp_path, answer, found
):
    monkeypatch.setattr(software, "open_session", lambda *_, **__: Session(answer))
    finding = software._tried("CPUExecutionProvider", tmp_path / "negation.onnx")
    assert (finding.status, finding.found) == ("problem", found)


def test_a_cpu_provider_that_does_not_load_is_a_problem_without_the_temporary_path(
    monkeypatch, tmp_path
):
    path = tmp_path / "negation.onnx"

    def refuse(*_, **__):
        raise PlmclError(f"{path}: broken")

    monkeypatch.setattr(software, "open_session", refuse)
    finding = software._tried("CPUExecutionProvider", path)
    assert (finding.status, finding.found) == ("problem", "broken")


@pytest.fixture
def installed(monkeypatch):
    """What importlib.metadata says, in place of this environment."""
    versions = {}

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    asked = ["torch==2.14.1", "mlflow<4,>=3.17", "ray>=2; extra == 'cluster'"]
    monkeypatch.setattr(software.importlib.metadata, "version", version)
    monkeypatch.setattr(software.importlib.metadata, "requires", lambda _: asked)
    return versions


def test_a_build_of_the_pinned_version_is_that_version(installed):
    installed.update({"torch": "2.14.1+cu130", "mlflow": "3.17.2"})
    (finding,) = software.versions(training=True)
    assert finding.status == "ok"
    assert finding.found.endswith("torch 2.14.1+cu130, mlflow 3.17.2; 2 requirements met")


def test_another_version_is_a_problem_with_the_command_that_mends_it(installed):
    installed.update({"torch": "2.10.0", "mlflow": "3.17.2"})
    problem, _ = software.versions(training=True)
    assert (problem.status, problem.found) == (
        "problem",
        "torch 2.10.0, and ==2.14.1 is needed",
    )
    assert problem.advice == "pip install 'torch==2.14.1'"


@pytest.mark.parametrize(("training", "status"), [(True, "problem"), (False, "warning")])
def test_what_is_missing_is_a_problem_for_a_training_only(installed, training, status):
    installed["torch"] = "2.14.1"
    missing, _ = software.versions(training=training)
    assert (missing.status, missing.found) == (status, "mlflow is not installed")


def test_both_builds_of_onnxruntime_in_one_environment_are_a_warning(installed):
    installed.update({"torch": "2.14.1", "mlflow": "3.17.2"})
    installed.update({"onnxruntime": "1.31.0", "onnxruntime-gpu": "1.31.0"})
    assert [f.status for f in software.versions(training=True)] == ["ok", "warning"]
