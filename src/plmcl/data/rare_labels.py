"""Splits in which each label has a positive, where that is possible without changing sizes."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def exchange_for_rare_labels(
    split: np.ndarray,
    first: Integers,
    rows: Integers,
    columns: Integers,
    num_labels: int,
    turn: Callable[[Integers, str], Integers],
) -> int:
    """Exchange images between splits, until none lacks a label that it could have.

    A split that lacks a label gets an image of another split, and gives one back in its place.
    Neither may take a label's last positive with it.

    Args:
        split: (N,), changed in place. Images with "" are left alone.
        first: (N,), the first image of each image's group; a group is moved as one.
        rows: (P,), the images of all positives.
        columns: (P,), their labels.
        num_labels: L.
        turn: Puts images into the order in which they are tried for a purpose.

    Returns:
        The number of exchanges.
    """
    names = [name for name in ("test", "val", "train") if name in split]
    counts = {
        n: np.bincount(columns[split[rows] == n], minlength=num_labels).tolist() for n in names
    }
    total = np.bincount(columns[split[rows] != ""], minlength=num_labels)
    # The rarest first: they have the fewest images to choose from.
    lacking = [
        (label, name)
        for label in np.argsort(total, kind="stable").tolist()
        for name in names
        if total[label] and not counts[name][label]
    ]
    if not lacking:
        return 0
    images = np.arange(len(split))
    images_of, labels_of = _Lists(columns, rows, num_labels), _Lists(rows, columns, len(split))
    members = _Lists(first, images, len(split))
    waiting = {n: turn(np.flatnonzero((split == n) & (first == images)), n) for n in names}

    def labels_in(group: Integers) -> Counter[int]:
        return Counter(label for row in group for label in labels_of[row].tolist())

    def may_leave(group: Integers) -> bool:
        left = counts[split[group[0]]]
        return all(left[label] > number for label, number in labels_in(group).items())

    def move(group: Integers, name: str) -> None:
        for label, number in labels_in(group).items():
            counts[split[group[0]]][label] -= number
            counts[name][label] += number
        split[group] = name

    def exchange(label: int, name: str) -> bool:
        holders = images_of[label]
        for row in turn(holders[np.isin(split[holders], names)], f"{name} for a label"):
            group, giver = members[first[row]], split[row]
            if not may_leave(group):
                continue
            move(group, name)
            for other in waiting[name]:
                back = members[other]
                if split[other] == name and len(back) == len(group) and may_leave(back):
                    move(back, giver)
                    return True
            move(group, giver)
            full.add(name)
            return False
        return False

    full: set[str] = set()
    exchanges = 0
    for label, name in lacking:
        # Another label's exchange may have brought it.
        if not counts[name][label] and name not in full:
            exchanges += exchange(label, name)
    return exchanges


class _Lists:
    """A list of values for each key from 0 to n - 1."""

    def __init__(self, keys: Integers, values: Integers, n: int) -> None:
        order = np.argsort(keys, kind="stable")
        self._values = values[order]
        self._starts = np.searchsorted(keys[order], np.arange(n + 1))

    def __getitem__(self, key: int) -> Integers:
        return self._values[self._starts[key] : self._starts[key + 1]]
