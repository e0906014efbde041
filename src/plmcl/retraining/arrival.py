"""New images come in: each file is examined and received once, whatever happens meanwhile."""

import logging
import math
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from plmcl.data.doctor.examination import examine_all
from plmcl.data.images import Recipe
from plmcl.data.listing import first_five
from plmcl.data.statuses import USABLE
from plmcl.errors import PlmclError
from plmcl.ordering import positions
from plmcl.progress import ProgressCallback
from plmcl.retraining.delivered import Waiting as Waiting
from plmcl.retraining.delivered import accepted as accepted
from plmcl.retraining.delivered import snapshot as snapshot
from plmcl.retraining.delivered import waiting as waiting
from plmcl.retraining.known import name_duplicates
from plmcl.retraining.places import Found, Place, open_place
from plmcl.retraining.store import Store
from plmcl.retraining.tags import TAG_FILE, tags_of_file, tags_of_folders

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receipt:
    """What became of the files that lay in a place.

    Attributes:
        number: Of the delivery; None if nothing was received.
        accepted: Images that are new.
        duplicates: Files with the bytes of an image that is known, or of another one of these.
        quarantined: Files that cannot be used: status -> their number.
        waiting: Files that were changed too recently, or that a tag file waits for.
        passed_over: Files that are no images by name, and stay where they are: reason -> number.
    """

    number: int | None
    accepted: int
    duplicates: int
    quarantined: dict[str, int]
    waiting: int
    passed_over: dict[str, int]

    def __str__(self) -> str:
        bad = ", ".join(f"{count} {status}" for status, count in self.quarantined.items())
        left = ", ".join(f"{count} x {reason}" for reason, count in self.passed_over.items())
        words = [
            "nothing new"
            if self.number is None
            else f"delivery {self.number}: {self.accepted} new images, {self.duplicates} "
            f"duplicates, {sum(self.quarantined.values())} quarantined",
            f"({bad})" if bad else "",
            f"; {self.waiting} files wait for the next scan" if self.waiting else "",
            f"; passed over: {left}" if left else "",
        ]
        return " ".join(filter(None, words)).replace(" ;", ";")


def receive(
    incoming: str,
    store: Path,
    recipe: Recipe,
    *,
    label_names: Sequence[str],
    known: Path,
    settle_seconds: float,
    record: Path,
    progress: ProgressCallback | None = None,
    now: float | None = None,
) -> Receipt:
    """Receive what lies in a place: examine it, leave out what is known, put the bad aside.

    Killed at any moment, it loses nothing and takes nothing twice: the next call goes on.

    Args:
        incoming: A folder, whose files are moved; or an address with ://, which is copied from.
        store: Folder of the deliveries; one process at a time.
        recipe: Its pixel limit and background apply.
        label_names: The labels that a tag may be.
        known: images.parquet of the manifest, whose images are known; it need not exist.
        settle_seconds: A file that was changed more recently waits for the next call.
        record: Folder, for nothing else, of what was examined before the process ended.
        progress: Called with (done, total) files.
        now: Seconds since 1970; None: the clock's.

    Raises:
        PlmclError: The place cannot be read, a tag breaks a rule (then nothing was moved), or a
            file cannot be written or moved (then the next call goes on).
    """
    now = time.time() if now is None else now
    kept = Store(store)
    try:
        _warn(kept.finish())
        place = open_place(incoming)
        _refuse_one_in_the_other(place, store)
        found = place.find()
        passed_over = dict(sorted(Counter(file.reason for file in found.passed_over).items()))
        files, recent = _choose(found, place, kept, now, settle_seconds)
        tags, tags_sha256 = None, ""
        if len(files) and found.tag_file is not None:
            tags, tags_sha256 = _read_tags(place, kept, label_names)
            if _is_named(tags, recent, found, place):
                # Once the tag file is gone, nobody would know its tag.
                files, recent = files[:0], pd.concat([files, recent])
        if place.source is None:
            files = files[np.array(place.fetch(list(files["name"]), kept.fetched), dtype=bool)]
        if files.empty:
            return Receipt(None, 0, 0, {}, len(recent), passed_over)
        delivery = examine_all(
            place.source or kept.fetched,
            list(files["name"]),
            recipe,
            record=record if place.source else None,
            progress=progress,
        )
        name_duplicates(delivery, kept, known)
        delivery = delivery.assign(
            name=delivery["path"],
            label=_labels(delivery["path"], tags, label_names),
            arrived=np.int64(now * 1000),
            version="" if place.source else files["version"].to_numpy(),
        )
        number = kept.receive(delivery, place.source, tags_sha256)
        gone = kept.finish()
    except OSError as error:
        raise PlmclError(
            f"{error.filename or store}: {error.strerror or error}; nothing is lost, and the next "
            "scan goes on"
        ) from None
    # The next file of such a name, size and time may be another one.
    shutil.rmtree(record, ignore_errors=True)
    _warn(gone)
    received = delivery.loc[~delivery["name"].isin(gone), "status"]
    return _receipt(number, received, len(recent) + len(gone), passed_over)


def _receipt(
    number: int, status: pd.Series, num_waiting: int, passed_over: dict[str, int]
) -> Receipt:
    counts = Counter(status)
    usable, duplicates = sum(counts.pop(name, 0) for name in USABLE), counts.pop("duplicate", 0)
    return Receipt(
        number, usable, duplicates, dict(sorted(counts.items())), num_waiting, passed_over
    )


def _choose(
    found: Found, place: Place, kept: Store, now: float, settle_seconds: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    # the files that are new, and those of them that have to wait
    files = found.files
    if place.source is None and len(files):
        earlier = kept.read(["name", "version"])
        files = files[positions(_versions(files), _versions(earlier)) < 0]
    tag_file = math.nan if found.tag_file is None else found.tag_file
    changed = np.append(files["changed"].to_numpy(), tag_file)
    # A clock that goes fast elsewhere dates files ahead; no date (NaN) makes none wait.
    is_recent = np.abs(now - changed) < settle_seconds
    is_recent = is_recent[:-1] | is_recent[-1]
    return files[~is_recent], files[is_recent]


def _versions(files: pd.DataFrame) -> pd.Series:
    return files["name"] + "\0" + files["version"]


def _read_tags(place: Place, kept: Store, label_names: Sequence[str]) -> tuple[pd.Series, str]:
    if place.source is None:
        place.fetch([TAG_FILE], kept.fetched)
    return tags_of_file(place.source or kept.fetched, label_names, place.shown)


def _is_named(tags: pd.Series, recent: pd.DataFrame, found: Found, place: Place) -> bool:
    # whether a tag is for a file that has to wait
    absent = tags.index[positions(tags.index.to_series(), found.files["name"]) < 0]
    if len(absent):
        raise PlmclError(
            f"{place.shown}/{TAG_FILE}: names files that are no images there: {len(absent)}, "
            f"{first_five(list(absent))}; nothing was moved"
        )
    return bool(recent["name"].isin(tags.index).any())


def _labels(names: pd.Series, tags: pd.Series | None, label_names: Sequence[str]) -> pd.Series:
    return tags_of_folders(names, label_names) if tags is None else names.map(tags).fillna("")


def _refuse_one_in_the_other(place: Place, store: Path) -> None:
    if place.folder is None:
        return
    one, other = place.folder.resolve(), store.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise PlmclError(
            f"retraining.incoming: {place.shown}: must not lie in {store}, nor that in it"
        )


def _warn(gone: list[str]) -> None:
    if gone:
        logger.warning(
            "%d files were changed or removed before they were moved, and wait for the next "
            "scan: %s", len(gone), first_five(gone)
        )  # fmt: skip
