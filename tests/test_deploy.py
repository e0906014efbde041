"""The container files and the Kubernetes example agree with the service that they run."""

import fnmatch
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from project import ROOT
from ruamel.yaml import YAML
from tiny_model import make_model

from plmcl.cli.serve import serve
from plmcl.serving import gate

DEPLOY = ROOT / "deploy"
DOCKERFILES = ("cpu.Dockerfile", "gpu.Dockerfile")


def instructions(name):
    """(instruction, rest) of a Dockerfile, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / name).read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def last(name, instruction):
    return [rest for key, rest in instructions(name) if key == instruction][-1]


def documents(name):
    return list(YAML(typ="safe").load_all(DEPLOY / name))


def container(document):
    (found,) = document["spec"]["template"]["spec"]["containers"]
    return found


def parsed(words):
    """The options of `plmcl serve`, by its own parser; an unknown one is an error."""
    app = typer.Typer()
    app.command()(serve)
    command = typer.main.get_command(app)
    assert words[0] == "serve"
    return command.make_context("serve", list(words[1:])).params


def lock():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = (re.match(r"([\w.-]+)==([\w.]+)", line) for line in lines)
    return {pin[1]: pin[2] for pin in pins if pin}


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_finds_nothing(name):
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, DEPLOY / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_base_images_have_a_whole_version_and_nothing_runs_as_root(name):
    stages = {r.split(" AS ")[1] for k, r in instructions(name) if k == "FROM" and " AS " in r}
    for key, rest in instructions(name):
        if key == "FROM" and (image := rest.split()[0]) not in stages:
            assert re.search(r":\d+\.\d+\.\d+-", image), image
    assert last(name, "USER") == "10001:10001"
    assert "ORT_DISABLE_TELEMETRY=1" in last(name, "ENV")


@pytest.mark.parametrize(
    ("name", "runtime"), [(DOCKERFILES[0], "onnxruntime"), (DOCKERFILES[1], "onnxruntime-gpu")]
)
def test_the_runtime_is_the_one_of_the_lock(name, runtime):
    assert f" {runtime}=={lock()[runtime]}" in " ".join(rest for _, rest in instructions(name))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_the_command_is_one_of_ours_and_the_health_check_asks_where_it_listens(name):
    words = re.findall(r'"([^"]*)"', last(name, "CMD"))
    options = parsed(words)
    assert options["host"] == "0.0.0.0"
    asked = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", last(name, "HEALTHCHECK"))
    assert int(asked[1]) == options["port"] == int(last(name, "EXPOSE"))
    assert asked[2] in gate.OPEN_PATHS


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_is_copied_is_there_and_is_not_kept_out(name):
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines
    for key, rest in instructions(name):
        if key == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source
    assert all((ROOT / path).exists() for path in allowed)


def closure(names):
    """Distributions, and those that they need."""
    found, waiting = set(), list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        found.add(name)
        try:
            needs = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue
        parsed = map(Requirement, needs)
        waiting += [r.name for r in parsed if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


ALONE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
missing = set(sys.argv[1].split())
sys.meta_path.insert(0, Missing())
from pathlib import Path
from plmcl.cli import app
from plmcl.scoring.predict import predict
from plmcl.serving import decoder, server
from plmcl.serving.app import make_app
from plmcl.serving.limits import Limits
from plmcl.serving.service import Service
make_app(Service(Path(sys.argv[2]), Limits(), providers=None), token=None)
"""


@pytest.mark.slow
def test_the_service_needs_nothing_that_is_not_installed_there(tmp_path):
    lines = (DEPLOY / "requirements.txt").read_text().splitlines()
    named = [line for line in lines if line and not line.startswith("#")]
    assert set(named) <= set(lock())
    installed = closure([*named, "onnxruntime", "onnxruntime-gpu"]) | {"plmcl"}
    missing = {
        module
        for module, names in metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in names} & installed
    }
    assert {"torch", "pandas", "mlflow", "ray"} <= missing
    model = make_model(tmp_path / "model.onnx")
    subprocess.run(
        [sys.executable, "-c", ALONE, " ".join(missing), model],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )


def test_probes_ask_what_needs_no_token_and_the_ports_are_one():
    deployment, service, scaler, budget = documents("kubernetes.yaml")
    main = container(deployment)
    options = parsed(main["args"])
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}
    assert ports == {"http": options["port"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = main[probe]["httpGet"]
        assert asked["path"] in gate.OPEN_PATHS
        assert asked["port"] in ports
    assert main["livenessProbe"]["httpGet"]["path"] == "/live"
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_a_pod_has_time_to_end_may_write_nothing_and_mounts_what_it_serves():
    deployment = documents("kubernetes.yaml")[0]
    pod, main = deployment["spec"]["template"]["spec"], container(deployment)
    options = parsed(main["args"])
    pause = int(main["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > pause + options["request_seconds"]
    assert pod["securityContext"]["runAsNonRoot"]
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert user == last(DOCKERFILES[0], "USER")
    assert main["securityContext"]["readOnlyRootFilesystem"]
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (mount,) = main["volumeMounts"]
    assert options["model"].is_relative_to(mount["mountPath"])
    assert mount["name"] in {volume["name"] for volume in pod["volumes"]}
    assert {"cpu", "memory"} <= main["resources"]["limits"].keys()


def test_the_gpu_patch_is_of_that_deployment_and_its_command_one_of_ours():
    (patch,) = documents("kubernetes-gpu.yaml")
    deployment = documents("kubernetes.yaml")[0]
    for key in ("apiVersion", "kind"):
        assert patch[key] == deployment[key]
    assert patch["metadata"]["name"] == deployment["metadata"]["name"]
    main = container(patch)
    assert main["name"] == container(deployment)["name"]
    options, before = parsed(main["args"]), parsed(container(deployment)["args"])
    assert options["provider"] == ["CUDAExecutionProvider"]
    changed = {key for key in options if options[key] != before[key]}
    assert changed == {"provider", "batch_size"}
    assert main["resources"]["limits"]["nvidia.com/gpu"] == "1"
