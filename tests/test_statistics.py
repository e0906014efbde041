import math

import numpy as np
import pytest
from scipy import stats

from plmcl.errors import PlmclError
from plmcl.statistics import holm, mean_and_deviation, paired_p


def test_mean_and_deviation_by_hand():
    """Around 5 the squares sum to 32, over 8 - 1 figures."""
    mean, deviation = mean_and_deviation([2, 4, 4, 4, 5, 5, 7, 9])
    assert mean == 5
    assert deviation == pytest.approx(math.sqrt(32 / 7))


def test_one_figure_has_no_deviation_and_none_has_no_mean():
    mean, deviation = mean_and_deviation([0.7])
    assert mean == 0.7
    assert math.isnan(deviation)
    with pytest.raises(PlmclError, match="the mean of no figure is not defined"):
        mean_and_deviation([])


def test_two_pairs_by_hand():
    """Differences 1 and 3: mean 2, deviation sqrt 2, so t = 2; with 1 degree of freedom the
    t distribution is Cauchy's, and p = 1 - 2 atan(2) / pi."""
    assert paired_p([1, 3], [0, 0]) == pytest.approx(1 - 2 * math.atan(2) / math.pi)


def test_students_sleep_data():
    """Ten patients, two drugs (Student 1908): t = -4.0621, p = 0.002833 in R's documentation."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    assert paired_p(first, second) == pytest.approx(0.002833, abs=5e-7)
    assert paired_p(first, second) == pytest.approx(paired_p(second, first))


def test_pairs_count_and_not_two_samples():
    """The same shift under seeds that differ much is seen by a paired test alone."""
    generator = np.random.default_rng(0)
    second = generator.normal(0.5, 0.1, 8)
    first = second + 0.01 + generator.normal(0, 0.001, 8)
    assert paired_p(first, second) < 1e-6 < 0.5 < stats.ttest_ind(first, second).pvalue


def test_pairs_that_are_all_equal_have_a_p_of_1():
    assert paired_p([0.8, 0.7, 0.9], [0.8, 0.7, 0.9]) == 1
    assert paired_p([0.1 + 0.2, 0.7], [0.3, 0.7]) == 1


def test_a_difference_without_spread_has_no_p_whatever_rounding_leaves_of_one():
    """0.8 - 0.7 and 0.6 - 0.5 differ in the last bit: scipy makes a p of 1e-16 of that."""
    assert 0.8 - 0.7 != 0.6 - 0.5
    assert math.isnan(paired_p([0.8, 0.6], [0.7, 0.5]))


def test_one_pair_has_no_p_and_no_pairs_are_refused():
    assert math.isnan(paired_p([0.8], [0.7]))
    with pytest.raises(PlmclError, match="2 figures and 1 are no pairs"):
        paired_p([0.8, 0.9], [0.7])


def test_holm_on_a_published_example():
    """Wikipedia's: at 0.05 the first and the fourth are rejected, and no other.

    By hand: 4 x .005, 3 x .01, 2 x .03, and .04, which is raised to the one before it.
    """
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_never_exceeds_1_and_keeps_the_order():
    assert holm([0.6, 0.5, 0.9]) == [1, 1, 1]
    p_values = np.random.default_rng(1).uniform(size=50) ** 3
    adjusted = holm(p_values)
    assert np.all(np.diff(np.array(adjusted)[np.argsort(p_values)]) >= 0)
    # The double loop: at least as large as every m - i + 1 times a p that is not larger.
    for p, found in zip(p_values, adjusted, strict=True):
        below = [q * sum(other >= q for other in p_values) for q in p_values if q <= p]
        assert found == pytest.approx(min(1, max(below)))


def test_holm_leaves_out_what_is_not_defined():
    adjusted = holm([math.nan, 0.02, math.nan, 0.03])
    assert adjusted[1::2] == pytest.approx([0.04, 0.04])
    assert all(map(math.isnan, adjusted[::2]))
    assert holm([]) == []
