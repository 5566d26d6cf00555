"""Other quantizers, each run by a Python of its own: quantizers.py NAME MODEL FOLDER. FOLDER/samples.npz and unseen.npz have inputs by name, stacked.

Writes the quantized network, FOLDER/NAME.xml or .onnx, and its outputs for the unseen samples, FOLDER/NAME.npz. Options are the defaults, but that
NNCF is told what is a transformer. neural-compressor quantizes as QDQ, by statistics, without tuning.
"""
import pathlib
import sys

import numpy as np

TRANSFORMERS = {"bert", "vit_b_16", "swin_t"}


def rows(path):
    stored = np.load(path)
    return [{n: np.ascontiguousarray(stored[n][k]) for n in stored.files} for k in range(len(stored[stored.files[0]]))]


def nncf(model, folder, samples, unseen):
    import nncf
    import openvino
    net = openvino.Core().read_model(str(model))
    net.reshape({name: list(x.shape) for name, x in samples[0].items()})
    kind = nncf.ModelType.TRANSFORMER if model.stem.removesuffix("_static") in TRANSFORMERS else None
    net = nncf.quantize(net, nncf.Dataset(samples), subset_size=len(samples), model_type=kind)
    openvino.save_model(net, folder / "nncf.xml", compress_to_fp16=False)
    compiled = openvino.compile_model(net, "CPU", {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1})
    return [compiled(x)[0] for x in unseen]


def neural_compressor(model, folder, samples, unseen):
    import onnxruntime
    from neural_compressor import PostTrainingQuantConfig, quantization

    class Loader:
        batch_size = 1

        def __iter__(self):
            return iter((x if len(x) > 1 else next(iter(x.values())), None) for x in samples)
    config = PostTrainingQuantConfig(approach="static", quant_format="QDQ", calibration_sampling_size=len(samples))
    quantization.fit(str(model), config, calib_dataloader=Loader()).save(str(folder / "neural-compressor.onnx"))
    session = onnxruntime.InferenceSession(str(folder / "neural-compressor.onnx"), providers=["CPUExecutionProvider"])
    return [session.run(None, x)[0] for x in unseen]


# How it quantizes, and the program of peers.py that runs the file
QUANTIZERS = {"nncf": (nncf, "openvino", "xml"), "neural-compressor": (neural_compressor, "ort", "onnx")}

if __name__ == "__main__":
    name, model, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    np.savez(folder / f"{name}.npz", *QUANTIZERS[name][0](model, folder, rows(folder / "samples.npz"), rows(folder / "unseen.npz")))
