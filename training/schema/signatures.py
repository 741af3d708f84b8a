"""Tables of a recipe that follow from the library: keys, types, defaults and descriptions of a function's arguments.

What an argument of `Transformer` means, its type and its default are said once, in the signature and the docstring of
`Transformer`. They are read from the source text with `ast`: importing the class would import Keras and TensorFlow, ten
seconds before a misspelt key of a recipe could be reported.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field, PositiveInt

Rate = Annotated[float, Field(ge=0, lt=1)]

# What annotations of the library mean in a recipe. Sizes are positive, and all floats are rates of dropout.
_TYPES: dict[str, Any] = {
    "bool": bool,
    "bool | None": bool | None,
    "int": PositiveInt,
    "int | None": PositiveInt | None,
    "float": Rate,
    "float | None": Rate | None,
}


def table_of(
    base: type[pydantic.BaseModel],
    function: str,
    kind: tuple[str, str],
    but: tuple[str, ...] = (),
    types: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """A table of a recipe whose keys are the arguments of a function.

    An argument of type `str` takes the words that its description has in double quotes; `None` becomes `"none"`, since
    TOML has no null.

    Args:
        base: the class of tables.
        function: where the function is: `zoo/models/gpt.py:GPT.__init__`.
        kind: the key that tells kinds of tables apart, and its value: `("family", "gpt")`.
        but: arguments that are no keys.
        types: types of keys, where the annotation does not suffice.
        defaults: defaults of keys, where a recipe has others than the function.

    Returns:
        A class of tables.
    """
    fields: dict[str, Any] = {kind[0]: (Literal[kind[1]], kind[1])}
    for name, annotation, default, text in arguments_of(function):
        if name in but:
            continue
        if annotation.startswith("str") and name not in (types or {}):
            text = text.replace("None", '"none"')
            value: Any = _choices(text)
        else:
            text = text.replace("if None", "if left out").replace("; None for ", "; default: ").replace(" or None", "")
            value = (types or {}).get(name) or _TYPES[annotation]
        default = (defaults or {}).get(name, default)
        fields[name] = (value, Field(default, description=text))
    return pydantic.create_model(function.rpartition(":")[2], __base__=base, **fields)


def choices_of(function: str, argument: str) -> Any:
    """The type of an argument that takes the words that its description has in double quotes."""
    return _choices(next(text for name, _, _, text in arguments_of(function) if name == argument))


def _choices(text: str) -> Any:
    return Literal[tuple(dict.fromkeys(re.findall(r'"(\w+)"', text)))]


@cache
def arguments_of(function: str) -> list[tuple[str, str, Any, str]]:
    """The arguments of a function after the first: name, annotation, default (... if required) and description."""
    file, _, path = function.partition(":")
    spec = importlib.util.find_spec("zoo")
    assert spec is not None and spec.origin is not None
    names = path.split(".")
    node: Any = ast.parse((Path(spec.origin).parents[1] / file).read_text(encoding="utf-8"))
    documented = ""
    for name in names:
        node = next(child for child in node.body if getattr(child, "name", None) == name)
        documented = ast.get_docstring(node) or documented  # a constructor's arguments stand in the class docstring
    texts = _described(documented)
    arguments = node.args.args[1:]
    required = len(arguments) - len(node.args.defaults)
    return [
        (
            argument.arg,
            ast.unparse(argument.annotation) if argument.annotation else "",
            ast.literal_eval(node.args.defaults[index - required]) if index >= required else ...,
            texts[argument.arg],
        )
        for index, argument in enumerate(arguments)
    ]


def _described(docstring: str) -> dict[str, str]:
    """The descriptions under `Args:` of a docstring, by argument."""
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n|\n)+)", inspect.cleandoc(docstring) + "\n", re.MULTILINE)
    entries = re.findall(r"^[ ]{4}(\w+): (.*(?:\n[ ]{8}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(text.split()).removesuffix(".") for name, text in entries}
