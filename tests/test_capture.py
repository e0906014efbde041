"""Steps replayed from CUDA graphs against the same steps without; on a machine with a GPU."""

import copy
import math
import warnings
from contextlib import nullcontext

import pytest
import torch
from distributed_scenarios import method_of
from lightning_fabric import Fabric
from torch import nn

from plmcl import training
from plmcl.capture import Captured
from plmcl.data.loading import EpochOrder
from plmcl.labels.store import LabelStore
from plmcl.methods import method_names
from plmcl.models import build_classifier
from plmcl.training import Observations, PhaseRun, fit, train_epoch

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
            rows = torch.from_numpy(batch).cuda(non_blocking=True)
            yield rows, self.pixels.index_select(-4, rows)


def make_pixels(generator):
    return torch.randint(0, 256, (N, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)


def train(network, *, captured, name="plmcl", epochs=8, **options):
    """Epochs of seven steps, the last of each with a short batch: losses, label state."""
    precision = options.pop("precision", "32-true")
    generator = torch.Generator().manual_seed(0)
    pixels = make_pixels(generator)
    observed = torch.rand(N, L, generator=generator) < 0.4
    targets = (torch.rand(N, L, generator=generator) < 0.5).float()
    method = method_of(name)
    network.head.dropout = method.dropout
    if method.needs_strong_view:
        pixels = torch.stack([pixels, pixels.flip(2)])
    state = method.initial_state(targets, observed)
    store = LabelStore([str(i) for i in range(N)], {k: v.cuda() for k, v in state.items()})
    order = EpochOrder([str(i) for i in range(N)], seed=0, batch_size=BATCH)
    views = 2 if method.needs_strong_view else 1
    sample = torch.zeros(views * BATCH, SIZE, SIZE, 3, dtype=torch.uint8, device="cuda")
    phase = PhaseRun(
        "fine_tune",
        network,
        OnGpu(pixels.cuda(), order),
        epochs,
        1e-4,
        lambda network: ("val/mAP", 0.0),
        sample=sample if captured and not method.dropout_passes else None,
        **options,
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
    options = {"precision": precision, "frozen_statistics": True}
    runs = [train(copy.deepcopy(start), captured=c, **options) for c in (False, False, True)]
    losses = torch.tensor([losses for losses, _ in runs])
    noise = (losses[0] - losses[1]).abs().max()
    assert (losses[0] - losses[2]).abs().max() <= max(10 * noise, 1e-3)
    assert losses[2, -1] < losses[2, 0]
    for name, values in runs[0][1].items():
        torch.testing.assert_close(runs[2][1][name], values, atol=0.05, rtol=0.05)


def test_a_compiled_training_goes_as_one_without_but_for_rounding(capsys):
    start = make_network()
    options = {"captured": True, "precision": "bf16-mixed", "frozen_statistics": True}
    runs = [train(copy.deepcopy(start), compiled=c, **options) for c in (False, True)]
    assert "without" not in capsys.readouterr().err
    losses = torch.tensor([losses for losses, _ in runs])
    torch.testing.assert_close(losses[1], losses[0], atol=0, rtol=0.05)
    assert losses[1, -1] < losses[1, 0]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_moves_the_statistics_as_one_without_graphs(compiled, monkeypatch):
    # Of TF32's ten bits nothing would be left behind 53 layers of batch norm.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    start = make_network().train()
    sample = make_pixels(torch.Generator().manual_seed(0))[:BATCH].cuda()
    captured = Captured(copy.deepcopy(start), sample, nullcontext(), compiled=compiled)
    networks = [copy.deepcopy(start), captured.network]
    assert "forward" not in vars(networks[1])
    torch.testing.assert_close(captured(sample), networks[0](sample), atol=1e-3, rtol=1e-3)
    for (name, expected), found in zip(
        networks[0].named_buffers(), networks[1].buffers(), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3, msg=name)


@pytest.mark.parametrize("name", method_names())
def test_no_step_waits_for_the_gpu(name, monkeypatch):
    """What a step needs is on the GPU already, and nothing is read back before the epoch's end."""
    waits = []

    def watched(*arguments, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                return train_epoch(*arguments, **options)
            finally:
                torch.cuda.set_sync_debug_mode("default")
                waits.append(
                    [
                        f"{wait.filename}:{wait.lineno}"
                        for wait in caught
                        if "synchronizing" in str(wait.message)
                    ]
                )

    monkeypatch.setattr(training, "train_epoch", watched)
    train(make_network(), captured=True, name=name, epochs=2, ema_decay=0.9)
    assert len(waits) == 2
    for places in waits:
        assert 0 < len(places) < N // BATCH, places  # the mean loss, and less than once a step


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
