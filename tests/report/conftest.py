"""One browser for all tests of the pages."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from browser import find_browser, open_browser
from selenium.webdriver.chrome.webdriver import WebDriver


@pytest.fixture(scope="session")
def browser() -> Iterator[WebDriver]:
    if find_browser() is None and os.environ.get("CI") != "true":
        pytest.skip("no chromium and chromedriver: run tests/install_browser.sh to test the pages")
    with open_browser() as opened:
        yield opened
