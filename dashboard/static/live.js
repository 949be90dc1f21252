"use strict";
// Changes the page to what the server sends again. Without JavaScript the page is the same, and stays.

const main = document.getElementById("content");
const connection = document.getElementById("connection");
const notice = document.getElementById("notice");
const filter = document.getElementById("filter");
const RETRY = 10000, SILENCE = 10000, TYPING = 250;
let source = null, silence = null, typing = null, last = [];

function say(text, kind, why = []) {
  // Screen readers say what is written, also if it was there.
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = kind;
  main.classList.toggle("stale", kind !== "good");
  notice.replaceChildren(...why);
  notice.hidden = !why.length;
}

// In place: what has the focus, is open or scrolled stays so.
function morph(old, next) {
  const fresh = [...next.childNodes];
  fresh.forEach((node, index) => {
    let at = old.childNodes[index];
    if (node.id && (!at || at.id !== node.id)) {
      const same = document.getElementById(node.id);
      if (same && same.parentNode === old) at = old.insertBefore(same, at);
    }
    if (!at || at.nodeName !== node.nodeName || (at.id || "") !== (node.id || "")) old.insertBefore(node, at || null);
    else if (at.isEqualNode(node)) return;
    else if (at.nodeType !== Node.ELEMENT_NODE) at.data = node.data;
    // A person who is about to confirm decides on what was shown when the form was opened.
    else if (!at.matches(":popover-open")) {
      for (const { name } of [...at.attributes]) if (!node.hasAttribute(name)) at.removeAttribute(name);
      for (const { name, value } of node.attributes) if (at.getAttribute(name) !== value) at.setAttribute(name, value);
      morph(at, node);
    }
  });
  while (old.childNodes.length > fresh.length) old.lastChild.remove();
}

function show(html) {
  const next = new DOMParser().parseFromString(html, "text/html").body;
  const trouble = next.querySelector("#trouble");
  // What was read last is better than nothing.
  const keeps = trouble && !main.querySelector("#trouble");
  if (!keeps) morph(main, next);
  last = trouble ? ["▲ Not live", "warning", keeps ? [trouble] : []] : ["● Live", "good"];
  say(...last);
}

function heard() {
  clearTimeout(silence);
  silence = setTimeout(() => say("▲ Not live: no answer", "warning"), SILENCE);
}

function close() {
  clearTimeout(silence);
  if (source) source.close();
}

function open() {
  close();
  source = new EventSource(document.body.dataset.live + location.search);
  source.addEventListener("page", (event) => show(event.data));
  source.addEventListener("beat", () => say(...last));
  for (const each of ["open", "page", "beat"]) source.addEventListener(each, heard);
  source.addEventListener("error", lost);
  heard();
}

function lost(event) {
  const failed = event.target;
  clearTimeout(silence);
  say(`▲ Connection lost; ${document.body.dataset.lost}`, "warning");
  // After an answer that is no stream, such as a proxy's own, the browser does not try again.
  if (failed.readyState === EventSource.CLOSED) setTimeout(() => failed === source && !document.hidden && open(), RETRY);
}

function refilter() {
  clearTimeout(typing);
  const words = filter.value.trim();
  history.replaceState(null, "", words ? `?${new URLSearchParams({ q: words })}` : location.pathname);
  open();
}

filter.addEventListener("input", () => (clearTimeout(typing), (typing = setTimeout(refilter, TYPING))));
filter.form.addEventListener("submit", (event) => (event.preventDefault(), refilter()));
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  filter.focus();
});

// A browser has few connections to one server: only the page that is seen takes one.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
if (!document.hidden) open();
