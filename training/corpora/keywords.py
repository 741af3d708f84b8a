"""Keywords of emoji in more than 100 languages, from the CLDR's annotations: everyday words and short phrases."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

from .files import PublicFiles
from .language_strings import is_plain, typed

_FILE = "cldr-annotations-full-48.2.0.tgz"
_PUBLIC = PublicFiles(
    name="annotations",
    address="https://registry.npmjs.org/cldr-annotations-full/-",  # a version at this address never changes
    checksums={_FILE: "28576e51225deb51e3ddd734b0f824a0079682cb5d8c27faa9f68149317a14d1"},
)
_NAMES = {"nb": "no"}  # of a language, where its folder has another name
_PUNCTUATION = "?!¿¡؟"  # at the ends of phrases such as 'how are you?'


def keywords(codes: Iterable[str], folder: Path | None = None) -> dict[str, dict[str, list[str]]]:
    """By language and emoji, its name and what it is found by: '👋' -> 'winkende Hand', 'hallo', 'auf Wiedersehen'.

    Args:
        codes: CLDR identifiers, such as 'de' or 'zh_Hant'. A language without annotations has no emoji.
        folder: the folder of the public file; None for one in the user's cache.

    Raises:
        CorpusError: the file is missing and cannot be downloaded, or is not the public one.
    """
    files = {f"package/annotations/{_NAMES.get(each, each).replace('_', '-')}/annotations.json": each for each in codes}
    found: dict[str, dict[str, list[str]]] = {code: {} for code in files.values()}
    with tarfile.open(fileobj=io.BytesIO(_PUBLIC.content(_FILE, folder))) as archive:
        for member in archive:  # in the order of the file, which is unpacked only once
            if code := files.get(member.name):
                data = json.load(archive.extractfile(member))  # type: ignore[arg-type]
                for emoji, texts in data["annotations"]["annotations"].items():
                    given = [*texts.get("tts", []), *texts.get("default", [])]  # its name, and what it is found by
                    words = [typed(text).strip(_PUNCTUATION) for text in given]
                    found[code][emoji] = [word for word in dict.fromkeys(words) if is_plain(word)]
    return found
