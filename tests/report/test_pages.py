"""The pages in a real browser: they work, ask the network for nothing and cannot be broken by what titles say.

Outside CI these tests are skipped where no browser is found; tests/install_browser.sh installs one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from browser import open_page, problems, show_as
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from recbole_denoiser.analysis.explain import Explanation, explain
from recbole_denoiser.analysis.histories import telling_histories, user_history
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.report.explain_page import explain_html, write_explain_page
from recbole_denoiser.report.report_page import write_report
from recbole_denoiser.runs.record import load_run

NASTY = [
    "\"quoted\" 'and' `ticked`",
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<!-- <script> & &amp; &lt;",
    "{{style}} ${window.hacked=1} $1 \\u003c",
    "emoji \U0001f3ac\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001d4b3, line\u2028and\u2029paragraph",
    "\u202eright-to-left",
    "https://example.invalid/picture.png",
]


@pytest.fixture(scope="module")
def shop_page(shop_run: Path, figure1: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "explain.html"
    write_explain_page(figure1.explanation(shop_run), file)
    return file


@pytest.fixture(scope="module")
def nasty(noisy: Recommender) -> Explanation:
    """Titles, users and noise that try to break out."""
    explanation = explain(noisy, [user_history(noisy, user) for user in ("u1", "u2")], k=8)
    names = iter(NASTY * 100)
    data = explanation.data
    data["label"], data["run"] = NASTY[1], NASTY[2]
    for user in data["users"]:
        user["user"] = next(names)
        named = [*user["items"], *user["on"], *user["off"], user["next"]]
        named += [entry["noise"] for entry in user["items"] if entry["noise"]]
        named += [entry["first"] for entry in user["without"]]
        for entry in named:
            entry["title"] = next(names)
    return explanation


def text(browser: WebDriver, selector: str) -> str:
    return str(browser.find_element(By.CSS_SELECTOR, selector).get_attribute("textContent"))


def count(browser: WebDriver, selector: str) -> int:
    return len(browser.find_elements(By.CSS_SELECTOR, selector))


def pixels(browser: WebDriver, canvas: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).toDataURL()", canvas))


def click_row(browser: WebDriver, title: str) -> None:
    rows = browser.find_elements(By.CSS_SELECTOR, "#items .row")
    next(row for row in rows if row.find_element(By.CSS_SELECTOR, ".title").text == title).click()


def test_a_click_shows_what_a_position_reads(browser: WebDriver, shop_page: Path) -> None:
    open_page(browser, shop_page)
    assert text(browser, "#detail strong") == "5. Laptop"
    assert count(browser, "#items .row") == 5
    cut = [row.text.split("\n")[1] for row in browser.find_elements(By.CSS_SELECTOR, "#items .row.cut")]
    assert cut == ["Pant", "Bag"]
    assert count(browser, ".link-cut") == 2
    assert count(browser, ".link-kept") == 2
    before = pixels(browser, "#matrix")
    click_row(browser, "Pant")
    assert text(browser, "#detail strong") == "4. Pant"
    assert pixels(browser, "#matrix") != before
    cut = [row.text.split("\n")[1] for row in browser.find_elements(By.CSS_SELECTOR, "#items .row.cut")]
    assert cut == ["Headphone", "Phone"]
    assert count(browser, "#items .row.later") == 1
    browser.find_element(By.CSS_SELECTOR, '#scope input[value="all"]').click()
    assert count(browser, ".link-cut") == 6
    assert count(browser, ".link-kept") == 4
    browser.find_element(By.CSS_SELECTOR, '#heads input[value="1"]').click()
    assert problems(browser, shop_page) == []


def test_keyboard_alone(browser: WebDriver, shop_page: Path) -> None:
    open_page(browser, shop_page)
    row = browser.find_element(By.CSS_SELECTOR, "#items [aria-selected=true]")
    assert row.get_attribute("tabindex") == "0"
    row.send_keys(Keys.ARROW_DOWN)
    assert text(browser, "#detail strong") == "4. Pant"
    browser.switch_to.active_element.send_keys(Keys.END)
    assert text(browser, "#detail strong") == "1. Phone"
    browser.switch_to.active_element.send_keys(Keys.HOME)
    assert text(browser, "#detail strong") == "5. Laptop"
    browser.find_element(By.CSS_SELECTOR, "#heads input:checked").send_keys(Keys.ARROW_RIGHT)
    assert browser.find_element(By.CSS_SELECTOR, "#heads input:checked").get_attribute("value") == "0"
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)  # the focus has stayed there
    assert browser.find_element(By.CSS_SELECTOR, "#heads input:checked").get_attribute("value") == "1"
    canvas = browser.find_element(By.ID, "matrix")
    canvas.send_keys(Keys.ARROW_UP)
    assert text(browser, "#detail strong") == "4. Pant"
    focusable = browser.execute_script(
        "return [...document.querySelectorAll('button, select, input, [tabindex=\"0\"]')].every(n => n.tabIndex >= 0)"
    )
    assert focusable
    assert problems(browser, shop_page) == []


def test_users_can_be_switched(browser: WebDriver, shop_page: Path) -> None:
    open_page(browser, shop_page)
    picker = Select(browser.find_element(By.ID, "user"))
    assert [option.text for option in picker.options] == ["Figure 1", "customer-7"]
    picker.select_by_visible_text("customer-7")
    assert "User customer-7" in text(browser, "#story")
    assert "What came next" in text(browser, "#next")
    browser.find_element(By.ID, "following").click()
    assert "User Figure 1" in text(browser, "#story")
    browser.find_element(By.ID, "previous").click()
    assert "User customer-7" in text(browser, "#story")
    assert problems(browser, shop_page) == []


def test_theme_follows_the_system_and_the_button(browser: WebDriver, shop_page: Path) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    seen = {}
    for dark in (False, True):
        show_as(browser, 1280, 900, dark=dark)
        open_page(browser, shop_page)
        seen[dark] = (browser.execute_script(background), pixels(browser, "#matrix"))
        browser.find_element(By.ID, "theme").click()
        assert (browser.execute_script(background), pixels(browser, "#matrix")) != seen[dark]
    show_as(browser, 1280, 900)
    assert seen[False] != seen[True]
    assert problems(browser, shop_page) == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_width_needs_sideways_scrolling(browser: WebDriver, shop_page: Path, width: int) -> None:
    show_as(browser, width, 800, phone=width < 700)
    try:
        open_page(browser, shop_page)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        small = browser.execute_script(
            "return [...document.querySelectorAll('button, select')].filter(n => n.offsetHeight < 36).length"
        )
        assert small == 0  # fingers
    finally:
        show_as(browser, 1280, 900)


def test_titles_cannot_break_or_inject(browser: WebDriver, nasty: Explanation, tmp_path: Path) -> None:
    file = tmp_path / "nasty.html"
    write_explain_page(nasty, file)
    open_page(browser, file)
    data: dict[str, Any] = browser.execute_script("return JSON.parse(document.getElementById('data').textContent)")
    assert data == nasty.data
    shown = [row.get_attribute("textContent") for row in browser.find_elements(By.CSS_SELECTOR, "#items .title")]
    assert shown == [entry["title"] for entry in reversed(nasty.data["users"][0]["items"])]
    for position in range(len(shown)):
        browser.execute_script(f"document.getElementById('item-{position}').click()")
    browser.find_element(By.ID, "following").click()
    assert browser.execute_script("return window.hacked") is None
    assert count(browser, "img") == 0
    assert count(browser, "script") == 2
    assert problems(browser, file) == []


def test_an_injected_script_would_not_run(browser: WebDriver, nasty: Explanation, tmp_path: Path) -> None:
    """The second wall: even markup that got in could neither run nor load anything."""
    file = tmp_path / "walled.html"
    inside = (
        "<script>window.hacked=1</script><img src='https://example.invalid/x.png' onerror='window.hacked=2'></body>"
    )
    file.write_text(explain_html(nasty).replace("</body>", inside), encoding="utf-8")
    open_page(browser, file)
    assert browser.execute_script("return window.hacked") is None
    assert all("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))


def test_report_page(browser: WebDriver, shop_run: Path, noisy_run: Path, tmp_path: Path) -> None:
    """Pictures are drawn, both themes work, a label cannot inject, and no width needs sideways scrolling."""
    file = tmp_path / "report.html"
    write_report([replace(load_run(shop_run), label=NASTY[1]), replace(load_run(noisy_run), label=NASTY[2])], file)
    for dark, width in ((False, 1280), (True, 390)):
        show_as(browser, width, 900, dark=dark, phone=width < 700)
        open_page(browser, file)
        sizes = browser.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth)")
        assert len(sizes) >= 5 and all(size > 100 for size in sizes)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        browser.find_element(By.ID, "theme").click()
        assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
        browser.find_element(By.TAG_NAME, "summary").click()
        assert "learning_rate" in browser.find_element(By.TAG_NAME, "details").text
        assert browser.execute_script("return window.hacked") is None
        assert count(browser, "script") == 1
        assert NASTY[1] in text(browser, "main")
        assert problems(browser, file) == []
    show_as(browser, 1280, 900)


def test_the_page_is_one_file(nasty: Explanation) -> None:
    page = explain_html(nasty)
    assert page.count("<script") == page.count("</script") == 2
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)\s*=|url\(|@import""", markup)
    assert "default-src 'none'" in page


def test_items_can_be_put_back_and_taken_out(browser: WebDriver, cleaned_run: Path, tmp_path: Path) -> None:
    """The lists follow, offline, and go back again; a removed item stands in place with its reason."""
    recommender = Recommender.load(cleaned_run)
    explanation = explain(recommender, telling_histories(recommender, 2), k=5)
    file = tmp_path / "what-if.html"
    write_explain_page(explanation, file)
    open_page(browser, file)
    user = explanation.data["users"][explanation.data["start"]]
    assert text(browser, "#story") == f"User {user['user']}. {user['story']}"
    assert count(browser, "#items .row.gone") == len(user["removed"])
    assert not browser.find_element(By.ID, "same").is_displayed()  # there are no position masks
    legend, items = (browser.find_element(By.CSS_SELECTOR, name).rect["y"] for name in (".legend", "#items"))
    assert legend < items
    browser.find_element(By.ID, "removed-0").click()
    assert text(browser, "#detail strong") == user["removed"][0]["title"]
    assert "never stand within 10 places" in text(browser, "#detail")
    browser.find_element(By.CSS_SELECTOR, "#detail button").click()
    names = explanation.data["names"]
    assert listed(browser, 1) == [names[str(number)]["title"] for number in user["removed"][0]["back"]["top"]]
    assert listed(browser, 0) == [entry["title"] for entry in user["on"]]
    assert "put back" in text(browser, "#removed-0")
    browser.find_element(By.CSS_SELECTOR, "#edit button").click()
    assert count(browser, "#lists ol") == 1
    browser.find_element(By.ID, "item-1").click()
    browser.find_element(By.CSS_SELECTOR, "#detail button").click()
    assert listed(browser, 1) == [names[str(number)]["title"] for number in user["out"][1]["top"]]
    assert count(browser, "#items .row.out") == 1
    browser.find_element(By.ID, "following").click()  # another user begins unchanged
    assert count(browser, "#lists ol") == 1 and text(browser, "#edit") == ""
    assert problems(browser, file) == []


def listed(browser: WebDriver, number: int) -> list[str]:
    entries = browser.find_elements(By.CSS_SELECTOR, "#lists ol")[number].find_elements(By.CSS_SELECTOR, ".name")
    return [str(entry.get_attribute("textContent")).removesuffix("came next").strip() for entry in entries]


def test_position_masks_are_the_same_for_everyone(browser: WebDriver, nasty: Explanation, tmp_path: Path) -> None:
    file = tmp_path / "position.html"
    write_explain_page(nasty, file)
    open_page(browser, file)
    note = browser.find_element(By.ID, "same")
    assert note.is_displayed() and "the same for everyone" in note.text
    assert note.rect["y"] < browser.find_element(By.ID, "items").rect["y"]
