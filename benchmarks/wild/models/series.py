"""Time series, differential equations, and sequences labeled step by step."""

from __future__ import annotations

import torch
from entry import Calling, model
from torch import nn

SERIES = "x: float32[batch, time, 4]"
SPAN = {"batch": (1, 4), "time": (2, 20)}


@model("ncps", "input: float32[batch, time, 4]", **SPAN)
def closed_form_cells():
    from ncps.torch import CfC
    from ncps.wirings import AutoNCP

    return CfC(4, AutoNCP(12, 2))


@model("ncps", "input: float32[batch, time, 4]", batch=(1, 4), time=(2, 8))
def liquid_time_constants():
    from ncps.torch import LTC

    return LTC(4, 8, ode_unfolds=2)


@model("iTransformer", "x: float32[batch, 24, 5]", batch=(1, 6))
def itransformer():
    from iTransformer import iTransformer

    net = iTransformer(
        num_variates=5,
        lookback_len=24,
        dim=32,
        depth=2,
        heads=4,
        dim_head=8,
        pred_length=(6, 12),
        use_reversible_instance_norm=True,
    )
    return Calling(net, lambda held, x: list(held(x).values()))


@model("pytorch-tcn", "x: float32[batch, 4, time]", **SPAN)
def temporal_convolution():
    from pytorch_tcn import TCN

    return TCN(num_inputs=4, num_channels=[8, 8], kernel_size=3, use_skip_connections=True)


@model("torchdiffeq", "x: float32[batch, 2]", batch=(1, 8))
def neural_ode():
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t, y):
            return self.net(y**3)

    return Calling(Field(), lambda held, x: odeint(held, x, torch.linspace(0.0, 1.0, 5), method="rk4"))


@model("torchdiffeq", "x: float32[batch, 2] in -1..1", batch=(1, 8))
def neural_ode_adaptive():
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t, y):
            return self.net(y)

    return Calling(Field(), lambda held, x: odeint(held, x, torch.tensor([0.0, 1.0]), method="dopri5"))


@model("torchcde", SERIES, batch=(1, 4), time=(4, 12))
def neural_cde():
    import torchcde

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 6 * 4)

        def forward(self, t, z):
            return self.linear(z).tanh().view(z.shape[0], 6, 4)

    class Classify(nn.Module):
        def __init__(self):
            super().__init__()
            self.field, self.initial, self.out = Field(), nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x):
            path = torchcde.LinearInterpolation(torchcde.linear_interpolation_coeffs(x))
            z = torchcde.cdeint(
                X=path,
                z0=self.initial(path.evaluate(path.interval[0])),
                func=self.field,
                t=path.interval,
                adjoint=False,
                method="rk4",
                options={"step_size": 1.0},
            )
            return self.out(z[:, -1])

    return Classify()


@model("torchsde", "x: float32[batch, 3]", batch=(1, 4), impossible="draws its Brownian motion from noise")
def neural_sde():
    import torchsde

    class Drifting(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.mu, self.sigma = nn.Linear(3, 3), nn.Linear(3, 3)

        def f(self, t, y):
            return self.mu(y)

        def g(self, t, y):
            return self.sigma(y).sigmoid()

    return Calling(Drifting(), lambda held, x: torchsde.sdeint(held, x, torch.linspace(0, 1, 5), dt=0.1))


@model(
    "pytorch-crf",
    "emissions: float32[batch, time, 5]",
    "mask: bool[batch, time] = keep-right-padded",
    batch=(1, 4),
    time=(2, 12),
)
def crf_decode():
    from torchcrf import CRF

    class Decode(nn.Module):
        def __init__(self):
            super().__init__()
            self.crf = CRF(5, batch_first=True)

        def forward(self, emissions, mask):
            return torch.tensor(
                [best + [-1] * (mask.shape[1] - len(best)) for best in self.crf.decode(emissions, mask)]
            )

    return Decode()


@model(
    "pytorch-crf",
    "emissions: float32[batch, time, 5]",
    "tags: int64[batch, time] < 5",
    "mask: bool[batch, time] = keep-right-padded",
    batch=(1, 4),
    time=(2, 12),
)
def crf_likelihood():
    from torchcrf import CRF

    return CRF(5, batch_first=True)


@model(
    "TorchCRF",
    "h: float32[batch, time, 5]",
    "labels: int64[batch, time] < 5",
    "mask: bool[batch, time] = keep-right-padded",
    batch=(1, 4),
    time=(2, 12),
)
def likelihood():
    from TorchCRF import CRF

    return CRF(5, use_gpu=False)


@model("snntorch", "x: float32[time, batch, 6]", batch=(1, 4), time=(2, 12))
def leaky_network():
    import snntorch as snn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)
            self.lif1, self.lif2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.9)

        def forward(self, x):
            mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
            spikes, potentials = [], []
            for step in range(x.size(0)):
                spk1, mem1 = self.lif1(self.fc1(x[step]), mem1)
                spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
                spikes.append(spk2)
                potentials.append(mem2)
            return torch.stack(spikes), torch.stack(potentials)

    return Net()


@model("snntorch", "x: float32[batch, 6]", batch=(1, 4))
def synaptic_step():
    import snntorch as snn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.cell = nn.Linear(6, 8), snn.Synaptic(alpha=0.9, beta=0.8)

        def forward(self, x):
            syn, mem = self.cell.init_synaptic()
            total = 0
            for _ in range(5):
                spk, syn, mem = self.cell(self.fc(x), syn, mem)
                total = total + spk
            return total, mem

    return Net()


@model("spikingjelly", "x: float32[time, batch, 6]", batch=(1, 4), time=(2, 8))
def lif_network():
    from spikingjelly.activation_based import functional, layer, neuron

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(layer.Linear(6, 8), neuron.LIFNode(tau=2.0), layer.Linear(8, 3), neuron.IFNode())
            functional.set_step_mode(self.net, "m")

        def forward(self, x):
            functional.reset_net(self.net)
            return self.net(x).mean(0)

    return Net()


@model("norse", "x: float32[time, batch, 6]", batch=(1, 4), time=(2, 8))
def norse_lif():
    from norse.torch import LIF, SequentialState

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = SequentialState(nn.Linear(6, 5), LIF(), nn.Linear(5, 3))

        def forward(self, x):
            return self.layers(x)[0]

    return Net()


@model("neuralforecast", "x: float32[batch, 24]", batch=(1, 8))
def nhits():
    from neuralforecast.models import NHITS

    net = NHITS(h=6, input_size=24, mlp_units=3 * [[16, 16]], n_blocks=[1, 1, 1])
    return Calling(net, lambda held, x: held(_window(x)))


@model("neuralforecast", "x: float32[batch, 24]", batch=(1, 8))
def patch_tst():
    from neuralforecast.models import PatchTST

    net = PatchTST(
        h=6, input_size=24, hidden_size=16, linear_hidden_size=16, n_heads=2, encoder_layers=1, patch_len=8, stride=4
    )
    return Calling(net, lambda held, x: held(_window(x)))


@model("neuralforecast", "x: float32[batch, 24]", batch=(1, 8))
def nbeats():
    from neuralforecast.models import NBEATS

    net = NBEATS(h=6, input_size=24, mlp_units=3 * [[16, 16]], n_blocks=[1, 1, 1])
    return Calling(net, lambda held, x: held(_window(x)))


@model("neuralforecast", "x: float32[batch, 24]", batch=(1, 8))
def timesnet():
    from neuralforecast.models import TimesNet

    net = TimesNet(h=6, input_size=24, hidden_size=8, conv_hidden_size=8, top_k=2, num_kernels=2, encoder_layers=1)
    return Calling(net, lambda held, x: held(_window(x)))


def _window(x):
    return {
        "insample_y": x[..., None],
        "insample_mask": torch.ones_like(x)[..., None],
        "futr_exog": None,
        "hist_exog": None,
        "stat_exog": None,
    }


@model("tsai", "x: float32[batch, 3, time]", batch=(2, 6), time=(8, 40))
def inception_time():
    from tsai.models.InceptionTime import InceptionTime

    return InceptionTime(3, 4, nf=4, depth=3)


@model("tsai", "x: float32[batch, 3, 24]", batch=(1, 6))
def time_series_transformer():
    from tsai.models.TST import TST

    return TST(3, 4, 24, max_seq_len=12, d_model=16, n_heads=2, d_ff=16, n_layers=2)


@model("tsai", "x: float32[batch, 3, time]", batch=(1, 6), time=(8, 40))
def lstm_fcn():
    from tsai.models.RNN_FCN import LSTM_FCN

    return LSTM_FCN(3, 4, hidden_size=8, conv_layers=[8, 8, 8], se=4, shuffle=False)


@model("gluonts", "past_target: float32[batch, 20]", batch=(1, 4))
def simple_feedforward():
    from gluonts.torch.model.simple_feedforward import SimpleFeedForwardEstimator

    net = SimpleFeedForwardEstimator(prediction_length=6, context_length=20, hidden_dimensions=[16, 16])
    model = net.create_lightning_module().model
    return model


@model(
    "pypots", "X: float32[batch, time, 4]", "missing_mask: float32[batch, time, 4] in 0..1", batch=(1, 4), time=(6, 6)
)
def saits():
    from pypots.nn.modules.saits import BackboneSAITS

    return BackboneSAITS(
        n_steps=6,
        n_features=4,
        n_layers=1,
        d_model=16,
        n_heads=2,
        d_k=8,
        d_v=8,
        d_ffn=16,
        dropout=0.0,
        attn_dropout=0.0,
    )
