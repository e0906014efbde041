"""The average of a network's weights over the steps of a training."""

import copy
from typing import Any

import torch
from torch import nn


class WeightAverage:
    """An exponential moving average of all weights and statistics.

    After the first step it is the network; after each step that follows,
    `decay * average + (1 - decay) * network`. The numbers are those of
    `torch.optim.swa_utils.AveragedModel`, which sends the number of steps to the GPU in every step,
    and so has each of them wait for the one before.

    Args:
        network: What is trained. Its weights keep their places for as long as this is used.
        decay: In (0, 1).

    Attributes:
        module: A network such as `network`, with the average.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.module = copy.deepcopy(network)
        self.begun = False
        own = [*self.module.parameters(), *self.module.buffers()]
        others = [*network.parameters(), *network.buffers()]
        # Counters, such as batch norm's, have no average.
        self._own, self._others = (
            [tensor for tensor in tensors if tensor.is_floating_point()]
            for tensors in (own, others)
        )

    @torch.no_grad()
    def update(self) -> None:
        """Take in the network as it is now."""
        if self.begun:
            torch._foreach_lerp_(self._own, self._others, 1 - self.decay)
        else:
            torch._foreach_copy_(self._own, self._others)
        self.begun = True

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes."""
        return {"module": self.module.state_dict(), "begun": self.begun}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.module.load_state_dict(state["module"])
        self.begun = state["begun"]
