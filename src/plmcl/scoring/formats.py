"""Answers as JSON lines, CSV or Parquet; each writer takes any number in constant memory."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, BinaryIO, Literal, get_args

from plmcl.errors import PlmclError

Format = Literal["jsonl", "csv", "parquet"]
Record = Mapping[str, Any]  # what `inference.to_record` makes

COLUMNS = ("file", "error", "labels", "scores")
# Of a row group, which is in memory while it is made: cells are entries of `scores`.
MAX_ROWS, MAX_CELLS = 10_000, 200_000


def format_of(path: PurePath) -> Format:
    """The format that a file's suffix names.

    Raises:
        PlmclError: It names none.
    """
    for known in get_args(Format):
        if path.suffix.lower() == f".{known}":
            found: Format = known
            return found
    raise PlmclError(
        f"--out: {path}: expected a suffix .jsonl, .csv or .parquet, found {path.suffix!r}; "
        "or say --format"
    )


def json_line(record: Record) -> bytes:
    r"""A record on one line, with its end."""
    return f"{json.dumps(record, ensure_ascii=False)}\n".encode()


def write_jsonl(records: Iterable[Record], out: BinaryIO) -> None:
    """Write `json_line` of each record as it comes."""
    for record in records:
        out.write(json_line(record))


def write_csv(records: Iterable[Record], out: BinaryIO) -> None:
    """Write a header and one row a file, as they come, in UTF-8.

    Columns: `file`; `error`, empty if there is none; `labels`, the decided ones joined by `;`, for
    people; `scores`, the JSON list that a JSON line has under `labels`, for programs (a label may
    itself hold a `;`).
    """
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for record in records:
            scores = json.dumps(record["labels"], ensure_ascii=False)
            labels = ";".join(_decided(record))
            writer.writerow((record["file"], record["error"] or "", labels, scores))
    finally:
        text.detach()  # `out` stays open


def write_parquet(
    records: Iterable[Record], out: BinaryIO, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a table; the same records give the same bytes.

    Columns: `file`, text; `error`, text or null; `labels`, the decided ones; `scores`, of each
    label its `label`, `score` (float32), `threshold` (float32) and `decision`.

    Args:
        records: The rows.
        out: Written from beginning to end.
        metadata: Of the file; read when all rows are written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    cell = pa.struct(
        [
            pa.field("label", pa.string(), nullable=False),
            pa.field("score", pa.float32(), nullable=False),
            pa.field("threshold", pa.float32(), nullable=False),
            pa.field("decision", pa.bool_(), nullable=False),
        ]
    )
    types = (pa.string(), pa.string(), pa.list_(pa.string()), pa.list_(cell))
    fields = [
        pa.field(name, kind, nullable=name == "error")
        for name, kind in zip(COLUMNS, types, strict=True)
    ]
    schema = pa.schema(fields)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for rows in _groups(records):
            writer.write_table(pa.Table.from_pylist(rows, schema))
        writer.add_key_value_metadata(dict(metadata or {}))


WRITERS: Mapping[Format, Callable[[Iterable[Record], BinaryIO], None]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
}


def _groups(records: Iterable[Record]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    cells = 0
    for record in records:
        scores = record["labels"]
        rows.append(dict(record) | {"labels": _decided(record), "scores": scores})
        cells += len(scores)
        if len(rows) == MAX_ROWS or cells >= MAX_CELLS:
            yield rows
            rows, cells = [], 0
    if rows:
        yield rows


def _decided(record: Record) -> list[str]:
    return [tag["label"] for tag in record["labels"] if tag["decision"]]
