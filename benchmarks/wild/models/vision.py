"""Models of packages that need torchvision: backbones, segmentation, detection, reading, faces."""

from __future__ import annotations

from entry import Calling, model
from torch import nn

IMAGE = "x: float32[batch, 3, h, w]"
SIZES = {"batch": (1, 2), "h": (32, 96), "w": (32, 96), "multiples": {"h": 32, "w": 32}}


def _timm(name, **settings):
    import timm

    return timm.create_model(name, pretrained=False, num_classes=10, **settings)


@model("timm", IMAGE, **SIZES)
def mobilenet():
    return _timm("mobilenetv3_small_050")


@model("timm", IMAGE, **SIZES)
def convnext():
    return _timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32))


@model("timm", "x: float32[batch, 3, 32, 32]", batch=(1, 4))
def swin():
    return _timm(
        "swin_tiny_patch4_window7_224", img_size=32, window_size=4, embed_dim=16, depths=(1, 1), num_heads=(2, 2)
    )


@model("timm", "x: float32[batch, 3, h, w]", batch=(1, 2), h=(32, 64), w=(32, 64), multiples={"h": 16, "w": 16})
def any_size_vit():
    return _timm("vit_tiny_patch16_224", embed_dim=32, depth=2, num_heads=2, img_size=32, dynamic_img_size=True)


@model("segmentation-models-pytorch", IMAGE, **SIZES)
def unet_resnet():
    import segmentation_models_pytorch as smp

    return smp.Unet("resnet18", encoder_weights=None, classes=2, decoder_channels=(16, 8, 8, 8, 4))


@model("segmentation-models-pytorch", IMAGE, **SIZES)
def deeplab():
    import segmentation_models_pytorch as smp

    return smp.DeepLabV3Plus("mobilenet_v2", encoder_weights=None, classes=2, decoder_channels=16)


@model("segmentation-models-pytorch", IMAGE, **SIZES)
def pyramid():
    import segmentation_models_pytorch as smp

    return smp.FPN(
        "mobilenet_v2", encoder_weights=None, classes=2, decoder_pyramid_channels=16, decoder_segmentation_channels=8
    )


@model("torchvision", IMAGE, **SIZES)
def resnet():
    from torchvision.models import resnet18

    return resnet18(num_classes=10)


@model("torchvision", "x: float32[batch, 3, 16, h, w]", batch=(1, 2), h=(32, 48), w=(32, 48))
def video_resnet():
    from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple, VideoResNet

    return VideoResNet(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, num_classes=5)


@model(
    "open-clip-torch", "image: float32[batch, 3, 32, 32]", "text: int64[texts, 16] in 1..60", batch=(1, 4), texts=(1, 4)
)
def clip():
    from open_clip.model import CLIP

    return CLIP(
        embed_dim=16,
        vision_cfg={"layers": 2, "width": 32, "head_width": 16, "patch_size": 8, "image_size": 32},
        text_cfg={"context_length": 16, "vocab_size": 64, "width": 32, "heads": 2, "layers": 2},
    )


@model("ultralytics", IMAGE, **SIZES)
def yolo_detect():
    from ultralytics.nn.tasks import DetectionModel

    net = DetectionModel("yolov8n.yaml", ch=3, nc=4, verbose=False)
    return Calling(net, lambda held, x: held(x)[0])


@model("ultralytics", IMAGE, **SIZES)
def yolo_segment():
    from ultralytics.nn.tasks import SegmentationModel

    net = SegmentationModel("yolov8n-seg.yaml", ch=3, nc=4, verbose=False)
    return Calling(net, lambda held, x: held(x))


@model("easyocr", "input: float32[batch, 1, 32, width]", "text: int64[batch, 26] < 20", batch=(1, 3), width=(40, 120))
def read_text():
    from easyocr.model.vgg_model import Model

    return Model(1, 16, 16, 20)


@model("easyocr", IMAGE, **SIZES)
def find_text():
    from easyocr.craft import CRAFT

    return CRAFT(pretrained=False)


@model("facenet-pytorch", "x: float32[batch, 3, 96, 96]", batch=(1, 2))
def face_embedding():
    from facenet_pytorch import InceptionResnetV1

    return InceptionResnetV1(pretrained=None, classify=False)


@model("efficientnet-pytorch", "inputs: float32[batch, 3, 64, 64]", batch=(1, 2))
def efficientnet():
    from efficientnet_pytorch import EfficientNet

    return EfficientNet.from_name("efficientnet-b0", num_classes=10, image_size=64)


@model("pytorchcv", "x: float32[batch, 3, h, w]", batch=(1, 2), h=(32, 64), w=(32, 64), multiples={"h": 32, "w": 32})
def shufflenet():
    from pytorchcv.model_provider import get_model

    return get_model("shufflenetv2_wd2")


@model("pytorchcv", "x: float32[batch, 3, 64, 64]", batch=(1, 2))
def dual_path_network():
    from pytorchcv.model_provider import get_model

    return get_model("resnet10", num_classes=10)


@model("super-image", "x: float32[batch, 3, h, w] in 0..1", batch=(1, 2), h=(8, 20), w=(8, 20))
def enhanced_resolution():
    from super_image import EdsrConfig, EdsrModel

    return EdsrModel(EdsrConfig(scale=2, n_resblocks=2, n_feats=8))


@model(
    "segment-anything",
    "points: float32[batch, n, 2] in 0..31",
    "labels: int64[batch, n] in 0..1",
    batch=(1, 3),
    n=(1, 4),
)
def prompt_and_mask():
    import torch
    from segment_anything.modeling import MaskDecoder, PromptEncoder, TwoWayTransformer

    class Prompted(nn.Module):
        def __init__(self):
            super().__init__()
            self.prompt = PromptEncoder(16, (4, 4), (32, 32), mask_in_chans=4)
            self.decode = MaskDecoder(
                transformer_dim=16,
                num_multimask_outputs=3,
                iou_head_depth=2,
                iou_head_hidden_dim=16,
                transformer=TwoWayTransformer(depth=1, embedding_dim=16, num_heads=2, mlp_dim=16),
            )
            self.image = nn.Parameter(torch.randn(1, 16, 4, 4))

        def forward(self, points, labels):
            sparse, dense = self.prompt(points=(points, labels), boxes=None, masks=None)
            return self.decode(
                image_embeddings=self.image,
                image_pe=self.prompt.get_dense_pe(),
                sparse_prompt_embeddings=sparse,
                dense_prompt_embeddings=dense,
                multimask_output=True,
            )

    return Prompted()


@model("lpips", "in0: float32[batch, 3, 64, 64] in -1..1", "in1: float32[batch, 3, 64, 64] in -1..1", batch=(1, 2))
def perceptual_distance():
    import lpips

    return lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False)


@model(
    "piq",
    "x: float32[batch, 3, h, w] in 0..1",
    "y: float32[batch, 3, h, w] in 0..1",
    batch=(1, 2),
    h=(64, 96),
    w=(64, 96),
)
def gradient_similarity():
    import piq

    class Score(nn.Module):
        def forward(self, x, y):
            return piq.gmsd(x, y, reduction="none"), piq.psnr(x, y, reduction="none")

    return Score()
