"""The routes to ONNX, their order, and the attempts along them."""
