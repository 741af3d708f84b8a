"""Draws the pictures of zoo/layers/README.md: attention weights of small language models, trained here and now.

The text is `pydoc_data.topics`, the language reference that ships inside every CPython: nothing is downloaded. The
drawn sentence, and every sentence that shares five words in a row with it, is kept out of the training. Another
version of Python has another text and so gives slightly different pictures.

The weights of each picture of attention also go into a file of JSON with its name. `docs/site/hooks.py` makes figures
of them, in which a reader can point at words.

    python docs/layers/draw.py --out docs/layers
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import pathlib
import re
import time
from pydoc_data.topics import topics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import zoo
from zoo import layers
from zoo.atomic import write_whole
from zoo.pictures import Alignment, AttentionMaps, to_png

SENTENCE = "the length of the tuple is the number of expressions in the list ."
PADDING, UNKNOWN, START = 0, 1, 2  # `UNKNOWN` is also what a hidden word is replaced by
SPECIAL = ["<pad>", "<unk>", "<s>"]
WORDS = 2000
WIDTH = 64
LENGTH = 40  # of the longest sequence, with the start
DPI = 110
ROOT = pathlib.Path(__file__).parents[2]


def main() -> None:
    """Trains, draws, and prints in numbers what the pictures show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent, help="folder for the PNGs")
    parser.add_argument("--effort", type=float, default=1.0, help="factor on the epochs; 0.1 for a quick try")
    parser.add_argument("--seed", type=int, default=1, help="of weights, dropout and what is held out")
    parser.add_argument("--only", nargs="*", choices=STAGES, default=STAGES, help="which pictures to draw")
    arguments = parser.parse_args()
    tf.config.experimental.enable_op_determinism()
    begin = time.perf_counter()
    text = Text(arguments.seed)
    words = sum(map(len, text.train))
    print(f"{len(text.train):,} sequences of {words:,} words to train on, {len(text.held_out):,} held out")
    for name in arguments.only:
        start = time.perf_counter()
        keras.utils.set_random_seed(arguments.seed)
        STAGES[name](text, arguments.out, arguments.effort)
        print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{time.perf_counter() - begin:.0f} s in all; the pictures are in {arguments.out}")


class Text:
    """Sequences of words and their ids, divided into those to train on and those held out."""

    def __init__(self, seed):
        self.sentence = SENTENCE.split()
        sequences = [words for words in sequences_of_words() if not share_words(words, self.sentence)]
        np.random.default_rng(seed).shuffle(sequences)
        self.held_out, self.train = sequences[:200], sequences[200:]
        counts = collections.Counter(word for words in self.train for word in words)
        self.words = SPECIAL + [word for word, _ in counts.most_common(WORDS)]
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def ids(self, sequences):
        """Rows of ids `(B, LENGTH)`, each after a start, padded at the end."""
        rows = np.zeros((len(sequences), LENGTH), "int32")
        for row, words in zip(rows, sequences, strict=True):
            row[: len(words) + 1] = [START, *(self._numbers.get(word, UNKNOWN) for word in words)]
        return rows

    def drawn(self):
        """The words of the sentence to draw, with the start, and their ids `(1, T)`."""
        return ["<s>", *self.sentence], self.ids([self.sentence])[:, : len(self.sentence) + 1]


def sequences_of_words():
    """The sentences of the reference in lower case, as lists of words and marks, each once, none longer than fits."""
    unique = {}
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            paragraph = re.sub(r"([^\w\s])\1{2,}", " ", paragraph.replace("’", "'"))  # rules of tables and titles
            for sentence in re.split(r"(?<=[.!?:])\s+(?=\W*[A-Z])", " ".join(paragraph.split())):
                words = re.findall(r"[a-z_]+|\d+|[^\sa-z_\d\"*`|+]", sentence.lower())
                for start in range(0, len(words), LENGTH - 1):
                    unique[tuple(words[start : start + LENGTH - 1])] = None
    return [list(words) for words in unique if len(words) > 3]


def share_words(words, others, run=5):
    """Whether both have this many consecutive words in common."""
    runs = {tuple(others[start : start + run]) for start in range(len(others) - run + 1)}
    return any(tuple(words[start : start + run]) in runs for start in range(len(words) - run + 1))


# ---------------------------------------------------------------------------------------------------------- training


def embedded(ids, text):
    """Words as vectors `(B, T, WIDTH)`; Keras passes the mask of the padding on."""
    initializer = keras.initializers.RandomNormal(stddev=0.3)
    return keras.layers.Embedding(len(text.words), WIDTH, initializer, mask_zero=True)(ids)


def read_out(x, text):
    """Scores of all words `(B, T, words)`."""
    x = x + layers.FeedForward(2 * WIDTH, "gelu", dropout=0.3)(keras.layers.LayerNormalization()(x))
    x = keras.layers.Dropout(0.3)(keras.layers.LayerNormalization()(x))
    return keras.layers.Dense(len(text.words))(x)


def fit(model, data, held_out, epochs, rate=3e-3, batch=32):
    """Trains with Adam, the rate falling to nothing in a cosine, and prints the share of words guessed."""
    epochs = max(1, round(epochs))
    steps = epochs * -(-len(data[0]) // batch)
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=rate, warmup_steps=steps // 20)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, weighted_metrics=["accuracy"])
    print(f"{model.name}: {model.count_params():,} weights, {epochs} epochs", flush=True)

    def note(epoch, logs):
        if (epoch + 1) % max(1, epochs // 4) == 0:
            print(f"  epoch {epoch + 1}: {logs['accuracy']:.1%} of the words right, "
                  f"{logs['val_accuracy']:.1%} of those held out", flush=True)  # fmt: skip

    ids, words, counts = data
    callback = keras.callbacks.LambdaCallback(on_epoch_end=note)
    model.fit(ids, words, batch, epochs, 0, [callback], validation_data=held_out, sample_weight=counts)


def next_word_data(sequences, text):
    """Inputs, the words that follow, and how much each counts: padding nothing."""
    ids = text.ids(sequences)
    return ids[:, :-1], ids[:, 1:], (ids[:, 1:] != PADDING).astype("float32")


def hidden_word_data(sequences, text, copies=1, share=0.2):
    """Inputs with some words hidden, the words, and how much each counts: those hidden one, all others nothing."""
    ids = np.concatenate([text.ids(sequences)] * copies)
    hidden = (np.random.default_rng(0).random(ids.shape) < share) & (ids > START)
    return np.where(hidden, UNKNOWN, ids), ids, hidden.astype("float32")


# ------------------------------------------------------------------------------------------------------------ stages


def draw_positions(text, out, effort):
    """The encoding matrix, and the product of a turned query and key over their distance."""
    encoding = np.array(layers.SinusoidalPositionalEncoding()(np.zeros((1, 60, 64), "float32"))[0])
    figure = Figure((7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(encoding.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    axes.set(xlabel="position", ylabel="feature", title="SinusoidalPositionalEncoding, width 64")
    figure.colorbar(image, label="added to the embedding")
    save(figure, out / "sinusoidal.png")

    # The same content at position 0 as a query and at each position as a key: what is left is the distance.
    content = np.random.default_rng(0).normal(size=(500, 1, 64)).astype("float32")
    figure = Figure((7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for wavelength, color in ((10_000, "black"), (500_000, "tab:orange")):
        turned = np.array(layers.RotaryEmbedding(wavelength)(np.repeat(content, 257, axis=1)))
        products = (turned[:, :1] * turned).sum(-1) / (content**2).sum(-1)
        mean, (low, high) = products.mean(0), np.quantile(products, [0.1, 0.9], axis=0)
        axes.plot(mean, color=color, label=f"max_wavelength {wavelength:,}: mean of 500")
        if wavelength == 10_000:
            axes.fill_between(range(257), low, high, color="0.8", linewidth=0, label="80% of the 500 lie here")
        print("  distance: product " + ", ".join(f"{d}: {mean[d]:.2f}" for d in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)))
    axes.set(xlabel="distance of query and key", ylabel="product, 1 at distance 0", xlim=(0, 256))
    axes.set_title("RotaryEmbedding, width 64: a query and a key of the same content")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, out / "rotary.png")

    # One word sixteen times over: only its position differs.
    x = np.repeat(np.random.default_rng(1).normal(size=(1, 1, 64)), 16, axis=1).astype("float32")
    of = {"no positions": x, "sinusoidal": np.array(layers.SinusoidalPositionalEncoding()(0.3 * x))}
    of["rotary"] = np.array(layers.RotaryEmbedding()(x[:, :, None]))[:, :, 0]
    attention = layers.DotProductAttention("scaled")
    weights = [np.array(attention(each, each, return_attention_scores=True)[1]) for each in of.values()]
    words = [f"word{place}" for place in range(16)]
    record(out / "rotary.json", [AttentionMaps("", words, words, np.array(weights), list(of), [""])], vmax=0.5)


def draw_dates(text, out, effort):
    """Stage 1: the released model of dates."""
    dates = zoo.load(ROOT / "saved_models" / "dates" / "1")
    pictures = dates.attend(["samedi 21 novembre 2026", "२१ नवंबर २०२६"])
    maps = [AttentionMaps("", p.source_tokens, p.target_tokens, p.weights[None, None], [""], [""]) for p in pictures]
    record(out / "attention_dates.json", maps)


def draw_root(text, out, effort):
    """Stage 2: what the root of the width does to the softmax, for random queries and keys."""
    maps = {}
    for score in ("dot", "scaled"):
        for width in (4, 64, 1024):
            query, value = np.random.default_rng(width).normal(size=(2, 1, 16, width)).astype("float32")
            _, found = layers.DotProductAttention(score)(query[:, :6], value, return_attention_scores=True)
            maps[f"{score}, width {width:,}"] = np.array(found)
    tokens = [f"key{n}" for n in range(1, 17)], [f"query{n}" for n in range(1, 7)]
    record(out / "root.json", [AttentionMaps("", *tokens, np.array(list(maps.values())), list(maps), [""])])
    random = np.random.default_rng(0)
    widths = [2**power for power in range(11)]
    figure = Figure((7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for score, color in (("dot", "tab:orange"), ("scaled", "black")):
        largest = []
        for width in widths:
            query, value = random.normal(size=(2, 500, 16, width)).astype("float32")
            _, weights = layers.DotProductAttention(score)(query[:, :1], value, return_attention_scores=True)
            largest.append(np.array(weights).max(-1).mean())
        axes.plot(widths, largest, color=color, marker="o", markersize=4, label=score)
        print(f"  {score}: " + ", ".join(f"{w}: {weight:.2f}" for w, weight in zip(widths, largest, strict=True)))
    axes.axhline(1 / 16, color="0.5", linestyle=":", label="all 16 the same")
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, widths)
    axes.set(xlabel="width of queries and keys", ylabel="largest of the 16 weights", ylim=(0, 1))
    axes.set_title("DotProductAttention: 16 random keys, mean over 500 queries")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, out / "root.png")


def draw_simple(text, out, effort):
    """Stage 3: no weights but the embeddings; trained to guess hidden words."""
    ids = keras.Input((None,), dtype="int32")
    context, weights = layers.SimpleSelfAttention()(embedded(ids, text), return_attention_scores=True)
    model = keras.Model(ids, keras.layers.Dense(len(text.words))(context), name="SimpleSelfAttention")
    data = (hidden_word_data(sequences, text, 4) for sequences in (text.train, text.held_out))
    fit(model, *data, epochs=4 * effort)
    words, row = text.drawn()
    weights = np.array(keras.Model(ids, weights)(row)[0])
    draw(out / "simple_self_attention.png", [Alignment(words, words, weights, title="SimpleSelfAttention")])


def draw_bidirectional(text, out, effort):
    """Stage 4: trained to guess hidden words. Row i is where the model looks when word i is the hidden one."""
    ids = keras.Input((None,), dtype="int32")
    x = layers.SinusoidalPositionalEncoding()(embedded(ids, text))
    x = keras.layers.Dropout(0.1)(x)
    context, weights = layers.SelfAttention(WIDTH)(x, return_attention_scores=True)
    model = keras.Model(ids, read_out(x + context, text), name="SelfAttention")
    data = (hidden_word_data(sequences, text, 5) for sequences in (text.train, text.held_out))
    fit(model, *data, epochs=6 * effort)
    words, row = text.drawn()
    places = np.arange(1, len(words))
    rows = np.repeat(row, len(places), axis=0)
    rows[places - 1, places] = UNKNOWN
    weights, logits = (np.array(each)[places - 1, places] for each in keras.Model(ids, [weights, model.output])(rows))
    for word, each in zip(words[1:], logits, strict=True):
        print(f"  hidden {word!r}: {guesses(each, text)}")
    title = "SelfAttention: the word at the left is hidden"
    draw(out / "self_attention.png", [Alignment(words, words[1:], weights, title=title)], vmax=0.5)


def draw_causal(text, out, effort):
    """Stage 5: trained to say the next word."""
    ids = keras.Input((None,), dtype="int32")
    initializer = keras.initializers.RandomNormal(stddev=0.3)  # as large as the embeddings of the words
    x = layers.LearnedPositionalEmbedding(LENGTH, initializer)(embedded(ids, text))
    x = keras.layers.Dropout(0.1)(x)
    context, weights = layers.CausalSelfAttention(WIDTH, dropout=0.1)(x, return_attention_scores=True)
    model = keras.Model(ids, read_out(x + context, text), name="CausalSelfAttention")
    fit(model, next_word_data(text.train, text), next_word_data(text.held_out, text), epochs=16 * effort)
    words, row = text.drawn()
    weights, logits = (np.array(each)[0] for each in keras.Model(ids, [weights, model.output])(row))
    for word, each in zip(words, logits, strict=True):
        print(f"  after {word!r}: {guesses(each, text)}")
    title = "CausalSelfAttention: guessing the next word"
    draw(out / "causal_self_attention.png", [Alignment(words, words, weights, title=title)], vmax=0.5)


def draw_heads(text, out, effort):
    """Stages 6 and 8: four heads in each of two layers; trained to say the next word."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Dropout(0.2)(embedded(ids, text))
    rotary = layers.RotaryEmbedding()
    maps = []
    for _ in range(2):
        layer = layers.TransformerDecoderLayer(
            num_heads=4,
            feed_forward_units=2 * WIDTH,
            dropout=0.2,
            attention_dropout=0.1,
            activation="gelu",
            norm_first=True,
            cross_attention=False,
            rotary_embedding=rotary,
        )
        x, weights = layer(x, return_attention_scores=True)
        maps.append(weights)
    logits = keras.layers.Dense(len(text.words))(keras.layers.LayerNormalization()(x))
    model = keras.Model(ids, logits, name="MultiHeadAttention")
    fit(model, next_word_data(text.train, text), next_word_data(text.held_out, text), epochs=16 * effort)
    heads = keras.Model(ids, maps)
    words, row = text.drawn()
    rows = text.ids([words for words in text.held_out if len(words) >= 12])[:, :13]
    for number, (drawn, others) in enumerate(zip(heads(row), heads(rows), strict=True), 1):
        alignments = []
        for head, (weights, each) in enumerate(zip(np.array(drawn)[0], np.swapaxes(others, 0, 1), strict=True), 1):
            title = f"layer {number}, head {head}"
            alignments.append(Alignment(words, words, weights, title=title))
            print(f"  {title}, 13th word of held-out texts: {habits(each)}")
        draw(out / f"heads_of_layer_{number}.png", alignments, columns=2)


def guesses(logits, text, number=3):
    """The most likely words and their probabilities."""
    logits = np.array(logits, "float64")
    logits[: START + 1] = -np.inf
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    return ", ".join(f"{text.words[word]} {shares[word]:.0%}" for word in np.argsort(-shares)[:number])


def habits(weights):
    """What the last word of each row attends to, on average; for weights `(B, T, T)`."""
    last = weights[:, -1].mean(0)
    shares = {
        "itself": last[-1],
        "one before": last[-2],
        "two before": last[-3],
        "three": last[-4],
        "the start": last[0],
    }
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


# ---------------------------------------------------------------------------------------------------------- pictures


def draw(path, alignments, columns=1, vmax=1.0):
    """Alignments as a PNG, and their weights as JSON: the heads of one layer, or the only map."""
    write_whole(path, to_png(alignments, columns, vmax, dpi=DPI))
    first, titles = alignments[0], [each.title for each in alignments]
    weights = np.array([[each.weights for each in alignments]])
    layer, heads = "", [""]
    if len(alignments) > 1:
        layer, heads = titles[0].split(", ")[0], [title.split(", ")[1] for title in titles]
    maps = AttentionMaps("", first.source_tokens, first.target_tokens, weights, [layer], heads)
    record(path.with_suffix(".json"), [maps], vmax)
    print(f"  {path.name}: {path.stat().st_size / 1024:.0f} KB", flush=True)
    for alignment in alignments:
        print(np.array2string(alignment.weights, precision=2, suppress_small=True, max_line_width=150))


def record(path, pictures, vmax=1.0):
    """Weights in thousandths, which `docs/site/hooks.py` reads."""
    names = ("source_tokens", "target_tokens", "layers", "heads")
    content = [
        {name: getattr(maps, name) for name in names} | {"weights": np.rint(1000 * maps.weights).astype(int).tolist()}
        for maps in pictures
    ]
    content = json.dumps({"vmax": vmax, "pictures": content}, ensure_ascii=False, separators=(",", ":"))
    write_whole(path, f"{content}\n".encode())
    print(f"  {path.name}: {path.stat().st_size / 1024:.0f} KB", flush=True)


def save(figure, path):
    """A figure as a PNG."""
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI)
    write_whole(path, buffer.getvalue())
    print(f"  {path.name}: {path.stat().st_size / 1024:.0f} KB", flush=True)


STAGES = {
    "dates": draw_dates,
    "root": draw_root,
    "positions": draw_positions,
    "simple": draw_simple,
    "bidirectional": draw_bidirectional,
    "causal": draw_causal,
    "heads": draw_heads,
}


if __name__ == "__main__":
    main()
