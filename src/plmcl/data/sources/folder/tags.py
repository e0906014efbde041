"""One sub-folder a tag."""

from pathlib import Path

from plmcl.data.cells import Cells
from plmcl.data.formats.base import LabelFile
from plmcl.errors import PlmclError

# Folders that tools leave beside the tags.
STRAY = frozenset({"runs", "mlruns", "lightning_logs", "wandb", "checkpoints", "__pycache__"})


def read_tags(root: Path, files: list[str]) -> LabelFile:
    """Read the tag of each image: the first folder on its path; an image in none has no tag.

    Raises:
        PlmclError: A folder that should be a tag holds no image.
    """
    cells = Cells()
    for file in files:
        tag, slash, _ = file.partition("/")
        if slash:
            cells.add(file, tag, 1)
    empty = sorted(
        entry.name
        for entry in root.iterdir()
        if entry.is_dir()
        and not entry.is_symlink()
        and entry.name not in {*cells.label_names, *STRAY, "__MACOSX"}
        and not entry.name.startswith(".")
    )
    if empty:
        raise PlmclError(
            f"{root}: tag folders without an image: {', '.join(map(repr, empty))}; "
            "remove them or add images"
        )
    return LabelFile(cells.table(), cells.named)
