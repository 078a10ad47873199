"""The chat page at "/", in a headless Chromium."""
import json

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from serving import Server
from test_serve import WEATHER


@pytest.fixture(scope="module", name="browser")
def _browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    yield browser
    browser.quit()


@pytest.fixture(name="page")
def _page(browser):
    with Server("--served-model-name", "demo", "--api-key", "secret") as server:
        yield Page(browser, server)


class Page:
    def __init__(self, browser, server):
        self.browser = browser
        browser.get(server.url + "/")
        browser.execute_script("localStorage.clear(); sessionStorage.clear()")
        browser.refresh()
        self.set("temperature", "0")
        self.set("key", "secret")

    def set(self, name, value):
        self.browser.execute_script(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.onchange();", name, value)

    def find(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition):
        return WebDriverWait(self.browser, 60).until(lambda _: condition())

    def send(self, text):
        self.browser.find_element(By.ID, "input").send_keys(text, Keys.ENTER)

    def wait_for_end(self):
        self.wait(lambda: self.find("#send")[0].text == "Send" and self.find(".stats"))

    def texts(self, selector):
        return [e.get_attribute("textContent") for e in self.find(selector)]


def test_a_conversation(page):
    Select(page.find("#effort")[0]).select_by_visible_text("none")
    page.send("My name is Emma.")
    page.wait_for_end()
    page.send("What is my name?")
    page.wait(lambda: len(page.find(".stats")) == 2)
    page.wait_for_end()
    assert page.texts(".user") == ["My name is Emma.", "What is my name?"]
    assert page.texts(".text")[1] == "Your name is Emma."
    assert not page.find(".reasoning") and not page.find(".error")
    assert "tokens/s" in page.texts(".stats")[1]
    page.find("#clear")[0].click()
    assert not page.find(".user")
    assert not [line for line in page.browser.get_log("browser") if "Content Security" in line["message"]]


def test_reasoning_is_folded(page):
    page.send("What colour is the sky?")
    page.wait_for_end()
    assert page.texts(".text") == ["The sky is blue."]
    details = page.find("details.reasoning")
    assert len(details) == 1 and details[0].get_attribute("open") is None
    assert page.texts("details.reasoning div")[0]


def test_tool_calls_and_their_results(page):
    page.set("tools", json.dumps([WEATHER]))
    page.set("effort", "none")
    page.send("What is the weather in Paris?")
    page.wait(lambda: page.find(".results input"))
    assert page.texts(".call") == ['get_weather {"city": "Paris"}']
    page.find(".results input")[0].send_keys('{"temperature": 21, "sky": "sunny"}', Keys.ENTER)
    page.wait(lambda: page.find(".text"))
    page.wait_for_end()
    assert "21" in page.texts(".text")[0]
    assert page.texts(".user") == ["What is the weather in Paris?", '{"temperature": 21, "sky": "sunny"}']


# An answer whose end never comes, in place of the server's.
HALF_AN_ANSWER = """
window.fetch = (url, options) => Promise.resolve(new Response(url === "metrics" ? "" : new ReadableStream({start(stream) {
  stream.enqueue(new TextEncoder().encode('data: {"choices": [{"delta": {"content": "half"}}]}\\n\\n'));
  options.signal?.addEventListener("abort", () => stream.error(options.signal.reason));
}})));
"""


def test_a_new_chat_ends_the_answer(page):
    page.browser.execute_script(HALF_AN_ANSWER)
    page.send("Hello")
    page.wait(lambda: page.texts(".text") == ["half"])
    page.find("#clear")[0].click()
    page.wait(lambda: page.find("#send")[0].text == "Send")
    assert not page.find("main > *")
    assert page.browser.execute_script("return messages.length") == 0


def test_the_model_is_named_once_the_key_is_known(page):
    page.browser.refresh()
    page.set("key", "")
    page.browser.refresh()
    assert page.texts("#model") == ["deepinfer"]
    page.set("key", "secret")
    page.send("Hello")
    page.wait(lambda: page.texts("#model") == ["demo"])


def test_errors_are_shown(page):
    page.set("key", "wrong")
    page.send("Hello")
    page.wait(lambda: page.find(".error"))
    assert "Authorization" in page.texts(".error")[0]


def test_markup_stays_text(page):
    page.set("effort", "none")
    page.send("<img src=x onerror=document.title='broken'> <b>bold</b>")
    page.wait_for_end()
    assert page.browser.title == "deepinfer" and not page.find("main img, main b")
