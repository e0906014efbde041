import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from plmcl.checks import network
from plmcl.checks.network import ask


class Answers(BaseHTTPRequestHandler):
    """The status that the path names, and for /slow nothing."""

    def do_HEAD(self):
        if self.path == "/slow":
            self.server.may_end.wait(5)
            return
        self.send_response(int(self.path[1:]))
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    server = HTTPServer(("127.0.0.1", 0), Answers)
    server.may_end = threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.may_end.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [200, 401, 405])
def test_a_server_that_answers_is_there(server, status):
    assert ask(f"http://{server}/{status}") is None


@pytest.mark.parametrize(
    ("status", "reason"),
    [(404, "answers 404 Not Found"), (503, "answers 503 Service Unavailable")],
)
def test_a_page_that_is_gone_and_a_server_in_trouble_are_not(server, status, reason):
    assert ask(f"http://{server}/{status}") == reason


def test_a_server_that_is_silent_is_left_soon(server, monkeypatch):
    monkeypatch.setattr(network, "SECONDS", 0.2)
    assert ask(f"http://{server}/slow") == "no answer within 0 s"


def test_a_password_is_not_repeated():
    said = ask("http://me:secret@127.0.0.1:1/x")
    assert "refused" in said
    assert "secret" not in said
    assert "secret" not in ask("http://me:secret@[/x")
