"""Draws the explorer: at the widths of a telephone, a tablet and a desk side by side, or at the widths that are given.

    python docs/screenshots.py saved_models/gpt-pydoc/1 docs/explorer_gpt.png "text=The yield expression is used" dark \
        --widths 1100 --scale 0.8 --height 1200

It needs Chromium, its driver and the extras `serve`, `browser` and `pictures`.
"""

import argparse
import io
import pathlib
import re
import shutil
import subprocess
import sys
import time

from PIL import Image
from selenium import webdriver

from zoo.atomic import write_whole

WIDTHS, GAP = (360, 768, 1440), 24  # CSS pixels
READY = "return !!document.querySelector('#views section') && !document.querySelector('[aria-busy]')"


def main() -> None:
    """Serves the model, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path, help="an export")
    parser.add_argument("out", type=pathlib.Path, help="the PNG to write")
    parser.add_argument("state", help="what stands behind # in the page's address, such as text=hello")
    parser.add_argument("scheme", choices=("light", "dark"), nargs="?", default="light")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="of the page (default %(default)s)")
    parser.add_argument("--height", type=int, default=1000, help="of the page (default %(default)s)")
    parser.add_argument("--top", type=int, default=0, help="how much of it is left out above (default %(default)s)")
    parser.add_argument("--point", type=int, help="the token of the answer that is pointed at, counted from 0")
    parser.add_argument("--scale", type=float, default=0.5, help="pixels of the picture for one of the page")
    arguments = parser.parse_args()
    widths = arguments.widths
    command = [pathlib.Path(sys.executable).with_name("zoo"), "serve", arguments.model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://[\d.:]+", server.stdout.readline())[0]
            pictures = [drawn(f"{address}/#{arguments.state}", width, arguments) for width in widths]
        finally:
            server.terminate()
    paper = (255, 255, 255) if arguments.scheme == "light" else (0, 0, 0)
    height = arguments.height - arguments.top
    sheet = Image.new("RGB", (sum(widths) + GAP * (len(widths) - 1), height), paper)
    for number, picture in enumerate(pictures):
        sheet.paste(picture, (sum(widths[:number]) + GAP * number, -arguments.top))
    sheet = sheet.resize([round(arguments.scale * size) for size in sheet.size], Image.Resampling.LANCZOS)
    content = io.BytesIO()
    # Few, for a small file; without k-means greys would get a tint.
    colours = sheet.quantize(128, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    colours.save(content, "PNG", optimize=True)
    write_whole(arguments.out, content.getvalue())
    print(f"{arguments.out}: {sheet.width} x {sheet.height}, {len(content.getvalue()) / 1024:.0f} KB")


def drawn(address, width, arguments):
    """The page at one width, when it has its answers."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(each)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        size = {"width": width, "height": arguments.height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": arguments.scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get(address)
        end = time.monotonic() + 60
        time.sleep(1)  # the page begins to ask
        while not driver.execute_script(READY) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1)  # the lines move to their places
        if arguments.point is not None:
            show = "document.querySelector('.alignment').alignment.show('target', arguments[0])"
            driver.execute_script(show, arguments.point)
            time.sleep(0.5)
        return Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
