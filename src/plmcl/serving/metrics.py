"""What Prometheus is told; no label holds anything that a client made up."""

from collections.abc import Callable
from importlib import metadata

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The counters of one service.

    Attributes:
        registry: All of them.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        for collector in (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR):
            registry.register(collector)
        self.requests = Counter(
            "plmcl_requests", "Requests by path and status.", ("path", "status"), registry=registry
        )
        self.seconds = Histogram(
            "plmcl_request_seconds",
            "From a request's head to the end of its answer.",
            ("path",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.images = Counter(
            "plmcl_images", "Images by result: ok, or why not.", ("result",), registry=registry
        )
        self.batches = Histogram(
            "plmcl_batch_images", "Images in a batch.", buckets=_IMAGES, registry=registry
        )
        self.swaps = Counter(
            "plmcl_model_swaps", "New model files by result.", ("result",), registry=registry
        )
        for result in ("taken", "refused"):
            self.swaps.labels(result)

    def watch(
        self,
        *,
        queue: Callable[[], int],
        lost_decoders: Callable[[], int],
        model: Callable[[], tuple[str, str]],
    ) -> None:
        """Ask for what others know whenever it is read.

        Args:
            queue: Images that are decoded, wait or are scored.
            lost_decoders: Decoding processes that a file took down.
            model: Name and sha256 of the model that is served.
        """
        Gauge("plmcl_queue_images", "Images in the service.", registry=self.registry).set_function(
            queue
        )
        Gauge(
            "plmcl_lost_decoders", "Decoding processes that a file ended.", registry=self.registry
        ).set_function(lost_decoders)
        self.registry.register(_Model(model))


class _Model(Collector):
    def __init__(self, model: Callable[[], tuple[str, str]]) -> None:
        self._model = model

    def collect(self) -> list[GaugeMetricFamily]:
        labels = ("name", "sha256", "version")
        family = GaugeMetricFamily("plmcl_model_info", "The model that is served.", labels=labels)
        family.add_metric([*self._model(), metadata.version("plmcl")], 1)
        return [family]
