"""The stand-ins against the functions they stand in for, in eager PyTorch."""

import pytest
import torch

from fairway.convert.translations.substitutes import STAND_INS


def _complex(*shape):
    return torch.randn(*shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 1, 2, 5, 8, 9, 10])
@pytest.mark.parametrize("dim", [-1, 0])
def test_the_inverse_of_a_real_transform(n, norm, dim):
    x = _complex(6, 6)
    assert torch.allclose(
        STAND_INS[torch.fft.irfft](x, n, dim, norm), torch.fft.irfft(x, n, dim, norm), rtol=1e-5, atol=1e-6
    )


def test_a_spectrum_too_short_is_left_to_pytorch():
    assert STAND_INS[torch.fft.irfft](_complex(3, 4), 9) is NotImplemented


@pytest.mark.parametrize("plain", [torch.zeros_like, torch.ones_like])
def test_a_tensor_like_a_complex_one(plain):
    x = _complex(2, 3)
    ours = STAND_INS[plain](x)
    assert ours.dtype == x.dtype
    assert torch.equal(ours, plain(x))
    assert STAND_INS[plain](x.real) is NotImplemented
    assert STAND_INS[plain](x, dtype=torch.float32) is NotImplemented


@pytest.mark.parametrize(("sections", "dim"), [(1, 0), (3, 0), (7, 0), (2, -1), (4, 1)])
def test_a_tensor_split_into_so_many_parts(sections, dim):
    x = torch.arange(30.0).reshape(5, 6)
    ours, plain = STAND_INS[torch.tensor_split](x, sections, dim), torch.tensor_split(x, sections, dim)
    assert len(ours) == len(plain)
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize("shapes", [((3,), (2, 2)), ((2, 3), (4,)), ((2, 1, 3), (3, 2, 2))])
def test_a_product_of_kronecker(shapes):
    a, b = (torch.randn(shape, generator=torch.Generator().manual_seed(2)) for shape in shapes)
    assert torch.equal(STAND_INS[torch.kron](a, b), torch.kron(a, b))


@pytest.mark.parametrize("equation", ["ij->ji", "bi,io->bo", "bi,bj,b->ij", "ij,jk,kl->il", "bi,io"])
def test_a_sum_of_products_of_complex_tensors(equation):
    shapes = {"bi": (2, 3), "io": (3, 4), "bj": (2, 5), "b": (2,), "ij": (2, 3), "jk": (3, 2), "kl": (2, 4)}
    terms = equation.partition("->")[0].split(",")
    given = [_complex(*shapes[term]) for term in terms]
    expected = torch.einsum(equation, *given)
    assert torch.allclose(STAND_INS[torch.einsum](equation, *given), expected, rtol=1e-5, atol=1e-5)
    assert torch.allclose(STAND_INS[torch.einsum](equation, given), expected, rtol=1e-5, atol=1e-5)


def test_a_sum_of_products_of_conjugates():
    x = _complex(2, 3)
    ours = STAND_INS[torch.einsum]("bi,bj->bij", x, x.conj())
    assert torch.allclose(ours, torch.einsum("bi,bj->bij", x, x.conj()))


def test_a_complex_exponential():
    x = _complex(3, 4).conj()
    assert torch.allclose(STAND_INS[torch.exp](x), x.exp())


@pytest.mark.parametrize("number", [1j, 2 - 3j, complex(0.5, 0)])
@pytest.mark.parametrize("value", [_complex(2, 3), _complex(2, 3).real, _complex(2, 3).real.double()], ids=str)
def test_a_product_with_a_complex_number(value, number):
    ours = STAND_INS[torch.mul](value, number)
    assert ours.dtype == (value * number).dtype
    assert torch.allclose(ours, value * number)


def test_real_numbers_are_left_to_pytorch():
    x = torch.ones(2, 3)
    assert STAND_INS[torch.einsum]("ij->ji", x) is NotImplemented
    assert STAND_INS[torch.exp](x) is NotImplemented
    assert STAND_INS[torch.mul](x, 2.0) is NotImplemented
    assert STAND_INS[torch.mul](x, x) is NotImplemented
