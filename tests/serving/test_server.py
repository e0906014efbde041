import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from running_service import MAIN, Running, files, picture, wait_until
from tiny_model import make_model

from plmcl.inference import Tagger, tag_files, to_json_line
from plmcl.serving.app import Answer

pytestmark = pytest.mark.slow

RED, BLACK = (255, 0, 0), (0, 0, 0)


def post(service, *contents, **options):
    return service.client.post("/predict", files=files(*contents), **options)


def raw(service, data, *, seconds=10, half_close=False):
    """What comes back for bytes that no HTTP client would send."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=seconds) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    return answer


def test_case_99_104_answers_are_those_of_predict_bit_for_bit(service, production, tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for i, kind in enumerate(["png", "jpeg", "webp", "png"]):
        noise = rng.integers(0, 256, (30 + i, 50, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{i}.{kind}")
        paths.append(tmp_path / f"{i}.{kind}")
    (tmp_path / "page.jpg").write_text("<html>404")
    paths[3] = tmp_path / "page.jpg"
    tagger = Tagger(production / "champion/model.onnx")
    expected = [json.loads(to_json_line(p)) for p in tag_files(tagger, paths, batch_size=2)]
    for record, path in zip(expected, paths, strict=True):
        record["file"] = path.name
    answer = post(service, *((path.name, path.read_bytes()) for path in paths))
    assert answer.status_code == 200
    assert answer.json()["predictions"] == expected
    assert [r["error"] is None for r in expected] == [True, True, True, False]
    assert answer.headers["plmcl-model"] == answer.json()["model"]
    assert answer.headers["plmcl-model"] == service.client.get("/model").json()["model"]
    Answer.model_validate_json(answer.content)
    # One image as the body itself has no name.
    for kind in ("image/png", "application/octet-stream", "Application/Octet-Stream; a=b"):
        body = paths[0].read_bytes()
        answer = service.client.post("/predict", content=body, headers={"Content-Type": kind})
        assert answer.json()["predictions"] == [expected[0] | {"file": ""}]


def test_sixteen_clients_each_get_their_own_images_answer(service, production, tmp_path):
    tagger = Tagger(production / "champion/model.onnx")
    colours = [(15 * i, 255 - 15 * i, (97 * i) % 256) for i in range(1, 17)]
    paths = [tmp_path / f"{i}.png" for i in range(16)]
    for path, colour in zip(paths, colours, strict=True):
        path.write_bytes(picture(colour))
    alone = [p.labels for p in tag_files(tagger, paths, batch_size=1)]
    assert len({tuple(labels) for labels in alone}) == 16

    def ask(i):
        answers = []
        with httpx.Client(base_url=service.url, trust_env=False) as client:
            while len(answers) < 6:
                answer = client.post("/predict", files=files((f"{i}.png", paths[i].read_bytes())))
                if answer.status_code == 200:
                    answers.append(answer.json()["predictions"])
                else:  # six places for sixteen clients
                    assert answer.status_code == 429
                    time.sleep(0.01)
        return answers

    batches = service.metric("plmcl_batch_images_count")
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(16)))
    for i, answers in enumerate(found):
        labels = [tag._asdict() for tag in alone[i]]
        assert answers == [[{"file": f"{i}.png", "error": None, "labels": labels}]] * 6
    # They were scored together: fewer batches than images.
    assert service.metric("plmcl_batch_images_count") - batches < 96


def test_a_full_queue_is_429_with_retry_after_and_what_was_let_in_is_answered(service):
    image = picture(RED)
    with ThreadPoolExecutor(2) as pool:
        with service.decoders_stopped():
            first = pool.submit(post, service, *[image] * 4)
            service.wait_for_queue(4)
            refused = post(service, *[image] * 3)  # four places are taken, of six
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json() == {"detail": "the queue is full (6 images)"}
            second = pool.submit(post, service, *[image] * 2)
            service.wait_for_queue(6)
            assert post(service, image).status_code == 429
            assert service.client.get("/live").status_code == 200
            assert service.client.get("/ready").status_code == 200
        for waiting, images in ((first, 4), (second, 2)):
            assert waiting.result().status_code == 200
            assert len(waiting.result().json()["predictions"]) == images
    assert post(service, *[image] * 4).status_code == 200
    service.wait_for_queue(0)


def test_an_answer_that_takes_too_long_is_503_and_its_place_is_free_again(service):
    with service.decoders_stopped():
        late = post(service, picture(RED))
        assert (late.status_code, late.headers["retry-after"]) == (503, "5")
        assert late.json() == {"detail": "no answer within 2 s; it may come again"}
        assert service.metric("plmcl_queue_images") == 0
    assert post(service, picture(RED)).status_code == 200


def test_a_body_that_comes_too_slowly_is_408(service):
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n"
    started = time.monotonic()
    assert raw(service, head + b"half").startswith(b"HTTP/1.1 408 ")
    assert 1.9 < time.monotonic() - started < 8


def test_a_decoder_that_dies_costs_its_own_image_and_is_replaced(service):
    lost = service.metric("plmcl_lost_decoders")
    with ThreadPoolExecutor(1) as pool, service.decoders_stopped() as stopped:
        waiting = pool.submit(post, service, *[picture(RED)] * 4)
        service.wait_for_queue(4)
        time.sleep(0.1)
        os.kill(stopped[0], signal.SIGKILL)
        for pid in stopped[1:]:
            os.kill(pid, signal.SIGCONT)
        answer = waiting.result()
    errors = [p["error"] for p in answer.json()["predictions"]]
    assert answer.status_code == 200
    assert sorted(errors, key=str) == [None] * 3 + ["unreadable: the decoder crashed (signal 9)"]
    assert service.metric("plmcl_lost_decoders") == lost + 1
    assert post(service, *[picture(RED)] * 4).status_code == 200
    assert set(service.decoders()).isdisjoint(stopped[:1])


def form(*parts, boundary="b", end=True):
    """A multipart body by hand: (headers, content) pairs."""
    lines = [f"--{boundary}\r\n{head}\r\n\r\n".encode() + body + b"\r\n" for head, body in parts]
    return b"".join(lines) + (f"--{boundary}--\r\n".encode() if end else b"")


FILE = 'Content-Disposition: form-data; name="images"; filename="a.png"'
GOOD = picture(RED)
MULTIPART = "multipart/form-data; boundary=b"
BAD = {
    "empty body": (b"", "application/octet-stream", 400, "the body is empty"),
    "empty form": (form(), MULTIPART, 400, "without a file"),
    "no form at all": (b"", MULTIPART, 400, "in the midst"),
    "cut form": (form((FILE, GOOD), end=False), MULTIPART, 400, "in the midst of a part"),
    "no boundary": (form((FILE, GOOD)), "multipart/form-data", 400, "without a boundary"),
    "other boundary": (form((FILE, GOOD)), MULTIPART + "x", 400, "multipart/form-data: "),
    "long boundary": (b"--b", "multipart/form-data; boundary=" + "b" * 999, 400, "oundary"),
    "not a form": (GOOD, MULTIPART, 400, "multipart/form-data: "),
    "text field": (
        form(('Content-Disposition: form-data; name="urls"', b"http://127.0.0.1/a.jpg")),
        MULTIPART,
        400,
        "the part 'urls' is no file",
    ),
    "part without a head": (form(("X: y", GOOD)), MULTIPART, 400, "is no file"),
    "huge part head": (form((FILE + "\r\nX: " + "y" * 70_000, GOOD)), MULTIPART, 400, "header"),
    "many part heads": (form((FILE + "\r\nX: y" * 999, GOOD)), MULTIPART, 400, "header"),
    "URLs": (b'{"urls": ["http://127.0.0.1/"]}', "application/json", 415, "is not read; send"),
    "curl's default": (GOOD, "application/x-www-form-urlencoded", 415, "is not read; send"),
    "text": (b"hello", "text/plain", 415, "is not read; send"),
    "strange type": (GOOD, "\xff\xfe;;=;\"", 415, "is not read; send"),
    "image too large": (b"x" * 600_000, "image/jpeg", 413, "image: more bytes than 524288"),
    "file too large": (form((FILE, b"x" * 600_000)), MULTIPART, 413, "image: more bytes than"),
    "request too large": (
        form(*[(FILE, b"x" * 400_000)] * 3),
        MULTIPART,
        413,
        "request: more bytes than 1048576",
    ),
    "too many images": (form(*[(FILE, GOOD)] * 5), MULTIPART, 413, "more images than 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_a_bad_request_is_refused_in_one_line_that_says_why(service, name, chunked):
    body, kind, status, reason = BAD[name]
    head = {"Content-Type": kind.encode("latin-1")}
    content = (body[i : i + 50_000] for i in range(0, len(body), 50_000)) if chunked else body
    answer = service.client.post("/predict", content=content, headers=head)
    assert answer.status_code == status
    assert reason in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]
    assert post(service, GOOD).status_code == 200


def test_what_is_declared_too_large_is_refused_before_it_is_read(service):
    head = (
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n"
        b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    answer = raw(service, head)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", "empty"),
        (b"<html>404", "not_an_image"),
        (GOOD[:40], "truncated"),
        (picture(RED, (200, 200)), "too_large"),
        (picture(BLACK), "not_finite"),
    ],
)
def test_bad_images_alone_are_422_and_beside_good_ones_200(service, content, status):
    answer = post(service, content)
    assert answer.status_code == 422
    (prediction,) = answer.json()["predictions"]
    assert prediction["error"].startswith(f"{status}: ")
    assert prediction["labels"] == []
    answer = post(service, GOOD, content, GOOD)
    assert answer.status_code == 200
    good, bad, also_good = answer.json()["predictions"]
    assert (good["labels"], bad) == (also_good["labels"], prediction | {"file": "1.png"})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "../../etc/passwd"),
        ("C:\\a.png", "C:\\a.png"),
        ("caf\u00e9 \U0001f642.png", "caf\u00e9 \U0001f642.png"),
        ("x" * 3000, "x" * 255),
        ("", ""),
    ],
)
def test_a_name_is_told_back_and_is_nothing_more(service, name, shown):
    body = form((f'Content-Disposition: form-data; name="images"; filename="{name}"', GOOD))
    answer = service.client.post("/predict", content=body, headers={"Content-Type": MULTIPART})
    assert answer.status_code == 200
    assert answer.json()["predictions"][0]["file"] in (shown, shown.replace("C:\\", ""))


def test_no_route_is_there_but_those(service):
    get = service.client.get
    assert get("/live").json() == {"status": "live"}
    assert get("/ready").json() == {"status": "ready", "newer_model": "none"}
    for path in ("/docs", "/redoc", "/predict/", "/../etc/passwd", "/%2e%2e/", "/nothing"):
        assert get(path).status_code == 404
    assert get("/predict").status_code == 405
    assert service.client.post("/model").status_code == 405
    assert service.client.delete("/live").status_code == 405
    assert service.client.request("BREW", "/live").status_code == 400


def test_case_93_100_model_tells_what_is_served(service, production):
    told = service.client.get("/model").json()
    tagger = Tagger(production / "champion/model.onnx")
    assert told["name"] == "v0001/model.onnx"
    assert told["providers"] == tagger.providers
    assert told["label_names"] == ["red", "gr;een", 'b,"lue']
    assert told["thresholds"] == [0.25, 0.25, 0.25]
    assert told["recipe"] == tagger.card.recipe.to_dict()
    assert told["newer_model_refused"] is None


def test_metrics_count_what_happened(service):
    ok = 'plmcl_requests_total{path="/predict",status="200"}'
    other = 'plmcl_requests_total{path="other",status="404"}'
    images = 'plmcl_images_total{result="ok"}'
    before = [service.metric(line) for line in (ok, other, images)]
    post(service, GOOD, GOOD, b"")
    service.client.get("/" + "secret" * 9)
    assert [service.metric(line) for line in (ok, other, images)] == [
        before[0] + 1,
        before[1] + 1,
        before[2] + 2,
    ]
    text = service.client.get("/metrics").text
    assert "secret" not in text
    assert 'plmcl_model_info{name="v0001/model.onnx",sha256="' in text
    assert "process_resident_memory_bytes" in text


def test_openapi_describes_the_upload_and_nothing_loads_from_elsewhere(service):
    described = service.client.get("/openapi.json").json()
    predict = described["paths"]["/predict"]["post"]
    assert set(predict["requestBody"]["content"]) >= {"multipart/form-data", "image/*"}
    assert set(predict["responses"]) == {
        str(s) for s in (200, 400, 401, 408, 413, 415, 422, 429, 503)
    }
    page = service.client.get("/")
    assert "http" not in page.text.replace("http-equiv", "")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    answer = service.client.get("/live")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_log_has_each_request_and_no_name_of_a_file_or_path(service):
    post(service, ("holiday-with-anna.png", GOOD))
    service.client.get("/private-path?private=query", headers={"User-Agent": "private-agent"})
    wait_until(lambda: "other status=404" in service.lines[-1])
    assert "POST /predict status=200 images=1" in service.log
    for private in ("anna", "private"):
        assert private not in service.log


HTTP_GARBAGE = {
    "random": bytes(range(256)) * 8,
    "no HTTP": b"hello\r\n\r\n",
    "huge head": b"GET /live HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
    "many heads": b"GET /live HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 30_000 + b"\r\n",
    "wrong length": b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "wrong chunk": b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no host": b"GET /live HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /live HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no end of trailers": b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\nx\r\n0\r\n" + b"X: y\r\n" * 50_000,
    "a request in a request": b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /live HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 600,
}


@pytest.mark.parametrize("name", HTTP_GARBAGE)
def test_what_is_no_http_gets_400_and_is_closed(service, name):
    answer = raw(service, HTTP_GARBAGE[name])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert json.loads(body) == {"detail": "not an HTTP request"}
    assert post(service, GOOD).status_code == 200


def test_requests_on_one_connection_are_answered_in_order_and_a_flood_of_them_is_cut(service):
    some = b"".join(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path for path in (b"/live", b"/model"))
    answer = raw(service, some + b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"200", b"404"]
    assert answer.index(b'"live"') < answer.index(b'"label_names"')
    answer = raw(service, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
    assert b"HTTP/1.1 400 " in answer
    assert answer.count(b"HTTP/1.1 ") < 100
    assert post(service, GOOD).status_code == 200


def test_a_client_that_goes_away_leaves_nothing_behind(service):
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\nabc"
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(head)
    wait_until(lambda: "POST /predict status=400 images=- bytes=3" in service.log)
    assert post(service, GOOD).status_code == 200


def test_without_a_token_in_the_environment_none_is_asked_and_with_one_it_is(production):
    token = "s3cret-t0ken"
    with Running(production / "champion/model.onnx", env={"PLMCL_SERVE_TOKEN": token}) as service:
        get = service.client.get
        for path in ("/live", "/ready", "/"):
            assert get(path).status_code == 200
        for path in ("/model", "/metrics", "/openapi.json", "/nothing"):
            answer = get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        wrong = ["", token, "Bearer", "Bearer x", f"Bearer {token}x", f"Basic {token}", "Bearer é"]
        for value in wrong:
            head = {"Authorization": value.encode("utf-8")}
            assert post(service, GOOD, headers=head).status_code == 401
        twice = [("Authorization", f"Bearer {token}"), ("Authorization", "Bearer x")]
        assert get("/model", headers=twice).status_code == 401
        large = [("a.png", b"x" * 3_000_000)]
        assert post(service, *large).status_code == 401
        for scheme in ("Bearer", "bearer"):
            head = {"Authorization": f"{scheme} {token}"}
            assert post(service, GOOD, headers=head).status_code == 200
            assert get("/model", headers=head).status_code == 200
        for pid in service.decoders():
            assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        # While it is at it: no module that a serving process has no need of is loaded.
        loaded = Path(f"/proc/{service.process.pid}/maps").read_text()
        assert "onnxruntime" in loaded
        for heavy in ("libtorch", "pandas", "pyarrow"):
            assert heavy not in loaded
        # A request that has been let in is answered, though the service is told to end.
        with ThreadPoolExecutor(1) as pool, service.decoders_stopped():
            waiting = pool.submit(post, service, GOOD, headers=head)
            wait_until(lambda: "plmcl_queue_images 1.0" in get("/metrics", headers=head).text)
            service.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "Shutting down" in service.log)
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{service.url}/live", trust_env=False)
            assert service.process.poll() is None
        assert waiting.result().status_code == 200
        assert service.process.wait(10) == 128 + signal.SIGTERM
    assert token not in service.log
    assert "Traceback" not in service.log


def test_a_client_that_sends_no_request_does_not_keep_it_from_ending(tmp_path):
    running = Running(make_model(tmp_path / "model.onnx"))
    with running as service, socket.create_connection(("127.0.0.1", service.port)) as idle:
        idle.sendall(b"GET /live HT")
        service.client.get("/live")
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(10) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("options", "env", "said"),
    [
        (["--queue", "3"], {}, "queue: 3 images, but one request may have 32"),
        ([], {"PLMCL_SERVE_TOKEN": " "}, "PLMCL_SERVE_TOKEN: is set, but empty"),
        (["--model", "missing.onnx"], {}, "missing.onnx: No such file"),
        (["--provider", "NoneSuch"], {}, "asked for NoneSuch"),
        (["--host", "256.0.0.1"], {}, "256.0.0.1:0: the service does not start"),
    ],
)
def test_what_cannot_start_ends_in_one_line(production, options, env, said):
    model = str(production / "champion/model.onnx")
    run = subprocess.run(
        [sys.executable, "-c", MAIN, "--model", model, "--port", "0", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert run.returncode == 2
    last = run.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last
    assert "Traceback" not in run.stderr


def test_hot_swap_under_load_fails_no_request_and_a_broken_file_changes_nothing(
    service, production
):
    link = production / "champion"
    thresholds = {}
    for version in ("v0001", "v0002"):
        thresholds[version] = Tagger(production / version / "model.onnx").thresholds
    answers, stop = [], threading.Event()

    def load():
        with httpx.Client(base_url=service.url, trust_env=False) as client:
            while not stop.is_set():
                answers.append(client.post("/predict", files=files(GOOD)))
                time.sleep(0.02)

    def promote(version):
        (production / "new").symlink_to(version)
        (production / "new").replace(link)

    def served():
        return service.client.get("/model").json()

    clients = [threading.Thread(target=load) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        wait_until(lambda: answers)  # of the first model, before there is another
        promote("v0002")
        wait_until(lambda: served()["name"] == "v0002/model.onnx")
        # A broken file is not taken, and is told about.
        (production / "v0003").mkdir()
        (production / "v0003/model.onnx").write_bytes(b"\0" * 999)
        promote("v0003")
        wait_until(lambda: served()["newer_model_refused"])
        assert served()["name"] == "v0002/model.onnx"
        assert served()["newer_model_refused"].endswith("not an ONNX file, or a damaged one")
        assert service.client.get("/ready").json()["newer_model"] == "refused; see /model"
        promote("v0001")
        wait_until(lambda: served()["name"] == "v0001/model.onnx")
        assert served()["newer_model_refused"] is None
    finally:
        stop.set()
        for client in clients:
            client.join()
        (production / "v0003/model.onnx").unlink(missing_ok=True)
        if link.readlink() != Path("v0001"):
            promote("v0001")
    assert len(answers) > 50
    assert {answer.status_code for answer in answers} == {200}
    # Each answer is of one model alone.
    seen = {}
    for answer in answers:
        (prediction,) = answer.json()["predictions"]
        found = [tag["threshold"] for tag in prediction["labels"]]
        assert seen.setdefault(answer.headers["plmcl-model"], found) == found
    assert list(seen.values()) == [thresholds["v0001"], thresholds["v0002"]]
    assert service.metric('plmcl_model_swaps_total{result="taken"}') >= 2
    assert service.metric('plmcl_model_swaps_total{result="refused"}') >= 1
