"""What a user does with the page, in a word each."""

PLAIN = "The capital of France is Paris. Its river is the Seine."


def inspect(page, text: str | None = None) -> None:
    """Press Inspect, after typing `text` if given, and wait for the new result, which a live one may precede."""
    if text is not None:
        page.fill("#prompt textarea", text)
    shown = "document.querySelector('#heatmap .li-sections')?.dataset.result ?? ''"
    name = "document.querySelector('#history input')?.value ?? ''"
    before = page.evaluate(shown)
    page.click("#inspect")
    page.wait_for_function(f"before => ({shown}) !== before && !({name}).includes('. live (')", arg=before, timeout=60_000)
    page.wait_for_selector("#status .li-done:not(:has-text('Scored again'))")
    page.wait_for_selector("#inspect:not([disabled])")


def hover(page, place: str) -> None:
    """Point at an element that the window shows already: scrolling hides the card."""
    page.locator(place).scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    page.hover(place)


def token_count(page, section: int | None = None) -> int:
    place = "#heatmap .li-section" if section is None else f"#heatmap .li-section >> nth={section}"
    return page.locator(place).locator("[data-i]").count()


def heatmap_text(page, section: int = 0) -> str:
    """The text that the DOM holds, which is what is copied."""
    return page.locator("#heatmap .li-text").nth(section).evaluate("e => e.textContent")


def copied_text(page, section: int = 0) -> str:
    """What lands on the clipboard when all of a section is selected and copied."""
    return (
        page.locator("#heatmap .li-text")
        .nth(section)
        .evaluate(
            """e => {
            const selection = getSelection();
            selection.selectAllChildren(e);
            const data = new DataTransfer();
            e.dispatchEvent(new ClipboardEvent('copy', {clipboardData: data, bubbles: true, cancelable: true}));
            selection.removeAllRanges();
            return data.getData('text/plain');
        }"""
        )
    )


def download(page, button: str, path) -> None:
    """Press a download button, once its file is made, and keep the file."""
    page.get_by_role("tab", name="Download").click()
    page.wait_for_selector(f"#{button}:not([disabled])", timeout=60_000)
    with page.expect_download() as started:
        page.click(f"#{button}")
    started.value.save_as(path)


def table_rows(page) -> list[list[str]]:
    """The cells of the pinned token's table."""
    page.wait_for_selector("#alternatives tbody tr")
    return page.locator("#alternatives tbody tr").evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.innerText))")


def choose(page, dropdown: str, text: str) -> None:
    """Pick the first entry of a list that holds `text`."""
    page.click(f"{dropdown} input")
    page.locator("[role=option]", has_text=text).first.click()
