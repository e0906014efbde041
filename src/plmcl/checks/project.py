"""What the run that params.yaml describes needs from the disk and the network, and lacks."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from plmcl.checks.finding import Finding, guarded, in_words
from plmcl.checks.network import HttpAsk
from plmcl.machine import usable_cores

if TYPE_CHECKING:
    from plmcl.data.sources.official import Official
    from plmcl.params import Params

# Archives, what is unpacked of them, and DVC's copy where it cannot link.
COPIES_OF_AN_ARCHIVE = 3
CODE = ("src", "flows", "grids", "dvc.yaml", "params.yaml")
NAMED = 5  # so many untracked files are named


def project_findings(root: Path, ask: HttpAsk) -> Iterator[Finding]:
    """All that can be said of the run before it is started.

    Args:
        root: Holds params.yaml.
        ask: As in `checks.find_all`.
    """
    from plmcl.errors import PlmclError
    from plmcl.params import load_params
    from plmcl.stages import check

    advice = "correct it; plmcl check says the same"
    try:
        params = load_params(root / "params.yaml")
        problems = check.plug_in_problems(params)
    except PlmclError as error:
        problems = str(error).splitlines()
    if problems:
        for line in problems:
            yield Finding("params.yaml", "problem", line, advice)
        return
    runs = len(params.grid.settings) * len(params.grid.methods)
    yield Finding("params.yaml", "ok", f"valid; {runs} trainings, mode {params.train.mode}")
    if params.train.threads > (cores := usable_cores()):
        yield Finding(
            "params.yaml",
            "warning",
            f"train.threads is {params.train.threads}, and {cores} cores are usable",
            f"set train.threads to {cores}",
        )
    yield from guarded("data", lambda: data(root, params, ask))
    yield from guarded("weights", lambda: weights(params, ask))
    yield from guarded("MLflow", lambda: mlflow(root, ask))
    yield from guarded("DVC", lambda: dvc(root))
    yield from guarded("git", lambda: untracked(root))


def data(root: Path, params: "Params", ask: HttpAsk) -> Iterator[Finding]:
    """Whether the images and labels are there, or can be had."""
    from plmcl.data.sources import make_source
    from plmcl.data.sources.official import Official
    from plmcl.stages.paths import Paths

    name, path = params.data.source, root / params.data.path
    source = make_source(name, params.sources)
    raw = Paths.of_project(root, name).raw
    if not path.exists():
        advice = "make it, or let data.path name a folder; an empty one has everything fetched"
        yield Finding("data", "problem", f"data.path: {path} is not there", advice)
    elif name == "scenes":
        yield Finding("data", "ok", "scenes: drawn here; nothing is read or fetched")
    elif not isinstance(source, Official):
        said = source.annotations(path)
        yield Finding(
            "data",
            "ok",
            f"{name}: {len(said.files)} images and {len(said.label_names)} labels in {path}",
        )
    elif source.find(raw) is not None:
        yield Finding("data", "ok", f"{name}: in {raw} already")
    elif source.find(path) is not None:
        yield Finding("data", "ok", f"{name}: its official layout is in {path}")
    else:
        yield from _archives(name, source, path, raw, ask)


def _archives(
    name: str, source: "Official", path: Path, raw: Path, ask: HttpAsk
) -> Iterator[Finding]:
    from plmcl.data.sources.official import beside

    fetched = beside(raw, "archives")
    archives = source.archives()
    lacking = [a for a in archives if not any((f / a.name).is_file() for f in (path, fetched))]
    size = sum(archive.size or 0 for archive in archives)
    free = shutil.disk_usage(_existing(raw)).free
    if free < COPIES_OF_AN_ARCHIVE * size:
        yield Finding(
            "data",
            "problem",
            f"{name}: {in_words(free)} free, and its archives have {in_words(size)}",
            f"make room for {in_words(COPIES_OF_AN_ARCHIVE * size)}: archives, images, DVC's cache",
        )
    if not lacking:
        yield Finding("data", "ok", f"{name}: all {len(archives)} archives are on the disk")
    for archive in lacking:
        hosts = {urlsplit(url).hostname or "": url for url in archive.urls}
        refused = {host: reason for host, url in hosts.items() if (reason := ask(url))}
        where = f"{name}: {archive.name} has to be fetched"
        if len(refused) < len(hosts):
            asked = ", ".join(host for host in hosts if host not in refused)
            of_size = f" ({in_words(archive.size)})" if archive.size else ""
            yield Finding("data", "ok", f"{where}{of_size}; there: {asked}")
        else:
            reasons = "; ".join(f"{host}: {reason}" for host, reason in refused.items())
            advice = f"put {archive.name} into {path}, or name a mirror in sources.{name}.mirrors"
            yield Finding("data", "problem", f"{where}, and cannot be: {reasons}", advice)


def weights(params: "Params", ask: HttpAsk) -> Iterator[Finding]:
    """Whether the backbone's first weights are there, or can be had."""
    if importlib.util.find_spec("torch") is None:
        return  # `versions` says it
    import torch

    from plmcl.models import check_name, imagenet_url, packaged_file

    kind, backbone = params.model.weights, params.model.backbone
    check_name(backbone)
    if kind == "none":
        yield Finding("weights", "ok", "none: training starts at random")
    elif kind == "package":
        yield Finding("weights", "ok", f"{packaged_file(backbone).name}, out of a package")
    elif kind != "imagenet":
        path = Path(kind).expanduser()
        if path.is_file():
            yield Finding("weights", "ok", f"{path}, {in_words(path.stat().st_size)}")
        else:
            advice = "correct model.weights, or put the state dict there"
            yield Finding("weights", "problem", f"model.weights: {path} is not a file", advice)
    else:
        url = imagenet_url(backbone)
        path = Path(torch.hub.get_dir(), "checkpoints", url.rsplit("/", 1)[-1])
        if path.is_file():
            yield Finding("weights", "ok", f"{path.name} is in torch's cache")
        elif reason := ask(url):
            advice = f"put that file at {path}, or set model.weights to a path, package or none"
            yield Finding("weights", "problem", f"{url} cannot be fetched: {reason}", advice)
        else:
            host = urlsplit(url).hostname
            yield Finding("weights", "ok", f"{path.name} has to be fetched; there: {host}")


def mlflow(root: Path, ask: HttpAsk) -> Iterator[Finding]:
    """Whether the tracking store can be reached; it is not opened, which would make one."""
    from plmcl.mlflow_store import address

    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root.resolve() / 'mlflow.db'}"
    shown = address(uri)
    if uri.startswith(("http://", "https://")):
        if reason := ask(f"{uri.rstrip('/')}/health"):
            advice = "start the server, correct MLFLOW_TRACKING_URI, or unset it for a local file"
            yield Finding("MLflow", "problem", f"{shown}: {reason}", advice)
        else:
            yield Finding("MLflow", "ok", f"{shown} answers")
    elif uri.startswith("sqlite:///"):
        file = Path(uri.removeprefix("sqlite:///").partition("?")[0])
        place = file if file.exists() else _existing(file.parent)
        if os.access(place, os.W_OK):
            yield Finding("MLflow", "ok", shown if file.exists() else f"{shown}, made by the run")
        else:
            advice = "change its rights, or set MLFLOW_TRACKING_URI"
            yield Finding("MLflow", "problem", f"{place}: not writable", advice)
    else:
        yield Finding("MLflow", "warning", f"{shown}: not tried", "see that it can be reached")


def dvc(root: Path) -> Iterator[Finding]:
    """Whether DVC runs here, and how much of what it has recorded is in its cache."""
    if not (root / "dvc.yaml").is_file():
        yield Finding("DVC", "ok", "no dvc.yaml here: no pipeline")
        return
    if shutil.which("dvc") is None:
        advice = "activate the environment: source .venv/bin/activate"
        yield Finding("DVC", "problem", "no dvc on PATH", advice)
        return
    if not (root / ".dvc").is_dir():
        yield Finding("DVC", "problem", "no .dvc folder here", "run it in the project's root")
        return
    asked = subprocess.run(
        ["dvc", "cache", "dir"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or ["failed"])[-1]
        yield Finding("DVC", "problem", last, "look at .dvc/config; dvc doctor says more")
        return
    cache = Path(asked.stdout.strip())
    if not os.access(_existing(cache), os.W_OK):
        advice = "change its rights, or: dvc cache dir --local FOLDER"
        yield Finding("DVC", "problem", f"{cache}: not writable", advice)
        return
    recorded = _recorded(root / "dvc.lock")
    lacking = sum(not (cache / "files/md5" / md5[:2] / md5[2:]).exists() for md5 in recorded)
    there = f"{len(recorded) - lacking} of {len(recorded)} recorded outputs in {cache}"
    yield Finding("DVC", "ok", f"{there}{'; the run makes the others' if lacking else ''}")


def untracked(root: Path) -> Iterator[Finding]:
    """Code and settings that git does not know: experiments in a copy would run without them."""
    asked = subprocess.run(  # noqa: S603
        ["git", "ls-files", "--others", "--exclude-standard", "--", *CODE],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if files := asked.stdout.splitlines():
        more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
        yield Finding(
            "git",
            "warning",
            f"untracked: {', '.join(files[:NAMED])}{more}",
            "dvc exp run --queue or --temp, a retraining and a clone lack them: git add",
        )


def _recorded(lock: Path) -> set[str]:
    from plmcl.params import read_yaml

    if not lock.is_file():
        return set()
    stages: dict[str, Any] = (read_yaml(lock) or {}).get("stages", {})
    outs: Iterable[dict[str, Any]] = (o for stage in stages.values() for o in stage.get("outs", []))
    return {out["md5"] for out in outs if "md5" in out}


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())
