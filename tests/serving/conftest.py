import pytest
from running_service import Running
from tiny_model import make_card, make_model

OPTIONS = {
    "--request-mb": 1,
    "--image-mb": 0.5,
    "--max-images": 4,
    "--queue": 6,
    "--request-seconds": 2,
}


@pytest.fixture(scope="session")
def production(tmp_path_factory):
    """Two versions, and a link to the first as a promotion makes it."""
    folder = tmp_path_factory.mktemp("production")
    for version, threshold in (("v0001", 0.25), ("v0002", 0.75)):
        (folder / version).mkdir()
        thresholds = make_card().thresholds * 0 + threshold
        make_model(folder / version / "model.onnx", make_card(thresholds=thresholds))
    (folder / "champion").symlink_to("v0001")
    return folder


@pytest.fixture(scope="session")
def service(production):
    """A service with small limits, for all tests that leave it as it was."""
    with Running(production / "champion/model.onnx", OPTIONS) as running:
        yield running
