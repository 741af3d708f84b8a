"""What the families of models have in common."""

import keras

from zoo.layers.checks import check_choice

_TIES = ("none", "target", "all")


class Family(keras.Model):
    """A functional model from ids to logits, whose constructor's arguments are its attributes and its configuration.

    Args:
        inputs: the graph's input, or a dict of them by their names.
        hidden: what its last product, that with the vocabulary, is made of: rows `(B, T, D)`.
        logits: its output `(B, T, V)`.
        config: the constructor's arguments but for `dtype`, `name` and `trainable`.
        dtype: the policy that all layers compute in.
        name: name of the model.
        trainable: whether training changes the weights.
    """

    def __init__(self, inputs, hidden, logits, config, dtype, name, trainable):
        super().__init__(inputs=inputs, outputs=logits, name=name, trainable=trainable)
        self.dtype_policy = dtype
        for key, value in config.items():
            setattr(self, key, value)
        self._config_names = tuple(config)
        self._hidden = hidden

    def without_logits(self):
        """The model but for its last product, with the same weights: what a loss that never holds all logits needs.

        Returns:
            A model of the same inputs; its outputs are the rows `(B, T, D)` that `output_weights` are multiplied with.
        """
        return keras.Model(self.input, self._hidden, name=f"{self.name}_without_logits")

    def get_config(self):
        """The constructor's arguments."""
        config = {name: getattr(self, name) for name in self._config_names}
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        return {**config, "dtype": dtype, "name": self.name, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The model that `get_config` describes, with new weights."""
        return cls(**config)


def check_ties(ties, source_vocabulary_size, target_vocabulary_size):
    """The name of which embeddings are tied to the output; raises `ValueError` if it is none, or cannot be."""
    check_choice("tied_embeddings", ties, _TIES)
    if ties == "all" and source_vocabulary_size != target_vocabulary_size:
        raise ValueError(
            "`tied_embeddings='all'` needs one vocabulary for both sides. Received: "
            f"source_vocabulary_size={source_vocabulary_size}, target_vocabulary_size={target_vocabulary_size}"
        )
    return ties
