"""From a feature map to one vector an image: which places count, and how."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Deviation(nn.Module):
    """How much each feature varies over the places of an image: (B, D, H, W) -> (B, D).

    A small object moves the mean of a feature little, and its standard deviation more.
    """

    # Of the variance, so that a feature that is the same everywhere has a gradient. Not a summand:
    # the exporter to ONNX takes one as small as this for 0.
    SMALLEST = 1e-8

    def forward(self, maps: Tensor) -> Tensor:
        """The standard deviation, with divisor H*W."""
        centred = maps - maps.mean(dim=(2, 3), keepdim=True)
        return centred.square().mean(dim=(2, 3)).clamp_min(self.SMALLEST).sqrt()


class Bands(nn.Module):
    """What stands out at the top, in the middle and at the bottom: (B, D, H, W) -> (B, 3 D).

    In each band, a window of 3/7 of the height and width slides from left to right; a feature
    counts by how far its highest mean in a window exceeds its mean over the whole image.
    """

    WINDOW = 3 / 7  # 3 of the 7 places that most backbones give at 224 pixels

    def forward(self, maps: Tensor) -> Tensor:
        """All features of the top, then of the middle, then of the bottom; none below 0."""
        height, width = (max(1, round(self.WINDOW * side)) for side in maps.shape[2:])
        windows = functional.avg_pool2d(maps, (height, width), stride=1)
        rows = windows.shape[2]
        whole = maps.mean(dim=(2, 3))
        bands = [windows[:, :, row].amax(dim=2) - whole for row in (0, (rows - 1) // 2, rows - 1)]
        return torch.cat(bands, dim=1).clamp_min(0)


class Parts(nn.Module):
    """`Deviation`, then `Bands`: (B, D, H, W) -> (B, 4 D)."""

    def __init__(self) -> None:
        super().__init__()
        self.deviation = Deviation()
        self.bands = Bands()

    def forward(self, maps: Tensor) -> Tensor:
        """Both, side by side."""
        return torch.cat([self.deviation(maps), self.bands(maps)], dim=1)


# How many times D each part of the result is wide; `mean` is the backbone's own.
POOLINGS: dict[str, tuple[int, ...]] = {"mean": (1,), "deviation": (1,), "parts": (1, 3)}


def make_pooling(name: str) -> nn.Module | None:
    """The module of a name of `POOLINGS`; None for `mean`."""
    made: dict[str, type[nn.Module]] = {"deviation": Deviation, "parts": Parts}
    return made[name]() if name in made else None
