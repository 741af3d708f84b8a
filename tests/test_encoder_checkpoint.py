"""A folder of BERT that is not whole or does not fit together; `test_encoder_peers.py` reads whole ones."""

import json
import warnings

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import typer.testing
from zoo_training.classification import prepare
from zoo_training.cli import app
from zoo_training.schema.recipe import read_recipe

import zoo
from zoo.checkpoints import encoders
from zoo.checkpoints.loading import load_checkpoint
from zoo.checkpoints.pytorch_file import StoredArray
from zoo.checkpoints.tensors import Tensor, check_tensors
from zoo.text import BytePairTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"]
CONFIG = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "vocab_size": 8,
    "hidden_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 4,
    "max_position_embeddings": 9,
}
DENSE = {"attention.self.query": (6, 6), "attention.self.key": (6, 6), "attention.self.value": (6, 6)}
DENSE |= {"attention.output.dense": (6, 6), "intermediate.dense": (4, 6), "output.dense": (6, 4)}


def weights():
    shapes = {"embeddings.word_embeddings.weight": (8, 6), "embeddings.position_embeddings.weight": (9, 6)}
    shapes |= {"embeddings.token_type_embeddings.weight": (2, 6)}
    for name, shape in DENSE.items():
        shapes |= {f"encoder.layer.0.{name}.weight": shape, f"encoder.layer.0.{name}.bias": shape[:1]}
    # As the first checkpoints name them.
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        shapes |= {f"{name}.LayerNorm.gamma": (6,), f"{name}.LayerNorm.beta": (6,)}
    shapes = {f"bert.{name}": shape for name, shape in shapes.items()}
    shapes |= {"bert.pooler.dense.weight": (6, 6), "bert.pooler.dense.bias": (6,)}
    shapes |= {"classifier.weight": (2, 6), "classifier.bias": (2,), "cls.seq_relationship.bias": (2,)}
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    safetensors.numpy.save_file(weights(), tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.usefixtures("eager")
def test_a_whole_one(folder):
    classifier = zoo.load(folder)
    assert (classifier.labels, classifier.max_length) == (["LABEL_0", "LABEL_1"], 9)
    assert classifier.tokenizer.tokens([[4, 5, 6, 7]]).numpy()[0].tolist() == [b"[MASK]", b"a", b"b", b"##b"]
    (found,) = classifier.classify(["abb"])
    assert sum(found.probabilities.values()) == pytest.approx(1)


def test_the_command_exports_it_as_a_classifier_of_pairs(folder, tmp_path, monkeypatch):
    """What is exported; that an export of pairs answers as the classifier does is tested with the tasks."""
    given = []
    monkeypatch.setattr("zoo_training.imported.export_imported", lambda *given_: given.append(given_) or "THERE/1")
    done = typer.testing.CliRunner().invoke(app, ["export", str(folder), "--pairs", "--to", str(tmp_path / "pairs")])
    assert (done.exit_code, done.stdout) == (0, "THERE/1\n"), done.output
    [(task, _, path, weights, explore)] = given
    assert (task.pairs, path, weights, explore) == (True, tmp_path / "pairs", "float32", False)
    loaded = zoo.load(folder)
    assert (task.labels, task.max_length) == (loaded.labels, loaded.max_length)
    for one, other in zip(task.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_a_training_starts_from_it(folder, tmp_path):
    """With other labels its encoder is taken, and the head is new."""
    (tmp_path / "texts.tsv").write_text("".join(f"{text}\t{len(text)}\n" for text in ["a", "bb", "abb"] * 20))
    (tmp_path / "mine.toml").write_text(
        f'[corpus]\nkind = "labels"\ntrain = "texts.tsv"\nvalidation = "texts.tsv"\ntest = "texts.tsv"\n'
        f'[model]\nfamily = "classifier"\nstart = "{folder}"\npooling = "first"\n'
    )
    prepared = prepare(read_recipe(str(tmp_path / "mine.toml")))
    for one, other in zip(prepared.model.encoder.get_weights(), zoo.load(folder).encoder.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert prepared.task.labels == ["1", "2", "3"]


def test_an_endless_list_of_tensors(tmp_path):
    """As by `num_hidden_layers: 1000000000`. A few more or fewer layers are all compared."""

    def layers(number):
        for layer in range(number):
            assert layer < 100, "it goes through all"
            yield Tensor(f"layer.{layer}", (2,), None)
        yield Tensor("head", (2,), None)

    stored = {name: StoredArray((2,), None) for name in ("layer.0", "head")}
    with pytest.raises(ValueError, match=r"lack layer\.1, layer\.2, layer\.3 and others\.$"):
        check_tensors(tmp_path, stored, layers(10**9))
    with pytest.raises(ValueError, match=r"lack layer\.1\.$"):
        check_tensors(tmp_path, stored, layers(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'; only 'absolute'"),
        ({"is_decoder": True}, "is_decoder is True; only False"),
        ({"is_causal": True}, "is_causal is True; only False"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'; only gelu, "),
        ({"num_attention_heads": 4}, "asks for a model that cannot be built: .*multiple of `num_heads`"),
        ({"hidden_size": 10**9}, r"has the shape \(8, 6\), and config\.json asks for \(8, 1000000000\)"),
        ({"vocab_size": 10**9}, r"has the shape \(8, 6\), and config\.json asks for \(1000000000, 6\)"),
        ({"vocab_size": 7}, r"the tokenizer has 8 pieces, and config\.json a vocab_size of 7\."),
        ({"num_hidden_layers": 9999}, r"the weights lack encoder.layer.1.attention.self.query\.\w+, .* and others\.$"),
        ({"architectures": ["BertForQuestionAnswering"]}, "only models that end in ForSequenceClassification, "),
        ({"architectures": ["BertLMHeadModel"]}, r"architectures is \['BertLMHeadModel'\]; only models that end in"),
        ({"architectures": [3]}, r"architectures is \[3\], and must be a list of names"),
        (
            {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": False},
            "tie_word_embeddings is False; only True",
        ),
        ({"architectures": ["BertForMaskedLM"]}, "the weights lack cls.predictions.transform.dense.weight"),
        ({"num_labels": 10**9}, "num_labels is 1000000000, and must be at most 100,000"),
        ({"id2label": {"0": "only"}}, r"id2label is .* of two classes or more; a model with one output \(regression\)"),
        ({"id2label": {"0": "a", "1": "a"}}, "id2label is .* different strings"),
        ({"id2label": {"0": 0, "1": 1}}, "id2label is .* different strings"),
        ({"model_type": None}, "model_type is None; only marian, bert, "),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "quantization_config is .* only weights that are not quantised",
        ),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label is .* names by the numbers 0, 1, 2 and so on"),
        ({"problem_type": "regression"}, "problem_type is 'regression'; only classification can be read"),
    ],
)
def test_a_configuration_that_cannot_be_read(folder, changes, message):
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    with pytest.raises(ValueError, match=message):
        zoo.load(folder)


def test_weights_that_do_not_fit(folder):
    file = folder / "model.safetensors"
    safetensors.numpy.save_file(weights() | {"bert.encoder.adapter": np.ones(3, "float32")}, file)
    with pytest.raises(ValueError, match=r"the weights hold encoder\.adapter, which a model of config\.json"):
        zoo.load(folder)
    safetensors.numpy.save_file(weights() | {"classifier.bias": np.array([1, np.nan], "float32")}, file)
    with pytest.raises(ValueError, match=r"classifier\.bias holds NaN or infinity"):
        zoo.load(folder)
    norm = "bert.embeddings.LayerNorm"
    safetensors.numpy.save_file(weights() | {f"{norm}.weight": np.ones(6, "float32")}, file)
    with pytest.raises(ValueError, match=rf"hold {norm}\.gamma and {norm}\.weight, which are names of the same tensor"):
        zoo.load(folder)
    safetensors.numpy.save_file(weights() | {"classifier.bias": np.array([1, 2], "int8")}, file)
    with pytest.raises(ValueError, match=r"classifier\.bias holds int8; quantised weights cannot be read"):
        zoo.load(folder)
    eight_bits = weights() | {"classifier.bias": np.array([1, 2], ml_dtypes.float8_e4m3fn)}
    safetensors.numpy.save_file(eight_bits, file)
    with pytest.raises(ValueError, match=r"safetensors: classifier\.bias cannot be read: its numbers are F8_E4M3"):
        zoo.load(folder)
    of_peft = {f"base_model.model.{name}": array for name, array in weights().items()}
    safetensors.numpy.save_file(of_peft, file)
    with pytest.raises(ValueError, match=r"the weights lack .* and others; they hold base_model\.model\.bert\."):
        zoo.load(folder)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        zoo.load(folder)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_text_that_is_cut_at_its_beginning_is_told(folder, side):
    (folder / "tokenizer_config.json").write_text(json.dumps({"truncation_side": side}))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        zoo.load(folder)
    assert any("cuts long texts at their beginning" in str(each.message) for each in told) == (side == "left")


def test_an_adapter_beside_the_weights_is_told(folder):
    (folder / "adapter_config.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"the adapter of adapter_config\.json is left out"):
        zoo.load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"is not a whole checkpoint: .* It holds an adapter of PEFT"):
        load_checkpoint(folder)


def test_a_head_that_no_architecture_names(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG | {"architectures": None}))
    with pytest.warns(UserWarning, match=r"has no `architectures` in config\.json, so a head is left out"):
        assert isinstance(zoo.load(folder), zoo.TextEmbedder)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*PIECES, "", "a \u2028"], r"vocab\.txt cannot be read: lines 6 and 10 have the same piece, 'a'"),
    ],
)
def test_a_list_of_pieces_that_cannot_be_read(folder, lines, message):
    (folder / "vocab.txt").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=message):
        zoo.load(folder)


@pytest.mark.parametrize("name", ["vocab.txt", "model.safetensors"])
def test_a_missing_file(folder, name):
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "vocab.json").touch()  # so that the folder still looks like a checkpoint
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match="is not a whole checkpoint: it has no "):
        zoo.load(folder)


# Folders of sentence-transformers.


def modules(folder, kinds, pooling, places):
    content = [
        {"type": f"sentence_transformers.models.{kind}", "path": place}
        for kind, place in zip(kinds, places, strict=True)
    ]
    (folder / "modules.json").write_text(json.dumps(content))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


PLACES = ["", "1_Pooling"]
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"embedding_dimension": 6, "pooling_mode": "cls", "include_prompt": True}, "first"),
        ({"pooling_mode": ["max"]}, "max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}, "mean"),
    ],
)
def test_a_pooling_of_new_and_old_files(folder, pooling, expected):
    modules(folder, ["Transformer", "Pooling"], pooling, PLACES)
    assert zoo.load(folder).model.pooling == expected


@pytest.mark.parametrize(
    ("settings", "limit"),
    [({"max_len": 6}, 6), ({"max_len": 6, "model_max_length": 7}, 7), ({"max_len": 512}, 9)],
)
def test_the_length_of_first_checkpoints(folder, settings, limit):
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert zoo.load(folder).max_length == limit


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert"])
def test_an_embedder_and_its_length(folder, name):
    modules(folder, ["Transformer", "Pooling", "Normalize"], MEAN, [*PLACES, "2_Normalize"])
    (folder / f"sentence_{name}_config.json").write_text('{"max_seq_length": 7}')
    embedder = zoo.load(folder)
    assert (embedder.max_length, embedder.model.pooling, embedder.model.normalize) == (7, "mean", True)
    assert np.linalg.norm(embedder(["abb"])) == pytest.approx(1)


def test_what_sentence_transformers_does_to_a_text_first(folder):
    modules(folder, ["Transformer", "Pooling"], MEAN, PLACES)
    prompts = {"prompts": {"query": "query: ", "none": ""}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.warns(UserWarning, match="puts 'query: ' before each text"):
        zoo.load(folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts | {"default_prompt_name": "none"}))
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    zoo.load(folder)  # the tokenizer removes capitals, too
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(ValueError, match="do_lower_case is True, and the tokenizer keeps capitals"):
        zoo.load(folder)


@pytest.mark.parametrize(
    ("kinds", "pooling", "places", "message"),
    [
        ("Transformer Pooling Dense", MEAN, ["", "1_Pooling", "2_Dense"], "modules are Transformer, Pooling, Dense"),
        ("Pooling", MEAN, ["1_Pooling"], "modules are Pooling; only"),
        ("Transformer Pooling", MEAN, ["", "../1_Pooling"], "the paths must be the folder itself and one inside it"),
        ("Transformer Pooling", MEAN | {"pooling_mode_cls_token": True}, PLACES, "the pooling is mean, cls; one of"),
        ("Transformer Pooling", {"pooling_mode_lasttoken": True}, PLACES, "the pooling is pooling_mode_lasttoken; one"),
        ("Transformer Pooling", {"pooling_mode": "lasttoken"}, PLACES, "the pooling is lasttoken; one of"),
        ("Transformer Pooling", {"pooling_mode": ["cls", "mean"]}, PLACES, "the pooling is cls, mean; one of"),
    ],
)
def test_modules_that_cannot_be_read(folder, kinds, pooling, places, message):
    modules(folder, kinds.split(), pooling, places)
    with pytest.raises(ValueError, match=message):
        zoo.load(folder)


def test_a_bare_encoder_is_an_embedder_with_a_warning(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG | {"architectures": ["BertModel"]}))
    with pytest.warns(UserWarning, match=r"has no head and no modules\.json\. Its embeddings are the mean"):
        embedder = zoo.load(folder)
    assert (type(embedder), embedder.model.normalize) == (zoo.TextEmbedder, False)


def test_special_tokens_of_robertas_two_files(tmp_path):
    byte, *others = BytePairTokenizer.learn([""], 260).get_config()["vocabulary"]
    pieces = [byte, "<pad>", *others, "<unk>", "<c>", "<d>", "<mask>"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: id_ for id_, piece in enumerate(pieces)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": "<c>", "sep_token": {"content": "<d>"}}')
    # The ids plus 4, in the order of padding, unknown, start, end.
    assert encoders._of_byte_pairs(tmp_path, len(pieces)).unused == [5, 261, 262, 263]
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": "<c>"}')
    with pytest.raises(ValueError, match=rf"^{tmp_path}: The vocabulary has no piece '</s>'\.$"):
        encoders._of_byte_pairs(tmp_path, len(pieces))
    (tmp_path / "special_tokens_map.json").write_text('{"cls_token": "<c>", "sep_token": {"content": "<d>"}}')
    for first, second in (("<d>", "<mask>"), ("<mask>", "<d>")):
        pieces = ["<c>", first, "<pad>", "<unk>", second, byte, *others]
        (tmp_path / "vocab.json").write_text(json.dumps({piece: id_ for id_, piece in enumerate(pieces)}))
        with pytest.raises(ValueError, match=f"{first} has the id 1, which must be that of the padding or of a token"):
            encoders._of_byte_pairs(tmp_path, len(pieces))
