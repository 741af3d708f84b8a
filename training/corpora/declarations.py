"""The Universal Declaration of Human Rights: running text in more than 300 languages.

In the order of the file: the public file, the paragraphs of a language, pieces of them as sentences and single words.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import io
import unicodedata
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from zoo.extras import needs

from .corpus import SPLITS
from .files import PublicFiles

with needs("train"):
    import regex

_FILE = "udhr2.zip"
_PUBLIC = PublicFiles(
    name="udhr",
    # A commit, not a branch: the file at this address never changes.
    address="https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora",
    checksums={_FILE: "0796c314b09a930c989c6f9d93d226af9af13feccd88496e196c743dd266c7f3"},
)

# The file of a language, where the two have other names. Some have no text: Assamese, Kurdish, Odia, Sinhala and Telugu
# among them.
_TABLE = """
    af=afr ak=aka_asante am=amh ar=arb az=azj_latn be=bel bg=bul bm=bam bn=ben br=bre bs=bos_latn ca=cat cs=ces
    cy=cym da=dan de=deu ee=ewe el=ell_monotonic en=eng eo=epo es=spa et=est eu=eus fa=pes_1 fi=fin fil=tgl fo=fao
    fr=fra fy=fri ga=gle gd=gla gl=glg gu=guj ha=hau_NG he=heb hi=hin hr=hrv ht=hat_kreyol hu=hun hy=hye ia=ina
    id=ind ig=ibo is=isl it=ita ja=jpn jv=jav ka=kat kk=kaz kl=kal km=khm kn=kan ko=kor ky=kir la=lat lb=ltz lg=lug
    ln=lin lo=lao lt=lit lv=lav mg=plt mi=mri mk=mkd ml=mal mn=khk mr=mar ms=mly_latn mt=mlt my=mya nb=nob
    ne=nep nl=nld nn=nno no=nob oc=lnc os=oss pa=pan pl=pol ps=pbu pt=por_PT qu=quz rm=roh rn=run ro=ron
    ru=rus rw=kin sc=src se=sme sg=sag sk=slk sl=slv sn=sna so=som sq=als sr=srp_cyrl sr_Latn=srp_latn su=sun sv=swe
    sw=swh ta=tam tg=tgk th=tha ti=tir tk=tuk_latn to=ton tr=tur tt=tat ug=uig_arab uk=ukr ur=urd uz=uzn_latn vi=vie
    wo=wol xh=xho yi=ydd yo=yor zh=cmn_hans zh_Hant=cmn_hant zu=zul
"""
_NAMES = dict(pair.split("=") for pair in _TABLE.split())
# Signs of the file that are seldom typed: Amharic's former one between words, now a space, and Yoruba's stroke below a
# letter, mostly a dot.
_AS_TYPED = str.maketrans({"፡": " ", "\u0329": "\u0323"})
_SHORTEST = 12  # characters of a paragraph; most shorter lines are headings, such as 'Artikel 1'
_MAIL = "@"  # in lines about the translators
_UNSPACED = frozenset({"Hans", "Hant", "Jpan", "Khmr", "Laoo", "Mymr", "Thai", "Tibt"})  # no spaces between words
_LONGEST_GRAM = 3  # words in a row that show whether a piece is of one language alone

_WORDS = {"sentence": (4, 16), "words": (1, 3)}  # of a piece: the fewest and the most
_CHARACTERS = {"sentence": (8, 40), "words": (2, 6)}  # the same in scripts without spaces


def paragraphs(code: str, folder: Path | None = None) -> list[str]:
    """The paragraphs of the declaration in a language, without short headings; none if there is no translation.

    Args:
        code: a CLDR identifier, such as 'de' or 'zh_Hant'.
        folder: the folder of the public file; None for one in the user's cache.

    Raises:
        CorpusError: the file is missing and cannot be downloaded, or is not the public one.
    """
    name = f"udhr2/{_NAMES.get(code, code)}.txt"
    with zipfile.ZipFile(io.BytesIO(_PUBLIC.content(_FILE, folder))) as archive:
        text = archive.read(name).decode() if name in archive.namelist() else ""
    lines = (unicodedata.normalize("NFC", " ".join(line.split())) for line in text.translate(_AS_TYPED).split("\n"))
    return [line for line in lines if len(line) >= _SHORTEST and _MAIL not in line]


@dataclasses.dataclass(frozen=True)
class RunningText:
    """The paragraphs of one split in one language, from which pieces are taken.

    A piece is a row of words; in scripts without spaces, of characters with their marks. A 'sentence' is a long piece,
    and 'words' are a short one. One of its rows of three words, or a shorter piece as a whole, is in no other
    language's declaration.

    Attributes:
        code: the language.
        paragraphs: the words of each paragraph.
        separator: what stands between words: a space or nothing.
        owners: of each row of one to three words in any declaration, and of each name, its language; None if several
            languages have it.
    """

    code: str
    paragraphs: Sequence[Sequence[str]]
    separator: str
    owners: Mapping[tuple[str, ...], str | None]

    def draw(self, kind: str, draws: Sequence[int]) -> str | None:
        """A random piece, from two random numbers; None if another language might have it.

        A paragraph with fewer words than a piece should have is taken whole.
        """
        if not self.paragraphs:
            return None
        fewest, most = self._sizes[kind]
        place, size = draws[0] % self._ends[-1], fewest + draws[1] % (most - fewest + 1)
        number = bisect.bisect(self._ends, place)
        words = self.paragraphs[number]
        begin = min(place - self._ends[number] + len(words), max(len(words) - size, 0))
        return self._piece(kind, words[begin : begin + size])

    def in_turn(self, kind: str) -> Iterator[str]:
        """Pieces that do not overlap, in the order of the text; the sizes follow each other."""
        fewest, most = self._sizes[kind]
        size = fewest
        for words in self.paragraphs:
            begin = 0
            while len(words) - begin >= fewest:
                if piece := self._piece(kind, words[begin : begin + size]):
                    yield piece
                begin, size = begin + size, size + 1 if size < most else fewest

    @functools.cached_property
    def _ends(self) -> list[int]:
        """How many words there are up to the end of each paragraph."""
        total = 0
        return [total := total + len(words) for words in self.paragraphs]

    @property
    def _sizes(self) -> Mapping[str, tuple[int, int]]:
        return _WORDS if self.separator else _CHARACTERS

    def _piece(self, kind: str, words: Sequence[str]) -> str | None:
        if not any(self.owners[gram] == self.code for gram in _grams(words, min(_LONGEST_GRAM, len(words)))):
            return None
        text = self.separator.join(words).strip()
        return text if kind == "sentence" else _bare(text) or None


def running_texts(
    scripts: Mapping[str, str],
    names: Mapping[str, Collection[str]],
    split_of: Callable[[int], str],
    folder: Path | None,
) -> dict[str, dict[str, RunningText]]:
    """By split and language, the running text.

    Args:
        scripts: the languages, each with the ISO 15924 code of its script.
        names: by language, other texts that a piece of another language must not be.
        split_of: from the number of a paragraph to its split, the same for all languages.
        folder: the folder of the public file; None for one in the user's cache.

    Raises:
        CorpusError: the file is missing and cannot be downloaded, or is not the public one.
    """
    words = {code: [_words(each, script) for each in paragraphs(code, folder)] for code, script in scripts.items()}
    owners: dict[tuple[str, ...], str | None] = {}
    for code, script in scripts.items():
        own = {gram for each in words[code] for size in range(1, _LONGEST_GRAM + 1) for gram in _grams(each, size)}
        own |= {gram for each in (_words(name, script) for name in names[code]) for gram in _grams(each, len(each))}
        for gram in own:
            owners[gram] = code if gram not in owners else None
    return {
        split: {
            code: RunningText(
                code=code,
                paragraphs=[each for number, each in enumerate(of_language) if split_of(number) == split],
                separator="" if scripts[code] in _UNSPACED else " ",
                owners=owners,
            )
            for code, of_language in words.items()
        }
        for split in SPLITS
    }


def _words(text: str, script: str) -> list[str]:
    return regex.findall(r"\X", text) if script in _UNSPACED else text.split()


def _grams(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """All rows of this many words, without case and the punctuation around words."""
    bare = [_bare(word).casefold() for word in words]
    return (tuple(bare[begin : begin + size]) for begin in range(len(bare) - size + 1))


def _bare(text: str) -> str:
    """The text without what is neither a letter, a mark nor a digit at its ends."""
    return regex.sub(r"^[^\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+$", "", text)
