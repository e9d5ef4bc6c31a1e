"""A text of 8,000 tokens stays usable: the limits that the page promises."""

import pytest
from driving import token_count

pytestmark = [pytest.mark.browser, pytest.mark.real]

FIRST_PAINT = 1500  # ms from the data's arrival to the first frame with tokens
HOVER = 50  # ms from the pointer's arrival to the frame with the card


def measured(page, name: str) -> float:
    page.wait_for_function("name => performance.getEntriesByName(name).length", arg=name, timeout=60_000)
    return page.evaluate("name => performance.getEntriesByName(name)[0].duration", name)


def test_eight_thousand_tokens(page, embedded):
    words = "The lighthouse keeper counted every ship that passed, and wrote its name in a book. "
    ids = embedded.loaded.vocabulary.tokenizer(words * 600)["input_ids"][:8000]
    text = embedded.loaded.vocabulary.tokenizer.decode(ids)
    page.fill("#prompt textarea", text)
    page.click("#inspect")
    page.wait_for_selector("#status .li-done", timeout=300_000)
    assert measured(page, "heatmap first") < FIRST_PAINT
    measured(page, "heatmap")
    assert token_count(page) == len(embedded.loaded.vocabulary.tokenizer(text)["input_ids"])
    page.wait_for_timeout(3000)  # the plots are drawn after the heatmap
    # from the pointer's arrival to the end of the frame that shows it, under the browser's own :hover
    page.evaluate("""() => {
        window.hovers = [];
        document.addEventListener('pointerover', (event) => {
            if (!event.target.closest('[data-i]')) return;
            requestAnimationFrame(() => setTimeout(() => window.hovers.push(performance.now() - event.timeStamp)));
        }, true);
    }""")
    page.locator("#heatmap [data-i='5']").scroll_into_view_if_needed()
    for i in (5, 10, 40, 60, 80, 100, 120, 140, 160):
        box = page.locator(f"#heatmap [data-i='{i}']").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(300)
        assert page.locator("body > .li-card").is_visible()
    times = page.evaluate("hovers")
    assert len(times) >= 9 and min(times) < HOVER, times  # a busy machine only adds
    page.click("#heatmap [data-i='100']")
    page.wait_for_selector("#pinned h3:has-text('position 100:')", timeout=30_000)
