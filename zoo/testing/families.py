"""A test suite for a family of models: what decoding, tasks and the export rely on."""

import inspect
import json
import pathlib
import tempfile
import unittest
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import zoo
from zoo.decoding import beam_search, greedy
from zoo.layers.functions import forward_only
from zoo.testing.tasks import eagerly
from zoo.text.tokenizer import FIRST


class FamilyTests:
    """Tests that a model keeps the contract of a family, see `docs/adding_a_family.md`.

    Subclass it and say how to make a small model. The tests give it random weights, none of them zero, so that a
    forgotten bias shows. A model with the inputs `source` and `target` is tested as a translator, one with a single
    input as a language model. Optional parts of the contract are skipped where the model has none.

        class TestMine(zoo.testing.FamilyTests):
            def make_model(self):
                return Mine(source_vocabulary_size=11, target_vocabulary_size=9, units=6)

    Axes: B batch, S source length, T target length, K hypotheses, V vocabulary.

    Attributes:
        source: ids `(B, S)` of sources or prompts, 0 for padding behind them, one row without any token.
        target: ids `(B, T)` of previous target tokens, or of what follows each prompt, without padding.
        weight_scale: standard deviation of the random weights.
        without_gradient: endings of the paths of weights that the logits do not depend on, such as "key/bias": it
            adds the same to all scores of a row, which softmax ignores.
    """

    source = np.array([[4, 5, 6, 7, 3], [8, 3, 0, 0, 0], [0, 0, 0, 0, 0], [5, 8, 3, 0, 0]], "int32")
    target = np.array([[2, 4, 5], [2, 6, 7], [2, 4, 4], [2, 8, 6]], "int32")
    weight_scale = 0.5
    without_gradient: tuple[str, ...] = ()

    def make_model(self) -> keras.Model:
        """A new model, small, without dropout. Its vocabularies hold the ids of `source` and `target`."""
        raise NotImplementedError("Say how to make the model: override `make_model`, or set `model`.")

    def tokenizers(self) -> list[Any]:
        """The tokenizers of an export, of the sizes that the model's vocabularies have: source and target, or one."""
        names = ("source_vocabulary_size", "target_vocabulary_size") if self._translates() else ("vocabulary_size",)
        sizes = [getattr(self.model, name) - FIRST for name in names]  # the ids before are special
        return [zoo.text.CharacterTokenizer("".join(chr(ord("a") + i) for i in range(size))) for size in sizes]

    @property
    def model(self) -> keras.Model:
        """The model under test, made once for a class; tests leave it as it is."""
        suite: Any = type(self)
        if "_model" not in vars(suite):
            suite._model = self.randomize(self.make_model())
        return suite._model

    def randomize(self, model: keras.Model) -> keras.Model:
        """Gives the model random weights, and returns it."""
        random = np.random.default_rng(0)
        model.set_weights([random.normal(0, self.weight_scale, w.shape).astype("float32") for w in model.weights])
        return model

    # How the tests call a model.

    def _translates(self):
        return isinstance(self.model.input, dict)

    def _inputs(self, source, target):
        """A translator's source and target, or a language model's prompts with what follows them, padded behind."""
        if self._translates():
            return {"source": source, "target": target}
        rows = [np.concatenate([row[row != 0], more]) for row, more in zip(source, target, strict=True)]
        return np.stack([np.pad(row, (0, max(map(len, rows)) - len(row))) for row in rows])  # (B, S + T)

    def _at_once(self, model, source, target):
        """The logits `(B, T, V)` at the target, of one call for all rows."""
        inputs = self._inputs(source, target)
        logits = np.array(model(inputs))
        if self._translates():
            return logits
        ends = [np.count_nonzero(row) for row in source]  # each row's target stands behind its own prompt
        return np.stack([row[end : end + target.shape[1]] for row, end in zip(logits, ends, strict=True)])

    def _alone(self, model, source, target):
        """The logits `(B, T, V)` at the target, each row on its own and without padding."""
        logits = []
        for row, more in zip(source, target, strict=True):
            tokens = row[row != 0] if row.any() else row[:1]  # a recurrent loop takes no source of length 0
            logits.append(np.array(model(self._inputs(tokens[None], more[None])))[0, -len(more) :])  # (T, V)
        return np.stack(logits)

    def _stepped(self, model, source, target):
        """The logits `(B, T, V)` of single steps, and the attention weights of each."""
        memory, cache = model.begin(source)
        logits, weights = [], []
        for position in range(target.shape[1]):
            step = model.step(target[:, position : position + 1], position, memory, cache)
            cache = step[1]
            logits.append(np.array(step[0])[:, 0])
            weights.append(step[2])
        return np.stack(logits, 1), weights

    def _copy(self, **changes):
        model = type(self.model).from_config({**self.model.get_config(), **changes})
        model.set_weights(self.model.get_weights())
        return model

    @staticmethod
    def _equal(result, expected, precision=2e-5):
        """Equal up to rounding: `precision` is a share of the largest expected number, or of 1."""
        result, expected = np.array(result), np.array(expected)
        assert result.shape == expected.shape, f"shape {result.shape}, expected {expected.shape}"
        assert np.isfinite(result).all(), "not all numbers are finite"
        error, scale = np.abs(result - expected).max(initial=0), max(1, np.abs(expected).max(initial=0))
        assert error <= precision * scale, f"off by {error}, of at most {scale}"

    # What it computes.

    def test_it_gives_logits_in_float32_of_any_batch_and_length(self):
        """Ids in, one tensor `(B, T, V)` out; eagerly and in a graph of unknown sizes; finite in empty rows too."""
        inputs = self._inputs(self.source, self.target)
        logits = self.model(inputs)
        assert logits.dtype == "float32", f"logits are {logits.dtype}"
        assert logits.shape[:2] == keras.tree.flatten(inputs)[-1].shape
        assert np.isfinite(logits).all(), "not all logits are finite"
        specs = keras.tree.map_structure(lambda array: tf.TensorSpec([None, None], tf.int32), inputs)
        in_a_graph = tf.function(self.model, input_signature=[specs], autograph=False)
        with forward_only(16):  # as tasks trace it
            self._equal(in_a_graph(inputs), logits)

    def test_rows_and_padding_change_nothing(self):
        """Each row gets the same result as alone, with any amount of padding behind it."""
        alone = self._alone(self.model, self.source, self.target)
        padded = np.pad(self.source, [(0, 0), (0, 2)]), np.pad(self.target, [(0, 0), (0, 1)])
        for source, target in ((self.source, self.target), padded):
            logits = self._at_once(self.model, source, target)
            self._equal(logits[:, : self.target.shape[1]], alone)

    def test_a_token_changes_nothing_before_it(self):
        """Causality: logits at position i depend on tokens up to i, and on that one."""
        length = self.target.shape[1]
        target = np.tile(self.target[:1], [1 + length, 1])
        np.fill_diagonal(target[1:], 3)  # in each row but the first another token is changed
        before, *after = self._at_once(self.model, np.tile(self.source[:1], [1 + length, 1]), target)
        for position, logits in enumerate(after):
            self._equal(logits[:position], before[:position])
            assert np.abs(logits - before)[position].max() > 1e-4, f"token {position} is ignored"

    def test_every_source_token_matters_to_its_row(self):
        """Changing any token of a source changes the logits."""
        if not self._translates():
            raise unittest.SkipTest("a language model has no source")
        length = self.source.shape[1]
        source = np.tile(self.source[:1], [1 + length, 1])
        np.fill_diagonal(source[1:], 2)  # in each row but the first another token is changed
        before, *after = self._at_once(self.model, source, np.tile(self.target[:1], [1 + length, 1]))
        for position, logits in enumerate(after):
            assert np.abs(logits - before).max() > 1e-4, f"source token {position} is ignored"

    # Decoding.

    def test_steps_give_the_one_shot_pass(self):
        """`begin` and `step` give the same as one call with all tokens, with any padding."""
        expected = self._at_once(self.model, self.source, self.target)
        for source in (self.source, np.pad(self.source, [(0, 0), (0, 2)])):
            logits, _ = self._stepped(self.model, source, self.target)
            self._equal(logits, expected)

    def test_hypotheses_are_independent_and_can_be_reordered(self):
        """Each of K hypotheses of a row gives what one call gives, also after a search has reordered the caches."""
        first = np.stack([self.target[:, 0], self.target[:, 1]], 1)  # (B, K)
        second = np.stack([self.target[:, 2], self.target[:, 1]], 1)
        memory, cache = self.model.begin(self.source)
        for array in keras.tree.flatten(memory):
            assert array.shape[0] == len(self.source), "memory must have the rows as its first axis"
        cache = keras.tree.map_structure(lambda array: np.repeat(array, 2, axis=1), cache)
        one, cache, _ = self.model.step(first, 0, memory, cache)
        cache = keras.tree.map_structure(lambda array: np.array(array)[:, ::-1], cache)  # K exchanged
        two, _, _ = self.model.step(second, 1, memory, cache)
        for k in range(2):
            history = np.stack([first[:, 1 - k], second[:, k]], 1)
            expected = self._at_once(self.model, self.source, history)
            self._equal(np.stack([np.array(one)[:, 1 - k], np.array(two)[:, k]], 1), expected)

    def test_it_decodes_in_a_graph_of_unknown_sizes(self):
        """`greedy` and `beam_search` trace it, and a row's ids do not depend on the batch."""

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
        def decode(source):
            limits = tf.fill([tf.shape(source)[0]], 4)
            with forward_only(16):
                return greedy(self.model, source, limits).ids, beam_search(self.model, source, limits, 2).ids[:, 0]

        batched = [np.array(ids) for ids in decode(self.source)]
        for row, source in enumerate(self.source):
            alone = source[source != 0] if source.any() else source[:1]
            for ids, single in zip(batched, decode(alone[None]), strict=True):
                expected = np.array(single)[0]
                np.testing.assert_array_equal(ids[row][ids[row] != 0], expected[expected != 0])

    def test_attention_weights_of_a_step(self):
        """Weights `(B, K, S)` that sum to 1 over the source's tokens, and are 0 at padding; None without attention."""
        _, weights = self._stepped(self.model, self.source, self.target)
        if not getattr(self.model, "has_attention", False):
            assert all(array is None for array in weights), "`step` returns weights: set `has_attention`"
            raise unittest.SkipTest("the model has no attention to a source")
        for array in weights:
            assert array.shape == (len(self.source), 1, self.source.shape[1])
            assert not np.array(array)[:, 0][self.source == 0].any(), "padding is attended to"
            self._equal(np.sum(array, -1)[:, 0], self.source.any(1))

    def test_attention_maps(self):
        """Weights `(B, layers, H, T, S)` of rows that sum to 1, never of padding or of a later token."""
        if not hasattr(self.model, "attention_maps"):
            raise unittest.SkipTest("the model has no `attention_maps`")
        if self._translates():
            maps = [np.array(each) for each in self.model.attention_maps(self.source, self.target)]
            lengths = self.target.shape[1], self.source.shape[1]
            assert [each.shape[3:] for each in maps] == [lengths, 2 * lengths[1:], 2 * lengths[:1]][: len(maps)]
            for past in maps[2:]:
                assert not np.triu(past, 1).any(), "a later token is attended to"
                self._equal(past.sum(-1), np.ones(past.shape[:-1]))
            for each in maps[:2]:
                padding = np.broadcast_to((self.source == 0)[:, None, None, None], each.shape)
                assert not each[padding].any(), "padding is attended to"
                sums = np.broadcast_to(self.source.any(1)[:, None, None, None], each.shape[:-1])
                self._equal(each.sum(-1), sums)
            changed = self.target.copy()
            changed[:, -1] = 3
            self._equal(np.array(self.model.attention_maps(self.source, changed)[0])[..., :-1, :], maps[0][..., :-1, :])
        else:
            maps = np.array(self.model.attention_maps(self.source))
            assert maps.shape[3:] == 2 * self.source.shape[1:]
            assert not np.triu(maps, 1).any(), "a later token is attended to"
            self._equal(maps[0].sum(-1), np.ones(maps[0].shape[:-1]))

    # Training.

    def test_gradients_reach_every_weight(self):
        """They are finite, with padding and an empty row in the batch, and no weight is left out."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.model(self._inputs(self.source, self.target)) ** 2)
        weights = self.model.trainable_weights
        assert weights, "the model has no trainable weights"
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            assert gradient is not None, f"{weight.path} gets no gradient"
            gradient = np.array(tf.convert_to_tensor(gradient))
            assert np.isfinite(gradient).all(), f"{weight.path} gets a gradient that is not finite"
            if not weight.path.endswith(self.without_gradient or "\0"):
                assert np.abs(gradient).max() > 1e-4, f"{weight.path} gets a gradient of zeros"

    def test_it_learns(self):
        """`fit` lowers the loss, of a batch with padding."""
        model = self._copy()
        inputs = self._inputs(self.source, self.target)
        labels = np.roll(keras.tree.flatten(inputs)[-1], -1, axis=1)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
        model.optimizer.build(model.trainable_variables)  # otherwise the first step is traced twice
        losses = model.fit(inputs, labels, epochs=8, verbose=0).history["loss"]
        assert losses[-1] < losses[0] - 1e-3, f"losses {losses}"

    def test_the_last_product_can_be_taken_off(self):
        """`without_logits` and `output_weights` together give the logits."""
        if not hasattr(self.model, "without_logits"):
            raise unittest.SkipTest("the model has no `without_logits`")
        inputs = self._inputs(self.source, self.target)
        weights, bias = self.model.output_weights()  # (V, D), (V,)
        logits = np.einsum("btd,vd->btv", self.model.without_logits()(inputs), weights)
        self._equal(logits + (0 if bias is None else np.array(bias)), self.model(inputs))

    # Keeping.

    def test_its_configuration_makes_it_again(self):
        """Every argument of the constructor is an attribute and in `get_config`, which JSON can hold."""
        model, config = self.model, self.model.get_config()
        arguments = list(inspect.signature(type(model).__init__).parameters.values())[1:]
        named = {each.name for each in arguments if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
        assert named <= config.keys(), f"`get_config` leaves out {sorted(named - config.keys())}"
        assert all(hasattr(model, name) for name in named)
        again = type(model).from_config(json.loads(json.dumps(config)))
        assert again.get_config() == config
        again.set_weights(model.get_weights())
        inputs = self._inputs(self.source, self.target)
        self._equal(again(inputs), model(inputs))

    def test_a_saved_model_is_loaded_as_it_was(self):
        """A `.keras` file gives the same class, numbers and steps."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.keras"
            self.model.save(path)
            loaded = keras.models.load_model(path)
        assert type(loaded) is type(self.model)
        assert loaded.get_config() == self.model.get_config()
        inputs = self._inputs(self.source, self.target)
        self._equal(loaded(inputs), self.model(inputs))
        stepped, _ = self._stepped(loaded, self.source, self.target)
        self._equal(stepped, self._at_once(loaded, self.source, self.target))

    def test_lower_precision(self):
        """With the dtype policy "mixed_bfloat16" logits stay float32 and nearly the same, stepped or not."""
        if "dtype" not in inspect.signature(type(self.model).__init__).parameters:
            raise unittest.SkipTest("the model has no argument `dtype`")
        model, inputs = self._copy(dtype="mixed_bfloat16"), self._inputs(self.source, self.target)
        logits = model(inputs)
        assert logits.dtype == "float32", f"logits are {logits.dtype}"
        self._equal(logits, self.model(inputs), precision=32 * 2**-8)  # 32 roundings to bfloat16
        stepped, _ = self._stepped(model, self.source, self.target)
        self._equal(stepped, self._at_once(model, self.source, self.target), precision=8 * 2**-8)

    def test_an_export_says_the_same(self):
        """Exported with tokenizers and loaded again, it gives the same texts; the servable has no finding."""
        tokenizers, settings = self.tokenizers(), {}
        if self._translates():
            task = zoo.Translator(self.model, *tokenizers, max_target_length=6, beam_size=2)
        else:
            length = {} if hasattr(self.model, "context_length") else {"context_length": 12}
            task, settings = zoo.TextGenerator(self.model, *tokenizers, **length), {"seed": 1, "max_new_tokens": 6}
        texts = ["abc", "", "b", "ba"]
        with eagerly():
            expected = task(texts, **settings)
        assert len(set(expected)) > 1, "all answers are alike: set another `weight_scale`"
        with tempfile.TemporaryDirectory() as folder:
            version = zoo.serving.export(task, pathlib.Path(folder) / "exported")
            findings = zoo.serving.check(version)
            assert not findings, f"the servable has findings: {findings}"
            answers = zoo.load(version)(texts, **settings)
        assert answers == expected, f"the export says {answers}, expected {expected}"
