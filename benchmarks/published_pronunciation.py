r"""How many words are pronounced wrongly, on words like those of published figures?

Figures that are published for CMUdict are without stress marks. Their words are those of version 0.7b or an earlier
one, without abbreviations. An example of CNTK (`Examples/SequenceToSequence/CMUDict/Data` of
<https://github.com/microsoft/CNTK>) has such words: 102,068 to train on, 5,447 for validation, 11,994 for the test.
They are as many as those of the published figures, within a twentieth, but may be other ones. Phonetisaurus (Novak
et al. [2016](https://doi.org/10.1017/S1351324915000315)) learns from the same words here, as its wheel does by default.

Published are 24.4% of the words for [Phonetisaurus](https://github.com/cmusphinx/g2p-seq2seq), 21.7% for an LSTM with
attention (Toshniwal and Livescu [2016](https://arxiv.org/abs/1610.06540)), and 22.1% for a transformer (Yolchuyeva et
al. [2019](https://arxiv.org/abs/2004.06338)).

    cd CNTK/Examples/SequenceToSequence/CMUDict/Data
    sed $'s/  /\t/' cmudict-0.7b.train-dev-20-21 > train.tsv
    sed $'s/  /\t/' cmudict-0.7b.train-dev-1-21 > validation.tsv
    sed $'s/  /\t/' cmudict-0.7b.test > test.tsv
    zoo train pronounce --out published \
        --set 'corpus={kind="text", train="train.tsv", validation="validation.tsv", test="test.tsv"}'
    python ZOO/benchmarks/published_pronunciation.py . published        # needs the extra 'pronouncers'
"""

from __future__ import annotations

import pathlib

from pronunciation import phonetisaurus_answers, row
from results import Recording, Table, options
from zoo_training.corpora.file_pairs import FilePairs
from zoo_training.corpora.pairs import Pairs
from zoo_training.scoring.evaluation import by_source

import zoo

BATCH = 64


def main() -> None:
    """Scores runs and Phonetisaurus on the test words."""
    parser = options(__doc__)
    parser.add_argument("pairs", type=pathlib.Path, help="the folder of train.tsv, validation.tsv and test.tsv")
    parser.add_argument("runs", type=pathlib.Path, nargs="+", help="finished runs that learnt from train.tsv")
    parser.add_argument("--train-pairs", type=int, help="let Phonetisaurus learn from so many, to try the script")
    arguments = parser.parse_args()
    with Recording(__file__, arguments.record, "tensorflow", "phonetisaurus", timed=False) as recording:
        corpus = FilePairs(**{split: arguments.pairs / f"{split}.tsv" for split in ("train", "validation", "test")})
        train, test = corpus.read("train"), corpus.read("test")
        learnt = Pairs(
            [word.lower() for word in train.sources[: arguments.train_pairs]], train.targets[: arguments.train_pairs]
        )
        words, references, _ = by_source(test)
        rows = []
        for run in arguments.runs:
            task = zoo.load(run)
            rows.append(row(f"`{run.name}`", task(words, batch_size=BATCH), references, stress=False))
        peer = phonetisaurus_answers(learnt, [word.lower() for word in words], stress=False)
        rows.append(row("Phonetisaurus", peer, references, stress=False))
        table = Table(
            f"Error rates on {len(words):,} words, with the 95% interval",
            ["", "words wrong", "phonemes wrong"],
            [each[:3] for each in rows],
        )
        recording.table(table)


if __name__ == "__main__":
    main()
