"""Imported translators of Marian against `transformers`, with random weights that it wrote to disk."""

import io
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.checkpoints.loading import load_checkpoint

pytestmark = pytest.mark.peers

ENGLISH = ["a man rides a horse", "two dogs play in the snow", "a woman reads a book", "children eat ice"] * 5
GERMAN = [
    "ein mann reitet ein pferd",
    "zwei hunde spielen im schnee",
    "die frau liest ein buch",
    "kinder essen eis",
] * 5
TEXTS = [
    "a man reads",
    "two dogs eat the snow",
    "",
    "  the horse ",
    "Ünknown 中 text",
    ">>deu<< a man",
    ">>xyz<< children play",
]
SIZES = {"d_model": 24, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "encoder_attention_heads": 3}
SIZES |= {"decoder_attention_heads": 3, "encoder_layers": 1, "decoder_layers": 2, "max_position_embeddings": 40}
# As OPUS-MT has them, and with every option that differs.
CONFIGS = {
    "shared": {"activation_function": "swish", "scale_embedding": True},
    "relu": {"activation_function": "relu", "scale_embedding": False, "encoder_layers": 2, "decoder_layers": 1},
    "separate": {"activation_function": "gelu", "scale_embedding": True, "share_encoder_decoder_embeddings": False},
}


def learnt(texts, size):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=size, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


def pieces_of(model):
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [library.id_to_piece(i) for i in range(3, library.get_piece_size())]


def write_vocabularies(folder, separate):
    """Files of both sides; the numbers of source and target ids, the padding token counted."""
    source, target = learnt(ENGLISH, 60), learnt(GERMAN, 70)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    # The padding token has one id, that of the target; it must be an id of the source too.
    sides = {"vocab.json": pieces_of(source), "target_vocab.json": pieces_of(target)[:20]}
    if not separate:
        sides = {"vocab.json": sorted({piece for pieces in sides.values() for piece in pieces})}
    sizes = []
    for name, pieces in sides.items():
        vocabulary = ["</s>", "<unk>", *pieces[5:], ">>deu<<", *pieces[:5], "<pad>"]
        (folder / name).write_text(json.dumps({piece: id_ for id_, piece in enumerate(vocabulary)}))
        sizes.append(len(vocabulary))
    return sizes[0], sizes[-1]


@pytest.fixture(scope="module", params=CONFIGS)
def theirs(request, tmp_path_factory):
    """Their model and tokenizer, and the folder that both were written to."""
    import torch
    import transformers

    folder, options = tmp_path_factory.mktemp("marian"), CONFIGS[request.param]
    separate = not options.get("share_encoder_decoder_embeddings", True)
    source, target = write_vocabularies(folder, separate)
    torch.set_num_threads(1)  # in models this small, threads mostly wait for one another
    torch.manual_seed(1)
    config = transformers.MarianConfig(
        vocab_size=source,
        decoder_vocab_size=target,
        pad_token_id=target - 1,
        decoder_start_token_id=target - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
        init_std=0.3,
        **{**SIZES, **options},
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases and norms, which would be zeros and ones
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
        model.final_logits_bias[0, -1] = 0
    model.generation_config.update(max_length=20, num_beams=4, bad_words_ids=[[target - 1]], length_penalty=1.0)
    model.save_pretrained(folder)
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"),
        str(folder / "target.spm"),
        str(folder / "vocab.json"),
        target_vocab_file=str(folder / "target_vocab.json") if separate else None,
        separate_vocabs=separate,
    )
    return model, tokenizer, folder


@pytest.fixture(scope="module")
def ours(theirs):
    return zoo.load(theirs[2])


def ids_of(ours, folder, side):
    """The checkpoint's id of each of the zoo's ids from 4 on."""
    name = "target_vocab.json" if side == "target" and (folder / "target_vocab.json").is_file() else "vocab.json"
    vocabulary = json.loads((folder / name).read_text())
    tokenizer = getattr(ours, f"{side}_tokenizer")
    return [vocabulary[piece.decode()] for piece in tokenizer.tokens([range(4, tokenizer.size)]).numpy()[0]]


def test_ids(theirs, ours):
    _, tokenizer, folder = theirs
    names = {3: 0, 1: 1, **dict(enumerate(ids_of(ours, folder, "source"), start=4))}
    for text in TEXTS:
        row = ours.source_tokenizer.tokenize([text], add_end=True).numpy()[0]
        assert [names[id_] for id_ in row.tolist()] == tokenizer(text)["input_ids"], text


def test_texts_of_ids(theirs, ours):
    """Any of them, also with spaces at their ends and languages in the middle."""
    _, tokenizer, folder = theirs
    names = ids_of(ours, folder, "target")
    rows = np.random.default_rng(1).integers(0, len(names), (500, 6))
    expected = [tokenizer.decode([names[id_] for id_ in row], skip_special_tokens=True) for row in rows]
    assert [text.decode() for text in ours.target_tokenizer.detokenize(rows + 4).numpy()] == expected


def test_logits(theirs, ours):
    import torch

    model, _, folder = theirs
    random = np.random.default_rng(0)
    source, target = (
        random.integers(4, ours.source_tokenizer.size, (3, 9)),
        random.integers(4, ours.target_tokenizer.size, (3, 7)),
    )
    source[1, 5:], target[:, 0] = 0, 2
    sources, targets = (np.array([0, 1, 0, 0, *ids_of(ours, folder, side)]) for side in ("source", "target"))
    start = model.config.decoder_start_token_id
    with torch.no_grad():
        expected = model(
            torch.tensor(sources[source]),
            attention_mask=torch.tensor(source != 0).int(),
            decoder_input_ids=torch.tensor(np.where(target == 2, start, targets[target])),
        ).logits.numpy()
    found = np.array(ours.model({"source": source, "target": target}))
    np.testing.assert_allclose(found[..., 4:], expected[..., targets[4:]], atol=1e-4)
    np.testing.assert_allclose(found[..., 1:4], expected[..., [1, start, 0]], atol=1e-4)
    assert (found[..., 0] < -1e8).all()


@pytest.mark.parametrize(("theirs", "beams"), [*((name, 4) for name in CONFIGS), ("shared", 1)], indirect=["theirs"])
def test_texts(theirs, ours, beams):
    """Without the unknown token, which we never write."""
    import torch

    model, tokenizer, _ = theirs
    texts = [text for text in TEXTS if text]
    found = ours.translate(texts, beam_size=beams)
    for text, translation in zip(texts, found, strict=True):
        with torch.no_grad():
            ids = model.generate(
                **tokenizer([text], return_tensors="pt"),
                num_beams=beams,
                bad_words_ids=[[model.config.pad_token_id], [1]],
            )
        assert translation.text == tokenizer.batch_decode(ids[:, 1:], skip_special_tokens=True)[0], text


RULES = [(False, 1.0), (True, 1.0), ("never", 0.5)]


@pytest.mark.parametrize("theirs", ["shared"], indirect=True)
@pytest.mark.parametrize(("early_stopping", "length_penalty"), RULES)
def test_texts_of_100_sentences_by_every_rule_that_ends_a_search(theirs, ours, early_stopping, length_penalty):
    """Beginnings of sentences of Python's help, in batches. They have words that the vocabulary lacks."""
    from pydoc_data.topics import topics

    import torch

    model, tokenizer, _ = theirs
    sentences = re.split(r"(?<=[.!?]) ", " ".join(" ".join(topics.values()).split()))[:100]
    texts = [sentence.lower()[: 3 + number % 30] for number, sentence in enumerate(sentences)]
    settings = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    tokenizers = ours.source_tokenizer, ours.target_tokenizer
    translator = zoo.Translator(
        ours.model, *tokenizers, beam_size=3, max_target_length=19, length_normalization="mean", **settings
    )
    with torch.no_grad():
        ids = model.generate(
            **tokenizer(texts, return_tensors="pt", padding=True),
            num_beams=3,
            bad_words_ids=[[model.config.pad_token_id], [1]],
            **settings,
        )
    assert translator(texts) == tokenizer.batch_decode(ids[:, 1:], skip_special_tokens=True)


@pytest.mark.parametrize("theirs", ["shared"], indirect=True)
def test_forbidden_tokens_leave_their_probability_to_the_others(theirs, tmp_path):
    """With `renormalize_logits`; without it, log-probabilities are smaller."""
    import torch

    model, tokenizer, folder = theirs
    copy = shutil.copytree(folder, tmp_path / "copy")
    generation = json.loads((copy / "generation_config.json").read_text())
    texts, padding = [text for text in TEXTS if text], model.config.pad_token_id
    found = {}
    for renormalizes in (True, False):
        settings = {"renormalize_logits": renormalizes, "bad_words_ids": [[padding], [1]], "length_penalty": 0.0}
        (copy / "generation_config.json").write_text(json.dumps(generation | settings))
        ours = zoo.load(copy)
        translations = ours.translate(texts)
        found[renormalizes] = [each.score for each in translations]
        for text, translation in zip(texts, translations, strict=True):
            with torch.no_grad():
                result = model.generate(
                    **tokenizer([text], return_tensors="pt"),
                    **settings,
                    output_scores=True,
                    return_dict_in_generate=True,
                )
            assert translation.text == tokenizer.batch_decode(result.sequences, skip_special_tokens=True)[0], text
            np.testing.assert_allclose(translation.score, result.sequences_scores[0], rtol=1e-4, atol=1e-4)
    assert min(np.subtract(found[True], found[False])) > 1e-3


def test_other_forbidden_words_are_left_out(theirs, tmp_path):
    copy = shutil.copytree(theirs[2], tmp_path / "copy")
    generation = json.loads((copy / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(generation | {"bad_words_ids": [[5], [5, 6]]}))
    with pytest.warns(UserWarning, match=r"these bad_words_ids of the generation are left out: \[\[5\], \[5, 6\]\]"):
        zoo.load(copy)


def test_settings_are_those_of_the_generation(ours):
    settings = ours.beam_size, ours.length_penalty, ours.length_normalization, ours.max_target_length
    assert settings == (4, 1.0, "mean", 19)
    assert ours.early_stopping is False


@pytest.mark.parametrize("theirs", ["shared"], indirect=True)
def test_settings_of_the_configuration_count_only_without_the_generations_file(theirs, tmp_path):
    import transformers

    copy = shutil.copytree(theirs[2], tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text()) | {"num_beams": 3, "max_length": 30}
    (copy / "config.json").write_text(json.dumps(config))
    for content in ({}, {"max_new_tokens": 7}, {"num_beams": 2, "max_length": 9}):
        (copy / "generation_config.json").write_text(json.dumps(content))
        wanted = transformers.MarianMTModel.from_pretrained(copy).generation_config
        ours = zoo.load(copy)
        assert ours.beam_size == (wanted.num_beams or 1)
        if wanted.max_new_tokens is not None:
            assert ours.max_target_length == wanted.max_new_tokens
        elif wanted.max_length is not None:
            assert ours.max_target_length == wanted.max_length - 1
    (copy / "generation_config.json").unlink()
    assert (zoo.load(copy).beam_size, zoo.load(copy).max_target_length) == (3, 29)


@pytest.mark.parametrize("theirs", ["shared"], indirect=True)
def test_the_start_and_the_end_are_those_of_the_generation(theirs, tmp_path):
    import torch
    import transformers

    _, tokenizer, folder = theirs
    copy = shutil.copytree(folder, tmp_path / "copy")
    generation = json.loads((copy / "generation_config.json").read_text())
    forbidden = [*generation["bad_words_ids"], [1]]  # we never write the unknown token
    for start in ({"decoder_start_token_id": 5}, {"decoder_start_token_id": None, "bos_token_id": 6}):
        changed = generation | start | {"bad_words_ids": forbidden}
        (copy / "generation_config.json").write_text(json.dumps(changed))
        model, texts = transformers.MarianMTModel.from_pretrained(copy).eval(), [text for text in TEXTS if text]
        with torch.no_grad():
            ids = [model.generate(**tokenizer([text], return_tensors="pt"))[0, 1:] for text in texts]
        assert zoo.load(copy)(texts) == tokenizer.batch_decode(ids, skip_special_tokens=True)
    for change, message in (
        ({"eos_token_id": [0, 7]}, r"eos_token_id of the generation must be 0, the id of </s>\.$"),
        ({"decoder_start_token_id": "5"}, "or else bos_token_id, is '5', and must be an id below"),
    ):
        (copy / "generation_config.json").write_text(json.dumps(generation | change))
        with pytest.raises(ValueError, match=message):
            zoo.load(copy)


@pytest.mark.parametrize("theirs", ["shared"], indirect=True)
def test_spaces_are_cleaned_up_if_the_settings_say_so(theirs, tmp_path):
    copy = shutil.copytree(theirs[2], tmp_path / "copy")
    for cleans in (False, True):
        (copy / "tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": cleans}))
        assert zoo.load(copy).target_tokenizer.clean_up_spaces == cleans


def test_an_output_matrix_that_is_no_copy_of_the_embedding(theirs, tmp_path):
    import safetensors.numpy

    copy = shutil.copytree(theirs[2], tmp_path / "copy")
    tensors = safetensors.numpy.load_file(copy / "model.safetensors")
    name = next(name for name in ("model.shared.weight", "model.decoder.embed_tokens.weight") if name in tensors)
    tensors["lm_head.weight"] = tensors[name].copy()
    safetensors.numpy.save_file(tensors, copy / "model.safetensors")
    whole = zoo.load(copy)
    embedding = tensors.pop(name)  # as `safetensors.torch.save_model` does
    safetensors.numpy.save_file(tensors, copy / "model.safetensors")
    for found, expected in zip(zoo.load(copy).model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    tensors[name] = embedding
    tensors["lm_head.weight"][3] *= 2
    safetensors.numpy.save_file(tensors, copy / "model.safetensors")
    with pytest.raises(ValueError, match=rf"lm_head\.weight and {name} differ"):
        zoo.load(copy)


@pytest.mark.parametrize("theirs", ["shared"], indirect=True)
def test_other_settings_of_the_generation_are_left_out_with_a_warning(theirs, tmp_path):
    copy = shutil.copytree(theirs[2], tmp_path / "copy")
    settings = {"do_sample": True, "forced_bos_token_id": 0, "suppress_tokens": [], "min_length": 0}
    (copy / "generation_config.json").write_text(json.dumps(settings))
    with pytest.warns(UserWarning, match=r"left out: \{'do_sample': True, 'forced_bos_token_id': 0\}"):
        zoo.load(copy)


@pytest.mark.parametrize("theirs", ["separate"], indirect=True)
def test_exported_it_gives_the_same(ours, tmp_path):
    """With two vocabularies; one is exported in `tests/serving`."""
    exported = zoo.load(zoo.serving.export(ours, tmp_path / "marian"))
    texts = [text for text in TEXTS if text]
    assert exported(texts) == ours(texts)
    raw = tf.saved_model.load(str(exported.path if hasattr(exported, "path") else tmp_path / "marian/1"))
    answer = raw.signatures["serving_default"](tf.constant(texts))
    assert [text.decode() for text in answer["text"].numpy()] == ours(texts)


def test_a_target_language_may_be_set(theirs, ours):
    with_language = load_checkpoint(theirs[2], target_language="deu")
    found, wanted = with_language.source_tokenizer, ours.source_tokenizer
    np.testing.assert_array_equal(
        found.tokenize(["a man", ">>deu<< a man"]), wanted.tokenize([">>deu<<a man", ">>deu<< a man"])
    )
    with pytest.raises(ValueError, match="`target_language` must be one of deu"):
        load_checkpoint(theirs[2], target_language="fra")
