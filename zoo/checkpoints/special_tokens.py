"""What the special tokens of a checkpoint are for, and which of them stand around a text."""

from __future__ import annotations

import dataclasses
import pathlib

from zoo.checkpoints import TOKENIZER_CONFIG_FILE
from zoo.checkpoints.config import read_json
from zoo.checkpoints.tokenizer_components import (
    chain_of,
    pair_of,
    tokens_around,
    unknown_component,
)
from zoo.checkpoints.tokenizer_files import (
    TOKENIZER_FILE,
    as_list,
    as_object,
    as_string,
    flag,
    special_names,
    tokenizer_config,
)


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a checkpoint by what they are for.

    Attributes:
        names: the token of each purpose that the files name: `bos_token`, `eos_token`, `pad_token`, `unk_token`,
            `mask_token`.
        before: the tokens that the library puts before a text.
        after: the tokens that it puts behind a text.
        separators: how many tokens `after` stand between the texts of a pair; None if a pair is put together otherwise.
    """

    names: dict[str, str]
    before: tuple[str, ...]
    after: tuple[str, ...]
    separators: int | None = None


def read_special_tokens(path: str | pathlib.Path) -> SpecialTokens:
    """Reads what a checkpoint's special tokens are for; `tokenizer.id_of` gives their ids.

    As in `transformers`, `add_bos_token` and `add_eos_token` of `tokenizer_config.json` count only if there is no
    `tokenizer.json`, whose post-processor has the last word.

    Args:
        path: the folder.

    Raises:
        ValueError: a file cannot be read, or the post-processor of `tokenizer.json` is not known.
    """
    path = pathlib.Path(path)
    before: list[str] = []
    after: list[str] = []
    separators = None
    if (path / TOKENIZER_FILE).is_file():
        content = read_json(path / TOKENIZER_FILE)
        try:
            chain = chain_of(as_object(content, "it").get("post_processor"), "processors")
            if len([component for component in chain if component["type"] != "ByteLevel"]) > 1:
                raise unknown_component("the post-processor", *chain)  # each one puts its tokens around the text
            for component in chain:
                if component["type"] == "TemplateProcessing":
                    before, after = tokens_around(component)
                    pair = [name for name, _ in pair_of(component)]
                    found = (n for n in (1, 2) if pair == [*before, "A", *n * after, "B", *after])
                    separators = next(found, None)
                elif component["type"] == "RobertaProcessing":
                    parts = ((as_list(component.get(name), name), name) for name in ("cls", "sep"))
                    before, after = ([as_string(next(iter(part), None), name)] for part, name in parts)
                    separators = 2
                elif component["type"] != "ByteLevel":
                    raise unknown_component("the post-processor", component)
        except ValueError as error:
            raise ValueError(f"{path / TOKENIZER_FILE} cannot be read: {error}") from None
        return SpecialTokens(special_names(path), tuple(before), tuple(after), separators)
    names, config, file = special_names(path), tokenizer_config(path), path / TOKENIZER_CONFIG_FILE
    for name, around in (("bos", before), ("eos", after)):
        if flag(config, f"add_{name}_token", False, file):
            around.append(as_string(names.get(f"{name}_token"), f"`{name}_token` in {file}"))
    return SpecialTokens(names, tuple(before), tuple(after))
