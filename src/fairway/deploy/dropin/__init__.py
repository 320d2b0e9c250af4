"""Checks what `torch.onnx.export` writes in a script that is not changed: see `stock_export`."""
