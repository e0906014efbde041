"""A grid file: which rows a table has, under which settings, over which seeds, tuned on what."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from plmcl.params import Name, Section, SettingName, parse_section, read_yaml

# On one line: a table of results has a line a run.
RowName = Annotated[str, Field(pattern=r"^\S(.*\S)?$")]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
Candidates = Annotated[tuple[Any, ...], Field(min_length=1)]
# A row under a setting.
Cell = tuple[str, str]


class Row(Section):
    """A row of the table: one method, with its own values.

    `params` is laid over the grid's. `tune` is merged over the grid's; a path with null is not
    tuned. With a `setting`, the row has one result for all columns. A `reference` is shown and is
    no baseline.
    """

    method: Name
    setting: SettingName | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    tune: dict[str, Candidates | None] = Field(default_factory=dict)
    reference: bool = False


class Compare(Section):
    """Which rows are tested against the best of which others.

    `against` null: all other rows that are no references.
    """

    rows: Annotated[tuple[RowName, ...], Field(min_length=1)]
    against: Annotated[tuple[RowName, ...], Field(min_length=1)] | None = None


class GridSpec(Section):
    """A grid file.

    `params` is laid over params.yaml for every row. `tune` gives candidates for dotted paths of
    params.yaml; all combinations run on `tune_seeds` (null: all seeds), and the one that is best
    on the validation split runs on all seeds, for each row and setting by itself. `published` is
    the name of a table of the paper.
    """

    title: Annotated[str, Field(min_length=1)]
    seeds: Seeds
    settings: Annotated[tuple[SettingName, ...], Field(min_length=1)]
    params: dict[str, Any] = Field(default_factory=dict)
    tune: dict[str, Candidates] = Field(default_factory=dict)
    tune_seeds: Seeds | None = None
    compare: Compare | None = None
    rows: Annotated[dict[RowName, Row], Field(min_length=1)]
    published: str | None = None

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds that candidates are chosen on."""
        return self.tune_seeds or self.seeds

    def columns(self, row: str) -> tuple[str, ...]:
        """The settings that a row runs under."""
        own = self.rows[row].setting
        return self.settings if own is None else (own,)

    @model_validator(mode="after")
    def _names_what_is_there(self) -> Self:
        for name in ("seeds", "settings"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: each once, found {list(values)}")
        if not set(self.tuning_seeds) <= set(self.seeds):
            raise ValueError(f"tune_seeds: must be among seeds, found {list(self.tuning_seeds)}")
        if self.compare is not None:
            named = (*self.compare.rows, *(self.compare.against or ()))
            unknown = [name for name in named if name not in self.rows]
            if unknown:
                raise ValueError(f"compare: no row is called {unknown[0]!r}")
        return self


def load_grid(path: Path) -> GridSpec:
    """Read and check a grid file.

    Raises:
        PlmclError: The file is missing, is not YAML 1.2, or breaks a rule; a line each.
    """
    return parse_section(GridSpec, read_yaml(path), str(path))
