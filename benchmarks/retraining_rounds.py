"""Retraining on real git, DVC, MLflow and Prefect, in a copy in a scratch folder.

    python benchmarks/retraining_rounds.py demo
    python benchmarks/retraining_rounds.py photos5 --photos ../shared/data/photos5 --out FILE.json
    python benchmarks/retraining_rounds.py kills --out FILE.json

`demo`: a champion, a delivery with bad files, a bad challenger that is refused, a roll-back.
`photos5`: 60 % of the photos, the others in two deliveries.
`kills`: SIGKILLs at random moments of the flow.
"""

import argparse
import csv
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
from PIL import Image
from ruamel.yaml import YAML

from plmcl.data.sources import make_source
from plmcl.params import load_params
from plmcl.presets import read_preset
from plmcl.retraining.rounds import Retraining
from plmcl.run_record import RunRecord

ROOT = Path(__file__).resolve().parents[1]

# Seconds a round instead of minutes; every step is the real one.
QUICK = {
    "grid": {"settings": ["sspl-40"], "methods": ["epr"]},
    "sources.scenes.images": 90,
    "sources.scenes.labels": 4,
    "sources.scenes.size": 48,
    "sources.scenes.labels_per_image": 1.5,
    "image.size": 32,
    "model.backbone": "test_efficientnet",
    "model.weights": "none",
    "train.threads": 1,
    "train.linear.epochs": 3,
    "retraining.min_images": 1,
    "retraining.settle_seconds": 0.0,
    "gate.min_gain": -1.0,
    "gate.max_label_drop": 1.0,
}


class Project:
    """A copy of this project, in a git repository of its own.

    Args:
        folder: Made here.
        changes: Of params.yaml, by dotted path; committed.
    """

    def __init__(self, folder: Path, changes: dict[str, Any]) -> None:
        self.root = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "reports/")):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        (folder / "dvc.lock").unlink(missing_ok=True)  # of other values
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
        self.set_params(changes)
        self.python = Path(sys.executable)
        self.environment = os.environ | {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder / "src"),
            "PREFECT_HOME": str(folder.parent / "prefect"),
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "true",
            "DVC_NO_ANALYTICS": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        self.environment.pop("MLFLOW_TRACKING_URI", None)
        (folder / "data/incoming").mkdir(exist_ok=True)

    @contextmanager
    def serving(self) -> Iterator[list[tuple[int, str]]]:
        """The HTTP service of the champion, asked again and again; its answers so far.

        Yields:
            Status and model (sha256) of each answer; status 0 where there was none.
        """
        port = free_port()
        command = [self.python, "-m", "plmcl.cli", "serve", "--port", str(port)]
        picture = self.draw(1, seed=99)[0].read_bytes()
        answers: list[tuple[int, str]] = []
        ended = threading.Event()

        def ask() -> None:
            address = f"http://127.0.0.1:{port}/predict"
            headers = {"content-type": "image/jpeg"}
            with httpx.Client(headers=headers, timeout=60) as client:
                while not ended.wait(0.2):
                    try:
                        answer = client.post(address, content=picture)
                        answers.append((answer.status_code, answer.headers.get("plmcl-model", "")))
                    except httpx.HTTPError:
                        answers.append((0, ""))

        with subprocess.Popen(
            command, cwd=self.root, env=self.environment, stderr=subprocess.DEVNULL
        ) as process:
            wait_until_ok(f"http://127.0.0.1:{port}/ready", process)
            thread = threading.Thread(target=ask)
            thread.start()
            try:
                yield answers
            finally:
                ended.set()
                thread.join()
                process.terminate()

    @contextmanager
    def server(self) -> Iterator[str]:
        """A Prefect server for many runs, instead of one for each; its address."""
        port = free_port()
        address = f"http://127.0.0.1:{port}/api"
        command = [self.python.with_name("prefect"), "server", "start", "--port", str(port)]
        process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until_ok(f"{address}/health", process)
            self.environment["PREFECT_API_URL"] = address
            yield address
        finally:
            self.environment.pop("PREFECT_API_URL", None)
            process.send_signal(signal.SIGINT)
            process.wait()

    def set_params(self, changes: dict[str, Any]) -> None:
        """Set values of params.yaml and commit them, as a user would."""
        path = self.root / "params.yaml"
        values = YAML().load(path)
        for dotted, value in changes.items():
            *parents, last = dotted.split(".")
            section = values
            for parent in parents:
                section = section[parent]
            section[last] = value
        YAML().dump(values, path)
        identity = ["-c", "user.name=demo", "-c", "user.email=demo@localhost"]
        for command in (["add", "--all"], [*identity, "commit", "--quiet", "-m", "Other values"]):
            subprocess.run(["git", *command], cwd=self.root, check=True)

    def flow(self, name: str = "retrain", *arguments: str) -> str:
        """Run a flow to its end; its last line, which is its state."""
        done = subprocess.run(
            [self.python, f"flows/{name}.py", *arguments],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{done.stdout}\n{done.stderr}")
        return done.stdout.strip().splitlines()[-1]

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the retraining flow."""
        return subprocess.Popen(
            [self.python, "flows/retrain.py"],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def plmcl(self, *arguments: str) -> str:
        """Run a command of ours; what it printed."""
        done = subprocess.run(
            [self.python, "-m", "plmcl.cli", *arguments],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def draw(self, count: int, seed: int) -> list[Path]:
        """New pictures like those of the project's, as files."""
        params = load_params(self.root / "params.yaml")
        section = params.sources["scenes"] | {"images": count}
        folder = self.root.parent / f"drawn-{seed}"
        make_source("scenes", {"scenes": section}).download(folder, folder, seed=seed)
        return sorted((folder / "images").iterdir())

    @property
    def retraining(self) -> Retraining:
        """What it knows of its retrainings."""
        return Retraining(self.root)

    def champion_mAP(self) -> float | None:  # noqa: N802
        """Test mAP of the champion."""
        champion = self.retraining.production.champion
        return champion.record.test_mAP if champion else None


def free_port() -> int:
    """A port that nobody is likely to listen on."""
    return 20_000 + secrets.randbelow(12_000)


def wait_until_ok(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until a server that was just started answers."""
    while process.poll() is None:
        with suppress(httpx.HTTPError):
            if httpx.get(address).is_success:
                return
        time.sleep(0.2)
    sys.exit(f"{address}: its process has ended with code {process.returncode}")


def deliver(project: Project, files: list[Path], prefix: str) -> None:
    """Put copies into data/incoming."""
    for file in files:
        shutil.copy(file, project.root / "data/incoming" / f"{prefix}{file.name}")


def demo(folder: Path) -> None:
    """The whole story on drawn images."""
    changes = {
        "sources.scenes.images": 500,
        "sources.scenes.labels": 8,
        "grid": {"settings": ["sspl-40"], "methods": ["epr"]},
        "retraining.settle_seconds": 0.0,
        "gate.min_gain": -0.05,  # 100 test images tell no smaller differences
    }
    project = Project(folder / "project", changes)
    incoming = project.root / "data/incoming"
    print("No champion yet:", project.flow(), sep="\n  ")
    with project.serving() as answers:
        drawn = project.draw(200, seed=1)
        deliver(project, drawn, "new-")
        for index, known in enumerate(drawn[:5]):
            shutil.copy(known, incoming / f"again-{index}.jpg")
        whole = project.draw(1, seed=2)[0].read_bytes()
        (incoming / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
        (incoming / "notes.jpg").write_text("no picture")
        print(
            "200 new images, 5 of them twice, a truncated one, a text:", project.flow(), sep="\n  "
        )
        table = pd.read_parquet(project.root / "data/received/0001.parquet")
        print("  ", table["status"].value_counts().to_dict())
        print("Nothing new:", project.flow(), sep="\n  ")
        # One step at a rate that teaches nothing.
        project.set_params({"train.linear.epochs": 1, "train.linear.learning_rate": 1e-6,
                            "retraining.start": "scratch"})  # fmt: skip
        print("A bad challenger:", project.flow("retrain", "--force"), sep="\n  ")
        print("Back:", project.flow("rollback"), sep="\n  ")
    statuses = Counter(status for status, _ in answers)
    print(f"The HTTP service meanwhile: {dict(statuses)}, {len({m for _, m in answers})} models")
    champion = project.root / "models/production/champion/model.onnx"
    print("Where the champion comes from:", project.plmcl("lineage", str(champion)), sep="\n")


def photos5(folder: Path, photos: Path, out: Path) -> None:
    """Real photographs: three rounds on one frozen test split."""
    with (photos / "labels.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    random.Random(0).shuffle(rows)
    first, second = round(0.6 * len(rows)), round(0.8 * len(rows))
    inputs = folder / "inputs"
    inputs.mkdir()
    for name, *_ in rows[:first]:
        shutil.copy(photos / "images" / name, inputs)
    with (inputs / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *sorted(rows[:first])])
    fit = read_preset("fit")
    changes = {
        "data.source": "folder",
        "data.path": str(inputs),
        "sources.folder.labels": "labels.csv",
        "sources.folder.unlisted": "negative",
        "image": fit["image"],
        "model": fit["model"],
        "train.linear": fit["train"]["linear"],
        "grid": {"settings": ["sspl-40"], "methods": ["epr", "ridge"]},
        "retraining.settle_seconds": 0.0,
    }
    project = Project(folder / "project", changes)
    found = []
    for part in (rows[:0], rows[first:second], rows[second:]):
        deliver(project, [photos / "images" / name for name, *_ in part], "")
        start = time.monotonic()
        state = project.flow()
        last = project.retraining.last
        assert last is not None
        runs = project.retraining.checkout.path / "reports/runs"
        found.append(
            {
                "delivered": len(part),
                "version": last.version,
                "result": last.result,
                "reasons": last.reasons,
                "notes": last.notes,
                "test_mAP": {
                    RunRecord.read(run / "run.json").name: json.loads(
                        (run / "metrics.json").read_text()
                    )["mAP"]
                    for run in sorted(runs.iterdir())
                },
                "champion_test_mAP": project.champion_mAP(),
                "seconds": round(time.monotonic() - start),
            }
        )
        print(state)
    write(found, out)


def kills(folder: Path, number: int, out: Path) -> None:
    """SIGKILL at random moments; afterwards nothing is lost, twice, or left behind."""
    project = Project(folder / "project", QUICK)
    with project.server() as address:
        found = kill_at_random(project, number)
        found["prefect_runs"] = prefect_states(address)
    write(found, out)


def kill_at_random(project: Project, number: int) -> dict[str, Any]:
    """Deliver, start the flow, kill it: so many times; then let it end, and check."""
    start = time.monotonic()
    project.flow()
    seconds = time.monotonic() - start
    generator = random.Random(0)
    delivered, moments, where = [], [], []
    for kill in range(number):
        for file in project.draw(3, seed=10 + kill):
            name = f"{kill}-{file.name}"
            shutil.copy(file, project.root / "data/incoming" / name)
            delivered.append(name)
        process = project.start()
        moment = generator.uniform(0.0, 1.1 * seconds)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        moments.append(round(moment, 1))
        where.append(stage_reached(project))
        print(f"kill {kill + 1}, after {moment:.1f} s: {where[-1]}", flush=True)
    project.flow("retrain", "--force")
    found = {"round_seconds": round(seconds, 1), "moments": moments, "found": where}
    return found | check(project, delivered)


def prefect_states(address: str) -> dict[str, int]:
    """How many runs of flows are in each state, as the server has it."""
    runs = httpx.post(f"{address}/flow_runs/filter", json={}).raise_for_status().json()
    return dict(Counter(run["state_name"] for run in runs))


def stage_reached(project: Project) -> str:
    """What a kill left behind."""
    folder = project.retraining.folder
    under_way = [name for name in ("lock.json", "round.json", "child.json")
                 if (folder / name).exists()]  # fmt: skip
    return ", ".join(under_way) or "nothing under way"


def check(project: Project, delivered: list[str]) -> dict[str, Any]:
    """The promises, each as a figure; any that is broken ends this with a message."""
    import mlflow

    store = project.root / "data/received"
    received = pd.concat([pd.read_parquet(table) for table in sorted(store.glob("*.parquet"))])
    names = received["name"].tolist()
    dropped = int((received["status"] == "duplicate").sum())
    files = sorted(store.rglob("*.jpg"))
    production = project.retraining.production
    client = mlflow.MlflowClient(f"sqlite:///{project.root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("plmcl")
    running = [run.info.run_id for run in client.search_runs([experiment.experiment_id])
               if run.info.status == "RUNNING"]  # fmt: skip
    champion = production.champion
    alias = client.get_model_version_by_alias("plmcl", "champion")
    found = {
        "delivered": len(delivered),
        "in_tables": len(names),
        "in_the_store": len(files),
        "left_in_incoming": len(list((project.root / "data/incoming").glob("*.jpg"))),
        "champion": champion.version if champion else None,
        "alias_is_the_champion": bool(champion)
        and int(alias.version) == champion.record.registry_version,
        "lock_left": (project.retraining.folder / "lock.json").exists(),
        "round_left": (project.retraining.folder / "round.json").exists(),
        "runs_left_running": len(running),
        "versions": len(production.versions()),
    }
    for path in files:
        if not path.parent.name.endswith("-quarantine"):
            with Image.open(path) as image:
                image.load()
    kept = sorted(names) == sorted(delivered) and len(files) == len(names) - dropped
    clean = not (found["left_in_incoming"] or found["lock_left"] or found["round_left"] or running)
    if not (kept and clean and found["alias_is_the_champion"]):
        sys.exit(f"broken: {json.dumps(found, indent=2)}")
    return found


def write(found: object, out: Path) -> None:
    """Write and print the figures."""
    text = json.dumps(found, indent=2, ensure_ascii=False)
    out.write_text(text + "\n", encoding="utf-8")
    print(text)


def main() -> None:
    """Run what the first argument names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["demo", "photos5", "kills"])
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "demo":
            demo(Path(folder))
        elif arguments.what == "photos5":
            photos5(Path(folder), arguments.photos.resolve(), arguments.out)
        else:
            kills(Path(folder), arguments.kills, arguments.out)


if __name__ == "__main__":
    main()
