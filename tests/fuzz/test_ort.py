"""Random ONNX networks beside ONNX Runtime, a few: `make fuzz-ort` draws as many as one likes. MCC_FUZZ_SEED: the first."""
import os

from fuzz.ort.main import run
from support.tool import BUILD

N = 300


def test_networks_beside_onnx_runtime():
    seed = int(os.environ.get("MCC_FUZZ_SEED", 1))
    print(f"{N} networks from seed {seed}")
    tally = run(N, seed, os.cpu_count() or 1, keep=BUILD.resolve() / "fuzz-ort")
    assert not tally.bad, f"{tally.summary()}\nmake fuzz-ort N={N} SEED={seed}"
    assert tally.kinds["agree"] > 0.9 * N, tally.summary()
