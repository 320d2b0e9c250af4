"""One flat table of remedies."""
import importlib
from fairway.remedies.contract import Remedy
CATALOGUE: dict[str, Remedy] = {}
for _n in ("training_mode","input_output_name_clash","module_chosen_by_value","loop_unrolled","rnn_time_baked","rnn_batch_baked","attention_length_baked","vmap_mask","causal_undecided","integer_mask_arithmetic","mul_scalar","output_shape_fixed"):
    try:
        CATALOGUE[_n] = importlib.import_module(f"fairway.remedies.{_n}").REMEDY
    except (ImportError, AttributeError):
        pass
