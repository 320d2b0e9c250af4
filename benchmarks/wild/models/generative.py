"""Flows, diffusion, Gaussian processes, operators and volumes."""

from __future__ import annotations

import torch
from entry import Calling, model
from torch import nn

POINTS = "x: float32[batch, 3]"
BATCH = {"batch": (1, 8)}


@model("zuko", POINTS, "c: float32[batch, 5]", **BATCH)
def neural_spline_flow():
    import zuko

    return Likelihood(zuko.flows.NSF(3, 5, transforms=2, hidden_features=[16, 16]))


@model("zuko", POINTS, "c: float32[batch, 5]", **BATCH)
def masked_autoregressive_flow():
    import zuko

    return Likelihood(zuko.flows.MAF(3, 5, transforms=2, hidden_features=[16, 16]))


class Likelihood(nn.Module):
    def __init__(self, flow):
        super().__init__()
        self.flow = flow

    def forward(self, x, c):
        return self.flow(c).log_prob(x)


@model("nflows", POINTS, **BATCH)
def nflows_autoregressive():
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation

    steps = [
        t for _ in range(2) for t in (ReversePermutation(3), MaskedAffineAutoregressiveTransform(3, hidden_features=8))
    ]
    return Calling(Flow(CompositeTransform(steps), StandardNormal([3])), lambda held, x: held.log_prob(x))


@model("nflows", "x: float32[batch, 4]", **BATCH)
def rational_quadratic_coupling():
    from nflows.nn.nets import ResidualNet
    from nflows.transforms import PiecewiseRationalQuadraticCouplingTransform
    from nflows.utils.torchutils import create_alternating_binary_mask

    net = PiecewiseRationalQuadraticCouplingTransform(
        create_alternating_binary_mask(4),
        lambda i, o: ResidualNet(i, o, hidden_features=8, num_blocks=1),
        num_bins=4,
        tails="linear",
        tail_bound=3.0,
    )
    return Calling(net, lambda held, x: held(x))


@model("normflows", "x: float32[batch, 2]", **BATCH)
def real_nvp():
    import normflows as nf

    flows = []
    for _ in range(2):
        flows += [
            nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=True)),
            nf.flows.Permute(2, mode="swap"),
        ]
    return Calling(nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), flows), lambda held, x: held.log_prob(x))


@model("FrEIA", "x: float32[batch, 4]", **BATCH)
def all_in_one():
    import FrEIA.framework as ff
    import FrEIA.modules as fm

    net = ff.SequenceINN(4)
    for _ in range(2):
        net.append(
            fm.AllInOneBlock,
            subnet_constructor=lambda i, o: nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o)),
            permute_soft=True,
        )
    return Calling(net, lambda held, x: held(x))


@model("gpytorch", "x: float32[batch, 2]", **BATCH)
def exact_gp():
    import gpytorch

    class Regression(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    class Predict(nn.Module):
        def __init__(self):
            super().__init__()
            x = torch.rand(10, 2)
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
            self.gp = Regression(x, torch.sin(x.sum(-1)), self.likelihood)
            self.eval()

        def forward(self, x):
            with gpytorch.settings.fast_pred_var():
                found = self.likelihood(self.gp(x))
            return found.mean, found.variance

    return Predict()


@model("gpytorch", "x: float32[batch, 2]", **BATCH)
def variational_gp():
    import gpytorch

    class Regression(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = torch.rand(6, 2)
            distribution = gpytorch.variational.CholeskyVariationalDistribution(6)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def predict(held, x):
        found = held(x)
        return found.mean, found.variance

    return Calling(Regression(), predict)


@model("botorch", "x: float64[batch, 2] in 0..1", **BATCH)
def single_task_gp():
    from botorch.models import SingleTaskGP

    x = torch.rand(8, 2, dtype=torch.float64)
    gp = SingleTaskGP(x, torch.sin(x.sum(-1, keepdim=True)))

    def predict(held, x):
        found = held.posterior(x)
        return found.mean, found.variance

    return Calling(gp, predict)


@model("neuraloperator", "x: float32[batch, 2, h, w]", batch=(1, 3), h=(12, 24), w=(12, 24))
def fourier_operator():
    from neuralop.models import FNO

    return FNO(n_modes=(4, 4), in_channels=2, out_channels=1, hidden_channels=8, n_layers=2)


@model("neuraloperator", "x: float32[batch, 2, 16, 16]", batch=(1, 3))
def u_shaped_operator():
    from neuralop.models import UNO

    return UNO(
        in_channels=2,
        out_channels=1,
        hidden_channels=8,
        projection_channels=8,
        uno_out_channels=[8, 8, 8],
        uno_n_modes=[[4, 4], [4, 4], [4, 4]],
        uno_scalings=[[1.0, 1.0], [0.5, 0.5], [2.0, 2.0]],
        n_layers=3,
    )


IMAGE = "sample: float32[batch, 3, h, w]"
STEPS = {"batch": (1, 2), "h": (16, 32), "w": (16, 32), "multiples": {"h": 8, "w": 8}}


@model("diffusers", IMAGE, "timestep: int64[batch] < 1000", **STEPS)
def unconditional_unet():
    from diffusers import UNet2DModel

    return UNet2DModel(
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )


@model(
    "diffusers",
    "sample: float32[batch, 4, h, w]",
    "timestep: int64[batch] < 1000",
    "encoder_hidden_states: float32[batch, words, 16]",
    words=(1, 12),
    **STEPS,
)
def conditional_unet():
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    )


@model("diffusers", "z: float32[batch, 4, h, w]", batch=(1, 2), h=(4, 16), w=(4, 16))
def latent_decoder():
    from diffusers import AutoencoderKL

    net = AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=4,
        sample_size=16,
    )
    return Decode(net)


class Decode(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, z):
        return self.net.decode(z).sample


@model(
    "diffusers",
    "hidden_states: float32[batch, 4, 16, 16]",
    "timestep: int64[batch] < 1000",
    "class_labels: int64[batch] < 10",
    batch=(1, 3),
)
def diffusion_transformer():
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=16,
        patch_size=2,
        num_embeds_ada_norm=10,
        norm_num_groups=4,
    )


VOLUME = "x: float32[batch, 1, d, h, w]"
CUBE = {"batch": (1, 2), "d": (16, 32), "h": (16, 32), "w": (16, 32), "multiples": {"d": 16, "h": 16, "w": 16}}


@model("monai", VOLUME, **CUBE)
def volume_unet():
    from monai.networks.nets import UNet

    return UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=2)


@model("monai", VOLUME, **CUBE)
def residual_segmentation():
    from monai.networks.nets import SegResNet

    return SegResNet(
        spatial_dims=3, in_channels=1, out_channels=2, init_filters=8, blocks_down=(1, 1, 1), blocks_up=(1, 1)
    )


@model("monai", VOLUME, **CUBE)
def attention_unet():
    from monai.networks.nets import AttentionUnet

    return AttentionUnet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2))


@model("monai", "x_in: float32[batch, 1, 32, 32, 32]", batch=(1, 2))
def unetr():
    from monai.networks.nets import UNETR

    return UNETR(
        in_channels=1, out_channels=2, img_size=(32, 32, 32), feature_size=4, hidden_size=24, mlp_dim=32, num_heads=2
    )


@model("monai", "x_in: float32[batch, 1, 64, 64, 64]", batch=(1, 2))
def swin_unetr():
    from monai.networks.nets import SwinUNETR

    return SwinUNETR(
        in_channels=1, out_channels=2, feature_size=12, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2), window_size=4
    )


@model("unet", "x: float32[batch, 1, 16, 16, 16]", batch=(1, 2))
def unet3d():
    from unet import UNet3D

    return UNet3D(num_encoding_blocks=2, out_channels_first_layer=4, normalization="batch", padding=True)
