"""Random changes of an image, each of which follows from a kind and a key alone."""

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Augmentation = Literal["none", "flip", "crop", "randaugment"]


def augment(pixels: npt.NDArray[np.uint8], kind: Augmentation, key: int) -> npt.NDArray[np.uint8]:
    """Change an image, the same for the same key, whatever torch's global generator holds.

    All kinds but `none` mirror the images whose key is odd. `crop` then takes 40 to 100 % of the
    area, with sides between 3:4 and 4:3, back to the whole size, and scales brightness, contrast
    and saturation by .8 to 1.2. `randaugment` does two of RandAugment's operations (Cubuk et al.,
    2020) at magnitude 9 of 30.

    Args:
        pixels: uint8 (H, W, 3) RGB.
        kind: What is done.
        key: Any 64 bits.

    Returns:
        uint8 (H, W, 3); of `none`, `pixels` itself.
    """
    if kind == "none":
        return pixels
    image = torch.from_numpy(pixels)
    if key & 1:
        image = image.flip(1)
    if kind != "flip":
        height, width, _ = pixels.shape
        with _drawing_from(key):
            # Contiguous channels make torchvision's operations twice as fast.
            changed = _transform(kind, height, width)(image.permute(2, 0, 1).contiguous())
        image = changed.permute(1, 2, 0)
    return image.numpy()


@functools.cache
def _transform(
    kind: Literal["crop", "randaugment"], height: int, width: int
) -> Callable[[Tensor], Tensor]:
    # Here, since it takes two seconds that every stage and command would wait.
    v2: Any = importlib.import_module("torchvision.transforms.v2")
    if kind == "randaugment":
        steps = [v2.RandAugment(num_ops=2, magnitude=9)]
    else:
        crop = v2.RandomResizedCrop((height, width), scale=(0.4, 1.0), antialias=True)
        steps = [crop, v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2)]
    transform: Callable[[Tensor], Tensor] = v2.Compose(steps)
    return transform


@contextmanager
def _drawing_from(key: int) -> Iterator[None]:
    """Torch draws on the CPU from `key`; afterwards all is as it was.

    One thread: the mean that contrast is scaled about must not depend on how many sum it up, and
    a loader's workers have one.
    """
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which seeds the GPUs too.
        torch.default_generator.manual_seed(key)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
