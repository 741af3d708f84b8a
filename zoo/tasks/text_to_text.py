"""The calls of a translator, alike for a Keras model and a SavedModel."""

from __future__ import annotations

import abc
import dataclasses
import numbers
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps
from zoo.tasks.exploring import Explorable
from zoo.tasks.protocol import check_texts, in_batches
from zoo.tasks.results import NextToken, Score, Tokens, Translation
from zoo.tasks.settings import lists_for_texts
from zoo.tasks.task import as_arrays, shown_tokens, strings, unpadded
from zoo.text.tokenizer import PADDING, SPECIAL_PIECES, START

_START = SPECIAL_PIECES[START]
_Function = Callable[..., dict[str, tf.Tensor]]


class TextToText(Explorable):
    """Translates texts, scores translations and shows what attended to what.

    A subclass gives functions of a `(B,)` string tensor `text`. This class does the rest: it takes lists of any
    length, makes batches, and restores the order.

    Of prefixes `(B,)`, such as "17 4", `_explore` gives

    - for `next`: `ids`, `tokens` and `probabilities` `(B, K)` of what may follow;
    - for `complete`: the translation `text` `(B,)` that begins so; its `ids`, `tokens` and `log_probabilities`
      `(B, T)`.
    """

    @abc.abstractmethod
    def _search(self, beam_size: int | None, length_penalty: float | None, n_best: int) -> _Function:
        """A function that gives `text` `(B, N)` and `score` `(B, N)` of each text, -inf where there are fewer."""

    @abc.abstractmethod
    def _score(self, text: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """`log_probability` `(B,)` of targets `(B,)` as the translations of texts, and `tokens` `(B,)`."""

    @abc.abstractmethod
    def fills_source(self, text: tf.Tensor) -> tf.Tensor:
        """Whether each text `(B,)` has as many tokens as the model reads, or more, booleans `(B,)`.

        Raises:
            ValueError: an export of an earlier version, which does not tell.
        """

    @abc.abstractmethod
    def _attend(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """`source_tokens` `(B, S)`, `target_tokens` `(B, T)` and `weights` `(B, T, S)` of each text."""

    @abc.abstractmethod
    def _attend_by_head(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """As `_attend`, with `weights` `(B, M, H, T, S)`, and `source_weights` `(B, N, H, S, S)`.

        Maybe also `target_weights` `(B, M, H, T, T)`.
        """

    def __call__(
        self,
        texts: Sequence[str],
        batch_size: int = 64,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> list[str]:
        """Translates texts.

        Args:
            texts: a list of strings, of any length.
            batch_size: how many are translated at once.
            beam_size: how many hypotheses are followed; 1 is greedy. None for the translator's own.
            length_penalty: how strongly long translations are favoured, see `zoo.decoding.beam_search`; without effect
                on a beam of 1. None for the translator's own.

        Returns:
            The translations, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, a number is out of its range, or another beam is asked of an
                exported model.
        """
        return [each.text for each in self.translate(texts, batch_size, beam_size, length_penalty)]

    def translate(
        self,
        texts: Sequence[str],
        batch_size: int = 64,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
    ) -> list[Translation]:
        """As a call, with the score of each text and its `n_best` best translations, at most `beam_size`.

        Raises:
            ValueError: as a call.
        """
        texts = check_texts(texts)
        search = self._search(beam_size, length_penalty, n_best)

        def translations(rows):
            found = as_arrays(search, [texts[row] for row in rows])
            for row, candidates, scores in zip(rows, found["text"], found["score"], strict=True):
                best, *others = (
                    Translation(texts[row], text.decode(), float(score))
                    for place, (text, score) in enumerate(zip(candidates, scores, strict=True))
                    if score != float("-inf") or not place  # a beam finds nothing if logits are NaN
                )
                yield dataclasses.replace(best, alternatives=tuple(others))

        return in_batches(texts, batch_size, translations)

    def score(self, texts: Sequence[str], targets: Sequence[str], batch_size: int = 64) -> list[Score]:
        """How likely given translations are.

        Args:
            texts: a list of strings.
            targets: a translation of each text.
            batch_size: how many are scored at once.

        Returns:
            A `Score` for each target. Of a target longer than `max_target_length`, only the beginning is scored.

        Raises:
            ValueError: not two lists of strings of the same length.
        """
        texts, targets = check_texts(texts), check_texts(targets)
        if len(texts) != len(targets):
            raise ValueError(f"`targets` must be as many as `texts`, {len(texts)}. Received: {len(targets)}")

        def scores(rows):
            scored = [targets[row] for row in rows]
            found = as_arrays(self._score, [texts[row] for row in rows], target=strings(scored))
            for target, log_probability, tokens in zip(scored, found["log_probability"], found["tokens"], strict=True):
                yield Score(target, float(log_probability), int(tokens))

        return in_batches(texts, batch_size, scores)

    def complete(
        self,
        texts: Sequence[str],
        prefixes: Sequence[Sequence[int]] | None = None,
        batch_size: int = 64,
        hidden: Sequence[Sequence[int]] | None = None,
        heads: Sequence[Sequence[str]] | None = None,
    ) -> list[Tokens]:
        """Translations that begin with given tokens.

        ```python
        (first,) = translator.complete(["Guten Tag!"])
        choices = translator.next_tokens(["Guten Tag!"], [first.ids[:2]])[0]    # in place of the third token
        translator.complete(["Guten Tag!"], [(*first.ids[:2], choices[1].id)])
        ```

        Args:
            texts: a list of strings.
            prefixes: the ids that each translation begins with; None for none. One ends before an id that a model may
                not write, and behind an end token.
            batch_size: how many are translated at once.
            hidden: for each text the positions of its tokens, from 0, that no token may attend to; None for none. A
                recurrent encoder does not read them either.
            heads: for each text the names of heads whose output is zero: kind of attention, layer and number, such as
                "encoder.1.3", "source.2.1" for the decoder's attention to the source, or "decoder.1.4"; None for none.

        Returns:
            The tokens of each translation with their probabilities, its end token included. Without a prefix it is what
            `translate` gives, unless the translator has a shortlist, which is not used here.

        Raises:
            ValueError: `texts` is not a list of strings, `prefixes`, `hidden` or `heads` does not hold a list for each
                text, the model takes no `hidden` or no `heads`, or has no such head. An exported model ignores a head
                that it lacks.
        """
        texts = check_texts(texts)
        written = {"prefix": _written(prefixes, len(texts)), **self._masks("complete", len(texts), hidden, heads)}

        def completed(rows):
            found = self._explored("complete", texts, rows, written)
            for text, ids, tokens, scores in zip(
                *(found[name] for name in ("text", "ids", "tokens", "log_probabilities")), strict=True
            ):
                pieces, number = tuple(unpadded(tokens)), int((ids != PADDING).sum())
                yield Tokens(pieces, tuple(scores[:number].tolist()), text.decode(), tuple(ids[:number].tolist()))

        return in_batches(texts, batch_size, completed)

    def next_tokens(
        self,
        texts: Sequence[str],
        prefixes: Sequence[Sequence[int]] | None = None,
        batch_size: int = 64,
        hidden: Sequence[Sequence[int]] | None = None,
        heads: Sequence[Sequence[str]] | None = None,
    ) -> list[list[NextToken]]:
        """The 20 most likely tokens behind the beginning of each translation, the most likely first.

        The arguments are those of `complete`.

        Raises:
            ValueError: as `complete`.
        """
        texts = check_texts(texts)
        written = {"prefix": _written(prefixes, len(texts)), **self._masks("next", len(texts), hidden, heads)}

        def candidates(rows):
            found = self._explored("next", texts, rows, written)
            for ids, tokens, probabilities in zip(found["ids"], found["tokens"], found["probabilities"], strict=True):
                of_row = zip(tokens, probabilities.tolist(), ids.tolist(), strict=True)
                yield [NextToken(token.decode(), probability, each) for token, probability, each in of_row]

        return in_batches(texts, batch_size, candidates)

    def attend(self, texts: Sequence[str], batch_size: int = 64) -> list[Alignment]:
        """What each output token attended to, for `zoo.pictures`.

        Where a model has several layers and heads, this is the mean of the last layer's heads.

        Args:
            texts: a list of strings.
            batch_size: how many are translated at once.

        Returns:
            An alignment for each text: the tokens of both sides and the weights `(T, S)` between them, without padding.

        Raises:
            ValueError: `texts` is not a list of strings, one is empty, or the model has no attention.
        """

        def alignment(text, source, target, weights):
            return Alignment(source, target, weights[: len(target), : len(source)], source_text=text)

        return self._drawn(self._attend, texts, batch_size, ("weights",), alignment)

    def attend_by_head(self, texts: Sequence[str], batch_size: int = 64) -> list[AttentionGrid]:
        """What each head of each layer attended to, for `zoo.pictures`.

        Args:
            texts: a list of strings.
            batch_size: how many are translated at once.

        Returns:
            A grid for each text: the attention to the source, then the encoder's self-attention, then the decoder's,
            which older exports do not give, without padding. Its `choose` selects layers and heads.

        Raises:
            ValueError: `texts` is not a list of strings, one is empty, or the model has no attention, or only one.
        """

        def grid(text, source, target, weights, source_weights, target_weights=None):
            s, t = len(source), len(target)
            kinds = [
                AttentionMaps("Attention to the source", source, target, weights[:, :, :t, :s]),
                AttentionMaps("Self-attention of the encoder", source, source, source_weights[:, :, :s, :s]),
            ]
            if target_weights is not None:
                read = [_START, *target[:-1]]  # what the decoder has read when it writes each token
                weights = target_weights[:, :, :t, :t]
                kinds.append(AttentionMaps("Self-attention of the decoder", read, target, weights))
            return AttentionGrid(*kinds, source_text=text)

        names = ("weights", "source_weights", "target_weights")
        return self._drawn(self._attend_by_head, texts, batch_size, names, grid)

    def _drawn(self, function: _Function, texts: Sequence[str], batch_size: int, names: Sequence[str], make) -> list:
        """What `make` gives for each text, its tokens and its rows of those named results that there are."""
        texts = check_texts(texts)

        def drawn(rows):
            found = as_arrays(function, [texts[row] for row in rows])
            columns = (found[name] for name in ("source_tokens", "target_tokens", *names) if name in found)
            for row, source, target, *weights in zip(rows, *columns, strict=True):
                yield make(texts[row], unpadded(source), shown_tokens(target, row), *weights)

        return in_batches(texts, batch_size, drawn)


def _written(prefixes: Iterable[Sequence[int]] | None, number: int) -> list[str]:
    """Lists of ids as the signatures take them: "17 4"."""
    rows = lists_for_texts("prefixes", prefixes, number, numbers.Integral, "lists of ids")
    return [" ".join(map(str, ids)) for ids in rows]
