"""A model is accepted in every form that people have it in. What cannot be run is refused with the cure."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fairway
from fairway.convert.result import Result
from fairway.diagnostics.errors import UserError
from fairway.model.function_model import find_parts
from fairway.model.subject import build_subject
from fairway.torch_internals import make_wrapper_subclass

LINES = ["x: float32[batch, 4]"]
BOUNDS = {"batch": (1, 9)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.drop, self.outer = nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.drop(torch.relu(self.inner(x))))  # type: ignore[no-any-return]

    def features(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return torch.relu(self.inner(x)) * scale


class Pipeline:
    """An object that can be called, and holds a model."""

    def __init__(self, net: Net) -> None:
        self.steps = {"net": net}
        self.mean = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.steps["net"](x - self.mean).softmax(-1)  # type: ignore[no-any-return]


class Moving(nn.Module):
    """Averages weights as timm's ModelEmaV2 does, and has no forward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = model


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            x = x + 1
        return x * 2


def export(model: Any, folder: Path, **more: Any) -> Result:
    inputs = more.pop("inputs", LINES)
    return fairway.export(model, inputs, folder / "out.onnx", bounds=BOUNDS, level="quick", **more)


def remarks(result: Result) -> list[tuple[str, str]]:
    return [(finding.code, finding.seen) for finding in result.findings]


def refusal(model: Any, inputs: Any = LINES) -> str:
    with pytest.raises(UserError) as caught:
        build_subject(model, inputs, bounds=BOUNDS)
    return str(caught.value)


NET = Net().eval()


def normalize(x: torch.Tensor) -> torch.Tensor:
    return NET(x / 2) @ NET.outer.weight  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (normalize, "normalize"),
        (lambda x: NET(x).sigmoid(), "function"),
        (functools.partial(NET.features, scale=3.0), "Net.features"),
        (NET.features, "Net.features"),
        (Pipeline(NET), "Pipeline"),
    ],
    ids=["function", "lambda", "partial", "bound method", "callable object"],
)
def test_a_function_is_exported_with_the_weights_it_uses(function: Any, name: str, tmp_path: Path) -> None:
    result = export(function, tmp_path)
    assert (result.verdict, remarks(result)) == ("verified", [])
    assert result.record.subject.class_name == f"{__name__}.{name}"
    assert result.evidence is not None
    assert "float64" in result.evidence.yardstick


def test_a_model_left_in_training_mode_is_seen_behind_a_function(tmp_path: Path) -> None:
    net = Net()
    assert [code for code, _ in remarks(export(lambda x: net(x) + 1, tmp_path))] == ["FW202"]
    assert net.training


def test_a_functions_modules_are_its_parts() -> None:
    def nested(x: torch.Tensor) -> Any:
        return [Pipeline(NET)(x) for _ in range(1)]

    assert find_parts(nested) == {"NET": NET}
    assert find_parts(functools.partial(torch.add, other=1)) == {}
    holder = Pipeline(NET)
    assert list(find_parts(lambda x: holder(x)).values()) == [NET]


def test_a_function_without_known_parameters_is_refused() -> None:
    assert refusal(torch.relu) == (
        "FW026: What was given as the model cannot be run: relu: Python does not know the parameters of this function\n"
        "  do: Wrap it in a function with named parameters: lambda x: torch.relu(x)."
    )


# Programs


def capture(model: nn.Module, *shape: int, **dims: Any) -> torch.export.ExportedProgram:
    return torch.export.export(model, (torch.randn(*shape),), dynamic_shapes=dims)


BATCH = torch.export.Dim("batch", min=1, max=9)


def test_a_program_is_translated_as_it_is(tmp_path: Path) -> None:
    program = capture(NET, 3, 4, x={0: BATCH})
    torch.export.save(program, tmp_path / "net.pt2")
    said = [("FW231", "the model is an ExportedProgram; it was translated as it is")]
    for model in (program, tmp_path / "net.pt2", str(tmp_path / "net.pt2")):
        result = export(model, tmp_path, overwrite=True)
        assert (result.verdict, remarks(result)) == ("verified", said)


def test_a_programs_inputs_keep_the_order_of_the_spec(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, times: int = 1) -> torch.Tensor:
            return x - y.exp() * times

    example = (torch.randn(3, 4), torch.randn(3, 4))
    lines = ["y: float32[batch, 4]", "x: float32[batch, 4]"]
    program = torch.export.export(Two(), example, dynamic_shapes=({0: BATCH}, {0: BATCH}))
    result = export(program, tmp_path, inputs=lines)
    assert (result.verdict, result.record.subject.inputs) == ("verified", tuple(lines))
    captured = torch.export.export(Two(), (*example, 3), dynamic_shapes=({0: BATCH}, {0: BATCH}, None))
    call, dims = (*example, 3), {"x": "batch 4", "y": "batch 4"}
    result = export(captured, tmp_path, inputs=call, dims=dims, overwrite=True)
    assert result.remedies == ()
    again = "the model is an ExportedProgram; it was captured again, because some inputs or outputs are not tensors"
    assert (result.verdict, ("FW231", again) in remarks(result)) == ("verified", True)


def test_sizes_that_a_program_refuses_are_refused_first() -> None:
    assert refusal(capture(NET, 3, 4, x={0: torch.export.Dim("batch", min=2, max=5)})) == (
        "FW027: The declared sizes go beyond those of the exported program: x axis 0 is declared batch 1..9; the "
        "program accepts 2..5\n"
        "  do: Declare only the sizes that the program accepts.\n"
        "  do: Or export the nn.Module itself, or capture the program again with wider dynamic_shapes."
    )
    assert "x axis 0 is declared batch 1..9; the program accepts 3\n" in refusal(capture(NET, 3, 4))


def test_a_file_that_holds_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"PK\x03\x04")
    assert refusal(tmp_path / "net.pt2").startswith(
        "FW105: The checkpoint cannot be read: net.pt2 is not a program that torch.export.load can read: "
    )


# TorchScript


@pytest.mark.parametrize("kind", ["traced", "scripted", "loaded", "path"])
def test_torchscript_is_exported(kind: str, tmp_path: Path) -> None:
    if kind == "scripted":
        model: Any = torch.jit.script(Branches())
    else:
        model = torch.jit.trace(NET, torch.randn(3, 4))
    if kind in ("loaded", "path"):
        torch.jit.save(model, tmp_path / "net.pt")
        model = tmp_path / "net.pt" if kind == "path" else torch.jit.load(tmp_path / "net.pt")
    result = export(model, tmp_path)
    assert result.verdict == "verified"


def test_a_scripted_function_is_exported(tmp_path: Path) -> None:
    def shift(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
        if bool(x.sum() > 0):
            x = x + by
        return x

    assert export(torch.jit.script(shift), tmp_path).verdict == "verified"


def test_damaged_torchscript_is_refused(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "net.pt", "w") as archive:
        archive.writestr("net/code/x.py", "nothing")
    assert refusal(tmp_path / "net.pt").startswith(
        "FW105: The checkpoint cannot be read: net.pt is TorchScript that torch cannot load: "
    )


# What is not a model


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (Net, "the model is the class Net, not an instance of it\n  do: Pass an instance: Net(...).eval()."),
        (
            NET.state_dict(),
            "the model is a state_dict of 4 tensors (inner.weight, inner.bias, outer.weight, …); weights do not say "
            "how to compute\n  do: Build the model, call model.load_state_dict(weights), and pass the model.",
        ),
        (
            {"epoch": 3, "state_dict": NET.state_dict()},
            "the model is a dict (epoch, state_dict); weights do not say how to compute\n"
            '  do: Build the model, call model.load_state_dict(checkpoint["state_dict"]), and pass the model.',
        ),
        (
            "nosuch.pt",
            "the model is the path 'nosuch.pt', at which there is no file\n"
            "  do: Pass the model itself, or the path of a .pt2 or TorchScript file.",
        ),
        (
            "net.onnx",
            "the model is the path of an ONNX file: net.onnx\n"
            '  do: To judge the file, write fairway.verify("net.onnx", model, inputs).',
        ),
        (
            None,
            "expected a model, got NoneType: None\n"
            "  do: Pass an nn.Module, a function, an ExportedProgram, TorchScript, or the path of a .pt2 or "
            "TorchScript file.",
        ),
    ],
    ids=["class", "state_dict", "checkpoint", "missing path", "onnx", "none"],
)
def test_what_is_no_model_is_refused_with_the_cure(model: Any, text: str) -> None:
    assert refusal(model) == f"FW026: What was given as the model cannot be run: {text}"


def test_a_path_of_weights_is_refused_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(NET.state_dict(), "net.pth")
    assert refusal("net.pth") == (
        "FW026: What was given as the model cannot be run: the model is the path 'net.pth'; the file holds weights "
        "without the code that uses them\n"
        '  do: Build the model, then load the file: model.load_state_dict(torch.load("net.pth", weights_only=True)).\n'
        "  do: Or write a recipe with `checkpoint=`; Fairway then loads the file."
    )


# Wrappers


def make_distributed(folder: Path) -> nn.Module:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(Net())


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (lambda folder: nn.DataParallel(Net()), "DataParallel"),
        (make_distributed, "DistributedDataParallel"),
        (lambda folder: torch.compile(Net()), "OptimizedModule"),
        (lambda folder: torch.optim.swa_utils.AveragedModel(Net()), "AveragedModel"),
        (lambda folder: Moving(Net()), "Moving"),
        (lambda folder: nn.DataParallel(torch.compile(Net())), "DataParallel, then OptimizedModule"),  # type: ignore[arg-type]
    ],
    ids=["DataParallel", "DDP", "compile", "AveragedModel", "EMA without forward", "two"],
)
def test_a_model_is_taken_out_of_its_wrapper(wrap: Callable[[Path], nn.Module], kind: str, tmp_path: Path) -> None:
    try:
        subject = build_subject(wrap(tmp_path), LINES, bounds=BOUNDS)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    assert type(subject.model) is Net
    assert [(remark.code, remark.seen) for remark in subject.remarks] == [("FW230", f"Net was taken out of {kind}")]


def test_a_compiled_function_is_exported_as_it_was(tmp_path: Path) -> None:
    result = export(torch.compile(normalize), tmp_path)
    assert (result.verdict, remarks(result)) == (
        "verified",
        [("FW230", "the function was compiled by torch.compile")],
    )


def test_compiled_parts_of_a_model_are_not_compiled_for_the_export(tmp_path: Path) -> None:
    def refuse(graph: Any, example: Any) -> Any:
        raise AssertionError("compiled")

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.compile(Net(), backend=refuse)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    assert export(Outer().eval(), tmp_path).verdict == "verified"


# Tensors


class Distant(torch.Tensor):
    """A tensor that claims another device."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0]


def test_lazy_quantized_and_distant_models_are_refused() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LazyLinear(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)  # type: ignore[no-any-return]

    assert refusal(Lazy()) == (
        "FW012: A tensor has no values: layer.weight of the model has no values yet: its lazy module has never "
        "run\n  do: Run the model once on example inputs before it is exported."
    )
    quantized = torch.ao.quantization.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.qint8)
    assert refusal(quantized) == (
        "FW031: The model holds layers that PyTorch quantized: inner is a Linear made by quantize_dynamic\n"
        "  do: Export the float model, then quantize the file: fairway quantize net.onnx -o net.int8.onnx"
    )
    distant = nn.Linear(4, 4)
    distant.weight = nn.Parameter(make_wrapper_subclass(Distant, (4, 4), dtype=torch.float32, device="cuda:0"))
    assert refusal(distant, ["input: float32[batch, 4]"]) == (
        "FW030: A tensor is not on the CPU: weight of the model is on the device cuda:0\n"
        "  do: Move the model and the example tensors: model.cpu(), tensor.cpu()."
    )


def test_an_export_under_autocast_is_refused() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert refusal(NET) == (
            "FW029: Autocast is on around the export: autocast to bfloat16 is enabled for the device cpu\n"
            "  do: Leave the `with torch.autocast` block before the export.\n"
            "  do: If the file must compute in half precision, convert the model: model.to(torch.bfloat16), or put "
            "autocast inside forward."
        )


def test_autocast_inside_forward_is_exported(tmp_path: Path) -> None:
    class Inside(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x).float()

    assert export(Inside().eval(), tmp_path).verdict == "verified"
    assert os.listdir(tmp_path)
