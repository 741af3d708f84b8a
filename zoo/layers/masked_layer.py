"""The base of layers that take inputs and a mask, and pass the mask on."""

from typing import Any

from keras import ops

from zoo.layers.outer_layer import OuterLayer


class MaskedLayer(OuterLayer):
    """A layer of inputs and a mask. The outputs carry the mask, however it is given.

    Keras itself passes on only a mask that is given by name, as in `layer(x, mask=mask)`.
    """

    def __call__(self, inputs: Any, mask: Any = None, **kwargs: Any) -> Any:
        """As Keras' own, for `layer(x, mask)` too, and for a mask that is a list of rows."""
        mask = ops.convert_to_tensor(mask) if isinstance(mask, list | tuple) else mask
        return super().__call__(inputs, **(kwargs if mask is None else {**kwargs, "mask": mask}))
