"""Operators on complex tensors, written on real ones, against the originals at other sizes than the captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fairway.convert.remedies.complex_picked import rewrite_on_parts

KEPT = ("view_as_complex", "view_as_real", "_fft_c2c", "_fft_r2c", "stft")
Function = Callable[[torch.Tensor, torch.Tensor], Any]

real, fft = torch.view_as_real, torch.fft


def written_into(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    spectrum = torch.zeros(x.shape[0], x.shape[1] + 2, 4, dtype=torch.cfloat)
    spectrum[:, 1:-1] = z * (1 + 2j)
    spectrum[:, 0] = x.sum(1)
    return real(spectrum)


def solved(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    covariance = torch.einsum("bti,btj->bij", z, z.conj()) + 5 * torch.eye(4, dtype=z.dtype)
    return real(torch.linalg.solve(covariance, z.transpose(1, 2)))


FUNCTIONS: dict[str, Function] = {
    "arithmetic": lambda x, z: real((z + 2) * (3 - z) / (z + 3j) - x * z),
    "a plain number in front": lambda x, z: real(1j * x + (2 - 1j) * z),
    "divided by a complex number": lambda x, z: real(z / (1 + 2j)),
    "powers": lambda x, z: real((0.5 * z) ** 3 + z.square() + z**0.5),
    "exponential and logarithm": lambda x, z: real(torch.exp(0.1 * z) + torch.log(z + 9)),
    "waves": lambda x, z: real(torch.sin(0.3 * z) + torch.cos(0.3 * z) + torch.tanh(z) + torch.sigmoid(z)),
    "length, angle and sign": lambda x, z: (z.abs(), z.angle(), real(torch.sgn(z))),
    "polar": lambda x, z: real(torch.polar(x.abs(), x)),
    "conjugate and parts": lambda x, z: (z.conj().imag, z.real, z.adjoint().imag if z.dim() == 2 else z.mH.imag),
    "picked and turned": lambda x, z: real(torch.cat([z[:, 1:], z.flip(1)[:, :1]], 1).permute(1, 0, 2)),
    "split and stacked": lambda x, z: real(torch.stack(list(z.chunk(2, -1)), 0).sum(0)),
    "padded": lambda x, z: real(nn.functional.pad(z, (1, 0, 0, 2))),
    "rolled, expanded, repeated": lambda x, z: real(z.roll(1, 1).unsqueeze(1).expand(-1, 2, -1, -1).repeat(1, 1, 1, 2)),
    "written into": written_into,
    "chosen": lambda x, z: (real(torch.where(x > 0, z, z.conj())), real(z.masked_fill(x > 0, 1 + 1j))),
    "compared": lambda x, z: (z == z.conj(), z != z.conj()),
    "matrix products": lambda x, z: real(z @ z.transpose(1, 2) + torch.bmm(z, z.mH)),
    "solved": solved,
    "other dtypes": lambda x, z: (real(z.to(torch.complex128)), x.to(torch.cfloat).imag),
    "made": lambda x, z: real(torch.ones_like(z) + torch.full_like(z, 2j) + z.new_zeros(4)),
    "sums": lambda x, z: (real(z.sum(1)), real(z.cumsum(1)), torch.linalg.vector_norm(z, dim=-1)),
    "fft": lambda x, z: real(fft.fft(z, dim=1)),
    "fft of another length": lambda x, z: real(fft.fft(z, n=x.shape[1] + 3, dim=1)),
    "ifft of a fixed length": lambda x, z: real(fft.ifft(z, n=4, dim=1, norm="ortho")),
    "rfft": lambda x, z: real(fft.rfft(x, dim=1, norm="forward")),
    "irfft of an odd length": lambda x, z: fft.irfft(z, n=2 * x.shape[1] + 1, dim=1, norm="forward"),
    "over two dims": lambda x, z: (real(fft.fft2(z)), fft.ifft2(z).abs(), real(fft.rfft2(x, s=(4, 6), dim=(1, 2)))),
    "over all dims": lambda x, z: (real(fft.fftn(z)), real(fft.ifftn(z, dim=(1, 2))), real(fft.rfftn(x))),
    "irfftn": lambda x, z: fft.irfftn(z, s=(x.shape[1], 6), dim=(1, 2)),
}


class Model(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, torch.complex(x, x.roll(1, -1)))


def draw(batch: int, time: int) -> torch.Tensor:
    return torch.randn(batch, time, 4, generator=torch.Generator().manual_seed(time))


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_the_rewritten_program_computes_the_same(name: str) -> None:
    model = Model(FUNCTIONS[name])
    dynamic = torch.export.Dim.DYNAMIC
    program = torch.export.export(model, (draw(3, 7),), dynamic_shapes=({0: dynamic, 1: dynamic},))
    program = rewrite_on_parts(program)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and value.is_complex():
            assert node.target.overloadpacket.__name__ in KEPT, node.format_node()
    for batch, time in ((3, 7), (2, 6), (4, 11)):
        x = draw(batch, time)
        for ours, theirs in zip(flat(program.module()(x)), flat(model(x)), strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)


def flat(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def test_a_program_without_complex_numbers_is_left_alone() -> None:
    program = torch.export.export(nn.Linear(4, 2), (torch.zeros(2, 4),))
    before = str(program.graph)
    assert str(rewrite_on_parts(program).graph) == before


def test_a_complex_output_and_input_stay_complex() -> None:
    class Turned(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z[:, None] * 1j

    z = torch.randn(2, 3, dtype=torch.cfloat)
    program = rewrite_on_parts(torch.export.export(Turned(), (z,)))
    torch.testing.assert_close(program.module()(z), z[:, None] * 1j)
