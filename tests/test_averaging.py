"""The average of weights against torch's own."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from plmcl.averaging import WeightAverage


def make_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def step(network, seed):
    """Move all weights, and batch norm's statistics."""
    generator = torch.Generator().manual_seed(seed)
    network(torch.randn(5, 3, generator=generator))
    with torch.no_grad():
        for weights in network.parameters():
            weights += torch.randn(weights.shape, generator=generator)


def test_it_is_the_average_that_torch_makes_also_after_a_stop():
    network = make_network()
    averages = [WeightAverage(network, 0.75), WeightAverage(network, 0.75)]
    reference = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.75), use_buffers=True)
    for number in range(5):
        step(network, number)
        for average in averages:
            average.update()
        reference.update_parameters(network)
        state = averages[0].state_dict()
        averages[0] = WeightAverage(network, 0.75)
        averages[0].load_state_dict(state)
        for name, expected in reference.module.state_dict().items():
            if expected.is_floating_point():  # counters have no average
                for average in averages:
                    assert torch.equal(average.module.state_dict()[name], expected), name


def test_the_network_itself_is_not_touched_and_not_shared():
    network = make_network()
    average = WeightAverage(network, 0.5)
    step(network, 0)
    before = {name: values.clone() for name, values in network.state_dict().items()}
    average.update()
    with torch.no_grad():
        average.module[0].weight.zero_()
    for name, values in before.items():
        assert torch.equal(network.state_dict()[name], values), name
