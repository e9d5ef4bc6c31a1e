"""The left column: the text, what is asked of it, and the examples."""

import json
from typing import Any

import gradio as gr
from gradio.components import Component

from inspector.errors import InputError
from inspector.inspection import MAX_CONTINUATIONS, MAX_NEW_TOKENS, MAX_TOP_N, PROMPT_PROCESSING
from inspector.modes import LogprobsMode
from inspector.page.form import BOS_CHOICES, KINDS, SAMPLER_FIELDS, TEXT_FIELDS, SamplerForm, TextForm
from inspector.page.look import ASSETS, script
from inspector.params import MAX_SEED, check_seed

CHAT_TEMPLATE = """<div class="li-chat"><div class="li-chat-rows"></div>
<button type="button" class="li-chat-add">+ Add a message</button></div>"""
START_CHAT = [{"role": "user", "content": ""}]
MODE_NAMES = {mode: mode.value.replace("_", " ") for mode in LogprobsMode}


def examples() -> list[dict[str, Any]]:
    return json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))


def mode_input() -> gr.Radio:
    return gr.Radio(
        [(name, mode.value) for mode, name in MODE_NAMES.items()], value=LogprobsMode.RAW_LOGPROBS.value, label="Mode",
        elem_id="mode", elem_classes="li-segments",
        info="What the score shows. All four come from one run, so changing it afterwards runs nothing.",
    )  # fmt: skip


def text_inputs() -> tuple[dict[str, Component], dict[str, gr.Column]]:
    """The text's components by field of TextForm, and the column of each kind of text."""
    made: dict[str, Component] = {}
    made["kind"] = gr.Radio(
        [(name, kind) for kind, name in KINDS.items()], value="raw", show_label=False, container=False, elem_id="kind",
        elem_classes="li-segments",
    )  # fmt: skip
    with gr.Column(elem_classes="li-flush") as prompt_column:
        made["prompt"] = gr.Textbox(
            "", label="Text", lines=6, max_lines=18, elem_id="prompt", placeholder="Type or paste a text, or pick an example below"
        )
    with gr.Column(visible=False, elem_classes="li-flush") as completion_column:
        made["completion"] = gr.Textbox(
            "", label="Completion to score", lines=3, max_lines=12, elem_id="completion",
            info="Follows the prompt directly: begin it with a space if it is a new word.",
        )  # fmt: skip
    with gr.Column(visible=False, elem_classes="li-flush") as chat_column:
        made["chat"] = gr.HTML(
            value=json.dumps(START_CHAT), html_template=CHAT_TEMPLATE, js_on_load=script("chat.js"), apply_default_css=False, elem_id="chat"
        )
        made["add_generation_prompt"] = gr.Checkbox(
            value=True, label="Generation prompt", info="End with the template's start of an answer.", elem_id="add_generation_prompt"
        )
    with gr.Column(visible=False, elem_classes="li-flush") as ids_column:
        made["ids"] = gr.Textbox("", label="Token ids", lines=4, max_lines=12, elem_id="ids", placeholder="504, 3575, 282")
    columns = {"prompt": prompt_column, "completion": completion_column, "chat": chat_column, "ids": ids_column}
    return made, columns


def show_kind(kind: str) -> list[Any]:
    """Visibility of the prompt, completion, chat and id columns."""
    return [gr.update(visible=kind in kinds) for kinds in (("raw", "completion"), ("completion",), ("chat",), ("ids",))]


def sampling_inputs() -> dict[str, Component]:
    return {
        "continuations": gr.Number(0, label="continuations", info=f"0–{MAX_CONTINUATIONS}", elem_id="continuations"),
        "max_new_tokens": gr.Number(32, label="max_new_tokens", info="at least 1", elem_id="max_new_tokens"),
        "seed": gr.Textbox("", label="seed", info="drawn if empty", elem_id="seed"),
    }


def reading_inputs() -> dict[str, Component]:
    return {
        "top_n": gr.Number(10, label="top_n", info=f"alternatives a token, 0–{MAX_TOP_N}", elem_id="top_n"),
        "token_ids": gr.Textbox("", label="token_ids", info="ids to list at every token", placeholder="11, 29", elem_id="token_ids"),
        "add_bos": gr.Radio(
            list(BOS_CHOICES), value="auto", label="add_bos", info="a beginning-of-sequence token; auto: as the tokenizer does",
            elem_classes="li-segments",
        ),
        "prompt_processing": gr.Radio(
            [("as sampled here", PROMPT_PROCESSING[0]), ("off, as the engine", PROMPT_PROCESSING[1])], value=PROMPT_PROCESSING[0],
            label="prompt_processing", info="processed scores of the prompt: each token as if the sampler had drawn it, or raw ones",
            elem_classes="li-segments",
        ),
        "parse_special": gr.Checkbox(value=True, label="parse_special", info="<|im_end|> in the text is one token, not characters"),
    }  # fmt: skip


def example_values(example: dict[str, Any]) -> tuple[TextForm, SamplerForm, str]:
    """A whole form for an example; whatever it leaves out is neutral."""
    text = {name: example[name] for name in TEXT_FIELDS if name in example}
    text["chat"] = json.dumps(example.get("chat", START_CHAT), ensure_ascii=False)
    sampler = {name: example.get("params", {})[name] for name in SAMPLER_FIELDS if name in example.get("params", {})}
    return TextForm(**text), SamplerForm(**sampler), example.get("mode", LogprobsMode.RAW_LOGPROBS.value)


def check_counts(top_n: float | None, continuations: float | None, max_new_tokens: float | None, seed: str) -> str:
    """A message for the first of these fields that is out of its range, or nothing."""
    for name, value, low, high in (
        ("top_n", top_n, 0, MAX_TOP_N), ("continuations", continuations, 0, MAX_CONTINUATIONS),
        ("max_new_tokens", max_new_tokens, 1, MAX_NEW_TOKENS),
    ):  # fmt: skip
        if value is None or value != int(value) or not low <= value <= high:
            return f"{name} must be a whole number in [{low}, {high}], got {'an empty field' if value is None else format(value, 'g')}"
    try:
        first = check_seed(seed)
    except InputError as error:
        return str(error)
    if first is not None and first + int(continuations or 0) - 1 > MAX_SEED:
        return f"seed must be at most {MAX_SEED - int(continuations or 0) + 1} for {int(continuations or 0)} continuations"
    return ""
