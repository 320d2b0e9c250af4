"""Makes 36 mistakes in Python and 20 on the command line, and writes what Fairway answers to `answers.md`.

    python benchmarks/walk/walk.py [NAME ...]

`judgment.md` judges each answer by hand: is the cause clear, and is the advice true? `tests/quality/test_walk.py`
checks that every answer is judged, and that at most three are unclear.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fairway
from fairway.diagnostics.errors import UserError

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.md"
QUICK: dict[str, Any] = {"level": "quick", "timeout": 120.0}
LINES = ["x: float32[batch, 3]"]
BATCH = {"batch": (1, 8)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.positions = nn.Embedding(16, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids) + self.positions(torch.arange(ids.shape[1]))


class Two(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Number(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x, float(x.sum())


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> None:
        return None


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("the scale was never set")


class Ignores(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(x.shape)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class UntilSmall(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.abs().max() > 1:
            x = x / 2
        return x


def export(model: Any, inputs: Any = LINES, **more: Any) -> Any:
    options: dict[str, Any] = {"bounds": BATCH, **QUICK, **more}
    return fairway.export(model, inputs, "out.onnx", **options)


def export_twice() -> Any:
    export(Net())
    return export(Net())


def make_file(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def under_autocast() -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return export(Net())


def verify_other_weights() -> Any:
    export(Net())
    other = Net()
    nn.init.ones_(other.layer.weight)
    return fairway.verify("out.onnx", other, LINES, bounds=BATCH, level="quick")


PYTHON: dict[str, Callable[[], Any]] = {
    "a class for an instance": lambda: export(Net),
    "a state_dict for a model": lambda: export(Net().state_dict()),
    "a path of weights for a model": lambda: (torch.save(Net().state_dict(), "w.pt"), export("w.pt")),
    "None for a model": lambda: export(None),
    "a function of torch": lambda: export(torch.relu),
    "an ONNX file for a model": lambda: export("net.onnx"),
    "the model on the meta device": lambda: export(Net().to("meta")),
    "a lazy layer that never ran": lambda: export(nn.LazyLinear(2), ["input: float32[batch, 3]"]),
    "a dynamically quantized model": lambda: export(
        torch.ao.quantization.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.qint8)
    ),
    "autocast around the export": under_autocast,
    "a numpy array as example": lambda: export(Net(), (torch.randn(2, 3).numpy(),)),
    "a shape as example": lambda: export(Net(), (2, 3)),
    "an input that is missing": lambda: export(Two()),
    "an input with another name": lambda: export(Net(), ["data: float32[batch, 3]"]),
    "a dtype that does not exist": lambda: export(Net(), ["x: float[batch, 3]"]),
    "a missing bracket": lambda: export(Net(), ["x: float32[batch, 3"]),
    "a missing colon": lambda: export(Net(), ["x float32[batch, 3]"]),
    "a dim without a name": lambda: export(Net(), ["x: float32[?, 3]"]),
    "bounds for no dim": lambda: export(Net(), bounds={"bach": (1, 8)}),
    "bounds the wrong way round": lambda: export(Net(), bounds={"batch": (8, 1)}),
    "bounds that do not fit in memory": lambda: export(Net(), bounds={"batch": (1, 10**12)}),
    "a level that does not exist": lambda: export(Net(), level="fast"),
    "an opset that does not exist": lambda: export(Net(), opset=99),
    "dynamic_axes of no input": lambda: export(Net(), (torch.randn(2, 3),), dynamic_axes={"data": {0: "batch"}}),
    "do_constant_folding": lambda: export(Net(), do_constant_folding=True),
    "the output exists": export_twice,
    "a folder that does not exist": lambda: fairway.export(Net(), LINES, "no/such/out.onnx", bounds=BATCH, **QUICK),
    "ids that are too large": lambda: export(
        Words(), ["ids: int64[batch, seq] < 1000"], bounds={**BATCH, "seq": (1, 16)}
    ),
    "float ids": lambda: export(Words(), ["ids: float32[batch, seq]"], bounds={**BATCH, "seq": (1, 16)}),
    "more positions than the table has": lambda: export(
        Words(), ["ids: int64[batch, seq] < 10"], bounds={**BATCH, "seq": (1, 40)}
    ),
    "the wrong width": lambda: export(Net(), ["x: float32[batch, 4]"]),
    "a float64 input to a float32 model": lambda: export(Net(), ["x: float64[batch, 3]"]),
    "a number as an output": lambda: export(Number()),
    "forward raises": lambda: export(Raises()),
    "an input without effect": lambda: export(Ignores(), ["x: float32[batch, 3]", "y: float32[batch, 3]"]),
    "verify with other weights": verify_other_weights,
}
"""36 mistakes, each with what it does."""

RECIPE = """
import torch, fairway
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
    def forward(self, x):
        return self.layer(x)
net = fairway.Recipe(Net, ["x: float32[batch, 3]"], bounds={"batch": (1, 8)})
other = fairway.Recipe(Net, ["x: float32[batch, 3]"], bounds={"batch": (1, 8)})
"""

COMMANDS: dict[str, str] = {
    "no output": "export recipe.py:net",
    "no recipe": "export nosuch.py -o out.onnx",
    "a recipe with two names": "export recipe.py -o out.onnx",
    "a name that is not there": "export recipe.py:nett -o out.onnx",
    "a class without inputs": "export recipe.py:Net -o out.onnx",
    "weights for a recipe": "export w.pt -o out.onnx",
    "an ONNX file for a recipe": "export net.onnx -o out.onnx",
    "arguments that are swapped": "verify recipe.py:net net.onnx",
    "an option that does not exist": "export recipe.py:net -o out.onnx --dynamic",
    "a misspelled command": "exprot recipe.py:net -o out.onnx",
    "bounds that are not a range": "export recipe.py:net -o out.onnx --dim batch=8",
    "a level that is not offered": "export recipe.py:net -o out.onnx --level fast",
    "a route that does not exist": "export recipe.py:net -o out.onnx --route dynamo",
    "a time that is none": "export recipe.py:net -o out.onnx --timeout soon",
    "a checkpoint of another model": "export recipe.py:net -o out.onnx --checkpoint other.pt",
    "a checkpoint that is a pointer of git lfs": "export recipe.py:net -o out.onnx --checkpoint lfs.safetensors",
    "data that is missing": "run net.onnx missing.parquet -o outputs",
    "a folder without a model": "export empty -o out.onnx",
    "a finding that does not exist": "explain FW999",
    "a script that is missing": "script nosuch.py",
}
"""20 command lines."""


def answer_in_python(mistake: Callable[[], Any]) -> str:
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
        try:
            return str(mistake())
        except UserError as error:
            return f"UserError: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def answer_on_the_command_line(words: str) -> str:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-m", "fairway", *words.split()], env=environment, capture_output=True, text=True, timeout=300
    )
    return f"$ fairway {words}  # exit {done.returncode}\n{done.stdout}{done.stderr}".rstrip()


def prepare_files() -> None:
    make_file("recipe.py", RECIPE)
    torch.save({"encoder.weight": torch.ones(2, 2)}, "other.pt")
    torch.save({"layer.weight": torch.ones(2, 3)}, "w.pt")
    make_file("lfs.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 438010\n")
    os.mkdir("empty")
    fairway.export(Net(), LINES, "net.onnx", bounds=BATCH, **QUICK)


def walk(names: list[str]) -> dict[str, str]:
    """Return the answer to each mistake. Every mistake is made in a separate folder."""
    answers = {}
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        prepare_files()
        for name, words in COMMANDS.items():
            if not names or name in names:
                answers[name] = answer_on_the_command_line(words)
        for name, mistake in PYTHON.items():
            if not names or name in names:
                folder = Path(root) / re.sub(r"\W", "_", name)
                folder.mkdir()
                os.chdir(folder)
                answers[name] = answer_in_python(mistake)
        os.chdir(home)
        return {name: _shorten_paths(answer, root) for name, answer in answers.items()}


def _shorten_paths(answer: str, root: str) -> str:
    """Remove the folders of this machine from an answer."""
    return answer.replace(f"{root}/", "").replace(root, ".").replace(f"{HERE}/", "")


def main() -> None:
    answers = walk(sys.argv[1:])
    blocks = [f"## {name}\n\n```text\n{answers[name]}\n```\n" for name in (*PYTHON, *COMMANDS) if name in answers]
    text = "# What Fairway answers to 56 mistakes\n\nWritten by `walk.py`.\n\n" + "\n".join(blocks)
    if sys.argv[1:]:
        print(text)
    else:
        ANSWERS.write_text(text)


if __name__ == "__main__":
    main()
