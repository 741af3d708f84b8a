"""The base of layers that are called with inputs and a mask."""

from typing import Any

import keras


class MaskedLayer(keras.layers.Layer):
    """A layer that is called with inputs and a mask, which goes on with the outputs.

    Keras itself passes on only a mask that is given by name, as in `layer(x, mask=mask)`.
    """

    def __call__(self, inputs: Any, mask: Any = None, **kwargs: Any) -> Any:
        """As Keras' own, for `layer(x, mask)` too."""
        return super().__call__(inputs, **(kwargs if mask is None else {**kwargs, "mask": mask}))
