"""Pictures of attention: the alignment heat map of Bahdanau et al. (2014), figure 3, readable in every script.

`to_html` draws for reading: the browser chooses the fonts and shapes the text; `to_svg` draws one picture alone.
`figure` and `to_png` draw for papers, with Matplotlib, which nothing else here needs. `save` writes a file, and chooses
by its suffix.

`AttentionGrid` is many small ones: every layer and head of a model at once.

```python
from zoo.pictures import Alignment, save

save(Alignment(source_tokens, target_tokens, weights), "pictures/date.html")
```
"""

from zoo.pictures.alignment import Alignment
from zoo.pictures.grid import AttentionGrid, AttentionMaps
from zoo.pictures.page import to_html
from zoo.pictures.png import figure, to_png
from zoo.pictures.saving import save
from zoo.pictures.svg import to_svg

__all__ = ["Alignment", "AttentionGrid", "AttentionMaps", "figure", "save", "to_html", "to_png", "to_svg"]
