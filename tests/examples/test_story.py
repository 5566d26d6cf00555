"""examples/story: the program's text is what ONNX Runtime makes of the same network, letter by letter."""
import subprocess

import numpy as np
import onnxruntime
import pytest

from support.tool import BUILD, ROOT

HERE = ROOT / "examples/story"
START, END = 1, 2


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """The program, as its Makefile makes it: f(options) is the text."""
    build = tmp_path_factory.mktemp("story")
    done = subprocess.run(["make", "-C", HERE, f"BUILD={build}", f"MCC_BUILD={BUILD.absolute()}", build / "story", build / "story.so"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def tell(*options, status=0):
        done = subprocess.run([build / "story", *options], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done

    tell.files = [build / "story.so", HERE / "tok105.vocab"]
    return tell


def by_onnxruntime(prompt, steps):
    letters = [line.split("\t")[0] for line in (HERE / "tok105.vocab").read_text().splitlines()]
    session = onnxruntime.InferenceSession(HERE / "babyllama-int4.onnx", providers=["CPUExecutionProvider"])
    ids, text = [START] + [letters.index(c) for c in "▁" + prompt.replace(" ", "▁")], prompt
    past = {i.name: np.zeros((1, 4, 0, 16), np.float32) for i in session.get_inputs() if i.name.startswith("past")}
    seen, fresh = len(ids), np.array([ids])
    for _ in range(steps):
        out = session.run(None, {"input_ids": fresh, "attention_mask": np.ones((1, seen), np.int64)} | past)
        past = {o.name.replace("present", "past_key_values"): x for o, x in zip(session.get_outputs()[1:], out[1:])}
        token = int(out[0][0, -1].argmax())
        if token in (START, END):
            break
        text += {0: "\n", 3: " "}.get(token, letters[token])
        fresh, seen = np.array([[token]]), seen + 1
    return text


@pytest.mark.parametrize("prompt", ["Once upon a time", "Tom had a red ball"])
def test_likeliest_letters(story, prompt):
    assert story("-t", "0", "-n", "200", *story.files, prompt).stdout == by_onnxruntime(prompt, 200) + "\n"


def test_it_writes_english(story):
    assert story("-t", "0", "-n", "60", *story.files).stdout.startswith("Once upon a time, there was a little girl named Lily. She loved to play")


def test_drawn_letters(story):
    """A seed gives one story, another seed another one; of the likeliest letter alone none is drawn."""
    first = story("-s", "1", *story.files).stdout
    assert first == story("-s", "1", *story.files).stdout != story("-s", "2", *story.files).stdout
    assert story("-p", "1e-9", *story.files).stdout == story("-t", "0", *story.files).stdout


def test_figures_and_the_end_of_the_context(story):
    done = story("-v", "-t", "0", "-n", "1000", *story.files)
    assert "letters/s" in done.stderr and 200 < len(done.stdout) <= 256


def test_wrong_use(story, tmp_path):
    assert "usage" in story(story.files[0], status=2).stderr
    assert "usage" in story(*story.files, "a", "b", status=2).stderr
    assert "cannot be opened" in story(tmp_path / "none.so", story.files[1], status=2).stderr
