"""Random ONNX networks, compiled and run beside ONNX Runtime (see main.py)."""
