"""The file names of a generator, as optimum's ORTModel and onnxruntime-genai expect them."""

from __future__ import annotations

DECODER, ENCODER, FIRST, NEXT = (
    "model.onnx",
    "encoder_model.onnx",
    "decoder_model.onnx",
    "decoder_with_past_model.onnx",
)
CONFIG, GENERATION, GENAI = "config.json", "generation_config.json", "genai_config.json"
RECORD = "generation.fairway.json"

_GRAPHS = (DECODER, ENCODER, FIRST, NEXT)
_ASIDE = (".wrong.onnx", ".wrong.onnx.data", ".wrong.fairway.json")
WRITTEN = (
    *_GRAPHS,
    *(name + ".data" for name in _GRAPHS),
    *(name.replace(".onnx", ".fairway.json") for name in _GRAPHS),
    *(name.replace(".onnx", end) for name in _GRAPHS for end in _ASIDE),
    CONFIG,
    GENERATION,
    GENAI,
    RECORD,
)
"""All files that an export may write into its folder, or into the folder that it keeps aside."""
