"""GPT-2 against `transformers`' own, with random weights written to disk by it."""

import numpy as np
import pytest

import zoo

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module", params=["gelu_new", "relu"])
def theirs(request, tmp_path_factory):
    """Their model and tokenizer, and the folder that both were written to."""
    import tokenizers
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("gpt2")
    trained = tokenizers.ByteLevelBPETokenizer()
    texts = ["To be, or not to be, that is the question: ß 中 é", "Whether 'tis nobler in the mind to suffer"] * 9
    trained.train_from_iterator(texts, 400, special_tokens=["<|endoftext|>"], show_progress=False)
    trained.save_model(str(folder))
    end = trained.token_to_id("<|endoftext|>")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=trained.get_vocab_size() + 3,  # some checkpoints are padded
        n_embd=48,
        n_head=4,
        n_layer=3,
        n_positions=64,
        n_inner=100,
        activation_function=request.param,
        initializer_range=0.2,
        bos_token_id=end,
        eos_token_id=end,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    return model, trained, folder


def test_logits(theirs):
    import torch

    model, _, folder = theirs
    ids = np.random.default_rng(0).integers(1, model.config.vocab_size - 3, (3, 64))
    with torch.no_grad():
        expected = model(torch.tensor(ids)).logits.numpy()
    ours = np.array(zoo.load(folder).model(ids + 4))[..., 4:]
    rows = slice(1, model.config.vocab_size - 3)  # but for the end of text and the padding of the vocabulary
    np.testing.assert_allclose(ours[..., rows], expected[..., rows], atol=1e-4)


def test_greedy_text(theirs):
    import torch

    model, tokenizer, folder = theirs
    model.config.vocab_size, padding = (
        model.config.vocab_size,
        list(range(model.config.vocab_size - 3, model.config.vocab_size)),
    )
    prompts = ["To be, or", "Whether", "中", " ß question: that"]
    ours = zoo.load(folder)(prompts, max_new_tokens=30, temperature=0)
    for prompt, text in zip(prompts, ours, strict=True):
        ids = torch.tensor([tokenizer.encode(prompt).ids])
        with torch.no_grad():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=30,
                do_sample=False,
                pad_token_id=model.config.eos_token_id,
                suppress_tokens=padding,
            )
        new = [i for i in found[0, ids.shape[1] :].tolist() if i != model.config.eos_token_id]
        assert text == tokenizer.decode(new, skip_special_tokens=False)
