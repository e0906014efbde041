"""Debian's Chromium without a window, told what to do over its DevTools protocol."""

import json
import shutil
import subprocess
import time
from pathlib import Path

from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page.

    Attributes:
        complaints: What the page's console says: errors, and what its policy forbade.
    """

    def __init__(self, profile):
        self._process = subprocess.Popen(
            [
                CHROMIUM,
                "--headless",
                "--no-sandbox",  # in a container there may be none, and root has none
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        port_file = Path(profile) / "DevToolsActivePort"
        until = time.monotonic() + 30
        while not (port_file.exists() and len(port_file.read_text().split()) == 2):
            assert time.monotonic() < until, "Chromium does not start"
            time.sleep(0.05)
        port, path = port_file.read_text().split()
        self._socket = connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None)
        self._number, self._session, self.complaints = 0, None, []
        pages = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in pages if target["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        self._number += 1
        question = {"id": self._number, "method": method, "params": params}
        if self._session:
            question["sessionId"] = self._session
        self._socket.send(json.dumps(question))
        while True:
            answer = json.loads(self._socket.recv(timeout=30))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(answer["params"]))
            elif answer.get("method") == "Log.entryAdded":
                entry = answer["params"]["entry"]
                if entry["level"] != "verbose":
                    self.complaints.append(entry["text"])

    def run(self, script):
        """A JavaScript expression's value, once it is there."""
        found = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script, seconds=20):
        until = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < until, f"waited in vain for {script}"
            time.sleep(0.05)
        return value

    def open(self, url):
        self.ask("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href.startsWith('{url}')")

    def choose(self, selector, *paths):
        """As a person who picks files in the dialog."""
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def close(self):
        self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
