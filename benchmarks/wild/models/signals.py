"""Audio and speech: separation, codecs, vocoders, features, recognition."""

from __future__ import annotations

import torch
from entry import Calling, model

WAVE = "x: float32[batch, time]"


@model("conformer", "x: float32[batch, time, 32]", batch=(1, 4), time=(2, 40))
def conformer():
    from conformer import Conformer

    return Conformer(dim=32, depth=2, dim_head=8, heads=4, ff_mult=2, conv_expansion_factor=2, conv_kernel_size=7)


@model("torchaudio", "x: float32[batch, time, 16]", batch=(1, 4), time=(2, 40))
def full_length_conformer():
    from torchaudio.models import Conformer

    net = Conformer(input_dim=16, num_heads=4, ffn_dim=32, num_layers=2, depthwise_conv_kernel_size=7)
    return Calling(net, lambda held, x: held(x, torch.full((x.shape[0],), x.shape[1]))[0])


@model("torchaudio", "input: float32[batch, 1, time]", batch=(1, 3), time=(200, 1200))
def conv_tasnet():
    from torchaudio.models import ConvTasNet

    return ConvTasNet(
        num_sources=2,
        enc_kernel_size=16,
        enc_num_feats=16,
        msk_kernel_size=3,
        msk_num_feats=8,
        msk_num_hidden_feats=16,
        msk_num_layers=2,
        msk_num_stacks=1,
    )


@model("torchaudio", "waveform: float32[batch, time]", batch=(1, 3), time=(800, 3000))
def mel_spectrogram():
    from torchaudio.transforms import MelSpectrogram

    return MelSpectrogram(sample_rate=16000, n_fft=400, hop_length=160, n_mels=20)


@model("torchaudio", "waveform: float32[batch, time]", batch=(1, 3), time=(800, 3000))
def mfcc():
    from torchaudio.transforms import MFCC

    return MFCC(
        sample_rate=16000, n_mfcc=13, melkwargs={"n_fft": 400, "hop_length": 160, "n_mels": 23, "center": False}
    )


@model("torchaudio", "waveforms: float32[batch, time]", batch=(1, 3), time=(1000, 4000))
def wav2vec2():
    from torchaudio.models import wav2vec2_model

    return wav2vec2_model(
        extractor_mode="group_norm",
        extractor_conv_layer_config=[(16, 10, 5), (16, 3, 2), (16, 3, 2)],
        extractor_conv_bias=False,
        encoder_embed_dim=32,
        encoder_projection_dropout=0.0,
        encoder_pos_conv_kernel=16,
        encoder_pos_conv_groups=4,
        encoder_num_layers=2,
        encoder_num_heads=4,
        encoder_attention_dropout=0.0,
        encoder_ff_interm_features=48,
        encoder_ff_interm_dropout=0.0,
        encoder_dropout=0.0,
        encoder_layer_norm_first=False,
        encoder_layer_drop=0.0,
        aux_num_out=12,
    )


@model("torchaudio", "waveform: float32[batch, time]", batch=(1, 3), time=(100, 1000))
def resample():
    from torchaudio.transforms import Resample

    return Resample(16000, 8000)


@model("bs-roformer", "x: float32[batch, time]", batch=(1, 2), time=(2048, 6144), multiples={"time": 512})
def band_split_roformer():
    from bs_roformer import BSRoformer

    return Calling(
        BSRoformer(
            dim=16,
            depth=1,
            time_transformer_depth=1,
            freq_transformer_depth=1,
            dim_head=8,
            heads=2,
            freqs_per_bands=(1, 4, 60, 192),
            stft_n_fft=512,
            stft_win_length=512,
            stft_hop_length=128,
            flash_attn=False,
        ),
        lambda held, x: held(x),
    )


@model("asteroid-filterbanks", "x: float32[batch, 1, time]", batch=(1, 3), time=(512, 2000))
def stft_and_back():
    from asteroid_filterbanks import STFTFB, Decoder, Encoder
    from torch import nn

    class Through(nn.Module):
        def __init__(self):
            super().__init__()
            bank = STFTFB(n_filters=256, kernel_size=128, stride=64)
            self.encode, self.decode = Encoder(bank), Decoder(bank)

        def forward(self, x):
            return self.decode(self.encode(x).relu())

    return Through()


@model("asteroid", "wav: float32[batch, 1, time]", batch=(1, 3), time=(200, 1200))
def asteroid_conv_tasnet():
    from asteroid.models import ConvTasNet

    return ConvTasNet(
        n_src=2, n_filters=16, kernel_size=16, stride=8, n_blocks=2, n_repeats=1, bn_chan=8, hid_chan=16, skip_chan=8
    )


@model("asteroid", "wav: float32[batch, 1, time]", batch=(1, 3), time=(200, 1200))
def dual_path_rnn():
    from asteroid.models import DPRNNTasNet

    return DPRNNTasNet(
        n_src=2, n_filters=16, kernel_size=16, stride=8, bn_chan=8, hid_size=8, chunk_size=10, n_repeats=1
    )


@model("vocos", "features: float32[batch, 20, frames]", batch=(1, 3), frames=(2, 40))
def vocos():
    from torch import nn
    from vocos.heads import ISTFTHead
    from vocos.models import VocosBackbone

    class Decode(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = VocosBackbone(input_channels=20, dim=32, intermediate_dim=48, num_layers=2)
            self.head = ISTFTHead(dim=32, n_fft=64, hop_length=16, padding="center")

        def forward(self, features):
            return self.head(self.backbone(features))

    return Decode()


@model("encodec", "x: float32[batch, 1, time]", batch=(1, 2), time=(640, 3200))
def encodec_encoder():
    from encodec.modules import SEANetEncoder

    return SEANetEncoder(dimension=16, n_filters=4, ratios=[4, 2], norm="weight_norm", causal=True)


@model("encodec", "z: float32[batch, 16, frames]", batch=(1, 2), frames=(4, 40))
def encodec_decoder():
    from encodec.modules import SEANetDecoder

    return SEANetDecoder(dimension=16, n_filters=4, ratios=[4, 2], norm="weight_norm", causal=True)


@model("descript-audio-codec", "x: float32[batch, 1, time]", batch=(1, 2), time=(640, 3200), multiples={"time": 64})
def dac_codes():
    from dac.model.dac import DAC

    net = DAC(
        encoder_dim=4,
        encoder_rates=[2, 4, 8],
        latent_dim=16,
        decoder_dim=32,
        decoder_rates=[8, 4, 2],
        n_codebooks=3,
        codebook_size=16,
        codebook_dim=4,
        sample_rate=16000,
    )
    return Calling(net, lambda held, x: held.encode(x)[:2])


@model("descript-audio-codec", "x: float32[batch, 16, frames]", batch=(1, 2), frames=(2, 40))
def dac_decoder():
    from dac.model.dac import DAC

    net = DAC(
        encoder_dim=4,
        encoder_rates=[2, 4, 8],
        latent_dim=16,
        decoder_dim=32,
        decoder_rates=[8, 4, 2],
        n_codebooks=3,
        codebook_size=16,
        codebook_dim=4,
        sample_rate=16000,
    )
    return Calling(net, lambda held, x: held.decode(x))


@model("snac", "x: float32[batch, 1, time]", batch=(1, 2), time=(512, 2048), multiples={"time": 256})
def snac():
    from snac import SNAC

    net = SNAC(
        sampling_rate=16000,
        encoder_dim=4,
        encoder_rates=[2, 4, 8],
        latent_dim=32,
        decoder_dim=32,
        decoder_rates=[8, 4, 2],
        attn_window_size=None,
        codebook_size=16,
        codebook_dim=4,
        vq_strides=[4, 2, 1],
        noise=False,
        depthwise=True,
    )
    return Calling(net, lambda held, x: held(x))


@model("speechbrain", "x: float32[batch, time, 20]", batch=(1, 3), time=(10, 60))
def ecapa_tdnn():
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    return ECAPA_TDNN(20, lin_neurons=16, channels=[16, 16, 16, 16, 48], attention_channels=8)


@model("speechbrain", "x: float32[batch, time, 20]", "lengths: float32[batch] in 0.5..1", batch=(1, 3), time=(10, 60))
def ecapa_tdnn_lengths():
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    return ECAPA_TDNN(20, lin_neurons=16, channels=[16, 16, 16, 16, 48], attention_channels=8)


@model("speechbrain", "x: float32[batch, time, 20]", batch=(1, 3), time=(8, 60))
def crdnn():
    from speechbrain.lobes.models.CRDNN import CRDNN

    return CRDNN(
        input_shape=[None, None, 20],
        cnn_blocks=2,
        cnn_channels=[8, 8],
        time_pooling=True,
        rnn_layers=1,
        rnn_neurons=16,
        dnn_blocks=1,
        dnn_neurons=16,
    )


@model("speechbrain", "wav: float32[batch, time]", batch=(1, 3), time=(1000, 5000))
def filterbank_features():
    from speechbrain.lobes.features import Fbank

    return Fbank(n_mels=20)


@model("julius", "x: float32[batch, 2, time]", batch=(1, 3), time=(100, 900))
def julius_resample():
    from julius import ResampleFrac

    return ResampleFrac(4, 3)


@model("julius", "input: float32[batch, 2, time]", batch=(1, 3), time=(100, 900))
def split_bands():
    from julius import SplitBands

    return SplitBands(sample_rate=16000, n_bands=4)


@model("demucs", "mix: float32[batch, 2, time]", batch=(1, 2), time=(2000, 5000))
def demucs():
    from demucs.demucs import Demucs

    return Demucs(
        sources=["drums", "vocals"], channels=4, depth=3, lstm_layers=1, dconv_lstm=5, dconv_attn=5, resample=False
    )


@model("demucs", "mix: float32[batch, 2, time]", batch=(1, 2), time=(8192, 12000))
def hybrid_demucs():
    from demucs.hdemucs import HDemucs

    return HDemucs(sources=["drums", "vocals"], channels=4, nfft=256, depth=4)


@model("torch-dct", "x: float32[batch, time]", batch=(1, 4), time=(2, 40))
def dct_and_back():
    import torch_dct
    from torch import nn

    class Through(nn.Module):
        def forward(self, x):
            y = torch_dct.dct(x, norm="ortho")
            return y, torch_dct.idct(y.relu(), norm="ortho")

    return Through()
