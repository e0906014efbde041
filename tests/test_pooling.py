"""Pooling against loops over the places of a map."""

import pytest
import torch

from plmcl.models import build_classifier
from plmcl.pooling import POOLINGS, Bands, Deviation, Parts, make_pooling


def bands_by_loops(maps: torch.Tensor, window: tuple[int, int]) -> torch.Tensor:
    """The mean of every window of the first, the middle and the last row of windows, by hand."""
    images, features, height, width = maps.shape
    rows, columns = height - window[0] + 1, width - window[1] + 1
    result = torch.zeros(images, 3 * features)
    for image in range(images):
        for feature in range(features):
            values = maps[image, feature].tolist()
            whole = sum(map(sum, values)) / (height * width)
            for band, row in enumerate((0, (rows - 1) // 2, rows - 1)):
                means = [
                    sum(sum(line[x : x + window[1]]) for line in values[row : row + window[0]])
                    / (window[0] * window[1])
                    for x in range(columns)
                ]
                result[image, band * features + feature] = max(0.0, max(means) - whole)
    return result


def test_deviation_is_that_over_places_and_has_a_gradient_everywhere():
    maps = torch.randn(2, 3, 4, 5)
    maps[0, 1] = 7.0
    maps.requires_grad_()
    pooled = Deviation()(maps)
    expected = maps.detach().flatten(2).std(dim=2, correction=0)
    torch.testing.assert_close(pooled.detach(), expected, atol=2e-4, rtol=1e-4)
    pooled.sum().backward()
    assert maps.grad.isfinite().all()
    assert (maps.grad[0, 1] == 0).all()


def test_bands_of_a_hand_worked_map():
    # 7 x 7 places, 3 x 3 windows in rows 0, 2 and 4: a place of 9 in the second row from above is
    # in the windows of the top band alone, whose highest mean is then 1; the whole's is 9/49.
    maps = torch.zeros(1, 1, 7, 7)
    maps[0, 0, 1, 5] = 9.0
    torch.testing.assert_close(Bands()(maps), torch.tensor([[1 - 9 / 49, 0, 0]]))
    # One in the third row, which the first two bands share.
    maps = torch.zeros(1, 1, 7, 7)
    maps[0, 0, 2, 0] = 9.0
    torch.testing.assert_close(Bands()(maps), torch.tensor([[1 - 9 / 49, 1 - 9 / 49, 0]]))


@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((7, 7), (3, 3)),
        ((14, 14), (6, 6)),
        ((4, 4), (2, 2)),
        ((3, 9), (1, 4)),
        ((2, 2), (1, 1)),
        ((1, 1), (1, 1)),
    ],
)
def test_bands_are_the_loop_over_places(size, window):
    torch.manual_seed(0)
    maps = torch.randn(2, 3, *size)
    torch.testing.assert_close(Bands()(maps), bands_by_loops(maps, window), atol=1e-6, rtol=1e-5)


def test_a_map_of_one_place_stands_out_nowhere():
    assert (Bands()(torch.randn(2, 3, 1, 1)) == 0).all()


def test_bands_know_above_from_below_and_not_left_from_right():
    torch.manual_seed(0)
    maps = torch.randn(2, 3, 7, 7)
    top, middle, bottom = Bands()(maps).chunk(3, dim=1)
    torch.testing.assert_close(
        Bands()(maps.flip(2)), torch.cat([bottom, middle, top], dim=1), atol=1e-6, rtol=1e-5
    )
    torch.testing.assert_close(Bands()(maps.flip(3)), Bands()(maps), atol=1e-6, rtol=1e-5)


def test_parts_are_deviation_and_bands_side_by_side():
    maps = torch.randn(2, 3, 7, 7)
    pooled = Parts()(maps)
    assert pooled.shape == (2, 12)
    assert torch.equal(pooled[:, :3], Deviation()(maps))
    assert torch.equal(pooled[:, 3:], Bands()(maps))


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_the_parts_of_a_pooling_are_as_wide_as_it_says(name):
    model = build_classifier("test_efficientnet", num_labels=2, seed=0, pooling=name).eval()
    features = model.features(torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8))
    assert features.shape == (2, sum(model.head.parts))
    assert len(model.head.parts) == len(POOLINGS[name])
    pooling = make_pooling(name)
    assert (pooling is None) == (name == "mean")
