"""Imported language models against `transformers`' own, with random weights that it wrote to disk."""

import json
import pathlib
import re
import warnings

import numpy as np
import pytest

import zoo
from zoo.checkpoints.config import ACTIVATIONS
from zoo.layers.feed_forward import activation_function

pytestmark = pytest.mark.peers

TEXTS = ["To be, or not to be, that is the question: ß 中 é 42", "Whether 'tis nobler in the mind to suffer"] * 9
PROMPTS = ["To be, or", "Whether", "中", " ß question: that", "4 8 15", "the mind", "é", "or not"]
END = "<|endoftext|>"
NEW_TOKENS = 20
TIE = 1e-4  # two logits that differ by less may be in either order
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 3.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
_GPT2 = {"n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 64}
_NEO = {"hidden_size": 24, "num_heads": 3, "max_position_embeddings": 48, "intermediate_size": 40}
_LAYERS = {"hidden_size": 40, "num_attention_heads": 5, "num_hidden_layers": 2, "intermediate_size": 36}
_LAYERS |= {"max_position_embeddings": 64}
_KINDS = ["full_attention", "sliding_attention"]
# Three configurations or more of every family, whose sizes differ from one another.
CONFIGS = {
    "gpt2": ("GPT2", {**_GPT2, "n_inner": 100}),
    "gpt2 relu": ("GPT2", {**_GPT2, "activation_function": "relu", "layer_norm_epsilon": 0.01}),
    "gpt2 scaled by layer": ("GPT2", {**_GPT2, "scale_attn_by_inverse_layer_idx": True}),
    "gpt2 without scale": ("GPT2", {**_GPT2, "scale_attn_weights": False}),
    "gpt_neo": ("GPTNeo", {**_NEO, "num_layers": 4, "attention_types": [[["global", "local"], 2]], "window_size": 5}),
    "gpt_neo local": ("GPTNeo", {**_NEO, "num_layers": 2, "attention_types": [[["local"], 2]], "window_size": 3}),
    "gpt_neo mixed": (
        "GPTNeo",
        {**_NEO, "num_layers": 3, "attention_types": [[["global"], 1], [["local"], 2]], "activation_function": "gelu"},
    ),
    "gpt_neox": ("GPTNeoX", {**_LAYERS, "rotary_pct": 0.25}),
    "gpt_neox sequential": ("GPTNeoX", {**_LAYERS, "use_parallel_residual": False, "rotary_pct": 1.0}),
    "gpt_neox tied": ("GPTNeoX", {**_LAYERS, "tie_word_embeddings": True, "rotary_pct": 0.5, "hidden_act": "relu"}),
    "llama": ("Llama", {**_LAYERS, "num_key_value_heads": 1, "rms_norm_eps": 0.01}),
    "llama 3": ("Llama", {**_LAYERS, "head_dim": 16, "rope_parameters": {**LLAMA3, "rope_theta": 500.0}}),
    "llama tied": (
        "Llama",
        {
            **_LAYERS,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
        },
    ),
    "llama biases": (
        "Llama",
        {**_LAYERS, "num_key_value_heads": 1, "head_dim": 6, "attention_bias": True, "mlp_bias": True},
    ),
    "llama biases of attention": (
        "Llama",
        {**_LAYERS, "num_key_value_heads": 1, "attention_bias": True, "hidden_act": "swish"},
    ),
    "llama biases of the rest": ("Llama", {**_LAYERS, "mlp_bias": True, "hidden_act": "gelu"}),
    "mistral": ("Mistral", {**_LAYERS, "num_key_value_heads": 5, "sliding_window": 4, "head_dim": 6}),
    "mistral with full layers": (
        "Ministral",
        {**_LAYERS, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 4, "layer_types": _KINDS},
    ),
    "qwen2": ("Qwen2", {**_LAYERS, "num_key_value_heads": 5}),
    "qwen2 tied": ("Qwen2", {**_LAYERS, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen2 windows": (
        "Qwen2",
        {**_LAYERS, "num_key_value_heads": 1, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {**_LAYERS, "num_key_value_heads": 1, "head_dim": 12}),
    "qwen3 biases": ("Qwen3", {**_LAYERS, "num_key_value_heads": 1, "head_dim": 6, "attention_bias": True}),
}
MANY = ("gpt2", "gpt_neo", "gpt_neox", "llama", "qwen2")


@pytest.fixture(scope="module", params=CONFIGS)
def theirs(request, tmp_path_factory):
    """Their model and tokenizer, and the folder that both were written to."""
    import tokenizers
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("model")
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS, 400, special_tokens=[END], show_progress=False)
    trained.save(str(folder / "tokenizer.json"))
    end, (name, sizes) = trained.token_to_id(END), CONFIGS[request.param]
    torch.set_num_threads(1)  # in models this small, threads mostly wait for one another
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=trained.get_vocab_size() + 3,  # some checkpoints are padded
        initializer_range=0.2,
        bos_token_id=end,
        eos_token_id=end,
        **sizes,
    )
    model = getattr(transformers, f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases and norms, which would be zeros and ones
                parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    if name == "Ministral":  # `transformers` reads a Mistral with `layer_types` as a Ministral
        content = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(content | {"model_type": "mistral"}))
    return model, trained, folder


@pytest.fixture(scope="module")
def ours(theirs):
    """The same, imported."""
    return zoo.load(theirs[2])


def test_logits(theirs, ours):
    import torch

    model, _, _ = theirs
    ids = np.random.default_rng(0).integers(1, model.config.vocab_size - 3, (3, 40))
    with torch.no_grad():
        expected = model(torch.tensor(ids)).logits.numpy()
    found = np.array(ours.model(ids + 4))[..., 4:]
    rows = slice(1, model.config.vocab_size - 3)  # but for the end of text and the padding of the vocabulary
    np.testing.assert_allclose(found[..., rows], expected[..., rows], atol=1e-4)


def continued(model, tokenizer, prompts):
    """Their greedy text for each prompt, and the least difference between the two best logits of any of its steps."""
    import torch

    end = model.config.eos_token_id
    padding = list(range(model.config.vocab_size - 3, model.config.vocab_size))
    encoded = [each.ids for each in tokenizer.encode_batch(list(prompts))]
    found = {}
    for length in {len(ids) for ids in encoded}:  # without padding, which costs accuracy
        rows = [row for row, ids in enumerate(encoded) if len(ids) == length]
        ids = torch.tensor([encoded[row] for row in rows])
        with torch.no_grad():
            result = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                pad_token_id=end,
                suppress_tokens=padding,
                return_dict_in_generate=True,
                output_scores=True,
            )
        likelier, other = torch.stack(result.scores).topk(2).values.unbind(2)  # (T, B)
        written = result.sequences[:, length:].tolist()
        for row, new, gaps in zip(rows, written, (likelier - other).T, strict=True):
            steps = new.index(end) + 1 if end in new else len(new)
            text = tokenizer.decode([id_ for id_ in new if id_ != end], skip_special_tokens=False)
            found[row] = text, gaps[:steps].min().item()
    return [found[row] for row in range(len(encoded))]


@pytest.mark.parametrize("theirs", ["mistral", "qwen3"], indirect=True)
def test_greedy_texts(theirs, ours):
    """Of these two families a few, since the test of 500 prompts has one of each kind."""
    model, tokenizer, _ = theirs
    expected = [text for text, _ in continued(model, tokenizer, PROMPTS)]
    assert ours(PROMPTS, max_new_tokens=NEW_TOKENS, temperature=0) == expected


@pytest.mark.parametrize("theirs", MANY, indirect=True)
def test_greedy_texts_of_500_prompts(theirs, ours):
    """Beginnings of sentences of Python's help. Where two logits tie, texts may differ; a warning shows them."""
    from pydoc_data.topics import topics

    model, tokenizer, _ = theirs
    sentences = re.split(r"(?<=[.!?]) ", " ".join(" ".join(topics.values()).split()))
    prompts = PROMPTS + [sentence[: 3 + number % 22] for number, sentence in enumerate(sentences[:500])]
    found = ours(prompts, max_new_tokens=NEW_TOKENS, temperature=0)
    wrong = []
    for prompt, text, (expected, gap) in zip(prompts, found, continued(model, tokenizer, prompts), strict=True):
        if text != expected and gap < TIE:
            warnings.warn(f"a tie of {gap:.1e} after {prompt!r}: ours {text!r}, theirs {expected!r}", stacklevel=1)
        elif text != expected:
            wrong.append((prompt, text, expected, gap))
    assert not wrong


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before PyTorch 1.6"])
def test_weights_in_files_of_pytorch(theirs, ours, zipped, tmp_path):
    """In two files with an index; half of them in half precision."""
    import shutil

    import torch

    model, _, folder = theirs
    if model.config.model_type not in ("gpt_neox", "qwen2"):
        return  # two families suffice: the file's format does not depend on the family
    copy = pathlib.Path(shutil.copytree(folder, tmp_path / "model"))
    (copy / "model.safetensors").unlink()
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights = {
            name: tensor for name, tensor in weights.items() if name not in ("lm_head.weight", "embed_out.weight")
        }
    parts = {name: f"pytorch_model-0000{1 + index % 2}-of-00002.bin" for index, name in enumerate(weights)}
    for part in sorted(set(parts.values())):
        content = {name: tensor for name, tensor in weights.items() if parts[name] == part}
        torch.save(content, copy / part, _use_new_zipfile_serialization=zipped)
    (copy / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": parts}))
    for weight, exact in zip(zoo.load(copy).model.weights, ours.model.weights, strict=True):
        expected = torch.tensor(exact.numpy()).to(torch.bfloat16).float().numpy()
        np.testing.assert_array_equal(weight.numpy(), expected)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    import torch
    from transformers.activations import ACT2FN

    inputs = np.linspace(-6, 6, 101, dtype=np.float32)
    expected = ACT2FN[name](torch.tensor(inputs)).numpy()
    np.testing.assert_allclose(activation_function(ACTIVATIONS[name])(inputs), expected, atol=2e-6)


def test_a_tokenizer_of_llama_that_puts_a_start_token_before_texts(tmp_path):
    """Pairs of characters with byte fallback, `<s>` before a text, and tokens for start and end that differ."""
    import tokenizers
    import torch
    import transformers

    trained = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    trained.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    trained.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trained.train_from_iterator(
        TEXTS, tokenizers.trainers.BpeTrainer(vocab_size=330, special_tokens=special[:3], show_progress=False)
    )
    content = json.loads(trained.to_str())
    learnt = [piece for piece in content["model"]["vocab"] if piece not in special]
    content["model"]["vocab"] = {piece: i for i, piece in enumerate([*special, *learnt])}
    template = tokenizers.processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    trained = tokenizers.Tokenizer.from_str(json.dumps(content))
    trained.post_processor = template
    trained.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=trained.get_vocab_size(), **_LAYERS, initializer_range=0.2, bos_token_id=1, eos_token_id=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    ours = zoo.load(tmp_path)
    for prompt in ("To be", "the mind", "中 é"):
        theirs = trained.encode(prompt).ids
        ids = ours.tokenizer.tokenize([prompt], add_start=ours.add_start).numpy()
        assert ids.tolist() == [[2, *(i + 4 for i in theirs[1:])]]  # our start token
        with torch.no_grad():
            expected = model(torch.tensor([theirs])).logits.numpy()
        found = np.array(ours.model(ids))
        np.testing.assert_allclose(found[..., 7:], expected[..., 3:], atol=1e-4)
        np.testing.assert_allclose(found[..., 3], expected[..., 2], atol=1e-4)  # the end token
    assert ours.score(["To be"])[0].tokens == len(trained.encode("To be").ids) - 1
