"""What is recorded of the pseudo labels after each epoch: how sure they are, and how right.

The truth of the training images is looked at here for the record alone: no loss, no update of the
pseudo labels and no choice of an epoch ever sees a figure of this module.
"""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from plmcl.data.rows import Rows
from plmcl.labels.store import LabelStore
from plmcl.methods.base import Context, Method

LATENT, VELOCITY = "latent", "velocity"

# Names in the history; those with a slash are metrics of MLflow, too.
GROUP = "pseudo_labels/"
HISTOGRAM = "pseudo_label_histogram"

BINS = 20
ROWS = 20_000  # images that are looked at; of more, so many at equal distances
IMAGES = 24
LABELS_AN_IMAGE = 12


def has_pseudo_labels(store: LabelStore) -> bool:
    """Whether a store keeps pseudo labels: as `latent`, whose sigmoid they are."""
    return LATENT in store.names


def no_changes() -> pd.DataFrame:
    """The table of `PseudoLabelFigures.most_changed` without a row."""
    return pd.DataFrame(columns=["image_id", "label", "observed", "pseudo_label"])


def looked_at(image_ids: Sequence[str]) -> Sequence[str]:
    """The ids of the images that figures are taken of: all, or `ROWS` of them."""
    return image_ids[:: _distance(len(image_ids))]


class PseudoLabelFigures:
    """Figures of the unobserved entries of a store.

    Args:
        store: Keeps pseudo labels.
        method: Whose they are.
        targets: (N, L) float in {0, 1}, what training sees; on the device of the store, or not.
        observed: (N, L) bool, where it sees something.
        truth: What is known of the images that `looked_at` names.
    """

    def __init__(
        self, store: LabelStore, method: Method, targets: Tensor, observed: Tensor, truth: Rows
    ) -> None:
        assert list(looked_at(store.image_ids)) == truth.image_ids, "truth of other images"
        self.store, self.method = store, method
        self.step = _distance(len(store.image_ids))
        self.given = (targets[:: self.step] == 1) & observed[:: self.step]
        self.unobserved = ~observed[:: self.step]
        known = torch.from_numpy(truth.observed).to(observed.device)
        present = torch.from_numpy(truth.targets).to(observed.device) == 1
        self.judged = self.unobserved & known
        self.present = self.judged & present
        # Once: on a GPU each such question waits for it.
        self.has_truth = bool(self.present.any())
        # Where they are: three times faster than the mask.
        self.entries = self.unobserved.flatten().nonzero()[:, 0]

    def after(self, context: Context) -> dict[str, float | str | None]:
        """The figures after an epoch; the values reach the processor in one go.

        `confidence` is the mean of |2 y - 1| of the pseudo labels y, `velocity` that of |m|, and
        `weight` that of their weight in the loss, where the method has these. `precision` and
        `recall` are of the entries with y > 0.5, over those whose truth is known; None where they
        have no denominator. The histogram is `BINS` counts of y from 0 to 1, in one text.

        Args:
            context: Of the epoch that has ended.
        """
        pseudo_labels = self._pseudo_labels()
        y = pseudo_labels.flatten().index_select(0, self.entries)
        means = {"confidence": (2 * y - 1).abs()}
        if VELOCITY in self.store.names:
            velocity = self.store.state[VELOCITY][:: self.step]
            unobserved = velocity.to(y.device).flatten().index_select(0, self.entries)
            means["velocity"] = unobserved.float().abs()
        weight = self.method.pseudo_label_weight(y, context)
        if weight is not None:
            means["weight"] = weight
        believed = (pseudo_labels > 0.5) & self.judged
        sums = [(believed & self.present).sum(), believed.sum(), self.present.sum()]
        sums += [values.sum() for values in means.values()]
        places = (y * BINS).int().clamp(max=BINS - 1)
        counts = torch.bincount(places, minlength=BINS)
        found = torch.cat([torch.stack([each.double() for each in sums]), counts.double()]).tolist()
        hits, said, there = found[:3]
        figures: dict[str, float | str | None] = {
            f"{GROUP}{name}": value / len(y) if len(y) else None
            for name, value in zip(means, found[3:], strict=False)
        }
        if self.has_truth:
            figures[f"{GROUP}precision"] = hits / said if said else None
            figures[f"{GROUP}recall"] = hits / there if there else None
        figures[HISTOGRAM] = " ".join(f"{count:.0f}" for count in found[-BINS:])
        return figures

    def most_changed(self) -> pd.DataFrame:
        """The images to which the pseudo labels add most, beside what was observed.

        An image is ranked by the sum of 2 y - 1 over its unobserved entries with y > 0.5: by how
        much it has changed from an image whose unobserved labels are all absent.

        Returns:
            Columns `image_id`, `label` (its column, from 0), `observed` (0 or 1), `pseudo_label`:
            for at most `IMAGES` images, the most changed first, what is observed to be present,
            then the surest `LABELS_AN_IMAGE` of the entries that are added.
        """
        pseudo_labels = self._pseudo_labels()
        added = torch.where(self.unobserved & (pseudo_labels > 0.5), pseudo_labels, 0.0)
        change = torch.where(added > 0, 2 * added - 1, 0.0).sum(dim=1)
        order = torch.sort(change, descending=True, stable=True).indices[:IMAGES].tolist()
        ids = self.store.image_ids[:: self.step]
        rows = []
        for row in order:
            given = self.given[row].nonzero()[:LABELS_AN_IMAGE, 0].tolist()
            surest = torch.sort(added[row], descending=True, stable=True).indices
            here = [column for column in surest[:LABELS_AN_IMAGE].tolist() if added[row, column]]
            if here:
                rows += [
                    (ids[row], column, 1, float(pseudo_labels[row, column])) for column in given
                ]
                rows += [(ids[row], column, 0, float(added[row, column])) for column in here]
        return pd.DataFrame(rows, columns=list(no_changes().columns))

    def _pseudo_labels(self) -> Tensor:
        latent = self.store.state[LATENT][:: self.step]
        return torch.sigmoid(latent.to(self.unobserved.device).float())


def _distance(number: int) -> int:
    return max(1, -(-number // ROWS))
