"""A network's pass and its gradients as CUDA graphs: at small batches a GPU waits for launches."""

import gc
from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import Tensor, nn


class Captured(nn.Module):
    """A network whose training steps on batches of one shape are replayed from CUDA graphs.

    Only the network is captured, most of a step's kernels. The loss, the per-image state and the
    optimizer are launched while the GPU still works on it, so they cost it no waiting, and what
    changes from step to step (the epoch, phi, the learning rate) stays a number of Python's that
    any method may branch on. Batches of another shape, passes with dropout and evaluation go
    without graphs.

    Args:
        network: On the GPU, in the mode that it trains in. Its weights and buffers stay as they
            are, and keep their places for as long as this is used.
        inputs: A batch of the shape and type that is replayed; its values do not matter.
        autocast: What the network trains under.
        compiled: Whether what is replayed are fused kernels that `torch.compile` makes, in about a
            minute: fewer and faster ones, and other roundings.
    """

    def __init__(
        self,
        network: nn.Module,
        inputs: Tensor,
        autocast: AbstractContextManager[None],
        *,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        self.network = network
        self.shape = inputs.shape
        buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
        caches = torch.is_autocast_cache_enabled()
        captured = network
        if compiled:
            torch.compiler.reset()  # a process compiles one forward() only so many times
            captured = cast(nn.Module, torch.compile(network, dynamic=False))
        gc.collect()  # what earlier trainings left must not be freed in the middle of a capture
        try:
            with autocast:
                # A weight's cached cast would be one from outside the graph.
                torch.set_autocast_cache_enabled(False)
                torch.cuda.make_graphed_callables(captured, (inputs,), allow_unused_input=True)
            # Not left on the network, of which copies are made: theirs would be this one's.
            self.replay = captured.forward
        finally:
            torch.set_autocast_cache_enabled(caches)
            vars(network).pop("forward", None)
            for buffer, before in buffers:  # statistics of the passes that precede a capture
                buffer.copy_(before)

    def forward(self, inputs: Tensor, passes: int = 0) -> Tensor:
        """What `network` gives.

        Args:
            inputs: On the GPU.
            passes: As in `LinearHead.forward`.
        """
        if self.training and not passes and inputs.shape == self.shape:
            logits: Tensor = self.replay(inputs)
            return logits
        logits = self.network(inputs, passes)
        return logits
