"""Makes the site of the documents from the Markdown files where they lie: `make docs`.

A page of the site has the path of its file in the repository, so links between files hold on the site as on a forge.
Files that are linked and are no Markdown become pages with their source. Equations become MathML, so no script is
loaded. A picture `NAME.png` with recorded weights in `docs/layers/NAME.json` becomes a figure in which a reader can
point at words.
"""

import base64
import html
import json
import pathlib
import posixpath
import re

import latex2mathml.converter
import nbformat
import numpy as np
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

from zoo.pictures import AttentionGrid, AttentionMaps, to_html

ROOT = pathlib.Path(__file__).parents[2]
HERE = "docs/site"
RECORDS = ROOT / "docs" / "layers"
# Pictures of curves stay. The figure beside each shows weights behind them.
BESIDE = {
    "root": "Weights behind the curves below: six random queries and 16 keys, by score and width",
    "rotary": "One word sixteen times over: what each place attends to, by the kind of its positions",
}
API = {
    "layers": "zoo.layers",
    "models": "zoo.models",
    "decoding": "zoo.decoding",
    "text": "zoo.text",
    "tasks": "zoo",
    "serving": "zoo.serving",
    "pictures": "zoo.pictures",
}
IMAGES = (".png", ".svg", ".gif")
_CODE = re.compile(r"(^ *```.*?^ *```[^\n]*$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^```.*?^```$|^( {2,3})(?:```.*?^\1```$|(?=\S))", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json"}


def on_files(files: Files, config) -> Files:
    """Every page of the navigation, and what is linked from there."""
    kept = Files([file for file in files if file.src_dir != config.docs_dir])  # those of the theme
    added = {}

    def add(uri, **options):
        if uri not in added:
            added[uri] = File.generated(config, uri, **options)
            kept.append(added[uri])
            return True
        return False

    for name in ("site.css", "site.js"):
        add(f"{HERE}/{name}", abs_src_path=str(ROOT / HERE / name))
    for record in sorted(RECORDS.glob("*.json")):
        add(figure(record.stem), content=read_record(record))
    waiting = [uri for uri in pages_of(config.nav) if not uri.startswith("api/")]
    for uri in pages_of(config.nav):
        if uri.startswith("api/"):
            name = uri.removeprefix("api/").removesuffix(".md")
            add(uri, content=f"# {API[name]}\n\n::: {API[name]}\n")
    while waiting:
        uri = waiting.pop()
        notebook = (ROOT / uri).with_suffix(".ipynb")
        if uri.endswith(".md") and notebook.exists():
            content, pictures = read_notebook(notebook)
            for name, picture in pictures.items():
                add(posixpath.join(posixpath.dirname(uri), name), content=picture)
            if add(uri, content=content):
                waiting += linked(uri, content)
        elif uri.endswith(".md"):
            if add(uri, abs_src_path=str(ROOT / uri)):
                waiting += linked(uri, (ROOT / uri).read_text(encoding="utf-8"))
        elif uri.endswith(".ipynb"):
            waiting.append(uri.replace(".ipynb", ".md"))
        elif (ROOT / uri).is_dir():
            names = sorted(each.name for each in (ROOT / uri).iterdir() if each.is_file())
            add(f"{uri}/index.md", content=f"# {uri}\n\n" + "".join(f"- `{name}`\n" for name in names))
        elif uri.endswith(IMAGES):
            add(uri, abs_src_path=str(ROOT / uri))
        else:
            language, code = _LANGUAGES.get((ROOT / uri).suffix, "text"), (ROOT / uri).read_text(encoding="utf-8")
            add(f"{uri}.md", content=f"# {uri}\n\n````{language}\n{code}\n````\n")
    return kept


def on_page_markdown(markdown: str, page, **_) -> str:
    """Equations, figures, and links to what is no Markdown."""
    uri = page.file.src_uri
    if not (ROOT / uri).exists() and not (ROOT / uri).with_suffix(".ipynb").exists():  # `on_files` has made it whole
        return markdown
    markdown = re.sub(
        r"^```math\n(.*?)^```$", lambda found: block_of_math(found[1]), markdown, flags=re.DOTALL | re.MULTILINE
    )
    parts = _CODE.split(_INDENTED.sub(indented_by_four, markdown))
    for place in range(0, len(parts), 2):  # the others are code
        prose = re.sub(r"\$([^$\n]+)\$", lambda found: math(found[1]), parts[place])
        prose = _IMAGE.sub(lambda found: live(found, page) or found[0], prose)
        parts[place] = _LINK.sub(lambda found: f"]({site_link(found[1], uri)})", prose)
    return "".join(parts)


def indented_by_four(found: re.Match) -> str:
    """What stands inside an item of a list: two or three spaces are enough on a forge, Python-Markdown wants four."""
    return re.sub(f"^{found[1]}", "    ", found[0], flags=re.MULTILINE) if found[1] else found[0]


def pages_of(nav) -> list[str]:
    """The files of a navigation, of any depth."""
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [uri for item in items for uri in pages_of(item)]


def linked(uri: str, markdown: str) -> list[str]:
    """The files of the repository that a page links to."""
    prose = "".join(_CODE.split(markdown)[::2])
    return [target for link in _LINK.findall(prose) if (target := target_of(link, uri))]


def target_of(link: str, uri: str) -> str | None:
    """The file that a link leads to, from the root; a folder stands for its README.md."""
    path, _, _ = link.partition("#")
    if not path or "://" in link:
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(uri), path))
    if (ROOT / target / "README.md").exists():
        return f"{target}/README.md"
    return target if (ROOT / target).exists() else None


def site_link(link: str, uri: str) -> str:
    """A link as it is on the site."""
    target = target_of(link, uri)
    if target is None:
        return link
    if (ROOT / target).is_dir():
        target = f"{target}/index.md"
    elif target.endswith(".ipynb") and posixpath.basename(target) != link:  # beside its page it is the file itself
        target = target.replace(".ipynb", ".md")
    elif not target.endswith((".md", ".ipynb", *IMAGES)):
        target = f"{target}.md"
    heading = link.partition("#")[2]
    return posixpath.relpath(target, posixpath.dirname(uri) or ".") + (f"#{heading}" if heading else "")


def math(tex: str) -> str:
    """An equation in a line. Without the span, one at the beginning of a line would become a block."""
    return f"<span>{latex2mathml.converter.convert(tex)}</span>"


def block_of_math(tex: str) -> str:
    """An equation that stands alone. `aligned` is not known there, `align*` is the same."""
    tex = tex.replace("{aligned}", "{align*}")
    return f'<div class="math">{latex2mathml.converter.convert(tex, display="block")}</div>'


def figure(name: str) -> str:
    """Where on the site a figure is."""
    return f"figures/{name}.html"


def live(image: re.Match, page) -> str | None:
    """The figure in place of a picture, if there is a record of its weights."""
    name = pathlib.PurePosixPath(image[2]).stem
    if not (RECORDS / f"{name}.json").exists():
        return None
    url, title = get_relative_url(figure(name), page.url), html.escape(BESIDE.get(name, image[1]))
    frame = f'<iframe class="attention" src="{url}" title="{title}" loading="lazy"></iframe>'
    note = f'{title}. Point at a word, or <a href="{url}">open the figure alone</a>.'
    more = f"\n\n{image[0]}" if name in BESIDE else ""
    return f'<figure class="attention">{frame}<figcaption>{note}</figcaption></figure>{more}'


def read_notebook(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
    """A notebook with its outputs as Markdown, and its pictures by their names."""
    parts, pictures = [f"[This notebook as a file]({path.name})"], {path.name: path.read_bytes()}
    for number, cell in enumerate(nbformat.read(path, 4).cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{number}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What the cell draws]({name})")
            else:
                text = output.get("text", data.get("text/plain", ""))
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join([parts[1], parts[0], *parts[2:]]), pictures


def read_record(path: pathlib.Path) -> str:
    """The page of what `docs/layers/draw.py` has recorded."""
    record = json.loads(path.read_text(encoding="utf-8"))
    pictures = []
    for each in record["pictures"]:
        tokens, weights = (each["source_tokens"], each["target_tokens"]), np.array(each["weights"]) / 1000
        pictures.append(AttentionGrid(AttentionMaps("", *tokens, weights, each["layers"], each["heads"])))
    return to_html(pictures, f"Attention: {path.stem}", vmax=record["vmax"])
