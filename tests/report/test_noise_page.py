"""The noise page in a real browser: slider, search, reasons, both themes, every width."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import open_page, problems, show_as
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from recbole_denoiser.data.detected import Detected
from recbole_denoiser.detect import detect_flat
from recbole_denoiser.report.noise_page import noise_data, write_noise_page


@pytest.fixture(scope="module")
def noise_page(found: Detected, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_noise_page(found, tmp_path_factory.mktemp("noise") / "noise.html")


def text(browser: WebDriver, selector: str) -> str:
    return str(browser.find_element(By.CSS_SELECTOR, selector).get_attribute("textContent"))


def slide(browser: WebDriver, value: int) -> None:
    browser.execute_script(
        "const s = document.getElementById('threshold'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input', {bubbles: true}))",
        value,
    )


def test_data_of_the_page(found: Detected) -> None:
    data: dict[str, Any] = noise_data(found)
    report = found.report
    assert len(data["users"]) == data["all_users"] == 400
    assert sum(len(user["remove"]) for user in data["users"]) == report.removed == data["removed"]
    posterior = sorted((p for user in data["users"] for p in user["posterior"]), reverse=True)
    assert [entry["posterior"] for entry in data["suspicious"]] == posterior[:300]
    worst = data["suspicious"][0]
    own = data["users"][worst["number"]]
    assert own["item"][worst["place"]] == worst["item"]
    near = data["evidence"][f"{worst['user']} {worst['place']}"]["neighbours"]
    around = own["item"][max(0, worst["place"] - 10) : worst["place"] + 11]
    assert sorted(entry[0] for entry in near) == sorted(np.delete(around, min(worst["place"], 10)).tolist())


def test_slider_moves_the_figures(browser: WebDriver, noise_page: Path, found: Detected) -> None:
    open_page(browser, noise_page)
    assert text(browser, "#threshold-value") == "0.50"
    assert "look like noise" in text(browser, "#story")
    assert "Known from labels" in text(browser, "#known")
    middle = int(text(browser, "#gone").split(" ")[0].replace(",", ""))
    at = found.report.curve["removed"][49] * len(found.data)
    assert middle == pytest.approx(at, abs=1)
    marker = browser.find_element(By.CSS_SELECTOR, "#tradeoff .marker").get_attribute("x1")
    struck = len(browser.find_elements(By.CSS_SELECTOR, "#suspicious .goes"))
    slide(browser, 98)
    assert text(browser, "#threshold-value") == "0.99"
    assert int(text(browser, "#gone").split(" ")[0].replace(",", "")) < middle
    assert browser.find_element(By.CSS_SELECTOR, "#tradeoff .marker").get_attribute("x1") != marker
    assert len(browser.find_elements(By.CSS_SELECTOR, "#suspicious .goes")) < struck
    assert len(browser.find_elements(By.CSS_SELECTOR, "#distribution .curve")) == 3
    assert problems(browser, noise_page) == []


def test_reasons_and_search(browser: WebDriver, noise_page: Path) -> None:
    open_page(browser, noise_page)
    rows = browser.find_elements(By.CSS_SELECTOR, "#suspicious .entry")
    assert len(rows) == 25
    rows[3].click()
    picked = text(browser, "#history [aria-selected=true] .title")
    assert text(browser, "#reason strong") == picked == text(browser, "#suspicious [aria-selected=true] .title")
    assert "never stand near it" in text(browser, "#reason")
    box = browser.find_element(By.ID, "user")
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("u17")
    assert text(browser, "#user-note").startswith("User u17: 24 interactions")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#history .entry")) == 24
    box.send_keys("777")
    assert text(browser, "#user-note") == "This page has no user u17777."
    browser.find_element(By.ID, "following").click()
    assert "User" in text(browser, "#user-note")
    row = browser.find_element(By.CSS_SELECTOR, "#history [aria-selected=true]")
    before = text(browser, "#history [aria-selected=true] .number")
    row.send_keys(Keys.ARROW_DOWN if before != "1" else Keys.ARROW_UP)
    assert abs(int(text(browser, "#history [aria-selected=true] .number")) - int(before)) == 1
    browser.find_element(By.ID, "more").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#suspicious .entry")) == 75
    assert "<b>Item" in text(browser, "#suspicious")  # a title is text
    assert len(browser.find_elements(By.CSS_SELECTOR, "#suspicious b")) == 75  # the bars' own
    assert problems(browser, noise_page) == []


@pytest.mark.parametrize(("width", "dark"), [(320, False), (400, True), (768, False), (1400, True)])
def test_every_width_and_theme(browser: WebDriver, noise_page: Path, width: int, dark: bool) -> None:
    show_as(browser, width, 900, dark=dark, phone=width < 700)
    try:
        open_page(browser, noise_page)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        browser.find_element(By.ID, "theme").click()
        assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
        assert problems(browser, noise_page) == []
    finally:
        show_as(browser, 1280, 900)


def test_data_too_thin_to_judge(browser: WebDriver, found: Detected, tmp_path: Path) -> None:
    """No curve, no distribution: the page says so and removes nothing."""
    few = np.arange(8)
    data = replace(found.data, user=few // 4, item=few, time=None, row=few)
    thin = Detected(found.config, data, detect_flat(data.user, data.item, len(data.items)))
    file = write_noise_page(thin, tmp_path / "thin.html")
    open_page(browser, file)
    assert text(browser, "#story").startswith("Too thin to judge")
    assert text(browser, "#gone").startswith("0")
    assert problems(browser, file) == []
