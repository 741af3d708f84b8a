"""Recipes: everything a training run depends on, as data.

A recipe is a TOML file with the values that differ from the defaults. It is validated when it is read, before
TensorFlow starts. An unknown key or value is an error that names the nearest valid one.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import pathlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any

import pydantic

from ..corpora.corpus import CorpusError
from ..corpora.several_pairs import SeveralPairs
from . import classifier_tables, generator_tables, translator_tables
from .generator_tables import GeneratorRecipe
from .recipe_tables import Recipe
from .translator_tables import DEFAULT_FAMILY, TranslatorRecipe

# Which recipe a model's family makes.
_RECIPES: dict[str, type[Recipe]] = {
    **dict.fromkeys(translator_tables.FAMILIES, TranslatorRecipe),
    **dict.fromkeys(generator_tables.FAMILIES, GeneratorRecipe),
    **classifier_tables.FAMILIES,
}


_VALID = "; valid here: "
_NO_TABLE = "input should be a table"
# What pydantic says in terms of Python, by the type of its error, in the words of the page of all keys.
_MESSAGES = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), _NO_TABLE),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "Input should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "Input should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "Input should be true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "Input should be a list"),
    "too_short": "Input should be a list with an item or more",
    "string_too_short": "Input should be a string that is not empty",
    "string_type": "Input should be a string",
    "path_type": "Input should be a path",
}


# What to do, by how the message of the TOML parser begins.
_PARSER_HINTS = {
    "Invalid value": "; a text needs quotes, a number a digit before its point, and true and false small letters",
    **dict.fromkeys(("Unescaped '\\'", "Invalid hex value"), r"; write a path with /, or each \ twice"),
    "Cannot declare": "; a table must stand once. Several corpora are [[corpus]], with two brackets",
    "Cannot overwrite": "; a key must stand once",
}


class RecipeError(ValueError):
    """A recipe that cannot be used; the message names the key and its valid values."""


def recipe_names() -> list[str]:
    """The names of the recipes that come with the zoo."""
    folder = resources.files("zoo_training.recipes")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """Reads a recipe and validates it.

    Args:
        name: a recipe of the zoo (`dates`), or the path of a TOML file (`mine.toml`) or of a run's `recipe.json`.
        overrides: `key=value` each, the key dotted and the value as in TOML (`model.units=128`); a value that is
            not TOML is taken as a string.

    Relative paths of files are looked up in the working directory, then in the recipe's folder.

    Raises:
        RecipeError: there is no such recipe, it cannot be parsed, or something in it is not valid.
    """
    tables = _tables(name)
    for override in overrides:
        _override(tables, override)
    kind = _kind_of_recipe(name, tables)
    try:
        return kind.model_validate(tables, context={"recipe_folder": pathlib.Path(name).parent})
    except pydantic.ValidationError as error:
        faults = list(dict.fromkeys(_explain(fault, kind) for fault in _one_for_each_place(error, kind)))
        raise RecipeError(f"recipe {name!r}: {_joined(faults)}") from None


def name_of(name: str) -> str:
    """The name of a recipe's models: the file's name without folder and suffix."""
    return pathlib.PurePath(name).stem


@contextlib.contextmanager
def blamed_on(table: str) -> Iterator[None]:
    """Turns an error into one that names the table of the recipe that caused it."""
    try:
        yield
    except CorpusError:  # its message already names the file
        raise
    except ValueError as error:
        raise RecipeError(f"{table}: {error}") from error


def _kind_of_recipe(name: str, tables: dict[str, Any]) -> type[Recipe]:
    model = tables.get("model", {})
    if not isinstance(model, dict):
        raise RecipeError(f"recipe {name!r}: 'model': {_NO_TABLE} (received {model!r})")
    family = model.get("family", DEFAULT_FAMILY)
    if not isinstance(family, str) or family not in _RECIPES:
        hint = _nearest(str(family), list(_RECIPES))
        known = ", ".join(_RECIPES)
        raise RecipeError(f"recipe {name!r}: 'model.family' must be one of {known}{hint}, received {family!r}")
    return _RECIPES[family]


def _tables(name: str) -> dict[str, Any]:
    """The tables of a recipe's file: TOML, or the JSON of a run."""
    if name in recipe_names():
        file = resources.files("zoo_training.recipes").joinpath(f"{name}.toml")
    else:
        file = pathlib.Path(name)
        if name != pathlib.PurePath(name).stem and not file.is_file():
            what = "is a folder, and a recipe is a file" if file.is_dir() else "no such file"
            if (file / "recipe.json").is_file():
                what = f"is a folder; its recipe is {str(file / 'recipe.json')!r}"
            raise RecipeError(f"recipe {name!r}: {what}; the recipes of the zoo are {', '.join(recipe_names())}")
        if not file.is_file():
            beside = pathlib.Path(f"{name}.toml")
            hint = f" (did you mean {str(beside)!r}?)" if beside.is_file() else _nearest(name, recipe_names())
            raise RecipeError(f"no recipe {name!r}{hint}; there are {', '.join(recipe_names())}, or give a TOML file")
    parse = json.loads if name.endswith(".json") else tomllib.loads
    text = ""
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
        tables = parse(text)
    except UnicodeDecodeError:
        raise RecipeError(f"recipe {name!r} cannot be read: not UTF-8; save it as UTF-8") from None
    except ValueError as error:  # of both parsers
        hint = next((hint for begin, hint in _PARSER_HINTS.items() if str(error).startswith(begin)), "")
        if set(text) & set("“”„‘’") and str(error).startswith(("Invalid", "Expecting")):
            hint = '; a text needs straight quotes, "like this"'
        if not file.name.endswith((".toml", ".json")):
            hint = "; a recipe is a TOML file"
        raise RecipeError(f"recipe {name!r} cannot be read: {error}{hint}") from None
    if not isinstance(tables, dict):
        raise RecipeError(f"recipe {name!r} cannot be read: expected tables, received a {type(tables).__name__}")
    return tables


def _override(tables: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"--set {override!r}: expected KEY=VALUE, such as model.units=128")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, last = key.strip().split(".")
    places: list[Any] = [tables]
    for parent in parents:
        places = [within for table in places for within in _below(table, parent, override)]
    for table in places:
        if isinstance(table, dict):
            table[last] = value
        else:
            for number in _numbers(table, last, override):
                table[number] = value


def _below(table: Any, key: str, override: str) -> list[Any]:
    """The tables that a key leads to; one that is missing is made."""
    if isinstance(table, dict):
        found = [table.setdefault(key, {})]
    else:
        found = [table[number] for number in _numbers(table, key, override)]
    if not all(isinstance(each, dict) or _are_tables(each) for each in found):
        raise RecipeError(f"--set {override!r}: {key!r} is a value, not a table")
    return found


def _numbers(tables: list[Any], key: str, override: str) -> list[int]:
    """Which of several tables, `[[corpus]]`, a key names: the one of its number, or all of them."""
    if key == "*":
        return list(range(len(tables)))
    if not key.isdecimal() or int(key) >= len(tables):
        raise RecipeError(
            f"--set {override!r}: there are {len(tables)} tables; give the number of one, from 0: corpus.0.weight=2, "
            "or * for all"
        )
    return [int(key)]


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _one_for_each_place(error: pydantic.ValidationError, recipe: type[Recipe]) -> Iterator[Mapping[str, Any]]:
    """The faults of a recipe; of a value that fits none of several types, one for all types."""
    by_place: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for fault in error.errors():
        by_place.setdefault(tuple(_place(fault["loc"], recipe)[0]), []).append(fault)
    for first, *others in by_place.values():
        wanted = [_words(first), *(_words(fault).removeprefix("Input should be ") for fault in others)]
        yield {**first, "msg": " or ".join(dict.fromkeys(wanted))}


def _joined(faults: list[str]) -> str:
    """All faults in one sentence. The valid keys of a table stand once, behind its last unknown key."""
    valid = [fault.partition(_VALID)[2] for fault in faults]
    return "; ".join(
        fault.removesuffix(_VALID + here) if here in valid[number + 1 :] else fault
        for number, (fault, here) in enumerate(zip(faults, valid, strict=True))
    )


def _words(fault: Mapping[str, Any]) -> str:
    return _MESSAGES.get(fault["type"], fault["msg"].removeprefix("Value error, "))


def _explain(fault: Mapping[str, Any], recipe: type[Recipe]) -> str:
    """One fault of a recipe in one sentence."""
    path, table = _place(fault["loc"], recipe)
    key = ".".join(path)
    if fault["type"] == "extra_forbidden":
        if hint := _of_another_kind(path, table, recipe):
            return f"{key!r} {hint}"
        known = [] if table is None else list(table.model_fields)
        hint = _elsewhere(path[-1], recipe) or _nearest(path[-1], known)
        return f"unknown key {key!r}{hint}{_VALID}{', '.join(known)}"
    if fault["type"] == "missing":
        return f"{key!r} is missing"
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        name, kinds = recipe.kinds[_without_numbers(path)]
        if not isinstance(fault["input"], dict):
            return f"{key!r}: {_NO_TABLE} (received {fault['input']!r})"
        given = fault["input"].get(name)
        known = list(kinds)
        others = {family: of.kinds.get(_without_numbers(path), ("", {}))[1] for family, of in _RECIPES.items()}
        if families := [family for family, tables in others.items() if isinstance(given, str) and given in tables]:
            owners = " or ".join(map(repr, families))
            default = f"; the family is {DEFAULT_FAMILY!r} if [model] names none" if recipe is TranslatorRecipe else ""
            return (
                f"{key}.{name} = {given!r} is for model.family = {owners}; here it must be one of {', '.join(known)}"
                f"{default}"
            )
        if given is None:
            return f"'{key}.{name}' is missing; it must be one of {', '.join(known)}"
        return f"'{key}.{name}' must be one of {', '.join(known)}{_nearest(str(given), known)}, received {given!r}"
    message = fault["msg"]
    if not path:  # of several tables together
        return message
    if fault["type"] == "value_error" and (isinstance(fault["input"], dict) or _are_tables(fault["input"])):
        # Of several keys of a table, or of several tables.
        return f"{key!r}: {message}"
    received = "" if "Received: " in message else f" (received {fault['input']!r})"
    return f"{key!r}: {message[0].lower()}{message[1:]}{received}"


def _of_another_kind(path: list[str], table: type[pydantic.BaseModel] | None, recipe: type[Recipe]) -> str:
    """A hint that names the other kinds of a table that have the path's last key; empty if none has it."""
    place = _without_numbers(path[:-1])
    recipes = [recipe] if place == ("corpus",) else _RECIPES.values()  # a translator's corpora are no use to others
    kinds = [each.kinds[place] for each in recipes if place in each.kinds]
    if not kinds or table is None:
        return ""
    name, tables = kinds[0][0], {kind: other for _, others in kinds for kind, other in others.items()}
    owners = [kind for kind, other in tables.items() if path[-1] in other.model_fields]
    if not owners:
        return ""
    if name not in table.model_fields:  # a translator's [tokenizer], where the kinds are one table further down
        return "must be in [tokenizer.source] and [tokenizer.target], or in [tokenizer.joint] for both sides"
    key = ".".join([*path[:-1], name])
    return f"is a key of {key} = {' or '.join(map(repr, owners))}; here {key} = {table.model_fields[name].default!r}"


def _place(location: tuple[Any, ...], recipe: type[Recipe]) -> tuple[list[str], type[pydantic.BaseModel] | None]:
    """The keys that lead to a place in a recipe, and the table that contains the last key."""
    path: list[str] = []
    within: Any = None
    table: Any = recipe
    for number, part in enumerate(map(str, location), 1):
        if table is None and (kinds := recipe.kinds.get(_without_numbers(path))):
            if part == SeveralPairs.TAG:
                continue
            if not part.isdecimal():
                table = kinds[1].get(part)  # the kind is in pydantic's path, but not in the recipe's
                continue
        elif table is None and not part.isdecimal() and ("[" in part or number == len(location)):
            continue  # one of several types, such as "list[int]" or "str", and no key of a value that is a table
        path.append(part)
        field = table and table.model_fields.get(part)
        within, table = table, field and field.annotation
        if not (isinstance(table, type) and issubclass(table, pydantic.BaseModel)):
            table = None
    return path, within


def _without_numbers(path: list[str]) -> tuple[str, ...]:
    """The keys of a path, without the numbers of tables that are in a list."""
    return tuple(key for key in path if not key.isdecimal())


def _elsewhere(key: str, recipe: type[Recipe]) -> str:
    """A hint that names the right place of a key that stands in another table, or in none, such as `epochs`."""
    if key in ("seed", "description"):
        return f" (did you mean {key!r}, above all tables?)"
    tables: list[tuple[tuple[str, ...], Any]] = [
        *(((name,), field.annotation) for name, field in recipe.model_fields.items()),
        *((path, table) for path, (_, kinds) in recipe.kinds.items() for table in kinds.values()),
        *(
            (("corpus", name), field.annotation)
            for table in recipe.kinds["corpus",][1].values()
            for name, field in table.model_fields.items()
        ),
    ]
    for path, table in tables:
        if isinstance(table, type) and issubclass(table, pydantic.BaseModel) and key in table.model_fields:
            return f" (did you mean {'.'.join([*path, key])!r}?)"
    return ""


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
