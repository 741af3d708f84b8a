"""Pictures of attention: the alignment heat map of Bahdanau et al. (2014), figure 3, readable in every script.

`AttentionGrid` is a heat map for every layer and head of a model; `Alignment` is one alone.

`to_html` draws a page: the explorer of `zoo serve` with the answer inside, which shows what each token attends to.
`to_svg` draws one picture. `figure` and `to_png` draw for papers; only these two need Matplotlib. All have the layout
and the colours that `explorer.html` defines, see `drawing.py`. `save` writes a file; its suffix chooses the kind.

```python
from zoo.pictures import Alignment, save

save(Alignment(source_tokens, target_tokens, weights), "pictures/date.html")
```
"""

from zoo.pictures.alignment import Alignment, AttentionGrid, AttentionMaps
from zoo.pictures.page import to_html
from zoo.pictures.png import figure, to_png
from zoo.pictures.saving import save
from zoo.pictures.svg import to_svg

__all__ = ["Alignment", "AttentionGrid", "AttentionMaps", "figure", "save", "to_html", "to_png", "to_svg"]
