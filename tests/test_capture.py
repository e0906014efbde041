"""Steps replayed from CUDA graphs against the same steps without; on a machine with a GPU."""

import copy
import math
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from plmcl.capture import Captured
from plmcl.data.loading import EpochOrder
from plmcl.labels.store import LabelStore
from plmcl.methods.plmcl import Plmcl
from plmcl.models import build_classifier
from plmcl.params import load_params
from plmcl.training import Observations, PhaseRun, fit

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
N, L, SIZE, BATCH = 50, 4, 64, 8


class OnGpu:
    """Batches of images that are on the GPU already."""

    def __init__(self, pixels, order):
        self.pixels = pixels
        self.order = order

    def __len__(self):
        return len(self.order)

    def epoch(self, epoch):
        self.order.epoch = epoch
        for batch in self.order:
            rows = torch.from_numpy(batch)
            yield rows, self.pixels[rows.cuda()]


def make_pixels(generator):
    return torch.randint(0, 256, (N, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)


def train(network, *, captured, precision="32-true", frozen=False):
    """Eight epochs of seven steps, the last of each with a short batch: weights, label state."""
    generator = torch.Generator().manual_seed(0)
    pixels = make_pixels(generator)
    observed = torch.rand(N, L, generator=generator) < 0.4
    targets = (torch.rand(N, L, generator=generator) < 0.5).float()
    method = Plmcl(**load_params(Path("params.yaml")).methods["plmcl"])
    state = method.initial_state(targets, observed)
    store = LabelStore([str(i) for i in range(N)], {k: v.cuda() for k, v in state.items()})
    order = EpochOrder([str(i) for i in range(N)], seed=0, batch_size=BATCH)
    sample = torch.zeros(BATCH, SIZE, SIZE, 3, dtype=torch.uint8, device="cuda")
    phase = PhaseRun(
        "fine_tune",
        network,
        OnGpu(pixels.cuda(), order),
        8,
        1e-4,
        lambda network: ("val/mAP", 0.0),
        frozen_statistics=frozen,
        sample=sample if captured else None,
    )
    losses = []
    fit(
        network,
        method,
        store,
        Observations(targets.cuda(), observed.cuda(), 1.5),
        [phase],
        fabric=Fabric(accelerator="cuda", devices=1, precision=precision),
        seed=0,
        checkpoints=None,
        on_epoch=lambda entry: losses.append(entry["train/loss"]),
        progress=lambda done, total: None,
    )
    return losses, store.state


def make_network():
    network = build_classifier("resnet50", num_labels=L, seed=0).cuda()
    return network.to(memory_format=torch.channels_last)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_captured_training_goes_as_one_without(precision):
    start = make_network()
    # Batch norm of eight images magnifies the last digit at every step: its statistics are kept.
    options = {"precision": precision, "frozen": True}
    runs = [train(copy.deepcopy(start), captured=c, **options) for c in (False, False, True)]
    losses = torch.tensor([losses for losses, _ in runs])
    noise = (losses[0] - losses[1]).abs().max()
    assert (losses[0] - losses[2]).abs().max() <= max(10 * noise, 1e-3)
    assert losses[2, -1] < losses[2, 0]
    for name, values in runs[0][1].items():
        torch.testing.assert_close(runs[2][1][name], values, atol=0.05, rtol=0.05)


def test_a_step_moves_the_statistics_as_one_without_graphs():
    start = make_network().train()
    sample = make_pixels(torch.Generator().manual_seed(0))[:BATCH].cuda()
    captured = Captured(copy.deepcopy(start), sample, nullcontext())
    networks = [copy.deepcopy(start), captured.network]
    assert "forward" not in vars(networks[1])
    torch.testing.assert_close(captured(sample), networks[0](sample), atol=1e-3, rtol=1e-3)
    for (name, expected), found in zip(
        networks[0].named_buffers(), networks[1].buffers(), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3, msg=name)


def test_a_network_that_cannot_be_captured_goes_without(capsys):
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, L)

        def forward(self, images, passes=0):
            means = images.float().mean(dim=(1, 2))
            return self.head(means / (255 if means.sum().item() >= 0 else 1))

    losses, _ = train(Asks().cuda(), captured=True)
    assert "goes without CUDA graphs" in capsys.readouterr().err
    assert all(map(math.isfinite, losses))
