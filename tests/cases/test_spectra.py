"""DFT and STFT beside NumPy: of lengths that are products of small tables, of one table, and those that call the runtime."""
import numpy as np
import pytest
from onnx import TensorProto as T

from support.artifact import ModelError
from support.compare import Model, floats, node
from support.tool import value

LENGTHS = [1, 2, 3, 5, 16, 17, 20, 30, 31, 97, 128, 210, 400, 509, 512, 1000, 4096]
CALLED = {509, 4096}    # the tables would be too large


def pairs(z):
    return np.stack([z.real, z.imag], -1)


def close(got, want):
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * max(1, np.abs(want).max()) * want.size ** 0.5)


@pytest.mark.parametrize("n", LENGTHS)
def test_dft(n, tmp_path):
    """Real and complex, forward, inverse, one-sided; the axis between others."""
    z = floats(2, n, 3, seed=1).astype(np.float64) + 1j * floats(2, n, 3, seed=2)
    for form, (x, want, attributes) in {
            "complex": (z, np.fft.fft(z, axis=1), {}), "inverse": (z, np.fft.ifft(z, axis=1), {"inverse": 1}),
            "real": (z.real, np.fft.fft(z.real, axis=1), {}), "inverse of real": (z.real, np.fft.ifft(z.real, axis=1), {"inverse": 1}),
            "one-sided": (z.real, np.fft.rfft(z.real, axis=1), {"onesided": 1})}.items():
        x = pairs(x) if np.iscomplexobj(x) else x[..., None]
        (folder := tmp_path / form).mkdir()
        model = Model(folder, [node("DFT", "x", "y", axis=1, **attributes)], [value("x", ["rows", n, 3, x.shape[-1]], T.DOUBLE)],
                      [value("y", None, T.DOUBLE)], {}, 17)
        close(model.run([x])[0], pairs(want))
        assert (" = dft(" in model.dump("legalize")) == (n in CALLED)


@pytest.mark.parametrize("samples, length, step", [(1000, 400, 160), (1000, 20, 20), (77, 16, 3), (77, 16, 23), (64, 64, 1), (33, 33, 50),
                                                   (400, 250, 4)])
@pytest.mark.parametrize("window", [False, True])
def test_stft(samples, length, step, window, tmp_path):
    """Frames of a known and a symbolic number of samples, one after the other or with gaps."""
    x, w = floats(2, samples, 1, seed=3).astype(np.float64), floats(length, seed=4).astype(np.float64)
    frames = np.stack([x[:, k:k + length, 0] for k in range(0, samples - length + 1, step)], 1)
    want = pairs(np.fft.rfft(frames * (w if window else 1)))
    constants = {"step": np.int64(step), "length": np.int64(length)} | ({"w": w} if window else {})
    for dims in ([2, samples, 1], ["batch", "samples", 1]):
        (folder := tmp_path / str(dims[0])).mkdir()
        model = Model(folder, [node("STFT", f"x step {'w' if window else '_'} length", "y")], [value("x", dims, T.DOUBLE)],
                      [value("y", None, T.DOUBLE)], constants, 17)
        close(model.run([x])[0], want)
        assert (" = gather(" in model.dump("legalize")) == (step > length or length > 32 * step)


def test_frames_longer_than_the_signal(tmp_path):
    model = Model(tmp_path, [node("STFT", "x step _ length", "y")], [value("x", [1, "samples", 1])], [value("y", None)],
                  {"step": np.int64(8), "length": np.int64(16)}, 17)
    with pytest.raises(ModelError, match="a frame is longer than the signal"):
        model.run([floats(1, 12, 1)])


def test_size(tmp_path):
    """Ten seconds of speech: frames are slices, and the artifact is no larger than others."""
    model = Model(tmp_path, [node("STFT", "x step w length", "y")], [value("x", [1, 160000, 1])], [value("y", None)],
                  {"step": np.int64(160), "length": np.int64(400), "w": floats(400)}, 17)
    assert model.compile().stat().st_size < 500_000
