"""More requests than the service can answer; `make endurance` does it for ten minutes."""

import http_load
import pytest
from running_service import picture
from tiny_model import make_model

SECONDS, SETTLED = 10, 4


@pytest.mark.slow
def test_twice_the_sustainable_rate_gives_200_and_429_alone_and_memory_stays(tmp_path):
    asked = http_load.requests([picture((i, 255, 0), (60, 40), "JPEG") for i in range(0, 256, 2)])
    options = {"--queue": 32}
    with http_load.serving(make_model(tmp_path / "model.onnx"), options) as service:
        found = http_load.overload(service, asked, seconds=SECONDS, settled_after=SETTLED)
    # Both happened, what was let in did not wait long, and the rest was told at once.
    assert set(found["statuses"]) == {"200", "429"}
    assert found["answered_200"]["median_ms"] < 2000
    assert found["answered_429"]["median_ms"] < found["answered_200"]["median_ms"]
