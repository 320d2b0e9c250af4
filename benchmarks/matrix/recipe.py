"""Qwen2's text tower at a tiny size and without its cache, written so that transformers 4 and 5 both build it.

Seed 002's blocker, pytorch/pytorch#163713, was reported with transformers 4.53.0.
"""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

import fairway

VOCABULARY = 97


class Text(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
        )
        self.model = Qwen2ForCausalLM(config).eval()

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


text = fairway.Recipe(
    Text,
    [f"input_ids: int64[batch, seq] < {VOCABULARY}", "attention_mask: int64[batch, seq] = keep"],
    bounds={"batch": (1, 4), "seq": (1, 64)},
    example={"batch": 2, "seq": 9},
    output_names=["logits"],
)
