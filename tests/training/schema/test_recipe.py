"""Recipes: what is valid, what is not, and what is said about it."""

import json
import pathlib
import re

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo_training.schema.recipe import RecipeError, name_of, read_recipe, recipe_names
from zoo_training.schema.translator_tables import TranslatorRecipe

# The fewest lines of a recipe of each kind of corpus.
CORPUS_OF = {
    "dates": 'kind = "dates"',
    "multi30k": 'kind = "multi30k"',
    "text": 'kind = "text"\ntrain = "pairs.tsv"',
    "tfds": 'kind = "tfds"\nname = "ted_hrlr_translate/pt_to_en"',
}


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def recipe_of(kind, more=""):
    return f"[corpus]\n{CORPUS_OF[kind]}\n{more}"


class TestReading:
    @pytest.mark.parametrize("name", recipe_names())
    def test_every_recipe_of_the_zoo_is_valid_and_described(self, name):
        recipe = read_recipe(name)
        assert 10 < len(recipe.description) < 120
        assert not recipe.description.endswith(".")

    @pytest.mark.parametrize("kind", CORPUS_OF)
    def test_all_but_the_corpus_has_a_default(self, write, kind):
        recipe = read_recipe(write(recipe_of(kind)))
        assert recipe.corpus.kind == kind
        assert recipe == TranslatorRecipe(corpus=recipe.corpus)

    def test_a_path_may_be_anywhere_and_have_any_suffix(self, write):
        assert read_recipe(write(recipe_of("dates"), "recipe.v2")).corpus.kind == "dates"

    @pytest.mark.parametrize(
        ("name", "called"),
        [("dates", "dates"), ("a/my.toml", "my"), ("/x/my.v2.toml", "my.v2"), ("recipe.json", "recipe")],
    )
    def test_a_model_is_called_after_its_recipe(self, name, called):
        assert name_of(name) == called

    def test_files_beside_the_recipe(self, write, tmp_path, monkeypatch):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        recipe = write(recipe_of("text"))
        assert read_recipe(recipe).corpus.train == pathlib.Path("pairs.tsv")  # nowhere: as it is written
        (tmp_path / "pairs.tsv").touch()
        assert read_recipe(recipe).corpus.train == tmp_path / "pairs.tsv"
        pathlib.Path("pairs.tsv").touch()
        assert read_recipe(recipe).corpus.train == pathlib.Path("pairs.tsv")

    def test_nothing_changes_after_reading(self):
        recipe = read_recipe("dates")
        for table in (recipe, recipe.model, recipe.corpus, recipe.tokenizer.source):
            with pytest.raises(pydantic.ValidationError, match="frozen"):
                setattr(table, next(iter(type(table).model_fields)), None)


class TestFilesThatAreNone:
    def test_a_file_of_that_name(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.toml").touch()
        with pytest.raises(RecipeError, match=r"no recipe 'mine' \(did you mean 'mine\.toml'\?\); there are"):
            read_recipe("mine")

    @pytest.mark.parametrize(
        ("name", "fault"),
        [
            ("dtes", "no recipe 'dtes' (did you mean 'dates'?); there are bert-pydoc, dates, "),
            ("zzz", "no recipe 'zzz'; there are bert-pydoc, dates, "),
            (".", "recipe '.': is a folder, and a recipe is a file; the recipes of the zoo are bert-pydoc, dates, "),
            ("r.tml", "recipe 'r.tml': no such file; the recipes of the zoo are bert-pydoc, dates, "),
            ("./dates.toml", "recipe './dates.toml': no such file; "),
        ],
    )
    def test_no_such_file(self, tmp_path, monkeypatch, name, fault):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(RecipeError, match=f"^{re.escape(fault)}"):
            read_recipe(name)

    @pytest.mark.parametrize(
        ("name", "content", "fault"),
        [
            ("mine.toml", "[corpus", "end of a table declaration"),
            ("mine.toml", "[corpus]\nkind = text", r"at line 2, column 8\); a text needs quotes, a num"),
            ("mine.toml", "[model]\ndropout = .1", r"column 11\); .*, a number a digit before its point"),
            ("mine.toml", "[corpus]\nkind = “text”", r'column 8\); a text needs straight quotes, "like this"$'),
            ("mine.toml", 'a = "C:\\data"', r"; write a path with /, or each \\ twice$"),
            ("mine.toml", 'a = "C:\\Users\\me"', r"; write a path with /, or each \\ twice$"),
            (
                "mine.toml",
                "[corpus]\n[corpus]",
                r"; a table must stand once\. Several corpora are \[\[corpus\]\], with two",
            ),
            ("mine.toml", "# It’s mine.\nseed = 1\nseed = 2", r"; a key must stand once$"),
            ("mine.toml", b'description = "\xe9"', "not UTF-8; save it as UTF-8$"),
            ("recipe.json", "", "Expecting value"),
            ("recipe.json", "[1]", "expected tables, received a list"),
        ],
    )
    def test_what_cannot_be_read(self, write, name, content, fault):
        file = write(content, name)
        with pytest.raises(RecipeError, match=rf"^recipe '{re.escape(file)}' cannot be read: (?s:.*){fault}"):
            read_recipe(file)

    def test_a_byte_order_mark_is_no_fault(self, write):
        assert read_recipe(write(b"\xef\xbb\xbf" + recipe_of("multi30k").encode())).corpus.kind == "multi30k"


class TestFaults:
    @pytest.mark.parametrize(
        ("kind", "key"),
        [
            *(("dates", key) for key in ("seed", "corpus.locales", "model.units", "training.epochs")),
            *(("dates", key) for key in ("tokenizer.joint", "tokenizer.source.minimum_count", "lengths.max_source")),
            *(("text", "corpus.header"), ("tfds", "corpus.data_dir"), ("multi30k", "corpus.folder")),
        ],
    )
    def test_a_misspelt_key_is_answered_with_the_right_one(self, write, kind, key):
        *path, last = key.split(".")
        typo = ".".join([*path, last[:-1] + "q" + last[-1]])
        right = f"unknown key '{typo}' (did you mean '{last}'?); valid here: "
        with pytest.raises(RecipeError, match=re.escape(right)) as caught:
            read_recipe(write(recipe_of(kind)), [f"{typo}=1"])
        assert last in str(caught.value).partition("valid here: ")[2].partition(";")[0].split(", ")

    def test_a_key_like_no_other(self, write):
        with pytest.raises(RecipeError, match=r"unknown key 'model\.zzz'; valid here: family, attention, cell, "):
            read_recipe(write(recipe_of("dates", "[model]\nzzz = 1")))

    def test_a_key_without_its_table_is_told_where_it_is(self):
        with pytest.raises(
            RecipeError, match=r"unknown key 'epochs' \(did you mean 'training\.epochs'\?\); valid here: "
        ):
            read_recipe("dates", ["epochs=3"])

    @pytest.mark.parametrize(
        ("written", "right"),
        [
            ("corpus.learning_rate", "'training.learning_rate'"),
            ("training.dropout", "'model.dropout'"),
            ("training.max_source", "'lengths.max_source'"),
            ("training.seed", "'seed', above all tables"),
            ("clean", "'corpus.clean'"),
            ("corpus.duplicates", "'corpus.clean.duplicates'"),
        ],
    )
    def test_a_key_in_a_wrong_table_is_told_its_own(self, written, right):
        with pytest.raises(
            RecipeError, match=re.escape(f"unknown key '{written}' (did you mean {right}?); valid here")
        ):
            read_recipe("dates", [f"{written}=1"])

    def test_byte_pairs_have_at_least_all_bytes(self):
        with pytest.raises(
            RecipeError, match=r"'tokenizer\.source\.size': input should be greater than or equal to 260 "
        ):
            read_recipe("dates", ['tokenizer.source={kind="byte_pair", size=259}'])

    def test_all_faults_are_told_at_once(self, write):
        name = write(recipe_of("dates", "locale = 1\n[model]\nunits = 0\n[trainin]\nepochs = 3"))
        with pytest.raises(RecipeError) as caught:
            read_recipe(name)
        faults = str(caught.value).removeprefix(f"recipe {name!r}: ").split("; ")
        assert [fault for fault in faults if not fault.startswith("valid here")] == [
            "unknown key 'corpus.locale' (did you mean 'locales'?)",
            "'model.units': input should be greater than 0 (received 0)",
            "unknown key 'trainin' (did you mean 'training'?)",
        ]

    def test_the_valid_keys_of_a_table_are_listed_once(self, write):
        with pytest.raises(RecipeError) as caught:
            read_recipe(write(recipe_of("dates", "locale = 1\n[lengths]\nmax = 1\nmaxi = 2")))
        told = str(caught.value).partition("unknown key 'corpus.locale'")[2]
        assert told.count("valid here") == 2
        assert told.endswith("'lengths.max'; unknown key 'lengths.maxi'; valid here: max_source, max_target")

    @pytest.mark.parametrize(
        ("override", "fault"),
        [
            ("corpus={}", "'corpus.kind' is missing; it must be one of dates, cmudict, multi30k, text, tfds"),
            (
                'corpus={kind="txt"}',
                "'corpus.kind' must be one of dates, cmudict, multi30k, text, tfds (did you mean 'text'?), ",
            ),
            ("corpus={kind='labels'}", "corpus.kind = 'labels' is for model.family = 'classifier'"),
            ("corpus={kind=[3]}", "'corpus.kind' must be one of dates, cmudict, multi30k, text, tfds, received [3]"),
            ("corpus={kind=3}", "'corpus.kind' must be one of dates, cmudict, multi30k, text, tfds, received 3"),
            ("corpus=dates", "'corpus': input should be a table (received 'dates')"),
            ("corpus=[{kind='dates'},3]", "'corpus.1': input should be a table (received 3)"),
            ("corpus.locales=fr", "'corpus.locales': input should be a list (received 'fr')"),
            ("training=3", "'training': input should be a table (received 3)"),
            ("tokenizer.source=3", "'tokenizer.source': input should be a table (received 3)"),
            ("model.start=3", "'model.start': input should be a path (received 3)"),
            ('corpus={kind="text"}', "'corpus.train' is missing"),
            ('corpus={kind="text",train=3}', "'corpus.train': `train` must be one path"),
            ('corpus={kind="text",train=""}', "'corpus.train': input should be a path that is not empty or a list"),
            ("model.start=", "'model.start': input should be a path that is not empty (received '')"),
            ("corpus.locales=[]", "'corpus.locales': input should be a list with an item or more (received [])"),
            ('corpus={kind="tfds",name=""}', "'corpus.name': input should be a string that is not empty (received '')"),
            ("corpus.locales=[1]", "'corpus.locales.0': input should be a string (received 1)"),
            ('corpus.locales=["xx"]', "'corpus.locales': a locale must be one of the CLDR's"),
            ("corpus.test_days=99999", "'corpus': `validation_days` and `test_days` must be below 73049 together"),
            ('corpus.test_days="9"', "'corpus.test_days': input should be a whole number (received '9')"),
            ("lengths.max_source=1", "'lengths.max_source': input should be greater than or equal to 2 (received 1)"),
            ("model.units=0", "'model.units': input should be greater than 0 (received 0)"),
            ("model.units=1.5", "'model.units': input should be a whole number (received 1.5)"),
            ("model=5", "'model': input should be a table (received 5)"),
            ("model.attention=aditive", "'model.attention': input should be 'additive', 'dot', 'scaled', 'general', "),
            (
                "model.family=gtp",
                "'model.family' must be one of rnn_seq2seq, transformer, gpt, classifier, ",
            ),
            ("training.learning_rate=inf", "'training.learning_rate': input should be a finite number (received inf)"),
            ("training.jit_compile=1", "'training.jit_compile': input should be true or false (received 1)"),
            ("seed=4294967296", "'seed': input should be less than 4294967296 (received 4294967296)"),
        ],
    )
    def test_values(self, override, fault):
        with pytest.raises(RecipeError, match=rf"^recipe 'dates': {re.escape(fault)}"):
            read_recipe("dates", [override])

    @pytest.mark.parametrize(
        "key",
        ["training.epochs", "training.steps_per_epoch", "lengths.max_source", "model.units", "corpus.train_examples"],
    )
    def test_a_number_that_tensorflow_has_no_type_for(self, key):
        with pytest.raises(RecipeError, match=rf"'{key}': a whole number must be below 2147483648 \(received 10+\)$"):
            read_recipe("dates", [f"{key}={10**20}"])

    def test_such_a_number_in_a_list(self):
        message = r"'model\.sliding_window': a whole number must be below 2147483648 \(received \[10+, 4\]\)$"
        with pytest.raises(RecipeError, match=message):
            read_recipe("gpt-pydoc", [f"model.sliding_window=[{10**20}, 4]"])

    @pytest.mark.parametrize(("recipe", "kind"), [("dates", "text"), ("languages", "labels")])
    def test_a_seed_has_64_bits(self, recipe, kind):
        corpus = f"corpus={{kind='{kind}', train='a'}}"
        assert read_recipe(recipe, [corpus, f"corpus.seed={2**64 - 1}"]).corpus.seed == 2**64 - 1
        with pytest.raises(RecipeError, match=rf"'corpus\.seed': a whole number must be below {2**64} \(received"):
            read_recipe(recipe, [corpus, f"corpus.seed={2**64}"])

    def test_a_value_is_told_once(self):
        with pytest.raises(RecipeError, match=r"from 1, or its header's name. Received: source_column=0$"):
            read_recipe("dates", ['corpus={kind="text",train="a",source_column=0}'])

    @pytest.mark.parametrize(
        ("override", "fault"),
        [
            (
                "sliding_window=abc",
                "'model.sliding_window': input should be a whole number or a list (received 'abc')",
            ),
            ("sliding_window=[8, 'abc']", "'model.sliding_window.1': input should be a whole number (received 'abc')"),
            (
                "rotary_scaling={factor=[1],type=[2]}",
                "'model.rotary_scaling.factor': input should be a string or a number (received [1]); "
                "'model.rotary_scaling.type': input should be a string or a number (received [2])",
            ),
        ],
    )
    def test_a_value_that_fits_none_of_several_types(self, override, fault):
        with pytest.raises(RecipeError) as caught:
            read_recipe("gpt-pydoc", [f"model.{override}"])
        assert str(caught.value).startswith("recipe 'gpt-pydoc': ") and str(caught.value).endswith(fault)
        assert "constrained" not in str(caught.value)

    def test_keys_of_fine_tuning(self):
        for key, value in (("frozen_layers", 0), ("layer_decay", 0.9)):
            with pytest.raises(RecipeError, match=rf"^recipe 'dates': training\.{key} needs model\.start: "):
                read_recipe("dates", [f"training.{key}={value}"])
            recipe = read_recipe("dates", [f"training.{key}={value}", "model.start=runs/other"])
            assert getattr(recipe.training, key) == value

    def test_no_corpus(self, write):
        with pytest.raises(RecipeError, match="'corpus' is missing"):
            read_recipe(write(""))

    @pytest.mark.parametrize(
        ("model", "fault"),
        [
            (
                'family="transformer",positions="learned",max_length=199',
                "model.positions='learned' needs model.max_length=200 or more, the larger of lengths.max_source and "
                "lengths.max_target, received 199",
            ),
            (
                'tied_embeddings="all"',
                "model.tied_embeddings='all' needs one vocabulary for both sides: write [tokenizer.joint] in place of "
                "[tokenizer.source] and [tokenizer.target]",
            ),
            (
                'family="transformer",positions="rotary",units=12,num_heads=4',
                "'model': positions='rotary' needs an even width of each head, units / num_heads, received units=12, "
                "num_heads=4",
            ),
            (
                'family="transformer",units=10,num_heads=4',
                "'model': units must be a multiple of num_heads, received units=10, num_heads=4",
            ),
            ('attention="dot",units=7', "'model': attention='dot' needs an even number of units, received units=7"),
            ('attention="none",conditional=true', "'model': conditional=true needs attention"),
            (
                'family="gpt",units=8,num_heads=4,num_key_value_heads=3',
                "'model': num_heads must be a multiple of num_key_value_heads, received num_heads=4",
            ),
        ],
    )
    def test_models_that_cannot_be_built(self, write, model, fault):
        """The constructors refuse the same, but only after TensorFlow has started and the corpus was read."""
        recipe = write('[corpus]\nkind = "pydoc"' if "gpt" in model else recipe_of("multi30k"))
        with pytest.raises(RecipeError, match=re.escape(fault)):
            read_recipe(recipe, [f"model={{{model}}}"])
        long_enough = ['model={family="transformer",positions="learned",max_length=200}']
        assert read_recipe("dates", long_enough).model.max_length == 200

    @pytest.mark.parametrize(
        ("family", "keys", "fault"),
        [
            ("classifier", "encoder={num_heads=12}", "'model.encoder': units must be a multiple of num_heads"),
            (
                "masked_language_model",
                "encoder={num_heads=12}",
                "'model.encoder': units must be a multiple of num_heads",
            ),
            ("transformer", "num_heads=12", "'model': units must be a multiple of num_heads"),
            ("transformer", 'positions="learned"', "model.positions='learned' needs model.max_length="),
        ],
    )
    def test_with_a_start_what_is_left_out_is_not_at_its_default(self, write, family, keys, fault):
        """A width of 768 with 12 heads is possible, the default width is not."""
        kinds = {"classifier": "labels", "masked_language_model": "text", "transformer": "text"}
        recipe = write(f'[corpus]\nkind = "{kinds[family]}"\ntrain = "a.tsv"\n')
        assert read_recipe(recipe, [f'model={{family="{family}",start="bert",{keys}}}']).model.start.name == "bert"
        with pytest.raises(RecipeError, match=rf"^recipe .*: {re.escape(fault)}"):
            read_recipe(recipe, [f'model={{family="{family}",{keys.replace("12", "7")}}}'])

    @pytest.mark.parametrize(
        ("override", "fault"),
        [
            ("model.num_heads=4", "'transformer' or 'gpt'; here model.family = 'rnn_seq2seq'"),
            ("model.context_length=64", "'gpt'; here model.family = 'rnn_seq2seq'"),
            ('model={family="transformer",attention="dot"}', "'rnn_seq2seq'; here model.family = 'transformer'"),
            (
                "tokenizer.source.size=300",
                "'byte_pair' or 'sentencepiece' or 'wordpiece'; here tokenizer.source.kind = 'characters'",
            ),
        ],
    )
    def test_a_key_of_another_kind(self, override, fault):
        with pytest.raises(RecipeError, match=rf" is a key of [\w.]+ = {re.escape(fault)}$"):
            read_recipe("dates", [override])

    @pytest.mark.parametrize("override", ["kind=byte_pair", "size=300"])
    def test_a_key_of_both_tokenizers(self, override):
        key = override.partition("=")[0]
        where = "in [tokenizer.source] and [tokenizer.target], or in [tokenizer.joint] for both sides"
        with pytest.raises(RecipeError, match=f"^recipe 'dates': 'tokenizer.{key}' must be {re.escape(where)}$"):
            read_recipe("dates", [f"tokenizer.{override}"])

    def test_one_vocabulary_or_two(self, caplog):
        """A run's recipe.json has all three, some at their defaults."""
        joint = 'tokenizer.joint={kind="byte_pair"}'
        read_recipe("dates", [joint, 'tokenizer.source={kind="characters"}'])
        assert not caplog.messages
        read_recipe("dates", [joint, 'tokenizer.target={kind="whitespace"}'])
        told = "tokenizer: [tokenizer.joint] replaces [tokenizer.target], which has no effect; leave one of them out"
        assert caplog.messages == [told]

    @pytest.mark.parametrize("override", ["tokenizer.joint", "tokenizer.target"])
    def test_pieces_that_vary_are_not_for_xla(self, override):
        pieces = f'{override}={{kind="byte_pair",dropout=0.1}}'
        fault = r"^recipe 'dates': the tokenizer's dropout makes batches of many .* leave training.jit_compile out$"
        with pytest.raises(RecipeError, match=fault):
            read_recipe("dates", [pieces, "training.jit_compile=true"])
        read_recipe("dates", [pieces, "training.jit_compile=false"])

    @pytest.mark.parametrize(
        ("name", "changes", "on_cpu", "on_gpu"),
        [
            ("multi30k-rnn", [], False, False),  # its recipe says so
            ("multi30k-rnn", ["training.jit_compile=true"], True, True),
            ("shakespeare", [], True, True),  # all windows have one length
            ("bert-pydoc", ["training={epochs=1}"], True, True),
            ("dates", ["training={epochs=1}"], False, True),  # buckets
            ("languages", ["training={epochs=1}"], False, True),
            ("dates", ["training={epochs=1}", 'tokenizer.joint={kind="byte_pair",dropout=0.1}'], False, False),
        ],
    )
    def test_what_xla_compiles(self, name, changes, on_cpu, on_gpu):
        recipe = read_recipe(name, changes)
        assert recipe.uses_xla(gpu=False) is on_cpu
        assert recipe.uses_xla(gpu=True) is on_gpu


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "value"),
        [
            ("training.epochs=7", lambda recipe: recipe.training.epochs == 7),
            ("model.attention=general", lambda recipe: recipe.model.attention == "general"),
            ('model.attention="general"', lambda recipe: recipe.model.attention == "general"),
            ('corpus.locales=["fr", "de"]', lambda recipe: recipe.corpus.locales == ("fr", "de")),
            ("description=words, = signs", lambda recipe: recipe.description == "words, = signs"),
            (" model.units = 64", lambda recipe: recipe.model.units == 64),
        ],
    )
    def test_values_are_toml_or_else_strings(self, override, value):
        assert value(read_recipe("dates", [override]))
        assert not value(read_recipe("dates"))

    def test_all_else_stays(self):
        plain, changed = read_recipe("dates"), read_recipe("dates", ["model.units=64", "lengths.max_target=12"])
        assert changed.model_copy(update={"model": plain.model, "lengths": plain.lengths}) == plain

    @pytest.mark.parametrize(
        ("override", "fault"),
        [
            *((override, "expected KEY=VALUE, such as model.units=128") for override in ("model.units", " =3")),
            ("model.units.x=4", "'units' is a value, not a table"),
        ],
    )
    def test_what_is_no_override(self, override, fault):
        with pytest.raises(RecipeError, match=rf"^--set '{re.escape(override)}': {re.escape(fault)}$"):
            read_recipe("dates", [override])
        with pytest.raises(RecipeError, match="unknown key"):  # a key with an empty part
            read_recipe("dates", ["model.=1"])


VALUES = {
    "seed": st.integers(0, 2**32 - 1),
    "corpus.seed": st.integers(0, 2**64 - 1).filter(lambda seed: seed < 2**63),  # the integers of TOML
    "model.units": st.integers(1, 10**6).map(lambda half: 2 * half),  # as "dot" and "scaled" need
    "model.dropout": st.floats(0, 1, exclude_max=True),
    "model.attention": st.sampled_from(["additive", "dot", "scaled", "general", "concat", "none"]),
    "training.learning_rate": st.floats(1e-300, 1),
    "lengths.max_source": st.integers(2, 10**6),
}


def at(recipe, key):
    for name in key.split("."):
        recipe = getattr(recipe, name)
    return recipe


class TestRoundTrip:
    @settings(deadline=None, max_examples=20)
    @given(st.fixed_dictionaries({}, optional=VALUES))
    def test_any_valid_values_survive_override_and_json(self, tmp_path_factory, values):
        recipe = read_recipe("dates", [f"{key}={value}" for key, value in values.items()])
        assert {key: at(recipe, key) for key in values} == values
        file = tmp_path_factory.mktemp("run") / "recipe.json"
        file.write_text(recipe.model_dump_json(), encoding="utf-8")
        assert read_recipe(str(file)) == recipe

    @pytest.mark.parametrize(
        "corpus",
        [
            CORPUS_OF["dates"],
            CORPUS_OF["tfds"],
            'kind = "multi30k"\nsource = "de"\ntarget = "en"\nfolder = "~/captions"',
            'kind = "text"\ntrain = ["a.en", "a.de"]\ntest = ["b.en", "b.de"]\nvalidation_pairs = 3',
            'kind = "text"\ntrain = "a.tsv"\nheader = true\nsource_column = "en"\ntarget_column = "de"\ntest_pairs = 0',
        ],
    )
    def test_every_kind_of_corpus_survives_json(self, write, corpus):
        """A run's recipe.json says every value, also those that the recipe left out."""
        recipe = read_recipe(write(f"[corpus]\n{corpus}"))
        text = recipe.model_dump_json()
        assert set(json.loads(text)["corpus"]) == set(type(recipe.corpus).model_fields)
        assert read_recipe(write(text, "recipe.json")) == recipe
