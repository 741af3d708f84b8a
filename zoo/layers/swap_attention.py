"""Keras' attention layers exchanged for the zoo's in a model that is there already."""

import keras

from zoo.layers.multi_head_attention import MultiHeadAttention


def swap_attention(model):
    """The same model with the zoo's `MultiHeadAttention` in the place of Keras', weights included.

    `keras.layers.MultiHeadAttention` and `keras.layers.GroupQueryAttention` are exchanged, inside nested functional
    and sequential models too. The new model computes what the old one did, but for queries with nothing to attend to;
    see `MultiHeadAttention`. It is compiled if the old one is, with the same loss, metrics and settings of
    the optimizer, whose own state begins anew.

    Args:
        model: a functional or sequential `keras.Model`, for instance from `keras.models.load_model`.

    Returns:
        A new model; the old one stays as it is.

    Raises:
        ValueError: a subclassed model, which Keras cannot clone.

    Example:
        >>> x = keras.Input((None, 16))
        >>> theirs = keras.Model(x, keras.layers.MultiHeadAttention(2, 8)(x, x))
        >>> ours = swap_attention(theirs)
        >>> type(ours.layers[-1]).__module__
        'zoo.layers.multi_head_attention'
    """
    new = keras.models.clone_model(model, clone_function=_exchanged, recursive=True)
    new.set_weights(model.get_weights())
    return new


def _exchanged(layer):
    config = layer.get_config()
    if isinstance(layer, keras.layers.MultiHeadAttention):
        return MultiHeadAttention.from_config(config)
    if isinstance(layer, keras.layers.GroupQueryAttention):
        config["num_heads"], config["key_dim"] = config.pop("num_query_heads"), config.pop("head_dim")
        return MultiHeadAttention.from_config(config)
    return layer.__class__.from_config(config)
