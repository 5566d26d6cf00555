"""examples/server with BabyLlama: answers of streams that run together, limits, clients that go, the end. The soak runs under AddressSanitizer, which
also finds what leaks."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

import pytest

from examples.test_chat import letters_folder
from gguf import babyllama, vocabularies
from gguf.decoders import Model
from support.decoder import Compiled
from support.tokens import needs_jansson
from support.tool import BUILD, ROOT, compile_to

needs_microhttpd = pytest.mark.skipif(not pathlib.Path("/usr/include/microhttpd.h").exists(), reason="no libmicrohttpd-dev")
pytestmark = [needs_jansson, needs_microhttpd]
PLACE = "/v1/chat/completions"
BEGINNINGS = ["Once upon a time", "Tom had a red ball", "Lily", "One day, a big dog", "Mia saw a cat in the", "Ben and Sue went to the park", "The sun", "A"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return made(tmp_path_factory.mktemp("server"), "-O1 -g -Wall -Wextra -Werror")


def made(build, flags):
    done = subprocess.run(["make", "-C", ROOT / "examples/server", f"BUILD={build}", f"MCC_BUILD={BUILD.absolute()}", f"CFLAGS={flags}", build / "server"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return build / "server"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    f = babyllama.file("Q4_0")
    f.keys += vocabularies.babyllama()
    folder = tmp_path_factory.mktemp("babyllama")
    return compile_to(folder / "m.so", f.save(folder / "m.gguf"), "-q", "--last-logits", "--strict")


class Server:
    def __init__(self, *command):
        self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=os.environ | {"ASAN_OPTIONS": "detect_leaks=1:exitcode=77"})
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def ask(self, path, body=None, method=None, timeout=60):
        """(status, body)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(c):
            c.request(method or ("POST" if body is not None else "GET"), path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body))
            answer = c.getresponse()
            return answer.status, answer.read().decode()

    def chat(self, text, status=200, **more):
        have, body = self.ask(PLACE, {"messages": [{"role": "user", "content": text}], **more})
        assert have == status, body
        return json.loads(body)

    def said(self, text, **more):
        return self.chat(text, **more)["choices"][0]["message"]["content"]

    def events(self, text, **more):
        have, body = self.ask(PLACE, {"messages": [{"role": "user", "content": text}], "stream": True, **more})
        lines = [x for x in body.split("\n\n") if x]
        assert have == 200 and lines[-1] == "data: [DONE]" and all(x.startswith("data: ") for x in lines)
        return [json.loads(x[6:]) for x in lines[:-1]]

    def metrics(self):
        return {k: float(v) for k, v in re.findall(r"^(\w+(?:\{.*\})?) ([\d.]+)$", self.ask("/metrics")[1], re.M)}

    def until(self, good, seconds=20):
        end = time.monotonic() + seconds
        while not good(self.metrics()):
            assert time.monotonic() < end, self.metrics()
            time.sleep(0.02)

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, number=signal.SIGTERM):
        """The status, and what it said on standard error."""
        self.process.send_signal(number)
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said


@pytest.fixture
def server(program, network):
    running = Server(program, "-p", "0", "-s", "4", "-q", "3", network)
    yield running
    if running.process.poll() is None:
        assert running.end() == (0, "")


def alone(network, text, steps):
    """The text of the likeliest tokens; letters are tokens."""
    words = vocabularies.babyllama()[1][2]
    ids = [1, *(words.index(x) for x in "▁" + text.replace(" ", "▁"))]
    found, _ = Compiled(network, room=256).tokens(ids, steps)
    cut = next((i for i, t in enumerate(found) if t in (1, 2)), len(found))
    return "".join(words[t] for t in found[:cut] if t > 2).replace("▁", " ")


def together(jobs):
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        return [f.result() for f in [pool.submit(job) for job in jobs]]


def test_streams_are_what_they_are_alone(server, network):
    """More answers than streams, of several lengths, that begin and end at different times: each as if it were the only one."""
    lengths = [60, 9, 33, 120, 70, 5, 90]
    for _ in range(2):
        got = together([lambda t=t, n=n: server.said(t, max_tokens=n) for t, n in zip(BEGINNINGS, lengths)])
        assert got == [alone(network, t, n) for t, n in zip(BEGINNINGS, lengths)]


def test_events(server):
    whole = server.chat("Once upon a time", max_tokens=40)
    assert whole["choices"][0]["finish_reason"] == "length" and whole["usage"] == {"prompt_tokens": 18, "completion_tokens": 40, "total_tokens": 58}
    events = server.events("Once upon a time", max_tokens=40, stream_options={"include_usage": True})
    deltas = [e["choices"][0]["delta"] for e in events[:-1]]
    assert deltas[0]["role"] == "assistant" and "".join(d.get("content", "") for d in deltas) == whole["choices"][0]["message"]["content"]
    assert events[-2]["choices"][0]["finish_reason"] == "length" and events[-1]["usage"] == whole["usage"] and events[-1]["choices"] == []
    assert len({e["id"] for e in events}) == 1 and "usage" not in server.events("A", max_tokens=2)[-1]


def test_ends(server):
    said = server.said("Once upon a time", max_tokens=60)
    for stop, want in (("named", said.split("named")[0]), (["girl", "little"], said.split("little")[0]), ([], said)):
        assert server.said("Once upon a time", max_tokens=60, stop=stop) == want
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in server.events("Once upon a time", max_tokens=60, stop=stop)) == want
    long = server.chat("Once upon a time")
    assert long["usage"]["total_tokens"] <= 256 and long["choices"][0]["finish_reason"] in ("stop", "length")


def test_drawing(server):
    draw = lambda **more: server.said("Once upon a time", max_tokens=40, **more)
    assert draw(temperature=1, seed=5) == draw(temperature=1, seed=5) != draw(temperature=1, seed=6)
    assert draw(temperature=1, seed=7, top_p=0) == draw() == draw(temperature=0, seed=3) == draw(temperature=1, seed=1, top_k=1)


def test_messages(server):
    parts = [{"type": "text", "text": "Once upon"}, {"type": "text", "text": " a time"}]
    assert server.ask(PLACE, {"messages": [{"role": "user", "content": parts}], "max_tokens": 9})[0] == 200
    turns = [{"role": r, "content": t} for r, t in (("system", "x"), ("user", "Once upon a"), ("assistant", " ti"), ("user", "me"))]
    have, body = server.ask(PLACE, {"messages": turns, "max_tokens": 12})
    assert have == 200 and json.loads(body)["choices"][0]["message"]["content"] == server.said("Once upon a time", max_tokens=12)
    assert server.chat("<s>", max_tokens=1)["usage"]["prompt_tokens"] > 2        # letters, as they were typed


REFUSED = [("", "not a JSON object"), ("[]", "not a JSON object"), ({}, "no messages"), ({"messages": []}, "in turn"), ({"messages": [1]}, "role is ''"),
           ({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}, "in turn"),
           ({"messages": [{"role": "assistant", "content": "a"}]}, "not 'user'"), ({"messages": [{"role": "user"}]}, "content is no text"),
           ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only texts"),
           ({"messages": [{"role": "user", "content": "a" * 300}]}, "the context 256"),
           *[({"messages": [{"role": "user", "content": "a"}], **more}, text) for more, text in [
               ({"n": 2}, "n is not a number from 1 to 1"), ({"temperature": "x"}, "temperature"),
               ({"temperature": -1}, "temperature"), ({"top_p": 2}, "top_p"),
               ({"max_tokens": 0}, "max_tokens"), ({"presence_penalty": 1}, "presence_penalty"), ({"tools": [{}]}, "tools is not done"),
               ({"logprobs": True}, "logprobs"), ({"response_format": {"type": "json_object"}}, "response_format"), ({"stop": [""]}, "a stop is"),
               ({"stop": ["a"] * 5}, "stop is no text or list"), ({"stop": 3}, "stop is no text")]]]


def test_refusals(server):
    for body, text in REFUSED:
        status, said = server.ask(PLACE, body)
        error = json.loads(said)["error"]
        assert status == error["code"] == 400 and text in error["message"], (body, said)
    assert server.ask(PLACE, "x" * (1 << 21))[0] == 413
    assert server.ask("/nothing")[0] == 404 and server.ask(PLACE)[0] == 405 and server.ask("/metrics", "x")[0] == 405
    assert server.ask("/health") == (200, "ok\n") and json.loads(server.ask("/v1/models")[1])["data"][0]["id"] == "m.so"
    assert server.metrics()["chat_refused_total"] == len(REFUSED) + 4


def test_damaged_requests(server):
    """Any value replaced: an answer or a refusal."""
    rng = random.Random(3)
    good = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Once"}]}], "max_tokens": 3, "stop": ["q"],
            "temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 1, "stream": False, "stream_options": {"include_usage": True}, "n": 1, "tools": []}
    for _ in range(150):
        body = json.loads(json.dumps(good))
        at = rng.choice([body, body, body["messages"][0], body["messages"][1], body["messages"][1]["content"][0], body["stream_options"]])
        at[rng.choice(list(at))] = rng.choice([None, True, -1, 1 << 62, 1e300, "", "x", "\0", "\ud800", [], {}, [[]], [{}], "é" * 999])
        assert server.ask(PLACE, body)[0] in (200, 400)


def begin_stream(server, text="Once upon a time", **more):
    """A connection whose answer has begun."""
    s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    body = json.dumps({"messages": [{"role": "user", "content": text}], **more})
    s.sendall(f"POST {PLACE} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return s


def test_clients_that_go(program, tmp_path):
    """A long answer of a slow network ends when its client is gone, streaming or not, and one that waits leaves the queue; then the queue's limit."""
    f = Model("llama", layers=2, words=105, width=512, heads=8, kv_heads=8, head=64, forward=2048).file()
    f.keys = [(k, kind, 100000 if k.endswith(("context_length", "eos_token_id")) else v) for k, kind, v in [*f.keys, *vocabularies.babyllama()]]
    network = compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), "-q", "--last-logits")
    server = Server(program, "-p", "0", "-s", "1", "-q", "1", "-c", "100000", "-g", "0", network)
    endless = {"stop": ["@"]}
    for stream in (True, False):
        before = server.metrics()['chat_answers_total{end="cancelled"}']
        one = begin_stream(server, stream=stream, **endless)
        server.until(lambda m: m["chat_running"] == 1)
        two = begin_stream(server, stream=stream, **endless)
        server.until(lambda m: m["chat_waiting"] == 1)
        assert server.ask(PLACE, {"messages": [{"role": "user", "content": "a"}]})[0] == 429
        two.close()
        server.until(lambda m: m["chat_waiting"] == 0)
        one.close()
        server.until(lambda m: m["chat_running"] == 0 and m['chat_answers_total{end="cancelled"}'] == before + 2)
    last = begin_stream(server, stream=True, **endless)      # no grace: it is cut off
    server.until(lambda m: m["chat_running"] == 1)
    assert server.end() == (0, "")
    last.close()


def test_words_that_the_network_lacks(program, tmp_path):
    """A tokenizer may have more than the network: who types one is refused, and the answers of others go on. Its file's name is no text."""
    f, more = babyllama.file("Q4_0"), {"tokens": "<tool>", "token_type": 4, "scores": 0.0}
    f.keys += [(k, kind, [*v, more[k.rsplit(".", 1)[1]]] if isinstance(kind, list) else v) for k, kind, v in vocabularies.babyllama()]
    network = compile_to(tmp_path / "m.so", f.save(tmp_path / "m.gguf"), "-q", "--last-logits")
    server = Server(program, "-p", "0", network.rename(tmp_path / os.fsdecode(b"m\xff.so")))
    refused = lambda: server.chat("a<tool>", 400)["error"]["message"]
    said = together([lambda: server.said("Once upon a time", max_tokens=150) for _ in range(3)] + [refused] * 20)
    assert len({*said[:3]}) == 1 and "no word for token 105" in said[3], said
    assert server.chat("a", max_tokens=1)["model"] == json.loads(server.ask("/v1/models")[1])["data"][0]["id"] == "m\ufffd.so"
    assert server.events("a", max_tokens=2, stream_options={"include_usage": True})[-1]["model"] == "m\ufffd.so" and server.end() == (0, "")


def test_it_ends_when_answers_have(server):
    """SIGTERM: what runs is answered, nothing new is."""
    jobs = concurrent.futures.ThreadPoolExecutor(4)
    asked = [jobs.submit(server.said, t, max_tokens=150, temperature=1, seed=1) for t in BEGINNINGS[:4]]
    server.until(lambda m: m["chat_requests_total"] >= 5)
    assert server.end(signal.SIGINT) == (0, "")
    assert all(len(a.result()) > 20 for a in asked)
    with pytest.raises(OSError):
        server.ask("/health")


def test_folders_and_wrong_use(program, tmp_path):
    folder, _ = letters_folder(tmp_path / "model")
    network = compile_to(tmp_path / "m.so", ROOT / "examples/story/babyllama-int4.onnx", "-q", "--last-logits")
    server = Server(program, "-p", "0", folder, network)
    assert server.said("Once upon a time", max_tokens=60).startswith(", there was a little girl named Lily")
    assert server.end() == (0, "")
    run = lambda *args: subprocess.run([program, *args], capture_output=True, text=True, timeout=60)
    for args in ([], ["-s", "0", network], ["-p", "x", network], [folder], ["-z", network]):
        assert run(*args).returncode == 2
    for args, text in (([network], "no tokenizer"), (["-f", "x", folder, network], "-f asks"), (["-H", "nowhere", folder, network], "cannot listen"),
                       ([tmp_path / "none.so"], "none.so")):
        done = run(*args)
        assert done.returncode == 1 and text in done.stderr


def client(server, number, until):
    """Comes and goes; what was asked for and what came."""
    rng, counts = random.Random(number), {"whole": 0, "streams": 0, "gone": 0, "refused": 0, "wrong": 0}
    while time.monotonic() < until:
        more = {"max_tokens": rng.randrange(1, 60), "temperature": rng.choice((0, 1)), "seed": number, "stream": rng.random() < 0.5}
        kind, text = rng.random(), rng.choice(BEGINNINGS)
        if kind < 0.25:
            with contextlib.closing(begin_stream(server, text, **more)) as s:
                if rng.random() < 0.7:
                    s.recv(rng.choice((1, 300)))
            counts["gone"] += 1
        elif kind < 0.35:
            assert server.ask(PLACE, {"messages": text, **more})[0] == 400
            counts["wrong"] += 1
        else:
            status, body = server.ask(PLACE, {"messages": [{"role": "user", "content": text}], **more}, timeout=30)
            assert status in (200, 429), body
            assert status == 429 or body.endswith("data: [DONE]\n\n" if more["stream"] else "}")
            counts["refused" if status == 429 else "streams" if more["stream"] else "whole"] += 1
    return counts


def test_soak(tmp_path, network):
    """64 clients that come and go: all that is asked for is answered, and at the end nothing is left, by AddressSanitizer's word too."""
    server = Server(made(tmp_path, "-O1 -g -fsanitize=address,undefined"), "-p", "0", "-s", "16", "-q", "24", network)
    assert server.ask("/health")[0] == 200
    files, until = server.files(), time.monotonic() + 6
    found = together([lambda n=n: client(server, n, until) for n in range(64)])
    total = {k: sum(f[k] for f in found) for k in found[0]}
    assert total["whole"] > 30 and total["streams"] > 30 and total["gone"] > 30 and total["wrong"] > 5, total
    server.until(lambda m: m["chat_running"] == m["chat_waiting"] == 0)
    m = server.metrics()
    answers = {k: m[f'chat_answers_total{{end="{k}"}}'] for k in ("finished", "cancelled", "failed")}
    assert answers["failed"] == 0 and answers["finished"] >= total["whole"] + total["streams"]
    assert answers["finished"] + answers["cancelled"] <= total["whole"] + total["streams"] + total["gone"]
    end = time.monotonic() + 10
    while server.files() > files + 1 and time.monotonic() < end:
        time.sleep(0.05)
    assert server.files() <= files + 1
    assert server.end() == (0, "")
