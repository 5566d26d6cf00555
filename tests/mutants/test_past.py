"""The texts that tests/mutants/past.py changes are in the sources, each once."""
from mutants import past


def test_texts():
    assert past.texts()
