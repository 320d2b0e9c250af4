"""Which bytes a CPU can be trusted with, and that a file made for another one is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.quantize.nets import mlp, ready

from fairway.model.cpu import Cpu, Int8Types, choose_arithmetic, made_elsewhere, this_cpu
from fairway.tune.quantize.schemes import make

OLD = Cpu("x86_64", "an old one", ("avx2",))
NEW = Cpu("x86_64", "a new one", ("avx2", "avx512f", "avx512_vnni"))
ARM = Cpu("aarch64", "a phone", ("asimd", "asimddp"))


def test_flags_are_read_from_what_the_kernel_says(tmp_path: Path) -> None:
    said = tmp_path / "cpuinfo"
    said.write_text("processor : 0\nmodel name : Some CPU\nflags\t: fpu avx2 avx_vnni\n\nprocessor : 1\nflags : fpu\n")
    found = this_cpu(said)
    assert (found.name, found.flags) == ("Some CPU", ("avx2", "avx_vnni"))
    said.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")
    assert this_cpu(said).flags == ("asimd", "asimddp", "i8mm")
    assert this_cpu(tmp_path / "none").flags == ()


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
        making, _ = ready(mlp(tmp_path / "a.onnx"), tmp_path / "work", choose_arithmetic(cpu))
        model = onnx.load(make(scheme, making).path)
        bytes_held = [onnx.numpy_helper.to_array(i) for i in model.graph.initializer if i.data_type == 3 and i.dims]
        largest[cpu] = max(int(np.abs(one.astype(int)).max()) for one in bytes_held if one.ndim > 1)
    assert largest == {OLD: 64, NEW: 127}


def quantised(cpu: Cpu, arithmetic: Int8Types | None = None) -> dict[str, object]:
    chosen = arithmetic or choose_arithmetic(cpu)
    return {"quantised": {"cpu": cpu.as_dict(), "arithmetic": {"reduce_range": chosen.reduce_range}}}


def test_a_file_made_with_wide_sums_is_warned_of_on_a_cpu_without() -> None:
    found = made_elsewhere(quantised(NEW), OLD)
    assert found is not None
    assert (found.code, found.severity) == ("FW706", "warning")
    assert "a new one" in found.seen


def test_a_file_that_runs_as_it_was_made_is_not_warned_of() -> None:
    assert made_elsewhere(quantised(OLD), NEW) is None
    assert made_elsewhere(quantised(NEW), NEW) is None
    assert made_elsewhere({}, NEW) is None
    assert made_elsewhere({"quantised": {"cpu": "nonsense"}}, NEW) is None


def test_a_file_of_another_family_is_warned_of() -> None:
    found = made_elsewhere(quantised(ARM), NEW)
    assert found is not None
    assert found.seen == "it was made on aarch64 (a phone); this is x86_64 (a new one)"
