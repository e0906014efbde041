"""Little photographs for the examples of the pages, and the source that reads them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from project import ROOT

from plmcl.data.sources import make_source
from plmcl.data.sources.base import Source
from plmcl.params import load_params


def picture(seed: int) -> Image.Image:
    """120 x 90 pixels; another seed gives another picture."""
    noise = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((120, 90), Image.Resampling.BICUBIC)


def write_photos(folder: Path, names: Iterable[str]) -> None:
    """Write a picture for each name; files with the same name have the same bytes."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(sum(map(ord, path.name))).save(path)


def folder_source(**keys: Any) -> Source:
    """The folder source of params.yaml, with some keys changed."""
    section = load_params(ROOT / "params.yaml").sources["folder"]
    return make_source("folder", {"folder": section | keys})


def rows(table: Any) -> list[tuple[Any, ...]]:
    """The rows of a data frame."""
    return list(table.itertuples(index=False, name=None))
