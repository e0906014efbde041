import copy
from collections.abc import Callable

import pytest

Table = list[list[float]]


def central_differences(function: Callable[[Table], float], table: Table) -> Table:
    step = 1e-5
    gradient = [[0.0] * len(row) for row in table]
    for i, row in enumerate(table):
        for j in range(len(row)):
            up, down = copy.deepcopy(table), copy.deepcopy(table)
            up[i][j] += step
            down[i][j] -= step
            gradient[i][j] = (function(up) - function(down)) / (2 * step)
    return gradient


@pytest.fixture
def numeric_gradient() -> Callable[[Callable[[Table], float], Table], Table]:
    return central_differences
