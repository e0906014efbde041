"""What the labels of a setting cost in hours of annotation."""

import math

from plmcl.labels.settings import Setting

# The paper: 20,000 worker hours for the 2.5 million labels of COCO; 49.2k of them are 394 hours.
SECONDS_A_LABEL = 20_000 * 3600 / 2_500_000


def hours(setting: str, *, num_train: int, num_labels: int) -> float:
    """Hours of annotation that the labels of a setting take, at `SECONDS_A_LABEL` each.

    One positive of an image is one label. Where an image shows all its labels, or some negatives,
    each entry was looked at and counts.

    Args:
        setting: Such as `sspl-40`.
        num_train: N, all training images.
        num_labels: L.

    Returns:
        NaN for `given`: what was looked at is not known.
    """
    parsed = Setting.parse(setting)
    labeled = parsed.num_labeled(num_train)
    labels = {
        "ffl": labeled * num_labels,
        "sfl": labeled * num_labels,
        "fpl": num_train * num_labels * parsed.percent / 100,
        "fspl": labeled,
        "sspl": labeled,
        "given": math.nan,
    }
    return labels[parsed.kind] * SECONDS_A_LABEL / 3600
