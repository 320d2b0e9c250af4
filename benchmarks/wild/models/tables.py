"""Tables, recommendation and policies: rows of features in, scores or actions out."""

from __future__ import annotations

import torch
from entry import Calling, model
from torch import nn

BATCH = {"batch": (1, 16)}
CATEGORIES = "int64[batch, 3] < 5"


@model("pytorch-tabnet", "x: float32[batch, 8]", **BATCH)
def tabnet():
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(8, 3, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(8))


@model("pytorch-tabnet", "x: float32[batch, 8]", **BATCH)
def tabnet_entmax():
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(8, 3, n_d=4, n_a=4, n_steps=2, mask_type="entmax", group_attention_matrix=torch.eye(8))


@model("tab-transformer-pytorch", f"x_categ: {CATEGORIES}", "x_cont: float32[batch, 4]", **BATCH)
def tab_transformer():
    from tab_transformer_pytorch import TabTransformer

    return TabTransformer(
        categories=(5, 5, 5),
        num_continuous=4,
        dim=16,
        depth=2,
        heads=4,
        dim_out=1,
        mlp_act=nn.ReLU(),
        continuous_mean_std=torch.tensor([[0.1, 1.0], [0.0, 2.0], [0.2, 0.5], [0.0, 1.0]]),
    )


@model("tab-transformer-pytorch", f"x_categ: {CATEGORIES}", "x_numer: float32[batch, 4]", **BATCH)
def ft_transformer():
    from tab_transformer_pytorch import FTTransformer

    return FTTransformer(categories=(5, 5, 5), num_continuous=4, dim=16, depth=2, heads=4, dim_out=1)


@model("rtdl-revisiting-models", "x_cont: float32[batch, 4]", f"x_cat: {CATEGORIES}", **BATCH)
def rtdl_ft_transformer():
    from rtdl_revisiting_models import FTTransformer

    return FTTransformer(
        n_cont_features=4,
        cat_cardinalities=[5, 5, 5],
        d_out=2,
        n_blocks=2,
        d_block=16,
        attention_n_heads=4,
        attention_dropout=0.2,
        ffn_d_hidden=None,
        ffn_d_hidden_multiplier=4 / 3,
        ffn_dropout=0.1,
        residual_dropout=0.0,
    )


@model("rtdl-num-embeddings", "input: float32[batch, 6]", **BATCH)
def periodic_embeddings():
    from rtdl_num_embeddings import PeriodicEmbeddings

    return nn.Sequential(PeriodicEmbeddings(6, d_embedding=8, lite=False), nn.Flatten(), nn.Linear(48, 1))


@model("rtdl-num-embeddings", "input: float32[batch, 6]", **BATCH)
def piecewise_linear_embeddings():
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings, compute_bins

    bins = compute_bins(torch.randn(200, 6), n_bins=8)
    return nn.Sequential(
        PiecewiseLinearEmbeddings(bins, 8, activation=False, version="B"), nn.Flatten(), nn.Linear(48, 1)
    )


@model("tabm", "x_num: float32[batch, 6]", f"x_cat: {CATEGORIES}", **BATCH)
def tabm():
    from tabm import TabM

    return TabM.make(n_num_features=6, cat_cardinalities=[5, 5, 5], d_out=1, k=4, n_blocks=2, d_block=16)


@model("entmax", "x: float32[batch, 12]", **BATCH)
def entmax_and_sparsemax():
    from entmax import entmax15, sparsemax

    class Both(nn.Module):
        def forward(self, x):
            return sparsemax(x, dim=-1), entmax15(x, dim=-1)

    return Both()


@model("entmax", "x: float32[batch, 12]", **BATCH)
def entmax_by_bisection():
    from entmax import entmax_bisect

    class Bisect(nn.Module):
        def forward(self, x):
            return entmax_bisect(x, alpha=1.33, dim=-1)

    return Bisect()


def _columns():
    from deepctr_torch.inputs import DenseFeat, SparseFeat

    return [SparseFeat(name, 8, embedding_dim=4) for name in "abc"] + [DenseFeat(name, 1) for name in "de"]


@model("deepctr-torch", "X: float32[batch, 5] in 0..7", **BATCH)
def deepfm():
    from deepctr_torch.models import DeepFM

    return DeepFM(_columns(), _columns(), dnn_hidden_units=(16, 8), task="binary")


@model("deepctr-torch", "X: float32[batch, 5] in 0..7", **BATCH)
def xdeepfm():
    from deepctr_torch.models import xDeepFM

    return xDeepFM(_columns(), _columns(), dnn_hidden_units=(16, 8), cin_layer_size=(8, 8))


@model("deepctr-torch", "X: float32[batch, 5] in 0..7", **BATCH)
def autoint():
    from deepctr_torch.models import AutoInt

    return AutoInt(_columns(), _columns(), att_layer_num=2, att_head_num=2, dnn_hidden_units=(16, 8))


@model("deepctr-torch", "X: float32[batch, 5] in 0..7", **BATCH)
def dcn_mix():
    from deepctr_torch.models import DCNMix

    return DCNMix(_columns(), _columns(), cross_num=2, low_rank=4, num_experts=2, dnn_hidden_units=(16, 8))


RECHUB = ("x.a: int64[batch] < 8", "x.b: int64[batch] < 8", "x.d: float32[batch]")


def _features():
    from torch_rechub.basic.features import DenseFeature, SparseFeature

    return [SparseFeature("a", 8, embed_dim=4), SparseFeature("b", 8, embed_dim=4)], [DenseFeature("d")]


@model("torch-rechub", *RECHUB, **BATCH)
def wide_and_deep():
    from torch_rechub.models.ranking import WideDeep

    sparse, dense = _features()
    return WideDeep(sparse + dense, sparse, mlp_params={"dims": [16, 8], "dropout": 0.2, "activation": "relu"})


@model("torch-rechub", "x.a: int64[batch] < 8", "x.h: int64[batch, time] < 8", batch=(1, 8), time=(2, 10))
def interest_network():
    from torch_rechub.basic.features import SequenceFeature, SparseFeature
    from torch_rechub.models.ranking import DIN

    target = [SparseFeature("a", 8, embed_dim=4)]
    history = [SequenceFeature("h", 8, embed_dim=4, pooling="concat", shared_with="a")]
    return DIN(target, history, target, mlp_params={"dims": [16, 8]}, attention_mlp_params={"dims": [8]})


@model("torch-rechub", *RECHUB, **BATCH)
def mixture_of_tasks():
    from torch_rechub.models.multi_task import MMOE

    sparse, dense = _features()
    return MMOE(sparse + dense, ["classification", "regression"], 3, {"dims": [8]}, [{"dims": [8]}, {"dims": [8]}])


def _spaces():
    import gymnasium
    import numpy as np

    box = gymnasium.spaces.Box
    return box(-1, 1, (4,), np.float32), gymnasium.spaces.Discrete(3), box(-1, 1, (2,), np.float32)


@model("stable-baselines3", "x: float32[batch, 4] in -1..1", **BATCH)
def actor_critic():
    from stable_baselines3.common.policies import ActorCriticPolicy

    space, actions, _ = _spaces()
    return Calling(ActorCriticPolicy(space, actions, lambda _: 0.1), lambda held, x: held(x, deterministic=True))


@model("stable-baselines3", "x: float32[batch, 4] in -1..1", **BATCH)
def soft_actor():
    from stable_baselines3.sac.policies import SACPolicy

    space, _, actions = _spaces()
    return Calling(
        SACPolicy(space, actions, lambda _: 0.1, net_arch=[16, 16]), lambda held, x: held.actor(x, deterministic=True)
    )


@model("stable-baselines3", "x: uint8[batch, 3, 36, 36] < 255", batch=(1, 4))
def pixels_to_values():
    from stable_baselines3.dqn.policies import CnnPolicy

    _, actions, _ = _spaces()
    import gymnasium
    import numpy as np

    space = gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8)
    return Calling(CnnPolicy(space, actions, lambda _: 0.1), lambda held, x: held.q_net(x))


@model("pytorch-metric-learning", "x: float32[batch, 8]", batch=(2, 12))
def cosine_similarity():
    from pytorch_metric_learning.distances import CosineSimilarity, LpDistance

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.cosine, self.lp = CosineSimilarity(), LpDistance(power=2)

        def forward(self, x):
            return self.cosine(x), self.lp(x)

    return Both()


@model("pytorch-metric-learning", "x: float32[batch, 8]", "labels: int64[batch] < 3", batch=(2, 12))
def arcface_loss():
    from pytorch_metric_learning.losses import ArcFaceLoss

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = ArcFaceLoss(num_classes=3, embedding_size=8)

        def forward(self, x, labels):
            return self.loss(x, labels)

    return Loss()


@model("pytorch-widedeep", "X: float32[batch, 5] in 0..4", **BATCH)
def wide_deep_saint():
    from pytorch_widedeep.models import SAINT

    return SAINT(
        column_idx={n: i for i, n in enumerate("abcde")},
        cat_embed_input=[(n, 5) for n in "abc"],
        continuous_cols=["d", "e"],
        input_dim=8,
        n_heads=2,
        n_blocks=1,
    )


@model("pytorch-widedeep", "X: float32[batch, 5] in 0..4", **BATCH)
def wide_deep_tab_mlp():
    from pytorch_widedeep.models import TabMlp

    return TabMlp(
        column_idx={n: i for i, n in enumerate("abcde")},
        cat_embed_input=[(n, 5, 4) for n in "abc"],
        continuous_cols=["d", "e"],
        mlp_hidden_dims=[16, 8],
    )
