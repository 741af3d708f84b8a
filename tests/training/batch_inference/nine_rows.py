"""Nine rows in files of every format, one of which fails, and what is written for them."""

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = ["one", "", "drei", "bad", "vier\u2028x", "ünf", "six", "seven is longer", "8"]
UPPER = [f">{text.upper()}".replace("Ü", "ü") for text in TEXTS]  # tf.strings.upper knows ASCII only
LENGTHS = [len(text.encode()) for text in TEXTS]
GOOD = [number for number, text in enumerate(TEXTS) if text != "bad"]


def write_input(kind, path):
    if kind == "txt":
        path.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    elif kind == "tsv":
        rows = "".join(f"{n}\t{text}\n" for n, text in enumerate(TEXTS))
        path.write_text(f"id\ttext\n{rows}", encoding="utf-8")
    elif kind == "jsonl":
        rows = [json.dumps({"id": n, "text": text}) for n, text in enumerate(TEXTS)]
        path.write_text("\n\n".join(rows), encoding="utf-8")  # blank lines are no rows
    else:
        table = pa.table({"id": pa.array(range(9), pa.int16()), "text": TEXTS})
        pq.write_table(table, path, row_group_size=4)


def expected(reads, writes):
    if writes == "txt":
        return "".join(f"{UPPER[n] if n in GOOD else ''}\n" for n in range(9))
    if writes == "tsv" and reads == "txt":
        return "text\tlength\toutput_text\n" + "".join(f"{TEXTS[n]}\t{LENGTHS[n]}\t{UPPER[n]}\n" for n in GOOD)
    if writes == "tsv":
        rows = "".join(f"{n}\t{TEXTS[n]}\t{LENGTHS[n]}\t{UPPER[n]}\n" for n in GOOD)
        return f"id\ttext\tlength\toutput_text\n{rows}"
    ids = [{} if reads == "txt" else {"id": str(n) if reads == "tsv" else n} for n in range(9)]
    return [{**ids[n], "text": TEXTS[n], "length": LENGTHS[n], "output_text": UPPER[n]} for n in GOOD]


def json_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
