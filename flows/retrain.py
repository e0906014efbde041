"""The flow that retrains: receive, guard, reproduce, judge, promote or refuse.

Every task is a step of `plmcl.retraining`; the flow adds what Prefect is for: states, retries of
reading and writing, artifacts, and a schedule (prefect.yaml). Run it now: make flow
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow, get_client, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Completed, Crashed

from plmcl.retraining.gate import Decision
from plmcl.retraining.lock import HeldError, held
from plmcl.retraining.places import UnreachableError
from plmcl.retraining.rounds import Due, Outcome, Retraining, Round


async def failed_on_io(task: Any, run: TaskRun, state: State[Any]) -> bool:
    """Whether trying again may help: a disk or a network that did not answer."""
    return isinstance(await state.aresult(raise_on_failure=False), OSError | UnreachableError)


RETRY = {"retries": 3, "retry_delay_seconds": [10, 60, 300], "retry_condition_fn": failed_on_io}


@contextmanager
def alone(root: Path, purpose: str) -> Iterator[Retraining]:
    """Hold the project's lock; a run that was killed while it held it is marked as crashed.

    Raises:
        HeldError: Another process holds it.
    """
    retraining = Retraining(root)
    with held(retraining.lock, purpose, run=str(flow_run.id or "")) as killed:
        if killed is not None and killed.run:
            with suppress(ObjectNotFound), get_client(sync_client=True) as client:
                crashed = Crashed(message=f"{killed}: it was killed; {flow_run.name} goes on")
                client.set_flow_run_state(UUID(killed.run), crashed, force=True)
        yield retraining


@task(**RETRY)
def receive(root: Path) -> str:
    """Take in what has arrived, after mending what an earlier run left half done."""
    retraining = Retraining(root)
    mended = retraining.production.reconcile()
    return "\n".join([*mended, str(retraining.receive())])


@task
def guard(root: Path) -> Due:
    """Whether there is a reason to retrain."""
    return Retraining(root).due()


@task(**RETRY)
def begin(root: Path) -> Round:
    """Take the snapshot that this retraining learns from."""
    return Retraining(root).begin()


@task(**RETRY)
def reproduce(root: Path, current: Round) -> str:
    """Run the pipeline on it: `dvc repro` in a checkout of its own; the commit."""
    return Retraining(root).reproduce(current, get_run_logger().info)


@task(**RETRY)
def judge(root: Path, current: Round) -> Decision:
    """Compare the challenger with the champion."""
    say = get_run_logger().info
    decision = Retraining(root).judge(current, say)
    create_table_artifact(decision.table(), key="gate", description="\n\n".join(decision.reasons))
    return decision


@task(**RETRY)
def measure_drift(root: Path, current: Round) -> str:
    """How the new images differ from the old ones."""
    return Retraining(root).drift(current, get_run_logger().info)


@task(**RETRY)
def conclude(root: Path, current: Round, decision: Decision, notes: list[str]) -> Outcome:
    """Promote the challenger, or keep it under a tag."""
    outcome = Retraining(root).conclude(current, decision, notes)
    lines = [f"# {outcome.version}: {outcome.result}", *outcome.reasons, *outcome.notes]
    create_markdown_artifact("\n\n".join(lines), key="decision")
    return outcome


@flow(name="retrain", validate_parameters=False)
def retrain(root: str = ".", force: bool = False) -> State[Any]:
    """Retrain if there is a reason to; one at a time.

    Args:
        root: Of the project.
        force: Also without a reason.
    """
    folder = Path(root).resolve()
    log = get_run_logger()
    try:
        with alone(folder, "retraining"):
            log.info(receive(folder))
            due = guard(folder)
            if not (due.now or force):
                return Completed(name="Skipped", message=due.reason)
            log.info(due.reason)
            current = begin(folder)
            reproduce(folder, current)
            decision = judge(folder, current)
            drift = measure_drift(folder, current)
            outcome = conclude(folder, current, decision, [drift] if drift else [])
    except HeldError as error:
        return Completed(name="Skipped", message=str(error))
    return Completed(
        name=outcome.result.capitalize(),
        message=f"{outcome.version}: {'; '.join(outcome.reasons)}",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=".")
    parser.add_argument("--force", action="store_true")
    arguments = parser.parse_args()
    state = retrain(arguments.root, arguments.force, return_state=True)
    print(f"{state.name}: {state.message}")
    raise SystemExit(0 if state.is_completed() else 1)
