"""axe-core finds no serious fault in any state of the page, in light and dark."""

from importlib import resources

import pytest
from driving import inspect, table_rows

pytestmark = [pytest.mark.browser, pytest.mark.real]

RUN = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
    .filter(v => v.impact === 'serious' || v.impact === 'critical')
    .map(v => [v.id, v.nodes.map(n => n.target.join(' ') + ': ' + n.any.map(c => c.message).join('; '))])"""


def faults(page) -> list:
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.add_script_tag(content=(resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    page.wait_for_timeout(600)  # colours fade when the theme changes, and axe would read them half way
    return page.evaluate(RUN)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_fault(page, theme):
    pytest.importorskip("axe_playwright_python")
    if theme == "dark":
        page.click("#theme")
    assert faults(page) == []
    page.fill("#top_p input", "0.8")
    page.fill("#continuations input", "1")
    page.fill("#max_new_tokens input", "5")
    inspect(page, "The capital of France is Paris 🦉.")
    page.click("#heatmap [data-i='3']")
    table_rows(page)
    page.wait_for_selector("#steps")
    assert faults(page) == []
    page.select_option("#heatmap [aria-label='Show']", "sides")
    for tab in ("Tokens", "Notes", "Guide", "Download"):
        page.get_by_role("tab", name=tab).click()
        assert faults(page) == [], tab
    page.fill("#seed textarea", "x")
    page.wait_for_selector("#count-message [role=alert]")
    assert faults(page) == []
