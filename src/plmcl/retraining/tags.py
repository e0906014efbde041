"""The one tag that comes along with an image: out of a tag file, or by the folder that it is in."""

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from plmcl.data.label_files import MAX_BYTES, check_inside, read_bytes, shown
from plmcl.data.listing import first_five
from plmcl.errors import PlmclError
from plmcl.ordering import positions

# At the top of the place where images arrive, with the columns `file` and `label`.
TAG_FILE = "labels.csv"


def tags_of_file(folder: Path, label_names: Sequence[str], where: str) -> tuple[pd.Series, str]:
    """Read a tag file.

    Args:
        folder: That it is in.
        label_names: The labels that there are.
        where: The place that it came from, for messages.

    Returns:
        Label by file, without those that it gives none; and the sha256 of what was read.

    Raises:
        PlmclError: It cannot be read, has other columns, a label is none of `label_names`, or a
            file has two.
    """
    path, shown_path = folder / TAG_FILE, f"{where}/{TAG_FILE}"
    check_inside(path, folder)
    content = read_bytes(path, max_bytes=MAX_BYTES)
    table = _parse(content, shown_path)
    table = table.assign(label=table["label"].str.strip()).drop_duplicates()
    table = table[table["label"] != ""].reset_index(drop=True)
    unknown = np.flatnonzero(positions(table["label"], label_names) < 0)
    if len(unknown):
        file, label = table.loc[unknown[0], ["file", "label"]]
        raise PlmclError(
            f"{shown_path}: {shown(file)} has the label {shown(label)}; "
            f"it must be one of the {len(label_names)} labels that are known: "
            f"{first_five(label_names) or 'none, run the ingest stage first'}"
        )
    twice = np.flatnonzero(table["file"].duplicated(keep=False))
    if len(twice):
        file = table.loc[twice[0], "file"]
        labels = sorted(table.loc[table["file"] == file, "label"])
        raise PlmclError(
            f"{shown_path}: {shown(file)} has {len(labels)} labels ({first_five(labels)}); "
            "it must be one"
        )
    return table.set_index("file")["label"], hashlib.sha256(content).hexdigest()


def _parse(content: bytes, shown_path: str) -> pd.DataFrame:
    text = pa.large_string()
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(content),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=["file", "label"],
                column_types={"file": text, "label": text},
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, KeyError) as error:
        reason = " ".join(str(error.args[0]).split())[:200]
        raise PlmclError(
            f"{shown_path}: must be a CSV file (UTF-8) with the columns file,label: {reason}"
        ) from None
    frame: pd.DataFrame = table.to_pandas().astype("str")
    return frame


def tags_of_folders(names: pd.Series, label_names: Sequence[str]) -> pd.Series:
    """The innermost folder of each file that is called like a label; "" where none is.

    Args:
        names: Posix paths.
        label_names: The labels that there are.
    """
    known = frozenset(label_names)
    by_folder: dict[str, str] = {}

    def tag(name: str) -> str:
        folder = name.rpartition("/")[0]
        if folder not in by_folder:
            parts = reversed(folder.split("/"))
            by_folder[folder] = next((part for part in parts if part in known), "")
        return by_folder[folder]

    return pd.Series([tag(name) for name in names], dtype="str", index=names.index)
