"""transformers' own patches: a mixture of experts that fails without them, and is right with them."""

import pytest
import torch
from harness import EXPORT, TRACE, assert_parity, export, make_case
from transformers import MixtralConfig, MixtralForCausalLM

from fairway.convert.remedies import fully_masked_rows, integer_mask_arithmetic
from fairway.convert.remedies.contract import Refusal
from fairway.convert.remedies.transformers_patches import REMEDY

DIMS = [{0: "batch", 1: "seq"}]


class Logits(torch.nn.Module):
    """A model of transformers inside one of the user's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        config = MixtralConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            num_local_experts=3,
            num_experts_per_tok=2,
            use_cache=False,
        )
        self.inner = MixtralForCausalLM(config)

    def forward(self, ids):
        return self.inner(input_ids=ids).logits


@pytest.fixture
def model():
    return Logits().eval()


def ids(batch, length):
    return torch.randint(0, 40, (batch, length), generator=torch.Generator().manual_seed(batch * length))


def test_a_mixture_of_experts_is_right_at_other_sizes(model):
    case = make_case(model, (ids(2, 5),))
    file = export(case, DIMS, REMEDY, fully_masked_rows.REMEDY, integer_mask_arithmetic.REMEDY)
    assert_parity(file, model, (ids(2, 5),), (ids(1, 9),), (ids(3, 1),), atol=1e-5)
    assert not case.translations
    assert not case.repairs


def test_the_defect_is_there_without_it(model):
    others = (fully_masked_rows.REMEDY, integer_mask_arithmetic.REMEDY)
    with pytest.raises(Exception, match="grouped_mm"):
        export(make_case(model, (ids(2, 5),)), DIMS, *others)


def test_applied_twice_torch_is_as_before_each_time(model):
    before = torch.where, torch.nn.functional.scaled_dot_product_attention, torch.Tensor.split
    case = make_case(model, (ids(2, 5),))
    for _ in range(2):
        with REMEDY.apply(case, REMEDY.detect(case)):
            assert torch.where is not before[0]
            assert case.translations
        assert (torch.where, torch.nn.functional.scaled_dot_product_attention, torch.Tensor.split) == before


def test_attention_is_pytorchs_own_for_a_row_of_lowest_numbers(model):
    case = make_case(model, (ids(2, 5),))
    query = torch.rand(1, 1, 1, 4)
    mask = torch.full((1, 1, 1, 1), torch.finfo(torch.float32).min)
    with REMEDY.apply(case, REMEDY.detect(case)):
        answer = torch.nn.functional.scaled_dot_product_attention(query, query, query, mask)
    assert torch.equal(answer, query)


@pytest.mark.parametrize("route", [EXPORT, TRACE])
def test_it_is_refused_where_it_has_nothing_to_do(model, route):
    plain = torch.nn.Linear(3, 3)
    assert isinstance(REMEDY.detect(make_case(plain, (torch.rand(2, 3),), route)), Refusal)
    assert isinstance(REMEDY.detect(make_case(model, (ids(2, 5),), TRACE)), Refusal)
