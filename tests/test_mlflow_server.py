"""`mlflow models serve` of what is in the registry: the real server, started once."""

import base64
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from running_service import picture
from versions import LABELS, make_root, stage

from plmcl.retraining import registry

BIN = Path(sys.executable).parent
SECONDS = 120


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Its address; the champion is the only version, and one provider is asked for."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    root = make_root(tmp_path / "project")
    registry.move_alias(stage(root, 1), root)
    port = free_port()
    log = (tmp_path / "log.txt").open("w")
    process = subprocess.Popen(
        [
            *(BIN / "mlflow", "models", "serve", "-m", "models:/plmcl@champion"),
            *("--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)),
        ],
        cwd=tmp_path,
        env=os.environ
        | {
            "MLFLOW_TRACKING_URI": f"sqlite:///{root}/mlflow.db",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PLMCL_PROVIDERS": "CPUExecutionProvider",
        },
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS
    try:
        while True:
            assert process.poll() is None, (tmp_path / "log.txt").read_text()
            assert time.monotonic() < until, (tmp_path / "log.txt").read_text()
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/ping", trust_env=False).status_code == 200:
                    break
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        log.close()


@pytest.mark.slow
def test_case_77_mlflow_serves_the_champion_with_the_provider_that_was_asked_for(server):
    def ask(*images):
        # sigmoid((mean - 128) / 64) of each channel
        table = {"columns": ["image"], "data": [[image] for image in images]}
        body = {"dataframe_split": table}
        return httpx.post(f"{server}/invocations", json=body, trust_env=False, timeout=30)

    red = base64.b64encode(picture((255, 0, 128))).decode()
    answer = ask(red, red)
    assert answer.status_code == 200
    expected = dict(zip(LABELS, (0.8791468, 0.119203, 0.5), strict=True))
    assert answer.json()["predictions"] == [pytest.approx(expected, abs=1e-6)] * 2
    refused = ask(red, base64.b64encode(b"<html>").decode())
    assert refused.status_code == 400
    assert "image of row 1: not_an_image" in refused.text
