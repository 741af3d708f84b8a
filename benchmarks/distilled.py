"""How much sooner does a student answer a single text than its teacher, and than CTranslate2 with the same weights?

Two finished runs of transformers, such as `multi30k-transformer` and `multi30k-fast`, translate the sources of the
student's test split, one text a request, one request at a time.

- Ours are plain SavedModels in a graph-mode session.
- CTranslate2 has the weights of both in float32; it takes tokens and returns tokens. Its length penalty divides by
  another function of the length, so with a beam some texts differ.
- With `--sources`, source texts of the training, the student is also exported with shortlists.

BLEU is that of the validation split, in the style of published figures.

    zoo train multi30k-transformer && zoo train multi30k-fast
    python benchmarks/distilled.py runs/multi30k-transformer runs/multi30k-fast      # needs the 'peers' extra
"""

from __future__ import annotations

import itertools
import pathlib
import tempfile

from harness import Contestant, race, threads
from results import Recording, Table, options, ratio, spread
from serving import best, session_call
from zoo_training.start_tensorflow import import_tensorflow

AT_A_TURN = 20  # texts, one after another


def zoo_step(path: str, texts: list[str], operation_threads: int):
    """Ours."""
    call = session_call(path, operation_threads, True, "text", "score")
    return one_by_one(lambda text: call([text]), texts)


def ctranslate2_step(folder: str, tokens: list[list[str]], settings: dict, operation_threads: int):
    """CTranslate2."""
    import ctranslate2_model

    translator = ctranslate2_model.translator(folder, 1, operation_threads)
    return one_by_one(lambda row: translator.translate_batch([row], **settings), tokens)


def ctranslate2_task(translator, folder: str, texts: list[str]) -> tuple[str, list[list[str]], dict]:
    """Writes its weights into a folder: what `ctranslate2_step` takes, without the number of threads."""
    import ctranslate2_model

    ctranslate2_model.write(translator.model, folder)
    ids = translator.source_tokenizer.tokenize(texts, add_end=True).numpy()
    tokens = [[*map(str, row[(row != 0) & (row != 3)]), "</s>"] for row in ids]
    settings = dict(
        beam_size=translator.beam_size,
        length_penalty=translator.length_penalty,
        max_decoding_length=translator.max_target_length,
    )
    return folder, tokens, settings


def one_by_one(call, inputs: list):
    """A step that makes a request for each of the next inputs."""
    endless = itertools.cycle(inputs)

    def step():
        for each in itertools.islice(endless, AT_A_TURN):
            call(each)

    return step


def translations(folder: str, translator, tokens: list[list[str]], settings: dict) -> list[str]:
    """CTranslate2's, as texts."""
    import ctranslate2_model
    import tensorflow as tf

    found = ctranslate2_model.translator(folder, 1, 2).translate_batch(tokens, **settings)
    ids = tf.ragged.constant([[int(token) for token in each.hypotheses[0]] for each in found], dtype=tf.int32)
    return [text.decode() for text in translator.target_tokenizer.detokenize(ids.to_tensor()).numpy()]


def taking_part(arguments, beams: int, recipe, texts, learnt, folder, recording) -> tuple[list[Contestant], dict]:
    """Teacher, student, the student with shortlists, and CTranslate2; and the BLEU of ours, by name."""
    from zoo_training.run import score

    import zoo
    from zoo.decoding import Shortlist

    them, bleu = [], {}
    for name in ("teacher", "student"):
        scratch = pathlib.Path(folder, f"{name}{beams}")
        translator = zoo.load(getattr(arguments, name))
        translator.beam_size = beams
        ours = {f"{name}, zoo": translator}
        for size in arguments.sizes if learnt and name == "student" else ():
            ours[f"student, {size:,} tokens"] = translator.with_shortlist(
                Shortlist(learnt.translations, learnt.ranks, size)
            )
        for number, (called, listed) in enumerate(ours.items()):
            path = zoo.serving.export(listed, scratch / str(number))
            bleu[called] = score(zoo.load(path), recipe, "validation")["bleu_published_style"]["score"]
            them.append(Contestant(called, zoo_step, (str(path), texts, 1)))
        theirs, tokens, settings = ctranslate2_task(translator, str(scratch / "ctranslate2"), texts)
        same = sum(map(str.__eq__, translations(theirs, translator, tokens, settings), translator(texts)))
        recording.note(f"{name.capitalize()}, beam of {beams}: CTranslate2 gives {same} of our {len(texts)} texts.")
        for number in (1, 2):
            called = f"{name}, CTranslate2, {threads(number)}"
            them.append(Contestant(called, ctranslate2_step, (theirs, tokens, settings, number)))
    return them, bleu


def main() -> None:
    """Runs the races; a row of the table is one of them."""
    parser = options(__doc__, rounds=6)
    parser.add_argument("teacher", type=pathlib.Path, help="its run")
    parser.add_argument("student", type=pathlib.Path, help="its run")
    parser.add_argument("--beams", type=int, nargs="+", default=[5, 1], help="(default %(default)s)")
    parser.add_argument("--texts", type=int, default=200, help="of the test split (default %(default)s)")
    parser.add_argument("--sources", type=pathlib.Path, help="source texts, a text per line, to learn a shortlist from")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 512], help="of shortlists (default %(default)s)")
    arguments = parser.parse_args()
    import_tensorflow()
    from zoo_training.run import default_split, read_back

    import zoo
    from zoo.decoding import learn_shortlist
    from zoo.serving.exporting import with_packed_model

    recipe = read_back(arguments.student)
    texts = list(recipe.corpus.read(default_split(recipe)).sources[: arguments.texts])
    learnt = None
    if arguments.sources:
        sources = arguments.sources.read_text(encoding="utf-8").splitlines()
        learnt = learn_shortlist(with_packed_model(zoo.load(arguments.student)), sources, min(arguments.sizes))
    packages = "tensorflow", "keras", "ctranslate2"
    with Recording(__file__, arguments.record, *packages) as recording, tempfile.TemporaryDirectory() as folder:
        rows = []
        for beams in arguments.beams:
            them, bleu = taking_part(arguments, beams, recipe, texts, learnt, folder, recording)
            timings = race(them, arguments.rounds, steps=3, warm_up=2)
            teacher = timings[0]
            shown = [each for each in timings if each.name in bleu]
            for found in (*shown, best(timings, "student, CTranslate2"), best(timings, "teacher, CTranslate2")):
                rows.append(
                    [
                        f"{beams} beams" if beams > 1 else "greedy",
                        found.name,
                        f"{bleu[found.name]:.2f}" if found.name in bleu else "",
                        f"{found.median / AT_A_TURN * 1e3:.1f}",
                        "" if found is teacher else f"{ratio(found, teacher):.2f}x ({spread(found, teacher)})",
                    ]
                )
        recording.table(Table("", ["", "", "BLEU", "ms a text", "its time / the teacher's"], rows))


if __name__ == "__main__":
    main()
