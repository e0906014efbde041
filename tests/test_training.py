"""The loop: each row once, state in step with weights, the best epoch kept, resume exact."""

import functools
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from PIL import Image
from torch import nn

from plmcl.checkpoint import Checkpoints
from plmcl.data.images import Recipe
from plmcl.data.loading import EpochOrder, FeatureBatches, ImageBatches, ImageRows
from plmcl.data.rows import Rows
from plmcl.errors import PlmclError
from plmcl.heads import LinearHead
from plmcl.labels.figures import PseudoLabelFigures
from plmcl.labels.mapped import Column, MappedStore
from plmcl.labels.store import LabelStore
from plmcl.methods.base import Method
from plmcl.methods.plmcl import Plmcl
from plmcl.training import Observations, PhaseRun, fit

N, L, D = 23, 3, 5
IDS = [f"{i}.jpg" for i in range(N)]


class Counting(Method):
    """Keeps, as its state, how often an image was seen; its loss is the mean squared logit."""

    def initial_state(self, targets, observed):
        return {"visits": torch.zeros_like(targets)}

    def loss(self, batch, context):
        visits = batch.labels["visits"]
        assert torch.equal(visits, torch.full_like(visits, context.epoch))
        return (batch.logits**2).mean()

    def update(self, batch, context):
        return {"visits": batch.labels["visits"] + 1}


class Scripted:
    """A selection score that follows a script, whatever the weights."""

    def __init__(self, *values):
        self.values = list(values)

    def __call__(self, network):
        return "val/mAP", self.values.pop(0)


def make_network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(D, 8), nn.Dropout(0.5), nn.Linear(8, L))


def make_observations():
    generator = torch.Generator().manual_seed(1)
    observed = torch.rand(N, L, generator=generator) < 0.4
    return Observations(observed.float(), observed, 1.5)


def make_features(*shape):
    return torch.randn(*shape, N, D, generator=torch.Generator().manual_seed(2))


def make_phase(network, epochs, score, name="fine_tune", learning_rate=0.05, **options):
    batches = FeatureBatches(make_features(), EpochOrder(IDS, seed=0, batch_size=4))
    return PhaseRun(name, network, batches, epochs, learning_rate, score, **options)


def run(
    network,
    method,
    phases,
    directory,
    on_epoch=lambda entry: None,
    store=None,
    solved=None,
    precision="32-true",
    figures=None,
):
    observations = make_observations()
    if store is None:
        state = method.initial_state(observations.targets, observations.observed)
        store = LabelStore(IDS, state)
    fitted = fit(
        network,
        method,
        store,
        observations,
        phases,
        fabric=Fabric(accelerator="cpu", devices=1, precision=precision),
        seed=3,
        checkpoints=None if directory is None else Checkpoints(directory),
        on_epoch=on_epoch,
        progress=lambda done, total: None,
        solved=solved,
        figures=None if figures is None else functools.partial(figures, store),
    )
    return fitted, store


def make_plmcl():
    return Plmcl(
        alpha=10.0,
        momentum=0.7,
        sharpness=4.0,
        order=2.0,
        unobserved_weight=0.6,
        curriculum=True,
        regulariser_weight=1.0,
        cs_order="prediction_as_target",
        cs_mean=False,
        unobserved_order="pseudo_label_as_target",
        warm_up=0,
        from_predictions=False,
        bias_correction=False,
    )


def look(store, context):
    """Figures of the pseudo labels, with every entry's truth known."""
    known = make_observations()
    truth = Rows(IDS, [], [], np.ones((N, L), np.uint8), np.ones((N, L), bool))
    method = make_plmcl()
    return PseudoLabelFigures(store, method, known.targets, known.observed, truth).after(context)


def test_figures_of_pseudo_labels_are_in_the_history_and_change_nothing():
    fitted, networks = [], []
    for figures in (None, look):
        network = make_network()
        phase = make_phase(network, 2, Scripted(0.1, 0.2))
        fitted.append(run(network, make_plmcl(), [phase], None, figures=figures)[0])
        networks.append(network.state_dict())
    plain, recorded = fitted
    for before, after in zip(plain.history, recorded.history, strict=True):
        assert before.items() <= after.items()
        assert {"pseudo_labels/weight", "pseudo_labels/recall"} < after.keys() - before.keys()
    for name, values in networks[0].items():
        assert torch.equal(networks[1][name], values)


def test_each_image_is_seen_once_an_epoch_and_its_state_moves_once(tmp_path):
    network = make_network()
    _, store = run(network, Counting(), [make_phase(network, 3, Scripted(1, 2, 3))], tmp_path)
    assert torch.equal(store.state["visits"], torch.full((N, L), 3.0))


def test_the_best_epoch_of_all_is_kept_with_the_label_state_that_belongs_to_it(tmp_path):
    network = make_network()
    weights = []
    fitted, store = run(
        network,
        Counting(),
        [make_phase(network, 3, Scripted(0.2, 0.9, 0.4))],
        tmp_path,
        on_epoch=lambda entry: weights.append(network[0].weight.detach().clone()),
    )
    assert fitted.best_epoch == 2
    assert fitted.best_score == ("val/mAP", 0.9)
    assert torch.equal(network[0].weight, weights[1])
    assert torch.equal(store.state["visits"], torch.full((N, L), 2.0))


def test_equal_scores_keep_the_earlier_epoch(tmp_path):
    network = make_network()
    phase = make_phase(network, 3, Scripted(0.5, 0.5, 0.5))
    assert run(network, Counting(), [phase], tmp_path)[0].best_epoch == 1


def test_a_phase_starts_from_the_best_weights_before_it_and_the_schedule_goes_on(tmp_path):
    network = make_network()
    visits = []

    class Watching(Counting):
        def loss(self, batch, context):
            seen = batch.labels["visits"][0, 0].item()
            visits.append((context.epoch, context.epochs, seen, context.step // 6))
            return (batch.logits**2).mean()

    phases = [
        make_phase(network, 3, Scripted(0.1, 0.8, 0.3), "linear"),
        make_phase(network, 2, Scripted(0.2, 0.9)),
    ]
    fitted, _ = run(network, Watching(), phases, tmp_path)
    # After epoch 2 (the best) images had been seen twice; that state enters the second phase.
    # 23 images in batches of 4 are 6 steps an epoch: the count of steps goes on, too.
    assert sorted(set(visits)) == [
        (0, 5, 0, 0),
        (1, 5, 1, 1),
        (2, 5, 2, 2),
        (3, 5, 2, 3),
        (4, 5, 3, 4),
    ]
    assert fitted.best_epoch == 5
    assert [entry["phase"] for entry in fitted.history] == ["linear"] * 3 + ["fine_tune"] * 2


def test_without_checkpoints_the_same_is_trained(tmp_path):
    scores = (0.3, 0.5, 0.4)
    kept, not_kept = make_network(), make_network()
    expected, _ = run(kept, make_plmcl(), [make_phase(kept, 3, Scripted(*scores))], tmp_path)
    fitted, _ = run(not_kept, make_plmcl(), [make_phase(not_kept, 3, Scripted(*scores))], None)
    assert fitted == expected
    assert torch.equal(kept[0].weight, not_kept[0].weight)


def test_a_head_in_closed_form_competes_with_every_epoch(tmp_path):
    solved = {"epoch": 0, "phase": "solved", "train/loss": 0.1, "val/mAP": 0.6}
    for score, best in ((0.5, 0), (0.7, 1)):
        network = make_network()
        start = network[0].weight.detach().clone()
        fitted, store = run(
            network, Counting(), [make_phase(network, 1, Scripted(score))], None, solved=solved
        )
        assert fitted.best_epoch == best
        assert fitted.best_score == ("val/mAP", max(score, 0.6))
        assert torch.equal(network[0].weight, start) == (best == 0)
        assert (store.state["visits"] == best).all()
        assert [entry["epoch"] for entry in fitted.history] == [0, 1]


def test_a_head_in_closed_form_needs_no_epoch(tmp_path):
    solved = {"epoch": 0, "phase": "solved", "train/loss": 0.1, "val/mAP": 0.6}
    fitted, _ = run(make_network(), Counting(), [], tmp_path, solved=solved)
    assert (fitted.best_epoch, fitted.history) == (0, [solved])


class Seeing(Method):
    """Notes what it is given; asks for what `asks` says."""

    asks: str

    @property
    def needs_strong_view(self):
        return self.asks == "strong"

    @property
    def dropout_passes(self):
        return 3 if self.asks == "passes" else 0

    def loss(self, batch, context):
        SEEN.append(batch)
        return batch.logits.mean()


SEEN = []


def test_a_strong_view_comes_beside_the_plain_one(tmp_path):
    SEEN.clear()
    head, strong = LinearHead(D, L), make_features(2)
    batches = FeatureBatches(make_features(), EpochOrder(IDS, seed=0, batch_size=4), strong)
    run(head, Seeing(asks="strong"), [PhaseRun("linear", head, batches, 1, 0.0, Scripted(1))], None)
    rows = next(iter(EpochOrder(IDS, seed=0, batch_size=4)))
    batch = SEEN[0]
    torch.testing.assert_close(batch.logits, head(make_features()[rows]))
    # Of each image one of its two strong views.
    candidates = torch.stack([head(view[rows]) for view in strong])
    distance = (candidates - batch.strong).abs().amax(dim=2)
    assert (distance.amin(dim=0) < 1e-6).all()
    assert batch.strong.requires_grad
    assert batch.passes is None


def test_passes_with_dropout_carry_no_gradient_and_differ(tmp_path):
    SEEN.clear()
    head = LinearHead(D, L)
    head.dropout = 0.5
    run(head, Seeing(asks="passes"), [make_phase(head, 1, Scripted(1))], None)
    batch = SEEN[0]
    assert batch.passes.shape == (3, *batch.logits.shape)
    assert not batch.passes.requires_grad
    assert batch.logits.requires_grad
    assert not torch.equal(batch.passes[0], batch.passes[1])
    assert batch.strong is None


def test_the_end_of_an_epoch_sees_all_rows_after_their_updates():
    class Doubling(Counting):
        def loss(self, batch, context):
            return (batch.logits**2).mean()

        def end_epoch(self, targets, observed, labels, context):
            assert targets.shape == observed.shape == (N, L)
            assert (labels["visits"] == [1, 3, 7][context.epoch]).all()
            return {"visits": 2 * labels["visits"]}

    network = make_network()
    _, store = run(network, Doubling(), [make_phase(network, 3, Scripted(1, 2, 3))], None)
    assert (store.state["visits"] == 14).all()  # ((1*2 + 1)*2 + 1)*2


def make_normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), LinearHead(8, L))


def test_frozen_batch_norm_keeps_its_statistics_and_learns_its_scale():
    for frozen in (False, True):
        network = make_normed()
        phase = make_phase(network, 1, Scripted(1), frozen_statistics=frozen)
        run(network, make_plmcl(), [phase], None)
        assert (network[1].running_mean == 0).all() == frozen
        assert (network[1].weight != 1).any()


def test_the_head_learns_at_its_own_rate():
    # Adam's first step is the learning rate times the gradient's sign, whatever its size.
    network = make_normed()
    before = [network[0].weight.detach().clone(), network[2].weight.detach().clone()]
    phase = PhaseRun(
        "fine_tune",
        network,
        FeatureBatches(make_features(), EpochOrder(IDS, seed=0, batch_size=N)),
        1,
        0.001,
        Scripted(1),
        head_rate=10.0,
    )
    run(network, make_plmcl(), [phase], None)
    steps = [
        (after - old).abs().max()
        for after, old in zip((network[0].weight, network[2].weight), before, strict=True)
    ]
    assert float(steps[0]) == pytest.approx(0.001, rel=1e-2)
    assert float(steps[1]) == pytest.approx(0.01, rel=1e-2)


def test_the_average_of_the_weights_is_scored_and_kept():
    """Two steps an epoch: after the first step w1, then d*w1 + (1 - d)*w2, and so on."""
    seen, scored = [], []

    class Watching(Counting):
        def loss(self, batch, context):
            seen.append(network.weight.detach().clone())
            return (batch.logits**2).mean()

    network = LinearHead(D, L)

    def score(averaged):
        scored.append(averaged.weight.detach().clone())
        return "val/mAP", float(len(scored))

    batches = FeatureBatches(make_features(), EpochOrder(IDS, seed=0, batch_size=12))
    phase = PhaseRun("fine_tune", network, batches, 2, 0.05, score, ema_decay=0.75)
    last = []
    run(
        network,
        Watching(),
        [phase],
        None,
        on_epoch=lambda _: last.append(network.weight.detach().clone()),
    )
    after = [*seen[1:], last[-1]]  # the weights after each of the four steps
    average = after[0]
    for weights in after[1:]:
        average = 0.75 * average + 0.25 * weights
    torch.testing.assert_close(scored[-1], average)
    torch.testing.assert_close(network.weight.detach(), average)


@pytest.mark.parametrize(
    ("killed_after", "precision"),
    [(1, "32-true"), (2, "32-true"), (3, "32-true"), (3, "bf16-mixed")],
)
def test_a_resumed_training_equals_an_uninterrupted_one_bit_for_bit(
    tmp_path, killed_after, precision
):
    """Cases 63 and 64: same order, same dropout, same optimiser, same label state, no scale."""
    in_precision = functools.partial(run, precision=precision, figures=look)
    scores = (0.3, 0.4, 0.2, 0.5)

    def phases(network, start):
        return [
            make_phase(network, 2, Scripted(*scores[start:2]), "linear"),
            make_phase(network, 2, Scripted(*scores[max(start, 2) :]), ema_decay=0.9),
        ]

    whole = make_network()
    expected, expected_store = in_precision(
        whole, make_plmcl(), phases(whole, 0), tmp_path / "whole"
    )

    class KilledError(Exception):
        pass

    def kill(entry):
        if entry["epoch"] == killed_after:
            raise KilledError

    first = make_network()
    with pytest.raises(KilledError):
        in_precision(first, make_plmcl(), phases(first, 0), tmp_path / "cut", kill)
    second = make_network(seed=99)  # whatever it starts with is replaced
    told = []
    fitted, store = in_precision(
        second, make_plmcl(), phases(second, killed_after), tmp_path / "cut", told.append
    )
    assert fitted == expected
    # The last one before the kill again: that it was told of is not in the commit.
    assert told == expected.history[killed_after - 1 :]
    for name, values in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], values), name
    for name, values in expected_store.state.items():
        assert torch.equal(store.state[name], values), name


def make_mapped(folder, method):
    observations = make_observations()
    fresh = method.initial_state(observations.targets, observations.observed)
    columns = {name: Column(values.shape[1], values.dtype) for name, values in fresh.items()}
    store = MappedStore(IDS, columns, lambda: iter([fresh]))
    store.open(Checkpoints(folder).generations)
    return store


@pytest.mark.parametrize("damaged", [None, "epoch-00003/state.pt", "labels/00003/latent.npy"])
def test_label_state_in_files_gives_the_same_training_killed_or_not(tmp_path, capsys, damaged):
    """Weights and the generation that they name are one commit; the best one's stays, too."""
    scores = (0.3, 0.6, 0.2, 0.5, 0.1)
    whole = make_network()
    phases = [make_phase(whole, 5, Scripted(*scores))]
    expected, memory = run(whole, make_plmcl(), phases, tmp_path / "whole", figures=look)
    folder, left = tmp_path / "cut", []

    def kill(entry):
        left.append(sorted(path.name for path in (folder / "labels").iterdir()))
        if entry["epoch"] == 3:
            raise KeyboardInterrupt

    first = make_network()
    store = make_mapped(folder, make_plmcl())
    phases = [make_phase(first, 5, Scripted(*scores))]
    with pytest.raises(KeyboardInterrupt):
        run(first, make_plmcl(), phases, folder, kill, store=store, figures=look)
    # Of each commit that is kept: its generation, and that of its best epoch.
    assert left == [["00001"], ["00001", "00002"], ["00002", "00003"]]
    if damaged:
        (folder / damaged).write_bytes(b"torn")
    second = make_network(seed=99)
    phases = [make_phase(second, 5, Scripted(*scores[2 if damaged else 3 :]))]
    store = make_mapped(folder, make_plmcl())
    fitted, _ = run(second, make_plmcl(), phases, folder, store=store, figures=look)
    assert ("epoch-00003: damaged" in capsys.readouterr().err) == bool(damaged)
    assert fitted == expected
    for name, values in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], values), name
    for name, values in memory.state.items():
        assert torch.equal(store.state[name], values), name


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_resume_from_images_is_exact_whatever_the_number_of_workers(tmp_path, monkeypatch, cpus):
    """Dropout and mirroring are drawn anew each epoch, and do not ask when workers started."""
    for i in range(N):
        Image.new("RGB", (32, 32), (10 * i, 255 - 10 * i, 90)).save(tmp_path / f"{i}.png")
    recipe = Recipe(size=32, background=(0, 0, 0), max_pixels=10**6)
    images = ImageRows(tmp_path, [f"{i}.png" for i in range(N)], recipe)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * 32 * 32, L))

        def forward(self, pixels):
            return self.layers(pixels.float() / 255)

    def phase(network, epochs, scores):
        order = EpochOrder(IDS, seed=0, batch_size=4)
        batches = ImageBatches(images, order)
        return PhaseRun("fine_tune", network, batches, epochs, 0.01, Scripted(*scores))

    def kill(entry):
        if entry["epoch"] == 2:
            raise KeyboardInterrupt

    whole, first, second = Net(), Net(), Net()
    run(whole, make_plmcl(), [phase(whole, 4, (1, 2, 3, 4))], tmp_path / "whole")
    monkeypatch.setattr("plmcl.data.loading.usable_cores", lambda: cpus)
    with pytest.raises(KeyboardInterrupt):
        run(first, make_plmcl(), [phase(first, 4, (1, 2, 3, 4))], tmp_path / "cut", kill)
    run(second, make_plmcl(), [phase(second, 4, (3, 4))], tmp_path / "cut")
    for name, values in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], values), name


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("sample", [None, torch.zeros(4, D)])
def test_where_nothing_can_be_captured_the_network_trains_as_it_is_and_a_line_says_so(
    sample, capsys
):
    network = make_network()
    phase = make_phase(network, 1, Scripted(1), sample=sample, compiled=True)
    assert phase.training_network(nullcontext()) is network
    assert network.training
    lines = capsys.readouterr().err.splitlines()
    without = ["compilation"] if sample is None else ["compilation", "CUDA graphs"]
    for line, what in zip(lines, without, strict=True):
        assert line.startswith(f"fine_tune: goes without {what}: ")
        assert len(line.partition(f"{what}: ")[2]) > 10
    plain = make_phase(network, 1, Scripted(1))
    assert plain.training_network(nullcontext()) is network
    assert capsys.readouterr().err == ""


def test_a_loss_that_is_not_finite_ends_the_training_with_advice(tmp_path):
    class Broken(Counting):
        def loss(self, batch, context):
            return batch.logits.sum() * float("nan")

    network = make_network()
    with pytest.raises(PlmclError, match=r"loss is nan in epoch 1; lower the learning rate"):
        run(network, Broken(), [make_phase(network, 1, Scripted(1))], tmp_path)


def test_training_lowers_the_loss(tmp_path):
    network = make_network()
    phase = make_phase(network, 30, Scripted(*range(30)))
    fitted, _ = run(network, Counting(), [phase], tmp_path)
    assert fitted.history[-1]["train/loss"] < 0.2 * fitted.history[0]["train/loss"]
