"""What is typed into the page's fields, read as the arguments of an inspection."""

import pytest

from inspector import InspectorError, SamplingParams
from inspector.page.form import SamplerForm, TextForm, read_arguments, read_params


def test_fields_become_parameters():
    form = SamplerForm(
        temperature=0.5, top_k=3.0, logit_bias='{"11": -5, 29: 2.5}', allowed_token_ids="[1, 2; 3]",
        bad_words="cat\n hat", stop="a\\nb\n\\\\",
        stop_token_ids="7 8",
    )  # fmt: skip
    assert read_params(form) == SamplingParams(
        temperature=0.5, top_k=3, logit_bias={11: -5.0, 29: 2.5}, allowed_token_ids=(1, 2, 3), bad_words=("cat", " hat"),
        stop=("a\nb", "\\"), stop_token_ids=(7, 8),
    )  # fmt: skip
    assert read_params(SamplerForm()) == SamplingParams()


@pytest.mark.parametrize(("fields", "message"), [
    ({"temperature": None}, "temperature must be a number, and its field is empty"),
    ({"top_k": 2.5}, "top_k: input should be a valid integer, got a number with a fractional part, got 2.5"),
    ({"logit_bias": "1: 2, 1: 3"}, "logit_bias names token id 1 twice"),
    ({"logit_bias": "1 = 2"}, "logit_bias must be pairs such as 11: -5, 29: 2.5, got '1 = 2'"),
    ({"logit_bias": "x: 2"}, "logit_bias must be pairs such as 11: -5, 29: 2.5, got 'x: 2'"),
    ({"allowed_token_ids": "1, two"}, "allowed_token_ids must be token ids such as 11, 29, got 'two'"),
    ({"stop_token_ids": "-1"}, "stop_token_ids must be token ids such as 11, 29, got '-1'"),
])  # fmt: skip
def test_what_is_wrong_in_a_field_is_named(fields, message):
    with pytest.raises(InspectorError) as caught:
        read_params(SamplerForm(**fields))
    assert str(caught.value) == message


@pytest.mark.parametrize(("fields", "message"), [
    ({"max_new_tokens": 1.5}, "max_new_tokens must be a whole number, got 1.5"),
    ({"continuations": None}, "continuations must be a whole number, got an empty field"),
    ({"kind": "ids", "ids": " "}, "the prompt has no token ids; write some, such as 504, 3575, 282"),
    ({"kind": "chat", "chat": "{}"}, "chat must be a JSON list of objects with role and content, got dict"),
])  # fmt: skip
def test_what_is_wrong_in_the_text_is_named(fields, message):
    with pytest.raises(InspectorError) as caught:
        read_arguments(TextForm(**fields), SamplerForm(), "raw_logprobs")
    assert str(caught.value) == message
