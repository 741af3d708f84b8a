"""Exports a task as a SavedModel that a stock TensorFlow Serving runs."""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from zoo.atomic import make_folders, remove_abandoned, rename_folder, temporary_folder
from zoo.decoding.loop import loops_for_a_server
from zoo.serving.half_weights import HalfWeights
from zoo.serving.layout import LARGEST_VERSION, WARM_UP_FILE, check_loadable, versions
from zoo.serving.packed import pack, unsupported
from zoo.tasks.task import SavedTask
from zoo.tasks.translator import Translator

STORED_AS = ("float32", "float16")
_TEMPORARY, _VERSION = ".export.tmp-", "version"
_NO_NUMBER = (
    f"{{path}} holds version {LARGEST_VERSION}, the largest number that a server knows, so no version can follow. "
    "Remove or rename that folder."
)
_BATCHING_FILE = "batching_params.pbtxt"
_ROWS = (1, 4, 16)
_BATCHING = """\
# Read by a server with --enable_batching and --enable_per_model_batching_parameters.
# A request never waits for others: what comes while all threads are at work makes up the next batch.
max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 64 }
"""


def export(
    model: SavedTask,
    path: str | pathlib.Path,
    files: dict[str, str] | Callable[[pathlib.Path], dict[str, str]] | None = None,
    texts: Iterable[str] | None = None,
    weights: str = "float32",
    explore: bool = False,
) -> pathlib.Path:
    """Writes the next version of a model: `path/<integer>/saved_model.pb` and what belongs to it.

    The version is written into a temporary folder inside `path`, which servers ignore because of its name, and then
    renamed: a server polls `path` and must never see half a version, not even after a power cut. Leftovers of killed
    exports are removed. The version also has `assets.extra/tf_serving_warmup_requests`, requests to each signature with
    which a server warms up, and `batching_params.pbtxt`.

    The weights are arranged for a server, see `zoo.serving.packed`; a model that has no such form is exported as it is.

    The signatures all take `text`, a `[None]` string tensor. Those of a `Translator` all decode with its beam size:

    - `serving_default` gives `text` `[None]`, valid UTF-8, and `score` `[None]`, the log-probability of that text,
      with a shortlist among its tokens;
    - `generate` also takes, `[None]` each, int32 `max_target_length`, the most tokens a translation may have, and
      float32 `length_penalty`, from 0 to 10; the translator's own values replace a larger length and a penalty out of
      range. The outputs are the same;
    - `score` also takes `target`, a translation of each text. It gives `log_probability` and `tokens` of the target,
      which is cut off at the translator's `max_target_length`;
    - with `explore`, `next` and `complete` also take `prefix`, the ids of the first tokens with spaces between; if the
      model has `head_sizes`, `hidden`, the positions of source tokens that nobody may attend to, such as "2 3"; and if
      it has heads, `heads`, names of those that are switched off, such as "encoder.1.3 source.2.1 decoder.1.4". `next`
      gives `ids`, `tokens` and `probabilities` `[None, 20]` of the most likely tokens behind it; `complete` the
      translation `text` that begins so, and its `ids`, `tokens` and `log_probabilities` `[None, T]`, and all N that the
      beam has found as `best`, with `best_scores`, `[None, N]`.
      `complete_attention` takes the same and gives what `attention_by_head` gives, or `attention` if there are no
      heads, of that translation;
    - `attention` gives `source_tokens` `[None, S]`, `target_tokens` `[None, T]`, both padded with empty strings, and
      `weights` `[None, T, S]`, zero at padding. Only if the model has attention;
    - `attention_by_head` gives the same tokens, `weights` `[None, M, H, T, S]` of all M layers and H heads, and
      `source_weights` `[None, N, H, S, S]` of the encoder's self-attention, and `target_weights` `[None, M, H, T, T]`
      of the decoder's, in which column j is the token before target token j. Only if the model has layers and heads. It
      is a separate signature because this output is long, and a client cannot leave out a part of an answer.

    Those of a `TextGenerator`:

    - `generate` also takes, `[None]` each, the settings of `TextGenerator.generate`: int32 `max_new_tokens`,
      float32 `temperature`, int32 `top_k`, float32 `top_p` and `repetition_penalty`, int64 `seed`, and the string
      `stop`, which joins stop strings with NULs between them. It gives `[None]` each: `text`, the continuation, valid
      UTF-8; `log_probability`; and `tokens`, how many there are. A text may be longer than the context, over which a
      window slides. At most 65,536 tokens are written. Of a row's stop strings the first 16 count, and of each its
      first 64 bytes. A `repetition_penalty` that is NaN or out of range counts as 1;
    - `serving_default` is `generate` with its defaults and seed 0;
    - `score` gives `log_probability` and `tokens` of the text itself. A text that is longer than the context is read in
      windows that begin `TextGenerator.stride` tokens apart;
    - with `explore`, `next` also takes `temperature`. It gives `tokens` `[None, 20]`, the most likely next ones, the
      `text` that each writes, and their `probabilities`. `score_tokens` gives `tokens` and `log_probabilities`
      `[None, T]` of as much of the text as the context holds; `masked_attention` what `attention_by_head` gives. All
      three take `hidden`, positions of tokens that no later token may attend to, and `heads`, such as "1.3";
    - `attention` gives `tokens` `[None, T]` of as much of the text as the context holds, padded with empty strings, and
      `weights` `[None, T, T]`, the mean of the last layer's heads, zero at padding; `attention_by_head` the same
      tokens, and `weights` `[None, N, H, T, T]` of all N layers and H heads.

    Those of a `TextClassifier`, which have a second input `text_pair` `[None]` if it reads pairs of texts:

    - `serving_default` gives `label` and `probability` `[None]`;
    - `classify` gives `labels` and `probabilities` `[None, C]` of all C classes, the most probable first.

    That of a `TextEmbedder`: `embed`, which is `serving_default` too, gives `embedding` `[None, D]`.

    Those of a `MaskFiller`:

    - `serving_default` gives `text` `[None]`, with the most probable token in place of each mask, and `probability`
      `[None]`, the product of the probabilities of these tokens;
    - `fill` gives the same `text`, and `tokens` and `probabilities` `[None, M, K]`: for each of M masks the K most
      probable tokens, with empty strings for a text of fewer masks.

    All three have `attention`, with `tokens` `[None, T]` and `weights` `[None, T, T]`, the mean of the last layer's
    heads, zero at padding; or `[None, 1, T]`, how much each token counts, if the model pools by attention. Models with
    layers and heads also have `attention_by_head`, with `weights` `[None, N, H, T, T]`.

    Args:
        model: a task: a `Translator`, `TextGenerator`, `TextClassifier`, `TextEmbedder` or `MaskFiller`.
        path: the model's folder, whose name is the model's name to a server.
        files: further texts to put into the version's folder, by file name, such as a card; or a function that gives
            them, called with the folder after everything else is written.
        texts: the texts of the warm-up requests, such as some training texts; texts of random
            tokens if None.
        weights: how the files store the weights, "float32" or "float16". With "float16" they take half the bytes. The
            loaded model computes in float32 with the rounded weights, at the same speed and in the same memory.
        explore: whether there are also the signatures by which people choose tokens, as on the page of `zoo serve`:
            `next`, `complete`, `complete_attention`, `score_tokens` and `masked_attention`. Those of a translator
            decode by a loop with a prefix, so the graph of a transformer becomes twice as large, and a server takes
            twice as long to load it. They are not warmed up.

    Returns:
        The new version's folder.

    Raises:
        FileExistsError: `path` is a file.
        OSError: a file cannot be written, such as on a full disk.
        ValueError: `model` is no task, `path` holds the largest version number that a server knows or has brackets,
            `weights` is unknown, a weight is too large for float16, or a translator with a shortlist has no packed
            form.
    """
    if weights not in STORED_AS:
        raise ValueError(f"`weights` must be {' or '.join(map(repr, STORED_AS))}. Received: weights={weights!r}")
    if not isinstance(model, SavedTask):
        raise ValueError(
            "`model` must be a task, which joins a model and its tokenizers: for example zoo.Translator(model, "
            "source_tokenizer, target_tokenizer) or zoo.TextGenerator(model, tokenizer). What is already exported is "
            f"copied as a folder. Received: model of type {type(model).__name__}"
        )
    if getattr(model, "shortlist", None) is not None and (reason := unsupported(model.model)):
        raise ValueError(f"A shortlist needs a packed `zoo.models.Transformer`: {reason}")
    path = pathlib.Path(path)
    check_loadable(path)
    if path.is_file():
        raise FileExistsError(f"{path} is a file; a model is exported into a folder.")
    if LARGEST_VERSION in versions(path):
        raise ValueError(_NO_NUMBER.format(path=path))
    make_folders(path)
    _remove_killed_exports(path)
    # A served model is not trained. Functions with hand-written gradients take much less space without them.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    # In the model's own folder, which may be a link or a mount: a rename works on one file system only.
    with _full_disk_named(path), temporary_folder(path, _TEMPORARY) as aside:
        folder = aside / _VERSION
        # A `Transformer` becomes a `PackedTransformer`, a `GPT` a `PackedGPT`; a recurrent model stays as it is.
        served = with_packed_model(model)
        module = _bare_module(served, half=weights == "float16")
        with loops_for_a_server(on_one_thread=not getattr(served.model, "in_parts", False)):
            signatures = {
                name: function
                for name, function in served.signatures().items()
                if explore or name not in served.EXPLORE
            }
            tf.saved_model.save(module, str(folder), signatures=signatures, options=options)
        write_warm_up(folder, served, texts)
        (folder / _BATCHING_FILE).write_text(_BATCHING, encoding="utf-8")
        for name, text in (files(folder) if callable(files) else files or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        return _rename_to_next_version(folder, path)


@contextlib.contextmanager
def _full_disk_named(path: pathlib.Path) -> Iterator[None]:
    """Names the model's folder in the error of a full disk: Python's has no name, and TensorFlow's is no `OSError`."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        if (full := os.strerror(errno.ENOSPC)) not in str(error):
            raise
        raise OSError(errno.ENOSPC, full, str(path)) from error


def with_packed_model(model: SavedTask) -> SavedTask:
    """The same tokenizers and settings around the packed model: what an export holds, see `zoo.serving.packed`."""
    return model.with_model(pack(model.model, *model.packed_lengths))


def _bare_module(model: SavedTask, half: bool) -> tf.Module:
    """A module with nothing but what the signatures use: no layers, no optimizer, no training graph."""
    module = tf.Module()
    weights = model.model.weights
    weights = weights if isinstance(model.model, tf.Module) else [weight.value for weight in weights]
    module.weights = HalfWeights(weights) if half else weights
    module.tokenizers = model.tokenizers
    if isinstance(model, Translator):
        module.shortlist = model.shortlist
        module.fills_source = model.fills_source  # no signature, since no client has a use for it
    return module


def write_warm_up(folder: pathlib.Path, model: SavedTask, texts: Iterable[str] | None = None) -> None:
    """Writes the requests that a server warms up with into a version's folder.

    There are some for each signature but those of `explore`, in several batch sizes. A server that has answered them
    has set up everything that a first request to these signatures would otherwise wait for.

    Args:
        folder: the version's folder.
        model: what is exported.
        texts: the texts of the requests; only the first ones are used. Texts of random tokens if None or empty.
    """
    texts = list(itertools.islice(() if texts is None else texts, max(_ROWS))) or model.example_texts()
    path = folder / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in _records(model, texts):
            writer.write(record.SerializeToString(deterministic=True))


def _records(model, texts: list[str]) -> Iterator[prediction_log_pb2.PredictionLog]:
    for rows in _ROWS:
        for name, inputs in model.example_requests([texts[row % len(texts)] for row in range(rows)]).items():
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = name
            for key, value in inputs.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            yield prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))


def _remove_killed_exports(path: pathlib.Path) -> None:
    """Removes the temporary folders of exports that were killed; those of zoo 0.1 lie beside the model's folder."""
    for folder in path.glob(f"{_TEMPORARY}*"):
        remove_abandoned(folder)
    for folder in path.parent.glob(f".{glob.escape(path.name)}.tmp-*"):
        if {child.name for child in folder.glob("*")} <= {_VERSION}:  # and no folder that a `save` has put aside
            remove_abandoned(folder)


def _rename_to_next_version(folder: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    for number in range(max(versions(path), default=0) + 1, LARGEST_VERSION + 1):
        version = path / str(number)
        try:
            # Fails, and does not overwrite, if another export has just taken this number.
            rename_folder(folder, version)
            return version
        except OSError:
            if not os.path.lexists(version):  # also a link to nothing is in the way
                raise
    raise ValueError(_NO_NUMBER.format(path=path))
