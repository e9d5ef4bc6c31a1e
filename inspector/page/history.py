"""The results of the session: which is shown, which it is compared with, its name."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from inspector.page.inputs import MODE_NAMES
from inspector.page.session import Session


@dataclass(frozen=True)
class HistoryRegion:
    shown: gr.Dropdown
    other: gr.Dropdown
    other_mode: gr.Dropdown
    name: gr.Textbox
    remove: gr.Button

    def choosers(self) -> list[Any]:
        """The lists, whose values are the arguments of a choice."""
        return [self.shown, self.other, self.other_mode]

    def outputs(self) -> list[Any]:
        return [*self.choosers(), self.name]


def history_region() -> HistoryRegion:
    with gr.Row(elem_classes="li-history"):
        shown = gr.Dropdown([], label="Result", elem_id="history", filterable=False, scale=5, min_width=200)
        other = gr.Dropdown([("—", 0)], value=0, label="Compare with", elem_id="compare-with", filterable=False, scale=5, min_width=200)
        other_mode = gr.Dropdown(
            [("same mode", ""), *((name, mode.value) for mode, name in MODE_NAMES.items())], value="", label="Read in", visible=False,
            elem_id="other-mode", filterable=False, scale=3, min_width=150,
        )  # fmt: skip
        name = gr.Textbox("", label="Name", max_lines=1, elem_id="result-name", scale=3, min_width=140, placeholder="press Enter to rename")
        remove = gr.Button("Remove", size="sm", elem_id="remove-result", scale=1, min_width=80)
    return HistoryRegion(shown, other, other_mode, name, remove)


def history_values(session: Session) -> list[Any]:
    """Updates for `HistoryRegion.outputs`."""
    choices = session.choices()
    others = [("—", 0), *((name, number) for name, number in choices if number != session.shown)]
    current = session.current
    return [
        gr.update(choices=choices, value=session.shown or None),
        gr.update(choices=others, value=session.other),
        gr.update(value=session.other_mode, visible=bool(session.other)),
        current.name if current else "",
    ]
