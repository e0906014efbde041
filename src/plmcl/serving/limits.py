"""How much a service takes on: bytes, pixels, images, time, and work that waits."""

from dataclasses import dataclass

from plmcl.data import MAX_PIXELS
from plmcl.errors import PlmclError

# So many of the largest requests are held in memory at once.
LARGEST_REQUESTS = 4


@dataclass(frozen=True)
class Limits:
    """What is refused, and from when on.

    Attributes:
        request_bytes: Of a request's body.
        image_bytes: Of one image file.
        images: In one request.
        pixels: Of one image, width x height; never more than the model's recipe allows.
        queue: Images that are decoded, wait or are scored at a time, of all requests together.
        batch: Images that the network takes at once.
        wait_ms: How long the network waits for a batch to fill while other images are decoded.
        request_seconds: To send a request, and again to answer it.
        decode_seconds: To decode one image.

    Raises:
        PlmclError: A limit is too small, or a request could never be let in.
    """

    request_bytes: int = 64 * 2**20
    image_bytes: int = 32 * 2**20
    images: int = 32
    pixels: int = MAX_PIXELS
    queue: int = 128
    batch: int = 16
    wait_ms: float = 5.0
    request_seconds: float = 30.0
    decode_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("request_bytes", "image_bytes", "images", "pixels", "queue", "batch"):
            if getattr(self, name) < 1:
                raise PlmclError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        for name in ("request_seconds", "decode_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise PlmclError(f"{name}: expected more than 0, found {getattr(self, name)}")
        if not 0 <= self.wait_ms < float("inf"):
            raise PlmclError(f"wait_ms: expected 0 or more, found {self.wait_ms}")
        if self.queue < self.images:
            raise PlmclError(
                f"queue: {self.queue} images, but one request may have {self.images}: it could "
                "never be let in"
            )
