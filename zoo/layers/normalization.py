"""The normalisations of transformer layers."""

import keras

NORMALIZATIONS = {"layer": keras.layers.LayerNormalization, "rms": keras.layers.RMSNormalization}


def make_normalization(kind, epsilon, **kwargs):
    """Keras' layer for "layer" (Ba et al. 2016) or "rms" (Zhang and Sennrich 2019)."""
    layer = NORMALIZATIONS[kind](epsilon=epsilon, **kwargs)
    layer.supports_masking = True  # Keras sets it for one of the two, though both work per position
    return layer
