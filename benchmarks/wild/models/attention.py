"""Variants of attention and of transformers for sequences."""

from __future__ import annotations

from entry import model

IDS = "x: int64[batch, time] < 64"
SEQUENCE = "x: float32[batch, time, 32]"
MASKED = (SEQUENCE, "mask: bool[batch, time] = keep-right-padded")
SPAN = {"batch": (1, 4), "time": (2, 32)}


@model("x-transformers", IDS, **SPAN)
def decoder():
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4))


@model("x-transformers", IDS, "mask: bool[batch, time] = keep-right-padded", **SPAN)
def rotary_encoder():
    from x_transformers import Encoder, TransformerWrapper

    layers = Encoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True)
    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=layers)


@model("x-transformers", "x: float32[batch, time, 16]", "mask: bool[batch, time] = keep-right-padded", **SPAN)
def continuous():
    from x_transformers import ContinuousTransformerWrapper, Encoder

    layers = Encoder(dim=32, depth=2, heads=4, alibi_pos_bias=True)
    return ContinuousTransformerWrapper(dim_in=16, dim_out=10, max_seq_len=32, attn_layers=layers)


@model("linear-attention-transformer", IDS, batch=(1, 4), time=(8, 32), multiples={"time": 8})
def language_model():
    from linear_attention_transformer import LinearAttentionTransformerLM

    return LinearAttentionTransformerLM(
        num_tokens=64,
        dim=32,
        heads=4,
        depth=2,
        max_seq_len=32,
        causal=False,
        n_local_attn_heads=2,
        local_attn_window_size=8,
    )


@model("reformer-pytorch", IDS, batch=(1, 4), time=(16, 64), multiples={"time": 16})
def full_attention_reformer():
    from reformer_pytorch import ReformerLM

    return ReformerLM(
        num_tokens=64, dim=32, depth=2, heads=4, max_seq_len=64, bucket_size=8, use_full_attn=True, causal=True
    )


@model("performer-pytorch", IDS, batch=(1, 4), time=(2, 32))
def language_model():
    from performer_pytorch import PerformerLM

    return PerformerLM(
        num_tokens=64,
        max_seq_len=32,
        dim=32,
        depth=2,
        heads=4,
        nb_features=16,
        causal=False,
        feature_redraw_interval=None,
    )


@model("performer-pytorch", SEQUENCE, **SPAN)
def self_attention():
    from performer_pytorch import SelfAttention

    return SelfAttention(dim=32, heads=4, nb_features=16, causal=False)


@model("linformer", "x: int64[batch, 32] < 64", batch=(1, 4))
def language_model():
    from linformer import LinformerLM

    return LinformerLM(num_tokens=64, dim=32, seq_len=32, depth=2, heads=4, k=8)


@model("perceiver-pytorch", "data: float32[batch, h, w, 3]", batch=(1, 4), h=(8, 16), w=(8, 16))
def perceiver():
    from perceiver_pytorch import Perceiver

    return Perceiver(
        input_channels=3,
        input_axis=2,
        num_freq_bands=3,
        max_freq=10.0,
        depth=2,
        num_latents=8,
        latent_dim=32,
        cross_heads=1,
        latent_heads=4,
        cross_dim_head=8,
        latent_dim_head=8,
        num_classes=10,
        self_per_cross_attn=1,
    )


@model("perceiver-pytorch", "data: float32[batch, time, 32]", "queries: float32[asked, 32]", **SPAN, asked=(1, 9))
def perceiver_io():
    from perceiver_pytorch import PerceiverIO

    return PerceiverIO(
        dim=32,
        queries_dim=32,
        logits_dim=10,
        depth=2,
        num_latents=8,
        latent_dim=32,
        cross_heads=1,
        latent_heads=4,
        cross_dim_head=8,
        latent_dim_head=8,
    )


@model("local-attention", IDS, "mask: bool[batch, time] = keep-right-padded", **SPAN)
def local_transformer():
    from local_attention import LocalTransformer

    return LocalTransformer(
        num_tokens=64, dim=32, depth=2, heads=4, max_seq_len=64, causal=True, local_attn_window_size=8
    )


@model("routing-transformer", IDS, batch=(1, 3), time=(16, 32), multiples={"time": 16})
def routing_language_model():
    from routing_transformer import RoutingTransformerLM

    return RoutingTransformerLM(
        num_tokens=64,
        dim=32,
        heads=4,
        depth=1,
        max_seq_len=64,
        causal=False,
        n_local_attn_heads=2,
        local_attn_window_size=8,
        window_size=8,
    )


@model("sinkhorn-transformer", IDS, batch=(1, 3), time=(8, 32), multiples={"time": 8})
def sinkhorn_language_model():
    from sinkhorn_transformer import SinkhornTransformerLM

    return SinkhornTransformerLM(num_tokens=64, dim=32, heads=4, depth=1, max_seq_len=32, bucket_size=8, causal=False)


@model("h-transformer-1d", IDS, "mask: bool[batch, time] = keep-right-padded", batch=(1, 3), time=(17, 64))
def hierarchical():
    from h_transformer_1d import HTransformer1D

    return HTransformer1D(
        num_tokens=64, dim=32, depth=1, causal=False, max_seq_len=64, heads=4, dim_head=8, block_size=8
    )


@model("taylor-series-linear-attention", *MASKED, **SPAN)
def taylor_attention():
    from taylor_series_linear_attention import TaylorSeriesLinearAttn

    return TaylorSeriesLinearAttn(dim=32, dim_head=4, heads=4)


@model("nystrom-attention", *MASKED, **SPAN)
def nystromer():
    from nystrom_attention import NystromAttention

    return NystromAttention(dim=32, dim_head=8, heads=4, num_landmarks=8, pinv_iterations=6, residual=True)


@model("agent-attention-pytorch", *MASKED, **SPAN)
def agent_transformer():
    from agent_attention_pytorch import AgentTransformer

    return AgentTransformer(dim=32, depth=2, num_agent_tokens=8, dim_head=8, heads=4)


@model("mega-pytorch", IDS, **SPAN)
def mega():
    from mega_pytorch.mega_pytorch import Mega

    return Mega(num_tokens=64, dim=32, depth=2, ema_heads=4, attn_dim_qk=16, attn_dim_value=32, laplacian_attn_fn=True)


@model("g-mlp-pytorch", "x: int64[batch, 32] < 64", batch=(1, 4))
def gated_mlp():
    from g_mlp_pytorch import gMLP

    return gMLP(num_tokens=64, dim=32, depth=2, seq_len=32, circulant_matrix=True)


@model("soft-moe-pytorch", *MASKED, **SPAN)
def soft_experts():
    from soft_moe_pytorch import SoftMoE

    return SoftMoE(dim=32, num_slots=2, num_experts=4)


@model("st-moe-pytorch", SEQUENCE, **SPAN)
def sparse_experts():
    from st_moe_pytorch import MoE

    return MoE(dim=32, num_experts=4, gating_top_n=2, threshold_train=0.2, threshold_eval=0.2, capacity_factor_eval=2.0)


@model("MEGABYTE-pytorch", "ids: int64[batch, time] < 64", **SPAN)
def megabyte():
    from MEGABYTE_pytorch import MEGABYTE

    return MEGABYTE(num_tokens=64, dim=(32, 16), depth=(1, 1), max_seq_len=(8, 4), dim_head=8, heads=4)


@model("minGRU-pytorch", SEQUENCE, **SPAN)
def min_gru():
    from minGRU_pytorch import minGRU

    return minGRU(32, expansion_factor=1.5)


@model("mambapy", SEQUENCE, **SPAN)
def mamba():
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=32, n_layers=2))


@model("mambapy", SEQUENCE, **SPAN)
def mamba_by_steps():
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=32, n_layers=1, pscan=False))


@model("slot-attention", "inputs: float32[batch, time, 32]", **SPAN, impossible="draws its slots from noise")
def slots():
    from slot_attention import SlotAttention

    return SlotAttention(num_slots=3, dim=32, iters=2)


@model("vector-quantize-pytorch", SEQUENCE, **SPAN)
def vector_quantizer():
    from vector_quantize_pytorch import VectorQuantize

    return VectorQuantize(dim=32, codebook_size=16, decay=0.8, commitment_weight=1.0)


@model("vector-quantize-pytorch", SEQUENCE, **SPAN)
def residual_quantizer():
    from vector_quantize_pytorch import ResidualVQ

    return ResidualVQ(dim=32, num_quantizers=3, codebook_size=16)


@model("vector-quantize-pytorch", "z: float32[batch, time, 32]", **SPAN)
def finite_scalar_quantizer():
    from vector_quantize_pytorch import FSQ

    return FSQ(levels=[8, 5, 5], dim=32)


@model("xlstm", SEQUENCE, **SPAN)
def xlstm_block_stack():
    from xlstm import (
        FeedForwardConfig,
        mLSTMBlockConfig,
        mLSTMLayerConfig,
        sLSTMBlockConfig,
        sLSTMLayerConfig,
        xLSTMBlockStack,
        xLSTMBlockStackConfig,
    )

    return xLSTMBlockStack(
        xLSTMBlockStackConfig(
            mlstm_block=mLSTMBlockConfig(
                mlstm=mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=4)
            ),
            slstm_block=sLSTMBlockConfig(
                slstm=sLSTMLayerConfig(backend="vanilla", num_heads=4, conv1d_kernel_size=4),
                feedforward=FeedForwardConfig(proj_factor=1.3, act_fn="gelu"),
            ),
            context_length=32,
            num_blocks=2,
            embedding_dim=32,
            slstm_at=[1],
        )
    )
