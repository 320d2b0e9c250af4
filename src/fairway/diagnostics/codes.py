"""The pages of the finding codes, in one flat table. Codes are never reused; titles name the defect, not the cure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fairway.diagnostics.code_names import Code

Kind = Literal["input", "model", "upstream", "evidence", "limit", "machine", "fairway"]
Severity = Literal["error", "warning", "note"]

__all__ = ["CODES", "Code", "CodeEntry", "exit_status"]


@dataclass(frozen=True)
class CodeEntry:
    """The page of a code: its title, who can fix it, the reason, and what to do first."""

    code: Code
    title: str
    kind: Kind
    why: str
    todo: tuple[str, ...]
    severity: Severity = "error"
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.code.name.lower().replace("_", "-"))


def exit_status(code: str) -> int:
    """Return 2 for a usage error, 3 for a load failure, 4 for a bug in Fairway, and 1 for every other finding."""
    return {"0": 2, "1": 3, "9": 4}.get(code[2], 1)


_ROWS = (
    # FW0xx: Invalid input: the request cannot be carried out.
    CodeEntry(
        Code.SPEC_SYNTAX,
        "The spec does not parse",
        "input",
        "An input is written `name: dtype[dim, dim, 3]`, a dim `name=low..high` or `name%multiple`.",
        ("Correct the place under the caret.",),
    ),
    CodeEntry(
        Code.UNKNOWN_INPUT,
        "The declared inputs are not those that forward takes",
        "input",
        "Inputs are matched to the parameters of `forward` by name.",
        ("Use one of the names listed.",),
    ),
    CodeEntry(
        Code.SPEC_CONTRADICTS_EXAMPLE,
        "The spec contradicts an example tensor",
        "input",
        "The declared rank, dtype or fixed size differs from the tensor that was given.",
        ("Correct the spec or the example tensor.",),
    ),
    CodeEntry(
        Code.EMPTY_RANGE,
        "A dim's range contains no size",
        "input",
        "A range needs at least one size: low ≤ high, no negative bound, and a multiple between them.",
        ("Write the bounds as low..high with 0 ≤ low ≤ high, and a multiple between them if one is declared.",),
    ),
    CodeEntry(
        Code.UNKNOWN_DIM,
        "Bounds are given for a dim that no input has",
        "input",
        "Only names that appear in an input's shape are dims.",
        ("Use one of the dim names listed, or add the name to an input's shape.",),
    ),
    CodeEntry(
        Code.UNKNOWN_OPTION,
        "An option has an invalid value",
        "input",
        "The option does not accept this value.",
        ("Use one of the values listed.",),
    ),
    CodeEntry(
        Code.OPSET_UNSUPPORTED,
        "The opset cannot be produced",
        "input",
        "Each exporter writes a limited range of opsets, and the runtime reads a limited range.",
        ("Use one of the opsets listed, or leave --opset out.",),
    ),
    CodeEntry(
        Code.FILE_EXISTS,
        "The output file exists",
        "input",
        "Existing files are replaced only with --overwrite.",
        ("Pass --overwrite (overwrite=True), or name another file.",),
    ),
    CodeEntry(
        Code.CANNOT_WRITE,
        "The output file cannot be written",
        "input",
        "The folder is missing, read-only or full. Nothing was left behind.",
        ("Name a folder that exists, is writable and has room.",),
    ),
    CodeEntry(
        Code.NO_INPUTS,
        "No inputs are declared",
        "input",
        "A file is tested by running it on inputs, so at least one must be declared.",
        ("Declare each input: --input 'x: float32[batch, 3]', or `inputs=` in the recipe.",),
    ),
    CodeEntry(
        Code.NAMES_DO_NOT_FIT,
        "The names do not match the inputs or outputs",
        "input",
        "Each tensor gets one name, in order, and names must be unique.",
        ("Give as many distinct names as there are tensors.",),
    ),
    CodeEntry(
        Code.META_TENSOR,
        "A tensor has no values",
        "input",
        "Meta tensors have a shape but no values, so there is nothing to run or compare.",
        ("Materialize the model (`to_empty` and load a checkpoint) and give real example tensors.",),
    ),
    CodeEntry(
        Code.INPUTS_DISAGREE,
        "The inputs disagree on the size of a dim",
        "input",
        "A dim has the same size in all inputs.",
        ("Give the dims different names, or make the sizes equal.",),
    ),
    CodeEntry(
        Code.UNKNOWN_CODE,
        "There is no such finding",
        "input",
        "Every finding has a code such as FW206, and a page.",
        ("List them all: fairway explain --list",),
    ),
    CodeEntry(
        Code.BAD_INPUTS,
        "The inputs have an unsupported form",
        "input",
        "`inputs` is a tuple of args, a dict of kwargs, an (args, kwargs) pair, a function (seed, **dims), or a "
        "list of spec lines.",
        ("Give the inputs in one of these forms.",),
    ),
    CodeEntry(
        Code.BAD_PATCH,
        "A patch cannot be used",
        "input",
        "A patch maps a function or method found on the model or its module to a replacement callable.",
        ("Write patches={Net.method: replacement}.",),
    ),
    CodeEntry(
        Code.INPUTS_TOO_LARGE,
        "The declared inputs do not fit into this machine's memory",
        "input",
        "The file is also tested at the ends of every range, and the inputs for these tests must fit into memory.",
        ("Narrow the bounds to what the model is meant for: --dim name=low..high.",),
    ),
    CodeEntry(
        Code.EXTRA_MISSING,
        "An optional package is not installed",
        "input",
        "A plain install contains only what every export needs. This feature needs an extra.",
        ("Install the extra named above.",),
    ),
    CodeEntry(
        Code.NOT_A_GENERATOR,
        "This kind of generation is not supported",
        "input",
        "Supported are transformers models that generate text from text, or from speech of one fixed length.",
        ("Export the model's parts one by one with fairway.export.",),
    ),
    CodeEntry(
        Code.BAD_TRANSLATION,
        "A translation cannot be used",
        "input",
        "A translation maps an operator's overload to a function that calls ONNX operators.",
        ("Write translations={torch.ops.mine.op.default: function}.",),
    ),
    CodeEntry(
        Code.NOT_LINKABLE,
        "The weights cannot be linked",
        "input",
        "Runtimes load weights only from the file's own folder or below, and the bytes there must be those of the "
        "model.",
        (
            "Write the file into the checkpoint's folder: -o CHECKPOINT_FOLDER/model.onnx.",
            "Or use --weights copy.",
        ),
    ),
    CodeEntry(
        Code.OUTSIDE_THE_DOMAIN,
        "A size is outside the declared domain",
        "input",
        "The file was not tested outside the sizes that it was exported and verified for.",
        ("Use sizes inside the domain, or widen it: --dim name=low..high.",),
    ),
    CodeEntry(
        Code.NOT_A_COMMAND,
        "The command line is invalid",
        "input",
        "A command, an argument or an option is missing, unknown, misspelled or in the wrong place.",
        ("Compare with fairway --help, or with --help after the command.",),
    ),
    CodeEntry(
        Code.NOT_A_MODEL,
        "What was given as the model cannot be run",
        "input",
        "A model is an nn.Module, a function, a bound method, an ExportedProgram, TorchScript, or the path of a .pt2 "
        "or TorchScript file.",
        ("Pass an nn.Module, a function, an ExportedProgram, TorchScript, or the path of a .pt2 or TorchScript file.",),
    ),
    CodeEntry(
        Code.BEYOND_THE_PROGRAM,
        "The declared sizes go beyond those of the exported program",
        "input",
        "torch.export fixed or bounded this size when the program was captured. The program refuses other sizes.",
        (
            "Declare only the sizes that the program accepts.",
            "Or export the nn.Module itself, or capture the program again with wider dynamic_shapes.",
        ),
    ),
    CodeEntry(
        Code.TORCH_ARGUMENT,
        "This is an argument of torch.onnx.export",
        "input",
        "Fairway decides this itself or has another name for it.",
        ("Leave the argument out.",),
    ),
    CodeEntry(
        Code.AUTOCAST_ON,
        "Autocast is on around the export",
        "input",
        "The file would be compared with a model that computes in other dtypes than the model alone does.",
        (
            "Leave the `with torch.autocast` block before the export.",
            "If the file must compute in half precision, convert the model: model.to(torch.bfloat16), or put autocast "
            "inside forward.",
        ),
    ),
    CodeEntry(
        Code.OTHER_DEVICE,
        "A tensor is not on the CPU",
        "input",
        "The file is compared with PyTorch on the CPU, and all tensors of a call must be on one device.",
        ("Move the model and the example tensors: model.cpu(), tensor.cpu().",),
    ),
    CodeEntry(
        Code.QUANTIZED_BY_TORCH,
        "The model holds layers that PyTorch quantized",
        "input",
        "Their weights are packed for PyTorch's own kernels, which no exporter can read.",
        ("Export the float model, then quantize the file: fairway quantize net.onnx -o net.int8.onnx",),
    ),
    # FW1xx: Something could not be loaded.
    CodeEntry(
        Code.RECIPE_MISSING,
        "The recipe was not found",
        "input",
        "RECIPE is `path/to/file.py[:name]` or `package.module:name`.",
        ("Check the path; a relative one starts at the current folder.",),
    ),
    CodeEntry(
        Code.RECIPE_RAISED,
        "The recipe raised an error",
        "input",
        "A recipe is Python code that Fairway runs, and that code failed.",
        ("Run the file with python and fix the error.",),
    ),
    CodeEntry(
        Code.RECIPE_WITHOUT_MODEL,
        "The recipe does not identify a model",
        "input",
        "The name must be a fairway.Recipe, an nn.Module, a Module class, or a function that returns one.",
        ("Name one of the candidates listed: RECIPE.py:name.",),
    ),
    CodeEntry(
        Code.CHECKPOINT_MISSING,
        "The checkpoint was not found",
        "input",
        "The file named by the recipe or by --checkpoint does not exist.",
        ("Check the path; one in a recipe starts at the recipe's folder.",),
    ),
    CodeEntry(
        Code.CHECKPOINT_UNREADABLE,
        "The checkpoint cannot be read",
        "input",
        "The file is truncated, damaged, or of another format.",
        ("Copy the file again and compare sizes.",),
    ),
    CodeEntry(
        Code.CHECKPOINT_MISMATCH,
        "The checkpoint does not fit the model",
        "input",
        "Names or shapes differ from those of the model that the recipe builds, also without prefixes of training.",
        (
            "If shapes differ, build the model with the settings that the checkpoint was trained with.",
            "If names differ, load the file into the class that it was saved from, or choose other weights in it with "
            "--checkpoint-key.",
        ),
    ),
    CodeEntry(
        Code.CHECKPOINT_RUNS_CODE,
        "The checkpoint would run code when loaded",
        "input",
        "The file is a pickle that contains more than tensors. Unpickling it can run any code.",
        ("Convert it to safetensors in a sandbox, or pass --trust if you trust its author.",),
    ),
    CodeEntry(
        Code.NOT_ONNX,
        "The file is not a readable ONNX model",
        "input",
        "The file is missing, truncated, or of another format.",
        ("Check the path; export or copy it again.",),
    ),
    CodeEntry(
        Code.EXTERNAL_DATA_MISSING,
        "The model's external data is missing",
        "input",
        "Large weights are stored in a second file beside the model, and that file is missing or too short.",
        ("Copy the data file into the model's folder under the name listed.",),
    ),
    CodeEntry(
        Code.EXTERNAL_DATA_OUTSIDE,
        "The model's external data points outside its folder",
        "input",
        "A model file must not read other files on the machine, and this one tries to.",
        ("Do not load this file unless you made it; if you did, save it with its data beside it.",),
    ),
    CodeEntry(
        Code.DATA_UNREADABLE,
        "The data file cannot be used",
        "input",
        "--data takes .npz, .safetensors or .pt (tensors only) with one array per input, by input name.",
        ("Check the names and shapes in the file against the spec.",),
    ),
    CodeEntry(
        Code.ASKS_TOO_MUCH,
        "The file asks for more memory than this machine has",
        "input",
        "Its header declares sizes that do not fit into memory. Only the header was read.",
        ("Do not load this file unless you made it; if you did, use a machine with more memory.",),
    ),
    CodeEntry(
        Code.RECORD_UNREADABLE,
        "The record beside the file cannot be used",
        "input",
        "It is damaged, edited by hand, or written by another version, so it is ignored.",
        ("Judge the file again: fairway verify MODEL.onnx RECIPE",),
        "warning",
    ),
    CodeEntry(
        Code.RECORD_OF_ANOTHER_FILE,
        "The record beside the file belongs to another file",
        "input",
        "The file's bytes differ from the recorded ones: the file or its weights changed, or the record was copied.",
        ("Use the verdict of this run. The recorded one no longer applies.",),
        "warning",
    ),
    CodeEntry(
        Code.PLUGIN_LEFT_OUT,
        "A plug-in could not be used",
        "input",
        "An installed distribution declares a Fairway entry point, and the object behind it is missing or invalid.",
        ("Update or uninstall that distribution. Its authors can test it with fairway.testing.",),
        "warning",
    ),
    CodeEntry(
        Code.WATCH_UNREADABLE,
        "The watch list cannot be used",
        "input",
        "`fairway watch` stores it as JSON. This file was edited by hand, or is something else.",
        ("Correct the file at the place shown, or name another one with --file.",),
    ),
    CodeEntry(
        Code.LINKED_CHECKPOINT_CHANGED,
        "The linked checkpoint has changed",
        "input",
        "The file reads its weights from that checkpoint, so the file now has other weights.",
        (
            "Put the checkpoint back where it was, unchanged.",
            "Or export again; --weights copy makes a file that needs no checkpoint.",
        ),
    ),
    CodeEntry(
        Code.CHECKPOINT_PREFIX,
        "The names in the checkpoint were made to fit the model",
        "input",
        "Lightning, DataParallel, torch.compile and averaged weights put a prefix before each name.",
        ("Nothing.",),
        "note",
    ),
    # FW2xx: The model's own code.
    CodeEntry(
        Code.FORWARD_FAILS,
        "forward fails on legal inputs",
        "model",
        "PyTorch itself refuses inputs inside the declared domain, so no file can agree with it there.",
        ("Fix forward, or narrow the bounds to what it accepts.",),
    ),
    CodeEntry(
        Code.TRAINING_MODE,
        "A module is left in training mode",
        "model",
        "Dropout and batch norm behave differently in training; exporters keep the mode they find.",
        ("Call model.eval() before exporting.",),
        "warning",
    ),
    CodeEntry(
        Code.RANDOM_FORWARD,
        "forward is random",
        "model",
        "Two runs on the same inputs differ, so no file can be compared with it.",
        ("Make the random step depend on the module's mode: F.dropout(x, p, self.training).",),
    ),
    CodeEntry(
        Code.INPUT_WITHOUT_EFFECT,
        "An input had no effect in any run",
        "model",
        "The outputs stayed the same when this input was changed. Exporters tend to drop such inputs. It may still "
        "matter together with values of other inputs that were not tried.",
        ("Remove the input, or find the line that ignores it.",),
        "warning",
    ),
    CodeEntry(
        Code.MODULE_CHOSEN_BY_VALUE,
        "A module is chosen by a value taken out of a tensor",
        "model",
        "`.item()` gives the exporter one number, so the choice made for the example is frozen in the file.",
        (
            "Run all modules, stack their results and gather by the index tensor: torch.stack([m(x) for m in "
            "self.mods])[index].",
        ),
    ),
    CodeEntry(
        Code.LOOP_UNROLLED,
        "A Python loop is unrolled to the example's length",
        "model",
        "The exporter runs the loop and records its steps; the file repeats exactly those, however long the input is.",
        ("Write the loop as one tensor expression (gather, scatter, cumulative op), or give Fairway a patch.",),
    ),
    CodeEntry(
        Code.BRANCH_FROZEN,
        "A Python branch on a tensor's value or size is frozen",
        "model",
        "`if` needs one answer while the model is captured, and the file keeps only that side.",
        ("Use torch.where, or torch.cond for a large branch.",),
    ),
    CodeEntry(
        Code.NO_OUTPUTS,
        "forward returns no tensors",
        "model",
        "An ONNX file needs at least one output.",
        ("Return a tensor from forward.",),
    ),
    CodeEntry(
        Code.NON_TENSOR_OUTPUT,
        "forward returns something that is not a tensor",
        "model",
        "ONNX outputs are tensors; a Python number or string cannot be one.",
        ("Return tensors only, or leave the value out.",),
    ),
    CodeEntry(
        Code.NAME_CLASH,
        "A name is both an input and an output",
        "model",
        "ONNX names are unique. Exporters rename one of the two silently, and it loses its dynamic axes.",
        ("Give the output another name: output_names=[...].",),
    ),
    CodeEntry(
        Code.PATCH_NOT_EQUAL,
        "A patch does not compute the same as the original",
        "model",
        "The patch and the original were run in PyTorch on the same inputs, and their results differ.",
        ("Correct the patch at the point shown.",),
    ),
    CodeEntry(
        Code.LAYER_SIZES_DISAGREE,
        "Two layers disagree on a size",
        "model",
        "One layer outputs a different number of features than the next one expects.",
        ("Build the second layer with the size that it receives.",),
    ),
    CodeEntry(
        Code.CACHE_NOT_KEY_VALUE,
        "The model's cache does not consist of keys and values",
        "model",
        "State-space and hybrid models keep other states, and runtimes share no convention for these as inputs and "
        "outputs.",
        ("Export one step of the model with fairway.export, with its states as inputs and outputs.",),
    ),
    CodeEntry(
        Code.HITS_LOOPED,
        "A loop runs over the hits of a mask",
        "model",
        "The number of hits, as in `for i in hit.nonzero()`, depends on values; an exporter records a fixed number.",
        (
            "Leave remedies on: hits_looped.",
            "Or loop over all positions, including those without a hit.",
        ),
    ),
    CodeEntry(
        Code.OUTPUT_LEFT_OUT,
        "An output that is not a tensor is left out",
        "model",
        "ONNX outputs are tensors. This value was the same for two examples, so the file does without it.",
        ("Do nothing if the users of the file know the value.",),
        "warning",
    ),
    CodeEntry(
        Code.OTHER_WAY_WHEN_EXPORTED,
        "The model computes something else while it is exported",
        "model",
        "Its code checks whether it is being exported (torch.compiler.is_exporting, is_compiling) and then takes "
        "another branch. The file follows that branch.",
        (
            "Look at the line shown, and at the condition that leads there.",
            "Report it to the model's authors: both branches should give the same result.",
        ),
    ),
    CodeEntry(
        Code.LIST_FROZEN,
        "A tensor is made from a Python list whose length is a size",
        "model",
        "While the model is captured, the list has the example's length, and the file stores it as a constant.",
        (
            "Leave remedies on: list_frozen.",
            "Or make the tensor from the size itself: torch.arange(n) for torch.tensor(list(range(n))).",
        ),
    ),
    CodeEntry(
        Code.FROZEN_BY_THE_TRACE,
        "A value is frozen while the model is traced",
        "model",
        "The tracer recorded the example's value as a number, a constant or a branch. The file uses that for every "
        "input. Only a warning shows it; the export and onnx.checker pass.",
        (
            "Do not ship the file before it is tested at other values and sizes: fairway verify FILE RECIPE.",
            "Replace int(), .item() or `if` on a tensor with tensor arithmetic (torch.where, gather), or use "
            "torch.cond.",
        ),
    ),
    CodeEntry(
        Code.STATE_CHANGED,
        "forward changes the model's own state, and its result depends on it",
        "model",
        "A buffer or an attribute has another value after a run, and the next run on the same inputs gives another "
        "result. An ONNX file keeps nothing between runs, so it cannot do the same.",
        (
            "Pass the state in as an input and return it as an output; the caller keeps it between runs.",
            "If the state is for training only, change it in training mode only: if self.training.",
        ),
    ),
    CodeEntry(
        Code.FIXED_BY_THE_CALL,
        "The call fixes numbers or the length of a list",
        "model",
        "ONNX files take tensors. Python numbers and flags of the call, and the lengths of its lists, are constants "
        "of the file.",
        ("Pass a tensor if a number must vary. Export one file for each length of a list.",),
        "note",
    ),
    CodeEntry(
        Code.OUTPUT_COUNT_VARIES,
        "The number of outputs depends on the input",
        "model",
        "An ONNX file has a fixed number of outputs.",
        (
            "Return one tensor in place of a list that grows with the input, for example padded and stacked.",
            "Or declare the dim that it depends on as fixed.",
        ),
    ),
    CodeEntry(
        Code.SIZE_MADE_NUMBER,
        "A size is turned into a plain number",
        "model",
        "`int(x.shape[1])`, `len(x)` and `math.sqrt(n)` give the example's number while the model is captured, "
        "which fixes the dim.",
        (
            "Leave remedies on: size_made_number.",
            "Or compute with the size itself: x.shape[1] for int(x.shape[1]), n ** 0.5 for math.sqrt(n).",
        ),
    ),
    CodeEntry(
        Code.STATE_SETTLED,
        "A cache that grows with the inputs was filled first",
        "model",
        "forward keeps something that grows with the largest input seen, such as a table of positions. After a run "
        "at the sizes shown, its results no longer depend on earlier runs. PyTorch and the file are compared in "
        "that state.",
        (
            "Do nothing if the deployed model has seen such an input, or gives the same results without it.",
            "If not, build the table for the largest size when the model is built.",
        ),
        "note",
    ),
    CodeEntry(
        Code.MODEL_UNWRAPPED,
        "The model was taken out of a wrapper",
        "model",
        "Wrappers of training and of torch.compile pass every call on to the model in them. The model alone was "
        "exported.",
        ("Nothing.",),
        "note",
    ),
    CodeEntry(
        Code.PROGRAM_GIVEN,
        "The model is a program that torch.export captured before",
        "model",
        "The capture is not part of what was checked: the file was compared with the program, not with the nn.Module "
        "that it came from.",
        ("To check the capture too, export the nn.Module.",),
        "note",
    ),
    # FW3xx: Exporters.
    CodeEntry(
        Code.CAPTURE_FAILED,
        "The exporter could not capture the model",
        "upstream",
        "The exporter raised an error.",
        ("See the results of the other rungs: add --json.",),
    ),
    CodeEntry(
        Code.DIM_SPECIALIZED,
        "A dim cannot stay dynamic in this capture",
        "model",
        "A line of the model uses the size as a plain number or compares it, so the exporter would fix the dim.",
        (
            "Look at the line shown: size arithmetic in Python, a loop or branch on a size, a library call that "
            "needs one.",
        ),
    ),
    CodeEntry(
        Code.DATA_DEPENDENT,
        "The model makes a decision on a tensor's value",
        "model",
        "The value depends on an input, so the exporter cannot know it while it captures the model. Values that no "
        "input reaches (parameters, buffers, tensors made of plain numbers) are read as they are.",
        (
            "Replace the decision with tensor arithmetic (torch.where, gather) or torch.cond.",
            "If no input reaches the value, leave remedies on: constant_read.",
        ),
    ),
    CodeEntry(
        Code.NO_TRANSLATION,
        "An operator has no translation to ONNX",
        "upstream",
        "The exporter has no ONNX translation of this operator.",
        (
            "Leave remedies on: missing_translation.",
            "Pass your own translation: translations={torch.ops.mine.op.default: function}.",
            "Write the step with other operators.",
        ),
    ),
    CodeEntry(
        Code.TRANSLATION_FAILED,
        "The translation to ONNX raised an error",
        "upstream",
        "torch.export captured the model, but the exporter could not turn the result into ONNX.",
        ("See the results of the other rungs: add --json.",),
    ),
    CodeEntry(
        Code.OPSET_NOT_HONORED,
        "The exporter wrote another opset than requested",
        "upstream",
        "torch.onnx keeps its own opset if it cannot convert the file to the requested one.",
        ("Use the opset that was written, or another route.",),
    ),
    CodeEntry(
        Code.NOT_SCRIPTABLE,
        "TorchScript cannot compile the model",
        "model",
        "TorchScript compiles only a part of Python, and this code uses something else.",
        ("Look at the line where TorchScript stopped.",),
    ),
    CodeEntry(
        Code.RNN_TIME_BAKED,
        "The recurrent layer's time length is fixed at the example's",
        "upstream",
        "The dynamo exporter writes the example's length into a Reshape or into the output's shape.",
        ("Leave remedies on: rnn_time_baked.",),
    ),
    CodeEntry(
        Code.RNN_BATCH_BAKED,
        "The recurrent layer's batch size is fixed at the example's",
        "upstream",
        "A first state built from a Python number, as in `torch.zeros(1, len(x), n)`, becomes a constant in the trace.",
        ("Leave remedies on: rnn_batch_baked.",),
    ),
    CodeEntry(
        Code.ATTENTION_LENGTH_BAKED,
        "The attention's sequence length is fixed at the example's",
        "upstream",
        "nn.MultiheadAttention's packed projection makes the TorchScript exporter treat the example's sizes as "
        "constants.",
        ("Leave remedies on: attention_length_baked.",),
    ),
    CodeEntry(
        Code.VMAP_MASK,
        "The mask is built with vmap, which the exporter cannot follow",
        "upstream",
        "The tracer cannot follow torch.vmap, nor can torch.export follow an index lookup inside it.",
        ("Leave remedies on: vmap_mask.",),
    ),
    CodeEntry(
        Code.CAUSAL_UNDECIDED,
        "The decoder checks whether its mask is causal",
        "upstream",
        "nn.TransformerDecoder compares the mask's values with a causal mask, which is a decision on data.",
        ("Pass tgt_is_causal yourself, or leave remedies on: causal_undecided.",),
    ),
    CodeEntry(
        Code.OUTPUT_SHAPE_FIXED,
        "A dynamic output is declared with a fixed shape",
        "upstream",
        "The file computes the right shape but declares the example's; strict runtimes refuse it.",
        ("Leave remedies on: output_shape_fixed.",),
        "warning",
    ),
    CodeEntry(
        Code.INTEGER_MASK_ARITHMETIC,
        "A number minus an integer tensor fails to convert",
        "upstream",
        "torch 2.13's type promotion finds no overload for `1.0 - mask` with an integer mask.",
        ("Write 1.0 - mask.float(), or leave remedies on: integer_mask_arithmetic.",),
    ),
    CodeEntry(
        Code.MUL_SCALAR,
        "An integer tensor times a number has no translation",
        "upstream",
        "torch 2.13 writes `aten.mul.Scalar`, for which onnxscript before 0.7.2 has no translation.",
        ("Install onnxscript 0.7.2 or later, or leave remedies on: mul_scalar.",),
    ),
    CodeEntry(
        Code.FULLY_MASKED_ROWS,
        "Attention rows with everything masked differ from PyTorch's",
        "upstream",
        "PyTorch returns zeros for them; the dynamo exporter's attention gives an average or NaN.",
        ("Leave remedies on: fully_masked_rows.",),
    ),
    CodeEntry(
        Code.HALF_MASK_NOT_ABSORBED,
        "A float16 mask is added with more precision than PyTorch has",
        "upstream",
        "ONNX Runtime adds float16 numbers in float32 on the CPU; a score that PyTorch rounds away stays.",
        ("Leave remedies on: half_mask_absorbed.",),
    ),
    CodeEntry(
        Code.TRANSFORMERS_UNTRACEABLE,
        "Code in transformers cannot be captured unchanged",
        "upstream",
        "Some of its models decide on values, or use kernels without a translation. transformers ships patches for "
        "export.",
        ("Leave remedies on: transformers_patches.",),
    ),
    CodeEntry(
        Code.BFLOAT16_WITHOUT_KERNEL,
        "The runtime has no bfloat16 kernel for an operator",
        "upstream",
        "On the CPU, ONNX Runtime can cast and copy bfloat16, but has almost no kernels that compute with it.",
        (
            "Leave remedies on: bfloat16_without_kernel.",
            "Export the model in float32.",
        ),
    ),
    CodeEntry(
        Code.FLOAT64_WITHOUT_KERNEL,
        "The runtime has no float64 kernel for an activation",
        "upstream",
        "ONNX Runtime has Erf, Gelu, Softplus, Elu and their like in float32 only.",
        (
            "Leave remedies on: float64_without_kernel.",
            "Export the model in float32.",
        ),
    ),
    CodeEntry(
        Code.PARAMETRIZED_WEIGHT,
        "A weight is recomputed in every call",
        "upstream",
        "Exporters write the computation into the file, or fail at it; its result is always the same.",
        (
            "Leave remedies on: parametrized_weight.",
            "Or call torch.nn.utils.parametrize.remove_parametrizations once training is over.",
        ),
    ),
    CodeEntry(
        Code.SPARSE_WEIGHT,
        "The model holds a sparse tensor",
        "upstream",
        "Neither torch.onnx nor ONNX Runtime supports sparse tensors.",
        (
            "Leave remedies on: sparse_weight.",
            "Or store the tensor as a dense one.",
        ),
    ),
    CodeEntry(
        Code.MODULE_MOVED,
        "A module is moved inside `forward`",
        "upstream",
        "torch.export replaces the weights with its own tensors, and `Module.to` cannot swap those.",
        (
            "Leave remedies on: module_moved.",
            "Or move the module once, in `__init__`.",
        ),
    ),
    CodeEntry(
        Code.SMALL_CONSTANT_DROPPED,
        "A small constant is optimized away",
        "upstream",
        "onnxscript treats a constant within 1e-8 of 0 as 0, so `x / (norm + 1e-8)` divides by the norm alone.",
        (
            "Leave remedies on: small_constant_dropped.",
            "Or use a constant above 1e-8.",
        ),
    ),
    CodeEntry(
        Code.COMPLEX_PICKED,
        "An operation on a complex tensor has no translation",
        "upstream",
        "The exporter has separate translations for complex tensors, and lacks those of unsqueeze, expand, repeat, "
        "select and indexing.",
        (
            "Leave remedies on: complex_picked.",
            "Or apply the operation to torch.view_as_real of the tensor.",
        ),
    ),
    CodeEntry(
        Code.BLOCKS_DIFFER,
        "Blocks that look alike are not the same in the graph",
        "limit",
        "Of equal blocks in a row, two or three are captured and copied for the others. These blocks differ too much "
        "for that.",
        ("Do nothing: three blocks are captured next, and then the whole model, which takes longer.",),
        "note",
    ),
    CodeEntry(
        Code.TOO_MANY_REGIONS,
        "The model takes too many different branches over the declared sizes",
        "limit",
        "If Python code branches on sizes, each branch needs a separate capture. A file contains at most 12 of them.",
        (
            "Narrow the domain to the sizes you need: --dim time=1..20, or --dim time%8 for multiples only.",
            "Or replace the loop or branch that depends on the size with tensor operations.",
        ),
    ),
    CodeEntry(
        Code.REGIONS_DIFFER,
        "Captures for different sizes do not fit into one file",
        "limit",
        "An ONNX file has one list of inputs and outputs, and each has one dtype, whatever the sizes.",
        (
            "Return the same number of outputs, of the same dtypes, at all sizes.",
            "Or export one file for each region.",
        ),
    ),
    # FW4xx: What the evidence showed.
    CodeEntry(
        Code.NUMBERS_DIFFER,
        "The file's numbers differ from PyTorch's",
        "evidence",
        "At a legal input the file is further from the float64 truth than PyTorch's own rounding explains.",
        ("Do not ship this file.",),
    ),
    CodeEntry(
        Code.DIM_FIXED,
        "A dim declared dynamic is fixed in the file",
        "evidence",
        "The file accepts only the example's size.",
        ("Do not ship this file.",),
    ),
    CodeEntry(
        Code.SHAPE_DIFFERS,
        "An output's shape differs from PyTorch's",
        "evidence",
        "At a legal input the file returns another shape.",
        ("Do not ship this file.",),
    ),
    CodeEntry(
        Code.OUTPUTS_DIFFER,
        "The file's outputs are not PyTorch's",
        "evidence",
        "The outputs differ in number, names or dtypes.",
        ("Do not ship this file.",),
    ),
    CodeEntry(
        Code.NONFINITE_DIFFERS,
        "NaN or infinity is in other places than in PyTorch",
        "evidence",
        "This often happens in rows that are fully masked.",
        ("Do not ship this file.",),
    ),
    CodeEntry(
        Code.CONSTANT_FROM_EXAMPLE,
        "A constant in the file comes from the example",
        "evidence",
        "The model was exported again from other sizes and values, and the same node then has another constant.",
        ("Look at the line shown: a size or a value is taken out of the graph there.",),
    ),
    CodeEntry(
        Code.RUNTIME_REFUSES,
        "The runtime refuses the file",
        "evidence",
        "The file was written, but ONNX Runtime cannot load it.",
        ("Read the runtime's message above.",),
    ),
    CodeEntry(
        Code.RUNTIME_FAILS,
        "The runtime fails at a legal input",
        "evidence",
        "The file loads, but ONNX Runtime stops with an error at this input.",
        ("Do not ship this file.",),
    ),
    CodeEntry(
        Code.RUNTIMES_DISAGREE,
        "Two runtimes disagree on the same file",
        "evidence",
        "One agrees with PyTorch and the other does not, so a runtime is wrong rather than the file.",
        ("Ship the file for the runtime that agrees with PyTorch, and report the other one.",),
        "warning",
    ),
    CodeEntry(
        Code.NO_YARDSTICK,
        "The model does not run in float64",
        "evidence",
        "Without float64 values to measure from, the stated tolerances are used.",
        ("Do nothing if the tolerances are right for your use.",),
        "note",
    ),
    CodeEntry(
        Code.INPUTS_DIFFER,
        "The file's inputs are not the declared ones",
        "evidence",
        "The inputs differ in number, names, dtypes or ranks.",
        (
            "Name the recipe of the model that the file was made from.",
            "Or declare the inputs as the file has them.",
        ),
    ),
    CodeEntry(
        Code.TOKEN_DIFFERS,
        "The files generate another token than PyTorch",
        "evidence",
        "From the same tokens, the files choose another next token than PyTorch, and rounding does not explain it.",
        ("Do not ship these files.",),
    ),
    CodeEntry(
        Code.TIES,
        "The result depends on the order of equal elements",
        "evidence",
        "PyTorch does not specify which of several equal elements `sort` and `topk` put first, and the file chooses "
        "another one. With PyTorch's ties broken as the file breaks them, the two agree.",
        (
            "Do nothing if your data has no such ties. A router whose weights are all zero has ties everywhere.",
            "If it has, break the ties yourself, or sort with `stable=True`.",
        ),
        "note",
    ),
    CodeEntry(
        Code.ERROR_BEGINS,
        "The error begins at one node",
        "evidence",
        "Every intermediate value of the file was compared with PyTorch's. They agree before this node; after it "
        "they only carry its error on.",
        (
            "Look at the line shown, and at what the exporter made of it.",
            "Hand it over as a small reproducer: fairway reduce RECIPE.",
        ),
        "note",
    ),
    CodeEntry(
        Code.RUNTIME_FUSES_WRONGLY,
        "Every node is right alone, but the file as a whole is wrong in the runtime",
        "upstream",
        "Run node by node without its optimizer, ONNX Runtime gives PyTorch's values. The error is in how it fuses "
        "or reorders nodes when it loads the file.",
        (
            "Run with graph_optimization_level = ORT_DISABLE_ALL, or disable the responsible optimizer.",
            "Try another version of onnxruntime.",
        ),
        "note",
    ),
    CodeEntry(
        Code.INPUT_NOT_VERIFIED,
        "The file to optimize is not right",
        "evidence",
        "The effect of a pass can only be measured on a file whose own outputs are right.",
        (
            "See what is wrong: fairway verify FILE RECIPE.",
            "Export it again: fairway export RECIPE -o FILE.",
        ),
    ),
    CodeEntry(
        Code.BRANCH_NOT_REACHED,
        "The file contains one side of a branch, and no sample took the other",
        "evidence",
        "No sample shows whether the file is right on the other side, which it does not contain.",
        (
            "Give inputs that take the other side: --data, or an inputs function.",
            "Or declare the legal values so that no input takes it.",
        ),
        "warning",
    ),
    CodeEntry(
        Code.BRANCH_UNSEEN,
        "One side of a branch in the model's own code was never taken",
        "evidence",
        "The side that no sample took was not compared with PyTorch.",
        ("Give inputs that take it: --data, or an inputs function.",),
        "note",
    ),
    CodeEntry(
        Code.RANDOM_OPERATOR,
        "The file draws random numbers, the model does not",
        "evidence",
        "PyTorch gives the same outputs on the same input each time. A file that draws random numbers on the way to "
        "an output gives other ones, so one comparison proves nothing.",
        (
            "Export in evaluation mode: model.eval().",
            "Look at the node named: dropout or noise that was exported in training mode.",
        ),
    ),
    CodeEntry(
        Code.WEIGHT_DIFFERS,
        "A weight in the file differs from the model's",
        "evidence",
        "The file's weights are compared with the model's parameters and buffers as bytes, also transposed, "
        "reshaped and cast. This weight is a parameter of the model, but some of its numbers differ.",
        (
            "Export the file again from these weights.",
            "If the weights were changed on purpose, give Fairway the model with the changed weights.",
        ),
    ),
    CodeEntry(
        Code.ROWS_DEPEND,
        "Rows of a batch depend on each other",
        "evidence",
        "A row's answer changes if other rows are in the batch. The file is right, but in a batch of several "
        "clients' requests each answer would contain other clients' data. fairway serve runs the requests one by "
        "one.",
        (
            "Do nothing if the model is meant to look at the whole batch.",
            "If not, look for what is computed over the batch axis: a mean, a cumsum, a sort, a comparison with row 0.",
        ),
        "note",
    ),
    CodeEntry(
        Code.MANY_EXCUSES,
        "Too many samples are right only by an excuse",
        "evidence",
        "A file may take equal elements or sums in another order than PyTorch. If that decides more than a few "
        "samples, the others do not show that the file is right.",
        (
            "Break ties yourself, for example with `sort(stable=True)`, or compute long sums in float64.",
            "Declare the values that your data has, if equal elements do not occur in it.",
        ),
        "warning",
    ),
    CodeEntry(
        Code.NUMBERS_MEAN_NOTHING,
        "PyTorch's own numbers mean nothing at some samples",
        "evidence",
        "PyTorch itself gives NaN throughout, or an error as large as the value, measured against float64. The file "
        "is compared there too, but a match proves little.",
        (
            "Declare the values that the input can have, if these do not occur.",
            "Look for a difference of nearly equal numbers, an overflow or a division by zero in the model.",
        ),
        "note",
    ),
    CodeEntry(
        Code.SIZE_ASSUMED,
        "The capture assumes something about a size that is not always true",
        "model",
        "torch.export follows one run of the model. A line of the model uses a size, and the file keeps what that line "
        "gave in this run.",
        (
            "Look at the line shown: a branch on a size, or a library call that needs one.",
            "If only such sizes occur, declare that: --dim.",
        ),
    ),
    CodeEntry(
        Code.FAST_PATH_DIFFERS,
        "PyTorch's fast path gives other results at padded positions",
        "model",
        "In eval mode without gradients, nn.TransformerEncoder writes zeros into padded rows and may return fewer of "
        "them. The file computes what the model computes in training and with the fast path off.",
        (
            "Compare only positions that are not padded, or call torch.backends.mha.set_fastpath_enabled(False) first.",
            "If padded positions are used, fill them in the model: see examples/swipe.",
        ),
        "note",
    ),
    # FW5xx: Limits.
    CodeEntry(
        Code.TIME_LIMIT,
        "The time limit was reached",
        "limit",
        "The attempt was stopped.",
        ("Raise --timeout.",),
    ),
    CodeEntry(
        Code.MEMORY_LIMIT,
        "The memory limit was reached",
        "limit",
        "The attempt was stopped.",
        ("Raise --memory.",),
    ),
    CodeEntry(
        Code.PROCESS_DIED,
        "The attempt's process died",
        "limit",
        "A signal killed it, as in a segmentation fault.",
        ("Look up the signal in the record.",),
    ),
    CodeEntry(
        Code.EVIDENCE_INCOMPLETE,
        "The evidence is incomplete",
        "limit",
        "Some of what the level asks for could not be tested.",
        ("Read in the finding which tests are missing.",),
        "warning",
    ),
    CodeEntry(
        Code.CALLS_NOT_SEEN,
        "The recorded calls do not reproduce the model",
        "limit",
        "Something is computed outside torch's functions: in a custom extension, in numpy, or in a function that "
        "torch hides from overrides. Or the exporter takes another path through the model. A part of these calls "
        "would belong to a different model.",
        (
            "Reduce a submodule with its own recipe.",
            "Or give a command as the judge: --check CMD.",
        ),
    ),
    CodeEntry(
        Code.NOT_LOOKED_AT,
        "No evidence was requested",
        "limit",
        "The level none writes a file without comparing it with PyTorch.",
        ("Verify it on a machine with more time and memory: fairway verify FILE RECIPE.",),
        "warning",
    ),
    CodeEntry(
        Code.JUDGED_AGAINST_A_FILE,
        "The file was judged against another file, not against PyTorch",
        "limit",
        "Without a recipe there is no model to compare with. The new file agrees with the one it was made from, "
        "within stated tolerances.",
        (
            "Name the recipe: --recipe RECIPE.",
            "Or judge it later: fairway verify FILE RECIPE.",
        ),
        "warning",
    ),
    # FW6xx: This machine, and others.
    CodeEntry(
        Code.EXPORTER_BROKEN,
        "An exporter fails for models that are known to export",
        "machine",
        "These models have one line each and export on every healthy machine. So a package on this machine is "
        "damaged or was built for another one.",
        (
            "Install torch, onnx, onnxscript and onnxruntime again, from builds made for this platform.",
            "Export on another machine and copy the file: ONNX files are the same everywhere.",
            "Report the one-line model that fails, with what fairway doctor printed.",
        ),
    ),
    CodeEntry(
        Code.RUNTIME_BROKEN,
        "A checker or a runtime fails for files that are known to be right",
        "machine",
        "The files come from models of one line each. On healthy machines all runtimes give the same results for them.",
        (
            "Install the package that is named again.",
            "Judge the file on another machine: fairway verify.",
        ),
    ),
    CodeEntry(
        Code.VERSIONS_CLASH,
        "Installed versions are incompatible",
        "machine",
        "A package declares that it does not work with this version of another, or users have reported it.",
        ("Install compatible versions.",),
    ),
    CodeEntry(
        Code.IMPORT_FAILS,
        "A package that every export needs cannot be imported",
        "machine",
        "The package is missing, or was built for another kind of machine.",
        ("Install it again.",),
    ),
    CodeEntry(
        Code.LITTLE_ROOM,
        "Memory or disk space is low",
        "machine",
        "An export needs memory for several copies of the model, and disk space in the folder for temporary files.",
        ("Free some space, or set TMPDIR to a folder with more.",),
        "warning",
    ),
    CodeEntry(
        Code.ENVIRONMENT_NOT_MADE,
        "An environment could not be created",
        "machine",
        "uv or pip could not install the versions asked for.",
        ("Read the installer's output. Not every version exists for every Python and platform.",),
    ),
    CodeEntry(
        Code.ENVIRONMENT_SILENT,
        "The recipe gave no result in an environment",
        "machine",
        "The process ended, or was stopped, before it printed a result.",
        ("Read the last output of the process. If it was stopped, raise --limit.",),
    ),
    # FW7xx: Quantizing.
    CodeEntry(
        Code.ALREADY_QUANTIZED,
        "The file is already quantized",
        "input",
        "Quantizing it again would lose more quality, and the loss could not be measured against the float file.",
        ("Quantize the float file that it was made from.",),
    ),
    CodeEntry(
        Code.SAMPLES_MISSING,
        "There are too few samples to calibrate and to judge",
        "input",
        "Some samples set the ranges, and others judge the result. No sample is used for both.",
        ("Give a folder of .npz files with --data, one sample in each, or add `calibration` to the recipe.",),
    ),
    CodeEntry(
        Code.SAMPLES_USELESS,
        "The samples are useless for calibration",
        "input",
        "Ranges come from the values that samples produce inside the model. Zeros and NaN give ranges that real "
        "inputs exceed.",
        ("Give samples like those that the model will receive.",),
    ),
    CodeEntry(
        Code.OPSET_TOO_LOW,
        "The opset is too low to quantize",
        "input",
        "A scale for each channel needs opset 13. Converting this file from its older opset failed.",
        ("Export again with a newer opset: fairway export RECIPE --opset 17.",),
    ),
    CodeEntry(
        Code.NOTHING_QUANTIZED,
        "Nothing was quantized",
        "limit",
        "The scheme found no weights to quantize, so the result would be the float file under another name.",
        ("Use another scheme, or --scheme auto.",),
    ),
    CodeEntry(
        Code.MADE_FOR_ANOTHER_CPU,
        "The quantized file was made for another kind of CPU",
        "machine",
        "Without VNNI, sums of products of unsigned and signed bytes saturate at 16 bits, and the numbers are "
        "silently wrong. On other CPUs they are right, but the speed was measured on another machine.",
        ("Quantize again on the kind of machine that will run it.",),
        "warning",
    ),
    CodeEntry(
        Code.QUANTIZED_BY_DESIGN,
        "The file is quantized, so its numbers are not PyTorch's",
        "evidence",
        "It was judged by its loss of quality, not by how close its numbers are; the record says how much was lost.",
        ("Verify the float file that it was made from; its hash is in the record.",),
        "note",
    ),
    CodeEntry(
        Code.NOT_WORTH_SHIPPING,
        "No variant is worth shipping",
        "evidence",
        "A variant is shipped if its quality on held-out data is within the budget, and it is as fast or as small "
        "as requested. Without such a request it must be faster, or smaller and not slower.",
        (
            "Widen the budget shown, or keep the float file: it is the best one found.",
            "See which layers lose most: fairway sensitivity.",
        ),
    ),
    CodeEntry(
        Code.SLOWER_QUANTIZED,
        "The quantized file is slower here",
        "evidence",
        "8 bits are faster only where kernels for them exist and take most of the time. Converting to 8 bits and "
        "back costs time, and operators without an 8-bit kernel stay in float.",
        (
            "Keep the float file if speed matters.",
            "If only size matters, ask for that alone: --max-size 50%.",
        ),
        "note",
    ),
    CodeEntry(
        Code.SCHEMES_ALIKE,
        "Two schemes gave the same file",
        "evidence",
        "Different schemes should write different files. One of these had no effect.",
        ("Use either of them.",),
        "warning",
    ),
    CodeEntry(
        Code.METRIC_USELESS,
        "The recipe's metric cannot tell models apart",
        "input",
        "The metric was computed for the model and for a copy with corrupted outputs. If it returns the same for both, "
        "or NaN, it cannot measure a loss of quality.",
        ("Make `metric(model_fn)` return a float that grows with quality, computed from what model_fn returns.",),
    ),
    CodeEntry(
        Code.TRIALS_OF_ANOTHER_RUN,
        "The folder contains trials of another run",
        "input",
        "They belong to another model, other samples or other settings, so they cannot be continued.",
        ("Name another folder, or pass --overwrite.",),
    ),
    # FW8xx: Publishing, running and serving.
    CodeEntry(
        Code.NOT_VERIFIED,
        "The file is not verified",
        "evidence",
        "People rely on published files, so only files whose every byte was verified are published.",
        (
            "Judge it: fairway export writes a record beside the file it makes.",
            "Or publish it anyway, with --unverified: its record will say so to everyone who pulls it.",
        ),
    ),
    CodeEntry(
        Code.PUBLISHED_DIFFERS,
        "The stored files differ from what was published",
        "evidence",
        "Every file is read back and compared with the sha256 in the record and in the manifest.",
        ("Do not use them. Publish again; a damaged object is replaced.",),
    ),
    CodeEntry(
        Code.OVERTAKEN,
        "Another publisher was faster",
        "limit",
        "Someone else published while this file was being sent, so this version was not made visible.",
        ("Look at what was published, then publish again if yours should follow it. Nothing is sent twice.",),
    ),
    CodeEntry(
        Code.NOTHING_PUBLISHED,
        "Nothing published by Fairway is there",
        "input",
        "This version was not published, or the place contains something else.",
        ("Check the destination and --version.",),
    ),
    CodeEntry(
        Code.CONDITIONS_IGNORED,
        "The store ignores conditional writes",
        "machine",
        "It accepted a write whose condition was false, so two publishers could damage each other's versions. The "
        "version was not made visible.",
        ("Use a store that obeys If-None-Match and If-Match, such as Amazon S3, MinIO or SeaweedFS.",),
    ),
    CodeEntry(
        Code.STORE_REFUSES,
        "The store cannot be reached, or refuses",
        "machine",
        "The message above comes from the store.",
        ("Check the bucket, AWS_ENDPOINT_URL and the credentials, or MLFLOW_TRACKING_URI.",),
    ),
    CodeEntry(
        Code.TRITON_CANNOT,
        "The model does not fit into this Triton repository",
        "input",
        "All versions of a model share one configuration: names, types, sizes, the largest batch.",
        ("Publish it under another file name, or into another repository.",),
    ),
    CodeEntry(
        Code.ORT_DIFFERS,
        "The ORT file cannot be made, or gives different results",
        "upstream",
        "ONNX Runtime's converter optimizes the graph; the result is compared with the verified file.",
        (
            "Try another version of onnxruntime.",
            "Ship the ONNX file itself, which also runs on devices.",
        ),
    ),
    CodeEntry(
        Code.PART_OF_ANOTHER_RUN,
        "The folder was left by another run",
        "input",
        "A stopped run continues only with the same file, data and options.",
        ("Repeat the command as it was, name another folder, or remove the .part folder.",),
    ),
    CodeEntry(
        Code.WINDOWS_DO_NOT_FIT,
        "The windows do not fit the file",
        "input",
        "The outputs of windows must join without gaps. If state is carried, each window must follow the last one.",
        ("Change --window, --step or --batch as described above.",),
    ),
    CodeEntry(
        Code.OUTSIDE_DOMAIN,
        "The window is outside the verified domain",
        "evidence",
        "The record says for which sizes the file was compared with PyTorch.",
        (
            "Use a window inside it, or export with wider bounds.",
            "Or run it anyway: --unverified.",
        ),
    ),
    CodeEntry(
        Code.REQUEST_DOES_NOT_FIT,
        "The request does not fit the model",
        "input",
        "Names, datatypes and shapes are those of the model's metadata: GET /v2/models/NAME.",
        ("Correct the request.",),
    ),
    CodeEntry(
        Code.REQUEST_OUTSIDE_DOMAIN,
        "The request is outside the verified domain",
        "evidence",
        "The record says for which sizes and values the file was compared with PyTorch; outside that domain its "
        "outputs are unverified.",
        (
            "Stay within the domain in the model's metadata, or export with wider bounds.",
            "Or serve it with --unverified.",
        ),
    ),
    CodeEntry(
        Code.MODEL_NOT_SERVED,
        "No such model or version is served",
        "input",
        "Models are named when the server is started; POST /v2/repository/index lists them.",
        ("Use one of the names listed, or load the model.",),
    ),
    CodeEntry(
        Code.NOT_FIT_TO_SERVE,
        "The model cannot be served",
        "evidence",
        "After loading, a model must return the same numbers as when the file was judged, before it gets requests.",
        ("Verify the file on this machine: fairway verify.",),
    ),
    CodeEntry(
        Code.SERVER_FULL,
        "The server accepts no more requests now",
        "limit",
        "The server accepts a fixed number of requests at a time, so that it answers all of them in time.",
        (
            "Try again after a moment.",
            "Start it with more --workers or a larger --queue.",
        ),
    ),
    CodeEntry(
        Code.REQUEST_TOO_LARGE,
        "The request is too large",
        "limit",
        "The body of a request is read into memory, so its size is limited.",
        ("Send fewer samples at once, or start the server with a larger --max-body.",),
    ),
    CodeEntry(
        Code.OUT_OF_TIME,
        "The time limit of a request was reached",
        "limit",
        "A request must arrive, and be answered, within a time limit.",
        ("Try again, send fewer samples at once, or start the server with a longer --timeout.",),
    ),
    CodeEntry(
        Code.NOT_ALLOWED,
        "The token is missing or wrong",
        "input",
        "The server was started with FAIRWAY_SERVE_TOKEN set.",
        ("Send the header `Authorization: Bearer TOKEN`.",),
    ),
    CodeEntry(
        Code.WORKERS_DIED,
        "Workers died while they handled the request",
        "limit",
        "If a worker dies, another one runs the request alone. After three deaths the request is refused.",
        ("Look at the server's log and at the memory the model takes.",),
    ),
    CodeEntry(
        Code.CANNOT_LISTEN,
        "The server cannot listen there",
        "input",
        "The address does not belong to this machine, or the port is in use.",
        ("Choose another --host, --http-port or --grpc-port. Port 0 means any free port.",),
    ),
    # FW9xx: Fairway itself.
    CodeEntry(
        Code.BUG,
        "Fairway has a bug",
        "fairway",
        "Fairway reached a state that its code rules out.",
        ("Report the bug with the traceback.",),
    ),
)

CODES: dict[str, CodeEntry] = {row.code.value: row for row in _ROWS}
