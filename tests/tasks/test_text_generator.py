"""A language model that speaks text: the suite of all tasks; settings, long texts, attention and streams."""

import functools
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from zoo.models import GPT
from zoo.tasks.results import Generation
from zoo.tasks.text_generator import TextGenerator, whole_text
from zoo.testing import TaskTests
from zoo.text import BytePairTokenizer, CharacterTokenizer

CHARACTERS = CharacterTokenizer("abcdefgh .\nß中")
PIECES = BytePairTokenizer.learn(["abc abd fgh ß中 gh gh"] * 5, 275)
MODERN = dict(positions="rotary", normalization="rms", activation="swiglu", use_bias=False)
SIZES = dict(units=12, num_heads=3, num_layers=2, context_length=24)
PROMPTS = ["abc. de", "", "h", "gh gh gh abc", "ßa", "中"]
LONG = "abc. dehg \n中ß" * 3  # of a context of 24
NO_LISTS = (str, bytes, dict, set, type(None))  # what the suite passes on as it is


@functools.cache  # tracing a generator takes most of the time here, so there are two
def built(kind):
    """Of characters with a stride that is not the default; and of pieces, which begins without a start token."""
    tokenizer, arguments, settings = {
        "characters": (CHARACTERS, {}, {"stride": 7}),
        "pieces": (PIECES, MODERN, {"context_length": 20, "add_start": False}),
    }[kind]
    model, random = GPT(tokenizer.size, **SIZES, **arguments), np.random.default_rng(0)
    model.set_weights([random.normal(0, 0.4, weight.shape) for weight in model.weights])
    return TextGenerator(model, tokenizer, **settings)


@pytest.fixture(params=["characters", "pieces"])
def generator(request):
    return built(request.param)


@pytest.fixture
def of_characters():
    return built("characters")


@pytest.fixture
def of_pieces():
    return built("pieces")


SETTINGS = {
    "max_new_tokens": [5, 9, 0, 7, 8, 3],
    "temperature": [1.0, 0.7, 1.0, 2.0, 0.0, 1.0],
    "top_k": [0, 3, 0, 0, 0, 1],
    "top_p": [1.0, 1.0, 0.5, 0.9, 1.0, 1.0],
    "repetition_penalty": [1.0, 1.5, 1.0, 1.0, 1.1, 1.0],
    "seed": [5, 4, 3, 2, 1, -7],
}


class TestTask(TaskTests):
    texts = ("abc. de", "", "h", LONG, "ßa", "gh gh gh abc")

    def make_task(self):
        return built("characters")

    def calls(self):
        """The seed is one for all texts, which alone and together then have the same."""

        def generate(task, texts, **options):
            texts = list(texts) if not isinstance(texts, NO_LISTS) else texts
            seeds = [5] * len(texts or ())
            settings = dict(max_new_tokens=30, temperature=1.5, top_p=0.95, stop=["ab", "\n"])
            return task.generate(texts, seed=seeds or 5, **settings, **options)

        def short(texts):
            if isinstance(texts, NO_LISTS):
                return texts
            return [text[:9] if isinstance(text, str) else text for text in texts]

        return {
            "generate": generate,
            "score": lambda task, texts, **options: task.score(texts, **options),
            "next_tokens": lambda task, texts, **options: task.next_tokens(texts, temperature=0.7, **options),
            "score_tokens": lambda task, texts, **options: task.score_tokens(short(texts), **options),
            "attend": lambda task, texts, **options: task.attend(short(texts), **options),
            "attend_by_head": lambda task, texts, **options: task.attend_by_head(short(texts), **options),
        }


def ids_of(generator, text):
    return [int(i) for i in generator.tokenizer.tokenize([text]).numpy()[0] if i]


def log_softmax(logits):
    logits = np.array(logits, "float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


# How texts go on.


@pytest.mark.long
def test_the_likeliest_text_is_the_whole_models_beyond_the_context_too(generator):
    """By hand, one token at a time: what is read starts over from the last half of the context when that is full."""
    context = generator.context_length
    for prompt in ("ab", LONG, ""):
        window = ids_of(generator, prompt)
        window = [2, *window] if generator.add_start or not window else window
        new, total = [], 0.0
        while len(new) < 30:
            window = window if len(window) <= context else window[-context // 2 :]
            scores = log_softmax(generator.model(np.array([window])))[0, -1]
            new.append(3 + int(scores[3:].argmax()))
            total += scores[new[-1]]
            if new[-1] == 3:
                break
            window.append(new[-1])
        (found,) = generator.generate([prompt], 30, temperature=0)
        text = b"".join(generator.tokenizer.written(new).numpy()).decode("utf-8", "replace")
        assert (found.prompt, found.text, found.tokens) == (prompt, text, len(new))
        assert abs(found.log_probability - total) < 1e-3


def test_a_text_goes_on_as_it_would_alone(generator):
    together = generator.generate(PROMPTS, **SETTINGS, stop=["ab", "\n"], batch_size=4)
    for row, prompt in enumerate(PROMPTS):
        settings = {name: values[row] for name, values in SETTINGS.items()}
        (alone,) = generator.generate([prompt], **settings, stop=["ab", "\n"])
        assert (alone.prompt, alone.text, alone.tokens) == (prompt, together[row].text, together[row].tokens)
        assert abs(alone.log_probability - together[row].log_probability) < 1e-4
    assert together[2] == Generation("h", "", 0.0, 0)


def test_many_texts_go_on_as_a_few_do(generator):
    """Many are written in two halves, of which either may have the longest text."""
    settings = {name: values * 6 for name, values in SETTINGS.items()}
    few = generator.generate(PROMPTS, **SETTINGS, stop=["ab", "\n"])
    many = generator.generate(PROMPTS * 6, **settings, stop=["ab", "\n"], batch_size=36)
    for found, expected in zip(many, few * 6, strict=True):
        assert (found.text, found.tokens) == (expected.text, expected.tokens)
        assert abs(found.log_probability - expected.log_probability) < 1e-4


def test_seeds(of_characters):
    same = of_characters(["a"] * 3, max_new_tokens=12, seed=[3, 3, 3])
    assert len(set(same)) == 1
    counted = of_characters(["a"] * 3, max_new_tokens=12, seed=2)
    assert len(set(counted)) == 3 and counted[1] == same[0]
    assert len({of_characters(["a"], max_new_tokens=12)[0] for _ in range(4)}) > 1  # another each time, if not told


def test_a_stop_string_ends_the_text_before_it(of_characters):
    texts = of_characters(["abc"] * 60, max_new_tokens=23, seed=1)
    stopped = of_characters(["abc"] * 60, max_new_tokens=23, seed=1, stop=["a", "h."])
    expected = [min((text.split(stop)[0] for stop in ("a", "h.")), key=len) for text in texts]
    assert stopped == expected
    assert texts != expected


def test_broken_pieces_are_readable_text(of_pieces):
    texts = of_pieces(["ß"] * 50, max_new_tokens=20, temperature=100.0, seed=0)
    assert any("\ufffd" in text for text in texts)


# How likely texts are.


def test_scores_are_the_whole_models(generator):
    """Without a start token the first token is read and not scored."""
    texts = ["abc. de", "", "h", "ßab", "gh gh abc"]
    for text, score in zip(texts, generator.score(texts), strict=True):
        ids = ids_of(generator, text)
        read = [2, *ids] if generator.add_start else ids
        scored = read[1:]
        scores = log_softmax(generator.model(np.array([read])))[0] if scored else None
        expected = sum(scores[place, token] for place, token in enumerate(scored))
        assert (score.text, score.tokens) == (text, len(scored))
        assert abs(score.log_probability - expected) < 1e-4
        assert score.perplexity == pytest.approx(math.exp(-expected / max(len(scored), 1)), rel=1e-3)


@pytest.mark.parametrize("stride", [None, 24])
def test_a_long_text_is_scored_in_windows(of_characters, stride):
    """Against windows that are scored one by one, without a start token behind the first."""
    text, context, step = LONG * 2, 24, stride or of_characters.stride
    ids = ids_of(of_characters, text)
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


def test_scores_of_many_texts_are_those_of_each(of_characters):
    texts = [*PROMPTS, "abcdefgh abcdefgh abcdef"] * 20
    together = of_characters.score(texts, batch_size=len(texts))  # more tokens than logits are held of
    for text, score in zip(texts[:7], together, strict=False):
        (alone,) = of_characters.score([text])
        assert (alone.tokens, alone.text) == (score.tokens, text)
        assert abs(alone.log_probability - score.log_probability) < 1e-4


def test_what_is_generated_is_scored_alike(of_characters):
    for found in of_characters.generate(["abc", "", "de"], max_new_tokens=10, seed=4, temperature=2.0):
        with_prompt, prompt = of_characters.score([found.prompt + found.text, found.prompt])
        difference = with_prompt.log_probability - prompt.log_probability
        if len(found.text) == 10:  # it did not end by an end token, which a score does not count
            assert abs(found.log_probability - difference) < 1e-4


# What attends to what.


def test_attention_is_the_whole_models(generator):
    texts = [text for text in PROMPTS if text or generator.add_start]
    found = zip(texts, generator.attend(texts), generator.attend_by_head(texts), strict=True)
    for text, alignment, grid in found:
        ids = [2] * generator.add_start + ids_of(generator, text)
        expected = np.array(generator.model.attention_maps(np.array([ids])))[0]
        [maps] = grid.kinds
        assert maps.source_tokens == maps.target_tokens == alignment.source_tokens == alignment.target_tokens
        assert len(maps.source_tokens) == len(ids)
        assert (maps.source_tokens[0] == "<s>") is generator.add_start
        np.testing.assert_allclose(maps.weights, expected, atol=1e-5)
        np.testing.assert_allclose(alignment.weights, expected[-1].mean(0), atol=1e-5)
        np.testing.assert_allclose(np.tril(maps.weights).sum(-1), 1, atol=1e-5)  # to the past alone
        assert (alignment.source_text, alignment.target_text) == (text, text)


def test_attention_of_texts_that_fill_the_context_or_have_no_tokens(of_characters, of_pieces):
    assert len(of_characters.attend(["a" * 23])[0].source_tokens) == 24
    message = "has 24 tokens. The model's context of 24 has room for 23 beside the start token"
    with pytest.raises(ValueError, match=message):
        of_characters.attend_by_head(["a" * 24])
    assert of_pieces.attend(["a" * 20])[0].source_tokens == ["a"] * 20
    with pytest.raises(ValueError, match=r"position 0 has 21 tokens\. The model's context of 20 has room for 20\. S"):
        of_pieces.attend(["a" * 21])
    with pytest.raises(ValueError, match="position 1 has no tokens"):
        of_pieces.attend(["abc", ""])


# A user's mistakes.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, r"^`temperature` must be from 0 to 1000000\. Received: temperature=-0\.1$"),
        ({"temperature": float("nan")}, r"^`temperature` must be from 0 to 1000000\. Received: temperature=nan$"),
        ({"temperature": float("inf")}, r"^`temperature` must be from 0 to 1000000\. Received: temperature=inf$"),
        ({"temperature": "hot"}, r"^`temperature` must be a number\. Received: temperature='hot'$"),
        ({"temperature": [1.0]}, r"^`temperature` must be one number, or one for each of the 2 texts\."),
        ({"temperature": [1.0, -2.0]}, r"0 to 1000000\. Received: temperature=-2\.0 at position 1$"),
        ({"top_k": 1.5}, r"^`top_k` must be a whole number\. Received: top_k=1\.5$"),
        ({"top_k": -1}, r"^`top_k` must be from 0 to "),
        ({"top_p": 1.1}, r"^`top_p` must be from 0 to 1\. Received: top_p=1\.1$"),
        ({"repetition_penalty": 0}, r"^`repetition_penalty` must be from 1e-06 to 1000000\.0\."),
        ({"repetition_penalty": float("nan")}, r"^`repetition_penalty` must be from 1e-06 to 1000000\.0\."),
        ({"max_new_tokens": -1}, r"^`max_new_tokens` must be from 0 to 65536\."),
        ({"max_new_tokens": True}, r"^`max_new_tokens` must be a whole number\."),
        ({"seed": 2**70}, rf"^`seed` must be from -{2**62} to {2**62}\. Received: seed={2**70}$"),
        ({"seed": 2**63}, rf"^`seed` must be from -{2**62} to {2**62}\."),
        ({"seed": [2**70, 0.5]}, r"^`seed` must be a whole number\."),
        ({"seed": [None, 1]}, r"^`seed` must be a whole number\."),
        ({"seed": 0.5}, r"^`seed` must be a whole number\."),
        ({"stop": ""}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\. Received: ''$"),
        ({"stop": ["a" * 65]}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\."),
        ({"stop": ["a\0b"]}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\."),
        ({"stop": ["a"] * 17}, r"^`stop` must hold at most 16 strings\. Received: 17$"),
        ({"stop": np.array("a")}, r"^`stop` must be a string or several\. Received: stop=array\(.a., "),
        ({"stop": [3]}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\. Received: 3$"),
        ({"batch_size": 0}, r"^`batch_size` must be at least 1\."),
        ({"batch_size": 2.0}, r"^`batch_size` must be an integer\. Received: batch_size=2\.0$"),
        ({"batch_size": None}, r"^`batch_size` must be an integer\. Received: batch_size=None$"),
    ],
)
def test_settings_out_of_range(of_characters, settings, message):
    with pytest.raises(ValueError, match=message):
        of_characters.generate(["a", "b"], **settings)


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
    for name in ("context_length", "stride"):
        with pytest.raises(ValueError, match=rf"^`{name}` must be an integer\. Received: {name}=8\.0$"):
            TextGenerator(of_characters.model, CHARACTERS, **{name: 8.0})


def test_settings_of_numpy_are_saved_as_pythons(of_characters, tmp_path):
    task = TextGenerator(of_characters.model, CHARACTERS, context_length=np.int64(20), stride=np.int32(5))
    loaded = TextGenerator.load(task.save(tmp_path / "saved"))
    assert (loaded.context_length, loaded.stride) == (20, 5)


def test_a_stride_of_half_of_the_context_stays_half_of_another_context(of_characters, of_pieces):
    assert (of_pieces.stride, of_pieces.with_settings(context_length=6).stride) == (10, 3)
    assert of_pieces.with_settings(context_length=12, stride=10).stride == 10
    assert of_characters.with_settings(context_length=20).stride == of_characters.stride == 7


def test_no_text_has_no_setting(of_characters):
    assert of_characters.generate([], **{name: [] for name in SETTINGS}) == []


def request(rows, **changes):
    """What a client sends for as many texts: greedy, but for what is changed."""
    values = dict(text="ab", max_new_tokens=9, temperature=0.0, top_k=0, top_p=1.0, repetition_penalty=1.0, seed=1)
    dtypes = dict(text=tf.string, max_new_tokens=tf.int32, top_k=tf.int32, seed=tf.int64, stop=tf.string)
    values |= {"stop": "", **changes}
    columns = {name: [value] * rows if np.ndim(value) == 0 else value for name, value in values.items()}
    return {name: tf.constant(column, dtypes.get(name, tf.float32)) for name, column in columns.items()}


@pytest.mark.parametrize("name", [*SETTINGS, "stop"])
def test_a_setting_of_another_number_than_the_texts_is_an_error(of_characters, name):
    """One number would else be stretched over all rows, but not where a server batches; others fail anywhere."""
    tensors = request(2)
    for other in (1, 3):
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


# Streams.


@pytest.mark.parametrize(("kind", "stop"), [("characters", ["ab", "\n", "gh "]), ("pieces", ())], ids=str)
def test_a_stream_gives_what_generate_gives(kind, stop):
    generator = built(kind)
    for seed, prompt in enumerate(["abc. de", "", LONG]):
        settings = dict(max_new_tokens=20, temperature=1.3, top_p=0.95, repetition_penalty=1.1, seed=seed, stop=stop)
        pieces = list(generator.stream(prompt, **settings))
        assert all(pieces)
        assert ["".join(pieces)] == generator([prompt], **settings)


def test_a_stream_refuses_at_the_call(of_characters):
    with pytest.raises(ValueError, match=r"^`temperature` must be from 0 to 1000000\."):
        of_characters.stream("a", temperature=-1)
    assert list(of_characters.stream("a", max_new_tokens=0)) == []


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


class TestTokens:
    def test_the_next_ones_are_those_that_generate_draws(self, generator):
        """At temperature 0 the likeliest one; a long text is continued from its last half context."""
        for text in (*PROMPTS, LONG):
            (first, *_), written = generator.next_tokens([text])[0], generator.generate([text], 1, temperature=0.0)[0]
            assert math.log(first.probability) == pytest.approx(
                written.log_probability - self.allowed(generator, text), abs=1e-4
            )

    def allowed(self, generator, text):
        """The logarithm of the probability of all that may be written."""
        ids = ids_of(generator, text)
        ids = [2, *ids] if generator.add_start or not ids else ids
        ids = ids if len(ids) <= generator.context_length else ids[-(generator.context_length // 2) :]
        return np.log(np.exp(log_softmax(generator.model(np.array([ids]))[0, -1]))[3:].sum())

    def test_a_temperature_is_that_of_a_draw(self, of_characters):
        logs = log_softmax(of_characters.model(np.array([[2, *ids_of(of_characters, "abc")]]))[0, -1])[3:]
        wanted = np.exp(logs / 0.5) / np.exp(logs / 0.5).sum()
        _, found = of_characters.next_tokens(["abc"] * 2, temperature=[1.0, 0.5])
        np.testing.assert_allclose([each.probability for each in found], np.sort(wanted)[::-1][:20], atol=1e-5)
        pieces = of_characters.tokenizer.tokens([3 + np.argsort(-wanted)[:20]]).numpy()[0]
        assert [each.token for each in found] == [piece.decode() for piece in pieces]

    def test_each_token_of_a_text_has_its_probability(self, generator):
        texts = ["abc. de", "gh gh gh abc", "中", ""]
        for text, found, whole in zip(texts, generator.score_tokens(texts), generator.score(texts), strict=True):
            ids = [2] * generator.add_start + ids_of(generator, text)
            logs = log_softmax(generator.model(np.array([ids]))[0]) if ids else []
            wanted = [logs[place, token] for place, token in enumerate(ids[1:])]
            assert len(found.tokens) == len(found.log_probabilities) == len(ids)
            np.testing.assert_allclose(found.log_probabilities[1:], wanted, atol=1e-4)
            assert sum(found.log_probabilities) == pytest.approx(whole.log_probability, abs=1e-3)
            assert found.log_probabilities[:1] == (0.0,)[: len(ids)]

    def test_masks_of_each_row(self, generator):
        """In a batch as alone; of a text that is longer than the context, positions still count."""
        texts = ["abc. de", "gh gh", LONG, "abc. de", LONG]
        length = len(ids_of(generator, LONG)) + generator.add_start
        hidden = [[2, 3], [], [length - 2], [], [0, 1]]
        heads = [[], [], [], ["1.2", "2.1"], []]
        found = generator.next_tokens(texts, hidden=hidden, heads=heads)
        for row, text in enumerate(texts):
            (alone,), (plain,) = (
                generator.next_tokens([text], hidden=[hidden[row]], heads=[heads[row]]),
                found[row:][:1],
            )
            np.testing.assert_allclose([e.probability for e in plain], [e.probability for e in alone], atol=1e-5)
            others = generator.next_tokens([text])[0]
            same = np.allclose([e.probability for e in plain], [e.probability for e in others], atol=1e-5)
            assert same == (row in (1, 4))
        texts, hidden, heads = texts[:2], hidden[:2], [["1.2"], []]
        scored = generator.score_tokens(texts, hidden=hidden, heads=heads)
        for row, text in enumerate(texts):
            (alone,) = generator.score_tokens([text], hidden=[hidden[row]], heads=[heads[row]])
            np.testing.assert_allclose(scored[row].log_probabilities, alone.log_probabilities, atol=1e-5)
            same = np.allclose(alone.log_probabilities, generator.score_tokens([text])[0].log_probabilities, atol=1e-4)
            assert same == (row == 1)

    def test_signatures_take_no_texts_at_all(self, generator, eager):
        """A server may get a request without rows."""
        for name in generator.EXPLORE:
            specs = generator._exploring[name].input_signature
            found = generator.signatures()[name](**{spec.name: tf.zeros([0], spec.dtype) for spec in specs})
            assert {output: tensor.shape[0] for output, tensor in found.items()} == dict.fromkeys(found, 0)

    def test_a_head_may_be_named_often(self, of_characters):
        often, once, fewer = of_characters.next_tokens(
            ["ab"] * 3, heads=[[*["1.1"] * 9, "2.3"], ["1.1", "2.3"], ["1.1"]]
        )
        assert [each.token for each in often] == [each.token for each in once]
        often, once, fewer = ([each.probability for each in row] for row in (often, once, fewer))
        assert often == pytest.approx(once, rel=1e-5)  # the rows of a batch may be rounded differently
        assert once != pytest.approx(fewer, rel=1e-3)

    def test_attention_without_some_tokens_and_heads(self, generator):
        function = generator.signatures()["masked_attention"]
        columns = dict(text=["abc. de"] * 2, hidden=["2", ""], heads=["", "2.1 9.9 x 1"])  # what is none is ignored
        found = function(**{name: tf.constant(values) for name, values in columns.items()})
        plain = generator.signatures()["attention_by_head"](text=tf.constant(["abc. de"]))
        np.testing.assert_array_equal(found["tokens"][:1], plain["tokens"])
        weights = found["weights"].numpy()
        assert not weights[0, :, :, 3:, 2].any() and weights[0, :, :, 2, 2].all()
        assert not weights[1, 1, 0].any() and weights[1, 1, 1].any()
        np.testing.assert_allclose(weights[1, 0], plain["weights"][0, 0], atol=1e-5)

    def test_what_is_refused(self, of_characters):
        with pytest.raises(ValueError, match="temperature"):
            of_characters.next_tokens(["a"], temperature=-1)
        with pytest.raises(ValueError, match="Shorten the text"):
            of_characters.score_tokens([LONG])
        for name in ("9.9", "1.0", "x", "1"):
            with pytest.raises(ValueError, match=rf"number: 1\.1 to 2\.3\. Received: '{name}' in the list"):
                of_characters.next_tokens(["a"], heads=[[name]])
            with pytest.raises(ValueError, match="`heads` must name heads of this model"):
                of_characters.score_tokens(["a"], heads=[[name]])
