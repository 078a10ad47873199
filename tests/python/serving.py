"""Runs `deepinfer serve` for tests. DI_RANKS: on so many ranks (as scripts/test.sh does with a part of the tests)."""
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

from program import DEMO, TIMEOUT_S, rank_processes, start

RANKS = int(os.environ.get("DI_RANKS", "1"))


class Server:
    """A server on a free port. `with` waits until it is ready, and stops it in the end."""

    def __init__(self, *args, model=DEMO, threads=1, ranks=RANKS):
        self.ranks = ranks
        self.process = start("serve", model, "--port", 0, "--threads", threads, *args, ranks=ranks,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.port = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))

    def wait_for(self, pattern):
        """The match of the first line of the log that has it."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            ended = self.process.poll() is not None and not self._reader.is_alive()
            for line in list(self.log):
                if found := re.search(pattern, line):
                    return found
            assert not ended and time.monotonic() < deadline, self.log
            time.sleep(0.01)

    def __enter__(self):
        self.port = int(self.wait_for(r"listening on http://\S+:(\d+), ")[1])
        self.wait_for(r'^deepinfer: ready$|"message":"ready"')  # also --log-format json
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def stop(self, signals=1):
        """Asks it to end; the exit status. Of several ranks rank 0 is asked."""
        server = self.pid
        for _ in range(signals):
            os.kill(server, signal.SIGTERM)
        try:
            status = self.process.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join()
        return status

    @property
    def pid(self):
        """Of the process that serves: rank 0."""
        return self.process.pid if self.ranks == 1 else rank_processes(self.process.pid)[0]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def request(self, method, path, body=None, headers=None):
        """-> (status, headers, body as text)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, dict(response.getheaders()), text

    def post(self, path, body, status=200, headers=None):
        """The JSON of a reply."""
        got, _, text = self.request("POST", path, body, headers)
        assert got == status, (got, text)
        return json.loads(text)

    def refusal(self, path, body, status=400):
        """The sentence of a refusal."""
        reply = self.post(path, body, status)
        assert set(reply) == {"error"} and reply["error"]["code"] == status
        return reply["error"]["message"]

    def metric(self, name, **labels):
        _, _, text = self.request("GET", "/metrics")
        for line in text.splitlines():
            if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"{name} {labels}: not in\n{text}")

    def wait_for_metric(self, name, value):
        deadline = time.monotonic() + 30
        while self.metric(name) != value:
            assert time.monotonic() < deadline, (name, self.metric(name))
            time.sleep(0.02)
