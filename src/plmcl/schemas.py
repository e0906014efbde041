"""The contract of every table on disk: its columns, its rules, and how it is written and read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pandera.pandas as pa
import pyarrow
import pyarrow.parquet
from pandera.typing.pandas import Series

from plmcl.data.statuses import FORGOTTEN, STATUSES
from plmcl.errors import PlmclError
from plmcl.ordering import positions
from plmcl.violations import Violations

if TYPE_CHECKING:
    from plmcl.data.manifest import Manifest
    from plmcl.labels.settings import Setting

_text = {"min_value": 1}  # not empty


class Images(pa.DataFrameModel):
    """One row a file of the source. No size and no hash (0, "") where it cannot be read.

    `split` is the source's own ("" = none), `published` the place in its published list (-1 =
    none); `delivery` 0 is the base set, 1, 2... came later.
    """

    image_id: Series[str] = pa.Field(str_length=_text)
    path: Series[str] = pa.Field(str_length=_text)
    sha256: Series[str]
    dhash: Series[str]
    width: Series[np.int32] = pa.Field(ge=0)
    height: Series[np.int32] = pa.Field(ge=0)
    bytes: Series[np.int64] = pa.Field(ge=0)
    split: Series[str] = pa.Field(isin=["", "train", "val", "test"])
    status: Series[str]
    reason: Series[str]
    published: Series[np.int32] = pa.Field(ge=-1)
    delivery: Series[np.int32] = pa.Field(ge=0)

    @pa.check("status", error="one of plmcl.data.statuses")
    @classmethod
    def _known(cls, status: pd.Series) -> pd.Series:
        return status.isin(list(STATUSES))

    class Config:  # noqa: D106
        strict = True
        unique = ("image_id",)


class Delivery(pa.DataFrameModel):
    """One row a file of a delivery, accepted or not.

    `name` is its path below the place where it arrived, `label` the one tag that came along ("" =
    none), `arrived` the time (milliseconds since 1970, UTC), `version` what identified the source
    file where files are copied, not moved ("" = they are moved).
    """

    name: Series[str] = pa.Field(str_length=_text, unique=True)
    status: Series[str]
    reason: Series[str]
    sha256: Series[str]
    dhash: Series[str]
    width: Series[np.int32] = pa.Field(ge=0)
    height: Series[np.int32] = pa.Field(ge=0)
    bytes: Series[np.int64] = pa.Field(ge=0)
    label: Series[str]
    arrived: Series[np.int64] = pa.Field(ge=0)
    version: Series[str]

    @pa.check("status", error="one of plmcl.data.statuses, or forgotten")
    @classmethod
    def _known(cls, status: pd.Series) -> pd.Series:
        return status.isin([*STATUSES, FORGOTTEN])

    @pa.check("name", error="a path that stays below its folder")
    @classmethod
    def _inside(cls, name: pd.Series) -> pd.Series:
        return ~name.str.contains(r"^/|(?:^|/)\.\.(?:/|$)", regex=True)

    class Config:  # noqa: D106
        strict = True


class Cells(pa.DataFrameModel):
    """Entries, each a label of an image, each once."""

    image_id: Series[str] = pa.Field(str_length=_text)
    label: Series[str] = pa.Field(str_length=_text)

    class Config:  # noqa: D106
        strict = True
        unique = ("image_id", "label")


class Labels(Cells):
    """What is known of the labels, an entry a row; an entry without a row is unlisted."""

    value: Series[np.int8] = pa.Field(isin=[0, 1])


class Difficult(Cells):
    """The cells of which the source says that only difficult instances are in the image."""


class NearDuplicates(pa.DataFrameModel):
    """Two usable images that look alike, with the number of bits in which their hashes differ."""

    image_id: Series[str] = pa.Field(str_length=_text)
    other_id: Series[str] = pa.Field(str_length=_text)
    distance: Series[np.int32] = pa.Field(ge=0)

    class Config:  # noqa: D106
        strict = True
        unique = ("image_id", "other_id")


class LabelNames(pa.DataFrameModel):
    """The labels, in the order of the model's outputs."""

    label: Series[str] = pa.Field(str_length=_text)

    class Config:  # noqa: D106
        strict = True
        unique = ("label",)


class ObservedLabels(Labels):
    """The entries that training may see; an entry without a row is unknown."""


class Splits(pa.DataFrameModel):
    """Where each usable image belongs."""

    image_id: Series[str] = pa.Field(str_length=_text)
    split: Series[str] = pa.Field(isin=["train", "val", "test"])

    class Config:  # noqa: D106
        strict = True
        unique = ("image_id",)


class Draws(pa.DataFrameModel):
    """The one positive drawn for each base training image ("" = it has none), and its turn."""

    image_id: Series[str] = pa.Field(str_length=_text)
    label: Series[str]
    draw_rank: Series[np.int64] = pa.Field(ge=0, unique=True)

    class Config:  # noqa: D106
        strict = True
        unique = ("image_id",)


class Predictions(Cells):
    """A probability for each image and label."""

    score: Series[np.float32] = pa.Field(in_range={"min_value": 0, "max_value": 1})


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame, without its index, so that the same rows give the same bytes anywhere.

    Raises:
        PlmclError: The file cannot be written; an earlier one is still there.
    """
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    # One type for text whatever dtype held it, and no metadata of pandas, which names versions.
    fields = [
        f.with_type(pyarrow.large_string()) if pyarrow.types.is_string(f.type) else f
        for f in table.schema
    ]
    table = table.cast(pyarrow.schema(fields))
    unfinished = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table, unfinished, compression="zstd")
        unfinished.replace(path)
    except OSError as error:
        raise PlmclError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # it became `path`, or could not even be begun
            unfinished.unlink()


def read_table(path: Path, schema: type[pa.DataFrameModel]) -> pd.DataFrame:
    """Read a table that `write_table` wrote.

    Raises:
        PlmclError: The file is missing, is not Parquet, or breaks the schema.
    """
    try:
        frame: pd.DataFrame = pyarrow.parquet.read_table(path).to_pandas()
    except FileNotFoundError:
        raise PlmclError(f"{path}: not found; run the stage that writes it") from None
    except (OSError, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise PlmclError(f"{path}: not a readable Parquet file: {reason}") from None
    violations = Violations(str(path))
    violations.check_schema(path.name, frame, schema)
    violations.raise_if_any()
    return frame


def validate_manifest(manifest: Manifest, report_to: Path) -> None:
    """Check a manifest's tables, and that they speak of the same images and labels.

    Args:
        manifest: To be checked.
        report_to: Folder for the CSV of all broken rows.

    Raises:
        PlmclError: A rule is broken.
    """
    violations = Violations("manifest")
    images, labels = manifest.images, manifest.labels
    names = pd.DataFrame({"label": pd.Series(manifest.label_names, dtype="str")})
    violations.check_schema("label_names", names, LabelNames)
    if names.empty:
        violations.add_whole("label_names", "at least one")
    violations.check_schema("images", images, Images)
    violations.check_schema("labels", labels, Labels)
    violations.check_schema("difficult", manifest.difficult, Difficult)
    if violations.sound:
        pairs = manifest.near_duplicates
        violations.check_schema("near_duplicates", pairs, NearDuplicates)
        for table, cells in (("labels", labels), ("difficult", manifest.difficult)):
            violations.check_known(table, cells, "image_id", images["image_id"], "in images")
            violations.check_known(table, cells, "label", names["label"], "in label_names")
    violations.raise_if_any(report_to / "violations.csv")


def validate_observed(
    observed: pd.DataFrame,
    *,
    setting: Setting,
    draws: pd.DataFrame,
    splits: pd.DataFrame,
    manifest: Manifest,
    report_to: Path,
) -> None:
    """Check the labels that training may see against all tables that they come from.

    Args:
        observed: `ObservedLabels` of one setting.
        setting: Theirs.
        draws: `Draws`, one row for each base training image.
        splits: `Splits`, one row for each usable image.
        manifest: The truth, already valid.
        report_to: Folder for the CSV of all broken rows.

    Raises:
        PlmclError: A rule is broken.
    """
    violations = Violations(f"labels of {setting}")
    violations.check_schema("splits", splits, Splits)
    violations.check_schema("draws", draws, Draws)
    violations.check_schema("observed", observed, ObservedLabels)
    if violations.sound:
        _check_splits_and_draws(violations, draws, splits, manifest)
        _check_observed(violations, observed, setting, draws, splits, manifest)
    violations.raise_if_any(report_to / f"violations-{setting}.csv")


def _check_splits_and_draws(
    violations: Violations, draws: pd.DataFrame, splits: pd.DataFrame, manifest: Manifest
) -> None:
    usable = manifest.usable
    violations.check_known("splits", splits, "image_id", usable["image_id"], "a usable image")
    violations.check_known("images", usable, "image_id", splits["image_id"], "in splits")

    base = usable.loc[usable["delivery"] == 0, "image_id"]
    train = splits[(splits["split"] == "train") & (positions(splits["image_id"], base) >= 0)]
    rule = "a training image of the base set"
    violations.check_known("draws", draws, "image_id", train["image_id"], rule)
    violations.check_known("splits", train, "image_id", draws["image_id"], "in draws")

    beyond = draws["draw_rank"].to_numpy() >= len(draws)
    rule = "draw_rank: below the number of images"
    violations.add_rows("draws", draws, rule, beyond, found="draw_rank")
    untrue = (draws["label"] != "").to_numpy() & (_truth(manifest, draws) != 1)
    violations.add_rows("draws", draws, "label: a positive of the image", untrue, found="label")


def _check_observed(
    violations: Violations,
    observed: pd.DataFrame,
    setting: Setting,
    draws: pd.DataFrame,
    splits: pd.DataFrame,
    manifest: Manifest,
) -> None:
    table = "observed"
    names = pd.Series(manifest.label_names, dtype="str")
    train = splits.loc[splits["split"] == "train", "image_id"]
    violations.check_known(table, observed, "image_id", train, "a training image")
    violations.check_known(table, observed, "label", names, "in label_names")

    value, true_value = observed["value"].to_numpy(), _truth(manifest, observed)
    closed = positions(observed["image_id"], manifest.closed) >= 0
    true_value[closed & (true_value < 0)] = 0
    violations.add_rows(
        table, observed, "value: as in the truth", value != true_value, found="value"
    )
    if setting.kind == "given":
        return

    draw = positions(observed["image_id"], draws["image_id"])
    violations.add_rows(table, observed, "image_id: in draws", draw < 0)
    chosen = draws["draw_rank"].to_numpy() < setting.num_labeled(len(draws))
    late = (draw >= 0) & ~chosen[draw]
    violations.add_rows(
        table, observed, f"draw_rank: below {setting.num_labeled(len(draws))}", late
    )
    if setting.single_positive:
        repeated = observed.duplicated("image_id", keep=False).to_numpy()
        rule = "one positive an image and nothing else"
        violations.add_rows(table, observed, rule, repeated | (value != 1), found="value")
        drawn = positions(draws["label"], names)[draw]
        other = (draw >= 0) & (positions(observed["label"], names) != drawn)
        violations.add_rows(table, observed, "label: the one drawn", other, found="label")
        # With the rules above: exactly round(p*N) images, less those without a positive.
        chosen &= (draws["label"] != "").to_numpy()
        unlabeled = positions(draws["image_id"], observed["image_id"]) < 0
        violations.add_rows("draws", draws, "labeled in its turn", chosen & unlabeled)


def _truth(manifest: Manifest, entries: pd.DataFrame) -> np.ndarray:
    """The manifest's value for each (image_id, label) of `entries`; int8 (N,), -1 = unlisted."""
    known = manifest.labels
    if known.empty:
        return np.full(len(entries), -1, dtype=np.int8)
    listed, cells = _cells(manifest, known), _cells(manifest, entries)
    order = np.argsort(listed)
    listed, values = listed[order], known["value"].to_numpy()[order]
    at = np.minimum(np.searchsorted(listed, cells), len(listed) - 1)
    return np.where((listed[at] == cells) & (cells >= 0), values[at], -1).astype(np.int8)


def _cells(manifest: Manifest, entries: pd.DataFrame) -> np.ndarray:
    rows = positions(entries["image_id"], manifest.images["image_id"])
    columns = positions(entries["label"], manifest.label_names)
    return np.where((rows < 0) | (columns < 0), -1, rows * len(manifest.label_names) + columns)
