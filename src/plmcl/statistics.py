"""Whether a difference between two methods may be chance: deviations, paired t-tests, Holm."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from plmcl.errors import PlmclError

# Differences closer than this share of the largest figure are equal, but for rounding.
ROUNDING = 1e-12


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (divisor n-1).

    Args:
        values: n figures.

    Returns:
        The deviation is NaN for n = 1: one figure says nothing about its spread.

    Raises:
        PlmclError: There is no figure.
    """
    if not len(values):
        raise PlmclError("statistics: the mean of no figure is not defined")
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return float(np.mean(values)), deviation


def paired_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p of the paired t-test (Student 1908): may the mean difference be 0?

    Args:
        first: n figures.
        second: n figures; `first[i]` and `second[i]` belong together.

    Returns:
        1 where every pair is equal. NaN, not defined, for n < 2, and where all differences are
        the same and not 0: without spread there is nothing to hold a difference against.

    Raises:
        PlmclError: The figures are no pairs.
    """
    if len(first) != len(second):
        raise PlmclError(f"statistics: {len(first)} figures and {len(second)} are no pairs")
    if len(first) < 2:
        return math.nan
    differences = np.subtract(first, second)
    rounding = ROUNDING * max(np.abs(first).max(), np.abs(second).max())
    if np.ptp(differences) <= rounding:
        return 1.0 if np.abs(differences).max() <= rounding else math.nan
    return float(stats.ttest_rel(first, second).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979): the chance of any false alarm stays below p.

    The i-th smallest of m is multiplied by m - i + 1, and is at least as large as the one before
    it and at most 1. A NaN stays NaN and is not counted.
    """
    adjusted = [math.nan] * len(p_values)
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for smaller, (p, i) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - smaller) * p))
        adjusted[i] = largest
    return adjusted
