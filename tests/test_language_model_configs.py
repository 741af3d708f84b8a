"""Configurations of language models that cannot be read, and what a readable one asks of `GPT`. No weights needed."""

import json

import pytest

from zoo.checkpoints import gpt_neo, gpt_neox, llama
from zoo.checkpoints.config import Config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 12,
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "max_position_embeddings": 64,
    "intermediate_size": 20,
}
NEO = {
    "model_type": "gpt_neo",
    "hidden_size": 12,
    "num_heads": 3,
    "num_layers": 4,
    "max_position_embeddings": 64,
}
QWEN2 = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}
QWEN2_DEFAULT = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 8}
NEOX = {**LLAMA, "model_type": "gpt_neox"}
LLAMA_3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0}
LLAMA_3 |= {"original_max_position_embeddings": 32}
FAMILIES = {"llama": llama, "qwen2": llama, "qwen3": llama, "mistral": llama, "gpt_neo": gpt_neo, "gpt_neox": gpt_neox}


@pytest.fixture
def arguments(tmp_path):
    def arguments(content):
        (tmp_path / "config.json").write_text(json.dumps(content))
        return FAMILIES[content["model_type"]].arguments(Config(tmp_path))

    return arguments


@pytest.mark.parametrize(
    ("content", "name", "value"),
    [
        (LLAMA, "sliding_window", None),
        (LLAMA, "use_bias", False),
        ({**LLAMA, "model_type": "qwen2", "attention_bias": True}, "use_bias", False),  # a key that Qwen2 ignores
        ({**LLAMA, "pretraining_tp": 2}, "key_dim", 4),  # of how products are computed, not of their results
        ({**LLAMA, "sliding_window": 8}, "sliding_window", None),  # a key that Llama ignores
        (MISTRAL, "sliding_window", 8),
        ({**MISTRAL, "layer_types": ["full_attention"] * 4}, "sliding_window", None),
        ({**MISTRAL, "layer_types": ["full_attention", "sliding_attention"] * 2}, "sliding_window", [None, 8] * 2),
        ({**MISTRAL, "layer_types": None}, "sliding_window", 8),
        ({**LLAMA, "model_type": "mistral", "num_key_value_heads": 1}, "sliding_window", 4096),
        ({**LLAMA, "model_type": "mistral", "num_key_value_heads": 1, "sliding_window": None}, "sliding_window", None),
        ({**QWEN2, "max_window_layers": 3}, "sliding_window", [None, None, None, 8]),
        ({**QWEN2, "max_window_layers": 0}, "sliding_window", [8, 8, 8, 8]),
        ({**QWEN2, "layer_types": ["sliding_attention", "full_attention"] * 2}, "sliding_window", [8, None, 8, None]),
        ({**QWEN2, "use_sliding_window": False}, "sliding_window", None),
        ({**QWEN2, "max_window_layers": 4}, "sliding_window", None),
        ({**QWEN2_DEFAULT, "max_window_layers": 3}, "sliding_window", [None, None, None, 4096]),
        ({**QWEN2_DEFAULT, "sliding_window": None, "max_window_layers": 0}, "sliding_window", None),
        ({**LLAMA, "rope_theta": 500.0}, "max_wavelength", 500.0),
        ({**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, "max_wavelength", 7.0),
        (
            {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "rotary_scaling",
            {"rope_type": "linear", "factor": 2.0},
        ),
        (
            {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 3.0}, "rope_parameters": {"rope_theta": 7.0}},
            "rotary_scaling",
            {"rope_type": "linear", "factor": 3.0},
        ),
        ({**NEOX, "head_dim": 4}, "rotary_dim", 1),
        ({**NEOX, "rotary_pct": 1.0}, "rotary_dim", None),
        (NEO, "sliding_window", [None, 256, None, 256]),
        ({**NEO, "attention_types": [[["global"], 4]]}, "sliding_window", None),
        (
            {**NEO, "attention_types": [[["global"], 4]], "attention_layers": ["local", "global", "global", "local"]},
            "sliding_window",
            [256, None, None, 256],
        ),
    ],
)
def test_what_a_configuration_asks_for(arguments, content, name, value):
    assert arguments(content)[name] == value


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["gpt2", "gpt_neo", "distilbert", "marian"])
def test_a_key_by_another_name_is_read_as_transformers_does(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    aliases = transformers.AutoConfig.for_model(kind).attribute_map
    own = {"num_layers": 4} | dict.fromkeys(aliases.values(), 4)
    for alias, key in aliases.items():
        layers = {"attention_types": [[["global"], 2 if key == "num_layers" else 4]]}
        for values in (own, {name: value for name, value in own.items() if name != key}):
            (tmp_path / "config.json").write_text(json.dumps(values | layers | {"model_type": kind, alias: 2}))
            config, theirs = Config(tmp_path), transformers.AutoConfig.from_pretrained(tmp_path)
            assert {name: config.whole(name) for name in own} == {name: getattr(theirs, name) for name in own}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**LLAMA, "num_hidden_layers": 2**31 - 1}, "num_hidden_layers is 2147483647, and must be at most 10,000"),
        ({**NEO, "num_layers": 2**31 - 1}, "num_layers is 2147483647, and must be at most 10,000"),
        ({**NEO, "attention_types": [[["global"], 10**9]]}, "attention_types is .*, and must be a list such as"),
        ({**NEO, "attention_types": [[["far"], 4]]}, "must be 'global' or 'local' for each of the 4 layers"),
        ({**NEO, "attention_types": [[[["global"]], 4]]}, "must be 'global' or 'local' for each of the 4 layers"),
        ({**NEO, "attention_layers": ["global"]}, "attention_layers is .*, and must be 'global' or 'local' for each"),
        ({**NEO, "attention_layers": 4}, "attention_layers is 4, and must be 'global' or 'local' for each of the 4"),
        ({**MISTRAL, "attention_bias": True}, "attention_bias is True; only False can be read"),
        ({**QWEN2, "mlp_bias": True}, "mlp_bias is True; only False can be read"),
        ({**LLAMA, "attention_bias": 1}, "attention_bias is 1, and must be true or false"),
        ({**LLAMA, "hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'; only silu, swish, gelu, "),
        ({**LLAMA, "tie_word_embeddings": "false"}, "tie_word_embeddings is 'false', and must be true or false"),
        ({**LLAMA, "rope_scaling": "linear"}, "rope_scaling is 'linear', and must be an object"),
        ({**LLAMA, "rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_scaling cannot be read: `scaling` must be"),
        ({**LLAMA, "rope_scaling": {"type": ["linear"]}}, "rope_scaling cannot be read"),
        ({**LLAMA, "rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "only without 'full_attention' can"),
        (
            {**LLAMA, "rope_parameters": {"partial_rotary_factor": "x"}},
            r"rope_theta and partial_rotary_factor\) must be positive numbers, .* They are 10000\.0 and 'x'",
        ),
        ({**LLAMA, "partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1; only GPT-NeoX"),
        (
            {**LLAMA, "rope_scaling": LLAMA_3, "original_max_position_embeddings": 64},
            "original_max_position_embeddings is 64; only 32 can be read",
        ),
        (
            {**LLAMA, "rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor must be 1; only GPT-NeoX",
        ),
        ({**QWEN2, "layer_types": ["full_attention"]}, "for each of the 4 layers"),
        ({**QWEN2, "layer_types": [["full_attention"]] * 4}, "for each of the 4 layers"),
        ({**QWEN2, "max_window_layers": "x"}, "max_window_layers is 'x', and must be a whole number above 0"),
        ({**NEOX, "attention_bias": False}, "attention_bias is False; only True can be read"),
        ({**NEOX, "head_dim": 2}, "head_dim is 2; only 4 can be read"),
        ({**NEOX, "rotary_pct": 0}, "rotary_pct is 0, and must be a number above 0"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_key(arguments, content, message):
    with pytest.raises(ValueError, match=message) as error:
        arguments(content)
    assert "config.json: " in str(error.value)


@pytest.mark.peers
@pytest.mark.parametrize(
    "content",
    [
        {**QWEN2_DEFAULT, "max_window_layers": 3},
        {**QWEN2_DEFAULT, "model_type": "qwen3", "max_window_layers": 1},
        {**QWEN2_DEFAULT, "sliding_window": None},
        {**MISTRAL, "layer_types": ["full_attention", "sliding_attention"] * 2},
        {**MISTRAL, "layer_types": None},
        {**NEO, "attention_types": [[["global", "local"], 2]], "attention_layers": ["local", "global"] * 2},
    ],
)
def test_windows_are_those_of_transformers(arguments, content, tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = arguments(content)["sliding_window"]
    ours = ours if isinstance(ours, list) else [ours] * 4
    theirs = transformers.AutoConfig.from_pretrained(tmp_path)
    kinds = theirs.attention_layers if content["model_type"] == "gpt_neo" else theirs.layer_types
    assert [window is not None for window in ours] == [kind in ("local", "sliding_attention") for kind in kinds]
    window = theirs.window_size if content["model_type"] == "gpt_neo" else theirs.sliding_window
    assert {*ours} <= {None, window}
