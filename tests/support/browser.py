"""A headless Chromium, driven over its debugging pipe (Chrome DevTools Protocol): JSON messages that a NUL ends, on descriptors 3 and 4."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)


class Page:
    """One page of `size`, of a file or an http:// address; what its scripts throw or log as errors, and every request but the file's own
    or those to the same server, is in `problems`."""

    def __init__(self, path, size=(1440, 1000), dark=False):
        self.home = tempfile.TemporaryDirectory(prefix="mcc-browser-", ignore_cleanup_errors=True)
        here_in, self.to = os.pipe()
        self.back, here_out = os.pipe()

        def descriptors():
            os.dup2(os.dup(here_in), 3), os.dup2(os.dup(here_out), 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1",
                 "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.home.name}"]
        # dup2 in the child must not meet the pipe's own ends: they are moved beyond 4 first.
        here_in, here_out = self.high(here_in), self.high(here_out)
        self.process = subprocess.Popen([PROGRAM, *flags, f"--window-size={size[0]},{size[1]}", "about:blank"], preexec_fn=descriptors, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(here_in), os.close(here_out)
        self.number, self.buffer, self.session, self.events, self.problems = 0, b"", None, [], []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Network", "Log":
            self.ask(domain + ".enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.url = path if str(path).startswith("http://") else "file://" + os.path.abspath(path)
        self.ask("Page.navigate", url=self.url)
        self.until("document.readyState === 'complete'")

    @staticmethod
    def high(fd):
        copy = os.dup(fd)
        while copy <= 10:
            copy = os.dup(copy)
        os.close(fd)
        os.set_inheritable(copy, True)
        return copy

    def read(self, end):
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.back, 1 << 16)
            if not piece:
                raise EOFError("the browser has ended")
            self.buffer += piece
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def note(self, event):
        method, of = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(of["exceptionDetails"].get("exception", {}).get("description") or of["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and of["entry"]["level"] == "error":
            self.problems.append(of["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not self.is_own(of["request"]["url"]):
            self.problems.append("asked for " + of["request"]["url"])

    def is_own(self, url):
        return url == self.url or url.startswith("data:") or (self.url.startswith("http://") and url.startswith(self.url.rstrip("/") + "/"))

    def ask(self, method, timeout=60, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout
        while True:
            answer = self.read(end)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.note(answer)

    def value(self, script, timeout=60):
        answer = self.ask("Runtime.evaluate", timeout, expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"].get("exception", {}).get("description", answer)
        return answer["result"].get("value")

    def until(self, script, timeout=60):
        end = time.monotonic() + timeout
        while not self.value(script):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.05)

    def click(self, x, y, count=1):
        for kind in "mousePressed", "mouseReleased":
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def drag(self, points):
        """The left button goes down at the first point, and up at the last."""
        for k, (x, y) in enumerate(points):
            self.ask("Input.dispatchMouseEvent", type="mouseMoved" if k else "mousePressed", x=x, y=y, button="left", buttons=1, clickCount=int(not k))
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", x=points[-1][0], y=points[-1][1], button="left", clickCount=1)

    def wheel(self, x, y, down):
        self.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=down)

    def type(self, text):
        for c in text:
            self.ask("Input.dispatchKeyEvent", type="char", text=c)

    def key(self, name, code):
        for kind in "keyDown", "keyUp":
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code)

    def picture(self, path=None):
        """The page as it is shown, after what is planned was drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => 1)")
        data = base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])
        if path:
            with open(path, "wb") as f:
                f.write(data)
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to), os.close(self.back)
        self.home.cleanup()
