"""Which trainings a grid needs, and what tells one from another."""

import copy
import difflib
import functools
import hashlib
import importlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmcl.errors import PlmclError
from plmcl.grid.spec import Cell, GridSpec
from plmcl.methods import make_method
from plmcl.params import Params, parse_section
from plmcl.stages.job import PHASES
from plmcl.stages.train import CODE, used_params

# The rest of params.yaml says which data there are and what becomes of a finished model.
OVERLAID = ("image", "labels", "methods", "model", "split", "train")

# The params of each candidate of each row; the one of a row that is not tuned is called "".
Variants = Mapping[str, Mapping[str, Params]]


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        row: Of the table.
        method: Such as `plmcl`.
        setting: Such as `sspl-40`.
        seed: Of everything that is drawn, the splits included.
        candidate: The tuned values in words, such as `alpha=5 learning_rate=0.001`.
        params: All of them, with that seed and those values.
    """

    row: str
    method: str
    setting: str
    seed: int
    candidate: str
    params: Params


def make_variants(spec: GridSpec, params: Params) -> Variants:
    """What each row runs with, all of it checked.

    Args:
        spec: The grid.
        params: Of params.yaml.

    Raises:
        PlmclError: A path is not in params.yaml, or a value breaks a rule; a line each.
    """
    base = params.model_dump(mode="json")
    variants: dict[str, dict[str, Params]] = {}
    problems: list[str] = []
    for name, row in spec.rows.items():
        where = f"rows.{name}"
        variants[name] = {}
        fixed = [*_leaves(spec.params), *_leaves(row.params)]
        tuned = {path: values for path, values in (spec.tune | row.tune).items() if values}
        for values in itertools.product(*tuned.values()):
            chosen = dict(zip(tuned, values, strict=True))
            try:
                made = parse_section(Params, _overlay(base, [*fixed, *chosen.items()]), where)
                make_method(row.method, made.methods)
            except PlmclError as error:
                lines = str(error).split("\n")
                problems += [x if x.startswith(where) else f"{where}: {x}" for x in lines]
            else:
                variants[name][_in_words(chosen)] = made
    if problems:
        raise PlmclError("\n".join(dict.fromkeys(problems)))
    return variants


def first_round(spec: GridSpec, variants: Variants) -> list[Run]:
    """All candidates on the tuning seeds; a row with one candidate on all seeds at once."""
    return [
        _run(spec, variants, (row, setting), candidate, seed)
        for row, candidates in variants.items()
        for setting in spec.columns(row)
        for seed in (spec.tuning_seeds if len(candidates) > 1 else spec.seeds)
        for candidate in candidates
    ]


def second_round(spec: GridSpec, variants: Variants, chosen: Mapping[Cell, str]) -> list[Run]:
    """The chosen candidates on the seeds that they were not chosen on.

    Args:
        spec: The grid.
        variants: Of its rows.
        chosen: The candidate of each cell; a cell without one is left out.
    """
    return [
        _run(spec, variants, cell, candidate, seed)
        for cell, candidate in chosen.items()
        if len(variants[cell[0]]) > 1
        for seed in spec.seeds
        if seed not in spec.tuning_seeds
    ]


def fine_tunes(run: Run) -> bool:
    """Whether a run trains all weights, and not the head alone."""
    return "fine_tune" in PHASES[run.params.train.mode]


def identity(run: Run, *, data: str, splits: str, weights: str) -> str:
    """Of a run: two of the same give the same figures, whatever rows they stand in.

    Args:
        run: The number of threads does not count: it follows from the machine.
        data: SHA-256 of the manifest.
        splits: SHA-256 of the splits and of the labels that the setting shows.
        weights: SHA-256 of the backbone's weights.
    """
    used = used_params(run.params, run.method)
    del used["train.threads"]
    parts = [run.setting, run.method, used, data, splits, weights, code_sha256(run.method)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@functools.cache
def code_sha256(method: str) -> str:
    """Of the code that a method's figures come from; that of other methods is not in it."""
    hashes: dict[str, str] = {}
    waiting = ["plmcl.stages.job", f"plmcl.methods.{method}"]
    while waiting:
        name = waiting.pop()
        if name in hashes or not name.startswith(CODE):
            continue
        module = importlib.import_module(name)
        hashes[name] = hashlib.sha256(Path(module.__file__ or "").read_bytes()).hexdigest()
        modules = (getattr(value, "__module__", None) for value in vars(module).values())
        waiting += [name for name in modules if isinstance(name, str)]
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _run(spec: GridSpec, variants: Variants, cell: Cell, candidate: str, seed: int) -> Run:
    row, setting = cell
    params = variants[row][candidate].model_copy(update={"seed": seed})
    return Run(row, spec.rows[row].method, setting, seed, candidate, params)


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _overlay(base: dict[str, Any], changes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    overlaid = copy.deepcopy(base)
    for path, value in changes:
        *parents, last = path.split(".")
        section: Any = overlaid
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if not isinstance(section, dict) or last not in section:
            known = [known for known, _ in _leaves(base)]
            close = difflib.get_close_matches(path, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise PlmclError(f"{path}: not in params.yaml{hint}")
        if path.split(".")[0] not in OVERLAID:
            raise PlmclError(f"{path}: the same for a whole grid; what may differ: {OVERLAID}")
        section[last] = value
    return overlaid


def _in_words(chosen: Mapping[str, Any]) -> str:
    """The values of a candidate, each under the shortest name that is no other's."""
    named = {_short(path, list(chosen)): value for path, value in chosen.items()}
    return " ".join(f"{name}={_text(value)}" for name, value in sorted(named.items()))


def _short(path: str, paths: Sequence[str]) -> str:
    parts = path.split(".")
    endings = [".".join(parts[start:]) for start in reversed(range(len(parts)))]
    return next(
        ending
        for ending in endings
        if sum(f".{other}".endswith(f".{ending}") for other in paths) == 1
    )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
