"""A folder of Marian that is not whole or does not fit together; `test_marian_peers.py` reads whole ones."""

import io
import json

import numpy as np
import pytest
import safetensors.numpy
import sentencepiece

import zoo

CONFIG = {
    "model_type": "marian",
    "vocab_size": 14,
    "d_model": 6,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 4,
    "decoder_ffn_dim": 4,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "pad_token_id": 13,
    "decoder_start_token_id": 13,
    "eos_token_id": 0,
    "activation_function": "swish",
}


@pytest.fixture(scope="module")
def model():
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab abc bc"] * 9),
        model_writer=content,
        vocab_size=13,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return content.getvalue()


@pytest.fixture
def folder(tmp_path, model):
    """All but the weights."""
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(model)
    (tmp_path / "vocab.json").write_text(
        json.dumps({p: i for i, p in enumerate(["</s>", "<unk>", *"abcdefghijk", "<pad>"])})
    )
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "pytorch_model.bin").touch()
    return tmp_path


@pytest.mark.parametrize("name", ["config.json", "pytorch_model.bin", "model.safetensors"])
def test_a_pointer_of_git_lfs(folder, name):
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 298763\n")
    with pytest.raises(ValueError, match=f"{name} is a pointer of git-lfs, not the file itself; run `git lfs pull`"):
        zoo.load(folder)


def test_the_vocabulary_is_read_before_the_weights(folder):
    with pytest.raises(ValueError, match=r"pytorch_model\.bin cannot be read: it is empty"):
        zoo.load(folder)


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json", "pytorch_model.bin"])
def test_a_missing_file(folder, name):
    (folder / "tokenizer.json").touch()  # so that the folder still looks like a checkpoint
    (folder / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=rf"is not a whole checkpoint: it has no (model.safetensors or )?{name}\.$"
    ):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "mish"}, "activation_function is 'mish'; only gelu, "),
        ({"normalize_before": True}, "normalize_before is True; only False can be read"),
        ({"add_final_layer_norm": True}, "add_final_layer_norm is True; only False"),
        ({"normalize_embedding": True}, "normalize_embedding is True; only False"),
        ({"static_position_embeddings": False}, "static_position_embeddings is False; only True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; only True"),
        ({"decoder_attention_heads": 3}, "decoder_attention_heads is 3; only 2 can be read"),
        ({"decoder_ffn_dim": 5}, "decoder_ffn_dim is 5; only 4 can be read"),
        ({"eos_token_id": 2}, "eos_token_id is 2, and must be 0, the id of </s> in vocab.json"),
        ({"decoder_start_token_id": 14}, "decoder_start_token_id, or else bos_token_id, is 14, and must be"),
        ({"vocab_size": 13}, r"vocab\.json has 14 pieces, and config\.json asks for 13\."),
        ({"d_model": None}, r"config\.json lacks d_model\."),
        ({"share_encoder_decoder_embeddings": False}, r"it has no target_vocab\.json\."),
    ],
)
def test_a_configuration_that_cannot_be_read(folder, changes, message):
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ([1], "must hold pieces with the ids 0, 1, 2 and so on, each once"),
        ({"</s>": 0, "<unk>": 0}, "must hold pieces with the ids 0, 1, 2 and so on, each once"),
        ({"</s>": 0, "<unk>": "1"}, "must hold pieces with the ids 0, 1, 2 and so on, each once"),
        ({"</s>": 0, "a": 1}, "has no piece '<unk>'"),
        ({"<unk>": 0, "a": 1}, "has no piece '</s>'"),
    ],
)
def test_a_vocabulary_that_cannot_be_read(folder, vocabulary, message):
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(ValueError, match=rf"vocab\.json {message}"):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "must hold an object. It holds a list"),
        ({"num_beams": "4"}, "of the generation must be numbers. They are 512, '4' and 1.0"),
        ({"num_beams": 0}, "num_beams of the generation must be above 0. It is 0."),
        ({"max_length": 1}, "max_length of the generation must be above 1. It is 1."),
        ({"length_penalty": -1.0}, "length_penalty of the generation must be from 0 to 10. It is -1.0."),
        ({"bad_words_ids": [13]}, r"bad_words_ids of the generation must be lists of ids\. Received: \[13\]"),
        ({"bos_token_id": 14}, "decoder_start_token_id, or else bos_token_id, is 14, and must be an id below 14"),
        ({"early_stopping": "soon"}, "of the generation must be true, false or 'never', not 'soon'"),
    ],
)
def test_a_generation_that_cannot_be_read(folder, content, message):
    (folder / "generation_config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        zoo.load(folder)


def test_tokens_that_are_in_no_vocabulary(folder):
    (folder / "added_tokens.json").write_text('{"<new>": 14}')
    with pytest.raises(ValueError, match="adds the tokens <new>, which are in no vocabulary file"):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        ("tokenizer_config", {"eos_token": "a"}, "eos_token is 'a'; only '</s>' can be read"),
        (
            "special_tokens_map",
            {"unk_token": {"content": "b"}},
            "unk_token is 'b'; only '<unk>' can be read",
        ),
        (
            "tokenizer_config",
            {"separate_vocabs": True},
            r"has separate_vocabs = true, but by config\.json",
        ),
    ],
)
def test_a_tokenizer_that_cannot_be_read(folder, file, settings, message):
    (folder / f"{file}.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=message):
        zoo.load(folder)


def test_tensors_that_are_missing(folder):
    (folder / "pytorch_model.bin").unlink()
    safetensors.numpy.save_file({"model.shared.weight": np.zeros((14, 6), "float32")}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"the weights lack final_logits_bias, .* and others\."):
        zoo.load(folder)
