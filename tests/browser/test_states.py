"""Each state of the page in light, dark and narrow: nothing is wider than the window, nothing fails, and a picture is kept.

SCREENSHOTS=folder keeps the pictures where they can be looked at.
"""

import re

import pytest
from driving import choose, hover, inspect, table_rows

pytestmark = [pytest.mark.browser, pytest.mark.real]

TEXT = "It was a dark and stormy night; the rain fell in marshmallows."


@pytest.mark.parametrize("look", ["light", "dark", "narrow"])
def test_every_state(page, shots, tmp_path, look):
    folder = shots or tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    taken = []

    def shoot(name: str, whole: bool = True) -> None:
        page.wait_for_timeout(900)  # plots are drawn in their own time
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        taken.append(folder / f"{look}-{len(taken):02}-{name}.png")
        page.screenshot(path=taken[-1], full_page=whole)

    if look == "dark":
        page.click("#theme")
    if look == "narrow":
        page.set_viewport_size({"width": 390, "height": 844})
    shoot("empty")

    page.fill("#prompt textarea", TEXT)
    page.fill("#continuations input", "1")
    page.fill("#max_new_tokens input", "1500")
    page.fill("#seed textarea", "7")
    page.click("#inspect")
    page.wait_for_selector("#live .li-growing .li-token >> nth=8")
    shoot("running")
    page.click("#cancel")
    page.wait_for_selector("#status:has-text('Cancelled')")
    page.wait_for_selector("#inspect:not([disabled])")
    shoot("cancelled")

    page.fill("#max_new_tokens input", "20")
    for name, value in {"temperature": "0.8", "top_p": "0.8", "repetition_penalty": "1.1"}.items():
        page.fill(f"#{name} input[type=number]", value)
    page.wait_for_function("document.querySelector('#history input').value.includes('live (repetition_penalty, temperature, top_p)')")
    shoot("live")
    page.locator("#mode").get_by_label("processed logprobs").check(force=True)
    inspect(page, TEXT)
    shoot("result")
    hover(page, "#heatmap [data-i='3']")
    shoot("hover", whole=False)  # the card stands in the window, not in the page
    assert page.locator("body > .li-card").is_visible()
    page.click("#heatmap [data-i='3']")
    table_rows(page)
    page.wait_for_selector("#steps")
    shoot("pinned")
    for value in ("rank", "entropy", "difference", "cut"):
        page.select_option("#heatmap [aria-label='Colour by']", value)
        shoot(f"colour-{value}")
    page.select_option("#heatmap [aria-label='Colour by']", "score")
    page.select_option("#heatmap [aria-label='Show']", "sides")
    shoot("raw-beside-processed")
    page.select_option("#heatmap [aria-label='Show']", "beside")
    shoot("prompt-beside-continuation")
    page.select_option("#heatmap [aria-label='Show']", "one")
    for tab in ("Tokens", "Notes", "Guide", "Download"):
        _open_tab(page, tab)
        shoot(f"tab-{tab.lower()}")
    _open_tab(page, "Plots")

    page.wait_for_selector("#branch:not([disabled])")
    page.click("#branch")
    page.wait_for_function("document.querySelector('#history input').value.includes('↳')")
    page.wait_for_selector("#inspect:not([disabled])")
    shoot("branch")
    choose(page, "#history", "3. ")
    page.wait_for_function("!document.querySelector('#history input').value.includes('↳')")
    choose(page, "#compare-with", "1. ")
    page.wait_for_selector("#comparison h3")
    page.select_option("#heatmap [aria-label='Colour by']", "other")
    shoot("compared")

    page.fill("#top_p input[type=number]", "1.5")
    page.wait_for_selector("#sampler-message [role=alert]")
    page.click("#inspect")
    page.wait_for_selector("#status [role=alert]")
    shoot("error")
    page.click("#reset")
    for label in ("Chat", "Prompt + completion", "Token ids"):
        page.get_by_label(label, exact=True).check(force=True)
        shoot("kind-" + re.sub("[^a-z]+", "-", label.lower()))
    for accordion in ("reading", "model", "share"):
        page.click(f"#{accordion} button >> nth=0")
    shoot("open")
    assert len({path.read_bytes() for path in taken}) == len(taken)  # every state looks different


def _open_tab(page, name: str) -> None:
    """A narrow window keeps the last tabs in a menu."""
    tab = page.get_by_role("tab", name=name)
    if tab.count() and tab.first.is_visible():
        tab.first.click()
    else:
        page.locator(".tabs .overflow-menu > button").click()
        page.locator(".tabs .overflow-dropdown button", has_text=name).click()
