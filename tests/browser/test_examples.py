"""The examples of the page are valid, and run."""

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
def test_examples_run_from_their_buttons(page):
    for title in ("Top-p cuts the ending", "Chat"):
        page.get_by_role("button", name=title, exact=True).click()
        page.wait_for_selector("#sampler-message b")
        about = next(e["about"] for e in EXAMPLES if e["title"] == title)
        page.wait_for_selector(f"#about-example:has-text({json.dumps(about)})")
        inspect(page)
        assert page.locator("#sampler-message b").first.inner_text() == "temperature"
    page.get_by_role("button", name="Code", exact=True).click()
    page.wait_for_selector("#about-example:has-text('Brackets')")
    page.fill("#prompt textarea", "A text of my own.")
    page.wait_for_selector("#about-example p", state="hidden")
