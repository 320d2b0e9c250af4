"""Generates with another tool from a delivered folder; run by an interpreter that has the tool installed.

    python other_tools.py genai|optimum FOLDER INPUTS.json

INPUTS.json holds the number of steps and token rows, or features of speech. One line of JSON comes out: the rows of new
tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Rows = list[list[int]]


def genai(folder: str, asked: dict[str, Any]) -> Rows:
    import onnxruntime_genai as og

    model, steps, made = og.Model(folder), asked["steps"], []
    for row in asked["rows"]:
        settings = og.GeneratorParams(model)
        settings.set_search_options(max_length=len(row) + steps, min_length=len(row) + steps, do_sample=False)
        generator = og.Generator(model, settings)
        generator.append_tokens(row)
        while not generator.is_done():
            generator.generate_next_token()
        made.append([int(token) for token in generator.get_sequence(0)][len(row) :])
    return made


def optimum(folder: str, asked: dict[str, Any]) -> Rows:
    sys.path += asked["packages"]
    import torch
    from optimum import onnxruntime as ort
    from transformers import GenerationMixin

    steps, paired = asked["steps"], Path(folder, "encoder_model.onnx").exists()
    if "features" in asked:
        kind, inputs = ort.ORTModelForSpeechSeq2Seq, {"input_features": torch.tensor(asked["features"])}
    else:
        kind = ort.ORTModelForSeq2SeqLM if paired else ort.ORTModelForCausalLM
        inputs = pad(asked["rows"], "right" if paired else "left")
    more = {"use_merged": False} if paired else {}
    model = kind.from_pretrained(folder, use_cache=True, use_io_binding=False, **more)
    model.generation_config.forced_eos_token_id = None
    model.generation_config.pad_token_id = 0
    out = GenerationMixin.generate(
        model, **inputs, do_sample=False, num_beams=1, max_new_tokens=steps, min_new_tokens=steps
    )
    return [row[-steps:] for row in out.tolist()]


def pad(rows: Rows, side: str) -> dict[str, Any]:
    import torch

    width = max(map(len, rows))
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, place], mask[i, place] = torch.tensor(row), 1
    return {"input_ids": ids, "attention_mask": mask}


if __name__ == "__main__":
    tool, where, given = sys.argv[1:]
    print(json.dumps({"genai": genai, "optimum": optimum}[tool](where, json.loads(Path(given).read_text()))))
