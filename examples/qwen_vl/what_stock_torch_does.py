"""Exports the towers with stock torch.onnx and measures each file against PyTorch at other sizes.

Every route is asked for dynamic batch and length, from an example padded on the right. Differences are
given separately for real tokens and for padding.

    python what_stock_torch_does.py [text_eager] [text_sdpa] [text_eager_fp16] [text_sdpa_fp16] [vision]
"""

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import onnxruntime as ort
import torch
from torch.export import Dim
from towers import Qwen25VLTextWrapper, Qwen25VLVision672Wrapper, Qwen25VLVisionWrapper, build_model

BOTH = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
TEXT_ROUTES = {
    "dynamo": {"dynamo": True, "dynamic_shapes": (BOTH, BOTH)},
    "dynamo, opset 23": {"dynamo": True, "dynamic_shapes": (BOTH, BOTH), "opset_version": 23},
    "TorchScript": {
        "dynamo": False,
        "input_names": ["input_ids", "attention_mask"],
        "dynamic_axes": {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")},
    },
}
VISION_ROUTES = {
    "dynamo": {"dynamo": True},
    "dynamo, one file": {"dynamo": True, "external_data": False},
    "TorchScript": {"dynamo": False},
}


def sentences(batch, seq, side):
    """Token ids, and a mask whose first row is half padding."""
    generator = torch.Generator().manual_seed(batch * seq)
    mask = torch.ones(batch, seq, dtype=torch.int64)
    if side == "left":
        mask[0, : seq // 2] = 0
    elif side == "right":
        mask[0, (seq + 1) // 2 :] = 0
    return torch.randint(500, (batch, seq), generator=generator), mask


def exported(model, inputs, options, folder):
    """An onnxruntime session, or one line about why there is none."""
    path = Path(folder) / "tower.onnx"
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.onnx.export(model, inputs, path, **options)
    except Exception as error:
        cause = error.__cause__ or error
        return f"export fails: {type(cause).__name__}: {str(cause).strip().splitlines()[0]}"
    try:
        return ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        return f"onnxruntime cannot load it: {str(error).split('] ', 2)[-1].splitlines()[0]}"


def differences(model, session, inputs):
    with torch.no_grad():
        expected = model(*inputs)
    feeds = {i.name: value.numpy() for i, value in zip(session.get_inputs(), inputs, strict=True)}
    return (expected - torch.from_numpy(session.run(None, feeds)[0])).abs()


def look_at_text(name, model):
    for route, options in TEXT_ROUTES.items():
        with tempfile.TemporaryDirectory() as folder:
            session = exported(model, sentences(2, 9, "right"), options, folder)
        if isinstance(session, str):
            print(f"{name}, {route}: {session}")
            continue
        print(f"{name}, {route}:")
        for side in ("right", "left"):
            read = unread = 0.0
            for batch, seq in ((1, 1), (2, 5), (3, 128), (4, 64)):
                inputs = sentences(batch, seq, side)
                found = differences(model, session, inputs)
                real = inputs[1].bool()
                read = max(read, float(found[real].max()))
                unread = max(unread, float(found[~real].max()) if (~real).any() else 0.0)
            print(f"    padded on the {side:5}  tokens within {read:.1g}, padding within {unread:.1g}")


def look_at_vision(name, model):
    generator = torch.Generator().manual_seed(0)
    example, other = torch.randn(2, 1, 3, 672, 672, generator=generator)
    for route, options in VISION_ROUTES.items():
        with tempfile.TemporaryDirectory() as folder:
            session = exported(model, (example,), options, folder)
        if isinstance(session, str):
            print(f"{name}, {route}: {session}")
        else:
            print(f"{name}, {route}: within {float(differences(model, session, (other,)).max()):.1g}")


def main(wanted):
    torch.set_num_threads(1)
    ort.set_default_logger_severity(4)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    for attention in ("eager", "sdpa"):
        for suffix, dtype in (("", torch.float32), ("_fp16", torch.float16)):
            name = f"text_{attention}{suffix}"
            if not wanted or name in wanted:
                look_at_text(name, Qwen25VLTextWrapper(build_model(attention=attention, dtype=dtype)))
    if not wanted or "vision" in wanted:
        for attention in ("eager", "sdpa"):
            model = build_model(attention=attention)
            look_at_vision(f"vision as written, {attention}", Qwen25VLVisionWrapper(model))
            look_at_vision(f"vision for 672×672, {attention}", Qwen25VLVision672Wrapper(model))


if __name__ == "__main__":
    main(sys.argv[1:])
