"""Serve the schedule of prefect.yaml from this process; no work pool is needed.

Without PREFECT_API_URL a Prefect server of our own is started, and ends with us.
Run it: make schedule
"""

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FLOWS = Path(__file__).resolve().parent
PORT = os.environ.get("PREFECT_SERVER_API_PORT", "4200")
SECONDS_TO_START = 120.0


@contextmanager
def server() -> Iterator[None]:
    """Have a Prefect API: the one that PREFECT_API_URL names, or a server of our own."""
    if os.environ.get("PREFECT_API_URL"):
        yield
        return
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{PORT}/api"
    command = [str(Path(sys.executable).with_name("prefect")), "server", "start", "--port", PORT]
    # Of its own group: at Ctrl-C it is still needed for the last words to it.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
    try:
        _wait_for(process)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait_for(process: "subprocess.Popen[bytes]") -> None:
    # Only now: Prefect reads its address once.
    from prefect import get_client

    deadline = time.monotonic() + SECONDS_TO_START
    with get_client(sync_client=True) as client:
        while time.monotonic() < deadline and process.poll() is None:
            if client.api_healthcheck() is None:
                return
            time.sleep(0.5)
    sys.exit(f"error: Prefect's server does not start: is port {PORT} in use?")


def deployments() -> Iterator[tuple[str, dict[str, Any]]]:
    """The deployments of prefect.yaml: a flow's name in its file, and what is said of it."""
    content = YAML(typ="safe", pure=True).load((FLOWS / "prefect.yaml").read_text("utf-8"))
    for deployment in content["deployments"]:
        yield deployment["entrypoint"], deployment


def next_times(schedule: dict[str, Any], count: int = 3) -> list[str]:
    """When a schedule of prefect.yaml fires next, in its own time zone."""
    from prefect.server.schemas.schedules import CronSchedule

    cron = CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
    dates = asyncio.run(cron.get_dates(count))
    return [f"{date:%a %Y-%m-%d %H:%M} {schedule['timezone']}" for date in dates]


def _flow(entrypoint: str) -> Any:
    path, _, name = entrypoint.partition(":")
    return getattr(importlib.import_module(Path(path).stem), name)


def main() -> None:
    """Serve until a signal."""
    with server():
        from prefect import serve
        from prefect.client.schemas.objects import ConcurrencyLimitConfig
        from prefect.events import DeploymentEventTrigger
        from prefect.schedules import Cron

        made = []
        for entrypoint, said in deployments():
            schedules = [s for s in said.get("schedules", []) if s["active"]]
            for schedule in schedules:
                print(f"{said['name']}: {'; '.join(next_times(schedule))}")
            made.append(
                _flow(entrypoint).to_deployment(
                    said["name"],
                    description=said["description"],
                    schedules=[Cron(s["cron"], timezone=s["timezone"]) for s in schedules],
                    triggers=[
                        DeploymentEventTrigger.model_validate(trigger)
                        for trigger in said.get("triggers", [])
                    ],
                    concurrency_limit=ConcurrencyLimitConfig(**said["concurrency_limit"]),
                    parameters={"root": str(FLOWS.parent)},
                )
            )
        pages = os.environ["PREFECT_API_URL"].removesuffix("/api")
        print(f"Prefect's pages: {pages}", flush=True)
        serve(*made)


if __name__ == "__main__":
    main()
