"""Each example of the page runs, and its screenshots can be looked at."""

import json
from pathlib import Path

import pytest
from driving import inspect

from inspector import SamplingParams
from inspector.page.inputs import example_values

EXAMPLES = json.loads((Path(__file__).resolve().parents[2] / "assets" / "examples.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e["title"])
def test_example_is_a_valid_form(example):
    text, sampler, _ = example_values(example)
    assert text.prompt == example.get("prompt", "")
    named = {name: getattr(sampler, name) for name in example.get("params", {})}
    assert named == example.get("params", {})
    assert SamplingParams(**named)


@pytest.mark.browser
@pytest.mark.real
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_example_runs_and_explains_itself(page, shots, theme):
    if theme == "dark":
        page.click("#theme")
    for number, title in enumerate(("Top-p cuts the ending", "Chat")):
        page.get_by_role("button", name=title, exact=True).click()
        page.wait_for_selector("#sampler-message b")
        inspect(page)
        assert page.locator("#sampler-message b").first.inner_text() == "temperature"
        page.click("#heatmap [data-i='3']")
        page.wait_for_selector("#alternatives")
        if shots:
            page.wait_for_timeout(1500)
            page.screenshot(path=shots / f"{theme}-{number}.png", full_page=True)
