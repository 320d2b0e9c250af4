"""Images: classification, segmentation, detection, similarity, filters."""

from __future__ import annotations

from entry import Calling, model
from torch import nn

SQUARE = "img: float32[batch, 3, 32, 32]"
BATCH = {"batch": (1, 4)}
ANY = "x: float32[batch, 3, h, w]"
SIZES = {"batch": (1, 3), "h": (32, 64), "w": (32, 64)}
STEP = {"h": 32, "w": 32}


@model("vit-pytorch", SQUARE, **BATCH)
def vit():
    from vit_pytorch import ViT

    return ViT(image_size=32, patch_size=8, num_classes=10, dim=32, depth=2, heads=4, mlp_dim=48)


@model("vit-pytorch", SQUARE, **BATCH)
def simple_vit():
    from vit_pytorch.simple_vit import SimpleViT

    return SimpleViT(image_size=32, patch_size=8, num_classes=10, dim=32, depth=2, heads=4, mlp_dim=48)


@model("vit-pytorch", "x: float32[batch, 3, 32, 32]", **BATCH)
def cct():
    from vit_pytorch.cct import CCT

    return CCT(
        img_size=(32, 32),
        embedding_dim=32,
        n_conv_layers=1,
        kernel_size=7,
        stride=2,
        padding=3,
        pooling_kernel_size=3,
        pooling_stride=2,
        pooling_padding=1,
        num_layers=2,
        num_heads=4,
        mlp_ratio=2.0,
        num_classes=10,
        positional_embedding="learnable",
    )


@model("vit-pytorch", "x: float32[batch, 3, 32, 32]", **BATCH)
def max_vit():
    from vit_pytorch.max_vit import MaxViT

    return MaxViT(
        num_classes=10,
        dim_conv_stem=16,
        dim=16,
        dim_head=8,
        depth=(1, 1),
        window_size=4,
        mbconv_expansion_rate=2,
        mbconv_shrinkage_rate=0.25,
        dropout=0.1,
    )


@model("vit-pytorch", "x: float32[batch, 3, 32, 32]", **BATCH)
def cross_vit():
    from vit_pytorch.cross_vit import CrossViT

    model = CrossViT(
        image_size=32,
        num_classes=10,
        depth=1,
        sm_dim=16,
        sm_patch_size=8,
        sm_enc_depth=1,
        sm_enc_heads=2,
        sm_enc_mlp_dim=32,
        lg_dim=32,
        lg_patch_size=16,
        lg_enc_depth=1,
        lg_enc_heads=2,
        lg_enc_mlp_dim=32,
        cross_attn_depth=1,
        cross_attn_heads=2,
    )
    return Calling(model, lambda held, x: held(x))


@model("mlp-mixer-pytorch", "input: float32[batch, 3, 32, 32]", **BATCH)
def mlp_mixer():
    from mlp_mixer_pytorch import MLPMixer

    return MLPMixer(image_size=32, channels=3, patch_size=8, dim=32, depth=2, num_classes=10)


@model("lambda-networks", "x: float32[batch, 16, 8, 8]", **BATCH)
def lambda_layer():
    from lambda_networks import LambdaLayer

    return LambdaLayer(dim=16, dim_out=16, r=5, dim_k=8, heads=4, dim_u=2)


@model("halonet-pytorch", "x: float32[batch, 16, h, w]", batch=(1, 3), h=(8, 24), w=(8, 24), multiples={"h": 8, "w": 8})
def halo_attention():
    from halonet_pytorch import HaloAttention

    return HaloAttention(dim=16, block_size=8, halo_size=4, dim_head=8, heads=4)


@model("axial-attention", "x: float32[batch, 16, h, w]", batch=(1, 3), h=(4, 12), w=(4, 12))
def axial():
    from axial_attention import AxialAttention

    return AxialAttention(dim=16, dim_index=1, heads=4, num_dimensions=2)


@model("glom-pytorch", "img: float32[batch, 3, 16, 16]", **BATCH)
def glom():
    from glom_pytorch import Glom

    return Glom(dim=16, levels=3, image_size=16, patch_size=4)


@model("siren-pytorch", "x: float32[batch, 2]", batch=(1, 50))
def siren():
    from siren_pytorch import SirenNet

    return SirenNet(dim_in=2, dim_hidden=32, dim_out=3, num_layers=3, final_activation=nn.Sigmoid(), w0_initial=30.0)


@model("x-unet", ANY, **SIZES, multiples={"h": 8, "w": 8})
def x_unet():
    from x_unet import XUnet

    return XUnet(
        dim=16,
        channels=3,
        dim_mults=(1, 2),
        nested_unet_depths=(2, 1),
        num_blocks_per_stage=(1, 1),
        num_self_attn_per_stage=(0, 1),
        consolidate_upsample_fmaps=True,
    )


@model("pytorch-msssim", "x: float32[batch, 3, h, w] in 0..1", "y: float32[batch, 3, h, w] in 0..1", **SIZES)
def ssim():
    from pytorch_msssim import SSIM

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.ssim = SSIM(data_range=1.0, size_average=False, channel=3)

        def forward(self, x, y):
            return self.ssim(x, y)

    return Pair()


@model("kornia", "input: float32[batch, 3, h, w] in 0..1", batch=(1, 3), h=(16, 40), w=(16, 40))
def canny_edges():
    from kornia.filters import Canny

    return Canny()


@model("kornia", "x: float32[batch, 3, h, w] in 0..1", batch=(1, 3), h=(16, 40), w=(16, 40))
def color_and_blur():
    from kornia.color import rgb_to_hsv, rgb_to_lab
    from kornia.filters import GaussianBlur2d

    class Look(nn.Module):
        def __init__(self):
            super().__init__()
            self.blur = GaussianBlur2d((5, 5), (1.5, 1.5))

        def forward(self, x):
            x = self.blur(x)
            return rgb_to_lab(x), rgb_to_hsv(x)[:, 1:]

    return Look()


@model("kornia", "input: float32[patches, 1, 32, 32] in 0..1", patches=(1, 12))
def hardnet():
    from kornia.feature import HardNet

    return HardNet(pretrained=False)


@model("kornia", "input: float32[patches, 1, 32, 32] in 0..1", patches=(1, 12))
def sift_descriptor():
    from kornia.feature import SIFTDescriptor

    return SIFTDescriptor(32)


@model("kornia", "src: float32[batch, points, 2]", "dst: float32[batch, points, 2]", batch=(1, 3), points=(4, 12))
def homography():
    from kornia.geometry import find_homography_dlt

    class Fit(nn.Module):
        def forward(self, src, dst):
            return find_homography_dlt(src, dst)

    return Fit()


@model("kornia", "x: float32[batch, 3, h, w]", "angle: float32[batch] in -90..90", batch=(1, 3), h=(8, 24), w=(8, 24))
def rotation():
    from kornia.geometry.transform import rotate

    class Turn(nn.Module):
        def forward(self, x, angle):
            return rotate(x, angle)

    return Turn()


@model("kornia", "desc0: float32[n, 16]", "desc1: float32[m, 16]", n=(2, 20), m=(2, 20))
def mutual_nearest_neighbors():
    from kornia.feature import match_mnn

    class Match(nn.Module):
        def forward(self, desc0, desc1):
            return match_mnn(desc0, desc1)

    return Match()
