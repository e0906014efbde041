"""The flow that only receives: new images are examined and stored, and nothing is trained.

It says on Prefect's event bus when enough have arrived; prefect.yaml has a trigger for that.
"""

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.events import emit_event
from prefect.states import Completed
from retrain import alone, guard, receive

from plmcl.retraining.lock import HeldError

ENOUGH = "plmcl.images.enough"


@flow(name="ingest")
def ingest(root: str = ".") -> State[Any]:
    """Receive what has arrived.

    Args:
        root: Of the project.
    """
    folder = Path(root).resolve()
    try:
        with alone(folder, "receiving"):
            received = receive(folder)
            due = guard(folder)
    except HeldError as error:
        return Completed(name="Skipped", message=str(error))
    get_run_logger().info(received)
    if due.now:
        emit_event(ENOUGH, resource={"prefect.resource.id": f"plmcl.project.{folder.name}"})
    return Completed(message=f"{received}\n{due.reason}")


if __name__ == "__main__":
    state = ingest(return_state=True)
    print(state.message)
    raise SystemExit(0 if state.is_completed() else 1)
