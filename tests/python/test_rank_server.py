"""A server that loses a rank: every answer that runs ends in an error that names it, and all ranks end."""
import http.client
import json
import os
import random
import re
import signal
import threading
import time

import pytest

from program import is_running, rank_processes
from serving import Server

SLACK_S = 5
TIMEOUT_S = 3  # --rank-timeout
STATES = {signal.SIGKILL: "its process is gone", signal.SIGSTOP: "stopped"}


class Answer(threading.Thread):
    """A request for more tokens than there is time for; `text` is what has come of the reply."""

    def __init__(self, server, **options):
        super().__init__()
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = {"prompt": "In the beginning", "max_tokens": 1900, "ignore_eos": True, **options}
        self.connection.request("POST", "/v1/completions", json.dumps(body))
        self.status, self.text = None, ""
        self.start()

    def run(self):
        response = self.connection.getresponse()
        self.status = response.status
        for line in response:
            self.text += line.decode()
        self.connection.close()

    def error(self):
        """Of the whole reply, or of the event that is the last but [DONE]."""
        self.join()
        events = self.text.replace("data: [DONE]", "").split("data: ")
        return json.loads(events[-1])["error"]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("sign", STATES, ids=["killed", "stopped"])
def test_answers_that_run_end_in_an_error_that_names_the_rank(ranks, sign):
    with Server("--rank-timeout", TIMEOUT_S, "--speculative", "off", "--max-num-seqs", 2, ranks=ranks) as server:
        processes = rank_processes(server.process.pid)
        answers = [Answer(server, stream=True), Answer(server), Answer(server, stream=True)]  # the last one waits
        while answers[0].text.count("data: ") < 8:
            time.sleep(0.01)
        victim = random.Random(ranks * int(sign)).randrange(1, ranks)
        os.kill(processes[victim], sign)
        begin = time.monotonic()
        sentence = rf"call \d+ of .* \(\w+, \d+ bytes\): expected \d ranks within 3000 ms, missing .*\b{victim} \({STATES[sign]}\)"
        for answer in answers:
            error = answer.error()
            assert error["code"] == 500 and re.search(sentence, error["message"]), error
        assert answers[1].status == 500
        assert server.process.wait(timeout=30) in (2, 128 + signal.SIGKILL)
        assert time.monotonic() - begin < TIMEOUT_S + SLACK_S
        server.wait_for(rf"^deepinfer: {sentence}")
        assert not any(is_running(process) for process in processes)
        with pytest.raises(ConnectionRefusedError):
            server.request("GET", "/health")
