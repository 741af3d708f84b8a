"""Pictures of attention: the alignment heat map of Bahdanau et al. (2014), figure 3, readable in every script.

`Alignment` is one heat map. `AttentionGrid` is a small heat map for every layer and head of a model.

`to_html` draws a page, in which the browser chooses the fonts and shapes the text. `to_svg` draws one picture. `figure`
and `to_png` draw for papers; only these two need Matplotlib. `save` writes a file; its suffix chooses the kind.

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
