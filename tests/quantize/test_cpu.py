"""The bytes that a CPU can be trusted with, and the warning about a file made for another CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.quantize.nets import mlp, ready

from fairway.diagnostics import Finding
from fairway.model.cpu import Cpu, Int8Types, check_cpu, choose_arithmetic, detect_cpu
from fairway.tune.quantize.schemes import make_variant

OLD = Cpu("x86_64", "an old one", ("avx2",))
NEW = Cpu("x86_64", "a new one", ("avx2", "avx512f", "avx512_vnni"))
ARM = Cpu("aarch64", "a phone", ("asimd", "asimddp"))


def test_flags_are_read_from_what_the_kernel_says(tmp_path: Path) -> None:
    message = tmp_path / "cpuinfo"
    message.write_text(
        "processor : 0\nmodel name : Some CPU\nflags\t: fpu avx2 avx_vnni\n\nprocessor : 1\nflags : fpu\n"
    )
    result = detect_cpu(message)
    assert (result.name, result.flags) == ("Some CPU", ("avx2", "avx_vnni"))
    message.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")
    assert detect_cpu(message).flags == ("asimd", "asimddp", "i8mm")
    assert detect_cpu(tmp_path / "none").flags == ()


@pytest.mark.parametrize(
    ("cpu", "saturates", "activations", "reduced"),
    [(OLD, True, "uint8", True), (NEW, False, "uint8", False), (ARM, False, "int8", False)],
)
def test_without_wide_sums_a_bit_is_left_free(cpu: Cpu, saturates: bool, activations: str, reduced: bool) -> None:
    chosen = choose_arithmetic(cpu)
    assert (cpu.saturates, chosen.activations, chosen.reduce_range) == (saturates, activations, reduced)


@pytest.mark.parametrize("scheme", ["int8-static", "int8-dynamic"])
def test_weights_with_a_bit_left_free_are_at_most_64(scheme: str, tmp_path: Path) -> None:
    largest = {}
    for cpu in (OLD, NEW):
        context, _ = ready(mlp(tmp_path / "a.onnx"), tmp_path / "work", choose_arithmetic(cpu))
        model = onnx.load(make_variant(scheme, context).path)
        bytes_held = [onnx.numpy_helper.to_array(i) for i in model.graph.initializer if i.data_type == 3 and i.dims]
        largest[cpu] = max(int(np.abs(item.astype(int)).max()) for item in bytes_held if item.ndim > 1)
    assert largest == {OLD: 64, NEW: 127}


def check_file_from(cpu: Cpu, here: Cpu, arithmetic: Int8Types | None = None) -> Finding | None:
    """Check a quantized file that was made on `cpu` for the CPU `here`."""
    return check_cpu(cpu, (arithmetic or choose_arithmetic(cpu)).reduce_range, here)


def test_a_file_made_with_wide_sums_warns_on_other_cpus() -> None:
    result = check_file_from(NEW, OLD)
    assert result is not None
    assert (result.code, result.severity) == ("FW706", "warning")
    assert "a new one" in result.seen


def test_a_file_that_runs_as_it_was_made_is_not_warned_of() -> None:
    assert check_file_from(OLD, NEW) is None
    assert check_file_from(NEW, NEW) is None


def test_a_file_of_another_family_is_warned_of() -> None:
    result = check_file_from(ARM, NEW)
    assert result is not None
    assert result.seen == "it was made on aarch64 (a phone); this is x86_64 (a new one)"
