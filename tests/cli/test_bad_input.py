"""Bad input gets a clear error and loses nothing: for each kind the exact text and the exit code."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import onnx
import pytest
import torch
from onnx import helper
from safetensors.torch import save_file

from .command_line import QUICK, RECIPE, Fairway

ROOT = Path(__file__).resolve().parents[2]


def text(block: str) -> str:
    return dedent(block).removeprefix("\n")


def export(fairway: Fairway, recipe: str, *more: str) -> object:
    return fairway("export", recipe, "-o", "out.onnx", *QUICK, *more)


def assert_refused(fairway: Fairway, folder: Path, code: int, block: str, recipe: str, *more: str) -> None:
    """The text goes to standard error, nothing to standard output, and nothing new is in the folder."""
    before = sorted(folder.rglob("*"))
    said = fairway("export", recipe, "-o", "out.onnx", *QUICK, *more)
    assert said.err == text(block)
    assert said.out == ""
    assert said.code == code
    assert [p for p in sorted(folder.rglob("*")) if "__pycache__" not in str(p)] == before


def assert_failed(fairway: Fairway, folder: Path, code: int, block: str, recipe: str, *more: str) -> None:
    """The model ran before it was refused: the result, with its findings, is on standard output."""
    before = sorted(folder.rglob("*"))
    said = fairway("export", recipe, "-o", "out.onnx", *QUICK, *more)
    assert said.out == text(block)
    assert said.err == ""
    assert said.code == code
    assert [p for p in sorted(folder.rglob("*")) if "__pycache__" not in str(p)] == before


# The recipe


def test_a_missing_recipe_file_is_refused(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW101 error: The recipe was not found
          seen      nosuch.py does not exist
          why       RECIPE is `path/to/file.py[:name]` or `package.module:name`.
          do        1. Check the path; a relative one starts at the current folder.
        """,
        "nosuch.py",
    )


def test_a_missing_recipe_module_is_refused(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW101 error: The recipe was not found
          seen      there is no module 'nosuch.models'
          why       RECIPE is `path/to/file.py[:name]` or `package.module:name`.
          do        1. Check the path; a relative one starts at the current folder.
        """,
        "nosuch.models:Net",
    )


@pytest.mark.parametrize("address", ["weights.txt", "./weights.txt"])
def test_a_recipe_that_is_not_python_is_refused(fairway: Fairway, folder: Path, address: str) -> None:
    (folder / "weights.txt").write_bytes(b"")
    assert_refused(
        fairway,
        folder,
        3,
        f"""
        FW101 error: The recipe was not found
          seen      {address} is not a Python file
          why       RECIPE is `path/to/file.py[:name]` or `package.module:name`.
          do        1. Check the path; a relative one starts at the current folder.
        """,
        address,
    )


def test_weights_in_the_place_of_a_recipe_are_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "weights.pt").write_bytes(b"")
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW026 error: What was given as the model cannot be run
          seen      the model is the path 'weights.pt'; the file holds weights without the code that uses them
          why       A model is an nn.Module, a function, a bound method, an ExportedProgram, TorchScript, or the path
                    of a .pt2 or TorchScript file.
          do        1. Build the model, then load the file: model.load_state_dict(torch.load("weights.pt",
                    weights_only=True)).
                    2. Or write a recipe with `checkpoint=`; Fairway then loads the file.
        """,
        "weights.pt",
    )


def test_a_recipe_that_is_a_folder_is_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "models").mkdir()
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW103 error: The recipe does not identify a model
          seen      ./models is a folder without a config.json that names a transformers architecture
          why       The name must be a fairway.Recipe, an nn.Module, a Module class, or a function that returns one.
          do        1. Name a recipe: path/to/file.py[:name].
        """,
        "./models",
    )


def test_a_recipe_that_raises_is_reported_with_its_own_line(fairway: Fairway, folder: Path) -> None:
    (folder / "raises.py").write_text("def load():\n    raise ValueError('no weights today')\n\n\nload()\n")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW102 error: The recipe raised an error
          seen      raises.py: ValueError: no weights today
          where     raises.py:2, in load
                    > raise ValueError('no weights today')
          why       A recipe is Python code that Fairway runs, and that code failed.
          do        1. Run the file with python and fix the error.
        """,
        "raises.py",
    )


def test_a_recipe_that_is_not_valid_python_is_reported_with_its_line(fairway: Fairway, folder: Path) -> None:
    (folder / "syntax.py").write_text("import torch\nnet = torch.nn.Linear(3,\n")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW102 error: The recipe raised an error
          seen      syntax.py: SyntaxError: '(' was never closed (syntax.py, line 2)
          where     syntax.py:2
                    > net = torch.nn.Linear(3,
          why       A recipe is Python code that Fairway runs, and that code failed.
          do        1. Run the file with python and fix the error.
        """,
        "syntax.py",
    )


def test_a_recipe_that_exits_is_reported_and_does_not_end_fairway(fairway: Fairway, folder: Path) -> None:
    (folder / "exits.py").write_text("import sys\n\nsys.exit(0)\n")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW102 error: The recipe raised an error
          seen      exits.py: SystemExit: 0
          where     exits.py:3, in <module>
                    > sys.exit(0)
          why       A recipe is Python code that Fairway runs, and that code failed.
          do        1. Run the file with python and fix the error.
        """,
        "exits.py",
    )


def test_a_model_that_cannot_be_built_is_reported(fairway: Fairway, folder: Path) -> None:
    (folder / "recipe.py").write_text(RECIPE + "\n\ndef build():\n    return Net(width=-1)\n")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW102 error: The recipe raised an error
          seen      recipe.py:build: RuntimeError: Trying to create tensor with negative dimension -1: [-1, 3]
          where     recipe.py:8, in __init__
                    > self.fc = torch.nn.Linear(3, width)
          why       A recipe is Python code that Fairway runs, and that code failed.
          do        1. Run the file with python and fix the error.
        """,
        "recipe.py:build",
        "--input",
        "x: float32[batch, 3]",
    )


def test_a_recipe_without_a_model_is_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "empty.py").write_text("answer = 42\n")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW103 error: The recipe does not identify a model
          seen      empty.py contains no recipe
          why       The name must be a fairway.Recipe, an nn.Module, a Module class, or a function that returns one.
          do        1. Name one of the candidates listed: RECIPE.py:name.
        """,
        "empty.py",
    )


def test_an_unknown_name_is_answered_with_the_names_in_the_recipe(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW103 error: The recipe does not identify a model
          seen      recipe.py has no 'Nett'; name one: recipe.py:Net, recipe.py:net
          why       The name must be a fairway.Recipe, an nn.Module, a Module class, or a function that returns one.
          do        1. Name one of the candidates listed: RECIPE.py:name.
        """,
        "recipe.py:Nett",
    )


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("thing = 42", "recipe.py:thing: expected a model, or a function that returns one, got int"),
        ("def thing(): return 42", "recipe.py:thing returned 42, which is not a model"),
    ],
)
def test_a_name_that_is_no_model_is_refused(fairway: Fairway, folder: Path, line: str, seen: str) -> None:
    (folder / "recipe.py").write_text(RECIPE + line + "\n")
    assert_refused(
        fairway,
        folder,
        3,
        f"""
        FW103 error: The recipe does not identify a model
          seen      {seen}
          why       The name must be a fairway.Recipe, an nn.Module, a Module class, or a function that returns one.
          do        1. Name one of the candidates listed: RECIPE.py:name.
        """,
        "recipe.py:thing",
        "--input",
        "x: float32[batch, 3]",
    )


# The checkpoint


def checkpoint(folder: Path, width: int = 4) -> dict[str, torch.Tensor]:
    return {"fc.weight": torch.zeros(width, 3), "fc.bias": torch.zeros(width)}


def test_a_missing_checkpoint_is_refused(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW104 error: The checkpoint was not found
          seen      nosuch.pt
          why       The file named by the recipe or by --checkpoint does not exist.
          do        1. Check the path; one in a recipe starts at the recipe's folder.
        """,
        "recipe.py",
        "--checkpoint",
        "nosuch.pt",
    )


def test_a_truncated_checkpoint_is_refused(fairway: Fairway, folder: Path) -> None:
    whole = folder / "whole.pt"
    torch.save(checkpoint(folder), whole)
    (folder / "half.pt").write_bytes(whole.read_bytes()[:600])
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW105 error: The checkpoint cannot be read
          seen      half.pt (600 bytes): PytorchStreamReader failed reading zip archive: failed finding central
                    directory
          why       The file is truncated, damaged, or of another format.
          do        1. Copy the file again and compare sizes.
        """,
        "recipe.py",
        "--checkpoint",
        "half.pt",
    )


def test_a_truncated_safetensors_checkpoint_is_refused(fairway: Fairway, folder: Path) -> None:
    whole = folder / "whole.safetensors"
    save_file(checkpoint(folder), whole)
    (folder / "half.safetensors").write_bytes(whole.read_bytes()[:-8])
    size = whole.stat().st_size - 8
    assert_refused(
        fairway,
        folder,
        3,
        f"""
        FW105 error: The checkpoint cannot be read
          seen      half.safetensors ({size} bytes): Error while deserializing header: incomplete metadata, file not
                    fully covered
          why       The file is truncated, damaged, or of another format.
          do        1. Copy the file again and compare sizes.
        """,
        "recipe.py",
        "--checkpoint",
        "half.safetensors",
    )


def test_an_empty_checkpoint_is_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "empty.pt").write_bytes(b"")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW105 error: The checkpoint cannot be read
          seen      empty.pt (0 bytes) ends too early
          why       The file is truncated, damaged, or of another format.
          do        1. Copy the file again and compare sizes.
        """,
        "recipe.py",
        "--checkpoint",
        "empty.pt",
    )


def test_a_checkpoint_that_is_something_else_is_not_said_to_need_trust(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        3,
        f"""
        FW105 error: The checkpoint cannot be read
          seen      recipe.py ({len(RECIPE)} bytes) is neither a zip archive nor a pickle, as torch.save writes
          why       The file is truncated, damaged, or of another format.
          do        1. Copy the file again and compare sizes.
        """,
        "recipe.py",
        "--checkpoint",
        "recipe.py",
    )


def test_a_checkpoint_without_a_state_dict_is_refused(fairway: Fairway, folder: Path) -> None:
    torch.save({"epoch": 3, "loss": 0.5}, folder / "log.pt")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW105 error: The checkpoint cannot be read
          seen      log.pt holds a dict of epoch, loss, not a state dict
          why       The file is truncated, damaged, or of another format.
          do        1. Save model.state_dict(), alone or in a dict under 'state_dict', 'model_state_dict' or 'model'.
        """,
        "recipe.py",
        "--checkpoint",
        "log.pt",
    )


def test_a_checkpoint_of_another_architecture_is_answered_with_the_first_mismatches(
    fairway: Fairway, folder: Path
) -> None:
    other = {"fc.weight": torch.zeros(8, 3), **{f"layers.{i}.w": torch.zeros(1) for i in range(6)}}
    torch.save(other, folder / "other.pt")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW106 error: The checkpoint does not fit the model
          seen      other.pt differs from Net in 8 places:
                        missing fc.bias
                        unexpected layers.0.w
                        unexpected layers.1.w
                        unexpected layers.2.w
                        unexpected layers.3.w
                        and 3 more
          why       Names or shapes differ from those of the model that the recipe builds, also without prefixes of
                    training.
          do        1. If shapes differ, build the model with the settings that the checkpoint was trained with.
                    2. If names differ, load the file into the class that it was saved from, or choose other weights
                    in it with --checkpoint-key.
        """,
        "recipe.py",
        "--checkpoint",
        "other.pt",
    )


def test_a_checkpoint_of_another_width_is_answered_with_both_shapes(fairway: Fairway, folder: Path) -> None:
    save_file(checkpoint(folder, 8), folder / "wide.safetensors")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW106 error: The checkpoint does not fit the model
          seen      wide.safetensors differs from Net in 2 places:
                        fc.weight: [8, 3] in the file, [4, 3] in the model
                        fc.bias: [8] in the file, [4] in the model
          why       Names or shapes differ from those of the model that the recipe builds, also without prefixes of
                    training.
          do        1. If shapes differ, build the model with the settings that the checkpoint was trained with.
                    2. If names differ, load the file into the class that it was saved from, or choose other weights
                    in it with --checkpoint-key.
        """,
        "recipe.py",
        "--checkpoint",
        "wide.safetensors",
    )


class Touch:
    """Unpickled, it makes a file: proof that code ran."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.path),))


def test_a_pickle_is_refused_without_trust_and_none_of_its_code_runs(fairway: Fairway, folder: Path) -> None:
    torch.save({"fc.weight": Touch(folder / "ran")}, folder / "evil.pt")
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW107 error: The checkpoint would run code when loaded
          seen      evil.pt: it names posix.mkdir, which is not a tensor
          why       The file is a pickle that contains more than tensors. Unpickling it can run any code.
          do        1. Convert it to safetensors in a sandbox, or pass --trust if you trust its author.
        """,
        "recipe.py",
        "--checkpoint",
        "evil.pt",
    )
    assert not (folder / "ran").exists()


def test_a_plain_pickle_is_refused_without_trust_and_without_torchs_warnings(fairway: Fairway, folder: Path) -> None:
    with (folder / "evil.pt").open("wb") as file:
        pickle.dump({"fc.weight": Touch(folder / "ran")}, file)
    assert_refused(
        fairway,
        folder,
        3,
        """
        FW107 error: The checkpoint would run code when loaded
          seen      evil.pt: it holds more than tensors
          why       The file is a pickle that contains more than tensors. Unpickling it can run any code.
          do        1. Convert it to safetensors in a sandbox, or pass --trust if you trust its author.
        """,
        "recipe.py",
        "--checkpoint",
        "evil.pt",
    )
    assert not (folder / "ran").exists()


def test_a_pickle_is_unpickled_with_trust(fairway: Fairway, folder: Path) -> None:
    torch.save({"fc.weight": Touch(folder / "ran")}, folder / "evil.pt")
    export(fairway, "recipe.py", "--checkpoint", "evil.pt", "--trust")
    assert (folder / "ran").exists()


# The spec


@pytest.mark.parametrize(
    ("spec", "what", "caret"),
    [
        ("x float32[batch, 3]", "a colon belongs here, after the input's name", 2),
        ("x.: float32[batch, 3]", "a colon belongs here, after the input's name", 1),
        ("3x: float32[batch, 3]", "an input's name belongs here", 0),
        ("x: float32(batch, 3)", "the shape belongs here, in brackets", 10),
        ("x: float32[batch, 3", "the shape's closing bracket is missing", 19),
        ("x: float32[batch,, 3]", "a size belongs here: a number, a name, or 2*name+1", 17),
        ("x: float32[batch, 3.5]", "a size belongs here: a number, a name, or 2*name+1", 18),
        ("x: float32[batch, -3]", "a size belongs here: a number, a name, or 2*name+1", 18),
        ("x: float32[batch, 3] < 9", "`< N` is for whole numbers, with N at least 1", 21),
        ("x: float32[batch, 3] in 3..1", "the range 3..1 is empty", 21),
        ("x: int64[batch, 3] = lengths(!)", "a dim's name belongs here", 29),
        ("x: uint8[batch, 3] < 300", "uint8 holds 0..255 only", 19),
    ],
)
def test_a_spec_that_does_not_parse_gets_a_caret_under_the_place(
    fairway: Fairway, folder: Path, spec: str, what: str, caret: int
) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        f"""
        FW001 error: The spec does not parse
          seen      {what}
                        {spec}
                        {" " * caret}^
          why       An input is written `name: dtype[dim, dim, 3]`, a dim `name=low..high` or `name%multiple`.
          do        1. Correct the place under the caret.
        """,
        "recipe.py:Net",
        "--input",
        spec,
    )


def test_an_unknown_dtype_is_answered_with_the_dtypes(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW001 error: The spec does not parse
          seen      a dtype belongs here: float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool,
                    complex64
                        x: float31[batch, 3]
                           ^
          why       An input is written `name: dtype[dim, dim, 3]`, a dim `name=low..high` or `name%multiple`.
          do        1. Correct the place under the caret.
        """,
        "recipe.py:Net",
        "--input",
        "x: float31[batch, 3]",
    )


def test_unknown_values_are_answered_with_those_that_are_known(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW001 error: The spec does not parse
          seen      the legal values belong here: `< N`, `in low..high`, `= lengths(dim)`, or `=` and one of padding,
                    padding-left, padding-right, keep, keep-left-padded, keep-right-padded
                        x: bool[batch, 3] = masked
                                          ^
          why       An input is written `name: dtype[dim, dim, 3]`, a dim `name=low..high` or `name%multiple`.
          do        1. Correct the place under the caret.
        """,
        "recipe.py:Net",
        "--input",
        "x: bool[batch, 3] = masked",
    )


@pytest.mark.parametrize(
    ("dim", "what", "caret"),
    [
        ("batch=3", "a dim is written name=low..high, name%multiple, or both", 5),
        ("=1..3", "a dim is written name=low..high, name%multiple, or both", 0),
        ("batch%0", "a multiple is at least 1", 6),
    ],
)
def test_a_dim_that_does_not_parse_gets_a_caret_under_the_place(
    fairway: Fairway, folder: Path, dim: str, what: str, caret: int
) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        f"""
        FW001 error: The spec does not parse
          seen      {what}
                        {dim}
                        {" " * caret}^
          why       An input is written `name: dtype[dim, dim, 3]`, a dim `name=low..high` or `name%multiple`.
          do        1. Correct the place under the caret.
        """,
        "recipe.py",
        "--dim",
        dim,
    )


def test_an_unknown_input_is_answered_with_those_that_forward_takes(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW002 error: The declared inputs are not those that forward takes
          seen      forward has no input 'z'; it takes: x
          why       Inputs are matched to the parameters of `forward` by name.
          do        1. Use one of the names listed.
        """,
        "recipe.py:Net",
        "--input",
        "z: float32[batch, 3]",
    )


def test_an_input_that_is_not_declared_is_asked_for(fairway: Fairway, folder: Path) -> None:
    (folder / "recipe.py").write_text(RECIPE.replace("forward(self, x)", "forward(self, x, mask)"))
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW002 error: The declared inputs are not those that forward takes
          seen      forward also needs mask, which the spec does not declare
          why       Inputs are matched to the parameters of `forward` by name.
          do        1. Declare it too: --input 'mask: float32[batch, 3]'.
        """,
        "recipe.py",
    )


def test_an_input_declared_twice_is_refused(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW011 error: The names do not match the inputs or outputs
          seen      the input 'x' is declared twice
          why       Each tensor gets one name, in order, and names must be unique.
          do        1. Give as many distinct names as there are tensors.
        """,
        "recipe.py:Net",
        "--input",
        "x: float32[batch, 3]",
        "--input",
        "x: float32[batch, 4]",
    )


def with_inputs(folder: Path, arguments: str) -> None:
    (folder / "recipe.py").write_text(RECIPE.split("net =")[0] + f"net = fairway.Recipe(Net, {arguments})\n")


@pytest.mark.parametrize(
    ("dims", "seen"),
    [
        ('{"x": "batch 4"}', "x: axis 1 is declared 4, the example tensor has 3"),
        ('{"x": "batch time 3"}', "x: [batch time 3] declares 3 sizes, the example has 2: (2, 3)"),
        ('{"x": {5: "batch"}}', "x: axis 5 is declared, but the example has 2 axes"),
        ('{"x": {"first": "batch"}}', "x: axis 'first' is declared, but the example has 2 axes"),
        ('{"x": "4*batch 3"}', "x axis 0 is 2, which is not 4*batch for any batch"),
    ],
)
def test_a_spec_that_contradicts_an_example_tensor_is_refused(
    fairway: Fairway, folder: Path, dims: str, seen: str
) -> None:
    with_inputs(folder, f"(torch.zeros(2, 3),), dims={dims}")
    assert_refused(
        fairway,
        folder,
        2,
        f"""
        FW003 error: The spec contradicts an example tensor
          seen      {seen}
          why       The declared rank, dtype or fixed size differs from the tensor that was given.
          do        1. Correct the spec or the example tensor.
        """,
        "recipe.py",
    )


def test_an_example_outside_the_bounds_is_refused(fairway: Fairway, folder: Path) -> None:
    with_inputs(folder, '(torch.zeros(20, 3),), dims={"x": "batch 3"}, bounds={"batch": (1, 8)}')
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW003 error: The spec contradicts an example tensor
          seen      the example's batch=20 is outside batch 1..8
          why       The declared rank, dtype or fixed size differs from the tensor that was given.
          do        1. Correct the spec or the example tensor.
        """,
        "recipe.py",
    )


def test_examples_that_disagree_on_a_dim_are_refused(fairway: Fairway, folder: Path) -> None:
    with_inputs(folder, '(torch.zeros(2, 3),), dims={"x": "n n"}')
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW013 error: The inputs disagree on the size of a dim
          seen      n is 2 by x axis 0 and 3 by x axis 1
          why       A dim has the same size in all inputs.
          do        1. Give the dims different names, or make the sizes equal.
        """,
        "recipe.py",
    )


@pytest.mark.parametrize(
    ("dims", "seen"),
    [
        (("--dim", "batch=9..3"), "dim batch: 9..3 contains no size"),
        (("--dim", "batch=1..7%8"), "dim batch: 1..7 in multiples of 8 contains no size"),
        (("--dim", "batch=-2..7"), "dim batch: -2..7; a bound is at least 0, a multiple at least 1"),
    ],
)
def test_a_range_with_no_size_in_it_is_refused(
    fairway: Fairway, folder: Path, dims: tuple[str, ...], seen: str
) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        f"""
        FW004 error: A dim's range contains no size
          seen      {seen}
          why       A range needs at least one size: low ≤ high, no negative bound, and a multiple between them.
          do        1. Write the bounds as low..high with 0 ≤ low ≤ high, and a multiple between them if one is
                    declared.
        """,
        "recipe.py",
        *dims,
    )


def test_a_size_that_falls_below_zero_within_the_bounds_is_refused(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW004 error: A dim's range contains no size
          seen      x axis 0: time-5 gives no valid size at time=1
          why       A range needs at least one size: low ≤ high, no negative bound, and a multiple between them.
          do        1. Give bounds for which the size is at least 0: --dim name=low..high.
        """,
        "recipe.py:Net",
        "--input",
        "x: float32[time-5, 3]",
    )


def test_bounds_for_an_unknown_dim_are_answered_with_the_dims(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW005 error: Bounds are given for a dim that no input has
          seen      'time' is not a dim of any input; the dims are: batch
          why       Only names that appear in an input's shape are dims.
          do        1. Use one of the dim names listed, or add the name to an input's shape.
        """,
        "recipe.py",
        "--dim",
        "time=1..9",
    )


# The model


def with_forward(folder: Path, forward: str) -> None:
    body = RECIPE.replace("    def forward(self, x):\n        return torch.relu(self.fc(x))\n", forward)
    assert body != RECIPE
    (folder / "recipe.py").write_text(body)


def test_a_failing_forward_is_shown_with_its_line_and_the_shape(fairway: Fairway, folder: Path) -> None:
    with_forward(folder, "    def forward(self, x):\n        return self.fc(x[5:6].reshape(1, 3))\n")
    assert_failed(
        fairway,
        folder,
        1,
        """
        failed
          domain    batch 1..16

        FW201 error: forward fails on legal inputs
          seen      RuntimeError: shape '[1, 3]' is invalid for input of size 0, at batch=2
          where     recipe.py:11, in forward
                    > return self.fc(x[5:6].reshape(1, 3))
          why       PyTorch itself refuses inputs inside the declared domain, so no file can agree with it there.
          do        1. Fix forward, or narrow the bounds to what it accepts.
        """,
        "recipe.py",
    )


def test_a_forward_that_fails_only_at_a_bound_is_shown_there(fairway: Fairway, folder: Path) -> None:
    lines = (
        "    def forward(self, x):",
        "        if len(x) < 2:",
        "            raise ValueError('two rows, please')",
        "        return self.fc(x)",
        "",
    )
    with_forward(folder, "\n".join(lines))
    assert_failed(
        fairway,
        folder,
        1,
        """
        failed
          domain    batch 1..16

        FW201 error: forward fails on legal inputs
          seen      ValueError: two rows, please, at batch=1
          where     recipe.py:12, in forward
                    > raise ValueError('two rows, please')
          why       PyTorch itself refuses inputs inside the declared domain, so no file can agree with it there.
          do        1. Fix forward, or narrow the bounds to what it accepts.
        """,
        "recipe.py",
    )


@pytest.mark.parametrize(("value", "shown"), [("None", "None"), ("()", "()"), ("{}", "{}")])
def test_a_model_with_no_outputs_is_refused(fairway: Fairway, folder: Path, value: str, shown: str) -> None:
    with_forward(folder, f"    def forward(self, x):\n        return {value}\n")
    assert_failed(
        fairway,
        folder,
        1,
        f"""
        failed
          domain    batch 1..16

        FW208 error: forward returns no tensors
          seen      expected a tensor from forward, got {shown}
          why       An ONNX file needs at least one output.
          do        1. Return a tensor from forward.
        """,
        "recipe.py",
    )


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("'hello'", "the output is of type str: 'hello'"),
        ("self.fc(x), {'count': len(x)}", "output 1.count is of type int: 2; its value differs between two examples"),
        ("{'word': 'hello', 'count': 3}", "output word is of type str: 'hello'"),
    ],
)
def test_a_model_with_an_output_that_is_not_a_tensor_is_refused(
    fairway: Fairway, folder: Path, value: str, seen: str
) -> None:
    with_forward(folder, f"    def forward(self, x):\n        return {value}\n")
    assert_failed(
        fairway,
        folder,
        1,
        f"""
        failed
          domain    batch 1..16

        FW209 error: forward returns something that is not a tensor
          seen      {seen}
          why       ONNX outputs are tensors; a Python number or string cannot be one.
          do        1. Return tensors only, or leave the value out.
        """,
        "recipe.py",
    )


@pytest.mark.parametrize("inputs", ["[]", "()", "{}", "None"])
def test_a_model_with_no_inputs_is_refused(fairway: Fairway, folder: Path, inputs: str) -> None:
    with_inputs(folder, inputs)
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW010 error: No inputs are declared
          seen      recipe.py declares no inputs
          why       A file is tested by running it on inputs, so at least one must be declared.
          do        1. Declare each input: --input 'x: float32[batch, 3]', or `inputs=` in the recipe.
        """,
        "recipe.py",
    )


def test_inputs_without_a_tensor_among_them_are_refused(fairway: Fairway, folder: Path) -> None:
    with_inputs(folder, "(3.5,)")
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW010 error: No inputs are declared
          seen      expected at least one input tensor, got none
          why       A file is tested by running it on inputs, so at least one must be declared.
          do        1. Declare each input: --input 'x: float32[batch, 3]', or `inputs=` in the recipe.
        """,
        "recipe.py",
    )


def test_numpy_inputs_are_refused_with_the_way_to_convert_them(fairway: Fairway, folder: Path) -> None:
    with_inputs(folder, "(torch.zeros(2, 3).numpy(),)")
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW015 error: The inputs have an unsupported form
          seen      expected a tensor for the input 'x', got a numpy array
          why       `inputs` is a tuple of args, a dict of kwargs, an (args, kwargs) pair, a function (seed, **dims),
                    or a list of spec lines.
          do        1. Give torch tensors: torch.from_numpy(array).
        """,
        "recipe.py",
    )


def test_an_input_on_the_meta_device_is_refused(fairway: Fairway, folder: Path) -> None:
    with_inputs(folder, '(torch.empty(2, 3, device="meta"),)')
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW012 error: A tensor has no values
          seen      the input 'x' is on the meta device
          why       Meta tensors have a shape but no values, so there is nothing to run or compare.
          do        1. Materialize the model (`to_empty` and load a checkpoint) and give real example tensors.
        """,
        "recipe.py",
    )


def test_a_model_on_the_meta_device_is_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "recipe.py").write_text(RECIPE.replace("Recipe(Net,", 'Recipe(lambda: Net().to("meta"),'))
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW012 error: A tensor has no values
          seen      fc.weight of the model is on the meta device
          why       Meta tensors have a shape but no values, so there is nothing to run or compare.
          do        1. Materialize the model (`to_empty` and load a checkpoint) and give real example tensors.
        """,
        "recipe.py",
    )


def test_an_inputs_function_that_ignores_the_size_asked_for_is_refused(fairway: Fairway, folder: Path) -> None:
    """It would have the same shape tested at every point, and the whole range called verified."""
    function = 'lambda seed, batch: (torch.ones(2, 3),), dims={"x": "batch 3"}, bounds={"batch": (1, 8)}'
    with_inputs(folder, function)
    assert_failed(
        fairway,
        folder,
        2,
        """
        failed
          domain    batch 1..8

        FW003 error: The spec contradicts an example tensor
          seen      inputs(2, batch=1) returned x as float32[2, 3]; float32[1, 3] was expected
          why       The declared rank, dtype or fixed size differs from the tensor that was given.
          do        1. Make the inputs function return tensors of the sizes it is called with.
        """,
        "recipe.py",
    )


def test_an_inputs_function_that_raises_is_shown_with_its_line(fairway: Fairway, folder: Path) -> None:
    with_inputs(folder, 'lambda seed, batch: 1 / 0, dims={"x": "batch 3"}, bounds={"batch": (1, 8)}')
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW015 error: The inputs have an unsupported form
          seen      inputs(0, batch=2) raised ZeroDivisionError: division by zero
          where     recipe.py:14, in <lambda>
                    > net = fairway.Recipe(Net, lambda seed, batch: 1 / 0, dims={"x": "batch 3"}, bounds={"batch": (1,
                    8)})
          why       `inputs` is a tuple of args, a dict of kwargs, an (args, kwargs) pair, a function (seed, **dims),
                    or a list of spec lines.
          do        1. Fix the function: it must take any sizes within the bounds.
        """,
        "recipe.py",
    )


def test_output_names_that_do_not_fit_are_a_usage_error(fairway: Fairway, folder: Path) -> None:
    with_inputs(folder, '["x: float32[batch, 3]"], output_names=["a", "b"]')
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW011 error: The names do not match the inputs or outputs
          seen      output_names: expected a distinct name for each of ['output'], got ['a', 'b']
          why       Each tensor gets one name, in order, and names must be unique.
          do        1. Give as many distinct names as there are tensors.
        """,
        "recipe.py",
    )


# Settings


def test_an_unsupported_opset_is_answered_with_those_that_are_supported(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        f"""
        FW007 error: The opset cannot be produced
          seen      opset: expected 7..{onnx.defs.onnx_opset_version()}, got 99
          why       Each exporter writes a limited range of opsets, and the runtime reads a limited range.
          do        1. Use one of the opsets listed, or leave --opset out.
        """,
        "recipe.py",
        "--opset",
        "99",
    )


def test_an_opset_that_the_only_route_cannot_write_is_refused(fairway: Fairway) -> None:
    said = fairway("export", "recipe.py", "-o", "out.onnx", *QUICK, "--opset", "22")
    assert said.code == 2
    assert said.err.startswith("FW007 error: The opset cannot be produced\n")


@pytest.mark.parametrize(
    ("option", "seen", "todo"),
    [
        (
            ("--level", "high"),
            "level: expected one of none, quick, standard, deep, got 'high'",
            "Use one of the values listed.",
        ),
        (
            ("--memory", "lots"),
            "--memory: expected a size such as 8G or 500M, got 'lots'",
            "Write a size such as 8G or 500M after --memory.",
        ),
        (
            ("--timeout", "soon"),
            "--timeout: expected a time such as 90s, 5m or 1h, got 'soon'",
            "Write a time such as 90s, 5m or 1h after --timeout.",
        ),
    ],
)
def test_an_unknown_value_of_an_option_is_refused(
    fairway: Fairway, folder: Path, option: tuple[str, str], seen: str, todo: str
) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        f"""
        FW006 error: An option has an invalid value
          seen      {seen}
          why       The option does not accept this value.
          do        1. {todo}
        """,
        "recipe.py",
        *option,
    )


def test_an_unknown_route_is_answered_with_the_routes(fairway: Fairway, folder: Path) -> None:
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW006 error: An option has an invalid value
          seen      route: expected one of export-dynamic, export-named, export-auto, strict-dynamic, trace, pieces,
                    script, got 'onnx'
          why       The option does not accept this value.
          do        1. Use one of the values listed.
        """,
        "recipe.py",
        "--route",
        "onnx",
    )


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (("export", "recipe.py"), "Error: Missing option '--output' / '-o'."),
        (("export", "-o", "out.onnx"), "Error: Missing argument 'RECIPE'."),
        (("exprot",), "Error: No such command 'exprot'."),
        (("export", "recipe.py", "-o", "o.onnx", "--lvl", "quick"), "Error: No such option: --lvl"),
    ],
)
def test_a_command_line_that_is_none_is_a_usage_error(
    fairway: Fairway, folder: Path, words: tuple[str, ...], last: str
) -> None:
    said = fairway(*words)
    assert said.err.rstrip().splitlines()[-1].startswith(last)  # some versions of typer go on: "Did you mean …?"
    assert said.out == ""
    assert said.code == 2


# The output


def test_a_file_that_exists_is_not_replaced_without_overwrite(fairway: Fairway, folder: Path) -> None:
    (folder / "out.onnx").write_bytes(b"precious")
    assert_refused(
        fairway,
        folder,
        2,
        """
        FW008 error: The output file exists
          seen      out.onnx
          why       Existing files are replaced only with --overwrite.
          do        1. Pass --overwrite (overwrite=True), or name another file.
        """,
        "recipe.py",
    )
    assert (folder / "out.onnx").read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["out.onnx.data", "out.fairway.json"])
def test_weights_and_records_that_exist_are_not_replaced_either(fairway: Fairway, folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"precious")
    assert_refused(
        fairway,
        folder,
        2,
        f"""
        FW008 error: The output file exists
          seen      {name}
          why       Existing files are replaced only with --overwrite.
          do        1. Pass --overwrite (overwrite=True), or name another file.
        """,
        "recipe.py",
    )
    assert (folder / name).read_bytes() == b"precious"


def test_a_failed_export_leaves_the_file_that_was_to_be_overwritten(fairway: Fairway, folder: Path) -> None:
    (folder / "out.onnx").write_bytes(b"precious")
    with_forward(folder, "    def forward(self, x):\n        return None\n")
    said = export(fairway, "recipe.py", "--overwrite")
    assert said.code == 1
    assert (folder / "out.onnx").read_bytes() == b"precious"


def test_overwrite_replaces_the_file(fairway: Fairway, folder: Path) -> None:
    (folder / "out.onnx").write_bytes(b"old")
    said = export(fairway, "recipe.py", "--overwrite")
    assert said.code == 0
    assert onnx.load(folder / "out.onnx").graph.output[0].name == "output"


CANNOT_WRITE = """
        FW009 error: The output file cannot be written
          seen      {seen}
          why       The folder is missing, read-only or full. Nothing was left behind.
          do        1. Name a folder that exists, is writable and has room.
        """


@pytest.mark.parametrize(
    ("output", "seen"),
    [
        ("nosuch/out.onnx", "the folder nosuch does not exist"),
        ("recipe.py/out.onnx", "the folder recipe.py cannot exist, because recipe.py is a file"),
        (".", ". is a folder"),
        ("/proc/out.onnx", "no file can be made in /proc: No such file or directory"),
    ],
)
def test_an_output_path_that_cannot_be_written_is_refused(
    fairway: Fairway, folder: Path, output: str, seen: str
) -> None:
    said = fairway("export", "recipe.py", "-o", output, *QUICK)
    assert said.err == text(CANNOT_WRITE.format(seen=seen))
    assert said.out == ""
    assert said.code == 2


def test_a_read_only_folder_is_refused_before_the_model_is_loaded(
    fairway: Fairway, small_disk: Callable[[str], Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = small_disk("size=64k,ro")
    if disk is None:  # not allowed to mount: ask the check itself, as a plain user's system would answer
        disk = Path("disk")
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    said = fairway("export", "nosuch.py", "-o", "disk/out.onnx", *QUICK)
    assert said.err == text(CANNOT_WRITE.format(seen="the folder disk is read-only"))
    assert said.code == 2


def test_a_record_path_that_is_a_folder_is_refused_first(fairway: Fairway, folder: Path) -> None:
    (folder / "out.fairway.json").mkdir()
    assert_refused(fairway, folder, 2, CANNOT_WRITE.format(seen="out.fairway.json is a folder"), "recipe.py")


def test_a_full_disk_is_told_from_an_exporters_error(
    fairway: Fairway, folder: Path, small_disk: Callable[[str], Path | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "recipe.py").write_text(RECIPE.replace("width=4", "width=20_000"))
    if small_disk("size=64k") is None:
        monkeypatch.setattr("onnx_ir.save", _full)
    said = fairway("export", "recipe.py", "-o", "disk/out.onnx", *QUICK)
    assert "FW009 error: The output file cannot be written" in said.err + said.out
    assert said.code == 2
    assert os.listdir("disk") == []


def _full(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up_at_the_last_step_leaves_nothing_behind(
    fairway: Fairway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidate fitted, the delivered file does not; tests/test_deliver.py has the same on a disk that is full."""
    (folder / "out.onnx").write_bytes(b"precious")
    import fairway.record.delivery as module

    real = module.hash_file
    monkeypatch.setattr(module, "hash_file", lambda path: _full() or real(path))
    said = export(fairway, "recipe.py", "--overwrite")
    assert said.err == text(CANNOT_WRITE.format(seen="out.onnx: No space left on device"))
    assert said.out == ""
    assert said.code == 2
    assert (folder / "out.onnx").read_bytes() == b"precious"
    assert sorted(p.name for p in folder.iterdir() if p.name != "__pycache__") == ["out.onnx", "recipe.py"]


# The ONNX file


@pytest.fixture
def good_file(folder: Path) -> Path:
    """y = relu(x @ w + b) with its weights inside."""
    weights = [
        helper.make_tensor("w", 1, [3, 4], [0.5] * 12),
        helper.make_tensor("b", 1, [4], [0.1] * 4),
    ]
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["g"]), helper.make_node("Relu", ["g"], ["output"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["batch", 3])],
        [helper.make_tensor_value_info("output", 1, ["batch", 4])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path = folder / "good.onnx"
    onnx.save(model, path)
    return path


def with_data(good: Path, location: str, **entries: str) -> Path:
    """The good file, with its weights said to lie at `location`."""
    model = onnx.load(good)
    for tensor in model.graph.initializer:
        tensor.ClearField("float_data")
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.add(key=key, value=value)
    path = good.with_name("model.onnx")
    path.write_bytes(model.SerializeToString())
    return path


def assert_unreadable(fairway: Fairway, block: str) -> None:
    """`verify` and `inspect` say the same of the same file."""
    for words in (("verify", "model.onnx", "recipe.py", "--level", "quick"), ("inspect", "model.onnx")):
        said = fairway(*words)
        assert said.err == text(block)
        assert said.out == ""
        assert said.code == 3


NOT_ONNX = """
        FW110 error: The file is not a readable ONNX model
          seen      {seen}
          why       The file is missing, truncated, or of another format.
          do        1. Check the path; export or copy it again.
        """


def test_a_missing_onnx_file_is_refused(fairway: Fairway) -> None:
    assert_unreadable(fairway, NOT_ONNX.format(seen="model.onnx does not exist"))


def test_a_folder_in_place_of_an_onnx_file_is_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "model.onnx").mkdir()
    assert_unreadable(fairway, NOT_ONNX.format(seen="model.onnx is a folder"))


def test_a_truncated_onnx_file_is_refused(fairway: Fairway, folder: Path, good_file: Path) -> None:
    (folder / "model.onnx").write_bytes(good_file.read_bytes()[:100])
    seen = (
        "model.onnx (100 bytes) is truncated or not an ONNX model: Error parsing message with type\n"
        "                    'onnx.ModelProto': Wire format was corrupt"
    )
    assert_unreadable(fairway, NOT_ONNX.format(seen=seen))


def test_a_file_that_is_not_onnx_is_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "model.onnx").write_text("<!DOCTYPE html>\n<p>Not found\n")
    seen = (
        "model.onnx (29 bytes) is truncated or not an ONNX model: Error parsing message with type\n"
        "                    'onnx.ModelProto': Wire format was corrupt"
    )
    assert_unreadable(fairway, NOT_ONNX.format(seen=seen))


def test_an_empty_onnx_file_is_refused(fairway: Fairway, folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"")
    assert_unreadable(fairway, NOT_ONNX.format(seen="model.onnx (0 bytes) contains no graph with outputs"))


def test_missing_external_data_is_refused(fairway: Fairway, good_file: Path) -> None:
    with_data(good_file, "weights.bin")
    assert_unreadable(
        fairway,
        """
        FW111 error: The model's external data is missing
          seen      model.onnx needs weights.bin, which does not exist or is not a regular file
          why       Large weights are stored in a second file beside the model, and that file is missing or too short.
          do        1. Copy the data file into the model's folder under the name listed.
        """,
    )


def test_truncated_external_data_is_refused(fairway: Fairway, folder: Path, good_file: Path) -> None:
    with_data(good_file, "weights.bin", offset="16", length="48")
    (folder / "weights.bin").write_bytes(b"\0" * 60)
    assert_unreadable(
        fairway,
        """
        FW111 error: The model's external data is missing
          seen      weights.bin has 60 bytes, model.onnx needs 64
          why       Large weights are stored in a second file beside the model, and that file is missing or too short.
          do        1. Copy the data file into the model's folder under the name listed.
        """,
    )


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "link.bin"])
def test_external_data_outside_the_folder_is_refused(
    fairway: Fairway, folder: Path, good_file: Path, location: str
) -> None:
    (folder / "link.bin").symlink_to("/etc/passwd")
    with_data(good_file, location)
    assert_unreadable(
        fairway,
        f"""
        FW112 error: The model's external data points outside its folder
          seen      model.onnx: w refers to '{location}'
          why       A model file must not read other files on the machine, and this one tries to.
          do        1. Do not load this file unless you made it; if you did, save it with its data beside it.
        """,
    )


@pytest.mark.parametrize(
    ("entries", "seen"),
    [
        ({"offset": "-64"}, "model.onnx: w has an offset or length below 0"),
        ({"offset": "many"}, "model.onnx: w has an offset or length that is not a number"),
    ],
)
def test_external_data_at_an_impossible_offset_is_refused(
    fairway: Fairway, folder: Path, good_file: Path, entries: dict[str, str], seen: str
) -> None:
    (folder / "weights.bin").write_bytes(b"\0" * 64)
    with_data(good_file, "weights.bin", **entries)
    assert_unreadable(fairway, NOT_ONNX.format(seen=seen))


def test_a_file_with_other_inputs_is_answered_with_both_signatures(fairway: Fairway, good_file: Path) -> None:
    said = fairway("verify", "good.onnx", "recipe.py:Net", "--input", "x: float64[batch, 3]", "--level", "quick")
    assert said.err == text(
        """
        FW411 error: The file's inputs are not the declared ones
          seen      the file has x: float32[batch, 3]; declared is x: float64[batch, 3]
          why       The inputs differ in number, names, dtypes or ranks.
          do        1. Name the recipe of the model that the file was made from.
                    2. Or declare the inputs as the file has them.
        """
    )
    assert said.code == 1


# JSON, and the real thing


def test_with_json_the_finding_is_on_standard_output_and_nothing_is_said(fairway: Fairway, folder: Path) -> None:
    said = fairway("export", "nosuch.py", "-o", "out.onnx", "--json")
    assert json.loads(said.out) == {
        "verdict": "failed",
        "findings": [
            {
                "title": "The recipe was not found",
                "severity": "error",
                "kind": "input",
                "code": "FW101",
                "seen": "nosuch.py does not exist",
                "where": None,
                "why": "RECIPE is `path/to/file.py[:name]` or `package.module:name`.",
                "todo": ["Check the path; a relative one starts at the current folder."],
                "upstream": [],
                "artifacts": [],
                "data": {},
            }
        ],
    }
    assert said.err == ""
    assert said.code == 3


def test_with_json_a_failing_model_is_a_record_with_its_findings(fairway: Fairway, folder: Path) -> None:
    with_forward(folder, "    def forward(self, x):\n        return None\n")
    said = export(fairway, "recipe.py", "--json")
    record = json.loads(said.out)
    assert (record["verdict"], record["path"]) == ("failed", None)
    assert [(f["code"], f["seen"]) for f in record["findings"]] == [
        ("FW208", "expected a tensor from forward, got None")
    ]
    assert said.code == 1


def test_a_bug_of_fairways_has_its_traceback_and_its_own_exit_code(
    fairway: Fairway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairway.model.subject.build_subject", lambda *args, **kwargs: 1 / 0)
    said = export(fairway, "recipe.py")
    lines = said.err.splitlines()
    assert lines[0] == "FW901 error: Fairway has a bug"
    assert lines[1] == "  seen      Traceback (most recent call last):"
    assert lines[-3] == "            ZeroDivisionError: division by zero"
    assert said.out == ""
    assert said.code == 4


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "fairway", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_a_real_process_ends_with_the_code_and_talks_on_standard_error(folder: Path) -> None:
    done = run(folder, "export", "recipe.py", "-o", "out.onnx", "--dim", "batch=3")
    assert done.stderr == text(
        """
        FW001 error: The spec does not parse
          seen      a dim is written name=low..high, name%multiple, or both
                        batch=3
                             ^
          why       An input is written `name: dtype[dim, dim, 3]`, a dim `name=low..high` or `name%multiple`.
          do        1. Correct the place under the caret.
        """
    )
    assert done.stdout == ""
    assert done.returncode == 2


def test_a_real_process_that_cannot_load_ends_with_3(folder: Path) -> None:
    done = run(folder, "inspect", "nosuch.onnx")
    assert done.stderr.splitlines()[:2] == [
        "FW110 error: The file is not a readable ONNX model",
        "  seen      nosuch.onnx does not exist",
    ]
    assert done.stdout == ""
    assert done.returncode == 3
