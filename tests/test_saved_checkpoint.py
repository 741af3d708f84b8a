"""Models of the zoo as Hugging Face folders: read again they are the same, and `transformers` agrees with them."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import zoo
from zoo.checkpoints.saving import save_checkpoint
from zoo.models import GPT, RNNSeq2Seq, Transformer
from zoo.text import (
    END,
    START,
    UNKNOWN,
    BytePairTokenizer,
    CharacterTokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
)

TEXTS = ["To be, or not to be, that is the question.", "Whether 'tis nobler in the mind to suffer", "ß 中 É"] * 3
PROMPTS = ["To be", "", " ß question", "中 42 É", "the MIND\n\n or"]
ENGLISH = ["a man rides a horse", "two dogs play in the snow", "a woman reads a book", "children eat ice"] * 5
GERMAN = ["ein mann reitet ein pferd", "zwei hunde spielen im schnee", "die frau liest ein buch und isst eis"] * 5
SOURCES = ["a man reads", "two dogs eat the snow", "  the horse ", "Ünknown 中 text"]
SMALL_GPT = dict(units=12, num_heads=3, num_layers=2, context_length=20)
SMALL = dict(units=12, num_heads=3, feed_forward_units=20, encoder_layers=1, decoder_layers=2, position_pairs="halves")
RANKED = dict(beam_size=3, length_penalty=0.8, length_normalization="mean")


def make_generator(kind):
    if kind == "as GPT-2":
        tokenizer = BytePairTokenizer.learn(TEXTS, 300)
        return zoo.TextGenerator(GPT(tokenizer.size, **SMALL_GPT), tokenizer)
    tokenizer = BytePairTokenizer.learn(TEXTS, 290, lowercase=True, nfc=True)
    scales = [0.5 / (index + 1) for index in range(2)]
    sizes = {**SMALL_GPT, "num_heads": 3, "feed_forward_units": 20}
    options = dict(activation="relu", use_bias=False, score_scale=scales, epsilon=0.01)
    unused = range(tokenizer.size, tokenizer.size + 3)
    model = GPT(tokenizer.size + 3, **sizes, **options, unused_ids=list(unused))
    return zoo.TextGenerator(model, tokenizer, add_start=False)


def make_translator(kind):
    if kind == "shared":
        tokenizer = SentencePieceTokenizer.learn(ENGLISH + GERMAN, 70)
        model = Transformer(tokenizer.size, tokenizer.size, **SMALL, activation="silu", tied_embeddings="all")
        return zoo.Translator(model, tokenizer, tokenizer, 30, 12, **RANKED)
    learnt = SentencePieceTokenizer.learn(ENGLISH, 40, model_type="bpe").get_config()["model"]
    pieces = [piece.decode() for piece in SentencePieceTokenizer(learnt).tokens([range(4, 40)]).numpy()[0]]
    source = MarianTokenizer(learnt, [*pieces[3:], ">>deu<<", *pieces[:3]])
    target = SentencePieceTokenizer.learn(GERMAN, 50, model_type="bpe")
    options = dict(activation="gelu", scale_embeddings=False, use_output_bias=True)
    options["unused_ids"] = [0, 1, 2, target.size, target.size + 1]  # 1 and 2 are renormalised
    model = Transformer(source.size, target.size + 2, **SMALL, **options)
    return zoo.Translator(model, source, target, 25, 18, **RANKED, early_stopping=False)


MAKERS = {
    "as GPT-2": make_generator,
    "GPT-2 otherwise": make_generator,
    "shared": make_translator,
    "separate": make_translator,
}


@pytest.fixture(scope="module", params=MAKERS)
def saved(request, tmp_path_factory, randomize):
    """A model with random weights, and the folder that it was written to."""
    task = MAKERS[request.param](request.param)
    before = task.model.get_weights()
    noise = randomize(task.model, scale=0.3).get_weights()
    task.model.set_weights([one + other for one, other in zip(before, noise, strict=True)])
    return task, save_checkpoint(task, tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture(scope="module")
def loaded(saved):
    return zoo.load(saved[1])


def texts_of(task):
    if isinstance(task, zoo.Translator):
        return task.translate(SOURCES)
    return task.generate(PROMPTS, max_new_tokens=9, temperature=0.0)


class TestReadAgain:
    def test_ids_texts_and_probabilities_are_the_same(self, saved, loaded):
        """So what is generated is the same too."""
        task, random = saved[0], np.random.default_rng(2)
        for ours, theirs in zip(task.tokenizers, loaded.tokenizers, strict=True):
            np.testing.assert_array_equal(theirs.tokenize(PROMPTS + SOURCES), ours.tokenize(PROMPTS + SOURCES))
            ids = random.integers(4, ours.size, (50, 6))
            texts = [[text.strip() for text in each.detokenize(ids).numpy()] for each in (ours, theirs)]
            assert texts[0] == texts[1]  # those of Marian have no space at their ends
        sides = [random.integers(4, each.size, (3, 7)) for each in task.tokenizers]
        inputs = dict(zip(("source", "target"), sides, strict=True)) if len(sides) > 1 else sides[0]
        columns = [END, *range(4, task.tokenizers[-1].size)]
        found, expected = (
            tf.nn.log_softmax(tf.gather(each.model(inputs), columns, axis=-1)) for each in (loaded, task)
        )
        np.testing.assert_allclose(found, expected, atol=1e-5)

    def test_the_weights_are_the_same(self, saved, loaded):
        """Except rows without a meaning and biases that the model lacked."""
        task, _ = saved
        expected = {weight.path: weight.numpy() for weight in task.model.weights}
        for weight in loaded.model.weights:
            if weight.path not in expected:
                assert weight.path.endswith("/bias") and not weight.numpy().any()
                continue
            array = expected[weight.path]
            if len(array) in (getattr(task.model, f"{n}vocabulary_size", 0) for n in ("", "source_", "target_")):
                size = (
                    task.target_tokenizer.size if weight.path[:6] in ("target", "output") else task.tokenizers[0].size
                )
                rows = [END, *range(4, size)]
                rows += [UNKNOWN] if isinstance(task, zoo.Translator) else []
                rows += [] if weight.path[:6] == "source" else [START]
                np.testing.assert_array_equal(weight.numpy()[rows], array[rows])
            else:
                np.testing.assert_array_equal(weight.numpy(), array)

    def test_the_settings_are_the_same(self, saved, loaded):
        for name in saved[0].SETTINGS:
            assert getattr(loaded, name) == getattr(saved[0], name), name

    def test_written_again_the_files_are_the_same(self, saved, loaded, tmp_path):
        again = save_checkpoint(loaded, tmp_path / "again")
        names = sorted(file.name for file in again.iterdir())
        assert names == sorted(file.name for file in saved[1].iterdir())
        for name in names:
            before, after = (saved[1] / name).read_bytes(), (again / name).read_bytes()
            if name in ("config.json", "generation_config.json"):
                before, after = json.loads(before), json.loads(after)
                for changed in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "suppress_tokens"):
                    before.pop(changed, None), after.pop(changed, None)
            assert before == after, name


@pytest.mark.peers
class TestTransformers:
    @pytest.fixture(scope="class")
    def theirs(self, saved):
        import transformers

        task, folder = saved
        kind = "CausalLM" if isinstance(task, zoo.TextGenerator) else "Seq2SeqLM"
        model, report = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder, output_loading_info=True)
        assert not any(report.values()), report
        return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)

    def test_ids_and_logits(self, saved, theirs):
        import torch

        (task, _), (model, tokenizer) = saved, theirs
        if isinstance(task, zoo.TextGenerator):
            for text in PROMPTS[:1] + PROMPTS[2:]:
                ours = task.tokenizer.tokenize([text], add_start=task.add_start).numpy()
                ids = tokenizer(text, return_tensors="pt").input_ids
                shown = [tokenizer.bos_token_id if id_ == START else id_ - 4 for id_ in ours[0]]
                assert ids[0].tolist() == shown
                with torch.no_grad():
                    expected = model(ids).logits.numpy()
                found, pieces = np.array(task.model(ours)), task.tokenizer.size - 4
                np.testing.assert_allclose(expected[..., :pieces], found[..., 4 : 4 + pieces], atol=1e-4)
                for name, id_ in (("bos", START), ("eos", END)):
                    column = expected[..., getattr(tokenizer, f"{name}_token_id")]
                    np.testing.assert_allclose(column, found[..., id_], atol=1e-4)
            return
        for text, goal in zip([*SOURCES, ">>deu<< a man"], ["ein mann", "die hunde", "", "Ü", "ein"], strict=True):
            source = task.source_tokenizer.tokenize([text.strip()], add_end=True).numpy()
            target = task.target_tokenizer.tokenize([goal], add_start=True).numpy()
            given = tokenizer(text, text_target=goal, return_tensors="pt")
            sides = [json.loads((saved[1] / "vocab.json").read_text())] * 2
            if (saved[1] / "target_vocab.json").is_file():
                sides[1] = json.loads((saved[1] / "target_vocab.json").read_text())
            shown = task.source_tokenizer.tokens(source).numpy()[0]
            if task.source_tokenizer is not task.target_tokenizer or text[0] != ">":
                assert given.input_ids[0].tolist() == [sides[0][piece.decode()] for piece in shown]
            pieces = [piece.decode() for piece in task.target_tokenizer.tokens(target).numpy()[0]]
            assert given.labels[0].tolist() == [*(sides[1][piece] for piece in pieces[1:]), 0]
            start = model.config.decoder_start_token_id
            ids = [start, *given.labels[0].tolist()[:-1]]
            given = torch.tensor([[sides[0][piece.decode()] for piece in shown]])
            with torch.no_grad():
                expected = model(given, decoder_input_ids=torch.tensor([ids])).logits.numpy()
            found = np.array(task.model({"source": source, "target": target}))
            rows = task.target_tokenizer.tokens([range(4, task.target_tokenizer.size)]).numpy()[0]
            places = [1, start, 0, *(sides[1][piece.decode()] for piece in rows)]
            # Those of forbidden tokens are not in the weights: `generate` forbids and renormalises them.
            ours = [id_ for id_ in range(1, len(places) + 1) if id_ not in task.model.unused_ids]
            np.testing.assert_allclose(expected[..., [places[id_ - 1] for id_ in ours]], found[..., ours], atol=1e-4)

    def test_texts(self, saved, theirs, eager):
        import torch

        (task, _), (model, tokenizer) = saved, theirs
        is_translator = isinstance(task, zoo.Translator)
        expected = texts_of(task)
        for text, result in zip(SOURCES if is_translator else PROMPTS, expected, strict=True):
            ids = tokenizer(text, return_tensors="pt").input_ids
            if not ids.shape[1]:
                ids = torch.tensor([[tokenizer.bos_token_id]])
            limit = {"num_beams": task.beam_size} if is_translator else {"max_new_tokens": 9, "do_sample": False}
            with torch.no_grad():
                found = model.generate(ids, attention_mask=torch.ones_like(ids), **limit)[0]
            new = found if is_translator else found[ids.shape[1] :]
            assert tokenizer.decode(new, skip_special_tokens=True) == result.text


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"normalization": "rms"}, r"normalization='rms'; a GPT-2 checkpoint has 'layer'\.$"),
            ({"positions": "rotary"}, r"positions='rotary'; a GPT-2 checkpoint has 'learned'\.$"),
            ({"activation": "swiglu"}, r"activation='swiglu'; a GPT-2 checkpoint has gelu, gelu_tanh, relu, silu\.$"),
            ({"tied_embeddings": False}, r"tied_embeddings=False; a GPT-2 checkpoint has True\.$"),
            ({"num_key_value_heads": 1}, r"num_key_value_heads=1; a GPT-2 checkpoint has 3\.$"),
            ({"key_dim": 6}, r"key_dim=6; a GPT-2 checkpoint has 4\.$"),
            ({"use_query_key_norm": True}, r"use_query_key_norm=True; a GPT-2 checkpoint has False\.$"),
            ({"score_scale": 0.3}, r"score_scale=\[0\.3, 0\.3\]; a GPT-2 checkpoint has \[0\.5, 0\.5\]\.$"),
            ({"sliding_window": 4}, r"sliding_window=4; a GPT-2 checkpoint has None\.$"),
            ({"parallel_residual": True}, r"parallel_residual=True; a GPT-2 checkpoint has False\.$"),
        ],
    )
    def test_another_shape_than_that_of_gpt_2(self, tmp_path, changes, message):
        tokenizer = BytePairTokenizer.learn(TEXTS, 262)
        generator = zoo.TextGenerator(GPT(tokenizer.size, **{**SMALL_GPT, **changes}), tokenizer)
        with pytest.raises(ValueError, match=message):
            save_checkpoint(generator, tmp_path / "model")
        assert not list(tmp_path.iterdir()), "half a folder"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"norm_first": True}, r"norm_first=True; a Marian checkpoint has False\.$"),
            ({"position_pairs": "adjacent"}, r"position_pairs='adjacent'; a Marian checkpoint has 'halves'\.$"),
            ({"tied_embeddings": "none"}, r"tied_embeddings='none'; a Marian checkpoint has 'target'\.$"),
            ({"epsilon": 1e-3}, r"epsilon=0\.001; a Marian checkpoint has 1e-05\.$"),
            ({"activation": "tanh"}, r"activation='tanh'; a Marian checkpoint has gelu, "),
            ({"unused_ids": [0, 7]}, r"unused_ids=\(0, 7\); a Marian checkpoint has no piece that is never written\.$"),
        ],
    )
    def test_another_shape_than_that_of_marian(self, tmp_path, changes, message):
        tokenizer = SentencePieceTokenizer.learn(ENGLISH, 40)
        model = Transformer(tokenizer.size, tokenizer.size, **{**SMALL, **changes})
        with pytest.raises(ValueError, match=message):
            save_checkpoint(zoo.Translator(model, tokenizer, tokenizer), tmp_path / "model")

    def test_other_tokenizers(self, tmp_path):
        letters, pieces = CharacterTokenizer("abc"), SentencePieceTokenizer.learn(ENGLISH, 40)
        generator = zoo.TextGenerator(GPT(letters.size, **SMALL_GPT), letters)
        with pytest.raises(ValueError, match="tokenizer is a CharacterTokenizer; a GPT-2 checkpoint has byte pairs"):
            save_checkpoint(generator, tmp_path / "model")
        strips = BytePairTokenizer(**{**BytePairTokenizer.learn(TEXTS, 262).get_config(), "strip": True})
        generator = zoo.TextGenerator(GPT(strips.size, **SMALL_GPT), strips)
        with pytest.raises(ValueError, match="The tokenizer has strip=True, which the importer of a"):
            save_checkpoint(generator, tmp_path / "model")
        translator = zoo.Translator(Transformer(pieces.size, letters.size, **SMALL), pieces, letters)
        with pytest.raises(ValueError, match="target_tokenizer is a CharacterTokenizer; a Marian checkpoint has Sent"):
            save_checkpoint(translator, tmp_path / "model")
        model = pieces.get_config()["model"]
        french = MarianTokenizer(model, ["▁a", ">>fra<<"], target_language="fra")
        translator = zoo.Translator(Transformer(french.size, pieces.size, **SMALL), french, pieces)
        with pytest.raises(ValueError, match=r"`target_language` cannot be written .* Leave it out\. Received: 'fra'"):
            save_checkpoint(translator, tmp_path / "model")
        ends = SentencePieceTokenizer(model, ["▁a", "</s>"])
        translator = zoo.Translator(Transformer(pieces.size, ends.size, **SMALL), pieces, ends)
        with pytest.raises(ValueError, match="has the piece </s>, which is a special token of a Marian checkpoint"):
            save_checkpoint(translator, tmp_path / "model")
        others = SentencePieceTokenizer(model, ["▁a", "b"])
        size = pieces.size
        translator = zoo.Translator(Transformer(size, size, **SMALL, tied_embeddings="all"), pieces, others)
        with pytest.raises(ValueError, match="tied_embeddings='all' and two vocabularies"):
            save_checkpoint(translator, tmp_path / "model")

    def test_other_models(self, tmp_path):
        letters = CharacterTokenizer("abc")
        translator = zoo.Translator(RNNSeq2Seq(7, 7, units=4), letters, letters)
        with pytest.raises(ValueError, match=r"Translator of Transformer\. Received: Translator of RNNSeq2Seq$"):
            save_checkpoint(translator, tmp_path / "model")

    def test_weights_that_no_checkpoint_has(self, tmp_path):
        generator = make_generator("as GPT-2")
        generator.model.decoder[0].feed_forward.input_projection.enable_lora(2)
        with pytest.raises(ValueError, match=r"The model has the weights layer_1/feed_forward/input/lora.*, which no "):
            save_checkpoint(generator, tmp_path / "model")

    def test_a_folder_that_is_not_empty(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(FileExistsError, match=r" exists and is not empty; choose another place\.$"):
            save_checkpoint(make_generator("as GPT-2"), tmp_path)


def test_a_formula_that_transformers_does_not_have_is_a_warning(tmp_path):
    translator = make_translator("shared")
    translator.length_normalization = "wu"
    with pytest.warns(UserWarning, match="length_normalization='wu'. transformers has 'mean' alone"):
        save_checkpoint(translator, tmp_path / "model")


def test_bytes_and_tensors_by_hand(tmp_path, randomize):
    """The file's names and layout, without our importer."""
    generator = make_generator("as GPT-2")
    model = randomize(generator.model)
    folder = save_checkpoint(generator, tmp_path / "model")
    (tmp_path / "usual").touch()  # as the umask says
    assert {file.stat().st_mode for file in folder.iterdir()} == {(tmp_path / "usual").stat().st_mode}
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    ours = {weight.path: weight.numpy() for weight in model.weights}
    joined = tensors["transformer.h.1.attn.c_attn.weight"]
    assert joined.shape == (12, 36)
    key = ours["layer_2/self_attention/key/kernel"].reshape(12, 12)
    np.testing.assert_array_equal(joined[:, 12:24], key)
    embedding = tensors["transformer.wte.weight"]
    np.testing.assert_array_equal(embedding[:-2], ours["embedding/embeddings"][4:])
    np.testing.assert_array_equal(embedding[-2:], ours["embedding/embeddings"][[END, START]])
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert [vocabulary["<|endoftext|>"], vocabulary["<|startoftext|>"]] == [len(embedding) - 2, len(embedding) - 1]


def set_row(model, id_, row_of):
    """Sets a row of the embedding; all rows."""
    rows = model.embedding.embeddings.numpy()
    rows[id_] = row_of(rows)
    model.embedding.embeddings.assign(rows)
    return rows


@pytest.mark.long
def test_one_token_for_start_and_end(tmp_path, randomize, eager):
    """As in GPT-2, where the two have one embedding."""
    generator = make_generator("as GPT-2")
    set_row(randomize(generator.model), START, lambda rows: rows[END])
    folder = save_checkpoint(generator, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert config["bos_token_id"] == config["eos_token_id"] == config["vocab_size"] - 1
    assert [each.text for each in texts_of(zoo.load(folder))] == [each.text for each in texts_of(generator)]


@pytest.mark.long
def test_an_end_that_was_trained_further_stays_the_end(tmp_path, randomize, eager):
    """An imported GPT-2 has one row for start and end; training changes only that of the end."""
    generator = make_generator("as GPT-2")
    set_row(randomize(generator.model), START, lambda rows: rows[END])
    imported = zoo.load(save_checkpoint(generator, tmp_path / "imported"))
    rows = set_row(imported.model, END, lambda rows: rows[END] + 0.1)
    folder = save_checkpoint(imported, tmp_path / "trained")
    config = json.loads((folder / "config.json").read_text())
    names = json.loads((folder / "tokenizer_config.json").read_text())
    assert [names["eos_token"], names["bos_token"]] == ["<|endoftext|>", "<|startoftext|>"]
    written = safetensors.numpy.load_file(folder / "model.safetensors")["transformer.wte.weight"]
    np.testing.assert_array_equal(written[[config["eos_token_id"], config["bos_token_id"]]], rows[[END, START]])
    generation = json.loads((folder / "generation_config.json").read_text())
    assert config["eos_token_id"] not in generation["suppress_tokens"]
    assert [each.text for each in texts_of(zoo.load(folder))] == [each.text for each in texts_of(imported)]


def test_a_vocabulary_that_has_an_end_of_text_keeps_its_id(tmp_path, randomize):
    """As one that was read from the files of GPT-2, with a model that was trained here."""
    learnt = BytePairTokenizer.learn(TEXTS, 270).get_config()
    vocabulary = ["<|endoftext|>", *learnt["vocabulary"]]
    tokenizer = BytePairTokenizer(vocabulary, learnt["merges"])
    model = randomize(GPT(tokenizer.size, **SMALL_GPT))
    folder = save_checkpoint(zoo.TextGenerator(model, tokenizer), tmp_path / "model")
    generation = json.loads((folder / "generation_config.json").read_text())
    start = len(vocabulary)
    assert generation == {"bos_token_id": start, "eos_token_id": 0, "pad_token_id": 0, "suppress_tokens": [start]}
    rows = safetensors.numpy.load_file(folder / "model.safetensors")["transformer.wte.weight"]
    ours = model.embedding.embeddings.numpy()
    np.testing.assert_array_equal(rows, ours[[END, *range(5, tokenizer.size), START]])


def test_tokenizer_of_a_later_model(tmp_path):
    """Digits, several patterns and a token that no word becomes, in the chain that the Rust library reads."""
    import tokenizers

    learnt = BytePairTokenizer.learn(["in 1999 or 2026, we'll see"] * 3, 290).get_config()
    changes = {"individual_digits": True, "nfc": True, "lowercase": True, "ignore_merges": True}
    added = [{"content": "<|user|>", "special": True}, {"content": "nato", "in_words": False}]
    tokenizer = BytePairTokenizer(**{**learnt, **changes, "added_tokens": added} | {
        "vocabulary": [*learnt["vocabulary"], "<|user|>", "nato"]
    })  # fmt: skip
    generator = zoo.TextGenerator(GPT(tokenizer.size, **SMALL_GPT), tokenizer, add_start=False)
    folder = save_checkpoint(generator, tmp_path / "model")
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ["in 1999, we'll", "e\u0301 2026  or\n", "中", "nato", "NATO"]:
        assert [id_ + 4 for id_ in library.encode(text).ids] == tokenizer.tokenize([text]).numpy()[0].tolist()
    assert zoo.load(folder).tokenizer.get_config()["added_tokens"][0]["content"] == "<|user|>"
    made = tokenizer.get_config()
    made["vocabulary"].append(made["vocabulary"].pop(-3))
    generator = zoo.TextGenerator(generator.model, BytePairTokenizer(**made), add_start=False)
    with pytest.raises(ValueError, match="comes behind 'nato' in the vocabulary, an added token with in_words=False"):
        save_checkpoint(generator, tmp_path / "other")
