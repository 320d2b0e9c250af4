"""Makes a recipe of a folder as transformers saves it: the model of its config and weights, with declared inputs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairway.diagnostics import Code
from fairway.diagnostics.errors import complain
from fairway.diagnostics.extras import require_extra
from fairway.model.memory_check import is_regular_file
from fairway.model.user_types import UserModel

CONFIG_FILE = "config.json"
MAX_CONFIG_BYTES = 10 * 2**20
MAX_DECLARED_TOKENS = 512
"""The longest text that is declared for a model that accepts longer ones."""
MAX_BATCH_SIZE = 8
SOUND_SAMPLES = (1600, 32000)
"""The lengths that are declared for sound of any length: 0.1 to 2 seconds at 16 kHz."""

COMPANION_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""Files of a tokenizer or processor, which a program needs to feed the exported model."""


@dataclass(frozen=True)
class FolderModel:
    """A model that a folder describes: how to build it, its spec lines, and the bounds of its dims."""

    build: Callable[[], object]
    inputs: list[str]
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def list_companions(folder: Path) -> list[Path]:
    """Return the files of the tokenizer or the processor in a folder."""
    return [folder / name for name in COMPANION_FILES if (folder / name).is_file()]


def read_model_folder(folder: Path, shown: str, cache: bool = False) -> FolderModel:
    """Return the model of a transformers folder. Nothing is downloaded, and no code in the folder is run.

    Without `cache`, a text generator returns its logits alone.
    """
    config_path = folder / CONFIG_FILE
    if not is_regular_file(config_path) or config_path.stat().st_size > MAX_CONFIG_BYTES:
        raise _refuse_other_folder(folder, shown)
    try:
        config = json.loads(config_path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise complain(Code.RECIPE_WITHOUT_MODEL, f"{shown}/{CONFIG_FILE} is not JSON: {error!s:.100}") from error
    names = config.get("architectures") if isinstance(config, dict) else None
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        raise _refuse_other_folder(folder, shown)
    require_extra("examples", "a transformers folder", "transformers")
    return _describe_model(folder, shown, names[0], cache)


def _refuse_other_folder(folder: Path, shown: str) -> Exception:
    """Return the finding on a folder of another library, or on one that is not a model's."""
    todo = ("Name a recipe: path/to/file.py[:name].",)
    if (folder / "model_index.json").is_file():
        seen = f"{shown} is a diffusers pipeline, which is several models"
        todo = ("Write a recipe for each: Recipe(lambda: UNet2DConditionModel.from_pretrained(...), inputs).",)
    elif is_regular_file(config := folder / CONFIG_FILE) and b'"architecture"' in config.read_bytes():
        seen = f"{shown} is a folder of timm"
        model = 'lambda: timm.create_model(NAME), ["x: float32[batch, 3, 224, 224]"], checkpoint="model.safetensors"'
        todo = (f"Write a recipe: Recipe({model}).",)
    else:
        seen = f"{shown[:200]} is a folder without a {CONFIG_FILE} that names a transformers architecture"
    return complain(Code.RECIPE_WITHOUT_MODEL, seen, todo=todo)


def _describe_model(folder: Path, shown: str, name: str, cache: bool) -> FolderModel:
    import transformers

    kind: UserModel = getattr(transformers, name, None)
    if kind is None or not hasattr(kind, "from_pretrained"):
        seen = f"{shown} is a {name:.100}, which transformers {transformers.__version__} does not have"
        raise complain(Code.RECIPE_WITHOUT_MODEL, seen, todo=("Install the version of transformers that has it.",))
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        seen = f"{shown}/{CONFIG_FILE}: {type(error).__name__}: {error!s:.200}"
        raise complain(Code.RECIPE_WITHOUT_MODEL, seen) from error
    if not cache:
        config.use_cache = False

    def build() -> object:
        return kind.from_pretrained(folder, config=config, local_files_only=True).eval()

    lines, bounds = ([], {}) if cache else _declare_inputs(kind, config, name)
    return FolderModel(build, lines, {"batch": (1, MAX_BATCH_SIZE), **bounds})


def _declare_inputs(kind: UserModel, config: UserModel, name: str) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Return spec lines and bounds for the inputs that forward takes."""
    takes = inspect.signature(kind.forward).parameters
    main = kind.main_input_name
    if main == "input_ids":
        return _declare_text(config, takes)
    if main == "pixel_values":
        height, width = _read_pair(getattr(config, "image_size", None) or 224)
        return [f"pixel_values: float32[batch, {getattr(config, 'num_channels', 3)}, {height}, {width}]"], {}
    if main == "input_values":
        return ["input_values: float32[batch, time]"], {"time": SOUND_SAMPLES}
    if main == "input_features" and hasattr(config, "max_source_positions"):
        lines = [f"input_features: float32[batch, {config.num_mel_bins}, {2 * config.max_source_positions}]"]
        more, bounds = _declare_decoder(config, takes)
        return lines + more, bounds
    raise complain(
        Code.NO_INPUTS,
        f"{name} takes {main}, whose shape its config does not tell",
        todo=(f"Declare the inputs: --input '{main}: float32[batch, …]'.",),
    )


def _declare_text(config: UserModel, takes: Mapping[str, object]) -> tuple[list[str], dict[str, tuple[int, int]]]:
    lines = [f"input_ids: int64[batch, seq] < {config.get_text_config().vocab_size}"]
    if "attention_mask" in takes:
        lines.append("attention_mask: int64[batch, seq] = keep")
    kinds = getattr(config, "type_vocab_size", 0)
    if "token_type_ids" in takes and kinds > 1:
        lines.append(f"token_type_ids: int64[batch, seq] < {kinds}")
    more, bounds = _declare_decoder(config, takes)
    return lines + more, {"seq": (1, _read_most_tokens(config)), **bounds}


def _declare_decoder(config: UserModel, takes: Mapping[str, object]) -> tuple[list[str], dict[str, tuple[int, int]]]:
    if not config.is_encoder_decoder or "decoder_input_ids" not in takes:
        return [], {}
    vocabulary = config.get_text_config(decoder=True).vocab_size
    return [f"decoder_input_ids: int64[batch, target] < {vocabulary}"], {"target": (1, _read_most_tokens(config))}


def _read_most_tokens(config: UserModel) -> int:
    """Return the longest text to declare. RoBERTa and its kin count positions from behind the padding token."""
    for name in ("max_position_embeddings", "max_target_positions", "n_positions"):
        tokens = getattr(config, name, None)
        if isinstance(tokens, int) and tokens > 0:
            offset = 1 + (config.pad_token_id or 0) if tokens % 8 == 2 else 0
            return min(MAX_DECLARED_TOKENS, tokens - offset)
    return MAX_DECLARED_TOKENS


def _read_pair(size: UserModel) -> tuple[int, int]:
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    return (int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[1]))
