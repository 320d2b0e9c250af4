"""CodeNet as its team wrote it, over every length it will meet."""

from model import CodeNet

import fairway


def build():
    return CodeNet().eval()


airimu = fairway.Recipe(
    model=build,
    inputs=[
        "acc: float32[batch, time, 3] in -20..20",
        "gyro: float32[batch, time, 3] in -4..4",
    ],
    bounds={"batch": (1, 8), "time": (10, 2000)},
    checkpoint="codenet.safetensors",
    output_names=["correction_acc", "correction_gyro", "acc_cov", "gyro_cov"],
    example={"batch": 2, "time": 19},
)
