"""Graphs, molecules, proteins and points in space."""

from __future__ import annotations

import torch
from entry import Calling, model
from torch import nn

CLOUD = ("feats: float32[batch, points, 16]", "coors: float32[batch, points, 3]")
SPAN = {"batch": (1, 3), "points": (4, 16)}
GRAPH = ("x: float32[nodes, 8]", "edge_index: int64[2, edges] < 5")
MANY = {"nodes": (5, 20), "edges": (1, 40)}


@model("egnn-pytorch", *CLOUD, **SPAN)
def egnn():
    from egnn_pytorch import EGNN

    return EGNN(dim=16, m_dim=8)


@model("egnn-pytorch", "feats: int64[batch, points] < 10", "coors: float32[batch, points, 3]", **SPAN)
def egnn_network():
    from egnn_pytorch import EGNN_Network

    return EGNN_Network(num_tokens=10, dim=16, depth=2, num_nearest_neighbors=3)


@model("en-transformer", *CLOUD, **SPAN)
def en_transformer():
    from en_transformer import EnTransformer

    return EnTransformer(dim=16, depth=1, dim_head=32, heads=2)


@model("se3-transformer-pytorch", *CLOUD, batch=(1, 2), points=(4, 8))
def se3_transformer():
    from se3_transformer_pytorch import SE3Transformer

    return SE3Transformer(dim=16, heads=2, depth=1, dim_head=8, num_degrees=2, num_neighbors=3)


@model(
    "point-transformer-pytorch",
    "x: float32[batch, points, 16]",
    "pos: float32[batch, points, 3]",
    "mask: bool[batch, points] = keep-right-padded",
    **SPAN,
)
def point_transformer():
    from point_transformer_pytorch import PointTransformerLayer

    return PointTransformerLayer(dim=16, pos_mlp_hidden_dim=16, attn_mlp_hidden_mult=2, num_neighbors=4)


@model(
    "invariant-point-attention",
    "single_repr: float32[batch, points, 16]",
    "rotations: float32[batch, points, 3, 3]",
    "translations: float32[batch, points, 3]",
    **SPAN,
)
def invariant_points():
    from invariant_point_attention import InvariantPointAttention

    return InvariantPointAttention(dim=16, heads=2, scalar_key_dim=8, scalar_value_dim=8, require_pairwise_repr=False)


@model(
    "graph-transformer-pytorch",
    "nodes: float32[batch, points, 16]",
    "edges: float32[batch, points, points, 8]",
    "mask: bool[batch, points] = keep-right-padded",
    **SPAN,
)
def graph_transformer():
    from graph_transformer_pytorch import GraphTransformer

    return GraphTransformer(
        dim=16, depth=2, edge_dim=8, dim_head=8, heads=2, with_feedforwards=True, gated_residual=True, rel_pos_emb=True
    )


@model("torch-geometric", *GRAPH, **MANY)
def gcn():
    from torch_geometric.nn import GCN

    return GCN(8, 16, num_layers=2, out_channels=3)


@model("torch-geometric", *GRAPH, **MANY)
def gat():
    from torch_geometric.nn import GAT

    return GAT(8, 16, num_layers=2, out_channels=3, heads=2, v2=True)


@model("torch-geometric", *GRAPH, **MANY)
def graph_sage():
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(8, 16, num_layers=2, out_channels=3)


@model("torch-geometric", *GRAPH, "batch: int64[nodes] in 0..0", **MANY)
def gin_with_pool():
    from torch_geometric.nn import GIN, global_mean_pool

    class Classify(nn.Module):
        def __init__(self):
            super().__init__()
            self.gin, self.out = GIN(8, 16, num_layers=2), nn.Linear(16, 3)

        def forward(self, x, edge_index, batch):
            return self.out(global_mean_pool(self.gin(x, edge_index), batch, size=1))

    return Classify()


@model("torch-geometric", *GRAPH, **MANY)
def chebyshev():
    from torch_geometric.nn import ChebConv

    return ChebConv(8, 4, K=3)


@model("torch-geometric", *GRAPH, "edge_attr: float32[edges, 4]", **MANY)
def graph_transformer_conv():
    from torch_geometric.nn import TransformerConv

    return TransformerConv(8, 4, heads=2, edge_dim=4)


@model("torch-geometric", "h: float32[edges]", "pos: float32[nodes, 3]", "edge_index: int64[2, edges] < 5", **MANY)
def schnet_interactions():
    from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock

    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(3, 16)
            self.smear, self.block = GaussianSmearing(0.0, 5.0, 10), InteractionBlock(16, 10, 16, 5.0)

        def forward(self, h, pos, edge_index):
            row, col = edge_index
            distance = (pos[row] - pos[col]).norm(dim=-1) + 0 * h
            return self.block(self.embed(pos), edge_index, distance, self.smear(distance)).sum(0)

    return Energy()


@model("e3nn", "x: float32[points, 7]", points=(1, 12))
def equivariant_layer():
    from e3nn import o3
    from e3nn.nn import Gate

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.product = o3.FullyConnectedTensorProduct("4x0e+1x1o", "1x0e+1x1o", "6x0e+2x1o")
            self.gate = Gate("4x0e", [torch.tanh], "2x0e", [torch.sigmoid], "2x1o")
            self.linear = o3.Linear("4x0e+2x1o", "2x0e+1x1o")

        def forward(self, x):
            harmonics = o3.spherical_harmonics("1x0e+1x1o", x[:, 4:], normalize=True)
            return self.linear(self.gate(self.product(x, harmonics)))

    return Layer()


class Represent(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, tokens):
        found = self.held(tokens, repr_layers=[2])
        return found["logits"], found["representations"][2]


@model("fair-esm", "tokens: int64[batch, time] in 4..23", batch=(1, 3), time=(2, 24))
def esm2():
    from esm.model.esm2 import ESM2

    return Represent(ESM2(num_layers=2, embed_dim=32, attention_heads=4))


@model(
    "torchani",
    "species: int64[batch, atoms] in 0..3",
    "coordinates: float32[batch, atoms, 3]",
    batch=(1, 3),
    atoms=(2, 8),
)
def atomic_environments():
    from torchani.aev import AEVComputer

    class Environments(nn.Module):
        def __init__(self):
            super().__init__()
            self.aev = AEVComputer.like_1x()

        def forward(self, species, coordinates):
            return self.aev(species, coordinates)

    return Environments()


@model("pypose", "x: float32[batch, 3] in -1..1", "p: float32[batch, 3]", batch=(1, 8))
def rotate_points():
    import pypose

    class Rotate(nn.Module):
        def forward(self, x, p):
            rotation = pypose.so3(x).Exp()
            return rotation @ p, (rotation * rotation.Inv()).tensor(), rotation.Log().tensor()

    return Rotate()


@model("roma", "x: float32[batch, 3, 3]", "v: float32[batch, 3] in -1..1", batch=(1, 8))
def rotations():
    import roma

    class Convert(nn.Module):
        def forward(self, x, v):
            quaternion = roma.rotvec_to_unitquat(v)
            return (
                roma.unitquat_to_rotmat(quaternion),
                roma.special_gramschmidt(x[..., :2]),
                roma.unitquat_to_rotvec(quaternion),
            )

    return Convert()


@model("roma", "x: float32[batch, 3, 3]", batch=(1, 8))
def procrustes():
    import roma

    return Calling(nn.Identity(), lambda held, x: roma.special_procrustes(x))
