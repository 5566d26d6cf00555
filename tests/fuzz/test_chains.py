"""Long chains of computations on sizes, a few: `make fuzz-chains` draws as many as one likes. MCC_FUZZ_SEED: the first."""
import os

from fuzz.ort.chains import chain, fault, run

N = 16
# Chains that took minutes, or ended in SIGFPE: Reshape, Expand and Slice after each other, quotients of quotients.
ENDLESS = (1010, 1013, 1022)


def test_chains_end_soon():
    seed = int(os.environ.get("MCC_FUZZ_SEED", 1))
    assert not run(N, seed), f"make fuzz-chains N={N} SEED={seed}"


def test_chains_that_did_not_end(tmp_path):
    for seed in ENDLESS:
        assert not fault(chain(seed)[1], tmp_path), seed
