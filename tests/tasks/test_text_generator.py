"""A language model that speaks text: the suite of all tasks; settings, long texts, streams and exports."""

import itertools
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo.models import GPT
from zoo.tasks.protocol import Generation
from zoo.tasks.text_generator import TextGenerator, whole_text
from zoo.testing import TaskTests
from zoo.text import BytePairTokenizer, CharacterTokenizer

CHARACTERS = CharacterTokenizer("abcdefgh .\nß中")
PIECES = BytePairTokenizer.learn(["abc abd fgh ß中 gh gh"] * 5, 275)
MODERN = dict(positions="rotary", normalization="rms", activation="swiglu", use_bias=False)
SIZES = dict(units=12, num_heads=3, num_layers=2, context_length=24)
PROMPTS = ["abc. de", "", "h", "gh gh gh abc", "ßa", "中"]


@pytest.fixture(scope="module", params=["characters", "pieces"])
def generator(request, randomize):
    tokenizer, kind = {"characters": (CHARACTERS, {}), "pieces": (PIECES, MODERN)}[request.param]
    return TextGenerator(randomize(GPT(tokenizer.size, **SIZES, **kind), scale=0.4), tokenizer)


@pytest.fixture(scope="module")
def of_characters(randomize):
    return TextGenerator(randomize(GPT(CHARACTERS.size, **SIZES), scale=0.4), CHARACTERS)


LONG = "abc. dehg \n中ß" * 3  # of a context of 24


def built(tokenizer=CHARACTERS, seed=0, **arguments):
    model = GPT(tokenizer.size, **SIZES, **({} if tokenizer is CHARACTERS else MODERN))
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(0, 0.4, weight.shape) for weight in model.weights])
    return TextGenerator(model, tokenizer, **arguments)


class TestTask(TaskTests):
    texts = ("abc. de", "", "h", LONG, "ßa", "gh gh gh abc")

    def make_task(self):
        return built(stride=7)

    def calls(self):
        """The seed is one for all texts, which alone and together then have the same."""

        def generate(task, texts, **options):
            texts = list(texts) if not isinstance(texts, (str, type(None))) else texts
            seeds = [5] * len(texts or ())
            return task.generate(texts, max_new_tokens=30, temperature=1.5, seed=seeds or 5, **options)

        def attend(task, texts, **options):
            if not isinstance(texts, (str, type(None))):
                texts = [text[:9] if isinstance(text, str) else text for text in texts]
            return task.attend(texts, **options)

        return {
            "generate": generate,
            "score": lambda task, texts, **options: task.score(texts, **options),
            "attend": attend,
        }


def previous_and_next(generator, text, following=""):
    ids = [int(i) for i in generator.tokenizer.tokenize([text]).numpy()[0] if i]
    more = [int(i) for i in generator.tokenizer.tokenize([following]).numpy()[0] if i]
    return [2, *ids], more


def log_softmax(logits):
    logits = np.array(logits, "float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


# How texts go on.


def test_the_likeliest_text_by_the_whole_model(of_characters):
    """Greedy, one token at a time, with everything read anew."""
    for prompt, found in zip(PROMPTS, of_characters.generate(PROMPTS, 6, temperature=0), strict=True):
        ids, _ = previous_and_next(of_characters, prompt)
        text, score, tokens = "", 0.0, 0
        for _ in range(6):
            scores = log_softmax(of_characters.model(np.array([ids])))[0, -1]
            token = 3 + int(scores[3:].argmax())
            ids.append(token)
            score, tokens = score + scores[token], tokens + 1
            if token == 3:
                break
            text += CHARACTERS.detokenize([[token]]).numpy()[0].decode()
        assert (found.prompt, found.text, found.tokens) == (prompt, text, tokens)
        assert abs(found.log_probability - score) < 1e-4


SETTINGS = {
    "max_new_tokens": [5, 9, 0, 7, 8, 3],
    "temperature": [1.0, 0.7, 1.0, 2.0, 0.0, 1.0],
    "top_k": [0, 3, 0, 0, 0, 1],
    "top_p": [1.0, 1.0, 0.5, 0.9, 1.0, 1.0],
    "repetition_penalty": [1.0, 1.5, 1.0, 1.0, 1.1, 1.0],
    "seed": [5, 4, 3, 2, 1, -7],
}


def test_a_text_goes_on_as_it_would_alone(generator):
    together = generator.generate(PROMPTS, **SETTINGS, stop=["ab", "\n"], batch_size=4)
    for row, prompt in enumerate(PROMPTS):
        settings = {name: values[row] for name, values in SETTINGS.items()}
        (alone,) = generator.generate([prompt], **settings, stop=["ab", "\n"])
        assert (alone.prompt, alone.text, alone.tokens) == (prompt, together[row].text, together[row].tokens)
        assert abs(alone.log_probability - together[row].log_probability) < 1e-4
    assert together[2] == Generation("h", "", 0.0, 0)


def test_seeds(generator):
    same = generator(["a"] * 3, max_new_tokens=12, seed=[3, 3, 3])
    assert len(set(same)) == 1
    counted = generator(["a"] * 3, max_new_tokens=12, seed=2)
    assert len(set(counted)) == 3 and counted[1] == same[0]
    assert len({generator(["a"], max_new_tokens=12)[0] for _ in range(4)}) > 1  # another each time, if not told


def test_a_stop_string_ends_the_text_before_it(of_characters):
    texts = of_characters(["abc"] * 60, max_new_tokens=23, seed=1)
    stopped = of_characters(["abc"] * 60, max_new_tokens=23, seed=1, stop=["a", "h."])
    expected = [min((text.split(stop)[0] for stop in ("a", "h.")), key=len) for text in texts]
    assert stopped == expected
    assert texts != expected


@pytest.mark.parametrize("add_start", [True, False])
def test_a_text_goes_on_beyond_the_context(of_characters, add_start):
    """By hand: what is read starts over from the last half of the context, and prompts may be longer than it."""
    generator = TextGenerator(of_characters.model, CHARACTERS, 10, add_start=add_start)
    for prompt in ("ab", LONG, ""):
        ids, more = previous_and_next(generator, "", prompt)
        window, new = [*ids, *more] if add_start or not more else more, []
        while len(new) < 24:
            window = window if len(window) <= 10 else window[-5:]
            scores = log_softmax(generator.model(np.array([window])))[0, -1]
            new.append(3 + int(scores[3:].argmax()))
            if new[-1] == 3:
                break
            window.append(new[-1])
        (found,) = generator.generate([prompt], 24, temperature=0)
        assert (found.text, found.tokens) == (CHARACTERS.detokenize([new]).numpy()[0].decode(), len(new))


def test_broken_pieces_are_readable_text(randomize):
    generator = TextGenerator(randomize(GPT(PIECES.size, **SIZES), scale=0.1), PIECES)
    texts = generator(["ß"] * 50, max_new_tokens=20, temperature=5.0, seed=0)
    assert any("\ufffd" in text for text in texts)


# How likely texts are.


@pytest.mark.parametrize("text", ["abc. de", "", "h", "ßab", "gh gh abc"])
def test_scores_are_the_whole_models(generator, text):
    (score,) = generator.score([text])
    _, ids = previous_and_next(generator, "", text)
    scores = log_softmax(generator.model(np.array([[2, *ids]])))[0]
    expected = sum(scores[place, token] for place, token in enumerate(ids))
    assert (score.text, score.tokens) == (text, len(ids))
    assert abs(score.log_probability - expected) < 1e-4
    assert abs(score.perplexity - math.exp(-expected / max(len(ids), 1))) < 1e-2


@pytest.mark.parametrize("stride", [None, 5, 24])
def test_a_long_text_is_scored_in_windows(of_characters, stride):
    """Against windows that are scored one by one, without a start token behind the first."""
    text, context, step = LONG * 2, 24, stride or 12
    _, ids = previous_and_next(of_characters, "", text)
    read, expected, counted = [2, *ids[:-1]], 0.0, 0
    for begin in range(0, len(ids), step):
        scores = log_softmax(of_characters.model(np.array([read[begin : begin + context]])))[0]
        for place in range(counted, min(begin + context, len(ids))):
            expected += scores[place - begin, ids[place]]
        counted = max(counted, min(begin + context, len(ids)))
    (found,) = of_characters.score([text], stride=stride)
    assert found.tokens == counted == len(ids) > 3 * context
    assert abs(found.log_probability - expected) < 1e-3
    with pytest.raises(ValueError, match=r"^`stride` must be from 1 to the context's 24\. Received: 25$"):
        of_characters.score([text], stride=25)


def test_scores_of_many_texts_are_those_of_each(generator):
    texts = [*PROMPTS, "abcdefgh abcdefgh abcdef"[: 24 if generator.tokenizer is CHARACTERS else 8]] * 20
    together = generator.score(texts, batch_size=len(texts))  # more tokens than logits are held of
    for text, score in zip(texts[:7], together, strict=False):
        (alone,) = generator.score([text])
        assert (alone.tokens, alone.text) == (score.tokens, text)
        assert abs(alone.log_probability - score.log_probability) < 1e-4


def test_what_is_generated_is_scored_alike(of_characters):
    for found in of_characters.generate(["abc", "", "de"], max_new_tokens=10, seed=4, temperature=2.0):
        with_prompt, prompt = of_characters.score([found.prompt + found.text, found.prompt])
        difference = with_prompt.log_probability - prompt.log_probability
        if len(found.text) == 10:  # it did not end by an end token, which a score does not count
            assert abs(found.log_probability - difference) < 1e-4


# What attends to what.


@pytest.mark.parametrize("text", PROMPTS)
def test_attention_is_the_whole_models(generator, text):
    ids, _ = previous_and_next(generator, text)
    expected = np.array(generator.model.attention_maps(np.array([ids])))[0]
    [grid], [alignment] = generator.attend_by_head([text]), generator.attend([text])
    [maps] = grid.kinds
    assert maps.source_tokens == maps.target_tokens == alignment.source_tokens == alignment.target_tokens
    assert [maps.source_tokens[0], len(maps.source_tokens)] == ["<s>", len(ids)]
    np.testing.assert_allclose(maps.weights, expected, atol=1e-5)
    np.testing.assert_allclose(alignment.weights, expected[-1].mean(0), atol=1e-5)
    np.testing.assert_allclose(np.tril(maps.weights).sum(-1), 1, atol=1e-5)  # to the past alone
    assert (alignment.source_text, alignment.target_text) == (text, text)


def test_attention_without_a_start_token(of_characters):
    bare = TextGenerator(of_characters.model, CHARACTERS, add_start=False)
    assert bare.attend(["abc"])[0].source_tokens == ["a", "b", "c"]
    with pytest.raises(ValueError, match="position 1 has no tokens"):
        bare.attend(["abc", ""])
    assert len(bare.attend(["a" * 24])[0].source_tokens) == 24
    with pytest.raises(ValueError, match=r"position 0 has 25 tokens; 24 fit into the model's context of 24\. Shorten"):
        bare.attend(["a" * 25])


def test_attention_of_a_text_that_fills_the_context(of_characters):
    assert len(of_characters.attend(["a" * 23])[0].source_tokens) == 24
    with pytest.raises(
        ValueError, match="has 24 tokens; 23 fit into the model's context of 24, the start token counted"
    ):
        of_characters.attend_by_head(["a" * 24])


# A user's mistakes.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, r"^`temperature` must be at least 0\. Received: temperature=-0\.1$"),
        ({"temperature": float("nan")}, r"^`temperature` must be at least 0\. Received: temperature=nan$"),
        ({"temperature": "hot"}, r"^`temperature` must be a number\. Received: temperature='hot'$"),
        ({"temperature": [1.0]}, r"^`temperature` must be one number, or one for each of the 2 texts\."),
        ({"temperature": [1.0, -2.0]}, r"^`temperature` must be at least 0\."),
        ({"top_k": 1.5}, r"^`top_k` must be a whole number\. Received: top_k=1\.5$"),
        ({"top_k": -1}, r"^`top_k` must be from 0 to "),
        ({"top_p": 1.1}, r"^`top_p` must be from 0 to 1\. Received: top_p=1\.1$"),
        ({"repetition_penalty": 0}, r"^`repetition_penalty` must be from 1e-06 to 1000000\.0\."),
        ({"repetition_penalty": float("nan")}, r"^`repetition_penalty` must be from 1e-06 to 1000000\.0\."),
        ({"max_new_tokens": -1}, r"^`max_new_tokens` must be from 0 to 65536\."),
        ({"max_new_tokens": True}, r"^`max_new_tokens` must be a whole number\."),
        ({"seed": 2**70}, r"^`seed` must be a whole number\."),
        ({"seed": 0.5}, r"^`seed` must be a whole number\."),
        ({"stop": ""}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\. Received: ''$"),
        ({"stop": ["a" * 65]}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\."),
        ({"stop": ["a\0b"]}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\."),
        ({"stop": ["a"] * 17}, r"^`stop` must hold at most 16 strings\. Received: 17$"),
        ({"stop": [3]}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\. Received: 3$"),
        ({"batch_size": 0}, r"^`batch_size` must be at least 1\."),
    ],
)
def test_settings_out_of_range(of_characters, settings, message):
    with pytest.raises(ValueError, match=message):
        of_characters.generate(["a", "b"], **settings)


def test_k_larger_than_the_vocabulary_is_all_of_it(of_characters):
    every, more = (of_characters(["a"] * 5, max_new_tokens=9, seed=1, top_k=k) for k in (0, 10_000))
    assert every == more


def test_what_is_built_wrongly(of_characters):
    with pytest.raises(ValueError, match=r"^`tokenizer` has \d+ ids, more than the model's vocabulary_size=5\."):
        TextGenerator(GPT(5, **SIZES), CHARACTERS)
    for length in (1, 25):
        with pytest.raises(
            ValueError, match=rf"^`context_length` must be from 2 to the model's 24\. Received: {length}$"
        ):
            TextGenerator(of_characters.model, CHARACTERS, context_length=length)
    with pytest.raises(ValueError, match=r"^`stride` must be from 1 to the context's 24\. Received: 0$"):
        TextGenerator(of_characters.model, CHARACTERS, stride=0)


def request(rows, **changes):
    """What a client sends for as many texts: greedy, but for what is changed."""
    values = dict(
        text="ab", max_new_tokens=9, temperature=0.0, top_k=0, top_p=1.0, repetition_penalty=1.0, seed=1, stop=""
    )
    dtypes = dict(text=tf.string, max_new_tokens=tf.int32, top_k=tf.int32, seed=tf.int64, stop=tf.string)
    values |= changes
    return {
        name: tf.constant(
            np.broadcast_to(value, [rows]) if np.ndim(value) == 0 else value, dtypes.get(name, tf.float32)
        )
        for name, value in values.items()
    }


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("name", [*SETTINGS, "stop"])
def test_a_setting_of_another_number_than_the_texts_is_an_error(of_characters, name, rows):
    """One number would else be stretched over all rows, but not where a server batches; others fail anywhere."""
    tensors = request(rows)
    for other in (1, rows + 1):
        changed = {**tensors, name: tf.repeat(tensors[name][:1], other)}
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{name}` must be one for each text"):
            of_characters._generate(**changed)


def test_what_a_client_may_send_and_python_refuses(of_characters):
    """It spoils no other row: further stop strings are left out, and an invalid penalty counts as 1."""
    plain = of_characters._generate(**request(1))["text"][0]
    found = of_characters._generate(
        **request(3, repetition_penalty=[float("nan"), 0.0, 1e-38], stop=["\0".join(["x"] * 100_000), "", "y"])
    )
    assert found["text"].numpy().tolist() == [plain.numpy()] * 3
    last = plain.numpy().decode()[-1]
    for number, ends in ((15, True), (16, False)):
        (text,) = of_characters._generate(**request(1, stop="\0".join([*"x" * number, last])))["text"].numpy()
        assert (last.encode() not in text) == ends


# Streams and exports.


@pytest.mark.parametrize("stop", [(), ["ab", "\n", "gh "]], ids=["to the end", "with stop strings"])
def test_a_stream_gives_what_generate_gives(generator, stop):
    for seed, prompt in enumerate([*PROMPTS, LONG]):
        settings = dict(max_new_tokens=30, temperature=1.3, top_p=0.95, repetition_penalty=1.1, seed=seed, stop=stop)
        pieces = list(generator.stream(prompt, **settings))
        assert all(pieces)
        assert ["".join(pieces)] == generator([prompt], **settings)


def test_a_stream_refuses_at_the_call(of_characters):
    with pytest.raises(ValueError, match=r"^`temperature` must be at least 0\."):
        of_characters.stream("a", temperature=-1)
    assert list(of_characters.stream("a", max_new_tokens=0)) == []


@pytest.fixture(scope="module")
def of_pieces():
    return built(PIECES)


@pytest.fixture(scope="module")
def exported(of_pieces, tmp_path_factory):
    return zoo.serving.export(of_pieces, tmp_path_factory.mktemp("exported"), {"README.md": "A card."})


def test_an_export_does_what_the_generator_does(of_pieces, exported):
    servable = zoo.load(exported.parent)
    assert isinstance(servable, zoo.serving.ServableGenerator)
    packed = zoo.serving.exporting.with_packed_model(of_pieces)
    for stop in ((), ["ab", "\n"]):
        ours, same, theirs = (
            each.generate(PROMPTS, **SETTINGS, stop=stop, batch_size=4) for each in (of_pieces, packed, servable)
        )
        assert same == theirs
        assert [each.text for each in ours] == [each.text for each in theirs]
    assert packed.score(PROMPTS) == servable.score(PROMPTS)
    assert "".join(servable.stream("ab", seed=1)) == of_pieces(["ab"], seed=1)[0]


@pytest.mark.slow
def test_an_export_shows_the_attention_that_the_generator_shows(of_pieces, exported):
    exported = zoo.load(exported)
    for text, ours, grid in zip(PROMPTS, exported.attend(PROMPTS), exported.attend_by_head(PROMPTS), strict=True):
        np.testing.assert_allclose(ours.weights, of_pieces.attend([text])[0].weights, atol=1e-5)
        [maps], [expected] = grid.kinds, of_pieces.attend_by_head([text])[0].kinds
        np.testing.assert_allclose(maps.weights, expected.weights, atol=1e-5)
    attention = exported._signatures["attention"](text=tf.constant(["abc abc", "", "a"]))
    assert attention["tokens"].shape[0] == 3
    np.testing.assert_allclose(
        tf.reduce_sum(attention["weights"], -1), np.array(attention["tokens"] != "", "float32"), atol=1e-5
    )


@pytest.mark.long
@pytest.mark.slow
def test_an_export_runs_with_tensorflow_alone(of_pieces, exported, tmp_path):
    moved = shutil.copytree(exported, tmp_path / "7")
    program = """
import sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
assert not any(name.partition(".")[0] == "zoo" for name in sys.modules)
for name, signature in sorted(model.signatures.items()):
    print(name, sorted(signature.structured_input_signature[1]), sorted(signature.structured_outputs))
    for tensor in (*signature.structured_input_signature[1].values(), *signature.structured_outputs.values()):
        assert tensor.shape.as_list() == [None] or name.startswith("attention") and tensor.shape[0] is None, tensor
print(model.signatures["serving_default"](text=tf.constant(["ab", ""]))["text"].numpy().tolist())
"""
    run = subprocess.run([sys.executable, "-c", program, str(moved)], capture_output=True, text=True, check=True)
    assert "gradient" not in run.stderr
    settings = ["max_new_tokens", "repetition_penalty", "seed", "stop", "temperature", "text", "top_k", "top_p"]
    found = [text.encode() for each in ("ab", "") for text in of_pieces([each], seed=0)]
    assert run.stdout.splitlines() == [
        "attention ['text'] ['tokens', 'weights']",
        "attention_by_head ['text'] ['tokens', 'weights']",
        f"generate {settings} {['log_probability', 'text', 'tokens']}",
        f"score ['text'] {['log_probability', 'tokens']}",
        f"serving_default ['text'] {['log_probability', 'text', 'tokens']}",
        str(found),
    ]


# Bytes as they come, into whole characters up to a stop string.


def cut(text, places):
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(bounds)]


@given(st.binary(), st.lists(st.integers(0, 99)))
def test_together_it_is_the_text_however_it_comes(text, places):
    found = list(whole_text(cut(text, places)))
    assert "".join(found) == text.decode("utf-8", "replace")
    assert all(found)


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 99), max_size=9),
)
def test_it_ends_before_the_stop_string_that_is_whole_first(text, stop, places):
    chunks = cut(text.encode(), places)
    # As the model's loop does it: after each chunk, the earliest string that is there.
    expected, so_far = text, ""
    for chunk in chunks:
        so_far += chunk.decode()
        begins = [so_far.find(each) for each in stop if each in so_far]
        if begins:
            expected = so_far[: min(begins)]
            break
    assert "".join(whole_text(chunks, [each.encode() for each in stop])) == expected


def test_characters_come_when_they_are_whole():
    assert list(whole_text([b"a\xc3", b"\x9f", b"b"])) == ["a", "ß", "b"]


def test_what_may_begin_a_stop_string_waits():
    stream = whole_text(iter([b"one\n", b"\ntwo"]), [b"\n\n"])
    assert next(stream) == "one"
    with pytest.raises(StopIteration):
        next(stream)
