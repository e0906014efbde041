"""A folder of somebody's own images, labeled by a CSV file or by one sub-folder a tag."""

import logging
import shutil
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

from plmcl.data.label_csv import read_label_csv
from plmcl.data.listing import counts, list_images
from plmcl.data.manifest import Unlisted
from plmcl.data.sources.base import Annotations, Source, filling, label_table
from plmcl.errors import PlmclError
from plmcl.progress import ProgressCallback

logger = logging.getLogger(__name__)

# Folders that tools leave beside the tags.
STRAY = frozenset({"runs", "mlruns", "lightning_logs", "wandb", "checkpoints", "__pycache__"})


def _below(path: str) -> str:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("must be a folder below data.path")
    return path


class Folder(Source):
    """Images and labels as they lie on a disk.

    Attributes:
        images: Folder of images, below data.path ("." for data.path itself).
        labels: A CSV file (image,labels and maybe split), below data.path or absolute; None for
            one sub-folder a tag: an image's tag is the first folder on its path, and an image in
            none is unlabeled.
        unlisted: What a label that is not given means, for an image that the CSV file names (also
            without a label) or that lies in a tag's folder. Other images are the unlabeled pool:
            nothing is known of them.
    """

    images: Annotated[str, AfterValidator(_below)]
    labels: str | None
    unlisted: Unlisted

    def download(
        self, path: Path, raw: Path, *, seed: int, progress: ProgressCallback | None = None
    ) -> None:
        """Copy the images and the CSV file, each to its place below `raw`, and report the number.

        Raises:
            PlmclError: See `annotations`; or the CSV file is not below `path`, or copying fails.
        """
        if self.labels is not None and not _is_inside(path / self.labels, path):
            raise PlmclError(
                f"sources.folder.labels: must be below data.path ({path}) to be copied with it, "
                f"found {self.labels!r}"
            )
        found = self.annotations(path)  # whatever is wrong is said before anything is copied
        with filling(raw) as partial:
            for done, file in enumerate(found.files, start=1):
                _copy(path / self.images / file, partial / self.images / file)
                if progress is not None:
                    progress(done, len(found.files))
            if self.labels is not None:
                _copy(path / self.labels, partial / self.labels)
        logger.info("copied %d images from %s", len(found.files), path)
        if found.ignored:  # the copy does not show it any more
            logger.warning("passed over in %s: %s", path, counts(found.ignored))

    def annotations(self, raw: Path) -> Annotations:
        """Read names and labels of a folder laid out as data.path is; opens no image.

        Raises:
            PlmclError: There is no image or no label, a folder that should be a tag holds no
                image, or the CSV file breaks a rule.
        """
        root = raw / self.images
        files, ignored = list_images(root)
        splits: dict[str, str] = {}
        if self.labels is None:
            _refuse_empty_tags(root, files)
            values = {(file, PurePosixPath(file).parts[0]): 1 for file in files if "/" in file}
            named = {file for file, _ in values}
            advice = "put them in one folder a tag, or name a CSV file (sources.folder.labels)"
        else:
            values, splits, named = read_label_csv(raw / self.labels, files, root)
            advice = f"give some of them labels in {raw / self.labels}"
        if not values:
            raise PlmclError(f"{root}: none of the {len(files)} images has a label; {advice}")
        label_names = sorted({label for _, label in values})
        unlisted = self.unlisted
        if unlisted == "negative" and len(named) < len(files):
            # Beside images of which all labels are known there is a pool of which none is: what is
            # absent from the former must then be said, since it is unknown for the latter.
            cells = ((file, label) for file in named for label in label_names)
            values = dict.fromkeys(cells, 0) | values
            unlisted = "unknown"
        return Annotations(
            root=self.images,
            files=files,
            splits=splits,
            labels=label_table(values),
            label_names=label_names,
            unlisted=unlisted,
            ignored=ignored,
        )


def _refuse_empty_tags(root: Path, files: list[str]) -> None:
    tags = {PurePosixPath(file).parts[0] for file in files}
    empty = sorted(
        entry.name
        for entry in root.iterdir()
        if entry.is_dir()
        and not entry.is_symlink()
        and entry.name not in tags | STRAY | {"__MACOSX"}
        and not entry.name.startswith(".")
    )
    if empty:
        raise PlmclError(
            f"{root}: tag folders without an image: {', '.join(map(repr, empty))}; "
            "remove them or add images"
        )


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise PlmclError(f"{source}: cannot be copied to {target}: {error.strerror}") from None


SOURCE = Folder
