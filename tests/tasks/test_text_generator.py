"""A language model that speaks text: prompts of any kind, each by itself."""

import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.models import GPT
from zoo.tasks.results import Generation
from zoo.tasks.text_generator import TextGenerator
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


def test_never_beyond_the_context(generator):
    for prompt in ("", "abc", "abcdefgh" * 2, "abcdefg" * 3 + "ab"):
        used = int(np.count_nonzero(generator.tokenizer.tokenize([prompt])))
        found = generator.generate([prompt] * 20, max_new_tokens=100, seed=0)
        assert max(each.tokens for each in found) == 24 - used
        assert all("\ufffd" not in each.text or generator.tokenizer is PIECES for each in found)


def test_a_text_that_fills_the_context_beside_others_that_do_not(of_characters):
    texts = ["abc. de" * 3, "a", "b", "c"]
    alone = [of_characters.generate([text], 23, temperature=0)[0] for text in texts]
    assert [each.text for each in of_characters.generate(texts, 23, temperature=0)] == [each.text for each in alone]


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


def test_attention_of_many_texts_is_that_of_each(generator):
    for text, found in zip(PROMPTS, generator.attend(PROMPTS, batch_size=4), strict=True):
        [alone] = generator.attend([text])
        assert alone.source_tokens == found.source_tokens
        np.testing.assert_allclose(alone.weights, found.weights, atol=1e-5)


def test_attention_without_a_start_token(of_characters):
    bare = TextGenerator(of_characters.model, CHARACTERS, add_start=False)
    assert bare.attend(["abc"])[0].source_tokens == ["a", "b", "c"]
    with pytest.raises(ValueError, match="position 1 has no tokens"):
        bare.attend(["abc", ""])
    assert len(bare.attend(["a" * 24])[0].source_tokens) == 24
    with pytest.raises(ValueError, match="position 0 has 25 tokens, which does not fit"):
        bare.attend(["a" * 25])


def test_attention_of_a_text_that_fills_the_context(of_characters):
    assert len(of_characters.attend(["a" * 23])[0].source_tokens) == 24
    with pytest.raises(ValueError, match="position 0 has 24 tokens, which leaves no room in the model's context of 24"):
        of_characters.attend_by_head(["a" * 24])


# Saved and loaded.


def test_saved_and_loaded_in_a_new_process_it_says_the_same(generator, tmp_path):
    generator.save(tmp_path / "generator")
    (tmp_path / "generator").rename(tmp_path / "moved")
    program = (
        "import sys; from zoo.tasks.text_generator import TextGenerator; generator = TextGenerator.load(sys.argv[1])\n"
        "print(repr(generator.generate(['abc', ''], max_new_tokens=12, seed=[1, 2])))\n"
        "print(repr(generator.score(['abc. de'])))"
    )
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path / "moved")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    expected = [
        repr(generator.generate(["abc", ""], max_new_tokens=12, seed=[1, 2])),
        repr(generator.score(["abc. de"])),
    ]
    assert result.stdout.splitlines() == expected


def test_other_folders_are_left_alone(generator, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError, match="holds something else"):
        generator.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"is not a saved TextGenerator: it has no generator\.json"):
        TextGenerator.load(tmp_path)


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
        ({"repetition_penalty": 0}, r"^`repetition_penalty` must be at least 1e-06\."),
        ({"max_new_tokens": -1}, r"^`max_new_tokens` must be from 0 to "),
        ({"max_new_tokens": True}, r"^`max_new_tokens` must be a whole number\."),
        ({"seed": 2**70}, r"^`seed` must be a whole number\."),
        ({"seed": 0.5}, r"^`seed` must be a whole number\."),
        ({"stop": ""}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\. Received: ''$"),
        ({"stop": ["a" * 65]}, r"^`stop` must hold strings of 1 to 64 bytes, without NUL\."),
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


def test_texts_that_are_none(of_characters):
    with pytest.raises(ValueError, match="for one text, give a list of one"):
        of_characters("abc")
    with pytest.raises(ValueError, match=r"^`texts` must hold strings\. Received: 3 at position 1$"):
        of_characters.score(["a", 3])
    assert of_characters([]) == of_characters.score([]) == []


def test_a_prompt_longer_than_the_context(of_characters):
    with pytest.raises(
        ValueError, match=r"^The text at position 1 has 24 tokens, which leaves no room .* context of 24"
    ):
        of_characters(["a", "a" * 24])
    with pytest.raises(ValueError, match=r"^The text at position 0 has 25 tokens, which does not fit in .* of 24"):
        of_characters.score(["a" * 25])


def test_what_is_built_wrongly(of_characters):
    with pytest.raises(ValueError, match=r"^`tokenizer` has \d+ ids, more than the model's vocabulary_size=5\."):
        TextGenerator(GPT(5, **SIZES), CHARACTERS)
    for length in (1, 25):
        with pytest.raises(
            ValueError, match=rf"^`context_length` must be from 2 to the model's 24\. Received: {length}$"
        ):
            TextGenerator(of_characters.model, CHARACTERS, context_length=length)


def test_a_servers_prompt_that_is_too_long_goes_on_from_its_end(of_characters):
    """In the graph there is no one to refuse it."""
    one = {name: tf.constant([value]) for name, value in {"max_new_tokens": 3, "top_k": 0}.items()}
    one |= {name: tf.constant([value]) for name, value in {"temperature": 0.0, "top_p": 1.0}.items()}
    one |= {"repetition_penalty": tf.constant([1.0]), "seed": tf.constant([1], tf.int64), "stop": tf.constant([""])}
    long, end = ("abcdefgh" * 9)[:70], ("abcdefgh" * 9)[70 - 23 : 70]
    found, expected = (of_characters._generate(text=tf.constant([text]), **one) for text in (long, end))
    assert found["text"] == expected["text"]
    assert found["tokens"] == expected["tokens"] == 1


# Streams and exports.


@pytest.mark.parametrize("stop", [(), ["ab", "\n", "gh "]], ids=["to the end", "with stop strings"])
def test_a_stream_gives_what_generate_gives(generator, stop):
    for seed, prompt in enumerate(PROMPTS):
        settings = dict(max_new_tokens=14, temperature=1.3, top_p=0.95, repetition_penalty=1.1, seed=seed, stop=stop)
        pieces = list(generator.stream(prompt, **settings))
        assert all(pieces)
        assert ["".join(pieces)] == generator([prompt], **settings)


def test_a_stream_refuses_at_the_call(of_characters):
    with pytest.raises(ValueError, match=r"^`temperature` must be at least 0\."):
        of_characters.stream("a", temperature=-1)
    with pytest.raises(ValueError, match=r"has 24 tokens, which leaves no room in the model's context of 24"):
        of_characters.stream("a" * 24)
    assert list(of_characters.stream("a", max_new_tokens=0)) == []


@pytest.fixture(scope="module")
def exported(generator, tmp_path_factory):
    return zoo.serving.export(generator, tmp_path_factory.mktemp("exported"), {"README.md": "A card."})


def test_an_export_does_what_the_generator_does(generator, exported):
    servable = zoo.load(exported.parent)
    assert isinstance(servable, zoo.serving.ServableGenerator)
    packed = zoo.serving.exporting.packed(generator)
    for stop in ((), ["ab", "\n"]):
        ours, same, theirs = (
            each.generate(PROMPTS, **SETTINGS, stop=stop, batch_size=4) for each in (generator, packed, servable)
        )
        assert same == theirs
        assert [each.text for each in ours] == [each.text for each in theirs]
    assert packed.score(PROMPTS) == servable.score(PROMPTS)
    assert "".join(servable.stream("ab", seed=1)) == generator(["ab"], seed=1)[0]


@pytest.mark.slow
def test_an_export_shows_the_attention_that_the_generator_shows(generator, exported):
    exported = zoo.load(exported)
    for text, ours, grid in zip(PROMPTS, exported.attend(PROMPTS), exported.attend_by_head(PROMPTS), strict=True):
        np.testing.assert_allclose(ours.weights, generator.attend([text])[0].weights, atol=1e-5)
        [maps], [expected] = grid.kinds, generator.attend_by_head([text])[0].kinds
        np.testing.assert_allclose(maps.weights, expected.weights, atol=1e-5)
    attention = exported._signatures["attention"](text=tf.constant(["abc abc", "", "a"]))
    assert attention["tokens"].shape[0] == 3
    np.testing.assert_allclose(
        tf.reduce_sum(attention["weights"], -1), np.array(attention["tokens"] != "", "float32"), atol=1e-5
    )


@pytest.mark.slow
def test_an_export_runs_with_tensorflow_alone(generator, exported, tmp_path):
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
    found = [text.encode() for each in ("ab", "") for text in generator([each], seed=0)]
    assert run.stdout.splitlines() == [
        "attention ['text'] ['tokens', 'weights']",
        "attention_by_head ['text'] ['tokens', 'weights']",
        f"generate {settings} {['log_probability', 'text', 'tokens']}",
        f"score ['text'] {['log_probability', 'tokens']}",
        f"serving_default ['text'] {['log_probability', 'text', 'tokens']}",
        str(found),
    ]


def test_a_stop_string_without_nul(of_characters):
    with pytest.raises(ValueError, match=r"^`stop` must hold strings of 1 to 64 bytes, without NUL\."):
        of_characters(["a"], stop=["a\0b"])
