"""From features to logits: the last layer of a classifier, which is also trained alone."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class LinearHead(nn.Linear):
    """A linear map from features to logits, with dropout on the features while it trains.

    Args:
        num_features: D.
        num_labels: L.
        parts: Widths of the parts that a feature vector has; they sum to D. Empty: one part.
    """

    def __init__(self, num_features: int, num_labels: int, parts: Sequence[int] = ()) -> None:
        super().__init__(num_features, num_labels)
        self.parts = list(parts) or [num_features]
        self.dropout = 0.0

    def forward(self, features: Tensor, passes: int = 0) -> Tensor:
        """Logits (B, L) of features (B, D).

        Args:
            features: (B, D).
            passes: How many further passes to make with dropout and without gradient; if any, the
                result is (1 + passes, B, L).
        """
        features = self.prepare(features)
        logits = self._map(functional.dropout(features, self.dropout, self.training))
        if not passes:
            return logits
        with torch.no_grad():
            drawn = [self._map(functional.dropout(features, self.dropout)) for _ in range(passes)]
        return torch.stack([logits, *drawn])

    def prepare(self, features: Tensor) -> Tensor:
        """What the weights are multiplied with; here the features themselves."""
        return features

    def _map(self, features: Tensor) -> Tensor:
        return super().forward(features)


class UnitHead(LinearHead):
    """A linear map of features that are centred, and of which each part has length 1.

    So images differ in what they show, and not in how strongly; and no part outweighs another.
    `center` is no parameter: it is the mean of the training images' features.
    """

    center: Tensor

    def __init__(self, num_features: int, num_labels: int, parts: Sequence[int] = ()) -> None:
        super().__init__(num_features, num_labels, parts)
        self.register_buffer("center", torch.zeros(num_features))

    def prepare(self, features: Tensor) -> Tensor:
        """The features minus `center`, each part divided by its length."""
        parts = torch.split(features - self.center, self.parts, dim=1)
        return torch.cat([functional.normalize(part, dim=1) for part in parts], dim=1)


class BoostedHead(LinearHead):
    """BoostLU: a linear map at every place of a feature map; what speaks for a label is amplified.

    Kim et al., CVPR 2023: the class activation map of a label is its logit at each place; positive
    values count BOOST times, and the mean over all places is the logit. The weights are those of
    a linear head.
    """

    BOOST = 5.0

    def _map(self, features: Tensor) -> Tensor:
        """Logits (B, L) of a feature map (B, D, H, W)."""
        maps = functional.conv2d(features, self.weight[:, :, None, None], self.bias)
        boosted: Tensor = torch.where(maps > 0, self.BOOST * maps, maps).mean(dim=(2, 3))
        return boosted


HEADS: dict[str, type[LinearHead]] = {
    "linear": LinearHead,
    "unit": UnitHead,
    "boostlu": BoostedHead,
}


def make_head(head: str, parts: Sequence[int], num_labels: int, *, seed: int) -> LinearHead:
    """A head with random weights, the same for the same seed.

    Args:
        head: A name of `HEADS`.
        parts: Widths of the parts of a feature vector, which sum to D.
        num_labels: L.
        seed: Of the weights; torch's global random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return HEADS[head](sum(parts), num_labels, parts)
