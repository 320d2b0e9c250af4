"""The towers of Qwen2.5-VL, each wrapped to plain tensors in and out, as its team exports them."""

import torch
from torch import nn
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_position_ids,
    get_vision_window_index,
)

# Qwen2.5-VL-3B-Instruct, for reference and for those who have 6 GB to spare. Nothing here builds it.
QWEN_3B = {
    "text_config": {
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 128000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    },
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
    "image_token_id": 151655,
    "tie_word_embeddings": True,
}

# The same architecture at a size that builds in a moment: every kind of layer, few of each.
TINY = {
    "text_config": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "vision_config": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
    },
    "image_token_id": 500,
    "video_token_id": 501,
    "vision_start_token_id": 502,
    "vision_end_token_id": 503,
    "tie_word_embeddings": True,
}

IMAGE_SIDE = 672


def build_model(numbers=TINY, attention="eager", dtype=torch.float32, seed=2025):
    """The whole vision-language model with seeded random weights, in evaluation mode."""
    config = Qwen2_5_VLConfig(**numbers)
    config._attn_implementation = attention
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # The library's initial 0.02 leaves narrow layers almost silent: a fault would not show.
                if parameter.ndim > 1:
                    parameter.normal_(std=parameter[0].numel() ** -0.5)
                elif name.endswith("bias"):
                    parameter.normal_(std=0.1)
    return model.to(dtype).eval()


class Qwen25VLTextWrapper(nn.Module):
    """`(input_ids, attention_mask)` to `logits[batch, seq, vocab]`, without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False, return_dict=True)
        return outputs.logits


class Qwen25VLTextImageWrapper(nn.Module):
    """As above, with `image_embeds[batch, seq, hidden]` taking the place of the image tokens' embeddings.

    Image tokens get the positions of ordinary text: the wrapper does not know their grid.
    """

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.image_token_id = model.config.image_token_id

    def forward(self, input_ids, attention_mask, image_embeds):
        inputs_embeds = self.model.get_input_embeddings()(input_ids)
        is_image = (input_ids == self.image_token_id).unsqueeze(-1)
        inputs_embeds = torch.where(is_image, image_embeds.to(inputs_embeds.dtype), inputs_embeds)
        outputs = self.model(
            inputs_embeds=inputs_embeds, attention_mask=attention_mask, use_cache=False, return_dict=True
        )
        return outputs.logits


def build_patches_and_grid(pixel_values, patch_size=14, temporal_patch_size=2, merge_size=2):
    """One image, already resized and normalized, cut as the processor cuts it: `(patches, grid_thw)`."""
    _, channels, height, width = pixel_values.shape
    grid_h, grid_w = height // patch_size, width // patch_size
    frames = pixel_values.repeat(temporal_patch_size, 1, 1, 1)  # a still image is two equal frames
    patches = frames.reshape(
        1,
        temporal_patch_size,
        channels,
        grid_h // merge_size,
        merge_size,
        patch_size,
        grid_w // merge_size,
        merge_size,
        patch_size,
    )
    patches = patches.permute(0, 3, 6, 4, 7, 2, 1, 5, 8)
    patches = patches.reshape(grid_h * grid_w, channels * temporal_patch_size * patch_size * patch_size)
    grid_thw = torch.tensor([[1, grid_h, grid_w]], dtype=torch.int64, device=pixel_values.device)
    return patches, grid_thw


class Qwen25VLVisionWrapper(nn.Module):
    """`pixel_values[1, 3, 672, 672]` to `[576, hidden]`; the grid is worked out inside, from the image."""

    def __init__(self, model):
        super().__init__()
        self.visual = model.model.visual

    def forward(self, pixel_values):
        patches, grid_thw = build_patches_and_grid(pixel_values)
        return self.visual(patches, grid_thw=grid_thw, return_dict=True).pooler_output


class Qwen25VLVision672Wrapper(Qwen25VLVisionWrapper):
    """The same tower for 672×672 alone, with all that follows from the grid worked out beforehand.

    From the grid's numbers the tower makes loops, list lengths and split sizes, which `torch.export` does not
    follow. For one image size they are constants, and transformers takes them as arguments.
    """

    def __init__(self, model):
        super().__init__(model)
        config = self.visual.config
        patches_per_side = IMAGE_SIDE // config.patch_size
        grid_thw = torch.tensor([[1, patches_per_side, patches_per_side]])
        position_ids = get_vision_position_ids(grid_thw, config.spatial_merge_size)
        window_index, cu_window_seqlens = get_vision_window_index(
            grid_thw, config.spatial_merge_size, config.window_size, config.patch_size
        )
        self.register_buffer("grid_thw", grid_thw, persistent=False)
        self.register_buffer("position_ids", position_ids, persistent=False)
        self.register_buffer("window_index", window_index, persistent=False)
        # The attention takes differences of these and calls .tolist(), to split by window. Arrays answer with
        # plain numbers where a tensor under export answers with unknowns.
        self.cu_seqlens = get_vision_cu_seqlens(grid_thw).numpy()
        self.cu_window_seqlens = cu_window_seqlens.numpy()

    def forward(self, pixel_values):
        patches, _ = build_patches_and_grid(pixel_values)
        outputs = self.visual(
            patches,
            grid_thw=self.grid_thw,
            position_ids=self.position_ids,
            window_index=self.window_index,
            cu_seqlens=self.cu_seqlens,
            cu_window_seqlens=self.cu_window_seqlens,
            return_dict=True,
        )
        return outputs.pooler_output
