"""What the flow's tasks hand to each other, without a run."""

import dataclasses
import importlib.util
import typing
from pathlib import Path

import pytest
from prefect import Task
from project import ROOT

SMALL = {bool, int, float, str, type(None), Path}


def types_within(hint):
    """The plain types of a hint, inside lists, dictionaries, unions and records."""
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return set().union(*(types_within(hints[f.name]) for f in dataclasses.fields(hint)))
    if typing.is_typeddict(hint):
        return set().union(*map(types_within, typing.get_type_hints(hint).values()))
    if typing.get_origin(hint) is typing.Literal:
        return set(map(type, typing.get_args(hint)))
    if parts := typing.get_args(hint):
        return set().union(*map(types_within, parts))
    return {hint}


@pytest.mark.slow
def test_case_89_tasks_take_and_give_paths_and_small_records_one_task_a_step():
    """Prefect keeps what tasks take and give until the flow ends: no image, table or array."""
    spec = importlib.util.spec_from_file_location("retrain", ROOT / "flows/retrain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tasks = {name: t.fn for name, t in vars(module).items() if isinstance(t, Task)}
    assert list(tasks) == [
        "receive", "guard", "begin", "reproduce", "judge", "measure_drift", "conclude"
    ]  # fmt: skip
    for name, function in tasks.items():
        hints = typing.get_type_hints(function)
        assert set().union(*map(types_within, hints.values())) <= SMALL, name
