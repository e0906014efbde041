import json

import pytest
from request_mutants import KINDS, fuzz_service


@pytest.mark.slow
def test_500_hostile_requests_get_200_or_4xx_and_the_service_still_answers(service):
    decoders = service.decoders()
    lost = service.metric("plmcl_lost_decoders")

    def check(seed, kind, answer):
        if kind in ("no HTTP", "huge head", "path"):
            return  # some of these are honest enough, some end before an answer
        assert answer.status == 200 or answer.status >= 400, (seed, kind, answer)
        told = json.loads(answer.body)
        if answer.status in (200, 422):
            for prediction in told["predictions"]:
                assert bool(prediction["labels"]) != bool(prediction["error"]), seed
        else:
            assert "\n" not in told["detail"], seed

    found = fuzz_service(service.port, 500, check=check)
    # The mutants come as far as they are meant to.
    statuses = {status for _, status in found}
    assert statuses >= {200, 400, 404, 405, 415, 422}, found
    assert {kind for kind, _ in found} == set(KINDS)
    for kind, only in (("bomb", {422}), ("path", {400, 404, 405}), ("huge head", {0, 400})):
        assert {status for name, status in found if name == kind} <= only, found
    if service.metric("plmcl_lost_decoders") == lost:
        assert service.decoders() == decoders
    assert service.metric("plmcl_queue_images") == 0
    assert "Traceback" not in service.log
