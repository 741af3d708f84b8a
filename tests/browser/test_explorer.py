"""The explorer in a browser, with `zoo serve` and TensorFlow Serving: what it draws and sends, and servers that die."""

import json
import math
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "serving"))

pytestmark = pytest.mark.browser
By = pytest.importorskip("selenium.webdriver.common.by", reason="Selenium is not installed (extra 'browser')").By
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> \"&amp; رجل 😀 \u202eabc"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of exported models, tiny and with random weights, by their names."""
    import zoo
    from tests.serving.conftest import build, build_transformer, set_random_weights
    from zoo.models import GPT, Classifier, Encoder, MaskedLanguageModel, SentenceEmbedder
    from zoo.serving import export
    from zoo.text import CharacterTokenizer, WordPieceTokenizer

    folder = tmp_path_factory.mktemp("models")
    letters = CharacterTokenizer("abcdefgh .<>siprtرجل😀")
    pieces = WordPieceTokenizer.learn(["a cat sleeps", "a dog barks at cats"] * 5, 60)

    def encoder(size):
        return Encoder(size, units=8, num_heads=2, num_layers=2, max_length=40)

    tasks = {
        "transformer": build_transformer(beam_size=2),
        "recurrent": build(),
        "writer": zoo.TextGenerator(GPT(letters.size, units=12, num_heads=3, num_layers=2, context_length=64), letters),
        "moods": zoo.TextClassifier(
            Classifier(encoder(letters.size), 3, pooling="attention"), letters, ["sad", "calm", "very glad"]
        ),
        "similar": zoo.TextEmbedder(SentenceEmbedder(encoder(pieces.size)), pieces),
        "gaps": zoo.MaskFiller(MaskedLanguageModel(encoder(pieces.size)), pieces),
    }
    for seed, (name, task) in enumerate(tasks.items()):
        if name not in ("transformer", "recurrent"):
            set_random_weights(task.model, seed)
        export(task, folder / name, explore=True)
    return folder


class Server:
    """A server of all models."""

    def predict(self, model, signature, **inputs):
        """The outputs for columns of inputs; masks and prefixes that are not given are empty."""
        empty = {name: [""] * len(inputs["text"]) for name in self.inputs(model, signature)}
        inputs = {**{name: each for name, each in empty.items() if name in ("prefix", "hidden", "heads")}, **inputs}
        body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
        with urllib.request.urlopen(f"{self.address}/v1/models/{model}:predict", body, timeout=120) as response:
            return json.load(response)["outputs"]

    def inputs(self, model, signature):
        with urllib.request.urlopen(f"{self.address}/v1/models/{model}/metadata", timeout=120) as response:
            return json.load(response)["metadata"]["signature_def"]["signature_def"][signature]["inputs"]

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class ZooServe(Server):
    """`zoo serve`, which serves the page, too."""

    unknown = ()  # paths of requests that it does not know

    def __init__(self, models):
        command = [pathlib.Path(sys.executable).with_name("zoo"), "serve", *sorted(models.iterdir()), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().split()[2]
        self.page, self.given = self.address + "/", {}


class TensorFlowServing(Server):
    """Upstream's own server, which must allow other pages, and the page from a file."""

    unknown = "/models.json", ":generateStream"

    def __init__(self, models):
        from servers import BINARY, in_time

        from zoo.pictures.drawing import PAGE

        configs = "".join(
            f'config {{ name: "{each.name}" base_path: "{each}" model_platform: "tensorflow" }}\n'
            for each in models.iterdir()
        )
        config, ports = models.with_suffix(".config"), [free_port(), free_port()]
        config.write_text(f"model_config_list {{\n{configs}}}\n")
        options = [f"--port={ports[0]}", f"--rest_api_port={ports[1]}", f"--model_config_file={config}"]
        command = [BINARY, *options, "--rest_api_enable_cors_support"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.address = f"http://127.0.0.1:{ports[1]}"
        self.page, self.given = PAGE.as_uri(), {"server": self.address}
        for model in models.iterdir():
            address = f"{self.address}/v1/models/{model.name}"
            in_time(lambda address=address: urllib.request.urlopen(address).status == 200)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module", params=[ZooServe, TensorFlowServing], ids=["zoo serve", "tensorflow_model_server"])
def server_of(request):
    """A class of servers."""
    from servers import BINARY

    if request.param is TensorFlowServing and BINARY is None:
        pytest.skip("tensorflow_model_server is not on the PATH, nor named by TF_SERVING_BIN")
    return request.param


@pytest.fixture(scope="module")
def server(server_of, models):
    server = server_of(models)
    yield server
    server.stop()


class Page:
    """The page, once it has drawn."""

    def __init__(self, driver, server):
        self.driver, self.server = driver, server

    def go(self, **state):
        """To the link that holds this state."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.server.page}#{urllib.parse.urlencode({**self.server.given, **state})}")

    def open(self, model, text="", **more):
        self.go(model=model, text=text, **more)
        self.wait("return document.querySelector('#views section')")
        self.settle()
        return self

    def settle(self):
        self.wait("return !document.querySelector('[aria-busy]')")

    def wait(self, script, seconds=120):
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < end, self.text("main")
            time.sleep(0.05)
        return found

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent", selector)

    def texts(self, selector):
        return [each.get_property("textContent") for each in self.all(selector)]

    def weights(self):
        return np.array(self.run("return document.querySelector('.alignment').alignment.weights"))

    def tokens(self, side):
        """The elements of the first picture's "from" or "to" tokens."""
        return self.run("return document.querySelector('.alignment').alignment[arguments[0]].spans", side)

    def type(self, text):
        """As a user pastes it."""
        self.run(
            "const box = document.getElementById('text'); box.value = arguments[0];"
            "box.dispatchEvent(new Event('input'))",
            text,
        )
        time.sleep(0.5)  # it waits for a pause
        self.settle()


@pytest.fixture
def page(driver, server):
    driver.get_log("browser")
    driver.get_log("performance")
    page = Page(driver, server)
    yield page
    severe = [each["message"] for each in driver.get_log("browser") if each["level"] == "SEVERE"]
    expected = "favicon", *server.unknown
    assert [each for each in severe if not any(path in each for path in expected)] == []


class TestFields:
    CHANGE = "const [name, value] = arguments, field = document.getElementById(name);"
    CHANGE += "field.value = value; field.dispatchEvent(new Event('change'))"

    def test_the_models_are_a_list_where_the_server_tells_them(self, page, models):
        page.open("moods", "abc")
        listed = page.run("return [...document.querySelectorAll('#model option')].map((each) => each.value)")
        assert listed == ([] if page.server.unknown else sorted(each.name for each in models.iterdir()))
        page.run("document.getElementById('model').focus()")
        page.run(self.CHANGE, "beside", "transformer")
        page.wait("return document.querySelectorAll('#views section').length === 2")
        page.settle()
        assert page.run("return document.activeElement.id") == "model"
        page.run(self.CHANGE, "beside", "")
        page.wait("return document.querySelectorAll('#views section').length === 1")

    def test_of_two_quick_choices_the_last_one_counts(self, page, driver):
        page.open("transformer", "cab 12")
        for name in ("writer", "moods"):
            page.run(self.CHANGE, "model", name)
        page.wait("return document.querySelector('#views section')")
        page.settle()
        time.sleep(0.5)
        sections = "return [...document.querySelectorAll('#views section')].map((each) => each.ariaLabel)"
        assert page.run(sections) == ["moods"] and len(page.all("textarea")) == 1
        assert "model=moods" in driver.current_url

    def test_an_address_without_a_scheme(self, page):
        page.open("moods", "abc", server=page.server.address.removeprefix("http://"))
        assert page.text("#message") == "" and page.all(".bars .piece")

    @pytest.mark.parametrize("model", ["", "moods"])
    def test_a_server_that_is_not_there(self, page, driver, model):
        nobody = f"http://127.0.0.1:{free_port()}"
        page.go(server=nobody, model=model)
        assert page.wait("return document.getElementById('message').textContent") == f"{nobody} does not answer."
        driver.get_log("browser")  # the browser itself notes it

    def test_a_server_that_is_slow(self, page):
        page.open("moods", "abc")
        page.run(
            "window.plain = Server.prototype.signatures; Server.prototype.signatures = () => new Promise(() => {});"
            "page.connect()"
        )
        assert page.wait("return getComputedStyle(byId('views'), '::before').content") == '"Working …"'
        page.run("Server.prototype.signatures = window.plain; page.connect()")
        page.wait("return document.querySelector('#views .bars')")
        page.settle()

    @pytest.mark.parametrize("model", ["moods", "nobody"])
    def test_a_server_of_other_pages(self, page, model):
        """It is no server of models, but answers, such as the page on which one logs in."""
        page.open("moods", "abc")
        page.run(
            "window.fetch = async () => new Response('<!DOCTYPE html>');"
            "if (arguments[0] !== 'moods') page.choose('model', arguments[0])",
            model,
        )
        if model == "moods":
            page.type("bca")
        told = "return document.querySelector('#views .message')?.textContent || byId('message').textContent"
        assert page.wait(told).startswith(f"{page.server.address} answered something that is not JSON.")

    def test_keys_that_follow_one_another_change_the_address_once(self, page, driver):
        page.open("moods", "abc")
        page.run(
            "window.changes = 0; const plain = history.replaceState;"
            "history.replaceState = function (...all) { window.changes++; plain.apply(this, all); };"
            "const box = byId('text');"
            "for (let n = 1; n <= 50; n++) { box.value = 'a'.repeat(n); box.dispatchEvent(new Event('input')); }"
        )
        page.wait("return window.changes")
        page.settle()
        assert page.run("return window.changes") == 1 and f"text={'a' * 50}&" in driver.current_url


class TestTranslator:
    @pytest.mark.parametrize("model", ["transformer", "recurrent"])
    def test_the_weights_on_the_page_are_those_of_the_signature(self, page, server, model):
        page.open(model, "cab 12")
        found = server.predict(model, "complete_attention", text=["cab 12"], prefix=[""])
        weights = np.array(found["weights"][0])
        wanted = weights[-1].mean(0) if model == "transformer" else weights
        np.testing.assert_allclose(page.weights(), wanted, atol=1e-6)
        assert page.text(".translation") == server.predict(model, "serving_default", text=["cab 12"])["text"][0]
        tokens = [each.get_property("textContent") for each in page.tokens("to")]
        assert tokens == found["target_tokens"][0]

    def test_a_token_that_has_the_focus_shows_what_it_attends_to(self, page):
        page.open("transformer", "cab 12")
        second = page.tokens("to")[1]
        page.run("arguments[0].focus()", second)
        weights = page.weights()[1]
        inks = [each.get_attribute("style") for each in page.tokens("from")]
        for style, weight in zip(inks, weights, strict=True):
            assert (f"{math.floor(70 * weight + 0.5)}%" in style) == (weight > 0.004)
        assert (
            f"attends most to {'cab 12'[weights[:6].argmax()]}" in second.get_attribute("aria-label")
            or weights.argmax() == 6
        )

    def test_a_head_can_be_chosen(self, page, server):
        page.open("transformer", "cab 12")
        weights = np.array(
            server.predict("transformer", "complete_attention", text=["cab 12"], prefix=[""])["weights"][0]
        )
        heads = page.all(".heads button")
        assert len(heads) == 2 * 2 + 1 * 2 + 2 * 2  # of the decoder, of the encoder, and of the decoder again
        page.run("arguments[0].click()", heads[1])
        np.testing.assert_allclose(page.weights(), weights[0, 1], atol=1e-6)
        assert heads[1].get_attribute("aria-pressed") == "true"

    def test_another_token_is_chosen_and_the_rest_translated_anew_and_the_link_holds_it(self, page, server, driver):
        page.open("transformer", "cab 12")
        before = server.predict("transformer", "complete", text=["cab 12"], prefix=[""])
        page.run("arguments[0].click()", page.tokens("to")[1])
        page.wait("return document.querySelector('#choices[open] .bars button')")
        given = " ".join(map(str, before["ids"][0][:1]))
        choices = server.predict("transformer", "next", text=["cab 12"], prefix=[given])
        assert page.texts("#choices .piece") == [each.replace(" ", "␣") for each in choices["tokens"][0]]
        page.run("arguments[0].click()", page.all("#choices .bars button")[2])
        page.settle()
        prefix = f"{given} {choices['ids'][0][2]}"
        wanted = server.predict("transformer", "complete", text=["cab 12"], prefix=[prefix])
        page.wait(
            "return [...document.querySelectorAll('button')].some((each) => each.textContent.startsWith('Back to'))"
        )
        assert page.text(".translation") == wanted["text"][0]
        link = driver.current_url
        driver.get("about:blank")
        driver.get(link)
        page.wait("return document.querySelector('.translation')")
        page.settle()
        assert page.text(".translation") == wanted["text"][0]

    def test_what_else_the_beam_found(self, page, server):
        page.open("transformer", "cab 12")
        found = server.predict("transformer", "complete", text=["cab 12"], prefix=[""])
        others = zip(found["best"][0][1:], found["best_scores"][0][1:], strict=True)
        assert page.texts(".others li") == [f"{text or '∅'} {score:.2f}" for text, score in others]
        assert len(page.all(".others li")) == 1

    @pytest.mark.parametrize("model", ["transformer", "recurrent"])
    def test_the_empty_translation_of_white_space_has_no_map(self, page, model):
        page.open(model, " \n")  # the fixture checks that nothing is drawn at infinity
        shown = "return getComputedStyle(document.querySelector('.translation'), '::before').content"
        assert page.text(".translation") == "" and page.run(shown) == '"∅"' and page.text("#views .message") == ""
        assert page.texts(".token") == ["</s>"] and not page.all(".map, .heads")

    def test_without_attention_only_the_tokens_of_the_answer_can_be_chosen(self, page, server):
        page.open("recurrent", "cab 12")
        page.run(
            "const plain = Server.prototype.signatures;"
            "Server.prototype.signatures = async function (model) {"
            "  const found = await plain.call(this, model); delete found.complete_attention; return found; };"
            "page.connect()"
        )
        page.wait("return document.querySelector('#views h2 + .quiet')")
        page.settle()
        assert page.text(".card h2") == "This model has no attention to show"
        assert page.text(".card .quiet") == "Click a token of the translation to choose another one."
        found = server.predict("recurrent", "complete", text=["cab 12"])
        assert page.texts(".token") == [each for each in found["tokens"][0] if each]
        page.run("document.querySelectorAll('.token')[1].click()")
        page.wait("return document.querySelector('#choices[open] .bars button')")

    def test_two_models_stand_side_by_side(self, page, server):
        page.open("transformer", "cab 12", beside="recurrent")
        page.wait("return document.querySelectorAll('.translation').length === 2")
        wanted = [
            server.predict(model, "serving_default", text=["cab 12"])["text"][0]
            for model in ("transformer", "recurrent")
        ]
        assert page.texts(".translation") == wanted

    def test_a_head_that_is_chosen_again_gives_way_to_the_mean(self, page):
        page.open("transformer", "cab 12")
        mean, line = page.weights(), page.text(".heads + p, .pair p")
        for _ in range(2):
            page.run("document.querySelectorAll('.heads button')[1].click()")
        np.testing.assert_array_equal(page.weights(), mean)
        assert page.text(".heads + p, .pair p") == line and not page.all(".heads [aria-pressed=true]")

    def test_nothing_moves_when_a_cell_is_pointed_at(self, page):
        page.open("transformer", "cab")
        places = (
            "return ['.map svg', '.heads'].map((each) => document.querySelector(each).getBoundingClientRect().toJSON())"
        )
        before = page.run(places)
        cell = page.run(
            "const svg = document.querySelector('.map svg');"
            "const box = svg.querySelector('.inks').getBoundingClientRect();"
            "svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 3, clientY: box.top + 3}));"
            "return document.querySelector('.value').textContent"
        )
        weight = page.weights()[0, 0]
        assert cell == f"{weight:.3f}: “{page.tokens('to')[0].text}” attends to “c”"
        assert page.run(places) == before


class TestKeyboard:
    def test_tab_stops_once_in_a_text_and_keys_move_inside(self, page):
        page.open("transformer", "cab 12")
        texts = page.all(".tokens")
        stops = "return [...document.querySelectorAll('.token')].filter((each) => each.tabIndex === 0).length"
        assert page.run(stops) == len(texts) > 2
        tokens = page.tokens("from")
        page.run("arguments[0].focus()", tokens[1])
        for key, place in (("End", -1), ("ArrowRight", -1), ("ArrowLeft", -2), ("Home", 0)):
            event = f"new KeyboardEvent('keydown', {{key: '{key}', bubbles: true, cancelable: true}})"
            page.run(f"document.activeElement.dispatchEvent({event})")
            assert page.run("return document.activeElement === arguments[0]", tokens[place]), key
            assert page.run(stops) == len(texts)

    def test_the_focus_stays_where_another_token_was_chosen(self, page):
        page.open("transformer", "cab 12")
        page.run("arguments[0].focus(); arguments[0].click()", page.tokens("to")[1])
        page.wait("return document.querySelector('#choices[open] .bars button')")
        page.run("document.querySelectorAll('#choices .bars button')[2].click()")
        page.wait("return document.querySelector('.translation + p').textContent.includes('you chose')")
        page.settle()
        focus = "return document.activeElement === arguments[0]"
        assert page.run(focus, page.tokens("to")[1])
        page.run(
            "const buttons = [...document.querySelectorAll('.card button')];"
            "const back = buttons.find((each) => each.textContent.startsWith('Back'));"
            "back.focus(); back.click()"
        )
        page.settle()
        assert page.run(focus, page.tokens("to")[0])

    def test_the_focus_is_on_what_follows_a_chosen_token(self, page):
        page.open("writer", "abc")
        for _ in range(2):
            page.run("const [first] = document.querySelectorAll('.bars button'); first.focus(); first.click()")
            page.settle()
            page.wait("return document.activeElement === document.querySelector('.bars button')", seconds=5)

    def test_the_focus_of_who_writes_on_is_left_alone(self, page):
        page.open("transformer", "cab 12")
        page.run("arguments[0].click(); byId('text').focus()", page.tokens("from")[1])
        page.settle()
        assert page.all(".masks") and page.run("return document.activeElement.id") == "text"

    def test_only_tokens_that_do_something_are_buttons(self, page):
        page.open("transformer", "cab 12")
        roles = {
            kind: {each.get_attribute("role") for each in page.all(f".card[data-kind={kind}] .token")}
            for kind in ("source", "encoder", "decoder")
        }
        assert roles == {"source": {"button"}, "encoder": {"img"}, "decoder": {"img"}}

    def test_the_focus_goes_to_stop_and_comes_back(self, page):
        page.open("writer", "abc", max_new_tokens=400)
        page.run("const first = document.querySelector('button.first'); first.focus(); first.click()")
        assert page.run("return document.activeElement.textContent") == "Stop"
        page.run("document.activeElement.click()")
        page.wait("return !document.querySelector('button.first').disabled")
        assert page.run("return document.activeElement === document.querySelector('button.first')")
        page.settle()
        assert page.text("#views .message") == ""  # to stop is no error


class TestColours:
    @pytest.fixture
    def media(self, driver):
        def media(**features):
            named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": named})

        yield media
        media()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_full_ink_and_buttons_have_contrast(self, page, media, scheme):
        media(prefers_color_scheme=scheme)
        page.open("writer", "abc")
        # A canvas turns any colour of CSS into numbers, here above the paper.
        ratio = """
            const [behind, before] = arguments, pen = document.createElement("canvas").getContext("2d");
            const light = (...colours) => {
                for (const each of colours) { pen.fillStyle = each; pen.fillRect(0, 0, 1, 1); }
                const linear = [...pen.getImageData(0, 0, 1, 1).data].map((each) => each / 255)
                    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
                return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
            };
            const [low, high] = [light(colour("--paper"), behind), light(before)].sort((one, other) => one - other);
            return (high + 0.05) / (low + 0.05);
        """
        look = "const style = getComputedStyle(arguments[0]); return [style.backgroundColor, style.color]"
        for token in page.all(".token")[:2]:  # the start token, which is pale, and a letter
            page.run("arguments[0].style.transition = 'none'; ink(arguments[0], 1)", token)
            assert page.run(ratio, *page.run(look, token)) >= 4.5
        assert page.run(ratio, *page.run(look, page.all("button.first")[0])) >= 4.5

    def test_a_page_that_becomes_dark_is_drawn_anew(self, page, media):
        media(prefers_color_scheme="light")
        page.open("transformer", "cab 12")
        look = (
            "const [one] = document.querySelectorAll('.alignment');"
            "return [getComputedStyle(document.querySelector('.heads canvas')).filter,"
            " one.alignment.canvas.getContext('2d').strokeStyle]"
        )
        assert page.run(look) == ["none", "#d9480f"]
        media(prefers_color_scheme="dark")
        page.wait(f"return (() => {{ {look} }})().join() === 'invert(1),#ff8c42'", seconds=5)

    def test_where_the_system_chooses_the_colours_bars_and_ink_stay(self, page, media):
        media(forced_colors="active")
        page.open("writer", "abc")
        seen = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"
        assert page.run(seen, ".bars .fill") == "rgb(217, 72, 15)"
        assert page.run("return getComputedStyle(document.querySelector('.token')).forcedColorAdjust") == "none"


class TestMasks:
    @pytest.mark.parametrize("model", ["transformer", "recurrent"])
    def test_a_source_token_is_hidden_by_a_click_and_shown_again_by_a_key(self, page, server, driver, model):
        page.open(model, "cab 12")
        plain = server.predict(model, "complete", text=["cab 12"])
        page.run("arguments[0].click()", page.tokens("from")[1])
        page.settle()
        found = server.predict(model, "complete", text=["cab 12"], hidden=["1"])
        assert page.text(".translation") == found["text"][0]
        assert plain["text"][0] in page.text(".plain") or plain["text"] == found["text"]
        weights = np.array(server.predict(model, "complete_attention", text=["cab 12"], hidden=["1"])["weights"][0])
        wanted = weights[-1].mean(0) if model == "transformer" else weights
        np.testing.assert_allclose(page.weights(), wanted, atol=1e-6)
        assert not wanted[:, 1].any()
        token = page.tokens("from")[1]
        assert token.get_attribute("aria-pressed") == "true" and token.get_attribute("aria-label") == "a, hidden"
        assert "line-through" in token.value_of_css_property("text-decoration")
        changed = [place for place, each in enumerate(page.tokens("to")) if "new" in each.get_attribute("class")]
        pieces = [each for each in plain["tokens"][0] if each], [each for each in found["tokens"][0] if each]
        assert bool(changed) == (pieces[0] != pieces[1])
        assert "hidden=1" in driver.current_url
        assert page.run("return document.activeElement === arguments[0]", token)
        key = "new KeyboardEvent('keydown', {key: ' ', bubbles: true, cancelable: true})"
        page.run(f"document.activeElement.dispatchEvent({key})")
        page.settle()
        assert page.text(".translation") == plain["text"][0]
        assert not page.all(".masks, .plain") and "hidden" not in driver.current_url

    def test_a_head_is_switched_off_and_the_link_holds_it(self, page, server, driver):
        page.open("transformer", "cab 12")
        head = page.all('.card[data-kind="encoder"] [data-head]')[1]
        page.run("arguments[0].click()", head)
        page.run("document.querySelector('.switch').click()")
        page.settle()
        assert "heads=encoder.1.2" in driver.current_url
        link = driver.current_url
        driver.get("about:blank")
        driver.get(link)
        page.wait("return document.querySelector('.translation')")
        page.settle()
        found = server.predict("transformer", "complete", text=["cab 12"], heads=["encoder.1.2"])
        assert page.text(".translation") == found["text"][0]
        assert [each.get_attribute("title") for each in page.all(".heads .off")] == ["layer 1, head 2, off"]
        page.run("document.querySelector('.masks .all').click()")
        page.settle()
        plain = server.predict("transformer", "complete", text=["cab 12"])
        assert page.text(".translation") == plain["text"][0]

    def test_a_link_without_masks_takes_those_of_the_page_off(self, page, server, driver):
        page.open("transformer", "cab 12", hidden="1", heads="encoder.1.2")
        assert page.all(".masks")
        page.run(
            "location.hash = arguments[0]",
            urllib.parse.urlencode({**server.given, "model": "transformer", "text": "cab"}),
        )
        page.wait("return !document.querySelector('.masks') && document.querySelector('.translation')")
        page.settle()
        assert page.text(".translation") == server.predict("transformer", "complete", text=["cab"])["text"][0]
        assert "hidden" not in driver.current_url and "heads" not in driver.current_url

    def test_the_self_attention_of_the_decoder(self, page, server):
        page.open("transformer", "cab 12")
        found = server.predict("transformer", "complete_attention", text=["cab 12"])
        weights = page.run("return document.querySelector('.card[data-kind=decoder] .alignment').alignment.weights")
        np.testing.assert_allclose(weights, np.array(found["target_weights"][0])[-1].mean(0), atol=1e-6)
        tokens = page.texts(".card[data-kind=decoder] .token")
        assert tokens == ["<s>", *found["target_tokens"][0][:-1], *found["target_tokens"][0]]

    def test_changed_probabilities_of_a_language_model(self, page, server):
        page.open("writer", "abc hab", hidden="2", heads="1.2")
        masks = dict(text=["abc hab"], hidden=["2"], heads=["1.2"])
        found, plain = (
            server.predict("writer", "next", temperature=[1.0], **masks),
            server.predict("writer", "next", text=["abc hab"], temperature=[1.0]),
        )
        shares = dict(zip(plain["tokens"][0], plain["probabilities"][0], strict=True))
        for token, told in zip(found["tokens"][0], page.texts(".bars .before"), strict=True):
            share = shares.get(token)
            digits = 1 if share and share >= 0.0995 else 2
            assert told == ("was not here" if share is None else f"was {100 * share:.{digits}f}%")
        weights = np.array(server.predict("writer", "masked_attention", **masks)["weights"][0])
        np.testing.assert_allclose(page.weights(), weights[-1].mean(0), atol=1e-6)

    def test_a_text_goes_on_without_what_is_left_out(self, page, server):
        left_out = dict(hidden="2 3 5", heads="1.1 1.2 1.3 2.1 2.2")
        masks, settings = {name: [each] for name, each in left_out.items()}, dict(max_new_tokens=6, **left_out)

        def continued(**more):
            page.open("writer", "abc hab", **settings, **more)
            page.run("document.querySelector('button.first').click()")
            page.wait("return document.querySelector('button.first').disabled === false")
            page.settle()
            return page.run("return document.getElementById('text').value")

        def next_of(text, temperature):
            found = server.predict("writer", "next", text=[text], temperature=[temperature], **masks)
            return list(zip(found["text"][0], found["probabilities"][0], strict=True))

        expected = "abc hab"
        for _ in range(6):
            expected += next_of(expected, 0)[0][0]
        assert continued(temperature=0) == expected
        assert server.predict("writer", "generate", text=["abc hab"], **greedy(6))["text"][0] != expected[7:]
        first = continued(temperature=1, top_p=0.9, seed=1)
        assert continued(temperature=1, top_p=0.9, seed=1) == first != continued(temperature=1, top_p=0.9, seed=2)
        text, places = "abc hab", set()
        for letter in first[len(text) :]:
            found = next_of(text, 1)
            places.add(place := [each for each, _ in found].index(letter))
            assert sum(share for _, share in found[:place]) < 0.9
            text += letter
        assert len(places) > 1  # it does not always write the likeliest

    @pytest.mark.parametrize("model", ["transformer", "writer"])
    def test_no_serious_fault_of_accessibility_with_masks_and_hostile_ones(self, page, serious_faults, model):
        heads = "source.1.2 1.1" if model == "transformer" else "1.2"
        page.open(model, HOSTILE, hidden="1 3 <img src=x onerror='window.hacked=1'>", heads=f"{heads} <b>x</b>")
        assert page.all(".masks") and page.run("return window.hacked") is None
        assert page.run("return document.querySelectorAll('main img, main b').length") == 0
        assert serious_faults() == []


class TestLanguageModel:
    def test_the_next_tokens_and_a_click_on_one(self, page, server):
        page.open("writer", "abc", temperature=0.5)
        found = server.predict("writer", "next", text=["abc"], temperature=[0.5])
        assert page.texts(".bars .piece")[:5] == [each.replace(" ", "␣") for each in found["tokens"][0][:5]]
        assert (
            page.texts(".bars .number")[0]
            == f"{100 * found['probabilities'][0][0]:.{1 if found['probabilities'][0][0] >= 0.0995 else 2}f}%"
        )
        page.run("arguments[0].click()", page.all(".bars button")[1])
        page.settle()
        assert page.run("return document.getElementById('text').value") == "abc" + found["text"][0][1]

    def test_the_streamed_text_is_that_of_one_request(self, page, server):
        page.open("writer", "abc", max_new_tokens=20, seed=3)
        page.run("document.querySelector('button.first').click()")
        page.wait("return document.getElementById('text').value.length > 3")
        page.wait("return !document.querySelector('button.first').disabled")
        page.settle()
        settings = dict(
            max_new_tokens=[20], temperature=[1.0], top_p=[1.0], top_k=[0], repetition_penalty=[1.0], seed=[3]
        )
        wanted = server.predict("writer", "generate", text=["abc"], stop=[""], **settings)["text"][0]
        assert page.run("return document.getElementById('text').value") == ("abc" + wanted).replace("\r\n", "\n")

    def test_a_number_that_is_changed_by_the_click_on_the_button_does_not_stop_the_text(self, page, server):
        page.open("writer", "abc", temperature=0.5, seed=2)
        page.run(
            "const number = document.querySelector('input[type=number]'); number.value = 400;"
            "number.dispatchEvent(new Event('change')); document.querySelector('button.first').click()"
        )
        page.wait("return !document.querySelector('button.first').disabled")
        settings = dict(temperature=[0.5], top_p=[1.0], top_k=[0], repetition_penalty=[1.0], seed=[2], stop=[""])
        wanted = server.predict("writer", "generate", text=["abc"], max_new_tokens=[400], **settings)["text"][0]
        assert page.run("return document.getElementById('text').value") == ("abc" + wanted).replace("\r\n", "\n")

    def test_two_models_side_by_side_share_text_and_settings(self, page, server, driver):
        page.open("writer", "abc", beside="writer")

        def both_show(text, temperature):
            found = server.predict("writer", "next", text=[text], temperature=[temperature])
            share = found["probabilities"][0][0]
            first = f"{found['tokens'][0][0].replace(' ', '␣')} {100 * share:.{1 if share >= 0.0995 else 2}f}%"
            firsts = (
                "[...document.querySelectorAll('section')].map((each) =>"
                " ['piece', 'number'].map((part) => each.querySelector(`.bars .${part}`)?.textContent).join(' '))"
            )
            page.wait(f"return {firsts}.join() === {json.dumps(f'{first},{first}')}")
            page.settle()

        page.run(
            "const slider = document.querySelector('input[type=range]'); slider.value = 0.5;"
            "slider.dispatchEvent(new Event('input'))"
        )
        both_show("abc", 0.5)
        # A token that is chosen in the second one goes on the text of both.
        chosen = server.predict("writer", "next", text=["abc"], temperature=[0.5])["text"][0][1]
        page.run("document.querySelectorAll('section')[1].querySelectorAll('.bars button')[1].click()")
        both_show("abc" + chosen, 0.5)
        assert page.run("return document.getElementById('text').value") == "abc" + chosen
        assert urllib.parse.urlencode({"text": "abc" + chosen}) in driver.current_url
        page.run("document.querySelector('button.first').click()")
        page.wait("return document.querySelector('button.first').disabled === false")
        written = page.run("return document.getElementById('text').value")
        assert len(written) > len("abc" + chosen)
        both_show(written, 0.5)

    def test_surprise_is_the_probability_of_each_token(self, page, server):
        page.open("writer", "abc hab")
        scores = server.predict("writer", "score_tokens", text=["abc hab"])["log_probabilities"][0]
        titles = [each.get_attribute("title") for each in page.all(".alignment .token")]
        for title, score in zip(titles, scores, strict=True):
            share = float(title.rsplit(" ", 1)[1].removesuffix("%")) / 100
            assert share == pytest.approx(math.exp(score), abs=6e-4)


class TestEncoders:
    def test_classes_with_their_probabilities(self, page, server):
        page.open("moods", "abc")
        found = server.predict("moods", "classify", text=["abc"])
        assert page.texts(".bars .piece") == found["labels"][0]

    def test_which_tokens_counted_and_what_each_attends_to(self, page, server):
        page.open("moods", "abc")
        assert page.texts(".card h2") == ["moods", "Which tokens counted", "Attention"]
        [[weights]] = server.predict("moods", "attention", text=["abc"])["weights"]
        first = "document.querySelector('[aria-label=Tokens]')"
        told = page.run(f"return [...{first}.querySelectorAll('.token')].map((each) => each.title)")
        assert [float(each.removesuffix("%")) / 100 for each in told] == pytest.approx(weights, abs=6e-4)
        assert page.run("return document.querySelectorAll('.heads button').length") == 2 * 2
        page.open("moods", "abc " * 100)  # too long for maps of all heads
        assert page.texts(".card h2") == ["moods", "Which tokens counted"]

    def test_how_similar_lines_are(self, page, server):
        lines = ["a cat sleeps", "a dog barks", "cats"]
        page.open("similar", "\n".join(lines))
        vectors = np.array(server.predict("similar", "embed", text=lines))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found = np.array([float(each) for each in page.texts("table.similar td")]).reshape(3, 3)
        np.testing.assert_allclose(found, vectors @ vectors.T, atol=0.0051)

    def test_more_lines_than_are_compared(self, page):
        page.open("similar", "\n".join(["a cat", "a dog"] * 15))
        assert page.text(".card .quiet").endswith("Of 30 lines, these are the first 24.")
        assert page.texts("table.similar th[scope=col]") == [f"{number}." for number in range(1, 25)]
        assert "Attention of line 1" in page.texts("h2")

    def test_a_classifier_of_pairs_says_how_to_write_them(self, page):
        page.open("moods")
        label = "return document.querySelector('#input label')?.firstChild.data"
        assert page.run(label) == "A text to classify"
        page.run(
            "const plain = Server.prototype.signatures;"
            "Server.prototype.signatures = async function (model) {"
            "  const found = await plain.call(this, model); found.classify.inputs.add('text_pair'); return found; };"
            "page.connect()"
        )
        page.wait(f"{label} === 'A text to classify: the first text on the first line, the second one below it'")

    def test_masks_and_their_tokens(self, page, server):
        page.open("gaps", "a [MASK] sleeps")
        found = server.predict("gaps", "fill", text=["a [MASK] sleeps"])
        assert page.texts(".bars .piece") == found["tokens"][0][0]


class TestSafety:
    @pytest.mark.parametrize("model", ["transformer", "writer", "moods", "similar", "gaps"])
    def test_hostile_texts_are_shown_as_text(self, page, model):
        page.open(model, HOSTILE)
        assert page.run("return window.hacked") is None
        assert page.run("return document.querySelectorAll('main img, main script').length") == 0
        assert page.text(".message[role=alert]") == ""

    def test_a_megabyte_of_text(self, page):
        page.open("transformer", "cab")
        page.type("cab 12 " * 150_000)
        assert page.run("return document.querySelectorAll('.alignment .token').length") > 400
        assert page.text("#views .message") == ""

    @pytest.mark.parametrize(("model", "most"), [("transformer", 400), ("writer", 64), ("similar", 40)])
    def test_a_text_that_is_longer_than_what_the_model_reads(self, page, model, most):
        page.open(model, ("a dog Sleeps " if model == "similar" else "abc ") * 150)
        assert page.text(".cut").startswith(f"The model reads at most {most} tokens at once.")
        for whole in ("abc ab", "abc €", "a cat Sleeps\na\u0301\u200b", "a cat [MASK]"):
            page.type(whole)
            assert not page.all(".cut"), whole

    def test_nothing_is_asked_of_anybody_else(self, page, driver, server):
        page.open("transformer", "cab 12")
        asked = [
            message["params"]["request"]["url"]
            for each in driver.get_log("performance")
            if (message := json.loads(each["message"])["message"])["method"] == "Network.requestWillBeSent"
        ]
        others = [url for url in asked if not url.startswith((server.page, server.address, "data:", "blob:", "about:"))]
        assert asked
        assert others == []

    def test_a_model_that_is_not_there(self, page):
        page.go(model="nobody", text="a")
        told = page.wait("return document.getElementById('message').textContent")
        assert "404" in told and "nobody" in told
        page.driver.get_log("browser")  # the browser itself notes the 404

    def test_a_failed_answer_can_be_asked_for_again(self, page, driver):
        fails = "window.works ||= window.fetch; window.fetch = () => Promise.reject(new TypeError('no network'));"
        shown = "return [...document.querySelectorAll('main button')].filter((each) => each.textContent === 'Try again'"
        shown += " && each.checkVisibility()).length"
        again = "[...document.querySelectorAll('main button')].find((each) => each.textContent === 'Try again'"
        again = f"const again = {again} && each.checkVisibility()); again.focus(); again.click();"
        page.open("recurrent", "cab")
        assert page.run(shown) == 0
        page.run(fails)
        page.type("4321")
        assert page.run(shown) == 1
        page.run(again)
        page.settle()
        assert page.run(shown) == 1, "it fails again"
        page.run(f"window.fetch = window.works; {again}")
        page.wait(f"return !(() => {{ {shown} }})()")
        page.settle()
        found = page.server.predict("recurrent", "serving_default", text=["4321"])["text"]
        assert page.text(".translation") == found[0]
        assert page.run("return document.activeElement.id") == "text"
        # the same before a model is known
        page.run(f"{fails} document.getElementById('server').dispatchEvent(new Event('change'))")
        page.wait("return document.getElementById('message').textContent")
        page.run(f"window.fetch = window.works; {again}")
        page.wait("return document.querySelector('.translation')")
        assert page.run(shown) == 0

    def test_a_server_that_dies_gives_a_sentence_and_the_text_stays(self, driver, models, server_of):
        mortal = server_of(models)
        page = Page(driver, mortal)
        page.open("writer", "cab 12", max_new_tokens=60_000)
        if mortal.unknown:  # it does not stream, so its answer has no middle
            mortal.stop()
        page.run("document.querySelector('button.first').click()")
        if not mortal.unknown:
            page.wait("return document.getElementById('text').value.length > 8")
            mortal.stop()
        page.wait("return !document.querySelector('button.first').disabled")
        told = (
            f"{mortal.address} does not answer." if mortal.unknown else "The server stopped in the middle of the text."
        )
        assert page.text("#views .message") == told
        page.type("cab 1234")
        assert page.text("#views .message").startswith(f"{mortal.address} does not answer.")
        assert page.run("return document.getElementById('text').value") == "cab 1234"
        assert page.all(".earlier")  # the answer to another text
        driver.get_log("browser")


@pytest.mark.parametrize("model", ["transformer", "writer", "moods", "similar", "gaps"])
def test_no_serious_fault_of_accessibility_and_nothing_sticks_out(page, driver, serious_faults, model):
    page.open(model, "a [MASK] cab 12\nabc")
    try:
        for width in (1440, 768, 360):
            size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            page.wait(f"return document.documentElement.scrollWidth <= {width}", seconds=10)
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert serious_faults() == []


def greedy(tokens):
    """The inputs of `generate` for one row whose tokens are the likeliest."""
    return dict(temperature=[0.0], top_p=[1.0], top_k=[0], repetition_penalty=[1.0], seed=[0], stop=[""]) | dict(
        max_new_tokens=[tokens]
    )
