"""The sampling parameters: fields, the message about them, and the line that says which are active."""

from html import escape
from typing import Any

import gradio as gr
from gradio.components import Component

from inspector.errors import InspectorError
from inspector.page.form import SAMPLER_FIELDS, SamplerForm, read_params
from inspector.params import range_text
from inspector.processors import active_processors

NEUTRAL = SamplerForm()
PRESETS = {
    "Greedy": SamplerForm(temperature=0.0),
    "Chat defaults": SamplerForm(temperature=0.7, top_p=0.95),
    "Focused": SamplerForm(temperature=0.3, top_k=40, top_p=0.9),
    "Varied": SamplerForm(temperature=1.2, min_p=0.05),
}


def sampler_inputs() -> dict[str, Component]:
    """The components by field of SamplerForm, in its order."""
    made: dict[str, Component] = {}
    with gr.Row(elem_classes="li-fields"):
        made["temperature"] = _number("temperature", "0 is greedy")
        made["top_p"] = _number("top_p")
        made["top_k"] = gr.Number(0, label="top_k", info="0 or −1 is off", elem_id="top_k", min_width=110)
        made["min_p"] = _number("min_p")
        made["repetition_penalty"] = _number("repetition_penalty", "prompt too")
        made["frequency_penalty"] = _number("frequency_penalty")
        made["presence_penalty"] = _number("presence_penalty")
        made["min_tokens"] = gr.Number(0, label="min_tokens", info="at least 0", elem_id="min_tokens", min_width=110)
    with gr.Accordion("Biases, words and stops", open=False):
        made["logit_bias"] = gr.Textbox("", label="logit_bias", info="id: bias pairs", placeholder="11: -5, 29: 2.5", elem_id="logit_bias")
        made["allowed_token_ids"] = gr.Textbox("", label="allowed_token_ids", info="empty allows all", elem_id="allowed_token_ids")
        made["bad_words"] = gr.Textbox("", label="bad_words", info="one a line", lines=2, elem_id="bad_words")
        made["stop"] = gr.Textbox(
            "", label="stop", info="strings that end a continuation, one a line; \\n is a line end", lines=2, elem_id="stop"
        )
        made["stop_token_ids"] = gr.Textbox("", label="stop_token_ids", elem_id="stop_token_ids")
        made["ignore_eos"] = gr.Checkbox(label="ignore_eos", info="sample on after end-of-sequence", elem_id="ignore_eos")
    return {name: made[name] for name in SAMPLER_FIELDS}


def _number(name: str, note: str = "") -> gr.Number:
    info = range_text(name) + (f", {note}" if note else "")
    return gr.Number(getattr(NEUTRAL, name), label=name, info=info, elem_id=name, step=0.05, min_width=110)


def neutral_values() -> list[Any]:
    return [getattr(NEUTRAL, name) for name in SAMPLER_FIELDS]


def preset_values(name: str) -> list[Any]:
    return [getattr(PRESETS[name], field) for field in SAMPLER_FIELDS]


def describe(*values: Any) -> str:
    """HTML: which parameters are active and in which order, or what is wrong with one. Takes SAMPLER_FIELDS' values."""
    try:
        params = read_params(SamplerForm(*values))
    except InspectorError as error:
        return message(str(error))
    steps = active_processors(params)
    if params.is_greedy:
        greedy = "<p class='li-steps'>Greedy: temperature and truncation are skipped, the best token is taken.</p>"
        return (_steps(steps) if steps else "") + greedy
    return _steps(steps)


def _steps(steps: tuple[str, ...]) -> str:
    if not steps:
        return "<p class='li-steps'>All neutral: processed scores equal raw ones.</p>"
    return "<p class='li-steps'>Active, in this order: " + " → ".join(f"<b>{step}</b>" for step in steps) + "</p>"


def message(text: str) -> str:
    """HTML of an inline error, announced by screen readers."""
    return f"<p class='li-message' role='alert'>{escape(text)}</p>" if text else ""
