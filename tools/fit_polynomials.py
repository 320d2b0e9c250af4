"""Make `src/fairway/convert/translations/fitted.txt`: polynomials from which special functions are computed in double.

Each is a Chebyshev interpolation computed by mpmath with 40 digits, written in powers of (u - middle) / half. The
degree grows until the polynomial, evaluated in double, is as good as a double allows. mpmath comes with sympy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from mpmath import mp, mpf

mp.dps = 40

TARGET = Path(__file__).parents[1] / "src/fairway/convert/translations/fitted.txt"
SMALLEST_ERROR = 4e-16
"""Of the largest value in the interval, where nothing better was reached by a higher degree."""

Function = Callable[[mpf], mpf]


def bessel_phase(order: int, part: str) -> Function:
    """P or Q of the large-argument form, at u = (8/x)²; Q is divided by 8/x."""

    def value(u: mpf) -> mpf:
        u = max(u, mpf(10) ** -12)
        x = 8 / mp.sqrt(u)
        with mp.workdps(60):
            angle = x - (2 * order + 1) * mp.pi / 4
            j, y = mp.besselj(order, x), mp.bessely(order, x)
            scale = mp.sqrt(mp.pi * x / 2)
            if part == "p":
                return scale * (j * mp.cos(angle) + y * mp.sin(angle))
            return scale * (y * mp.cos(angle) - j * mp.sin(angle)) * x / 8

    return value


def airy_wave(part: str) -> Function:
    """The factors of cosine and sine in Ai(-z), at u = 1/ζ², where ζ = ⅔ z^1.5; the sine's is divided by 1/ζ."""

    def value(u: mpf) -> mpf:
        u = max(u, mpf(10) ** -12)
        zeta = 1 / mp.sqrt(u)
        z = (mpf(3) / 2 * zeta) ** (mpf(2) / 3)
        with mp.workdps(60):
            ai, bi = mp.airyai(-z), mp.airybi(-z)
            scale, angle = mp.sqrt(mp.pi) * z ** mpf(0.25), zeta - mp.pi / 4
            if part == "cos":
                return scale * (ai * mp.cos(angle) - bi * mp.sin(angle))
            return scale * (ai * mp.sin(angle) + bi * mp.cos(angle)) * zeta

    return value


def airy_decay(u: mpf) -> mpf:
    """Ai(z) without its exponential, at u = 1/ζ."""
    zeta = 1 / max(u, mpf(10) ** -6)
    z = (mpf(3) / 2 * zeta) ** (mpf(2) / 3)
    return mp.airyai(z) * mp.exp(zeta) * 2 * mp.sqrt(mp.pi) * z ** mpf(0.25)


def root(u: mpf) -> mpf:
    return mp.sqrt(max(u, mpf(10) ** -30))


def inverse(u: mpf) -> mpf:
    return 1 / max(u, mpf(10) ** -8)


def bessel_y0_rest(u: mpf) -> mpf:
    x = mp.sqrt(max(u, mpf(10) ** -24))
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def bessel_y1_rest(u: mpf) -> mpf:
    x = mp.sqrt(max(u, mpf(10) ** -16))
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def bessel_k0_rest(u: mpf) -> mpf:
    x = mp.sqrt(max(u, mpf(10) ** -24))
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def bessel_k1_rest(u: mpf) -> mpf:
    x = mp.sqrt(max(u, mpf(10) ** -16))
    return (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x) - 1 / x) / x


def scaled_erfc(u: mpf) -> mpf:
    """erfcx(x) (1 + 2x), at u = 4 / (4 + x)."""
    x = 4 / max(u, mpf(10) ** -9) - 4
    if x > 1000:
        square = 1 / (2 * x * x)
        return (1 + 2 * x) / (x * mp.sqrt(mp.pi)) * (1 - square + 3 * square**2 - 15 * square**3 + 105 * square**4)
    with mp.workdps(40 + int(x)):
        return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


POLYNOMIALS: dict[str, tuple[float, float, Function]] = {
    "j0": (0, 64, lambda u: mp.besselj(0, root(u))),
    "j1": (0, 64, lambda u: mp.besselj(1, root(u)) / root(u)),
    "y0": (0, 64, bessel_y0_rest),
    "y1": (0, 64, bessel_y1_rest),
    "p0": (0, 1, bessel_phase(0, "p")),
    "q0": (0, 1, bessel_phase(0, "q")),
    "p1": (0, 1, bessel_phase(1, "p")),
    "q1": (0, 1, bessel_phase(1, "q")),
    "i0e": (0, 8, lambda x: mp.exp(-x) * mp.besseli(0, x)),
    "i1e": (0, 8, lambda x: mp.exp(-x) * mp.besseli(1, max(x, mpf(10) ** -20)) / max(x, mpf(10) ** -20)),
    "i0e_far": (0, 1 / 8, lambda u: mp.sqrt(inverse(u)) * mp.exp(-inverse(u)) * mp.besseli(0, inverse(u))),
    "i1e_far": (0, 1 / 8, lambda u: mp.sqrt(inverse(u)) * mp.exp(-inverse(u)) * mp.besseli(1, inverse(u))),
    "k0": (0, 4, bessel_k0_rest),
    "k1": (0, 4, bessel_k1_rest),
    "k0e_far": (1 / 8, 1 / 2, lambda u: mp.sqrt(inverse(u)) * mp.exp(inverse(u)) * mp.besselk(0, inverse(u))),
    "k1e_far": (1 / 8, 1 / 2, lambda u: mp.sqrt(inverse(u)) * mp.exp(inverse(u)) * mp.besselk(1, inverse(u))),
    "k0e_farther": (0, 1 / 8, lambda u: mp.sqrt(inverse(u)) * mp.exp(inverse(u)) * mp.besselk(0, inverse(u))),
    "k1e_farther": (0, 1 / 8, lambda u: mp.sqrt(inverse(u)) * mp.exp(inverse(u)) * mp.besselk(1, inverse(u))),
    "airy": (-3, 3, lambda x: mp.airyai(x)),
    "airy_decay": (0, 0.29, airy_decay),
    "airy_cos": (0, 0.084, airy_wave("cos")),
    "airy_sin": (0, 0.084, airy_wave("sin")),
    "erf": (0, 1, lambda u: mp.erf(root(u)) / root(u)),
    "erfcx": (0.5, 1, scaled_erfc),
    "erfcx_far": (0, 0.5, scaled_erfc),
}


def interpolate(low: mpf, high: mpf, function: Function, degree: int) -> list[mpf]:
    """Return the coefficients in powers of (u - middle) / half, from the lowest up."""
    count = degree + 1
    angles = [mp.pi * (2 * k + 1) / (2 * count) for k in range(count)]
    middle, half = (low + high) / 2, (high - low) / 2
    values = [function(middle + half * mp.cos(angle)) for angle in angles]
    chebyshev = [
        sum(value * mp.cos(n * angle) for value, angle in zip(values, angles, strict=True)) * (2 if n else 1) / count
        for n in range(count)
    ]
    before, now = [mpf(1)], [mpf(0), mpf(1)]
    total = [mpf(0)] * (count + 1)
    for n, factor in enumerate(chebyshev):
        for power, term in enumerate(before):
            total[power] += factor * term
        after = [mpf(0), *(2 * term for term in now)]
        for power, term in enumerate(before):
            after[power] -= term
        before, now = now, after
        del n
    return total[:count]


def measure_error(terms: list[float], low: mpf, high: mpf, function: Function) -> float:
    middle, half = float((low + high) / 2), float((high - low) / 2)
    worst = largest = mpf(0)
    for k in range(97):
        u = float(low) + float(high - low) * (k + 0.5) / 97
        t, value = (u - middle) / half, 0.0
        for term in reversed(terms):
            value = value * t + term
        truth = function(mpf(u))
        worst, largest = max(worst, abs(truth - value)), max(largest, abs(truth))
    return float(worst / largest)


def main() -> None:
    lines = []
    for name, (low, high, function) in POLYNOMIALS.items():
        best: tuple[float, list[float]] | None = None
        for degree in range(8, 44, 2):
            terms = [float(term) for term in interpolate(mpf(low), mpf(high), function, degree)]
            error = measure_error(terms, mpf(low), mpf(high), function)
            if best is None or error < 0.7 * best[0]:
                best = error, terms
            if best[0] < SMALLEST_ERROR:
                break
        assert best is not None
        sys.stdout.write(f"{name}: degree {len(best[1]) - 1}, error {best[0]:.1e}\n")
        lines += [f"{name} {(low + high) / 2!r} {(high - low) / 2!r}", *(f"  {term!r}" for term in best[1])]
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
