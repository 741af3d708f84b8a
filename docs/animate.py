"""Draws the animation that opens README.md: what each character of a date attends to, on the page of `zoo attend`.

    python docs/animate.py --out docs/attention.gif

It needs Chromium, its driver and the extras `browser` and `pictures`. Each character of the output is pointed at for a
second, in French and in Arabic at once.
"""

import argparse
import io
import pathlib
import shutil
import tempfile

from PIL import Image
from selenium import webdriver

import zoo
from zoo.atomic import write_whole
from zoo.pictures import save

ROOT = pathlib.Path(__file__).parents[1]
TEXTS = ["samedi 21 novembre 2026", "٢١ نوفمبر ٢٠٢٦"]
# Only the tokens: the map and the buttons would be too small to read.
STYLE = """
header, footer, .pair, .row, section > p { display: none !important; }
body { padding: 0 1rem !important; max-width: none !important; }
.card { margin: .5rem 0 !important; padding: .5rem 1rem 1rem !important; }
#views { margin: 0 !important; } .tokens { font-size: 1.7rem !important; }
.token { transition: none !important; }
"""


def main() -> None:
    """Draws the animation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "attention.gif")
    arguments = parser.parse_args()
    pictures = zoo.load(ROOT / "saved_models" / "dates" / "1").attend(TEXTS)
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1010,400"):
        options.add_argument(each)
    with tempfile.TemporaryDirectory() as folder:
        page = save(pictures, pathlib.Path(folder) / "page.html", columns=2)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            driver.get(page.as_uri())
            frames = drawn(driver, max(len(picture.target_tokens) for picture in pictures))
        finally:
            driver.quit()
    # Few colours, the same in all frames, keep the file small.
    palette = frames[5].quantize(64, Image.Quantize.MAXCOVERAGE, kmeans=3)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    content = io.BytesIO()
    times = [1500, *[900] * (len(frames) - 1)]
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)
    write_whole(arguments.out, content.getvalue())
    print(f"{arguments.out}: {len(frames)} frames, {len(content.getvalue()) / 1024:.0f} KB")


def drawn(driver, places):
    """A picture of all lines, and one for each token of the output."""
    add = "document.head.append(Object.assign(document.createElement('style'), {textContent: arguments[0]}))"
    driver.execute_script(add, STYLE)
    frames = []
    for place in (None, *range(places)):
        show = "for (const each of document.querySelectorAll('.alignment')) each.alignment.show('target', arguments[0])"
        driver.execute_script(show, place)
        frames.append(Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB"))
    height = int(driver.execute_script("return document.getElementById('views').getBoundingClientRect().bottom")) + 8
    return [frame.crop((0, 0, frame.width, height)) for frame in frames]


if __name__ == "__main__":
    main()
