"""A page in headless Chromium, driven by the DevTools protocol over a pipe, and a server of static files for it."""

import base64
import contextlib
import functools
import http.server
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NPM = os.environ.get("CANDLE_TRANSFORMERS_JS")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
"""Marks tests that open pages."""
needs_packages = pytest.mark.skipif(
    NPM is None, reason="CANDLE_TRANSFORMERS_JS names no folder with @huggingface/transformers"
)
"""Marks tests of pages that run models."""
SECONDS = 120
"""Until a page answers."""


class Tab:
    """One page.

    Attributes:
        requests: addresses that it and its workers asked for.
        errors: what scripts raised and nobody caught.
    """

    def __init__(self, browser):
        self._browser = browser
        self.requests, self.errors = [], []
        target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        browser.listeners.append(self._hear)
        follow = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
        for method, values in (("Page", {}), ("Runtime", {}), ("Network", {}), ("DOM", {})):
            self.call(f"{method}.enable", values)
        self.call("Target.setAutoAttach", follow)

    def _hear(self, message):
        method, values = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"])
        elif method == "Target.attachedToTarget":
            self._browser.send("Network.enable", {}, values["sessionId"])
            self._browser.send("Runtime.enable", {}, values["sessionId"])

    def call(self, method, values=None):
        """The result of a command of the protocol."""
        return self._browser.call(method, values or {}, self._session)

    def open(self, address):
        self.call("Page.navigate", {"url": address})

    def value(self, expression):
        """What an expression of JavaScript gives, as JSON; promises are awaited."""
        said = self.call("Runtime.evaluate", {"expression": expression, "awaitPromise": True, "returnByValue": True})
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def wait(self, expression):
        """The value of an expression when it is true; fails with what the page says of an error."""
        return self.value(
            f"""new Promise((resolve, reject) => {{
              const began = Date.now();
              const look = () => {{
                let found = null;
                try {{ found = {expression}; }} catch {{}}
                if (found) resolve(found);
                else if (document.body && document.body.dataset.error) reject(new Error(document.body.dataset.error));
                else if (Date.now() - began > {SECONDS * 1000}) reject(new Error("nothing after {SECONDS} s"));
                else setTimeout(look, 20);
              }};
              look();
            }})"""
        )

    def upload(self, selector, path):
        """Choose a file in a field."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
        self.call("DOM.setFileInputFiles", {"nodeId": node, "files": [os.path.abspath(path)]})

    def click(self, selector, x=None, y=None):
        """Press the mouse on an element, at its middle or `x`, `y` shares of it from its corner."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView();"
            " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
        )
        at = {"x": box[0] + box[2] * (0.5 if x is None else x), "y": box[1] + box[3] * (0.5 if y is None else y)}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "button": "left", "clickCount": 1, **at})

    def screenshot(self, path, width=760, height=460):
        """Write what the page shows as PNG."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", metrics)
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


class Browser:
    """A process of Chromium with a profile of its own."""

    def __init__(self, *options):
        self._profile = tempfile.mkdtemp()
        into, command = os.pipe()
        answer, out = os.pipe()

        def streams():
            copies = [os.dup(each) for each in (into, out)]
            for copy, number in zip(copies, (3, 4), strict=True):
                os.dup2(copy, number)

        words = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self._profile}",
            *options,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            words, preexec_fn=streams, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(into)
        os.close(out)
        self._command, self._answer = os.fdopen(command, "wb", 0), os.fdopen(answer, "rb")
        self._numbers = itertools.count(1)
        self._answers = {}
        self.listeners = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        held = b""
        while part := os.read(self._answer.fileno(), 1 << 16):
            *messages, held = (held + part).split(b"\0")
            for each in messages:
                message = json.loads(each)
                if "id" in message:
                    self._answers[message["id"]].put(message)
                else:
                    for listener in list(self.listeners):
                        listener(message)

    def send(self, method, values, session=None):
        """Send a command; the queue that gets its answer."""
        number = next(self._numbers)
        answer = self._answers[number] = queue.SimpleQueue()
        message = {"id": number, "method": method, "params": values, **({"sessionId": session} if session else {})}
        self._command.write(json.dumps(message).encode() + b"\0")
        return answer

    def call(self, method, values, session=None):
        """The result of a command."""
        said = self.send(method, values, session).get(timeout=SECONDS + 30)
        assert "error" not in said, (method, said["error"])
        return said["result"]

    def close(self):
        with contextlib.suppress(Exception):
            self.call("Browser.close", {})
        self._process.wait(timeout=30)
        shutil.rmtree(self._profile, ignore_errors=True)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def served(folder):
    """The address of a server of a folder, by Python's own."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
