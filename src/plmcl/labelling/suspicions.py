"""Which entries of a label matrix look wrong, by scores; arrays are (N, L): images by labels."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.floating[Any]]

MISSING, WRONG = "missing", "wrong"


def suspect(
    targets: NDArray[Any],
    observed: Bools,
    probs: Floats,
    label_names: list[str],
    *,
    passed_over: Bools,
    per_label: int,
) -> pd.DataFrame:
    """The entries that look most like a mistake, of two kinds.

    `missing`: not known to be present, with a high score; the suspicion is the score. `wrong`:
    said to be present, with a low score; the suspicion is 1 - score / (mean score of what is said
    to show that label), since a hard label has low scores everywhere. That mean is the threshold
    of confident learning (Northcutt et al. 2021).

    Args:
        targets: In {0, 1}, where `observed`.
        observed: Where the label is known.
        probs: NaN where there is no score: such an entry is never suspected.
        label_names: L names.
        passed_over: Entries that are not to be suspected of being `missing`.
        per_label: At most so many of each kind and label.

    Returns:
        Columns kind, row (the image's), label, known (unknown, absent or present), score and
        suspicion; `ranked` puts them in order.
    """
    positive = observed & (targets == 1)
    scores = probs.astype(np.float64)
    judged = positive & ~np.isnan(scores)
    mean = np.where(judged, scores, 0.0).sum(axis=0) / np.maximum(judged.sum(axis=0), 1)
    doubt = 1 - scores / np.maximum(mean, np.finfo(np.float64).tiny)
    known = np.where(positive, "present", np.where(observed, "absent", "unknown"))
    parts = []
    for kind, among, suspicion in (
        (MISSING, ~positive & ~passed_over, scores),
        (WRONG, positive & (doubt > 0), doubt),
    ):
        found = _strongest(np.where(among, suspicion, np.nan), per_label)
        rows, columns = found["row"].to_numpy(), found["column"].to_numpy()
        found["kind"] = kind
        found["label"] = np.array(label_names, dtype=object)[columns]
        found["known"] = known[rows, columns]
        found["score"] = scores[rows, columns]
        parts.append(found)
    found = pd.concat(parts, ignore_index=True)
    return found[["kind", "row", "label", "known", "score", "suspicion"]]


def ranked(found: pd.DataFrame) -> pd.DataFrame:
    """The strongest suspicion of each kind first; `rank` and `label_rank` count from 1.

    Equal ones stand as they stood. The columns of `suspect` may have others beside them.
    """
    found = found.sort_values(["kind", "suspicion"], ascending=[True, False], kind="stable")
    found = found.reset_index(drop=True)
    ranks = found.groupby("kind").cumcount() + 1, found.groupby(["kind", "label"]).cumcount() + 1
    return found.assign(rank=ranks[0], label_rank=ranks[1])


def precision_at(
    found: pd.DataFrame, kind: str, true: Bools, columns: dict[str, int], n: int
) -> float | None:
    """The share of the n strongest suspicions of a kind that are right; None if there are fewer.

    Args:
        found: Of `ranked`, all of whose rows are images of `true`.
        kind: `missing` or `wrong`.
        true: (N, L), which labels the images really show.
        columns: The column of each label in `true`.
        n: How many.
    """
    first = found[found["kind"] == kind].head(n)
    if len(first) < n:
        return None
    shown = true[first["row"], first["label"].map(columns)]
    return float((shown if kind == MISSING else ~shown).mean())


def _strongest(suspicion: Floats, per_label: int) -> pd.DataFrame:
    """The largest `per_label` of each column, NaN left out: row, column, suspicion."""
    parts = []
    for column, values in enumerate(suspicion.T):
        rows = np.flatnonzero(~np.isnan(values))
        rows = rows[np.argsort(-values[rows], kind="stable")][:per_label]
        parts.append(pd.DataFrame({"row": rows, "column": column, "suspicion": values[rows]}))
    return pd.concat(parts, ignore_index=True)
