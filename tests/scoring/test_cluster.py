import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from PIL import Image

from plmcl.errors import PlmclError
from plmcl.inference import tag_files, to_record
from plmcl.scoring.cluster import Workers, score
from plmcl.scoring.inputs import Input
from plmcl.scoring.shards import Output, Scoring, cut, with_version

IMAGES = 160
OPTIONS = {
    "shard_size": 30, "batch_size": 4, "workers": Workers(1, 0, 2), "address": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    """One Ray for all tests; starting it takes several seconds."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
        object_store_memory=2**27, _node_ip_address="127.0.0.1",
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Images that take so long that a worker can be killed amid a shard; one is empty."""
    folder = tmp_path_factory.mktemp("data") / "large"
    folder.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (98, 102, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "000.png")
    for number in range(1, IMAGES):
        if number == 77:
            (folder / "077.png").touch()
        else:
            (folder / f"{number:03}.png").hardlink_to(folder / "000.png")
    return folder


def kill_one_worker(folder, killed):
    """SIGKILL the first process that has an unfinished shard open, and see that it stays so."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not killed:
        for process in psutil.process_iter(["name"]):
            with suppress(psutil.Error):
                if process.info["name"].startswith("ray::"):
                    paths = [Path(file.path) for file in process.open_files()]
                    if any(path.suffix == ".tmp" and folder in path.parents for path in paths):
                        process.kill()
                        process.wait(30)
                        killed += [
                            path for path in paths if path.suffix == ".tmp" and path.exists()
                        ]
        time.sleep(0.005)


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_and_what_was_done_before_is_kept(
    cluster, model, tagger, large, tmp_path, monkeypatch
):
    out, killed = tmp_path / "scores", []
    monkeypatch.chdir(large.parent)  # their names decide on the shards
    files = sorted(str(path) for path in Path("large").iterdir())
    # Of an earlier run.
    scoring = Scoring(tagger.sha256, 4, "cpu")
    first, *others = cut([with_version(Input(file, file)) for file in files], 30)
    assert [len(first), *map(len, others)] == [45, 24, 17, 1, 45, 28]
    earlier = Output(str(out)).score(tagger, scoring, first, {}, threads=1)
    kept = out / f"shards/{earlier.name}.parquet"
    inode = kept.stat().st_ino

    killer = threading.Thread(target=kill_one_worker, args=(out, killed))
    killer.start()
    outcome = score(["large"], model, str(out), **OPTIONS)
    killer.join()
    assert len(killed) == 1, "no worker was at work"
    assert (outcome.listed.total, outcome.errors) == (IMAGES, 1)
    assert kept.stat().st_ino == inode

    index = pq.read_table(out / "index.parquet").to_pylist()
    assert [row["file"] for row in index] == files
    shards = {path.name: pq.read_table(path).to_pylist() for path in (out / "shards").iterdir()}
    assert {f"shards/{name}" for name in shards} == {row["shard"] for row in index}
    assert len(shards) == 1 + len(others)
    assert sum(map(len, shards.values())) == IMAGES
    rows = [shards[row["shard"].removeprefix("shards/")][row["row"]] for row in index]
    for row, prediction in zip(rows, tag_files(tagger, files, batch_size=4), strict=True):
        record = to_record(prediction)
        assert (row["file"], row["error"]) == (record["file"], record["error"])
        scores = [tag["score"] for tag in row["scores"]]
        assert scores == [np.float32(tag["score"]) for tag in record["labels"]]


def test_a_run_that_was_killed_before_its_index_needs_no_worker(model, tagger, photos, tmp_path):
    files = sorted(str(path) for path in photos.rglob("[!.]*.[pj]*g"))
    scoring = Scoring(tagger.sha256, 4, "cpu")
    output = Output(str(tmp_path / "out"))
    for shard in cut([with_version(Input(file, file)) for file in files], 30):
        output.score(tagger, scoring, shard, {}, threads=1)
    # Given twice, listed once.
    arguments = [str(photos / "a"), str(photos)]
    outcome = score(arguments, model, str(tmp_path / "out"), **OPTIONS)
    assert (outcome.listed.total, outcome.errors) == (25, 1)
    index = pq.read_table(tmp_path / "out/index.parquet").to_pylist()
    assert [row["file"] for row in index] == files


def test_case_106_a_model_that_cannot_be_served_is_refused_before_ray_starts(photos, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x")
    with pytest.raises(PlmclError, match="not an ONNX file"):
        score([str(photos)], path, str(tmp_path / "out"), **OPTIONS)
    assert not (tmp_path / "out").exists()


def test_without_ray_the_command_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PlmclError, match=r"needs Ray: pip install 'plmcl\[cluster\]'"):
        score([str(tmp_path)], model, str(tmp_path / "out"), **OPTIONS)


def test_no_other_command_imports_ray():
    code = (
        "import sys; from typer.testing import CliRunner; from plmcl.cli import app;"
        "runner = CliRunner();"
        "assert runner.invoke(app, ['--help']).exit_code == 0;"
        "assert runner.invoke(app, ['score', '--help']).exit_code == 0;"
        "import plmcl.scoring.predict, plmcl.scoring.shards;"
        "print('ray' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"
