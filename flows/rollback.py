"""The flow that puts the previous champion back: the files, the registry's alias, the branch."""

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed
from retrain import alone


@flow(name="rollback")
def rollback(root: str = ".") -> State[Any]:
    """Serve the previous champion again.

    Args:
        root: Of the project.
    """
    with alone(Path(root), "rolling back") as retraining:
        version = retraining.roll_back()
    return Completed(name="RolledBack", message=f"the champion is {version.version} again")


if __name__ == "__main__":
    state = rollback(return_state=True)
    print(state.message)
    raise SystemExit(0 if state.is_completed() else 1)
