"""A browser for the tests of pages."""

import os
import pathlib
import shutil

import pytest

CHROMIUM = os.environ.get("CHROMIUM_BIN") or shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = os.environ.get("CHROMEDRIVER_BIN") or shutil.which("chromedriver")


@pytest.fixture(scope="module")
def driver():
    """Chromium without a window, driven by Selenium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed (extra 'browser')")
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromedriver are not on the PATH, nor named by CHROMIUM_BIN and CHROMEDRIVER_BIN")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_window_size(1200, 1200)
    driver.set_script_timeout(120)
    yield driver
    driver.quit()


@pytest.fixture
def serious_faults(driver):
    """A function that says which serious faults of accessibility the page has."""
    axe = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed (extra 'browser')")
    (script,) = pathlib.Path(axe.__file__).parent.rglob("axe.min.js")

    def faults():
        driver.execute_script(script.read_text(encoding="utf-8"))
        found = driver.execute_async_script("axe.run().then(arguments[0])")
        serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
        return [(each["id"], each["nodes"][0]["html"]) for each in serious]

    return faults
