from collections import Counter

import pytest
from request_mutants import KINDS, mutant, seeds
from running_service import files, picture


@pytest.mark.slow
def test_500_hostile_requests_get_200_or_4xx_and_the_service_still_answers(service):
    whole, good = seeds(), picture((255, 0, 0))
    expected = service.client.post("/predict", files=files(good)).json()
    decoders = service.decoders()
    lost = service.metric("plmcl_lost_decoders")
    found = Counter()
    for seed in range(500):
        kind, body, head = mutant(seed, whole)
        answer = service.client.post("/predict", content=body, headers=head)
        found[kind, answer.status_code] += 1
        assert answer.status_code == 200 or 400 <= answer.status_code < 500, (seed, kind)
        told = answer.json()
        if answer.status_code in (200, 422):
            for prediction in told["predictions"]:
                assert bool(prediction["labels"]) != bool(prediction["error"]), seed
        else:
            assert "\n" not in told["detail"], seed
        if seed % 100 == 0:
            assert service.client.post("/predict", files=files(good)).json() == expected
    assert service.client.post("/predict", files=files(good)).json() == expected
    # The mutants come as far as they are meant to.
    statuses = {status for _, status in found}
    assert statuses >= {200, 400, 415, 422}, found
    assert {kind for kind, _ in found} == set(KINDS)
    assert found["bomb", 422] == sum(n for (kind, _), n in found.items() if kind == "bomb")
    if service.metric("plmcl_lost_decoders") == lost:
        assert service.decoders() == decoders
    assert service.metric("plmcl_queue_images") == 0
    assert "Traceback" not in service.log
