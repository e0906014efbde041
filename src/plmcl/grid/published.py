"""The figures that the paper prints, to be shown beside ours."""

import functools
import importlib.resources
from typing import Annotated

from pydantic import Field
from ruamel.yaml import YAML

from plmcl.errors import PlmclError
from plmcl.params import Section, SettingName, parse_section

DataSet = Annotated[str, Field(pattern=r"^(voc|coco|nuswide)$")]
Mode = Annotated[str, Field(pattern=r"^(end_to_end|linear_init)$")]
Percent = Annotated[float, Field(gt=0, lt=100)]


class Published(Section):
    """published.yaml.

    `tables` is table -> data set -> mode -> row -> setting -> mAP in percent. Rows are called as
    in the paper, such as AN-LS.
    """

    source: str
    tables: dict[str, dict[DataSet, dict[Mode, dict[str, dict[SettingName, Percent]]]]]

    def figures(self, name: str, source: str) -> dict[tuple[str, str], float]:
        """One table's figures on one data set, by row and setting; none if it is not in the table.

        Args:
            name: `<table>/<mode>`, such as `resnet50/linear_init`.
            source: Of the data, such as `voc`.

        Raises:
            PlmclError: There is no such table.
        """
        table, _, mode = name.partition("/")
        data_sets = self.tables.get(table, {})
        if not any(mode in modes for modes in data_sets.values()):
            known = {
                f"{t}/{m}": None for t in self.tables for s in self.tables[t].values() for m in s
            }
            raise PlmclError(f"published: expected one of {', '.join(known)}, found {name!r}")
        rows = data_sets.get(source, {}).get(mode, {})
        return {(row, setting): rows[row][setting] for row in rows for setting in rows[row]}


@functools.cache
def read_published() -> Published:
    """Read and check published.yaml."""
    file = importlib.resources.files("plmcl") / "grid" / "published.yaml"
    values = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    return parse_section(Published, values, "published.yaml")
