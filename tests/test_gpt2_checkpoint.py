"""GPT-2 from a Hugging Face folder: the same weights in their places, the same text, and clear words if not."""

import json
import shutil
import warnings

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tokenizers

import zoo
from zoo.checkpoints.language_models import end_piece
from zoo.checkpoints.loading import load_checkpoint
from zoo.models import GPT
from zoo.testing.tasks import eagerly
from zoo.text import END, START

TEXTS = ["To be, or not to be, that is the question.", "Whether 'tis nobler in the mind to suffer", "ß 中 é"] * 3
SIZES = dict(n_embd=12, n_head=3, n_layer=2, n_positions=20)


def write_vocabulary(folder):
    """A vocabulary by the Rust library, with the end-of-text token last; its size."""
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS, 300, show_progress=False)
    trained.save_model(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    vocabulary["<|endoftext|>"] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return len(vocabulary)


def weights_of(model, pieces, sizes):
    """Our weights by the names, and in the shapes, of the checkpoint."""
    ours = {weight.path: weight.numpy() for weight in model.weights}
    width = sizes["n_embd"]
    weights = {"wte.weight": ours["embedding/embeddings"][4:], "wpe.weight": ours["positions/embeddings"]}
    weights |= {"ln_f.weight": ours["norm/gamma"], "ln_f.bias": ours["norm/beta"]}
    for i in range(sizes["n_layer"]):
        layer = {path.partition("/")[2]: array for path, array in ours.items() if path.startswith(f"layer_{i + 1}/")}
        attention = [layer[f"self_attention/{name}/kernel"].reshape(width, width) for name in ("query", "key", "value")]
        biases = [layer[f"self_attention/{name}/bias"].reshape(width) for name in ("query", "key", "value")]
        weights |= {
            f"h.{i}.ln_1.weight": layer["self_attention_norm/gamma"],
            f"h.{i}.ln_1.bias": layer["self_attention_norm/beta"],
            f"h.{i}.attn.c_attn.weight": np.concatenate(attention, axis=1),
            f"h.{i}.attn.c_attn.bias": np.concatenate(biases),
            f"h.{i}.attn.c_proj.weight": layer["self_attention/attention_output/kernel"].reshape(width, width),
            f"h.{i}.attn.c_proj.bias": layer["self_attention/attention_output/bias"],
            f"h.{i}.ln_2.weight": layer["feed_forward_norm/gamma"],
            f"h.{i}.ln_2.bias": layer["feed_forward_norm/beta"],
            f"h.{i}.mlp.c_fc.weight": layer["feed_forward/input/kernel"],
            f"h.{i}.mlp.c_fc.bias": layer["feed_forward/input/bias"],
            f"h.{i}.mlp.c_proj.weight": layer["feed_forward/output/kernel"],
            f"h.{i}.mlp.c_proj.bias": layer["feed_forward/output/bias"],
        }
    return {name: np.ascontiguousarray(array) for name, array in weights.items()}


@pytest.fixture(scope="module")
def original(tmp_path_factory, randomize):
    """A model, and a checkpoint's folder with its weights."""
    folder = tmp_path_factory.mktemp("gpt2")
    pieces = write_vocabulary(folder)
    model = randomize(GPT(4 + pieces, 12, 3, 2, 20), scale=0.3)
    safetensors.numpy.save_file(weights_of(model, pieces, SIZES), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": pieces, **SIZES}))
    return model, folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original[1], tmp_path / "gpt2")


@pytest.fixture(scope="module")
def loaded(original):
    return zoo.load(original[1])


def test_every_weight_is_in_its_place(original, loaded):
    model, _ = original
    ids = np.random.default_rng(0).integers(4, model.vocabulary_size - 1, (3, 20))
    ours, theirs = np.array(loaded.model(ids)), np.array(model(ids))
    np.testing.assert_allclose(ours[..., 4:-1], theirs[..., 4:-1], atol=1e-5)


def test_the_end_of_text_is_the_zoos_end_and_start(original, loaded):
    model, _ = original
    ids = np.array([[5, 9, 7]])
    ours, theirs = np.array(loaded.model(ids)), np.array(model(ids))
    np.testing.assert_allclose(ours[..., END], theirs[..., -1], atol=1e-5)
    assert (ours[..., [0, 1, 2, -1]] < -1e8).all()
    started = (
        np.array(loaded.model(np.array([[START, 5]]))),
        np.array(model(np.array([[model.vocabulary_size - 1, 5]]))),
    )
    np.testing.assert_allclose(started[0][..., 4:-1], started[1][..., 4:-1], atol=1e-5)


@pytest.mark.parametrize(("named", "end"), [("<|endoftext|>", "<|endoftext|>"), (None, "&"), ("!", "&")])
def test_of_several_ends_of_a_text_the_one_that_the_tokenizer_names_counts(folder, original, named, end):
    ends = [5, original[0].vocabulary_size - 5]  # "&" and "<|endoftext|>"
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": named}))
    chosen = ends[end == "<|endoftext|>"]
    with pytest.warns(UserWarning, match=rf"each of the tokens \[5, {ends[1]}\] ends a text. Here only {chosen} does;"):
        assert end_piece(zoo.load(folder)) == end


@pytest.mark.parametrize("text", ["To be, or", " Whether\n\n  'tis", "中文 ßé 😀", "<|endoftext|>"])
def test_ids_are_those_of_the_library(original, loaded, text):
    library = tokenizers.ByteLevelBPETokenizer(
        str(original[1] / "vocab.json"), str(original[1] / "merges.txt"), add_prefix_space=False
    )
    expected = [i + 4 for i in library.encode(text).ids]
    assert loaded.tokenizer.tokenize([text]).numpy()[0].tolist() == expected


def test_a_prompt_begins_without_a_start_token_and_an_empty_one_with_it(loaded):
    ids = loaded.tokenizer.tokenize(["To be"]).numpy()[0].tolist()
    rows = [ids, [START] + [0] * (len(ids) - 1)]
    np.testing.assert_array_equal(loaded._prompts(tf.constant(["To be", ""])), rows)


def test_a_score_begins_with_the_second_token(loaded, eager):
    ids = loaded.tokenizer.tokenize(["To be, or"]).numpy()
    logits = np.array(loaded.model(ids), "float64")[0]
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = logits[np.arange(ids.shape[1] - 1), ids[0, 1:]].sum()
    score, empty = loaded.score(["To be, or", ""])
    assert score.log_probability == pytest.approx(expected, abs=1e-4)
    assert (score.tokens, empty.tokens, empty.log_probability) == (ids.shape[1] - 1, 0, 0)


@pytest.mark.long
def test_saved_and_exported_it_is_the_same(loaded, tmp_path):
    again = zoo.load(loaded.save(tmp_path / "saved"))
    assert again.tokenizer.get_config() == loaded.tokenizer.get_config()
    assert [getattr(again, name) for name in again.SETTINGS] == [getattr(loaded, name) for name in again.SETTINGS]
    for one, other in zip(again.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    texts, settings = ["To be", "", "中"], {"max_new_tokens": 6, "seed": 3}
    exported = zoo.load(zoo.serving.export(loaded, tmp_path / "exported"))
    with eagerly():
        wanted = loaded.generate(texts, **settings)
    for found, expected in zip(exported.generate(texts, **settings), wanted, strict=True):
        assert (found.text, found.tokens) == (expected.text, expected.tokens)
        assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-3)


@pytest.fixture
def as_today(folder):
    """As `transformers` 5 saves it: the tokenizer in one file, large weights in several."""
    vocabulary = json.loads((folder / "vocab.json").read_text())
    end = vocabulary["<|endoftext|>"]
    tokenizer = tokenizers.ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert tokenizer.token_to_id("<|endoftext|>") == end
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    parts = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(weights)}
    for part in set(parts.values()):
        safetensors.numpy.save_file({name: weights[name] for name in weights if parts[name] == part}, folder / part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    for name in ("vocab.json", "merges.txt", "model.safetensors"):
        (folder / name).unlink()
    return folder


def test_as_transformers_saves_it_today(as_today, loaded):
    today = zoo.load(as_today)
    assert today.tokenizer.get_config() == loaded.tokenizer.get_config()
    for ours, theirs in zip(today.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_padding_token_that_was_added_later(folder, loaded):
    """No text gives it, and the model has no row for it."""
    pieces = len(json.loads((folder / "vocab.json").read_text()))
    (folder / "added_tokens.json").write_text(json.dumps({"[PAD]": pieces}))
    (folder / "tokenizer_config.json").write_text('{"pad_token": "[PAD]"}')
    assert zoo.load(folder).tokenizer.get_config() == loaded.tokenizer.get_config()


def test_tokens_that_the_generation_suppresses_are_never_predicted(folder, loaded):
    (folder / "generation_config.json").write_text('{"suppress_tokens": [3, 9]}')
    unused = zoo.load(folder).model.unused_ids
    assert unused[:4] == loaded.model.unused_ids[:4] and set(unused) - set(loaded.model.unused_ids) == {7, 13}
    (folder / "generation_config.json").write_text('{"suppress_tokens": [-1, 3, 9, 1000000]}')
    assert zoo.load(folder).model.unused_ids == unused
    (folder / "generation_config.json").write_text('{"suppress_tokens": ["a"]}')
    with pytest.raises(ValueError, match=r"generation_config\.json: suppress_tokens is \['a'\], and must be ids\.$"):
        zoo.load(folder)


def test_settings_of_the_generation_in_the_configuration(folder, loaded):
    """As in `transformers`, they count if there is no file of their own."""
    config = json.loads((folder / "config.json").read_text())
    settings = {"suppress_tokens": [3], "num_beams": 3, "no_repeat_ngram_size": 2}
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.warns(UserWarning, match=r"left out: \{'num_beams': 3, 'no_repeat_ngram_size': 2\}"):
        unused = zoo.load(folder).model.unused_ids
    assert set(unused) - set(loaded.model.unused_ids) == {7}
    (folder / "generation_config.json").write_text("{}")
    assert zoo.load(folder).model.unused_ids == loaded.model.unused_ids


def test_settings_of_the_generation_that_are_left_out_are_told(folder):
    settings = {"repetition_penalty": 1.1, "do_sample": True, "temperature": 0.7, "bad_words_ids": None}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    with pytest.warns(UserWarning, match="settings of the generation") as caught:
        zoo.load(folder)
    advice = (
        "give repetition_penalty=1.1 with each request "
        "(`zoo generate --repetition-penalty 1.1`, `zoo serve-client --set repetition_penalty=1.1`)"
    )
    assert str(caught[0].message).endswith(f"left out: {{'repetition_penalty': 1.1}}; {advice}.")
    off = {"num_beams": 1, "guidance_scale": None, "min_p": None, "typical_p": 1.0, "stop_strings": None}
    on = {"num_beams": 4, "guidance_scale": 1.5, "watermarking_config": {"bias": 2.5}, "min_p": 0.05}
    on |= {"stop_strings": ["."], "force_words_ids": [[5]]}
    (folder / "generation_config.json").write_text(json.dumps({**off, **on}))
    with pytest.warns(UserWarning, match="are left out") as caught:
        zoo.load(folder)
    assert repr(on) in str(caught[0].message)
    (folder / "generation_config.json").write_text(json.dumps(off))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zoo.load(folder)


def test_a_copy_of_the_tied_matrix(folder, loaded):
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["wte.weight"].copy()
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    np.testing.assert_array_equal(zoo.load(folder).model.get_weights()[0], loaded.model.get_weights()[0])
    del weights["wte.weight"]  # as `safetensors.torch.save_model` does
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    np.testing.assert_array_equal(zoo.load(folder).model.get_weights()[0], loaded.model.get_weights()[0])
    weights["wte.weight"] = weights["lm_head.weight"].copy()
    weights["lm_head.weight"][3, 2] += 1
    safetensors.numpy.save_file(weights, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"lm_head\.weight and wte\.weight differ, and by config\.json"):
        zoo.load(folder)


class TestFaults:
    def test_an_embedder_or_a_model_that_looks_ahead(self, folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"is_causal": False}))
        with pytest.raises(ValueError, match=r"is_causal is False; only True can be read"):
            zoo.load(folder)
        (folder / "modules.json").write_text("[]")
        with pytest.raises(ValueError, match=r"has a modules\.json, so it is an embedder"):
            zoo.load(folder)

    @pytest.mark.parametrize("name", ["model.safetensors", "vocab.json", "merges.txt"])
    def test_a_missing_file(self, folder, name):
        (folder / name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"is not a whole checkpoint: it has no {name}( .*)?\.$"):
            zoo.load(folder)

    def test_a_link_to_nothing(self, folder, tmp_path):
        (folder / "generation_config.json").symlink_to(tmp_path / "blobs" / "0123")
        with pytest.raises(FileNotFoundError, match=r"generation_config\.json is a link to a file that is not there"):
            load_checkpoint(folder)

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("adapter_config.json", "an adapter of PEFT, without the model .*; merge the two"),
            ("model-Q4_K_M.gguf", r"model-Q4_K_M\.gguf, the weights in llama\.cpp's format; the zoo reads model\.safe"),
            ("tf_model.h5", "the weights in TensorFlow's format"),
            ("flax_model.msgpack", "the weights in Flax's format"),
            ("model.onnx", r"model\.onnx, the weights in ONNX's format"),
            ("onnx/model.onnx", r"onnx/model\.onnx, the weights in ONNX's format"),
            ("model.bin", "the weights in CTranslate2's format"),
            (
                "model.safetensors.incomplete",
                r"safetensors\.incomplete, a download that has not ended; start it",
            ),
            (".cache/huggingface/download/ab.incomplete", "a download that has not ended; start it again"),
        ],
    )
    def test_weights_of_another_format(self, folder, name, told):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").rename(folder / name)
        with pytest.raises(FileNotFoundError, match=rf"it has no model\.safetensors .*\. It holds .*{told}"):
            zoo.load(folder)
        (folder / "config.json").unlink()
        with pytest.raises(FileNotFoundError, match=rf"{folder.name} holds .*{told}"):
            zoo.load(folder)

    def test_no_config(self, folder):
        (folder / "config.json").unlink()
        with pytest.raises(FileNotFoundError, match=r"it has no config\.json\.$"):
            load_checkpoint(folder)
        with pytest.raises(FileNotFoundError, match=rf"{folder.name} holds model\.safetensors, but no config\.json\.$"):
            zoo.load(folder)

    def test_parts_without_their_index(self, folder):
        (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
        told = r"It holds model-00001-of-00002\.safetensors, but no index and no model\.safetensors\.$"
        with pytest.raises(FileNotFoundError, match=told):
            zoo.load(folder)

    def test_weights_of_another_name(self, folder):
        (folder / "model.safetensors").rename(folder / "book.safetensors")
        with pytest.raises(FileNotFoundError, match=r"It holds book\.safetensors, but no index and no model\.safe"):
            zoo.load(folder)

    def test_a_part_that_is_missing(self, folder):
        (folder / "model.safetensors").rename(folder / "a.safetensors")
        index = {"weight_map": {"wte.weight": "a.safetensors", "wpe.weight": "b.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        told = r"it has no b\.safetensors, which model\.safetensors\.index\.json lists; download it too\.$"
        with pytest.raises(FileNotFoundError, match=told):
            zoo.load(folder)

    @pytest.mark.parametrize("size", [0, 5, 300, -1])
    def test_weights_that_are_cut_off(self, folder, size):
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:size])
        with pytest.raises(ValueError, match=r"model\.safetensors cannot be read: it is damaged or cut off .*; downl"):
            zoo.load(folder)

    def test_the_hub_and_its_cache(self, folder, tmp_path):
        snapshot = tmp_path / "models--gpt2" / "snapshots" / "0a1b"
        snapshot.parent.mkdir(parents=True)
        folder.rename(snapshot)
        with pytest.raises(FileNotFoundError, match=rf"holds no checkpoint, but {snapshot} may be one\.$"):
            zoo.load(tmp_path / "models--gpt2")
        told = r"^org/model does not exist; .* must be downloaded first: hf download org/model --local-dir FOLDER\.$"
        with pytest.raises(FileNotFoundError, match=told):
            zoo.load("org/model")

    @pytest.mark.parametrize("name", ["model.safetensors", "vocab.json", "config.json"])
    def test_a_broken_file(self, folder, name):
        (folder / name).write_bytes(b"{]")
        with pytest.raises(ValueError, match=r"cannot be read: "):
            zoo.load(folder)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model_type": "t5"}, r"model_type is 't5'; only marian, bert, .*, qwen3 can be read\.$"),
            (
                {"architectures": ["GPT2ForSequenceClassification"]},
                r"architectures is \['GPT2ForSeq.*fication'\]; only language models, .* can be read\.$",
            ),
            ({"add_cross_attention": True}, "add_cross_attention is True; only False can be read"),
            ({"layer_norm_epsilon": "1"}, r"layer_norm_epsilon is '1', and must be a number above 0\.$"),
            ({"transformers_weights": "b.safetensors"}, r"only 'model\.safetensors' can be read\.$"),
            ({"n_head": 0}, r"n_head is 0, and must be a whole number above 0\.$"),
            ({"n_head": 5}, r"config\.json asks for a model that cannot be built: The width D must be a multiple"),
            ({"activation_function": "mish"}, "activation_function is 'mish'; only gelu, gelu_new, "),
            ({"vocab_size": 9}, r"the tokenizer has \d+ pieces, and config\.json a vocab_size of 9\.$"),
            ({"n_layer": 3}, r"the weights lack h\.2\.ln_1\.weight, .* and others\.$"),
            ({"n_layer": 2_000_000_000}, r"n_layer is 2000000000, and must be at most 10,000\.$"),
            ({"model_type": ["gpt2"]}, r"model_type is \['gpt2'\]; only marian, bert, .* can be read\.$"),
            ({"scale_attn_weights": "false"}, r"scale_attn_weights is 'false', and must be true or false\.$"),
            ({"n_layer": 1}, r"the weights hold h\.1\..* and others, which a model of config\.json does not have\.$"),
            ({"n_positions": 21}, r"wpe\.weight has the shape \(20, 12\), and config\.json asks for \(21, 12\)\.$"),
            ({"n_embd": 15}, r"wte\.weight has the shape \(\d+, 12\), and config\.json asks for \(\d+, 15\)\.$"),
            ({"n_embd": 10**9}, r"asks for \(\d+, 1000000000\)\.$"),
            ({"eos_token_id": -1}, r"eos_token_id is -1, and must be an id\.$"),
        ],
    )
    def test_files_that_do_not_fit(self, folder, changes, message):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ValueError, match=message):
            zoo.load(folder)

    def test_a_config_that_lacks_something(self, folder):
        (folder / "config.json").write_text('{"model_type": "gpt2", "n_embd": 12}')
        with pytest.raises(ValueError, match=r"config\.json lacks n_layer\.$"):
            zoo.load(folder)

    def test_an_end_beyond_the_vocabulary(self, folder, loaded):
        config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": 50_256}
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.warns(UserWarning, match=r"eos_token_id is 50256, .* Here <\|endoftext\|>, its end of text, ends"):
            again = zoo.load(folder)
        ids = np.array([[START, 5, 9]])
        np.testing.assert_array_equal(np.array(again.model(ids)), np.array(loaded.model(ids)))

    def test_an_end_that_its_model_alone_knows(self, folder):
        """It would end a text by an id that the model never learnt to end with."""
        tensors = safetensors.numpy.load_file(folder / "model.safetensors")
        name = next(each for each in tensors if each.endswith("wte.weight"))
        pieces = len(tensors[name])
        tensors[name] = np.concatenate([tensors[name], tensors[name][:1]])
        safetensors.numpy.save_file(tensors, folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text()) | {"vocab_size": pieces + 1, "eos_token_id": pieces}
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=rf"eos_token_id is {pieces}, which is no id of its tokenizer\.$"):
            zoo.load(folder)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({}, r"the tokenizer has no piece '<\|endoftext\|>'"),
            ({"eos_token_id": 50_256}, r"eos_token_id is 50256, which is no id of its tokenizer\.$"),
        ],
    )
    def test_a_vocabulary_without_its_end(self, folder, changes, message):
        vocabulary = json.loads((folder / "vocab.json").read_text())
        del vocabulary["<|endoftext|>"]
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ValueError, match=message):
            zoo.load(folder)

    def test_a_vocabulary_without_its_start(self, folder):
        settings = {"add_bos_token": True, "bos_token": "<s>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(ValueError, match=rf"^{folder}: the tokenizer has no piece '<s>'\.$"):
            zoo.load(folder)

    def test_weights_that_are_not_finite(self, folder):
        weights = safetensors.numpy.load_file(folder / "model.safetensors")
        for wrong in (np.full(48, np.nan, "float32"), np.full(48, 1e39)):  # the second one is infinite in float32
            safetensors.numpy.save_file(weights | {"h.1.mlp.c_fc.bias": wrong}, folder / "model.safetensors")
            with pytest.raises(ValueError, match=r"gpt2: h\.1\.mlp\.c_fc\.bias holds NaN or infinity; the "):
                zoo.load(folder)

    def test_two_names_of_the_same_tensor(self, folder):
        weights = safetensors.numpy.load_file(folder / "model.safetensors")
        weights["transformer.ln_f.bias"] = weights["ln_f.bias"] + 1
        safetensors.numpy.save_file(weights, folder / "model.safetensors")
        told = r"gpt2: the weights hold ln_f\.bias and transformer\.ln_f\.bias, which are names of the same tensor\.$"
        with pytest.raises(ValueError, match=told):
            zoo.load(folder)

    def test_an_added_token_that_the_model_never_saw(self, folder):
        pieces = len(json.loads((folder / "vocab.json").read_text()))
        token = {"content": "<|user|>", "special": False}
        settings = {"added_tokens_decoder": {str(pieces): token}}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        message = rf"gpt2: the tokenizer has {pieces + 1} pieces, and config\.json a vocab_size of {pieces}\.$"
        with pytest.raises(ValueError, match=message):
            zoo.load(folder)
        (folder / "tokenizer_config.json").unlink()
        (folder / "added_tokens.json").write_text(json.dumps({"<|user|>": pieces}))
        with pytest.raises(ValueError, match=message):
            zoo.load(folder)

    @pytest.mark.parametrize("file", ["tokenizer.json", "model.safetensors", "pytorch_model.bin"])
    def test_another_family_is_named(self, tmp_path, file):
        (tmp_path / file).touch()
        (tmp_path / "config.json").write_text('{"model_type": "t5"}')
        with pytest.raises(ValueError, match=r"config\.json: model_type is 't5'; only marian, bert, "):
            zoo.load(tmp_path)

    def test_weights_that_are_no_file_of_pytorch(self, folder):
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        with pytest.raises(ValueError, match=r"pytorch_model\.bin cannot be read: "):
            zoo.load(folder)

    @pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd"])
    def test_an_index_that_leads_out_of_the_folder(self, folder, name):
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte.weight": name}}))
        with pytest.raises(ValueError, match=r"index\.json must name files of its folder"):
            zoo.load(folder)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"normalizer": {"type": "NFKC"}}, r"the normalizer 'NFKC' cannot be read"),
            ({"pre_tokenizer": {"type": "Whitespace"}}, r"the pre-tokenizer 'Whitespace' cannot be read"),
            ({"model": {"type": "Unigram"}}, "its model is 'Unigram'; only 'BPE' can be read"),
        ],
    )
    def test_a_tokenizer_that_cuts_texts_otherwise(self, as_today, changes, message):
        content = json.loads((as_today / "tokenizer.json").read_text())
        (as_today / "tokenizer.json").write_text(json.dumps(content | changes))
        with pytest.raises(ValueError, match=rf"tokenizer\.json cannot be read: {message}$"):
            zoo.load(as_today)
