#include "server/chat_page.h"

namespace deepinfer {

const std::string_view kChatPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>deepinfer</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #3b6fd4; }
* { box-sizing: border-box; }
body { margin: 0; height: 100dvh; display: flex; flex-direction: column; font: 16px/1.5 system-ui, sans-serif; }
header, footer { padding: .6rem 1rem; }
header { display: flex; gap: 1rem; align-items: center; flex-wrap: wrap; border-bottom: 1px solid var(--line); }
header b { flex: 1; }
main { flex: 1; overflow-y: auto; padding: 1rem; }
main > *, footer > form { max-width: 48rem; margin: 0 auto .8rem; }
.user { background: var(--soft); border-radius: .8rem; padding: .5rem .9rem; white-space: pre-wrap; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.call { border: 1px solid var(--line); border-radius: .5rem; padding: .4rem .7rem; margin: .4rem 0; }
.call code { overflow-wrap: anywhere; }
details { color: #888; margin-bottom: .4rem; }
details div { white-space: pre-wrap; padding-left: .8rem; border-left: 2px solid var(--line); }
.stats { color: #888; font-size: .8rem; }
.error { color: #c33; white-space: pre-wrap; }
form { display: flex; gap: .5rem; align-items: flex-end; }
textarea, input, select, button { font: inherit; border: 1px solid var(--line); border-radius: .5rem; padding: .4rem .6rem; }
textarea { flex: 1; resize: vertical; min-height: 2.6rem; }
button { background: var(--accent); color: #fff; border-color: transparent; cursor: pointer; }
dialog { width: min(40rem, 90vw); border: 1px solid var(--line); border-radius: .8rem; }
dialog label { display: block; margin-bottom: .6rem; }
dialog textarea, dialog input { width: 100%; }
</style>
</head>
<body>
<header>
  <b id="model">deepinfer</b>
  <label>reasoning <select id="effort">
    <option value="">default</option><option>none</option><option>low</option><option>high</option><option>max</option>
  </select></label>
  <button id="settings" type="button">Settings</button>
  <button id="clear" type="button">New chat</button>
</header>
<main id="log" aria-live="polite"></main>
<footer>
  <form id="form">
    <textarea id="input" rows="1" placeholder="Message (Enter sends, Shift+Enter breaks the line)" autofocus></textarea>
    <button id="send">Send</button>
  </form>
</footer>
<dialog id="dialog">
  <form method="dialog" style="display:block">
    <label>API key <input id="key" type="password" autocomplete="off"></label>
    <label>System message <textarea id="system"></textarea></label>
    <label>Temperature <input id="temperature" placeholder="the model's"></label>
    <label>Tools (JSON list) <textarea id="tools" rows="6"></textarea></label>
    <button>Close</button>
  </form>
</dialog>
<script>
"use strict";
const $ = id => document.getElementById(id);
const messages = [];
let running = null;  // AbortController of the answer that is being written
let named = false;  // does the page know the model's name

for (const id of ["key", "system", "temperature", "tools", "effort"]) {
  const store = id === "key" ? sessionStorage : localStorage;
  $(id).value = store.getItem(id) || "";
  $(id).onchange = () => store.setItem(id, $(id).value);
}
$("settings").onclick = () => $("dialog").showModal();
$("clear").onclick = () => { if (running) running.abort(); messages.length = 0; $("log").replaceChildren(); };
$("input").onkeydown = e => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); $("form").requestSubmit(); } };
$("form").onsubmit = e => {
  e.preventDefault();
  if (running) return running.abort();
  const text = $("input").value;
  if (!text.trim()) return;
  $("input").value = "";
  messages.push({role: "user", content: text});
  add($("log"), "div", "user").textContent = text;
  answer();
};

function add(parent, tag, name) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  parent.append(element);
  return element;
}

function headers() {
  return $("key").value ? {Authorization: "Bearer " + $("key").value} : {};
}

function body() {
  const request = {messages: [...messages], stream: true, stream_options: {include_usage: true}};
  if ($("system").value.trim()) request.messages.unshift({role: "system", content: $("system").value});
  if ($("effort").value) request.reasoning_effort = $("effort").value;
  if ($("temperature").value.trim()) request.temperature = Number($("temperature").value);
  if ($("tools").value.trim()) request.tools = JSON.parse($("tools").value);
  return JSON.stringify(request);
}

// The objects of an event stream.
async function* events(response) {
  let rest = "";
  for await (const chunk of chunks(response.body.pipeThrough(new TextDecoderStream()).getReader())) {
    const parts = (rest + chunk).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ") || part === "data: [DONE]") continue;
      yield JSON.parse(part.slice(6));
    }
  }
}

async function* chunks(reader) {
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    yield value;
  }
}

// Draft tokens accepted and verifications so far, over all requests of the server.
async function drafts() {
  const text = await (await fetch("metrics")).text();
  const value = name => Number((text.match(new RegExp("^vllm:spec_decode_num_" + name + "_total\\{.*\\} (.*)$", "m")) || [0, 0])[1]);
  return {accepted: value("accepted_tokens"), steps: value("drafts")};
}

// One answer on the page and as a message.
class Answer {
  constructor() {
    this.message = {role: "assistant", content: ""};
    this.box = add($("log"), "div", "assistant");
    this.stats = add(this.box, "div", "stats");
    this.start = performance.now();
    this.tokens = 0;
  }
  part(name, make) {
    if (!this[name]) { this[name] = make(); this.box.append(this.stats); }
    return this[name];
  }
  reason(text) {
    const div = this.part("reasonDiv", () => {
      const details = add(this.box, "details", "reasoning");
      add(details, "summary").textContent = "Reasoning";
      return add(details, "div");
    });
    this.message.reasoning_content = (this.message.reasoning_content || "") + text;
    div.textContent += text;
  }
  say(text) {
    this.message.content += text;
    this.part("textDiv", () => add(this.box, "div", "text")).textContent += text;
  }
  call(delta) {
    const calls = this.message.tool_calls ||= [];
    if (!calls[delta.index]) {
      calls[delta.index] = {id: delta.id, type: "function", function: {name: delta.function.name, arguments: ""}};
      this.part("call" + delta.index, () => add(this.box, "div", "call"));
    }
    const f = calls[delta.index].function;
    f.arguments += delta.function.arguments || "";
    this["call" + delta.index].replaceChildren(f.name + " ", Object.assign(document.createElement("code"), {textContent: f.arguments}));
  }
  take(event) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) this.tokens = event.usage.completion_tokens;
    for (const choice of event.choices || []) {
      const delta = choice.delta;
      if (delta.reasoning_content) this.reason(delta.reasoning_content);
      if (delta.content) this.say(delta.content);
      for (const call of delta.tool_calls || []) this.call(call);
      if (delta.reasoning_content || delta.content || delta.tool_calls) this.tokens += event.usage ? 0 : 1;
    }
    this.first ||= performance.now();
    this.show("");
  }
  show(more) {
    const seconds = (performance.now() - this.first) / 1000;
    const rate = seconds > 0 ? (this.tokens / seconds).toFixed(1) : "-";
    this.stats.textContent = `${this.tokens} tokens, ${rate} tokens/s, first after ${((this.first - this.start) / 1000).toFixed(2)} s${more}`;
  }
  // Asks for the results of the calls; they go on as messages.
  askResults() {
    const calls = this.message.tool_calls;
    const form = add(this.box, "form", "results");
    const inputs = calls.map(call => Object.assign(add(form, "input"), {placeholder: "result of " + call.function.name}));
    add(form, "button").textContent = "Send results";
    form.onsubmit = e => {
      e.preventDefault();
      calls.forEach((call, i) => {
        messages.push({role: "tool", tool_call_id: call.id, content: inputs[i].value});
        add($("log"), "div", "user result").textContent = inputs[i].value;
      });
      form.remove();
      answer();
    };
    inputs[0].focus();
  }
}

async function answer() {
  running = new AbortController();
  $("send").textContent = "Stop";
  const shown = new Answer();
  if (!named) showModel();
  try {
    const before = await drafts();
    const response = await fetch("v1/chat/completions", {method: "POST", body: body(), headers: headers(), signal: running.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const event of events(response)) {
      shown.take(event);
      $("log").scrollTop = $("log").scrollHeight;
    }
    const after = await drafts();
    const steps = after.steps - before.steps;
    shown.show(steps > 0 ? `, ${(1 + (after.accepted - before.accepted) / steps).toFixed(2)} tokens a verification` : "");
  } catch (error) {
    if (error.name !== "AbortError") add(shown.box, "div", "error").textContent = error.message;
  }
  running = null;
  $("send").textContent = "Send";
  if (!shown.box.isConnected) return;  // of a chat that is gone
  if (shown.message.content || shown.message.tool_calls) messages.push(shown.message);
  if (shown.message.tool_calls) shown.askResults();
}

function showModel() {
  fetch("v1/models", {headers: headers()}).then(r => r.json()).then(list => { $("model").textContent = list.data[0].id; named = true; }).catch(() => {});
}
showModel();
</script>
</body>
</html>
)html";

}  // namespace deepinfer
