"""Run a function on several processes that are connected as `torchrun` connects them, over gloo."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fork_server import SERVER


def on_ranks(ranks: int, function: Callable[..., Any], folder: Path, *arguments: Any) -> list[Any]:
    """What `function(*arguments)` returns on each rank.

    Args:
        ranks: How many processes.
        function: Of a module that can be imported.
        folder: For what passes between processes; new.
        arguments: Of the function.
    """
    folder.mkdir()
    processes = [
        SERVER.Process(target=_run, args=(rank, ranks, function, folder, arguments))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    stuck = [process for process in processes if process.is_alive()]
    for process in stuck:
        process.kill()
    failures = "\n".join(path.read_text() for path in sorted(folder.glob("*.failed")))
    assert not failures, failures
    assert not stuck, "a rank hangs"
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(ranks)]


def _run(
    rank: int, ranks: int, function: Callable[..., Any], folder: Path, arguments: tuple[Any, ...]
) -> None:
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(place) for name, place in places.items()})
    os.environ["TORCHELASTIC_RUN_ID"] = "test"
    torch.set_num_threads(1)
    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=ranks
        )
        torch.save(function(*arguments), folder / f"{rank}.pt")
        torch.distributed.barrier()  # the one that made the meeting must not leave first
    except BaseException:
        (folder / f"{rank}.failed").write_text(f"rank {rank}: {traceback.format_exc()}")
        os._exit(1)
