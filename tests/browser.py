"""A headless Chromium for tests and for the pictures in docs/: what it shows, logs and asks the network for."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip


def find_browser() -> tuple[str, str] | None:
    """Paths of Chromium (or Chrome) and its driver."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


@contextmanager
def open_browser(width: int = 1280, height: int = 900) -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile, closed at the end."""
    found = find_browser()
    if found is None:
        raise FileNotFoundError("Neither chromium nor chromedriver was found: run tests/install_browser.sh.")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = found[0]
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        browser = webdriver.Chrome(options=options, service=Service(found[1]))
        try:
            show_as(browser, width, height)
            yield browser
        finally:
            browser.quit()


def show_as(browser: webdriver.Chrome, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
    """Size of the window and the colour scheme that the system asks for."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def open_page(browser: webdriver.Chrome, file: Path) -> None:
    """Load a local page, forgetting what was logged before."""
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(file.as_uri())


def problems(browser: webdriver.Chrome, file: Path) -> list[str]:
    """Console messages of any level and requests for anything but the page itself, since ``open_page``."""
    found = [f"{entry['level']}: {entry['message']}" for entry in browser.get_log("browser")]
    for entry in browser.get_log("performance"):
        message: dict[str, Any] = json.loads(entry["message"])["message"]
        if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            url = message["params"].get("request", message["params"])["url"]
            if url.split("#")[0] != file.as_uri() and not url.startswith("data:"):
                found.append(f"request: {url}")
    return found
