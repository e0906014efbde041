import os
import random
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from plmcl import session
from plmcl.errors import PlmclError
from plmcl.session import CPU, CUDA, open_session


def twice(*, opset=18, ir_version=10, op="Add", domain=None):
    """y = x + x, as an ONNX model."""
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x", "x"], ["y"])], "g", value[:1], value[1:])
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 99))
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def save(model, path):
    path.write_bytes(model.SerializeToString())
    return path


def refusal(path, *, providers=(CPU,)):
    with pytest.raises(PlmclError) as error:
        open_session(path, providers=providers, threads=1)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert "onnxruntime_src" not in text  # a C++ path tells a user nothing
    return text.removeprefix(f"{path}: ")


def test_a_good_file_runs(tmp_path):
    opened = open_session(save(twice(), tmp_path / "m.onnx"), providers=[CPU], threads=3)
    assert opened.run(None, {"x": np.float32([1, 2])})[0].tolist() == [2, 4]
    assert opened.get_session_options().intra_op_num_threads == 3


def test_onnx_runtime_reports_nothing(tmp_path):
    """Where it does report its use, the first session leaves an id and a database in the cache."""
    save(twice(), tmp_path / "m.onnx")
    home = tmp_path / "home"
    home.mkdir()
    code = """from pathlib import Path
from plmcl.session import CPU, open_session
open_session(Path("m.onnx"), providers=[CPU], threads=1)"""
    unset = {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    inside = {name: text for name, text in os.environ.items() if name not in unset}
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=tmp_path, env=inside | {"HOME": str(home)}, check=True)
    assert list(home.rglob("*")) == []


def test_waiting_threads_leave_the_cores_to_others(tmp_path):
    opened = open_session(save(twice(), tmp_path / "m.onnx"), providers=[CPU], threads=2)
    options = opened.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    assert refusal(tmp_path / "m.onnx") == "not found"
    assert refusal(tmp_path) == "not a file"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"<html>404",
        b"label,score\ncat,0.5\n" * 50,
        random.Random(0).randbytes(5000),
        twice().SerializeToString()[:-20],
    ],
    ids=["empty", "zeros", "html", "csv", "random", "truncated"],
)
def test_what_is_no_onnx_file_is_said_so(tmp_path, content):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert refusal(path) == "not an ONNX file, or a damaged one"


def test_case_106_a_newer_opset_names_both_versions_and_what_to_do(tmp_path):
    text = refusal(save(twice(opset=99), tmp_path / "m.onnx"))
    match = re.fullmatch(
        r"model has opset 99, this runtime \(onnxruntime [\d.]+\) reads up to (\d+); "
        r"upgrade onnxruntime or export again",
        text,
    )
    assert match
    assert 18 <= int(match[1]) < 99
    # What it says is true: the highest that it names does load.
    highest = save(twice(opset=int(match[1])), tmp_path / "h.onnx")
    open_session(highest, providers=[CPU], threads=1)


def test_case_106_a_newer_ir_version_names_both_versions(tmp_path):
    text = refusal(save(twice(ir_version=99), tmp_path / "m.onnx"))
    assert re.fullmatch(
        r"model has IR version 99, this runtime \(.*\) reads up to \d+; upgrade .* again", text
    )


def test_case_106_a_newer_opset_of_another_domain_names_the_domain(tmp_path):
    text = refusal(save(twice(domain="ai.onnx.ml"), tmp_path / "m.onnx"))
    assert re.match(r"model has opset 99 of ai\.onnx\.ml, this runtime .* reads up to \d+;", text)


def test_any_other_refusal_keeps_the_reason_without_the_c_plus_plus(tmp_path):
    text = refusal(save(twice(op="Teleport"), tmp_path / "failed: m.onnx"))
    assert re.match(r"onnxruntime [\d.]+ cannot load it: .*Teleport", text)


def test_case_101_weights_left_behind_in_a_side_file_are_said_so(tmp_path):
    model = twice()
    weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), "x")
    model.graph.initializer.append(weight)
    del model.graph.input[:]
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 4
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="m.onnx.data")
    open_session(path, providers=[CPU], threads=1)
    (tmp_path / "m.onnx.data").unlink()
    assert "m.onnx.data" in refusal(path)


def test_case_93_cuda_that_was_asked_for_and_is_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "has_cuda_driver", lambda: False)
    path = save(twice(), tmp_path / "m.onnx")
    for providers in ([CUDA], [CUDA, CPU]):
        text = refusal(path, providers=providers)
        assert text.startswith(f"asked for {CUDA}, but the session has {CPU} ")
        assert re.search(r"needs onnxruntime-gpu, an NVIDIA driver, CUDA [\d.]+, cuDNN 9$", text)


def test_case_93_a_gpu_that_is_required_and_is_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "has_cuda_driver", lambda: False)
    path = save(twice(), tmp_path / "m.onnx")
    for providers in (None, [CPU], [CUDA, CPU]):
        with pytest.raises(PlmclError, match=r"asked for CUDA.*CUDA [\d.]+, cuDNN 9$"):
            open_session(path, providers=providers, threads=1, require_gpu=True)


def test_memory_of_a_gpu_grows_by_what_is_asked_for_up_to_a_limit(monkeypatch):
    monkeypatch.delenv("PLMCL_GPU_MEMORY_MB", raising=False)
    options = {"use_tf32": "0", "arena_extend_strategy": "kSameAsRequested"}
    assert session._cuda_options(tensor_cores=False) == options
    tensor_cores = session._cuda_options(tensor_cores=True)
    assert tensor_cores == options | {"use_tf32": "1"}
    monkeypatch.setenv("PLMCL_GPU_MEMORY_MB", "512")
    limited = session._cuda_options(tensor_cores=False)
    assert limited == options | {"gpu_mem_limit": "536870912"}
    for wrong in ("0", "-1", "2GB", "1.5"):
        monkeypatch.setenv("PLMCL_GPU_MEMORY_MB", wrong)
        with pytest.raises(PlmclError, match="PLMCL_GPU_MEMORY_MB: expected a whole number from"):
            session._cuda_options(tensor_cores=False)


def test_case_93_without_being_asked_for_cuda_its_absence_is_silent(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(session, "has_cuda_driver", lambda: False)
    path = save(twice(), tmp_path / "m.onnx")
    assert open_session(path, providers=None, threads=1).get_providers() == [CPU]
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(session.has_cuda_driver(), reason="needs a machine without a GPU")
def test_case_93_a_driver_whose_libraries_are_missing_leaves_stdout_clean(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(session, "has_cuda_driver", lambda: True)
    path = save(twice(), tmp_path / "m.onnx")
    assert open_session(path, providers=None, threads=1).get_providers() == [CPU]
    assert refusal(path, providers=[CUDA]).startswith(f"asked for {CUDA}, but")
    assert capfd.readouterr().out == ""


def test_an_unknown_provider_is_an_error_that_lists_the_known(tmp_path):
    text = refusal(save(twice(), tmp_path / "m.onnx"), providers=["cuda"])
    assert text.startswith("asked for cuda, but the session has")
    assert CPU in text
