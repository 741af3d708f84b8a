"""How the zoo's models are trained, and the command line `zoo`.

Folders:

- `cli`: the commands;
- `schema`, `recipes`: what a recipe may say, and the recipes of the zoo;
- `corpora`: where texts come from;
- `batches`: how they become batches of ids;
- `fitting`: loss, optimizer, callbacks, checkpoints;
- `scoring`: what is measured on held-out text;
- `batch_inference`: a model answers whole files, for `zoo batch`.

Files, from the command to the batches:

- `run`: a training from its recipe to its export. `run_files` has the names of its files, `cards` the model cards.
- `translation`, `language_modelling`, `masked_language_modelling`, `classification`: from a recipe and its texts to a
  model and batches. They share `preparing` (a new model), `fine_tuning` and `learn_tokenizer`.
- `distillation`: a translator learns from another one's translations.
- `ragged`: texts and ids in memory, or in files if they are larger than that; `storage`: the cache of a run.
- `ensembling`: several translators as one run. `imported`, `shortlisting`: for `zoo export`.
- `answering`, `search_index`, `file_encoding`, `progress`, `start_tensorflow`: for all commands.
- `demo`: what `make demo` runs.
"""
